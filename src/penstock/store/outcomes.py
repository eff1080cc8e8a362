# cython: boundscheck=False, wraparound=False
"""Owns the bytes of a queue's history: what became of a message, 56 bytes each, gathered in blocks with a checksum.

A row is copied together while the queue's lock is held, so it is a few stores: nothing is decoded, and nothing of the
message is kept alive. Texts, which are the record's meta and what is said beside it, are in a heap behind the rows, the
same one once in a block. Never touches a file, never reads the clock.
"""

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.codec import decode_meta, encode_meta
from penstock.store import gather
from penstock.store import layout as L
from penstock.store.record import crc32  # several times as fast as zlib's, where it is compiled

MAGIC = b"PSTKHST1"
BLOCK_MAGIC = b"PSTKHBLK"
HEAD = struct.Struct("<8sII")  # of a file: magic, bytes of the JSON that follows, its CRC-32
BLOCK = struct.Struct("<8sIIII")  # magic, rows, bytes of the heap, CRC-32 of rows and heap, that of the 16 before it
ROW = struct.Struct("<7Q")  # the words below
ROW_WORDS = 7
ROW_BYTES = 56
if ROW.size != ROW_BYTES or HEAD.size != 16 or BLOCK.size != 24:
    raise ImportError("the layout of the history has other sizes than it says")

O_NUMBER = 0
O_ENQUEUED_US = 1
O_DELIVER_US = 2
O_TAKEN_US = 3
O_DONE_US = 4
O_WHAT = 5  # slot, attempts, result, priority
O_TEXTS = 6  # where in the heap, bytes of the meta, bytes of the text behind it
ATTEMPTS_SHIFT = 32
ATTEMPTS_MOST = 0xFFFFFF  # more are counted as so many
RESULT_SHIFT = 56
PRIORITY_SHIFT = 60
META_SHIFT = 32
TEXT_SHIFT = 48

ACKED = 1
FAILED = 2
DEAD_LETTERED = 3
EXPIRED = 4
DROPPED = 5
CANCELLED = 6
PURGED = 7
MOVED = 8
RESULTS = {
    ACKED: "acked",
    FAILED: "failed",
    DEAD_LETTERED: "dead-lettered",
    EXPIRED: "expired",
    DROPPED: "dropped",
    CANCELLED: "cancelled",
    PURGED: "purged",
    MOVED: "moved",
}

ROWS_MAX = 1024  # of a block: 56 KiB, about 5 ms of a busy receiver
HEAP_MAX = 32 << 10  # from here on a block is full
META_MAX = 512  # of a longer one only type, key and id are kept
TEXT_MAX = 2048
AGE_US = 1_000_000  # a block is full when it is so old and another row comes
SEPARATOR = b"\0"  # between reason and error, where a text is both

_ROW_WORDS = ROW_WORDS  # again: C's where it is compiled
_ROWS_MAX = ROWS_MAX
_HEAP_MAX = HEAP_MAX
_META_MAX = META_MAX
_AGE_US = AGE_US
_ATTEMPTS_MOST = ATTEMPTS_MOST
_ACKED = ACKED
_REFERENCE_WORDS = gather.REFERENCE_WORDS
_SLOT = gather.F_SLOT
_NUMBER = gather.F_NUMBER
_DELIVER_US = gather.F_DELIVER_US
_INFO = gather.F_INFO


def texts(reason: str, error: str | None = None) -> bytes:
    """Why, and what went wrong, as a row has them.

    >>> texts("max_attempts", "KeyError: 'a'")
    b"max_attempts\\x00KeyError: 'a'"
    """
    said = reason.replace("\0", " ").encode("utf-8", "replace")[: TEXT_MAX // 2]
    return said if error is None else said + SEPARATOR + error.encode("utf-8", "replace")[: TEXT_MAX // 2]


def trimmed(meta: bytes) -> bytes:
    """Of a long meta what a history needs."""
    try:
        said = decode_meta(meta)
    except msgspec.DecodeError:
        return b""
    short = encode_meta(said.t, said.k, None, {"o": said.o} if said.o is not None else None)
    return short if len(short) <= HEAP_MAX else b""


class Outcomes:
    """Rows that are on their way to a file. One thread at a time notes them: the one that has the queue's lock."""

    def __init__(self) -> None:
        self.rows = array("Q", bytes(ROW_BYTES * ROWS_MAX))
        self.words = self.rows
        self.count = 0
        self.heap = bytearray()
        self.places: dict[bytes, int] = {}
        self.last = b""
        self.last_at = 0
        self.due_us = 0
        self.sealed: list[bytes] = []  # blocks that nobody has written yet
        self.keeping = True  # for the benchmark, which compares with and without

    def note(
        self,
        number: int,
        slot: int,
        enqueued_us: int,
        deliver_us: int,
        taken_us: int,
        done_us: int,
        attempts: int,
        priority: int,
        result: int,
        meta: bytes,
        text: bytes,
    ) -> int:
        """One more row. A block that is full is sealed first."""
        if not self.keeping:
            return 0
        if self.count == 0:
            self.due_us = done_us + _AGE_US
        elif self.count == _ROWS_MAX or done_us >= self.due_us or len(self.heap) >= _HEAP_MAX:
            self.seal()
            self.due_us = done_us + _AGE_US
        if len(meta) > _META_MAX:
            meta = trimmed(meta)
        said = meta + text if text else meta
        at = self.last_at if said == self.last else self._place(said)
        if attempts > _ATTEMPTS_MOST:
            attempts = _ATTEMPTS_MOST
        first = self.count * _ROW_WORDS
        self.words[first] = number
        self.words[first + 1] = enqueued_us
        self.words[first + 2] = deliver_us
        self.words[first + 3] = taken_us
        self.words[first + 4] = done_us
        self.words[first + 5] = slot | attempts << 32 | result << 56 | priority << 60
        self.words[first + 6] = at | len(meta) << 32 | len(text) << 48
        self.count += 1
        return 0

    def note_claimed(
        self, references: Any, found: Any, taken_us: Any, first: int, count: int, done_us: int, text: bytes
    ) -> None:
        """A row for each of these messages of a claim that was committed: see ``store/gather.py`` for references and
        what was collected of their records."""
        metas = found.metas
        enqueued_us = found.enqueued_us
        faults = found.faults
        for i in range(first, first + count):
            if faults[i] == 0:
                at = i * _REFERENCE_WORDS
                info = references[at + _INFO]
                self.note(
                    references[at + _NUMBER],
                    references[at + _SLOT],
                    enqueued_us[i],
                    references[at + _DELIVER_US],
                    taken_us[i],
                    done_us,
                    info >> L.ATTEMPTS_SHIFT,
                    info & 0xF,
                    _ACKED,
                    metas[i],
                    text,
                )

    def _place(self, said: bytes) -> int:
        """Where in the heap these bytes are."""
        found = self.places.get(said)
        if found is None:
            found = len(self.heap)
            self.heap += said
            self.places[said] = found
        self.last = said
        self.last_at = found
        return found

    def seal(self) -> None:
        """What there is becomes a block, if there is any."""
        if self.count != 0:
            with memoryview(self.rows).cast("B") as rows:
                self.sealed.append(block(rows[: self.count * ROW_BYTES], bytes(self.heap)))
            self.count = 0
            self.heap = bytearray()
            self.places = {}
            self.last = b""
            self.last_at = 0


# ---------------------------------------------------------------- blocks


def block(rows: Any, heap: bytes) -> bytes:
    """The bytes of a block."""
    said = bytes(rows)
    check = crc32(heap, crc32(said))
    head = BLOCK.pack(BLOCK_MAGIC, len(said) // ROW_BYTES, len(heap), check, 0)[: BLOCK.size - 4]
    return b"".join((head, crc32(head).to_bytes(4, "little"), said, heap))


def file_head(said: bytes) -> bytes:
    """How a file begins. ``said`` is a JSON object: whose it is."""
    return HEAD.pack(MAGIC, len(said), zlib.crc32(said)) + said


def read_head(data: bytes) -> tuple[bytes, int] | None:
    """What the head of a file says, and where its blocks begin; None if there is none."""
    if len(data) < HEAD.size:
        return None
    magic, length, check = HEAD.unpack_from(data)
    said = data[HEAD.size : HEAD.size + length]
    if magic != MAGIC or len(said) != length or zlib.crc32(said) != check:
        return None
    return said, HEAD.size + length


class Damage:
    """What was passed over of a file: blocks that are damaged, and bytes at its end that are no whole block."""

    def __init__(self) -> None:
        self.blocks = 0
        self.torn_bytes = 0


def blocks(data: bytes, at: int, damage: Damage) -> Iterator[tuple[memoryview, memoryview]]:
    """The rows and the heap of each whole block. Behind what is damaged the next one is looked for; what is left at the
    end was being written, or never came to the disk."""
    view = memoryview(data)
    while at < len(data):
        size = _size(data, at)
        end = at + size
        if size and end <= len(data) and _is_whole(data, at, end):
            rows_end = at + BLOCK.size + BLOCK.unpack_from(data, at)[1] * ROW_BYTES
            yield view[at + BLOCK.size : rows_end], view[rows_end:end]
            at = end
            continue
        after = _next(data, at + 1)
        if after == len(data) and (not size or end > len(data)):
            damage.torn_bytes = len(data) - at
            return
        damage.blocks += 1
        at = after


def _size(data: bytes, at: int) -> int:
    """Of the block that begins here; 0 if none does."""
    if at + BLOCK.size > len(data):
        return 0
    magic, rows, heap_bytes, _, check = BLOCK.unpack_from(data, at)
    if magic != BLOCK_MAGIC or zlib.crc32(data[at : at + BLOCK.size - 4]) != check:
        return 0
    return int(BLOCK.size + rows * ROW_BYTES + heap_bytes)


def _is_whole(data: bytes, at: int, end: int) -> bool:
    return bool(zlib.crc32(data[at + BLOCK.size : end]) == BLOCK.unpack_from(data, at)[3])


def _next(data: bytes, at: int) -> int:
    """Where the next block begins whose head is right; the end if there is none."""
    while True:
        at = data.find(BLOCK_MAGIC, at)
        if at < 0:
            return len(data)
        if _size(data, at):
            return at
        at += 1
