"""Part of the door to the operating system: bodies that are files, copied in and read out piece by piece.

Owns writing such a file and the stream that reads and checks one. Never has all of a body in memory, and never knows
whose body it is.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any

from penstock.errors import Corrupt
from penstock.store.files import LocalFiles, sync_file, write_all
from penstock.store.record import crc32

PIECE_BYTES = 1 << 20
# A long body goes to disk as it comes: else one sync at its end would have gigabytes to write, and those of small
# messages, which the file system puts behind it, would wait for all of them.
SYNC_EVERY_BYTES = 64 << 20


def copy_in(files: LocalFiles, name: str, pieces: Iterable[bytes], *, sync: bool) -> tuple[int, int]:
    """Make the body of this name of these pieces; its length and checksum. What an error leaves is the caller's."""
    fd = files.create_body(name)
    length = check = unsynced = 0
    try:
        for piece in pieces:
            write_all(fd, piece, length)
            length += len(piece)
            unsynced += len(piece)
            check = crc32(piece, check)
            if sync and unsynced >= SYNC_EVERY_BYTES:
                sync_file(fd)
                unsynced = 0
        if sync:
            sync_file(fd)
    finally:
        os.close(fd)
    if sync:
        files.sync_body_names()
    return length, check


class BodyReader(io.RawIOBase):
    """A body as a stream, through a descriptor of its own, which it closes: it is there as long as somebody reads it.

    The sum is taken along the way, of what was skipped too, and whoever reads the last byte either has read the body
    that was put or gets ``Corrupt``.
    """

    def __init__(self, fd: int, path: str, *, length: int, check: int) -> None:
        self._fd = fd
        self._path = path
        self._length = length
        self._check = check
        self._position = 0
        self._summed = 0  # so many bytes from the start are in the sum
        self._sum = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._require_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._require_open()
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}.get(whence)
        if start is None:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence!r}")
        if start + offset < 0:
            raise ValueError(f"a place before the start: {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._require_open()
        with memoryview(buffer) as view, view.cast("B") as into:
            wanted = min(len(into), self._length - self._position)
            if wanted <= 0:
                return 0
            with into[:wanted] as part:
                found = os.preadv(self._fd, [part], self._position)
            if found == 0:
                raise self._too_short(self._position)
            with into[:found] as part:
                self._add(part, self._position)
        self._position += found
        if self._position == self._length:
            self._verify()
        return found

    def readall(self) -> bytes:
        """All that is left, in pieces that are not tiny."""
        pieces = []
        while piece := self.read(PIECE_BYTES):
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._fd)

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("the stream is closed")

    def _add(self, data: memoryview, offset: int) -> None:
        """Bytes of the body at ``offset``: those that come next in the sum are added to it."""
        if offset <= self._summed < offset + len(data):
            self._sum = crc32(bytes(data[self._summed - offset :]), self._sum)
            self._summed = offset + len(data)

    def _verify(self) -> None:
        while self._summed < self._length:  # somebody has skipped a part
            data = os.pread(self._fd, min(PIECE_BYTES, self._length - self._summed), self._summed)
            if not data:
                raise self._too_short(self._summed)
            self._add(memoryview(data), self._summed)
        if self._sum != self._check:
            raise Corrupt(
                self._path,
                offset=0,
                expected=f"{self._length} bytes with checksum {self._check:08x}",
                found=f"checksum {self._sum:08x}",
            )

    def _too_short(self, offset: int) -> Corrupt:
        return Corrupt(
            self._path, offset=offset, expected=f"a body of {self._length} bytes", found="the end of the file"
        )
