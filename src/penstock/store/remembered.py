"""Owns what a queue remembers of its puts: which message was stored under a dedup id, or came from which place of
another queue, and until when.

A table of buckets; a hash is in one bucket only, in any of its entries. An entry is written in the transaction that
takes the message's slot, as *being put*; settled by one that comes after the message was published, so that after a
power loss a settled entry is proof of that; or forgotten where the put is given up. Called by the holder of the lock,
as part of the open transaction. Never reads the clock, never hashes anything itself.
"""

from penstock.store import layout as L
from penstock.store.words import Words

NOTHING = 0


class Remembered:
    """The table of one kernel. An entry is named by the index of its first word; there is none at 0."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.at = self.words.load(L.H_REMEMBERED_AT)
        self.buckets = self.words.load(L.H_REMEMBERED) // L.REMEMBERED_BUCKET
        self.slots_at = self.words.load(L.H_SLOTS_AT)

    def find(self, key: int, now_us: int) -> int:
        """The entry of this hash, unless its time is over."""
        entry = self._bucket(key)
        end = entry + L.REMEMBERED_BUCKET
        while entry < end:
            if self.words.load(entry) == key and not self._is_over(entry, now_us):
                return entry
            entry += 1
        return NOTHING

    def add(self, key: int, until_us: int, number: int, slot: int, flags: int, now_us: int) -> int:
        """A new entry; NOTHING if the bucket is full of entries whose time is not over."""
        entry = self._bucket(key)
        end = entry + L.REMEMBERED_BUCKET
        free = 0
        while entry < end:
            found = self.words.load(entry)
            if found == key or (free == 0 and (found == 0 or self._is_over(entry, now_us))):
                free = entry
                if found == key:
                    break
            entry += 1
        if free == 0:
            return NOTHING
        self.words.put(free, key)
        self.words.put(free + L.D_UNTIL_US * L.REMEMBERED_BUCKET, until_us)
        self.words.put(free + L.D_NUMBER * L.REMEMBERED_BUCKET, number)
        self.words.put(free + L.D_SLOT * L.REMEMBERED_BUCKET, self.last_word(key, until_us, number, slot, flags))
        return free

    def settle(self, entry: int) -> None:
        """Its message is published."""
        at = entry + L.D_SLOT * L.REMEMBERED_BUCKET
        self.words.put(at, self.words.load(at) & ~L.BEING_PUT)

    def forget(self, entry: int) -> None:
        self.words.put(entry, 0)

    def number(self, entry: int) -> int:
        return self.words.load(entry + L.D_NUMBER * L.REMEMBERED_BUCKET)

    def until_us(self, entry: int) -> int:
        return self.words.load(entry + L.D_UNTIL_US * L.REMEMBERED_BUCKET)

    def last(self, entry: int) -> int:
        """Slot, check bits and flags."""
        return self.words.load(entry + L.D_SLOT * L.REMEMBERED_BUCKET)

    def slot(self, entry: int) -> int:
        return self.last(entry) & L.MASK32

    def is_settled(self, entry: int) -> bool:
        return self.last(entry) & L.BEING_PUT == 0

    def is_being_put(self, entry: int) -> bool:
        """Whether its put is still under way. Whoever published it may have died before it could settle the entry."""
        if self.is_settled(entry):
            return False
        word = self.words.load(self.slots_at + self.slot(entry) * L.SLOT_WORDS)
        return word >> L.NUMBER_SHIFT == self.number(entry) and (word >> L.STATE_SHIFT) & 0xF == L.STATE_FILLING

    def is_whole(self, entry: int) -> bool:
        """Whether the check bits are right, and the bucket too: after a power loss some words may be older ones."""
        last = self.last(entry)
        key = self.words.load(entry)
        wanted = self.last_word(key, self.until_us(entry), self.number(entry), last & L.MASK32, last)
        bucket = self._bucket(key)
        return last == wanted and bucket <= entry < bucket + L.REMEMBERED_BUCKET

    def last_word(self, key: int, until_us: int, number: int, slot: int, flags: int) -> int:
        flags = flags & (L.BEING_PUT | L.PUT_SYNCED)
        mixed = (key ^ (until_us * L.MIX_STATE) ^ (number * L.MIX_NUMBER) ^ (slot * L.MIX_SLOT)) & L.MASK64
        mixed = (mixed * L.MIX_NUMBER) & L.MASK64
        return slot | ((mixed >> 34) & L.REMEMBERED_CHECK) << 32 | flags

    def _is_over(self, entry: int, now_us: int) -> bool:
        return self.until_us(entry) <= now_us and not self.is_being_put(entry)

    def _bucket(self, key: int) -> int:
        return self.at + (key & (self.buckets - 1)) * L.REMEMBERED_BUCKET * L.REMEMBERED_WORDS
