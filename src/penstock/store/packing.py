# cython: boundscheck=False, wraparound=False
"""Owns how references are packed for the disk: differences, in as few bytes as they need, in blocks.

Each word of a reference is expected where the two references before it lead on a straight line. References of which all
words are there are only counted: of messages that were put in a row nearly all. Of the others a byte says which words
are elsewhere, and how far away is stored for each of these, zigzag, seven bits a byte, the lowest first. A block begins
with its length and with nothing before it, so that the others need not be unpacked for the sake of one. Never touches
a file.
"""

import struct
from array import array
from typing import Any

from penstock.store import gather as G
from penstock.store import layout as L

BLOCK_ROWS = 4096
BLOCK_HEAD = struct.Struct("<Q")  # bytes of the block behind it
WORD_BYTES_MOST = 10  # 64 bits, seven a byte
ROW_BYTES_MOST = 2 + 1 + G.REFERENCE_WORDS * WORD_BYTES_MOST  # how many came before it, which words, how far away

# Again for the compiled loops, where they are C's and not a module's.
_ROW = G.REFERENCE_WORDS
_WORD_BYTES_MOST = WORD_BYTES_MOST


class Unreadable(ValueError):
    """These bytes are no packed references."""


def pack(rows: Any) -> bytes:
    """References, ``gather.REFERENCE_WORDS`` words each, as bytes.

    >>> rows = array("Q", [7, 1, 64, 5, 0, 8, 2, 128, 5, 0])
    >>> unpack(pack(rows), 2, 0, 2) == rows
    True
    """
    packed = bytearray()
    count = len(rows) // _ROW
    room = bytearray(min(count, BLOCK_ROWS) * ROW_BYTES_MOST)
    for first in range(0, count, BLOCK_ROWS):
        used = _pack(rows, first * _ROW, min(count - first, BLOCK_ROWS), room)
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
            if _unpack(data, at + BLOCK_HEAD.size, behind, part, block_end - block) != behind:
                raise Unreadable(f"a block at byte {at}")
            rows.extend(part[max(first - block, 0) * _ROW : (min(end, block_end) - block) * _ROW])
        at = behind
    if at != len(data):
        raise Unreadable(f"an end at byte {at}")
    return rows


def _expected(rows: Any, at: int, number: int, word: int) -> int:
    """A word of the reference at ``at``, which is so far into its block."""
    if number >= 2:
        return (2 * rows[at - _ROW + word] - rows[at - 2 * _ROW + word]) & L.MASK64  # type: ignore[no-any-return]
    return rows[at - _ROW + word] if number == 1 else 0


def _pack(rows: Any, first: int, count: int, room: Any) -> int:
    """Pack so many references, from the word ``first`` on; how many bytes that took."""
    used = 0
    alike = 0  # as expected, one behind the other
    for number in range(count):
        at = first + number * _ROW
        which = 0
        for word in range(_ROW):
            if rows[at + word] != _expected(rows, at, number, word):
                which |= 1 << word
        if which == 0:
            alike += 1
            continue
        used = _write(alike, room, used)
        alike = 0
        room[used] = which
        used += 1
        for word in range(_ROW):
            if (which >> word) & 1:
                apart = (rows[at + word] - _expected(rows, at, number, word)) & L.MASK64
                used = _write(((apart << 1) & L.MASK64) ^ (L.MASK64 if apart >> 63 else 0), room, used)
    return _write(alike, room, used) if alike else used


def _write(value: int, room: Any, used: int) -> int:
    while value >= 0x80:
        room[used] = (value & 0x7F) | 0x80
        value >>= 7
        used += 1
    room[used] = value
    return used + 1


def _unpack(data: Any, at: int, end: int, rows: Any, count: int) -> int:
    """Unpack so many references from the bytes from ``at`` on; where they ended, 0 if not before ``end``."""
    number = 0
    while number < count:
        behind = _behind(data, at, end)
        if behind == 0:
            return 0
        alike = _read(data, at, behind)
        at = behind
        if alike > count - number:
            return 0
        for _ in range(alike):
            for word in range(_ROW):
                rows[number * _ROW + word] = _expected(rows, number * _ROW, number, word)
            number += 1
        if number == count:
            break
        which = data[at] if at < end else 0
        at += 1
        if which == 0 or which >> _ROW != 0:
            return 0
        for word in range(_ROW):
            value = _expected(rows, number * _ROW, number, word)
            if (which >> word) & 1:
                behind = _behind(data, at, end)
                if behind == 0:
                    return 0
                apart = _read(data, at, behind)
                at = behind
                value += (apart >> 1) ^ (L.MASK64 if apart & 1 else 0)
            rows[number * _ROW + word] = value & L.MASK64
        number += 1
    return at


def _behind(data: Any, at: int, end: int) -> int:
    """Where a number ends; 0 if not before ``end``, or if it has too many bytes."""
    for i in range(at, min(end, at + _WORD_BYTES_MOST)):
        if data[i] < 0x80:
            return i + 1
    return 0


def _read(data: Any, at: int, behind: int) -> int:
    value = 0
    while behind > at:
        behind -= 1
        value = ((value << 7) & L.MASK64) | (data[behind] & 0x7F)
    return value
