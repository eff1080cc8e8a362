"""Owns the looks into a macro queue, and what operators do to it: browse, cancel, purge, statistics, each that of all
its members together. Never decides where messages go, nor where they come from.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from penstock.errors import Misuse
from penstock.manager.finishing import OfMembers
from penstock.manager.macrostats import MacroStats, merged, together
from penstock.message import Message
from penstock.timequeue import TimeQueue
from penstock.timequeue import groups as known_groups
from penstock.timequeue.administration import Gauge
from penstock.timequeue.arguments import check_limit, check_state
from penstock.timequeue.groups import Group as KeyGroup


class Inside(OfMembers):
    """A part of ``MacroQueue``."""

    def _queues(self) -> list[TimeQueue]:
        self._mine()
        leaves = sorted(self._members.leaves, key=lambda leaf: -leaf.priority)
        return [leaf.member.queue for leaf in leaves if leaf.member is not None]

    def browse(self, *, state: str = "waiting", limit: int | None = None) -> Iterator[Message]:
        """Messages without taking them: by members, those of a higher priority first; or by what decides instead."""
        check_state(state)
        check_limit(limit)
        several = [queue.browse(state=state, limit=limit) for queue in self._queues()]
        policy = self._members.root.options.consuming
        if policy == "message-priority":
            return islice(heapq.merge(*several, key=lambda m: (-m.priority, m.deliver_us)), limit)
        if policy == "oldest":
            return islice(heapq.merge(*several, key=lambda m: m.deliver_us), limit)
        return islice(chain.from_iterable(several), limit)

    def cancel(self, message_id: str) -> bool:
        """Remove a waiting message, of whichever member."""
        wrong: Misuse | None = None
        known = False
        for queue in self._queues():
            try:
                if queue.cancel(message_id):
                    return True
                known = True
            except Misuse as error:
                wrong = error
        if wrong is not None and not known:
            raise wrong
        return False

    def check_id(self, message_id: str) -> bool:
        """``Misuse`` if this is no id of a message that can be in a member. False if it was put into another queue."""
        return self._member_of(message_id)[1]

    def purge(self) -> int:
        """Remove every message that waits in any member now; how many."""
        return sum(queue.purge() for queue in self._queues())

    def dead_letters(self) -> list[TimeQueue]:
        """The queues that dead letters of its members go to, open: each once, and those that there are."""
        found = [queue.dead_letters() for queue in self._queues()]
        return list({dead.name: dead for dead in found if dead is not None}.values())

    def redrive(self, *, limit: int | None = None, progress: Callable[[int], None] | None = None, **wanted: Any) -> int:
        """Bring dead letters back, each member those of its own dead-letter queue; how many."""
        done = 0
        for queue in self._queues():
            before = done
            told = None if progress is None else lambda count, before=before: progress(before + count)
            left = None if limit is None else limit - done
            done += queue.redrive(limit=left, progress=told, **wanted) if left is None or left > 0 else 0
        return done

    def sync_index(self) -> None:
        for queue in self._queues():
            queue.sync_index()

    def qsize(self) -> int:
        """Waiting messages of all members, due or not."""
        return sum(queue.qsize() for queue in self._queues())

    def gauge(self) -> Gauge:
        """The members' together; the service time is the mean of those that have one."""
        gauges = [queue.gauge() for queue in self._queues()]
        known = [gauge.service_us for gauge in gauges if gauge.service_us]
        return Gauge(
            sum(gauge.waiting for gauge in gauges),
            sum(gauge.pending for gauge in gauges),
            sum(known) // len(known) if known else 0,
        )

    def stats(self) -> MacroStats:
        """The members' figures, added up, and each of them."""
        group = self._mine()
        found = {leaf.name: leaf.member.queue.stats() for leaf in self._members.leaves if leaf.member is not None}
        failed = {leaf.name: str(leaf.error) for leaf in self._members.leaves if leaf.error is not None}
        return together(self.name, group.uuid, found, failed)

    def groups(self, *, by: str | None = None, limit: int | None = None) -> list[KeyGroup]:
        """The keys of waiting messages, and how many each has in all members together."""
        self._mine()
        known_groups.check_sort(by)
        check_limit(limit)
        found = merged(each for queue in self._queues() for each in queue.groups())
        order = known_groups.SORTS[by]
        return (found if order is None else sorted(found, key=order))[:limit]

    def _member_of(self, message_id: str) -> tuple[TimeQueue | None, bool]:
        """The member that this id is from, or else one that it may have been moved to; and whether it is from there.
        ``Misuse`` if it is no id of a message that can be in any of them."""
        wrong: Misuse | None = None
        elsewhere: TimeQueue | None = None
        for queue in self._queues():
            try:
                if queue.check_id(message_id):
                    return queue, True
                elsewhere = queue
            except Misuse as error:
                wrong = error
        if elsewhere is None and wrong is not None:
            raise wrong
        return elsewhere, False
