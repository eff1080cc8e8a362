"""Owns the ordered lists inside the slots: ready and timed messages by priority, and leases.

Each list is the described linked list with a few express lanes that jump ahead (a skip list), so that an insert at any
place and a cancel cost O(log n), an append and a pop O(1). Which lanes a slot is on follows from its message's number:
nothing about it is stored. Never reads the clock, never locks; all changes go through the caller's transaction.
"""

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import layout as L
from penstock.store.words import Words


class Order:
    """The lists of one kernel. Slot 0 is "none"."""

    def __init__(self, words: Words, lists_at: int, slots_at: int, slots: int) -> None:
        self.words = words
        self.lists_at = lists_at
        self.slots_at = slots_at
        self.slots = slots
        if not cython.compiled:
            self.before = [0] * (L.LANES + 1)

    def level(self, number: int) -> int:
        """How many express lanes the message with this number is on: each with one chance in eight."""
        mixed = (number * L.MIX_NUMBER) & L.MASK64
        level = 0
        while level < L.LANES and (mixed >> (64 - L.LANE_BITS)) == 0:
            mixed = (mixed << L.LANE_BITS) & L.MASK64
            level += 1
        return level

    def number(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_WORD) >> L.NUMBER_SHIFT

    def list_of(self, slot: int) -> int:
        """The list that a waiting message belongs on, by its flags and priority."""
        info = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_INFO)
        if (info >> L.FLAGS_SHIFT) & L.FLAG_READY:
            return L.LIST_READY + (info & 0xF)
        return L.LIST_TIMED + (info & 0xF)

    def key(self, which: int, slot: int) -> int:
        """What list ``which`` is sorted by, before the number: nothing, delivery time or lease end."""
        if which < L.LIST_TIMED:
            return 0
        field = L.S_LEASE_US if which >= L.LIST_LEASES else L.S_DELIVER_US
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + field)

    def head(self, which: int) -> int:
        return self.words.load(self.lists_at + which * L.LIST_WORDS) & L.MASK32

    def count(self, which: int) -> int:
        return self.words.load(self.lists_at + which * L.LIST_WORDS + L.LIST_COUNT)

    def follower(self, which: int, lane: int, slot: int) -> int:
        """The slot after ``slot`` on a lane; after 0, the first."""
        if slot == 0:
            return self.words.load(self.lists_at + which * L.LIST_WORDS + lane) & L.MASK32
        at = self.slots_at + slot * L.SLOT_WORDS
        if lane == 0:
            return self.words.load(at + L.S_LINKS) & L.MASK32
        pair = self.words.load(at + L.S_LANES + ((lane - 1) >> 1))
        return (pair >> 32) if lane & 1 == 0 else (pair & L.MASK32)

    def insert(self, which: int, slot: int) -> None:
        """Link a slot whose number and key are set already."""
        list_at = self.lists_at + which * L.LIST_WORDS
        number = self.number(slot)
        key = self.key(which, slot)
        level = self.level(number)
        tail = self.words.load(list_at) >> 32
        if tail == 0 or self._is_before(which, tail, key, number):
            for lane in range(level + 1):
                self.before[lane] = self.words.load(list_at + lane) >> 32
        else:
            self._search(which, key, number)
        for lane in range(level, -1, -1):
            self._link(list_at, which, lane, self.before[lane], slot)
        if which < L.LIST_LEASES and self.words.load(list_at + L.LIST_COUNT) == 0:
            self.words.put(L.H_PRESENT, self.words.load(L.H_PRESENT) | self._bit(which))
        self.words.add(list_at + L.LIST_COUNT, 1)

    def remove(self, which: int, slot: int) -> None:
        list_at = self.lists_at + which * L.LIST_WORDS
        number = self.number(slot)
        level = self.level(number)
        if level > 0:
            if self.head(which) == slot:
                for lane in range(level + 1):
                    self.before[lane] = 0
            else:
                self._search(which, self.key(which, slot), number)
            for lane in range(level, 0, -1):
                self._unlink_lane(list_at, which, lane, self.before[lane], slot)
        self._unlink(list_at, slot)
        self.words.add(list_at + L.LIST_COUNT, -1)
        if which < L.LIST_LEASES and self.words.load(list_at + L.LIST_COUNT) == 0:
            self.words.put(L.H_PRESENT, self.words.load(L.H_PRESENT) ^ self._bit(which))

    def cut(self, which: int, head: int, count: int) -> None:
        """Remove the ``count`` slots before ``head``, which is then the first; 0: all. Their own words stay."""
        list_at = self.lists_at + which * L.LIST_WORDS
        if head:
            self._search(which, self.key(which, head), self.number(head))
            self._set_links(head, self._next(head), 0)
        for lane in range(L.LANES + 1):
            if head == 0:
                self.words.put(list_at + lane, 0)
            elif self.before[lane]:
                ahead = self.follower(which, lane, self.before[lane])
                self._set_ends(list_at + lane, True, ahead, ahead == 0, 0)
        self.words.add(list_at + L.LIST_COUNT, -count)
        if which < L.LIST_LEASES and self.words.load(list_at + L.LIST_COUNT) == 0:
            self.words.put(L.H_PRESENT, self.words.load(L.H_PRESENT) ^ self._bit(which))

    def after(self, which: int, key: int, number: int) -> int:
        """The first slot behind (key, number), which need not be in the list (any more); 0 at the end."""
        self._search(which, key, number + 1)
        return self.follower(which, 0, self.before[0])

    def next_due_us(self) -> int:
        """Earliest delivery time of the timed lists; 0 if they are empty."""
        present = self.words.load(L.H_PRESENT) >> L.LIST_TIMED
        earliest = 0
        which = L.LIST_TIMED
        while present != 0:
            if present & 1:
                due = self.key(which, self.head(which))
                if earliest == 0 or due < earliest:
                    earliest = due
            present >>= 1
            which += 1
        return earliest

    def oldest_due(self, now_us: int) -> int:
        """What has been due for longest, of any priority; 0 if nothing is. A message without a delivery time is due
        since it was put."""
        present = self.words.load(L.H_PRESENT)
        oldest = 0
        earliest = 0
        which = 0
        while present != 0:
            if present & 1:
                slot = self.head(which)
                due = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_DELIVER_US)
                if slot != 0 and due <= now_us and (oldest == 0 or due < earliest):
                    oldest = slot
                    earliest = due
            present >>= 1
            which += 1
        return oldest

    def next_lease_us(self) -> int:
        """Earliest end of a lease; 0 if nothing is pending."""
        slot = self.head(L.LIST_LEASES)
        return self.key(L.LIST_LEASES, slot) if slot else 0

    def _bit(self, which: int) -> int:
        bit = 1  # a full word in the compiled core, where 1 << 31 of a plain int would be negative
        return bit << which

    def _is_before(self, which: int, slot: int, key: int, number: int) -> bool:
        own = self.key(which, slot)
        return own < key or (own == key and self.number(slot) < number)

    def _search(self, which: int, key: int, number: int) -> None:
        """For each lane the last slot before (key, number) into ``before``."""
        at = 0
        hops = 0
        for lane in range(L.LANES, -1, -1):
            ahead = self.follower(which, lane, at)
            while ahead != 0 and self._is_before(which, ahead, key, number):
                at = ahead
                ahead = self.follower(which, lane, at)
                hops += 1
                if hops > self.slots + 64:  # a loop, in a damaged kernel: let commit() refuse
                    self.words.bad = self.slots_at + at * L.SLOT_WORDS + 1
                    return
            self.before[lane] = at

    def _link(self, list_at: int, which: int, lane: int, before: int, slot: int) -> None:
        ahead = self.follower(which, lane, before)
        if lane == 0:
            self._set_links(slot, ahead, before)
            if ahead:
                self._set_links(ahead, self._next(ahead), slot)
            if before:
                self._set_links(before, slot, self._previous(before))
        else:
            self._set_lane(slot, lane, ahead)
            if before:
                self._set_lane(before, lane, slot)
        self._set_ends(list_at + lane, before == 0, slot, ahead == 0, slot)

    def _unlink(self, list_at: int, slot: int) -> None:
        ahead = self._next(slot)
        before = self._previous(slot)
        if ahead:
            self._set_links(ahead, self._next(ahead), before)
        if before:
            self._set_links(before, ahead, self._previous(before))
        self._set_ends(list_at, before == 0, ahead, ahead == 0, before)

    def _unlink_lane(self, list_at: int, which: int, lane: int, before: int, slot: int) -> None:
        if self.follower(which, lane, before) != slot:
            self.words.bad = list_at + lane + 1
            return
        ahead = self.follower(which, lane, slot)
        if before:
            self._set_lane(before, lane, ahead)
        self._set_ends(list_at + lane, before == 0, ahead, ahead == 0, before)

    def _set_ends(self, at: int, set_head: bool, head: int, set_tail: bool, tail: int) -> None:
        if set_head or set_tail:
            ends = self.words.load(at)
            first = head if set_head else ends & L.MASK32
            last = tail if set_tail else ends >> 32
            self.words.put(at, first | (last << 32))

    def _next(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_LINKS) & L.MASK32

    def _previous(self, slot: int) -> int:
        return self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_LINKS) >> 32

    def _set_links(self, slot: int, ahead: int, before: int) -> None:
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_LINKS, ahead | (before << 32))

    def _set_lane(self, slot: int, lane: int, ahead: int) -> None:
        at = self.slots_at + slot * L.SLOT_WORDS + L.S_LANES + ((lane - 1) >> 1)
        pair = self.words.load(at)
        if lane & 1 == 0:
            self.words.put(at, (pair & L.MASK32) | (ahead << 32))
        else:
            self.words.put(at, (pair >> 32 << 32) | ahead)
