"""Owns the way of follow-ups from the store into their queues: each batch once, in order, waiting for room.

A worker slot is a publisher, and a row of the outbox is a batch of its: a queue that has its number takes it no second
time. So whoever has the slot puts all that is there, and need not know what its predecessor did. Never decides what is
put.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from penstock.errors import BatchTooLarge, BodyTooLarge, PenstockError, QueueFull
from penstock.manager.copies import draft_of
from penstock.scripts.folder import publisher_of
from penstock.scripts.store import Placed, Row, Store
from penstock.scripts.targets import Targets, plain
from penstock.timequeue import administration

NO_ROOM = (QueueFull, BatchTooLarge, BodyTooLarge)  # nothing was put, and another member may have room
WAIT_S = 0.5  # between two tries, where a queue does not take what it is to get

log = logging.getLogger("penstock")


class Outbox:
    """What one worker puts, for itself and for those that died."""

    def __init__(
        self,
        app: str,
        store: Store,
        targets: Targets,
        now_us: Callable[[], int],
        publisher: Callable[[str, int], str] = publisher_of,
    ) -> None:
        self._app = app
        self._publisher = publisher
        self._store = store
        self._targets = targets
        self._now_us = now_us
        self.stuck: dict[str, Exception] = {}  # by queue, why it did not take what was published last
        self._said: dict[str, str] = {}  # by queue, the last error: each is said once

    def publish(self, rows: Iterable[Row]) -> list[Row]:
        """Put all that can be put now; what is left. Of one queue nothing is put out of turn: it knows the last number,
        and would take what comes later with a lower one for known."""
        left: list[Row] = []
        stuck = self.stuck = {}
        for row in rows:
            if row.queue not in stuck:
                error = self._tried(row)
                if error is None:
                    continue
                stuck[row.queue] = error
            left.append(row)
        return [rest for each in left if (rest := self._elsewhere(each, stuck)) is not None]

    def _tried(self, row: Row) -> Exception | None:
        """Why not, if it does not take it."""
        try:
            self._put(row)
        except NO_ROOM as error:
            self._say(row, error)
            return error
        except (PenstockError, OSError) as error:
            self._targets.lose(row.queue)
            self._say(row, error)
            return error
        self._said.pop(row.queue, None)
        return None

    def _put(self, row: Row) -> None:
        drafts = [draft_of(each.message) for each in row.messages]
        publisher = self._publisher(self._app, row.slot)
        ids = self._targets.open(row.queue).put_once(publisher, row.number, drafts, durability="commit")
        self._store.published(row, ids)

    def _elsewhere(self, row: Row, stuck: dict[str, Exception]) -> Row | None:
        """Into another member of the macro queue, if one has room and nothing else waits for it. Stored first: whoever
        comes next puts it there, too, and not where it was refused. None if it is there; else what is left."""
        if row.via is None or not isinstance(stuck[row.queue], NO_ROOM):
            return row
        queue = self._with_room(row, stuck)
        if queue is None:
            return row
        moved = self._store.reroute(row, queue, self._now_us())
        error = self._tried(moved)
        if error is None:
            return None
        stuck[queue] = error
        return moved

    def _with_room(self, row: Row, stuck: dict[str, Exception]) -> str | None:
        assert row.via is not None
        try:
            for queue in self._targets.others(row.via, row.queue):
                if queue not in stuck and self._has_room(queue, len(row.messages)):
                    return queue
        except (PenstockError, OSError) as error:
            log.debug("%s: %d follow-ups wait: %s", row.via, len(row.messages), error)
        return None

    def _has_room(self, queue: str, count: int) -> bool:
        opened = plain(self._targets.open(queue))
        gauge = opened.gauge()
        return gauge.waiting + gauge.pending + count <= opened._mine().options.slots

    def _say(self, row: Row, error: Exception) -> None:
        if self._said.get(row.queue) != str(error):
            self._said[row.queue] = str(error)
            log.warning("%s: %d follow-ups wait for %s: %s", self._app, len(row.messages), row.queue, error)

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Before the next try."""
        end_s = time.monotonic() + WAIT_S
        while not stopped() and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, WAIT_S / 10))

    def cancel(self, timers: Iterable[Placed]) -> None:
        """The messages of timers that are set no longer, where they wait. One that is left is dropped on arrival."""
        for each in timers:
            try:
                queue = plain(self._targets.open(each.queue))
                client, place = queue._mine(), queue.parse_id(each.message)
                client.turn(administration.cancel, client, *place, queue._consumer, [])
            except (PenstockError, OSError) as error:
                log.debug("%s: the message of a timer stays until its time: %s", each.queue, error)
