# cython: boundscheck=False, wraparound=False
"""Owns the loop that copies the records of many messages into columns: ends and bytes, as Arrow lays them out.

A message is given by a reference: slot, number, place, delivery time and info, as a picture of the kernel had them.
Reads the data files without the lock. A copy counts only if it is the message's record; it is checked after it was
copied, since a message that is gone may be overwritten at any time. Never touches a file but through its mapping.
"""

import os
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

RUN_UNITS_MAX = (256 << 10) // L.UNIT_BYTES  # it stays in the processor's cache until it has been looked through
RUN_UNITS_MIN = (16 << 10) // L.UNIT_BYTES  # what is less is as well read where it is mapped
RUN_GAP_UNITS = 16  # what lies between two records of a run is copied for nothing

# The same for the compiled loops, where they are C's and not the module's.
_WORDS = REFERENCE_WORDS
_SLOT = F_SLOT
_NUMBER = F_NUMBER
_PLACE = F_PLACE
_GATHERED = GATHERED
_NOT_THERE = NOT_THERE
_RUN_UNITS_MAX = RUN_UNITS_MAX
_RUN_UNITS_MIN = RUN_UNITS_MIN
_RUN_GAP_UNITS = RUN_GAP_UNITS

_SEVEN = struct.Struct("<7Q")
ID_BYTES_MOST = 16 + 1 + 16  # slot, hyphen, number


class Collected:
    """Columns of the messages that were asked for. Where ``faults`` is not zero the entries of the others are empty."""

    def __init__(self, count: int, body_bytes: int) -> None:
        self.bodies = _room(body_bytes)  # there may be more behind the last one
        self.body_ends = array("i", bytes(4 * (count + 1)))  # from 0 on: a body is from its entry to the next one
        self.metas: list[bytes] = []
        self.one_meta = True  # all are the same
        self.enqueued_us = array("q", bytes(8 * count))
        self.flags = array("B", bytes(count))
        self.faults = array("B", bytes(count))


def _room(size: int) -> Any:
    """Bytes to write to; in the compiled core what happens to be there, and nobody else has them yet."""
    if cython.compiled:
        return new_bytes(cython.NULL, size)  # type: ignore[name-defined] # noqa: F821
    return bytearray(size)


class Gather:
    """Reads the records of one queue through the mappings of its data files: (first unit, unit behind, mapping).

    With their descriptors, records with bodies that lie one behind the other are copied some at a time, which costs
    less than to map their pages.
    """

    def __init__(self, mappings: Any, signature: int, descriptors: Any = ()) -> None:
        self.signature = signature
        self.descriptors = list(descriptors)
        # Before the files stands what was copied last.
        run = bytearray((RUN_UNITS_MAX if self.descriptors else 1) * L.UNIT_BYTES)
        self.files = 0
        self.firsts = array("Q", [0, *(first for first, _, _ in mappings)])
        self.ends = array("Q", [0, *(end for _, end, _ in mappings)])
        self.views = [memoryview(run), *(memoryview(mapping) for _, _, mapping in mappings)]
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
        if bodies:
            for i in range(first, first + count):
                room += (references[i * _WORDS + _PLACE] & L.PLACE_MASK) * L.UNIT_BYTES
        gathered = Collected(count, room)
        if count > 0:
            self._collect(
                references,
                first,
                count,
                bodies,
                gathered,
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
        gathered: Collected,
        data: Any,
        ends: Any,
        metas: list[bytes],
        enqueued_us: Any,
        flags: Any,
        faults: Any,
    ) -> None:
        if cython.compiled:
            to = cython.cast("unsigned char*", start_of(data))  # type: ignore[name-defined] # noqa: F821
        else:
            to = data
        copies = bodies and len(self.descriptors) > 0
        used = 0
        meta = one = b""
        for i in range(count):
            at = (first + i) * _WORDS
            place = references[at + _PLACE]
            unit = place >> L.PLACE_SHIFT
            size = (place & L.PLACE_MASK) * L.UNIT_BYTES
            file = self._file_of(unit, place & L.PLACE_MASK)
            if copies and file > 0 and self._copy_run(file, references, first + i, first + count):
                file = 0
            faults[i] = _NOT_THERE
            if file >= 0 and self._read_head(file, unit, references[at + _SLOT], references[at + _NUMBER], size):
                last = self.head[L.R_META_CHECK]
                meta = self._meta(meta, file, unit, last & L.META_BYTES_MAX)
                body_bytes = self.head[L.R_INDEX_LENGTH] >> 32 if bodies else 0
                if body_bytes > 0:
                    self._copy_body(file, unit, L.RECORD_BYTES + (last & L.META_BYTES_MAX), body_bytes, to, used)
                if not bodies or self._is_whole(file, unit, meta, to, used, body_bytes):
                    faults[i] = _GATHERED
                    enqueued_us[i] = self.head[L.R_ENQUEUED_US]
                    flags[i] = (last >> 16) & 0xFF
                    used += body_bytes
            found = meta if faults[i] == _GATHERED else b""
            if i == 0:
                one = found
            elif found is not one:
                gathered.one_meta = False
            metas.append(found)
            ends[i + 1] = used

    def _copy_run(self, file: int, references: Any, i: int, end: int) -> bool:
        """Copy the record of reference ``i`` and those that lie behind it, as far as they come next."""
        place = references[i * _WORDS + _PLACE]
        start = place >> L.PLACE_SHIFT
        behind = start + (place & L.PLACE_MASK)
        limit = min(self.ends[file], start + _RUN_UNITS_MAX)
        for j in range(i + 1, end):
            place = references[j * _WORDS + _PLACE]
            unit = place >> L.PLACE_SHIFT
            if unit < behind or unit > behind + _RUN_GAP_UNITS or unit + (place & L.PLACE_MASK) > limit:
                break
            behind = unit + (place & L.PLACE_MASK)
        if behind - start < _RUN_UNITS_MIN or behind > limit:
            return False
        self.firsts[0] = self.ends[0] = 0
        run = self.views[0][: (behind - start) * L.UNIT_BYTES]
        copied = os.preadv(self.descriptors[file - 1], [run], (start - self.firsts[file]) * L.UNIT_BYTES)
        if copied != (behind - start) * L.UNIT_BYTES:
            return False
        self.firsts[0] = start
        self.ends[0] = behind
        return True

    def _file_of(self, unit: int, units: int) -> int:
        """Which file holds these units, 0 for what was copied; -1 if none does."""
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

    def _meta(self, before: bytes, file: int, unit: int, size: int) -> bytes:
        """Copy the meta. Often it is that of the message before: then it is the same object."""
        if size == 0:
            return b""
        at = (unit - self.firsts[file]) * L.UNIT_BYTES + L.RECORD_BYTES
        if cython.compiled:
            if len(before) == size and compare(start_of(before), self.starts[file] + at, size) == 0:  # type: ignore[name-defined, attr-defined] # noqa: F821
                return before
            return self.starts[file][at : at + size]  # type: ignore[attr-defined, no-any-return]
        read = bytes(self.views[file][at : at + size])
        return before if read == before else read

    def _copy_body(self, file: int, unit: int, body_at: int, size: int, data: Any, to: int) -> None:
        at = (unit - self.firsts[file]) * L.UNIT_BYTES + body_at
        if cython.compiled:
            copy(data + to, self.starts[file] + at, size)  # type: ignore[name-defined, attr-defined] # noqa: F821
        else:
            data[to : to + size] = self.views[file][at : at + size]

    def _is_whole(self, file: int, unit: int, meta: bytes, data: Any, at: int, size: int) -> bool:
        """Whether the checksum is that of what was copied."""
        place = (unit ^ (unit >> 32)) & L.MASK32
        if file == 0:
            # Nobody changes it there any more; what was stored a moment ago the processor could not load at once.
            start = (unit - self.firsts[0]) * L.UNIT_BYTES
            end = start + L.RECORD_BYTES + len(meta) + size
            if cython.compiled:
                run = self.starts[0]  # type: ignore[attr-defined]
                check = checksum.crc32(run + start + L.RECORD_BYTES, end - start - L.RECORD_BYTES, 0)
                check = checksum.crc32(run + start, L.RECORD_BYTES - 4, check ^ place)
            else:
                run = self.views[0]
                check = checksum.crc32(run[start + L.RECORD_BYTES : end], end, 0)
                check = checksum.crc32(run[start:end], L.RECORD_BYTES - 4, check ^ place)
            return bool(check == self.head[L.R_META_CHECK] >> 32)
        check = checksum.crc32(meta, len(meta), 0)
        if cython.compiled:
            check = checksum.crc32(data + at, size, check)
            head = cython.cast("const unsigned char*", self.head)
        else:
            check = checksum.crc32(data[at : at + size], size, check)
            head = _SEVEN.pack(*self.head)
        return bool(checksum.crc32(head, L.RECORD_BYTES - 4, check ^ place) == self.head[L.R_META_CHECK] >> 32)


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


def identify(prefix: bytes, references: Any, first: int, count: int) -> tuple[Any, Any]:
    """The ids of messages, as ends and bytes; there may be more behind the last one."""
    data = _room(count * (len(prefix) + ID_BYTES_MOST))
    ends = array("i", bytes(4 * (count + 1)))
    if cython.compiled:
        _identify(prefix, len(prefix), references, first, count, start_of(data), ends)  # type: ignore[name-defined] # noqa: F821
    else:
        _identify(prefix, len(prefix), references, first, count, data, ends)
    return data, ends


def _identify(prefix: Any, length: int, references: Any, first: int, count: int, data: Any, ends: Any) -> None:
    used = 0
    for i in range(count):
        at = (first + i) * _WORDS
        if cython.compiled:
            copy(data + used, prefix, length)  # type: ignore[name-defined] # noqa: F821
            used += length
            used += hexadecimal(data + used, references[at + _SLOT])  # type: ignore[name-defined] # noqa: F821
            data[used] = 45  # a hyphen
            used += 1
            used += hexadecimal(data + used, references[at + _NUMBER])  # type: ignore[name-defined] # noqa: F821
        else:
            text = b"%s%x-%x" % (prefix, references[at + _SLOT], references[at + _NUMBER])
            data[used : used + len(text)] = text
            used += len(text)
        ends[i + 1] = used
