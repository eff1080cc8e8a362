"""Owns following what is put into a queue, by growing number, without taking anything. Never waits: callers look again.

Numbers are given when a message is begun, and a message that was begun earlier may be published later. So those that
are still being filled are remembered, and shown when they come. What comes and goes between two looks is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.errors import Corrupt
from penstock.message import PENDING, WAITING, Message
from penstock.store import layout as L
from penstock.store.kernel import Delivery
from penstock.timequeue.timequeue import TimeQueue

READ_A_TURN_MAX = 256
TRIES_MAX = 10  # to copy a message whose attempts change meanwhile

Found = tuple[int, int]  # number and slot
_THERE = (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)


class Following:
    """The messages of a queue from a moment on, of some types and keys (none: all)."""

    def __init__(
        self,
        queue: TimeQueue,
        *,
        types: tuple[str, ...] = (),
        keys: tuple[str, ...] = (),
        damaged: Callable[[Corrupt], None] | None = None,
    ) -> None:
        """``damaged`` is told of messages that cannot be read; without it they are an error."""
        self._client = queue._mine()
        self._consumer = queue._consumer
        self._types = frozenset(types)
        self._keys = frozenset(keys)
        self._damaged = damaged
        self._floor = 0  # all below it were seen, or will never be there
        self._seen: set[int] = set()  # from there on
        self._next = 0  # numbers from here on were not given at the last look

    def newest(self, count: int) -> list[Message]:
        """The last ``count`` messages that are there, in the order of their numbers. What comes later is news."""
        found: list[Message] = []
        candidates = self._look()
        for end in range(len(candidates), 0, -READ_A_TURN_MAX):
            if len(found) >= count:
                break
            found = list(self._read(candidates[max(end - READ_A_TURN_MAX, 0) : end])) + found
        return found[-count:] if count else []

    def news(self) -> Iterator[Message]:
        """Those that came since the last look."""
        if self._client.kernel.get(L.H_NUMBER_NEXT) == self._next == self._floor:
            return  # nothing was begun since, and nothing is on its way
        candidates = self._look()
        for at in range(0, len(candidates), READ_A_TURN_MAX):
            yield from self._read(candidates[at : at + READ_A_TURN_MAX])

    def is_there(self) -> bool:
        """Whether this queue is still at its place."""
        return self._client.files.is_current()

    def _look(self) -> list[Found]:
        """Messages that were not seen yet. Without the lock but for the limit: below it each number is in its slot."""
        self._next, fresh = self._client.turn(self._limits)
        kernel = self._client.kernel
        least = self._floor << L.NUMBER_SHIFT
        with memoryview(self._client.files.kernel) as data, data.cast("Q") as view:
            at = kernel.slots_at
            words = view[at : at + fresh * L.SLOT_WORDS][L.S_WORD :: L.SLOT_WORDS].tolist()
        end = self._next << L.NUMBER_SHIFT
        recent = [(word, slot) for slot, word in enumerate(words) if least <= word < end]
        recent.sort()  # by number, which is the upper part of a word
        found, on_the_way = [], self._next
        for word, slot in recent:
            number, state = word >> L.NUMBER_SHIFT, (word >> L.STATE_SHIFT) & 0xF
            if state in _THERE and number not in self._seen:
                found.append((number, slot))
            elif state == L.STATE_FILLING:
                on_the_way = min(on_the_way, number)
        if on_the_way == self._floor:  # for two looks: perhaps of a producer that died, and nobody else comes by
            self._client.turn(self._client.return_from_dead)
        self._floor = on_the_way
        self._seen.update(number for number, _ in found if number >= on_the_way)
        self._seen = {number for number in self._seen if number >= on_the_way}
        return found

    def _limits(self) -> tuple[int, int]:
        return self._client.kernel.get(L.H_NUMBER_NEXT), self._client.kernel.get(L.H_FRESH)

    def _read(self, candidates: list[Found]) -> Iterator[Message]:
        for number, slot, delivery, attempt_us in self._client.turn(self._deliveries, candidates):
            try:
                message = self._copy(number, slot, delivery, attempt_us)
                if message is not None and self._wants(message):
                    yield message
            except Corrupt as error:
                if self._damaged is None:
                    raise
                self._damaged(error)

    def _deliveries(self, candidates: list[Found]) -> list[tuple[int, int, Delivery, int]]:
        kernel = self._client.kernel
        return [
            (number, slot, kernel.delivery(slot), kernel.field(slot, L.S_ATTEMPT_US))
            for number, slot in candidates
            if kernel.number(slot) == number and kernel.state(slot) in _THERE
        ]

    def _copy(self, number: int, slot: int, delivery: Delivery, attempt_us: int) -> Message | None:
        """None if it has gone. One that was delivered while it was copied is copied again."""
        for _ in range(TRIES_MAX):
            kind = WAITING if self._client.kernel.state(slot) == L.STATE_WAITING else PENDING
            message = self._consumer.read(delivery, attempt_us, 0, 0, kind)
            if message is not None:
                return message
            again = self._client.turn(self._deliveries, [(number, slot)])
            if not again:
                break
            _, _, delivery, attempt_us = again[0]
        return None

    def _wants(self, message: Message) -> bool:
        return (not self._types or message.type in self._types) and (not self._keys or message.key in self._keys)
