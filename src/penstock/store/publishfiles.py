"""Part of the door to the operating system: the file of a publisher, which makes known what it published, and its lock.

``published/<publisher>/state`` names the batch that is being published and its first message, so that after a power
loss a restore can tell whether that came to be; ``lock`` is locked meanwhile. The file is there whole or not at all.
Never looks at the kernel.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Corrupt, Misuse
from penstock.store import layout as L
from penstock.store import rig, syscalls
from penstock.store.files import open_file, sync_directory, sync_file, write_all
from penstock.store.record import crc32

PUBLISHED = "published"
STATE = "state"
LOCK = "lock"

MAGIC = 0x314255504B545350  # "PSTKPUB1"
BODY = struct.Struct("<QQQQQQQ")  # magic, secret, last + 1, batch + 1, slot, number, messages
CHECK = struct.Struct("<Q")  # CRC-32 of all before it

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class State(NamedTuple):
    """Batches up to ``last`` are published; ``batch`` is being published, and its first message has this slot and
    number. -1: none."""

    last: int = -1
    batch: int = -1
    slot: int = 0
    number: int = 0
    messages: int = 0


def check_name(name: str) -> str:
    """A publisher's name is also that of a directory.

    >>> check_name("5f0c-import.1")
    '5f0c-import.1'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Misuse(
            f"a publisher's name has 1 to {L.PUBLISHER_NAME_BYTES} letters, digits, dots, hyphens and underscores and "
            f"begins with none of the dots and hyphens; not {name!r}"
        )
    return name


def publishers(queue: Path) -> list[str]:
    """Names of those that have a folder."""
    try:
        found = os.listdir(queue / PUBLISHED)
    except FileNotFoundError:
        return []
    return sorted(name for name in found if _NAME.fullmatch(name))


class PublishFiles:
    """The files of one publisher."""

    def __init__(self, queue: Path, name: str, signature: int) -> None:
        self.path = queue / PUBLISHED / check_name(name)
        self._signature = signature

    def lock(self) -> int:
        """A descriptor that keeps everybody else out until it is closed, in a folder that it makes; -1 if somebody else
        has one."""
        while True:
            self._make()
            try:
                fd = open_file(self.path / LOCK, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:
                continue  # the publisher is just being forgotten
            try:
                rig.effect(rig.LOCK, fd)
                if not syscalls.try_lock_file(fd):
                    os.close(fd)
                    return -1
                if self._is_there(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _make(self) -> None:
        for folder in (self.path.parent, self.path):
            if not folder.exists():
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                sync_directory(folder.parent)

    def _is_there(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path / LOCK))
        except FileNotFoundError:
            return False

    def exists(self) -> bool:
        return self.path.exists()

    def write(self, state: State) -> None:
        """Durable when it returns."""
        data = BODY.pack(
            MAGIC, self._signature, state.last + 1, state.batch + 1, state.slot, state.number, state.messages
        )
        aside = self.path / f"{STATE}.new"
        fd = open_file(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data + CHECK.pack(crc32(data)), 0)
            sync_file(fd)
        finally:
            os.close(fd)
        rig.effect(rig.RENAME, str(aside))
        os.rename(aside, self.path / STATE)
        sync_directory(self.path)

    def read(self) -> State | None:
        """None if there is no file."""
        path = self.path / STATE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != BODY.size + CHECK.size:
            raise self._damaged(f"{BODY.size + CHECK.size} bytes", f"{len(data)} bytes")
        magic, signature, last, batch, slot, number, count = BODY.unpack_from(data)
        if magic != MAGIC or CHECK.unpack_from(data, BODY.size)[0] != crc32(data[: BODY.size]):
            raise self._damaged("the checksum of what is there", "another one")
        if signature != self._signature:
            raise self._damaged("a publisher of this queue", "one of another queue")
        return State(last - 1, batch - 1, slot, number, count)

    def forget(self) -> None:
        """Remove the file, for good: before the kernel forgets its number."""
        rig.effect(rig.UNLINK, str(self.path / STATE))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path / STATE)
        sync_directory(self.path)

    def remove(self) -> None:
        """The folder; whoever holds the lock then holds none, and sees it."""
        for name in (f"{STATE}.new", STATE, LOCK):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path / name)
        with contextlib.suppress(OSError):  # somebody has begun anew
            os.rmdir(self.path)

    def _damaged(self, expected: str, found: str) -> Corrupt:
        return Corrupt(str(self.path / STATE), offset=0, expected=expected, found=found)
