"""Owns publishers in the kernel: names of those that put batches once, and the last batch of each.

Called by the holder of the queue's lock. Never reads the clock, never touches a file: what must be known after a power
loss is in ``publishfiles.py``. The store of a batch's number is the kernel's, with the batch.
"""

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store.kernel import Kernel

NO_ENTRY = -1
NUMBER_MAX = L.MASK48 - 2  # of a batch: the first is 0, and 0 in the kernel is none

_NAME_WORDS = L.PUBLISHER_NAME_BYTES // L.WORD_BYTES


class Publishing:
    """The publishers of one kernel. A batch's number is -1 where there is none."""

    def __init__(self, kernel: Kernel, names_at: int = 0) -> None:
        self._kernel = kernel
        self._first = (names_at or kernel.get(L.H_NAMES_AT)) + L.PUBLISHERS_OFFSET

    def at(self, entry: int) -> int:
        """The first word of an entry."""
        return self._first + entry * L.PUBLISHER_WORDS

    def is_entry(self, at: int) -> bool:
        """Whether this is the first word of an entry."""
        return self._first <= at < self.at(L.PUBLISHERS) and (at - self._first) % L.PUBLISHER_WORDS == 0

    def name(self, entry: int) -> str:
        """The publisher's name; empty if the entry is free."""
        at = self.at(entry)
        length = self._kernel.get(at + L.P_LENGTH)
        if length > L.PUBLISHER_NAME_BYTES:
            offset = (at + L.P_LENGTH) * L.WORD_BYTES
            raise Corrupt(self._kernel.words.path, offset=offset, expected="the length of a name", found=str(length))
        words = (self._kernel.get(at + L.P_NAME + i) for i in range(_NAME_WORDS))
        return b"".join(word.to_bytes(L.WORD_BYTES, "little") for word in words)[:length].decode("ascii", "replace")

    def find(self, name: str) -> int:
        """The entry of a publisher; NO_ENTRY if there is none."""
        for entry in range(L.PUBLISHERS):
            if self._kernel.get(self.at(entry) + L.P_LENGTH) == len(name) and self.name(entry) == name:
                return entry
        return NO_ENTRY

    def names(self) -> dict[str, int]:
        """Every publisher and its entry."""
        return {
            self.name(entry): entry for entry in range(L.PUBLISHERS) if self._kernel.get(self.at(entry) + L.P_LENGTH)
        }

    def make(self, name: str) -> int:
        """The entry of a publisher, a new one if it has none; NO_ENTRY if all are taken."""
        entry = self.find(name)
        if entry != NO_ENTRY:
            return entry
        for entry in range(L.PUBLISHERS):
            at = self.at(entry)
            if self._kernel.get(at + L.P_LENGTH) == 0:
                data = name.encode("ascii").ljust(L.PUBLISHER_NAME_BYTES, b"\0")
                for i in range(_NAME_WORDS):
                    part = data[i * L.WORD_BYTES : (i + 1) * L.WORD_BYTES]
                    self._put(at + L.P_NAME + i, int.from_bytes(part, "little"))
                for word in (L.P_LAST, L.P_NEXT, L.P_SEEN_US):
                    self._put(at + word, 0)
                self._put(at + L.P_LENGTH, len(name))
                self._kernel.commit()
                return entry
        return NO_ENTRY

    def free(self, entry: int) -> None:
        """Forget a publisher."""
        for word in (L.P_LENGTH, L.P_LAST, L.P_NEXT, L.P_SEEN_US):
            self._put(self.at(entry) + word, 0)
        self._kernel.commit()

    def last(self, entry: int) -> int:
        """The last batch that is published."""
        word = self._kernel.get(self.at(entry) + L.P_LAST)
        if word and word != self.word_of(entry, (word >> L.NUMBER_SHIFT) - 1):
            offset = (self.at(entry) + L.P_LAST) * L.WORD_BYTES
            raise Corrupt(self._kernel.words.path, offset=offset, expected="a number of a batch", found=f"{word:#x}")
        return (word >> L.NUMBER_SHIFT) - 1

    def word_of(self, entry: int, batch: int) -> int:
        """What the kernel stores for a batch: with check bits, since a wrong one would keep messages out."""
        return self._kernel.word_of(entry, batch + 1, L.STATE_NEW)

    def seen_us(self, entry: int) -> int:
        return self._kernel.get(self.at(entry) + L.P_SEEN_US)

    def seen(self, entry: int, now_us: int) -> None:
        self._put(self.at(entry) + L.P_SEEN_US, now_us)
        self._kernel.commit()

    def settle(self, entry: int, batch: int) -> None:
        """The last batch of an entry, as a restore found it."""
        self._put(self.at(entry) + L.P_LAST, self.word_of(entry, batch) if batch >= 0 else 0)
        self._kernel.commit()

    def _put(self, word: int, value: int) -> None:
        self._kernel.words.put(word, value)
