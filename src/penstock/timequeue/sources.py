"""Owns what ``put_file`` copies from: a path or an open file, read once from where it stands, piece by piece.

Says whether it can be read again, and whether it was changed meanwhile. Never knows where it goes.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import Misuse, SourceChanged
from penstock.store.bodyfiles import PIECE_BYTES

Progress = Callable[[int, int | None], None]  # bytes that were read, and all there are if that is known


class Source:
    """A file to be put, as a context manager: what it opened itself it closes.

    Where its size is known it gives so many bytes or an error. Else, of a pipe or a file that somebody unpacks, it
    gives what comes.
    """

    def __init__(self, given: Any, *, kept_bytes: int, progress: Progress | None = None) -> None:
        """``kept_bytes``: so many are read at once, to see whether it has more."""
        self._progress = progress
        self._opened: io.FileIO | None = None
        self._file: Any
        if isinstance(given, str | os.PathLike):
            self._file = self._opened = io.FileIO(os.fspath(given), "r")
            self.name = os.fspath(given)
        else:
            self._file = _readable(given)
            self.name = str(getattr(given, "name", None) or repr(given))
        try:
            self._status = _status(self._file)
            self._start = self._place()
            self.size = self._size()
            self._read = 0
            self.head = b"" if self.size is not None and self.size > kept_bytes else self._take_head(kept_bytes)
            self.is_whole = (len(self.head) if self.size is None else self.size) <= kept_bytes
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def known_bytes(self) -> int:
        """What it has at least, and where its size is known exactly."""
        return len(self.head) if self.size is None else self.size

    def rewind(self) -> bool:
        """Back to where it began; False if it cannot be read again."""
        if self._read == len(self.head):
            return True
        if self._start is None:
            return False
        try:
            self._file.seek(self._start + len(self.head))
        except (OSError, ValueError):
            return False
        self._read = len(self.head)
        return True

    def pieces(self, room: Callable[[int], object]) -> Iterator[bytes]:
        """All of it. ``room`` is asked for so many bytes before more are given than were known."""
        given = len(self.head)
        if self.head:
            yield self.head
        while piece := self._next(PIECE_BYTES if self.size is None else min(PIECE_BYTES, self.size - given)):
            given += len(piece)
            if self.size is None:
                room(len(piece))
            yield piece
            if self._progress is not None:
                self._progress(given, self.size)
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """An error if it has other bytes by now than those that were read, as far as one can tell."""
        if self.size is None:
            return
        if self._read < self.size:
            raise SourceChanged(self.name, f"it was cut off after {self._read} of {self.size} bytes")
        if self._read > self.size or self._file.read(1):
            raise SourceChanged(self.name, "it became longer")
        if _status(self._file) != self._status:
            raise SourceChanged(self.name, "it was changed")

    def _take_head(self, kept_bytes: int) -> bytes:
        """All of a small one, one byte more of a larger one."""
        found: list[bytes] = []
        while self._read <= kept_bytes and (piece := self._next(kept_bytes + 1 - self._read)):
            found.append(piece)
        return b"".join(found)

    def _next(self, most: int) -> bytes:
        if most <= 0:
            return b""
        piece = self._file.read(most)
        if piece is None:
            raise Misuse(f"{self.name}: it has nothing now and does not wait for more: make it blocking")
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise Misuse(f"{self.name}: it gives {type(piece).__name__}, not bytes: open it in binary mode")
        self._read += len(piece)
        return bytes(piece)

    def _place(self) -> int | None:
        """Where it stands now; None if one cannot go back to it."""
        with contextlib.suppress(OSError, AttributeError, ValueError):
            if self._file.seekable():
                return int(self._file.tell())
        return None

    def _size(self) -> int | None:
        """Of files whose size is what can be read of them. Some that the system makes up say 0 and have more."""
        if isinstance(self._file, io.BytesIO) and self._start is not None:
            return max(len(self._file.getbuffer()) - self._start, 0)
        if self._status is None or self._start is None:
            return None
        size = self._status[0] - self._start
        return size if size > 0 else None


def _readable(given: Any) -> Any:
    if isinstance(given, io.TextIOBase):
        raise Misuse(f"{given!r} gives text: open it in binary mode")
    if not callable(getattr(given, "read", None)):
        raise Misuse(f"put_file takes a path or a binary file, not {given!r}")
    return given


def _status(file: Any) -> tuple[int, int, int] | None:
    """Size, time of the last change and inode of a regular file that is read as it is; None of all others."""
    raw = getattr(file, "raw", file)
    if not isinstance(raw, io.FileIO):
        return None
    found = os.fstat(raw.fileno())
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None
