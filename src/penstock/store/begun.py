"""Part of the door to the operating system: moves to another queue that were begun, a file for each.

Whoever is killed between the two queues leaves its message in both. The file says so: whoever gets the message next
finishes the move instead. It is about processes that die, so it is not synced, and one that was cut short while it was
written is none: nothing was put before it was there.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import msgspec

from penstock.store import rig
from penstock.store.files import make_folder, open_file, write_all

FOLDER = "moves"


class BegunMove(msgspec.Struct, frozen=True):
    """Where messages go, and how."""

    to: str
    messages: list[tuple[int, int]]  # numbers and slots
    dead: bool = False  # as dead letters, for this reason
    reason: str = ""
    error: str | None = None
    revive: bool = False  # dead letters that are brought back


_decode = msgspec.json.Decoder(BegunMove).decode


class BegunMoves:
    """Those out of one queue."""

    def __init__(self, path: Path) -> None:
        self._folder = path / FOLDER

    def begin(self, move: BegunMove) -> str:
        """The name of its file. Whoever sees it may find that nothing was put yet."""
        make_folder(self._folder, exist_ok=True)
        name = uuid.uuid4().hex
        fd = open_file(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(fd, msgspec.json.encode(move), 0)
        finally:
            os.close(fd)
        return name

    def end(self, name: str) -> None:
        file = self._folder / name
        rig.effect(rig.UNLINK, str(file))
        with contextlib.suppress(OSError):
            os.unlink(file)

    def any(self) -> bool:
        return bool(self.names())

    def names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except OSError:
            return []

    def read(self, name: str) -> BegunMove | None:
        try:
            return _decode((self._folder / name).read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def of(self, number: int, slot: int) -> tuple[str, BegunMove] | None:
        """The move that this message is in."""
        for name in self.names():
            move = self.read(name)
            if move is not None and (number, slot) in move.messages:
                return name, move
        return None
