"""Part of the door to the operating system: the files of claims, which make them durable, and a receiver's lock.

``claims/<receiver>/<number>`` has the references of a claim; without any, the claim was released. ``committed`` has
the number up to which claims are acknowledged, ``timeout`` how long after it was seen they may be released by others;
``lock`` is locked while a receiver lives. Each file is there whole or
not at all. Never looks at the kernel.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from array import array
from pathlib import Path

from penstock.store import layout as L
from penstock.store import namedfiles, packing, rig
from penstock.store.files import sync_directory
from penstock.store.gather import REFERENCE_WORDS
from penstock.store.namedfiles import LOCK, NamedFiles
from penstock.store.record import crc32

CLAIMS = "claims"
COMMITTED = "committed"
TIMEOUT = "timeout"

MAGIC = 0x314D4C434B545350  # "PSTKCLM1"
HEAD = struct.Struct("<QQQQ")  # magic, the queue's secret, number of the claim, references
CHECK = struct.Struct("<Q")  # CRC-32 of all before it

_NUMBER = re.compile(r"[1-9][0-9]{0,18}")


def check_name(name: str) -> str:
    """That of a receiver."""
    return namedfiles.check_name(name, "receiver")


def receivers(queue: Path) -> list[str]:
    """Names of those that ever were there."""
    return namedfiles.names(queue / CLAIMS)


class ClaimFiles(NamedFiles):
    """The files of one receiver."""

    def __init__(self, queue: Path, name: str, signature: int) -> None:
        super().__init__(queue / CLAIMS / check_name(name), signature)

    def numbers(self) -> list[int]:
        """Claims that have a file, in their order."""
        try:
            found = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in found if _NUMBER.fullmatch(name))

    def committed(self) -> int:
        """Claims up to this number are acknowledged, or are to be."""
        return self._number(COMMITTED)

    def timeout_us(self) -> int:
        """How long after its receiver was seen its claims may be released by anybody; 0: never."""
        return self._number(TIMEOUT)

    def _number(self, name: str) -> int:
        try:
            number, _ = self._read(name)
        except FileNotFoundError:
            return 0
        return number

    def read(self, claim: int, first: int = 0, end: int = L.SLOTS_MAX) -> array[int] | None:
        """The references of a claim, or those from ``first`` to ``end``; none if it was released; None if there is no
        file."""
        try:
            number, rows = self._read(str(claim), first, end)
        except FileNotFoundError:
            return None
        if number != claim:
            raise self._damaged(str(claim), f"claim {claim}", f"claim {number}")
        return rows

    def count(self, claim: int) -> int | None:
        """How many references it has, as the file begins; None if there is none. Nothing else of it is checked."""
        try:
            with (self.path / str(claim)).open("rb") as file:
                head = file.read(HEAD.size)
        except FileNotFoundError:
            return None
        if len(head) < HEAD.size:
            raise self._damaged(str(claim), "the file of a claim", f"{len(head)} bytes")
        return int(HEAD.unpack(head)[3])

    def write(self, claim: int, rows: array[int]) -> None:
        """Durable when it returns."""
        self._write(str(claim), claim, rows)

    def commit(self, claim: int) -> None:
        """Note that claims up to this one are acknowledged: durable when it returns."""
        self._write(COMMITTED, claim, array("Q"))

    def set_timeout(self, timeout_us: int) -> None:
        """Durable when it returns."""
        self._write(TIMEOUT, timeout_us, array("Q"))

    def remove(self, claim: int) -> None:
        """Nobody needs it any more; if it comes back after a power loss, it speaks of messages that are gone."""
        path = self.path / str(claim)
        rig.effect(rig.UNLINK, str(path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_all(self) -> None:
        """The receiver is forgotten. Its claims are gone before what says that they were committed. The lock goes last:
        until then nobody else is this receiver."""
        found = os.listdir(self.path)
        self._unlink([name for name in found if name not in (COMMITTED, LOCK)])
        sync_directory(self.path)
        self._unlink([name for name in (COMMITTED, LOCK) if name in found])
        with contextlib.suppress(OSError):  # the next one of this name is here already
            os.rmdir(self.path)
        sync_directory(self.path.parent)

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            path = self.path / name
            rig.effect(rig.UNLINK, str(path))
            os.unlink(path)

    def _write(self, name: str, number: int, rows: array[int]) -> None:
        head = HEAD.pack(MAGIC, self._signature, number, len(rows) // REFERENCE_WORDS)
        body = packing.pack(rows)
        self._replace(name, head + body + CHECK.pack(crc32(body, crc32(head))))

    def _read(self, name: str, first: int = 0, end: int = 0) -> tuple[int, array[int]]:
        data = (self.path / name).read_bytes()
        if len(data) < HEAD.size + CHECK.size:
            raise self._damaged(name, "the file of a claim", f"{len(data)} bytes")
        magic, signature, number, count = HEAD.unpack_from(data)
        body_end = len(data) - CHECK.size
        if magic != MAGIC:
            raise self._damaged(name, "the file of a claim", "something else")
        if CHECK.unpack_from(data, body_end)[0] != crc32(data[:body_end]):
            raise self._damaged(name, "the checksum of what is there", "another one")
        if signature != self._signature:
            raise self._damaged(name, "a claim of this queue", "one of another queue")
        try:
            rows = packing.unpack(data[HEAD.size : body_end], count, first, end)
        except packing.Unreadable as error:
            raise self._damaged(name, f"{count} references", str(error)) from error
        return number, rows
