"""Owns the way over held messages, which wait for others of their exclusive key and are on no list. Only looks."""

from __future__ import annotations

from penstock.store import layout as L
from penstock.store.kernel import Kernel

BUCKETS_A_TURN = 4096


class Held:
    """All held messages, bucket by bucket and key by key; some in each turn at the lock."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._classes = kernel.classes
        self._bucket = 0 if kernel.trees_at and kernel.classes.exclusive else kernel.get(L.H_CLASSES)
        self._place = (0, 0, 0, 0)  # key, rank, time and number of the last one seen

    @property
    def more(self) -> bool:
        """Whether there may be some that were not looked at."""
        return self._bucket < self._kernel.get(L.H_CLASSES)

    def some(self, most: int) -> list[int]:
        """The next of them. One turn."""
        found: list[int] = []
        end = self._bucket + BUCKETS_A_TURN
        while self.more and self._bucket < end and len(found) < most:
            slot = self._classes.next_held(self._bucket, *self._place)
            if slot == 0:
                self._bucket += 1
                self._place = (0, 0, 0, 0)
                continue
            trees = self._classes.trees
            rank = trees.rank_of(L.B_KEYS, slot)
            self._place = (trees.key_of(slot), rank, trees.time_of(slot, rank), trees.number_of(slot))
            found.append(slot)
        return found
