"""Owns room in the data files: which units belong to which record, and where the next record goes (S10).

Used slots are linked in the order of their records' places, and each data file begins with a sentinel slot of length
zero that never goes away, so that a gap is always *behind* some slot and never spans two files or the wrap. The next
record goes behind the cursor, as in the described ring; when the room there is used up, the cursor moves to the next
gap. Slots with a gap behind them form a list, so that a million old messages without a gap between them are passed in
one step. All changes go through the caller's transaction.
"""

from penstock.store import layout as L
from penstock.store.words import Words

GAPS_TRIED_MAX = 64  # bounds the time under the lock; what finds no gap within it spills to bodies/


class Ring:
    """Room in the data files of one kernel, in units of 256 bytes."""

    def __init__(self, words: Words, slots_at: int, total_units: int) -> None:
        self.words = words
        self.slots_at = slots_at
        self.total_units = total_units

    def start(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_PLACE) >> L.PLACE_SHIFT

    def units(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_PLACE) & L.PLACE_MASK

    def after(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_RING) & L.MASK32

    def before(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_RING) >> 32

    def gap(self, slot: int) -> int:
        """Free units behind a slot's record, up to the next record or the end of its file."""
        following = self.after(slot)
        limit = self.total_units if following == 1 else self.start(following)
        return limit - self.start(slot) - self.units(slot)

    def fits(self, units: int) -> bool:
        """Move the cursor to a gap of at least ``units``; False if no gap that was tried is large enough."""
        cursor = self.words.load(L.H_CURSOR)
        room = self.gap(cursor)
        if room >= units:
            return True
        found = self.words.load(L.H_GAPS) & L.MASK32
        tried = 0
        while found != 0 and self.gap(found) < units:
            tried += 1
            if tried >= GAPS_TRIED_MAX:
                self._rotate(found)
                return False
            found = self.words.load(self.slots_at + found * L.SLOT_WORDS + L.S_GAP) & L.MASK32
        if found == 0:
            return False
        self._drop_gap(found)
        if room > 0:
            self._add_gap(cursor)
        self.words.put(L.H_CURSOR, found)
        return True

    def take(self, slot: int, units: int) -> None:
        """Give ``slot`` the room behind the cursor. ``fits`` said that it is there."""
        cursor = self.words.load(L.H_CURSOR)
        following = self.after(cursor)
        place = self.start(cursor) + self.units(cursor)
        at = self.slots_at + slot * L.SLOT_WORDS
        # Raw: a vacant slot's place and ring links mean nothing until its word, which is journaled, says otherwise.
        self.words.raw(at + L.S_PLACE, (place << L.PLACE_SHIFT) | units)
        self.words.raw(at + L.S_RING, following | (cursor << 32))
        self._set_after(cursor, slot)
        self._set_before(following, slot)
        self.words.put(L.H_CURSOR, slot)
        self.words.add(L.H_USED_UNITS, units)

    def free(self, slot: int) -> None:
        """Take a slot out of the ring; its room joins the gap behind the slot before it."""
        self.part(slot)
        self.free_run(slot, slot, self.units(slot))

    def part(self, slot: int) -> None:
        """A slot that is about to be freed: the gap behind it is none of its own any more."""
        if self.gap(slot) > 0 and slot != self.words.load(L.H_CURSOR):
            self._drop_gap(slot)

    def free_run(self, first: int, last: int, units: int) -> None:
        """Take slots out of the ring that follow each other there, all of them parted; together they have so many
        units. The cursor is not between them, but may be the last."""
        before = self.before(first)
        following = self.after(last)
        cursor = self.words.load(L.H_CURSOR)
        if last == cursor:
            if self.gap(before) > 0:
                self._drop_gap(before)
            self.words.put(L.H_CURSOR, before)
        elif before != cursor and self.gap(before) == 0:
            self._add_gap(before)
        self._set_after(before, following)
        self._set_before(following, before)
        self.words.add(L.H_USED_UNITS, -units)

    def resize(self, total_units: int) -> None:
        """The last data file ends elsewhere: the gap behind the last record is larger, smaller or gone."""
        last = self.before(1)
        had = self.gap(last) > 0
        self.total_units = total_units
        has = self.gap(last) > 0
        if last != self.words.load(L.H_CURSOR):
            if has and not had:
                self._add_gap(last)
            elif had and not has:
                self._drop_gap(last)

    def _rotate(self, last: int) -> None:
        """Put the gaps up to ``last``, all too small, behind the others: the next search goes on past them."""
        ends = self.words.load(L.H_GAPS)
        head = ends & L.MASK32
        tail = ends >> 32
        if last == tail:
            return
        first = self.words.load(self.slots_at + last * L.SLOT_WORDS + L.S_GAP) & L.MASK32
        self._set_gap(last, 0, self.words.load(self.slots_at + last * L.SLOT_WORDS + L.S_GAP) >> 32)
        self._set_gap(first, self.words.load(self.slots_at + first * L.SLOT_WORDS + L.S_GAP) & L.MASK32, 0)
        self._set_gap(tail, head, self.words.load(self.slots_at + tail * L.SLOT_WORDS + L.S_GAP) >> 32)
        self._set_gap(head, self.words.load(self.slots_at + head * L.SLOT_WORDS + L.S_GAP) & L.MASK32, tail)
        self.words.put(L.H_GAPS, first | (last << 32))

    def _add_gap(self, slot: int) -> None:
        ends = self.words.load(L.H_GAPS)
        tail = ends >> 32
        self._set_gap(slot, 0, tail)
        if tail:
            self._set_gap(tail, slot, self.words.load(self.slots_at + tail * L.SLOT_WORDS + L.S_GAP) >> 32)
            self.words.put(L.H_GAPS, (ends & L.MASK32) | (slot << 32))
        else:
            self.words.put(L.H_GAPS, slot | (slot << 32))

    def _drop_gap(self, slot: int) -> None:
        links = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_GAP)
        ahead = links & L.MASK32
        behind = links >> 32
        ends = self.words.load(L.H_GAPS)
        head = ends & L.MASK32
        tail = ends >> 32
        if behind:
            self._set_gap(behind, ahead, self.words.load(self.slots_at + behind * L.SLOT_WORDS + L.S_GAP) >> 32)
        else:
            head = ahead
        if ahead:
            self._set_gap(ahead, self.words.load(self.slots_at + ahead * L.SLOT_WORDS + L.S_GAP) & L.MASK32, behind)
        else:
            tail = behind
        self.words.put(L.H_GAPS, head | (tail << 32))

    def _set_gap(self, slot: int, ahead: int, behind: int) -> None:
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_GAP, ahead | (behind << 32))

    def _set_after(self, slot: int, following: int) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS + L.S_RING
        self.words.put(at, (self.words.load(at) >> 32 << 32) | following)

    def _set_before(self, slot: int, before: int) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS + L.S_RING
        self.words.put(at, (self.words.load(at) & L.MASK32) | (before << 32))
