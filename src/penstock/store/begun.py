"""Part of the door to the operating system: moves to another queue that were begun, a file for each.

Whoever is killed between the two queues leaves its message in both. The file says so: whoever gets the message next
finishes the move instead. It is about processes that die, so it is not synced, and one that was cut short while it was
written is none: nothing was put before it was there.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

import msgspec

from penstock.store import rig
from penstock.store.files import make_folder, open_file, write_all

FOLDER = "moves"
WRITTEN_IN_S = 60.0


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
        except BaseException:
            self.end(name)
            raise
        finally:
            os.close(fd)
        return name

    def leave_out(self, name: str, move: BegunMove, number: int, slot: int) -> None:
        """One of its messages is not on its way any more."""
        others = [message for message in move.messages if message != (number, slot)]
        if others:
            self.begin(msgspec.structs.replace(move, messages=others))
        self.end(name)

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

    def is_left_over(self, name: str) -> bool:
        """Whether whoever was writing it died meanwhile."""
        try:
            return self.read(name) is None and time.time() - (self._folder / name).stat().st_mtime > WRITTEN_IN_S
        except OSError:
            return False

    def messages(self) -> set[tuple[int, int]]:
        """All that are on their way."""
        return {message for name in self.names() if (move := self.read(name)) for message in move.messages}

    def of(self, number: int, slot: int) -> tuple[str, BegunMove] | None:
        """The move that this message is in."""
        for name in self.names():
            move = self.read(name)
            if move is not None and (number, slot) in move.messages:
                return name, move
        return None
