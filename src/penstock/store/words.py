"""Owns the kernel's memory: every load and store, and the journal that makes a set of stores one change.

Knows nothing of what the words mean. A change is a transaction: ``put`` notes the old value in the undo journal, then
stores the new one; ``commit`` empties the journal with a single store. A process that dies in between leaves the
journal behind, and the next holder of the lock rolls back. ``raw`` is for words that mean nothing until a journaled
word says so, and for the journal itself; it is the one place where a mapping is written.
"""

from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store import rig

NOTED_ENTRIES = 256  # a power of two; words.pxd has it again


class Words:
    """An array of 8-byte words in a mapping, with its undo journal. The caller holds the lock that guards it."""

    def __init__(self, mapping: Any, path: str) -> None:
        self.path = path
        self.view = memoryview(mapping).cast("B").cast("Q")
        self.size = len(self.view)
        self.bad = 0
        self.count = 0
        self.journal = 0
        self.capacity = 0
        self.transaction = 1
        if cython.compiled:
            self._point()
        else:
            self.noted_in = [0] * NOTED_ENTRIES
            self.noted = [0] * NOTED_ENTRIES

    def _point(self) -> None:
        words = self.view  # a typed view in the compiled core, see words.pxd
        self.start = cython.cast("unsigned long long*", cython.address(words[0]))

    def use_journal(self, journal_at: int, entries: int) -> None:
        self.journal = journal_at
        self.capacity = entries

    def close(self) -> None:
        """Let go of the mapping. Every later load would be out of bounds and is refused."""
        self.size = 0
        self.view.release()

    if not cython.compiled:  # where it is compiled, the one in words.pxd goes into every caller

        def load(self, index: int) -> int:
            if index >= self.size:
                self.bad = index + 1
                return 0
            return self.view[index]

    def raw(self, index: int, value: int) -> None:
        """The only store into a mapping: volatile in C, an item of a word view in Python; never torn or reordered."""
        if rig.watching or index >= self.size:
            self._told(index, value)
        elif cython.compiled:
            self.start[index] = value
        else:
            self.view[index] = value

    def _told(self, index: int, value: int) -> None:
        """Apart, so that what is left of ``raw`` goes into its callers."""
        if rig.watching:
            rig.store(self.path, index, value)
        if index >= self.size:
            self.bad = index + 1
        elif cython.compiled:
            self.start[index] = value
        else:
            self.view[index] = value

    def put(self, index: int, value: int) -> None:
        """Store as part of the transaction: undone unless ``commit`` is reached."""
        old = self.load(index)
        if old == value:
            return
        if self._is_noted(index):
            self.raw(index, value)
            return
        n = self.count
        if n >= self.capacity:
            self.bad = index + 1  # our own bug: commit() refuses and rolls back
            return
        at = self.journal + n * L.JOURNAL_WORDS
        self.raw(at + L.J_INDEX, index)
        self.raw(at + L.J_OLD, old)
        # The count makes the entry valid, so it comes after the entry and before the store that the entry undoes.
        self.raw(L.H_JOURNAL_COUNT, n + 1)
        self.count = n + 1
        self.raw(index, value)

    def _is_noted(self, index: int) -> bool:
        """Whether this transaction has noted what the word was before it; if not, it is about to. May forget."""
        at = index & (NOTED_ENTRIES - 1)
        if self.noted[at] == index and self.noted_in[at] == self.transaction:
            return True
        self.noted[at] = index
        self.noted_in[at] = self.transaction
        return False

    def add(self, index: int, delta: int) -> None:
        self.put(index, self.load(index) + delta)

    def touch(self) -> None:
        """Store a word of each page again: pages that a failed sync left clean are written by the next one."""
        for index in range(0, self.size, L.PAGE_BYTES // L.WORD_BYTES):
            self.raw(index, self.load(index))

    def begin(self) -> bool:
        """Start a transaction; roll back what a dead process (or an exception) left. True if there was something."""
        self.bad = 0
        self.count = 0
        self.transaction += 1
        if self.load(L.H_JOURNAL_COUNT) == 0:
            return False
        self.rollback()
        return True

    def commit(self) -> None:
        if self.bad:
            self.refuse()
        if self.count:
            self.raw(L.H_JOURNAL_COUNT, 0)
            self.count = 0
            self.transaction += 1

    def refuse(self) -> None:
        bad = self.bad - 1
        self.rollback()
        raise Corrupt(self.path, offset=bad * L.WORD_BYTES, expected=f"an offset below {self.size * L.WORD_BYTES}")

    def room(self) -> bool:
        """Whether the journal has room for one more message's step."""
        return self.count + L.JOURNAL_ROOM < self.capacity

    def rollback(self) -> None:
        """Undo, newest first. Killed on the way it starts again from the newest: the old values are still there."""
        self.transaction += 1
        n = self.load(L.H_JOURNAL_COUNT)
        if n > self.capacity:
            raise Corrupt(
                self.path,
                offset=L.H_JOURNAL_COUNT * L.WORD_BYTES,
                expected=f"at most {self.capacity} entries",
                found=str(n),
            )
        while n > 0:
            n -= 1
            at = self.journal + n * L.JOURNAL_WORDS
            self.raw(self.load(at + L.J_INDEX), self.load(at + L.J_OLD))
        self.raw(L.H_JOURNAL_COUNT, 0)
        self.count = 0
        self.bad = 0


compiled: bool = cython.compiled
