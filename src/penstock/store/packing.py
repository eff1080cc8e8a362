"""Owns how references are packed for the disk: differences, in as few bytes as they need, in blocks.

Each word of a reference is stored as its distance from where the two references before it would lead on a straight
line, zigzag, seven bits a byte, the lowest first; where one lies beside the last as that beside the one before, a word
is one byte. A block begins with its length and with nothing before it, so that the others need not be unpacked for
the sake of one. Never touches a file.
"""

import struct
from array import array
from typing import Any

from penstock.store import gather as G
from penstock.store import layout as L

BLOCK_ROWS = 4096
BLOCK_HEAD = struct.Struct("<Q")  # bytes of the block behind it
WORD_BYTES_MOST = 10  # 64 bits, seven a byte

_ROW = G.REFERENCE_WORDS


class Unreadable(ValueError):
    """These bytes are no packed references."""


def pack(rows: Any) -> bytes:
    """References, ``gather.REFERENCE_WORDS`` words each, as bytes.

    >>> rows = array("Q", [7, 1, 64, 5, 0, 8, 2, 128, 5, 0])
    >>> unpack(pack(rows), 2, 0, 2) == rows
    True
    """
    packed = bytearray()
    room = bytearray(min(len(rows), BLOCK_ROWS * _ROW) * WORD_BYTES_MOST)
    for first in range(0, len(rows), BLOCK_ROWS * _ROW):
        used = _pack(rows, first, min(len(rows) - first, BLOCK_ROWS * _ROW), room)
        packed += BLOCK_HEAD.pack(used)
        packed += memoryview(room)[:used]
    return bytes(packed)


def unpack(data: bytes, count: int, first: int, end: int) -> "array[int]":
    """Those from ``first`` to ``end`` of the ``count`` references that were packed into ``data``."""
    rows = array("Q")
    at = 0
    for block in range(0, count, BLOCK_ROWS):
        if at + BLOCK_HEAD.size > len(data):
            raise Unreadable(f"a block at byte {at}")
        behind = at + BLOCK_HEAD.size + BLOCK_HEAD.unpack_from(data, at)[0]
        if behind > len(data):
            raise Unreadable(f"a block at byte {at}")
        block_end = min(block + BLOCK_ROWS, count)
        if block < end and block_end > first:
            part = array("Q", bytes((block_end - block) * _ROW * L.WORD_BYTES))
            if _unpack(data, at + BLOCK_HEAD.size, behind, part, len(part)) != behind:
                raise Unreadable(f"a block at byte {at}")
            rows.extend(part[max(first - block, 0) * _ROW : (min(end, block_end) - block) * _ROW])
        at = behind
    if at != len(data):
        raise Unreadable(f"an end at byte {at}")
    return rows


def _pack(rows: Any, first: int, words: int, room: Any) -> int:
    """Pack so many words; how many bytes that took."""
    used = 0
    for i in range(words):
        word = rows[first + i]
        expected = 0
        if i >= 2 * _ROW:
            expected = 2 * rows[first + i - _ROW] - rows[first + i - 2 * _ROW]
        elif i >= _ROW:
            expected = rows[first + i - _ROW]
        apart = (word - expected) & L.MASK64
        apart = ((apart << 1) & L.MASK64) ^ (L.MASK64 if apart >> 63 else 0)
        while apart >= 0x80:
            room[used] = (apart & 0x7F) | 0x80
            apart >>= 7
            used += 1
        room[used] = apart
        used += 1
    return used


def _unpack(data: Any, at: int, end: int, rows: Any, words: int) -> int:
    """Unpack so many words from the bytes from ``at`` on; where they ended, 0 if not before ``end``."""
    for i in range(words):
        apart = 0
        shift = 0
        byte = 0x80
        while byte >= 0x80:
            if at >= end or shift > 63:
                return 0
            byte = data[at]
            at += 1
            apart |= (byte & 0x7F) << shift
            shift += 7
        apart = ((apart & L.MASK64) >> 1) ^ (L.MASK64 if apart & 1 else 0)
        if i >= 2 * _ROW:
            apart += 2 * rows[i - _ROW] - rows[i - 2 * _ROW]
        elif i >= _ROW:
            apart += rows[i - _ROW]
        rows[i] = apart & L.MASK64
    return at
