"""Owns what an index sync notes in the kernel when it begins and when it is complete (S5).

Called by the holder of the queue's lock, each time a whole transaction. Never syncs anything itself: that is between.
"""

from penstock.store import layout as L
from penstock.store.kernel import NUMBERS_AHEAD, Kernel


class IndexNotes:
    """The words of one kernel that speak of index syncs."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.words = kernel.words
        self.retained = kernel.retained
        self.stats_at = kernel.get(L.H_STATS_AT)

    def begin(self, sync: int) -> int:
        """Index sync number ``sync`` begins. Below which message number everything is published or given up."""
        number = self.words.load(L.H_NUMBER_NEXT)
        if number + NUMBERS_AHEAD // 2 > self.words.load(L.H_NUMBER_LIMIT):
            self.words.put(L.H_NUMBER_LIMIT, number + NUMBERS_AHEAD)
        self.words.put(L.H_INDEX_MARK, self.changes())
        self.retained.begin(sync)
        self.words.commit()
        return self._settled(number)

    def end(self, sync: int, settled: int, limit: int, now_us: int) -> None:
        """It is complete: the kernel on disk is at least as new as when it began."""
        if limit > self.words.load(L.H_NUMBER_SAFE):
            self.words.put(L.H_NUMBER_SAFE, limit)
        if settled > self.words.load(L.H_SETTLED):
            self.words.put(L.H_SETTLED, settled)
        self.words.put(L.H_INDEX_SYNC_US, now_us)
        self.retained.end(sync)
        self.words.add(self.stats_at + L.T_INDEX_SYNCS, 1)
        self.words.commit()

    def changes(self) -> int:
        """Grows with every change that an index sync would bring to disk."""
        total = 0
        for word in range(L.T_REPAIRS + 1):
            total += self.words.load(self.stats_at + word)
        total += self.words.load(self.stats_at + L.T_DEAD_LETTERED)
        total += self.words.load(self.stats_at + L.T_DROPPED)
        total += self.words.load(self.stats_at + L.T_MOVED_OUT)
        return total

    def _settled(self, number: int) -> int:
        """The lowest number of a message that is being filled; ``number`` if there is none."""
        kernel = self.kernel
        if self.words.load(L.H_FILLING) == 0:
            return number
        for client in range(self.words.load(L.H_CLIENTS_HIGH)):
            slot = kernel.chain_head(client)
            while slot != 0:
                if kernel.state(slot) == L.STATE_FILLING and kernel.number(slot) < number:
                    number = kernel.number(slot)
                slot = kernel.field(slot, L.S_CHAIN) & L.MASK32
        return number
