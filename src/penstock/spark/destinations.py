"""Owns where the messages of a job or of a micro-batch go: into the queue that was named, or into members of a macro
queue as its producing policy says; and that a micro-batch goes there once. Never encodes a message.
"""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import BatchTooLarge, BodyTooLarge, PenstockError, QueueFull, QueueInactive
from penstock.manager.copies import CopyPut, Elsewhere, in_order, uuid_of
from penstock.manager.macro import MacroQueue
from penstock.manager.members import Group, Leaf
from penstock.manager.sending import Route
from penstock.spark import finding
from penstock.spark.decisions import Decision, DecisionFiles
from penstock.timequeue import TimeQueue, open_queue
from penstock.timequeue.columns import Columns
from penstock.timequeue.puts import Draft

ROOM_S = 0.1  # between two looks at members that are all full, for as long as the option timeout says
NO_ROOM = (QueueFull, BatchTooLarge, BodyTooLarge)  # nothing was put, and another member may have room


class Messages(Protocol):
    """What is to be put; made anew at each call, since a put leaves its marks."""

    def count(self) -> int: ...
    def columns(self) -> Columns: ...
    def drafts(self) -> list[Draft]: ...


class Destination(Protocol):
    def put(self, messages: Messages) -> None:
        """All of them, or none."""

    def put_once(self, query: str, batch: int, messages: Messages) -> None:
        """The same, unless this batch of the query was put before."""


def destination(given: dict[str, Any]) -> Destination:
    return (IntoMembers if finding.is_macro(given["path"]) else IntoQueue)(given)


def _older(name: str, query: str, batch: int, last: int) -> PenstockError:
    """Spark runs the last batch again, and none before it: an earlier number has other rows than it had."""
    return PenstockError(
        f"{name}: query {query} comes with batch {batch}, and has put batch {last} before: its checkpoint is an old "
        f"copy or lost its last entries. These rows were not put. What to do: start with a new checkpoint"
    )


class IntoQueue:
    """One queue."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._timeout_s: float | None = given["timeout"] or None

    def put(self, messages: Messages) -> None:
        finding.gate(self._given, "producer").check("put_many")
        with open_queue(self._given["path"], busy_s=self._given["busyTimeout"]) as queue:
            queue.put_entries(messages.columns(), self._timeout_s)

    def put_once(self, query: str, batch: int, messages: Messages) -> None:
        finding.gate(self._given, "producer").check("put_once")
        with open_queue(self._given["path"], busy_s=self._given["busyTimeout"]) as queue:
            put = queue.put_entries_once(query, batch, messages.columns, self._timeout_s)
            if put is None and messages.count():
                (last,) = [each.last for each in queue.publishers() if each.publisher == query]
                if last is not None and last > batch:
                    raise _older(queue.name, query, batch, last)


class IntoMembers:
    """A macro queue: all of a batch goes to one member, or to each of them, by its policy."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._path: str = given["path"]
        self._given = given
        self._busy_s: float = given["busyTimeout"]
        self._timeout_s: float | None = given["timeout"] or None

    def _opened(self, call: str) -> MacroQueue:
        finding.gate(self._given, "producer").check(call)
        return MacroQueue(self._path, busy_s=self._busy_s)

    def put(self, messages: Messages) -> None:
        with self._opened("put_many") as macro:

            def into(route: Route) -> Sequence[str]:
                if route.copies is not None:
                    return macro._copy(route, messages.drafts(), None)
                return _queue(route.leaves[0]).put_entries(messages.columns())

            if messages.count():
                _begin_with(macro._mine(), secrets.randbits(32))  # jobs know nothing of each other
                macro._sending.put(into, self._timeout_s, None)

    def put_once(self, query: str, batch: int, messages: Messages) -> None:
        if not messages.count():
            return
        files = DecisionFiles(Path(self._path), query)
        with self._opened("put_once") as macro, files.alone(self._busy_s):
            before = files.read()
            if before is not None and before.batch > batch:
                raise _older(self._path, query, batch, before.batch)
            if before is None or before.batch < batch or not self._completed(before, query, messages):
                turn = 0 if before is None else before.turn + 1
                _begin_with(macro._mine(), turn)
                _Batch(files, query, batch, turn, messages).into_any(macro, self._timeout_s)

    def _completed(self, decision: Decision, query: str, messages: Messages) -> bool:
        """Where this batch goes is decided, and perhaps it is there. False if there is nothing of it yet and no room:
        then it may go elsewhere."""
        members = finding.Members(self._path)
        for uuid in decision.members:
            place = members.place_of(uuid)
            if place is None:
                raise PenstockError(
                    f"{self._path}: batch {decision.batch} of query {query} went to the queue {uuid}, or was about to, "
                    f"and that is not here any more: whether it was put nobody knows. What to do: bring the queue "
                    f"back; or start with a new checkpoint"
                )
            try:
                with open_queue(place, busy_s=self._busy_s) as queue:
                    queue.put_entries_once(query, decision.batch, messages.columns, self._timeout_s)
            except NO_ROOM:
                if len(decision.members) > 1:
                    raise
                return False
        return True


def _begin_with(group: Group, turn: int) -> None:
    """Whose turn it is, where members take turns."""
    for each in group.groups():
        each.next = turn


def _queue(leaf: Leaf) -> TimeQueue:
    """That of a member on a route: one that is open."""
    assert leaf.member is not None
    queue: TimeQueue = leaf.member.queue
    return queue


class _Batch:
    """A micro-batch on its way into members, of which nothing is put yet. First it has room in all of those that it
    goes to, then it is decided, and only then they publish it: an error before that leaves nothing anywhere."""

    def __init__(self, files: DecisionFiles, query: str, batch: int, turn: int, messages: Messages) -> None:
        self._files = files
        self._query = query
        self._batch = batch
        self._turn = turn
        self._messages = messages
        self._decided = False

    def into_any(self, macro: MacroQueue, timeout_s: float | None) -> None:
        deadline = time.monotonic() + (timeout_s or 0.0)
        while True:
            error = self._into_first(macro)
            if error is None:
                return
            if time.monotonic() >= deadline or not isinstance(error, QueueFull):
                raise error
            time.sleep(ROOM_S)

    def _into_first(self, macro: MacroQueue) -> Exception | None:
        """Into the first of the members that has room; why not."""
        refused: Exception = QueueInactive(macro.name, call="put_once: no member takes messages now, and it")
        for route in macro._sending.routes(macro._mine(), None):
            queues = in_order(map(_queue, route.leaves), lambda queue: queue)
            try:
                self._into(queues, functools.partial(self._decide, queues))
            except NO_ROOM as error:
                if self._decided:
                    raise
                refused = error if not isinstance(refused, QueueFull) else refused
            else:
                return None
        return refused

    def _decide(self, queues: Sequence[TimeQueue]) -> None:
        members = [uuid_of(queue) for queue in queues]
        self._files.write(Decision(batch=self._batch, members=members, turn=self._turn))
        self._decided = True

    def _into(self, queues: Sequence[TimeQueue], decide: Callable[[], None]) -> None:
        """Room in the first queue, then in all others, then the decision; and on the way back each publishes."""
        if not queues:
            decide()
            return
        queue, *others = queues
        once = CopyPut(
            queue._mine(), self._query, self._batch, wait_s=queue._busy_s, then=lambda: self._into(others, decide)
        )
        try:
            with once:
                if not once.is_done():
                    queue._put_batch(self._messages.columns(), None, None, once)
        except Elsewhere as elsewhere:
            raise elsewhere.error from None
        if not once.has_room:
            self._into(others, decide)
