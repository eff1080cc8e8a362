"""Owns the looks into a queue, and what operators do to it: browse, groups, cancel, purge, statistics. How each is done
is ``browsing.py``'s, ``groups.py``'s and ``administration.py``'s. Never delivers a message.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import Misuse
from penstock.message import Message
from penstock.store import layout as L
from penstock.timequeue import administration
from penstock.timequeue import groups as known_groups
from penstock.timequeue.administration import Stats
from penstock.timequeue.arguments import check_limit, check_state
from penstock.timequeue.browsing import browse
from penstock.timequeue.groups import Group
from penstock.timequeue.ids import taken_apart
from penstock.timequeue.leases import Consumer
from penstock.timequeue.once import PublisherInfo, forget, publishers
from penstock.timequeue.opened import OpenQueue

if TYPE_CHECKING:
    from penstock.timequeue.answers import Answers


class Inside(OpenQueue):
    """A part of ``TimeQueue``."""

    _consumer: Consumer
    _answers: Answers
    _sync: bool

    def browse(self, *, state: str = "waiting", limit: int | None = None) -> Iterator[Message]:
        """Messages without taking them, in the order of delivery: "waiting", "pending" or "all".

        What is put, taken or removed meanwhile may or may not be seen; what moves meanwhile may be seen twice.
        """
        check_state(state)
        check_limit(limit)
        return browse(self._mine(), self._consumer, state=state, limit=limit)

    def groups(self, *, by: str | None = None, limit: int | None = None) -> list[Group]:
        """The keys of waiting messages, and how many each has: by "size", by "age", or in no order; ``limit`` at most.

        What is put or taken meanwhile may or may not be counted.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> ids = [q.put(n, key="a.example" if n < 2 else "b.example") for n in range(5)]
        >>> [(group.key, group.waiting) for group in q.groups(by="size")]
        [('b.example', 3), ('a.example', 2)]
        """
        known_groups.check_sort(by)
        check_limit(limit)
        return known_groups.groups(self._mine(), self._consumer, by=by, limit=limit)

    def cancel(self, message_id: str) -> bool:
        """Remove a waiting message. False if it is not waiting: unknown, gone, or with a receiver."""
        return self._cancel(message_id, tell=True)

    def _cancel(self, message_id: str, *, tell: bool) -> bool:
        """``tell`` whoever waits for an answer to it."""
        client = self._mine()
        asked: list[Message] = []
        cancelled = False
        if self.check_id(message_id):
            cancelled = client.turn(administration.cancel, client, *self.parse_id(message_id), self._consumer, asked)
        if not cancelled and self._has_moved_in():  # it may have kept its id and be elsewhere
            for message in self.browse():
                if message._special and message.id == message_id:
                    place = message.slot, message.number
                    cancelled = client.turn(administration.cancel, client, *place, self._consumer, asked)
        if cancelled and self._sync:
            client.syncs.sync_index()  # a cancelled message does not come back, not even after a power loss
        if asked and tell:
            self._answers.give_up(asked, "cancelled")
        return cancelled

    def check_id(self, message_id: str) -> bool:
        """``Misuse`` if this is no id of a message that can be here. False if it was put into another queue."""
        try:
            self.parse_id(message_id)
        except Misuse:
            if not isinstance(message_id, str) or not self._has_moved_in():
                raise
            taken_apart(message_id, message_id.partition("-")[0] + "-", self.name)
            return False
        return True

    def _has_moved_in(self) -> bool:
        kernel = self._mine().kernel
        return kernel.get(kernel.get(L.H_STATS_AT) + L.T_MOVED_IN) > 0

    def purge(self) -> int:
        """Remove every waiting message that was there when this was called; how many."""
        client = self._mine()
        tell = functools.partial(self._answers.give_up, how="purged")
        removed = administration.purge(client, self._consumer, tell)
        if removed and self._sync:
            client.syncs.sync_index()
        return removed

    def qsize(self) -> int:
        """Waiting messages, due or not."""
        return self._mine().kernel.get(L.H_WAITING)

    def gauge(self) -> administration.Gauge:
        """How much waits, how much is being worked on, and for how long lately: without the lock."""
        return administration.gauge(self._mine())

    def stats(self) -> Stats:
        client = self._mine()
        return client.turn(administration.stats, client)

    def publishers(self) -> list[PublisherInfo]:
        """Those whose batches are put once, with the last number of each."""
        return publishers(self._mine())

    def forget_publisher(self, name: str) -> bool:
        """Forget a publisher: its numbers may be published again. False if there is none of this name."""
        return forget(self._mine(), name, wait_s=self._busy_s)
