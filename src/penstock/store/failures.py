"""Part of the door to the operating system: what went wrong with messages that were given back, a file for each.

A message's record cannot be changed, so its errors are beside it, in ``failures/``, until it leaves the queue. They are
for people and decide nothing: they are not synced, and one that cannot be written or read is left out.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from penstock.store import rig
from penstock.store.files import body_name, make_folder, open_file, write_all

FOLDER = "failures"
KEPT_MAX = 16  # of the last errors of a message
TEXT_MAX = 500  # characters of one

_decode = msgspec.json.Decoder(list[tuple[int, str]]).decode


class Failures:
    """The errors of one queue's messages."""

    def __init__(self, path: Path) -> None:
        self._folder = path / FOLDER

    def note(self, number: int, slot: int, at_us: int, text: str) -> None:
        """One more error; only the last ones are kept."""
        kept = [*self.read(number, slot), (at_us, text[:TEXT_MAX])][-KEPT_MAX:]
        with contextlib.suppress(OSError):
            make_folder(self._folder, exist_ok=True)
            self._write(self._folder / body_name(number, slot), msgspec.json.encode(kept))

    @staticmethod
    def _write(file: Path, data: bytes) -> None:
        fd = open_file(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data, 0)
        finally:
            os.close(fd)

    def read(self, number: int, slot: int) -> list[tuple[int, str]]:
        """The last errors with their times, the oldest first."""
        try:
            return _decode((self._folder / body_name(number, slot)).read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return []

    def forget(self, number: int, slot: int) -> None:
        file = self._folder / body_name(number, slot)
        if file.exists():
            rig.effect(rig.UNLINK, str(file))
            with contextlib.suppress(OSError):
                os.unlink(file)

    def names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except OSError:
            return []
