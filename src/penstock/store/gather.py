"""Owns the loop that copies the records of many messages into columns: ends and bytes, as Arrow lays them out.

A message is given by a reference: slot, number, place, delivery time and info, as a picture of the kernel had them.
Reads the data files without the lock. A copy counts only if it is the message's record; it is checked after it was
copied, since a message that is gone may be overwritten at any time. Never touches a file but through its mapping.
"""

import struct
from array import array
from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import checksum
from penstock.store import layout as L

REFERENCE_WORDS = 5
F_SLOT = 0
F_NUMBER = 1
F_PLACE = 2
F_DELIVER_US = 3
F_INFO = 4

GATHERED = 0
NOT_THERE = 1  # the bytes at its place are not its record, or not any more

# The same for the compiled loops, where they are C's and not the module's.
_WORDS = REFERENCE_WORDS
_SLOT = F_SLOT
_NUMBER = F_NUMBER
_PLACE = F_PLACE
_GATHERED = GATHERED
_NOT_THERE = NOT_THERE

_SEVEN = struct.Struct("<7Q")


class Collected:
    """Columns of the messages that were asked for. Where ``faults`` is not zero the entries of the others are empty."""

    def __init__(self, count: int, body_bytes: int) -> None:
        self.bodies = bytearray(body_bytes)
        self.body_ends = array("i", bytes(4 * (count + 1)))  # from 0 on: a body is from its entry to the next one
        self.metas: list[bytes] = []
        self.enqueued_us = array("q", bytes(8 * count))
        self.flags = array("B", bytes(count))
        self.faults = array("B", bytes(count))


class Gather:
    """Reads the records of one queue through the mappings of its data files: (first unit, unit behind, mapping)."""

    def __init__(self, mappings: Any, signature: int) -> None:
        self.signature = signature
        self.files = 0
        self.firsts = array("Q", [first for first, _, _ in mappings])
        self.ends = array("Q", [end for _, end, _ in mappings])
        self.views = [memoryview(mapping) for _, _, mapping in mappings]
        if cython.compiled:
            for view in self.views:
                self._point(view)
        else:
            self.files = len(self.views)
            self.head: Any = (0,) * L.RECORD_WORDS

    def close(self) -> None:
        """Let go of the mappings."""
        self.files = 0
        for view in self.views:
            view.release()

    def _point(self, view: Any) -> None:
        self.starts[self.files] = cython.address(view[0])  # type: ignore[attr-defined]
        self.files += 1

    def collect(self, references: Any, first: int, count: int, bodies: bool) -> Collected:
        """The records of ``count`` references from the ``first`` one on.

        Without ``bodies`` only headers and meta are read, and the checksum, which covers the body, is not looked at.
        """
        room = 0
        for i in range(first, first + count):
            room += (references[i * _WORDS + _PLACE] & L.PLACE_MASK) * L.UNIT_BYTES
        gathered = Collected(count, room if bodies else 0)
        self._collect(
            references,
            first,
            count,
            bodies,
            gathered.bodies,
            gathered.body_ends,
            gathered.metas,
            gathered.enqueued_us,
            gathered.flags,
            gathered.faults,
        )
        return gathered

    def _collect(
        self,
        references: Any,
        first: int,
        count: int,
        bodies: bool,
        data: Any,
        ends: Any,
        metas: list[bytes],
        enqueued_us: Any,
        flags: Any,
        faults: Any,
    ) -> None:
        used = 0
        for i in range(count):
            at = (first + i) * _WORDS
            place = references[at + _PLACE]
            unit = place >> L.PLACE_SHIFT
            size = (place & L.PLACE_MASK) * L.UNIT_BYTES
            file = self._file_of(unit, place & L.PLACE_MASK)
            faults[i] = _NOT_THERE
            if file >= 0 and self._read_head(file, unit, references[at + _SLOT], references[at + _NUMBER], size):
                last = self.head[L.R_META_CHECK]
                meta = self._meta(file, unit, last & L.META_BYTES_MAX)
                body_bytes = self.head[L.R_INDEX_LENGTH] >> 32 if bodies else 0
                body_at = L.RECORD_BYTES + (last & L.META_BYTES_MAX)
                if body_bytes > 0:
                    self._copy_body(file, unit, body_at, body_bytes, data, used)
                if not bodies or self._check(meta, data, used, body_bytes, unit) == last >> 32:
                    faults[i] = _GATHERED
                    metas.append(meta)
                    enqueued_us[i] = self.head[L.R_ENQUEUED_US]
                    flags[i] = (last >> 16) & 0xFF
                    used += body_bytes
            if faults[i] != _GATHERED:
                metas.append(b"")
            ends[i + 1] = used

    def _file_of(self, unit: int, units: int) -> int:
        """Which file holds these units; -1 if none does."""
        for file in range(self.files):
            if self.firsts[file] <= unit and unit + units <= self.ends[file]:
                return file
        return -1

    def _read_head(self, file: int, unit: int, slot: int, number: int, size: int) -> bool:
        """Copy the header; False if it is not that of this message's record."""
        if size < L.RECORD_BYTES:
            return False
        at = (unit - self.firsts[file]) * L.UNIT_BYTES
        if cython.compiled:
            record = self.starts[file] + at  # type: ignore[attr-defined]
            copy(self.head, record, L.RECORD_BYTES)  # type: ignore[name-defined] # noqa: F821
        else:
            self.head = _SEVEN.unpack_from(self.views[file], at)
        length = (self.head[L.R_META_CHECK] & L.META_BYTES_MAX) + (self.head[L.R_INDEX_LENGTH] >> 32)
        return bool(
            self.head[L.R_SIGNATURE] == self.signature
            and self.head[L.R_NUMBER] == number
            and (self.head[L.R_SLOT_BATCH] & L.MASK32) == slot
            and L.RECORD_BYTES + length <= size
        )

    def _meta(self, file: int, unit: int, size: int) -> bytes:
        if size == 0:
            return b""
        at = (unit - self.firsts[file]) * L.UNIT_BYTES + L.RECORD_BYTES
        if cython.compiled:
            return self.starts[file][at : at + size]  # type: ignore[attr-defined, no-any-return]
        return bytes(self.views[file][at : at + size])

    def _copy_body(self, file: int, unit: int, body_at: int, size: int, data: Any, to: int) -> None:
        at = (unit - self.firsts[file]) * L.UNIT_BYTES + body_at
        if cython.compiled:
            body = self.starts[file] + at  # type: ignore[attr-defined]
            copy(cython.address(data[to]), body, size)  # type: ignore[name-defined] # noqa: F821
        else:
            data[to : to + size] = self.views[file][at : at + size]

    def _check(self, meta: bytes, data: Any, at: int, size: int, unit: int) -> int:
        """The checksum of what was copied."""
        check = checksum.crc32(meta, len(meta), 0)
        place = (unit ^ (unit >> 32)) & L.MASK32
        if cython.compiled:
            if size > 0:
                check = checksum.crc32(cython.address(data[at]), size, check)
            return checksum.crc32(cython.cast("const unsigned char*", self.head), L.RECORD_BYTES - 4, check ^ place)
        check = checksum.crc32(data[at : at + size], size, check)
        return checksum.crc32(_SEVEN.pack(*self.head), L.RECORD_BYTES - 4, check ^ place)


def still_there(words: Any, slots_at: int, references: Any, first: int, count: int, faults: Any) -> None:
    """Look in the kernel again: a message that has left its slot counts as not there.

    Where it has not, its record was not overwritten until now, and what was copied from its place is its own.
    """
    for i in range(count):
        at = (first + i) * _WORDS
        word = words[slots_at + references[at + _SLOT] * L.SLOT_WORDS + L.S_WORD]
        state = (word >> L.STATE_SHIFT) & 0xF
        if word >> L.NUMBER_SHIFT != references[at + _NUMBER] or state < L.STATE_WAITING:
            faults[i] = _NOT_THERE


def tell_apart(metas: list[bytes], faults: Any, known: dict[bytes, int], which: Any) -> None:
    """Of each meta its number among those that are ``known``, where new ones are added: the same come again and again.
    One that is not there counts as one that says nothing."""
    for i in range(len(metas)):
        meta = metas[i] if faults[i] == _GATHERED else b""
        number = known.get(meta)
        if number is None:
            number = known[meta] = len(known)
        which[i] = number


def identify(prefix: bytes, references: Any, first: int, count: int) -> tuple[bytearray, Any]:
    """The ids of messages, as ends and bytes."""
    data = bytearray(count * (len(prefix) + 8 + 1 + 12))
    ends = array("i", bytes(4 * (count + 1)))
    used = _identify(prefix, len(prefix), references, first, count, data, ends)
    del data[used:]
    return data, ends


def _identify(prefix: bytes, length: int, references: Any, first: int, count: int, data: Any, ends: Any) -> int:
    used = 0
    for i in range(count):
        at = (first + i) * _WORDS
        if cython.compiled:
            copy(cython.address(data[used]), cython.address(prefix[0]), length)  # type: ignore[name-defined] # noqa: F821
        else:
            data[used : used + length] = prefix
        used = _put_hexadecimal(data, used + length, references[at + _SLOT])
        data[used] = 45  # a hyphen
        used = _put_hexadecimal(data, used + 1, references[at + _NUMBER])
        ends[i + 1] = used
    return used


def _put_hexadecimal(data: Any, at: int, value: int) -> int:
    """Write a number without leading zeros; where it ends."""
    digits = 1
    while digits < 16 and value >> (4 * digits) != 0:
        digits += 1
    for place in range(at + digits - 1, at - 1, -1):
        data[place] = 48 + (value & 0xF) + (39 if value & 0xF > 9 else 0)
        value >>= 4
    return at + digits
