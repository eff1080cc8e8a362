"""Owns pictures of a kernel: which messages live in it at one moment; and the kernel of a copy that holds some of them.

A picture is a private copy of the kernel's bytes, taken by the holder of the lock after what the dead left was put
right. Never locks, never touches a file, never changes the kernel that the picture was taken of.
"""

from __future__ import annotations

import mmap
from functools import cached_property

from penstock.store import layout as L
from penstock.store.blank import initialise
from penstock.store.kernel import NUMBERS_AHEAD, Kernel
from penstock.store.words import Words

LIVE = (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)


class Picture:
    """The slots of a kernel as they were at one moment."""

    def __init__(self, data: bytearray | mmap.mmap, path: str) -> None:
        self.path = path
        self._kernel = Kernel(Words(data, path))
        self._view = memoryview(data).cast("Q")
        self._slots_at = self._view[L.H_SLOTS_AT]
        self._first = self._view[L.H_FILES] + 1  # those before are the sentinels of the data files
        self.fresh = min(max(self._view[L.H_FRESH], self._first), self._view[L.H_SLOTS])

    @cached_property
    def _words(self) -> list[int]:
        return self.slots[L.S_WORD :: L.SLOT_WORDS].tolist()

    @property
    def slots(self) -> memoryview:
        """The words of all slots that were ever used, from slot 0 on."""
        return self._view[self._slots_at : self._slots_at + self.fresh * L.SLOT_WORDS]

    @property
    def first(self) -> int:
        """The first slot that can have a message."""
        return self._first

    @property
    def number_limit(self) -> int:
        """Numbers from here on were not given when the picture was taken."""
        return self._view[L.H_NUMBER_LIMIT]

    def field(self, slot: int, field: int) -> int:
        return self._view[self._slots_at + slot * L.SLOT_WORDS + field]

    def number(self, slot: int) -> int:
        return self._words[slot] >> L.NUMBER_SHIFT

    def state(self, slot: int) -> int:
        return (self._words[slot] >> L.STATE_SHIFT) & 0xF

    def is_whole(self, slot: int) -> bool:
        """Whether the check bits of the slot's word are those of its number and state."""
        return self._words[slot] == self._kernel.word_of(slot, self.number(slot), self.state(slot))

    def place(self, slot: int) -> tuple[int, int]:
        """First unit and units of the slot's record."""
        place = self.field(slot, L.S_PLACE)
        return place >> L.PLACE_SHIFT, place & L.PLACE_MASK

    def info(self, slot: int) -> int:
        """``S_INFO`` with the number's tag: whoever restores the copy knows by it whose attempts these are. Nobody has
        a message in a copy, so none is held by that."""
        tag = (self.number(slot) & L.TAG_MASK) << L.TAG_SHIFT
        return self.field(slot, L.S_INFO) & ~(L.TAG_MASK << L.TAG_SHIFT | L.FLAG_HELD << L.FLAGS_SHIFT) | tag

    def offset(self, slot: int) -> int:
        """Where the slot is in the kernel file."""
        return (self._slots_at + slot * L.SLOT_WORDS) * L.WORD_BYTES

    def live(self, states: tuple[int, ...] = LIVE) -> list[int]:
        """Slots whose message is in one of these states, by number: in the order in which they were put."""
        return sorted((slot for slot in range(self._first, self.fresh) if self.state(slot) in states), key=self.number)

    def has(self, slot: int, number: int) -> bool:
        """Whether this message is there, waiting or with a receiver."""
        return slot < self.fresh and self.number(slot) == number and self.state(slot) in LIVE


def make_kernel(
    words: Words,
    header: dict[int, int],
    file_units: list[int],
    *,
    start: Picture,
    end: Picture,
    kept: list[int],
    spilled_bytes: int,
    hashes: dict[int, tuple[int, int]],
) -> None:
    """Fill the zeroed kernel of a copy. The slots in ``kept`` wait in it, with what ``start`` says of them; those in
    ``hashes`` have these of type and key.

    Every other slot is vacant, with the last number that it had. Numbers go on where the original had given none yet.
    """
    initialise(words, header, file_units)
    kernel = Kernel(words)
    words.raw(L.H_FRESH, end.fresh)
    words.raw(L.H_NUMBER_NEXT, end.number_limit)
    words.raw(L.H_NUMBER_LIMIT, end.number_limit + NUMBERS_AHEAD)
    words.raw(L.H_NUMBER_SAFE, end.number_limit + NUMBERS_AHEAD)  # all of it is on disk before anybody opens it
    words.raw(L.H_SETTLED, end.number_limit)
    words.raw(L.H_SPILLED_BYTES, spilled_bytes)
    words.raw(kernel.get(L.H_STATS_AT) + L.T_DEPTH_MAX, len(kept))
    for slot in kept:
        at = kernel.slots_at + slot * L.SLOT_WORDS
        words.raw(at + L.S_WORD, kernel.word_of(slot, start.number(slot), L.STATE_WAITING))
        words.raw(at + L.S_INFO, start.info(slot))
        for field in (L.S_DELIVER_US, L.S_PLACE, L.S_ATTEMPT_US, L.S_ENQUEUED_US):
            words.raw(at + field, start.field(slot, field))
        if slot in hashes:
            kernel.classes.classify(slot, *hashes[slot])
    _stack_vacant(kernel, words, end, set(kept), len(file_units))
    _link_ring(kernel, words, kept, len(file_units))
    for slot in sorted(kept, key=start.number):
        kernel.adopt(slot)


def _stack_vacant(kernel: Kernel, words: Words, end: Picture, kept: set[int], files: int) -> None:
    top = 0
    for slot in range(end.fresh - 1, files, -1):
        if slot not in kept:
            at = kernel.slots_at + slot * L.SLOT_WORDS
            number = end.number(slot) if end.is_whole(slot) else 0
            words.raw(at + L.S_WORD, kernel.word_of(slot, number, L.STATE_VACANT))
            words.raw(at + L.S_CHAIN, top)
            top = slot
    words.raw(L.H_VACANT, top)


def _link_ring(kernel: Kernel, words: Words, kept: list[int], files: int) -> None:
    """Sentinels and kept slots in the order of their places; the last gap is the cursor's, the others are listed."""
    ring = kernel.ring
    members = sorted([*range(1, files + 1), *kept], key=lambda slot: (ring.start(slot), slot > files))
    for slot, before, ahead in zip(members, [members[-1], *members], [*members[1:], members[0]], strict=False):
        words.raw(kernel.slots_at + slot * L.SLOT_WORDS + L.S_RING, ahead | before << 32)
    words.raw(L.H_USED_UNITS, sum(map(ring.units, kept)))
    gaps = [slot for slot in members if ring.gap(slot) > 0]
    words.raw(L.H_CURSOR, gaps.pop() if gaps else members[-1])
    for slot, before, ahead in zip(gaps, [0, *gaps], [*gaps[1:], 0], strict=False):
        words.raw(kernel.slots_at + slot * L.SLOT_WORDS + L.S_GAP, ahead | before << 32)
    words.raw(L.H_GAPS, gaps[0] | gaps[-1] << 32 if gaps else 0)
