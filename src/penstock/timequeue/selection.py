"""Owns choosing among due messages by type, key and age, for a receiver that does not take just any.

Does not use the trees by type and key: the lists are walked in short turns at the lock, and the heads of what was found
are read without it. What does not match is remembered by slot and number, and passed over from then on. The walk goes
on where it ended; now and then, if messages may have come in front of it, it begins again. Never changes anything.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

import msgspec

from penstock.codec import decode_meta
from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.gather import F_DELIVER_US, F_NUMBER, F_SLOT, GATHERED, REFERENCE_WORDS, Gather
from penstock.timequeue.clients import Client

FOUND_A_TURN_MAX = 2048
WALKED_A_TURN_MAX = 4096  # half a millisecond under the lock, compiled
AGAIN_US = 1_000_000  # a walk from the start on costs a look at every due message
ANY_NUMBER = (1 << 64) - 1

Rows: TypeAlias = "array[int]"


class Selection:
    """Which due messages are wanted: of these types and keys (none: all), put before ``below`` and due at ``due_us``.

    ``found`` are references of messages that match and were waiting when they were looked at; the first ``taken`` of
    them are dealt with.
    """

    def __init__(
        self,
        client: Client,
        *,
        types: tuple[str, ...] = (),
        keys: tuple[str, ...] = (),
        below: int | None = None,
        due_us: int | None = None,
    ) -> None:
        self._client = client
        self._claiming = Claiming(client.kernel)
        self._types = frozenset(types)
        self._keys = frozenset(keys)
        self.below = ANY_NUMBER if below is None else below
        self._due_us = due_us
        self._reads = bool(types or keys)
        self.takes_any = not self._reads
        self._passed: Rows = array("Q", bytes(L.WORD_BYTES * client.kernel.slots if self._reads else 0))
        self._verdicts: dict[bytes, bool] = {}
        self.found: Rows = array("Q")
        self.taken = 0
        self._begin()

    def _begin(self) -> None:
        self._places: Rows = array("Q", bytes(L.WORD_BYTES * 2 * L.LIST_LEASES))
        self._begun_us = self._client.clock.boot_us()
        self._late = False  # whether the walk passed numbers while lower ones were still being filled
        self._puts, self._returns = self._counts()
        self.found = array("Q")
        self.taken = 0

    def _counts(self) -> tuple[int, int]:
        """Of messages that were published, and that were given back; or removed, where another one comes then."""
        get = self._client.kernel.get
        stats_at = get(L.H_STATS_AT)
        removals = (L.T_ACKS, L.T_CANCELS) if self._client.kernel.classes.exclusive else ()
        returns = sum(get(stats_at + word) for word in (L.T_RELEASES, L.T_EXPIRED, L.T_RETURNED, *removals))
        return get(stats_at + L.T_PUTS), returns

    def _moved(self) -> bool:
        """Whether messages may have come to places in front of others: given back, put for a time that had passed
        already, or published after others that have higher numbers."""
        puts, returns = self._counts()
        timed = self._client.kernel.get(L.H_PRESENT) >> L.LIST_TIMED
        return returns != self._returns or (puts != self._puts and (self._late or timed != 0))

    def look(self, most: int) -> int:
        """Go on until ``most`` messages are found, or all were looked at; how many there are. Where the end of what was
        due is the end of all, nothing in front of the walk is left for later."""
        if self._moved() and self._client.clock.boot_us() - self._begun_us >= AGAIN_US:
            self._begin()
        self._go_on(most)
        if not self.found and self._due_us is not None and self._moved():
            self._begin()
            self._go_on(most)
        return self.count

    def _go_on(self, most: int) -> None:
        more = True
        while more and len(self.found) < most * REFERENCE_WORDS:
            wanted = FOUND_A_TURN_MAX if self._reads else min(FOUND_A_TURN_MAX, most - self.count)
            rows, more = self._client.turn(self._walk, wanted)
            self.found.extend(self._matching(rows) if self._reads else rows)

    @property
    def count(self) -> int:
        return len(self.found) // REFERENCE_WORDS

    def due_us(self, now_us: int) -> int:
        """When a message must have been due."""
        return now_us if self._due_us is None else min(now_us, self._due_us)

    def forget_taken(self) -> None:
        """Once for a claim: to move the rest of many each time would take longer than all else."""
        del self.found[: self.taken * REFERENCE_WORDS]
        self.taken = 0

    def oldest_us(self) -> int:
        """The earliest delivery time of what was found; 0 if nothing was."""
        return min(self.found[F_DELIVER_US::REFERENCE_WORDS], default=0)

    def _walk(self, most: int) -> tuple[Rows, bool]:
        rows: Rows = array("Q", bytes(L.WORD_BYTES * REFERENCE_WORDS * most))
        now_us = self.due_us(self._client.clock.wall_us())
        if self._client.kernel.get(L.H_FILLING):
            self._late = True
        claiming = self._claiming
        count = claiming.walk(rows, self._places, most, WALKED_A_TURN_MAX, now_us, self.below, self._passed)
        del rows[count * REFERENCE_WORDS :]
        return rows, claiming.more

    def _matching(self, rows: Rows) -> Rows:
        """Without the lock. What cannot be read now has left meanwhile, or is damaged: then others will say so."""
        count = len(rows) // REFERENCE_WORDS
        gather = Gather(self._client.files.mappings(), self._client.signature)
        try:
            read = gather.collect(rows, 0, count, False)
        finally:
            gather.close()
        matching: Rows = array("Q")
        for index in range(count):
            at = index * REFERENCE_WORDS
            if read.faults[index] != GATHERED:
                continue
            if self._matches(read.metas[index]):
                matching.extend(rows[at : at + REFERENCE_WORDS])
            else:
                self._passed[rows[at + F_SLOT]] = rows[at + F_NUMBER]
        return matching

    def _matches(self, head: bytes) -> bool:
        verdict = self._verdicts.get(head)
        if verdict is None:
            try:
                meta = decode_meta(head)
            except msgspec.DecodeError:
                return False
            verdict = (not self._types or meta.t in self._types) and (not self._keys or meta.k in self._keys)
            if len(self._verdicts) < WALKED_A_TURN_MAX:  # heads that differ each time are not worth keeping
                self._verdicts[head] = verdict
        return verdict
