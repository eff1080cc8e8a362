"""Part of the door to the operating system: the file of a publisher, which makes known what it published, and its lock.

``published/<publisher>/state`` names the batch that is being published and its first message, so that after a power
loss a restore can tell whether that came to be; ``lock`` is locked meanwhile. The file is there whole or not at all.
Never looks at the kernel.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

from penstock.store import namedfiles, rig
from penstock.store.files import sync_directory
from penstock.store.namedfiles import LOCK, NamedFiles
from penstock.store.record import crc32

PUBLISHED = "published"
STATE = "state"

MAGIC = 0x314255504B545350  # "PSTKPUB1"
BODY = struct.Struct("<QQQQQQQ")  # magic, secret, last + 1, batch + 1, slot, number, messages
CHECK = struct.Struct("<Q")  # CRC-32 of all before it


class State(NamedTuple):
    """Batches up to ``last`` are published; ``batch`` is being published, and its first message has this slot and
    number. -1: none."""

    last: int = -1
    batch: int = -1
    slot: int = 0
    number: int = 0
    messages: int = 0


def check_name(name: str) -> str:
    """That of a publisher."""
    return namedfiles.check_name(name, "publisher")


def publishers(queue: Path) -> list[str]:
    """Names of those that have a folder."""
    return namedfiles.names(queue / PUBLISHED)


class PublishFiles(NamedFiles):
    """The files of one publisher."""

    def __init__(self, queue: Path, name: str, signature: int) -> None:
        super().__init__(queue / PUBLISHED / check_name(name), signature)

    def exists(self) -> bool:
        return self.path.exists()

    def write(self, state: State) -> None:
        """Durable when it returns."""
        data = BODY.pack(
            MAGIC, self._signature, state.last + 1, state.batch + 1, state.slot, state.number, state.messages
        )
        self._replace(STATE, data + CHECK.pack(crc32(data)))

    def read(self) -> State | None:
        """None if there is no file."""
        path = self.path / STATE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != BODY.size + CHECK.size:
            raise self._damaged(STATE, f"{BODY.size + CHECK.size} bytes", f"{len(data)} bytes")
        magic, signature, last, batch, slot, number, count = BODY.unpack_from(data)
        if magic != MAGIC or CHECK.unpack_from(data, BODY.size)[0] != crc32(data[: BODY.size]):
            raise self._damaged(STATE, "the checksum of what is there", "another one")
        if signature != self._signature:
            raise self._damaged(STATE, "a publisher of this queue", "one of another queue")
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
