"""Owns the entries of clients in the kernel: who they are, and since when.

Called by the holder of the queue's lock. Never asks whether a client is alive: that is a locked byte, and the door's.
What a client holds is the kernel's, as a chain; an offer is ``offers.py``'s.
"""

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store.kernel import Kernel


class ClientTable:
    """The clients of one queue, by index."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._words = kernel.words

    def enter(self, client: int, pid: int, now_us: int, opened_us: int) -> int:
        """Make an entry with an empty chain ours; the new owner word."""
        at = self._at(client)
        if self._words.load(at + L.C_CHAIN) != 0:
            raise Corrupt(self._words.path, offset=at * L.WORD_BYTES, expected="an empty chain")
        incarnation = (self._words.load(at + L.C_INCARNATION) + 1) & L.MASK32
        self._words.put(at + L.C_INCARNATION, incarnation | L.CLIENT_USED)
        self._words.put(at + L.C_PID, pid)
        self._words.put(at + L.C_SINCE_US, now_us)
        self._words.put(at + L.C_OPENED_US, opened_us)
        self._words.put(at + L.C_OFFER, 0)
        self._words.put(at + L.C_SERVED, 0)
        if client >= self._words.load(L.H_CLIENTS_HIGH):
            self._words.put(L.H_CLIENTS_HIGH, client + 1)
        self._words.commit()
        return L.OWNER_CLIENT | (client << L.CLIENT_SHIFT) | incarnation

    def leave(self, client: int) -> None:
        at = self._at(client)
        self._words.put(at + L.C_INCARNATION, self._words.load(at + L.C_INCARNATION) & L.MASK32)
        self._words.commit()

    def note(self, client: int, kind: int) -> None:
        """What a client does: CLIENT_PRODUCES or CLIENT_CONSUMES. Raw: nothing is decided by it."""
        at = self._at(client) + L.C_INCARNATION
        self._words.raw(at, self._words.load(at) | kind)

    def word(self, client: int, word: int) -> int:
        return self._words.load(self._at(client) + word)

    def fills(self, client: int, most: int) -> bool:
        """Whether a client is in the middle of a put; also if it holds more than ``most`` and we did not look on."""
        slot = self._kernel.chain_head(client)
        while slot != 0 and most > 0:
            if self._kernel.state(slot) == L.STATE_FILLING:
                return True
            slot = self._kernel.field(slot, L.S_CHAIN) & L.MASK32
            most -= 1
        return slot != 0

    def _at(self, client: int) -> int:
        return self._kernel.clients_at + client * L.CLIENT_WORDS
