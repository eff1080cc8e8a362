"""Owns slots whose room is free: they leave the ring and are vacant, one by one, or together if they follow each other.

Called by the holder of the queue's lock; all changes go through the caller's transaction. Whether room may be given
away yet is ``retained.py``'s.
"""

from penstock.store import layout as L
from penstock.store.ring import Ring
from penstock.store.words import Words


class Vacating:
    """The list of vacant slots of one kernel, and the slots that are about to be on it."""

    def __init__(self, words: Words, ring: Ring, slots_at: int) -> None:
        self.words = words
        self.ring = ring
        self.slots_at = slots_at
        self.first = 0  # of those that follow each other in the ring and leave it together
        self.last = 0  # 0: there are none
        self.units = 0

    def free(self, slot: int) -> None:
        self.ring.free(slot)
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_CHAIN, self.words.load(L.H_VACANT))
        self.words.put(L.H_VACANT, slot)

    def begin(self) -> None:
        """Nothing is about to leave, whatever an error has left of a transaction that was undone."""
        self.last = 0

    def free_later(self, slot: int) -> None:
        """As ``free``, when ``end`` is called or a slot comes that does not follow. In the same transaction."""
        last = self.last
        if last != 0 and (self.ring.after(last) != slot or last == self.words.load(L.H_CURSOR)):
            self.end()
            last = 0
        self.ring.part(slot)
        if last == 0:
            self.first = slot
            self.units = 0
            last = self.words.load(L.H_VACANT)
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_CHAIN, last)
        self.last = slot
        self.units += self.ring.units(slot)

    def end(self) -> None:
        if self.last != 0:
            self.ring.free_run(self.first, self.last, self.units)
            self.words.put(L.H_VACANT, self.last)
        self.last = 0
