"""A source of bytes as a pipe is one: its length is not known, it comes in small pieces and only once."""

from __future__ import annotations


class Pipe:
    name = "a pipe"

    def __init__(self, data: bytes, piece_bytes: int = 1000) -> None:
        self._data = data
        self._piece_bytes = piece_bytes
        self._at = 0

    def seekable(self) -> bool:
        return False

    def read(self, most: int) -> bytes:
        piece = self._data[self._at : self._at + min(most, self._piece_bytes)]
        self._at += len(piece)
        return piece
