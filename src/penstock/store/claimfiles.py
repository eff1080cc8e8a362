"""Part of the door to the operating system: the files of claims, which make them durable, and a receiver's lock.

``claims/<receiver>/<number>`` has the references of a claim; without any, the claim was released; beside it
``<number>.verdicts`` says which of its messages are not simply to be acknowledged. ``committed`` has the number up to
which claims are acknowledged, ``timeout`` how long after it was seen they may be released by others; ``identity``
tells a receiver from others that have its name later; ``lock`` is locked while one lives. Each file is there whole or
not at all. Never looks at the kernel.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import struct
from array import array
from pathlib import Path

from penstock.store import layout as L
from penstock.store import namedfiles, packing, rig, verdictfiles
from penstock.store.files import sync_directory
from penstock.store.gather import REFERENCE_WORDS
from penstock.store.namedfiles import LOCK, NamedFiles
from penstock.store.record import crc32
from penstock.store.verdictfiles import Kept

CLAIMS = "claims"
COMMITTED = "committed"
TIMEOUT = "timeout"
IDENTITY = "identity"
VERDICTS = ".verdicts"

MAGIC = 0x324D4C434B545350  # "PSTKCLM2"
EARLIER = 0x314D4C434B545350  # "PSTKCLM1": before the first release references were packed otherwise
HEAD = struct.Struct("<QQQQ")  # magic, the queue's secret, number of the claim, references
CHECK = struct.Struct("<Q")  # CRC-32 of all before it

_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_VERDICTS = re.compile(rf"([1-9][0-9]{{0,18}}){re.escape(VERDICTS)}(\.[0-9a-f]+\.new)?")


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
        return sorted(int(name) for name in self._found() if _NUMBER.fullmatch(name))

    def _found(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def committed(self) -> int:
        """Claims up to this number are acknowledged, or are to be."""
        return self._number(COMMITTED)

    def timeout_us(self) -> int:
        """How long after its receiver was seen its claims may be released by anybody; 0: never."""
        return self._number(TIMEOUT)

    def identity(self) -> int:
        """A number that no other receiver has, not even one of this name when this one was forgotten; 0: it has none
        yet."""
        return self._number(IDENTITY)

    def set_identity(self, identity: int) -> None:
        """Durable when it returns."""
        self._write(IDENTITY, identity, array("Q"))

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

    def remove(self, claims: list[int]) -> None:
        """Nobody needs them any more. One that comes back after a power loss speaks of messages that are gone; or of
        some that wait, by their verdicts: so those go when it is certain that their claim has gone."""
        names = {str(claim) for claim in claims}
        judged = [match[0] for name in self._found() if (match := _VERDICTS.fullmatch(name)) and match[1] in names]
        self._unlink([str(claim) for claim in claims])
        if judged:
            sync_directory(self.path)
            self._unlink(judged)

    def remove_all(self) -> None:
        """The receiver is forgotten. Its claims are gone before what says that they were committed, and how. The lock
        goes last: until then nobody else is this receiver."""
        found = os.listdir(self.path)
        last = [name for name in found if _VERDICTS.fullmatch(name)]
        last += [name for name in (COMMITTED, LOCK) if name in found]
        self._unlink([name for name in found if name not in last])
        sync_directory(self.path)
        self._unlink(last)
        with contextlib.suppress(OSError):  # the next one of this name is here already
            os.rmdir(self.path)
        sync_directory(self.path.parent)

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            path = self.path / name
            rig.effect(rig.UNLINK, str(path))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    # ------------------------------------------------------------ verdicts, which anybody may write

    def judged(self) -> list[int]:
        """Claims that have verdicts, in their order."""
        found = [_VERDICTS.fullmatch(name) for name in self._found()]
        return sorted(int(match[1]) for match in found if match and not match[2])

    def verdicts(self, claim: int) -> list[Kept]:
        """Those of a claim; none if there is no file."""
        name = f"{claim}{VERDICTS}"
        try:
            return verdictfiles.unpack((self.path / name).read_bytes(), self._signature, claim)
        except FileNotFoundError:
            return []
        except verdictfiles.Unreadable as error:
            raise self._damaged(name, error.expected, error.found) from error

    def judge(self, claim: int, verdicts: list[Kept]) -> None:
        """In place of what was there: durable when it returns. Two may do it at once; one of them is the last."""
        name = f"{claim}{VERDICTS}"
        aside = f"{name}.{secrets.token_hex(8)}.new"
        try:
            self._replace(name, verdictfiles.pack(self._signature, claim, verdicts), aside)
        except OSError:
            with contextlib.suppress(OSError):
                self._unlink([aside])
            raise

    def unjudge(self, claim: int) -> None:
        """There are none after all: durable when it returns."""
        if claim in self.judged():
            self._unlink([f"{claim}{VERDICTS}"])
            sync_directory(self.path)

    def sweep_verdicts(self) -> None:
        """Those of claims that are gone, and what whoever died while it wrote some has left of them."""
        found = self._found()
        there = {name for name in found if _NUMBER.fullmatch(name)}
        judged = [match for name in found if (match := _VERDICTS.fullmatch(name))]
        self._unlink([match[0] for match in judged if match[1] not in there])

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
        if magic == EARLIER and count:
            raise self._damaged(name, "a claim as this version keeps it", "one of before: release it")
        if magic not in (MAGIC, EARLIER):
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
