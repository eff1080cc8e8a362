"""Owns offers: filled slots that their owners, who sleep, leave to the leader of a sync to publish.

Without them every producer that was served by a sync would wake up, queue for the lock and publish its one message. An
offer is a single word, so that it is seen whole or not at all, and only a hint: it is withdrawn with the put that made
it, whoever finds its own put unpublished publishes it, and the offer of a slot that is not being filled is void.
Called by the holder of the queue's lock, except for ``make``, ``take_back`` and ``is_served``.
"""

from penstock.store import layout as L
from penstock.store.kernel import Kernel


class Offers:
    """The offers of all clients of one queue."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._words = kernel.words

    def make(self, client: int, slot: int, ticket: int, wake_all: bool) -> None:
        """To be published by whoever completes a sync of at least this number."""
        wake = L.OFFER_WAKE if wake_all else 0
        self._words.raw(self._at(client) + L.C_OFFER, (ticket & L.TICKET_MASK) << L.TICKET_SHIFT | wake | slot)

    def is_served(self, client: int, number: int) -> bool:
        """Whether a leader published this message of the client, which offered it."""
        return self._words.load(self._at(client) + L.C_SERVED) == number

    def take_back(self, client: int) -> None:
        """Our own, without the lock: a leader may be about to serve it all the same."""
        self._words.raw(self._at(client) + L.C_OFFER, 0)

    def withdraw(self, client: int) -> None:
        """Before a put of this client ends in any other way. As part of the open transaction."""
        self._words.put(self._at(client) + L.C_OFFER, 0)

    def serve(self, number: int) -> int:
        """Sync ``number`` is complete: publish what was offered to it or to an earlier one; how many offers."""
        count = 0
        for client in range(self._words.load(L.H_CLIENTS_HIGH)):
            offer = self._words.load(self._at(client) + L.C_OFFER)
            late = (number - (offer >> L.TICKET_SHIFT)) & L.TICKET_MASK
            if offer != 0 and late <= L.TICKET_MASK // 2:
                self._serve(client, offer)
                count += 1
        return count

    def _serve(self, client: int, offer: int) -> None:
        slot = offer & L.MASK32
        number = self._kernel.number(slot)
        self.withdraw(client)
        if self._is_filled_by(client, slot):
            self._kernel.committed(1, 1)
            self._kernel.publish_filled(slot, slot, 1, client, L.MASK32 if offer & L.OFFER_WAKE else 1)
            self._words.raw(self._at(client) + L.C_SERVED, number)  # only now: what was not committed may be undone
        else:
            self._kernel.commit()

    def _is_filled_by(self, client: int, slot: int) -> bool:
        incarnation = self._words.load(self._at(client) + L.C_INCARNATION) & L.MASK32
        owner = L.OWNER_CLIENT | client << L.CLIENT_SHIFT | incarnation
        return (
            slot < self._kernel.slots
            and self._kernel.state(slot) == L.STATE_FILLING
            and self._kernel.field(slot, L.S_OWNER) == owner
        )

    def _at(self, client: int) -> int:
        return self._kernel.clients_at + client * L.CLIENT_WORDS
