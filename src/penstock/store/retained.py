"""Owns slots whose message is gone but whose room must stay until the kernel is on disk.

After a power loss a batch counts as published if all its records are there, so none of them may be overwritten before
the slots' words say on disk that it was; and a body of its own must not vanish before the word of its acknowledged
message is there. Such slots wait on a list until an index sync that began later is complete. All changes go through the
caller's transaction.
"""

from penstock.store import layout as L
from penstock.store.words import Words


class Retained:
    """The two lists of one kernel: removed lately, and removed before the index sync that is under way began."""

    def __init__(self, words: Words, slots_at: int) -> None:
        self.words = words
        self.slots_at = slots_at

    def must_keep(self, slot: int) -> bool:
        """Whether the room of a message that is being removed may not be given away yet."""
        flags = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_INFO) >> L.FLAGS_SHIFT
        if flags & L.FLAG_SPILLED:
            return True
        number = self.words.load(self.slots_at + slot * L.SLOT_WORDS) >> L.NUMBER_SHIFT
        return flags & L.FLAG_BATCHED != 0 and number >= self.words.load(L.H_SETTLED)

    def keep(self, slot: int) -> None:
        self.words.put(self.slots_at + slot * L.SLOT_WORDS + L.S_CHAIN, self.words.load(L.H_RETAINED))
        self.words.put(L.H_RETAINED, slot)
        self.words.add(L.H_KEPT, 1)

    def begin(self, number: int) -> None:
        """An index sync begins: what was removed until now is safe when it, or a later one, is complete."""
        if self.words.load(L.H_RETIRING) == 0:
            self.words.put(L.H_RETIRING, self.words.load(L.H_RETAINED))
            self.words.put(L.H_RETAINED, 0)
            self.words.put(L.H_RETIRING_SYNC, number)

    def end(self, number: int) -> None:
        """It is complete. One that began before these slots were removed says nothing about them."""
        if self.words.load(L.H_RETIRING) != 0 and number >= self.words.load(L.H_RETIRING_SYNC):
            self.words.put(L.H_RETIRABLE, 1)

    def retirable(self) -> int:
        """A slot whose room may be given back; 0 if there is none."""
        return self.words.load(L.H_RETIRING) if self.words.load(L.H_RETIRABLE) != 0 else 0

    def take(self, slot: int) -> None:
        """Off the list, of which it is the first."""
        following = self.words.load(self.slots_at + slot * L.SLOT_WORDS + L.S_CHAIN)
        self.words.put(L.H_RETIRING, following)
        if following == 0:
            self.words.put(L.H_RETIRABLE, 0)
        self.words.add(L.H_KEPT, -1)
