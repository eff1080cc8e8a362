"""Several clients of one queue, on a simulated clock, against a plain model of it: what it must hold and give, exactly.

A failure prints the steps and a ``@reproduce_failure`` line; that line above the class repeats it.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import penstock
from penstock import LeaseLost, QueueFull
from penstock.store import layout as L
from penstock.timequeue import making
from tests.conftest import WALL_START_S, SimulatedClock, assert_whole
from tests.pipes import Pipe
from tests.thoroughness import IN_FULL

CLIENTS_MAX = 4
CHECKED_EVERY = 12  # steps; a check reads the whole queue
LEASE_S = 10.0
# Hundreds of queues are made, each with a dozen syncs, and no power is cut: memory will do where there is some.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# ---------------------------------------------------------------- the model


@dataclass
class Entry:
    """A message as the model sees it."""

    arrival: int
    id: str
    body: bytes
    priority: int
    ready: bool  # always due, in the order of arrival; else by delivery time
    deliver_us: int
    enqueued_us: int
    attempts: int = 0
    attempt_us: int = 0
    owner: int | None = None  # the client's index in the table; None: waiting
    lease_us: int = 0  # by boot time


class Model:
    """A list of entries. Nothing here is clever: each question looks at all of them."""

    def __init__(self, clock: SimulatedClock, slots: int) -> None:
        self.clock = clock
        self.slots = slots
        self.entries: list[Entry] = []
        self.arrivals = 0
        self.dead: set[int] = set()  # indexes of the client table whose clients died

    def waiting(self) -> list[Entry]:
        return [e for e in self.entries if e.owner is None]

    def listed(self) -> list[Entry]:
        """All that is not held back by something else."""
        return self.waiting()

    def deliverable(self) -> list[Entry]:
        """Of these, what is asked for."""
        return self.listed()

    def pending(self) -> list[Entry]:
        return sorted((e for e in self.entries if e.owner is not None), key=lambda e: (e.lease_us, e.arrival))

    def _heads(self, priority: int, now_us: int | None) -> list[Entry]:
        """The first ready one and the first timed one (due by ``now_us``, or any) of a priority."""
        here = [e for e in self.deliverable() if e.priority == priority]
        ready = sorted((e for e in here if e.ready), key=lambda e: e.arrival)
        timed = sorted((e for e in here if not e.ready), key=lambda e: (e.deliver_us, e.arrival))
        if now_us is not None:
            timed = [e for e in timed if e.deliver_us <= now_us]
        return ready[:1] + timed[:1]

    def due(self) -> Entry | None:
        for priority in range(15, -1, -1):
            heads = self._heads(priority, self.clock.wall_us())
            if heads:
                return min(heads, key=lambda e: (e.deliver_us, e.arrival))
        return None

    def in_order(self) -> list[Entry]:
        """All that waits, due or not, as it is browsed."""
        found: list[Entry] = []
        owners = [(e, e.owner) for e in self.entries]
        for priority in range(15, -1, -1):
            while heads := self._heads(priority, None):
                first = min(heads, key=lambda e: (e.deliver_us, e.arrival))
                found.append(first)
                first.owner = -1  # out of the way, for as long as we look
        for entry, owner in owners:
            entry.owner = owner
        return found

    def put(self, ids: list[str], bodies: list[bytes], priority: int, deliver_us: int | None) -> None:
        now_us = self.clock.wall_us()
        for id_, body in zip(ids, bodies, strict=True):
            self.arrivals += 1
            ready = deliver_us is None
            due_us = now_us if deliver_us is None else deliver_us
            self.entries.append(Entry(self.arrivals, id_, body, priority, ready, due_us, now_us))

    def look(self, client: int, most: int, lease_us: int) -> list[Entry]:
        """A receiver comes by: leases that ended and the dead give back, then it takes what is due."""
        boot_us = self.clock.boot_us()
        for entry in self.entries:
            if entry.owner is not None and (entry.lease_us <= boot_us or entry.owner in self.dead):
                entry.owner = None
        found: list[Entry] = []
        while len(found) < most and (entry := self.due()) is not None:
            entry.owner = client
            entry.attempts += 1
            entry.attempt_us = self.clock.wall_us()
            entry.lease_us = boot_us + lease_us
            found.append(entry)
        return found

    def give_back(self, client: int, *entries: Entry) -> None:
        """These, or all that a client has."""
        for entry in entries or self.entries:
            if entry.owner == client:
                entry.owner = None

    def holds(self, client: int, entry: Entry, attempts: int) -> bool:
        return entry in self.entries and entry.owner == client and entry.attempts == attempts

    def remove(self, entry: Entry) -> None:
        self.entries.remove(entry)


# ---------------------------------------------------------------- the machine


@dataclass
class Handle:
    """A delivery that a client got, however long ago."""

    client: Any
    message: penstock.Message
    entry: Entry
    attempts: int


seconds = st.sampled_from([0.000_001, 0.1, 0.5, 1.0, 2.5, 5.0, 9.999_999, 10.0, 3600.0])
priorities = st.sampled_from([0, 0, 0, 1, 7, 15])
picks = st.integers(0, 7)
# At once, after a delay, or at a time before or after now.
times = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.just("delay"), seconds),
    st.tuples(st.just("at"), st.sampled_from([-3600.0, -1.0, 0.0, 0.5, 1.0, 5.0])),
)


class QueueAgainstModel(RuleBasedStateMachine):
    """Rules that every size of queue shares."""

    SLOTS: ClassVar[int]
    DATA_BYTES: ClassVar[int]
    OPTIONS: ClassVar[dict[str, Any]] = {}  # of the queue, besides
    FILES: ClassVar[int] = 0  # data files elsewhere; none: one in the queue's own directory
    BODIES: ClassVar[list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-model-", dir=MEMORY))
        self.clock = SimulatedClock()
        self.model = Model(self.clock, self.SLOTS)
        # By its secret a queue chooses among groups that are equally large: the same steps lead to the same.
        with mock.patch.object(making, "secrets", SimpleNamespace(token_hex=lambda size: "5a" * size)):
            first = penstock.create(
                self.folder / "queue",
                slots=self.SLOTS,
                data_bytes=self.DATA_BYTES,
                index_sync_ms=0,  # by a rule below, not when a thread pleases
                spill_bytes=600,
                lease=LEASE_S,
                durability="relaxed",
                data_dirs=[self.folder / f"disk{n}" for n in range(self.FILES)],
                clock=self.clock,
                **self.OPTIONS,
            )
        self.clients: list[penstock.TimeQueue] = [first]
        self.handles: list[Handle] = []
        self.gone: list[str] = []  # ids of messages that left
        self.steps = 0
        self.bodies = 0

    @initialize()
    def second_client(self) -> None:
        self._open()

    # ------------------------------------------------------------ choosing

    def _client(self, pick: int) -> penstock.TimeQueue:
        return self.clients[pick % len(self.clients)]

    def _handle(self, pick: int) -> Handle:
        """Mostly a recent one; sometimes one that is long decided."""
        return self.handles[-1 - pick % len(self.handles)]

    @staticmethod
    def _index(queue: penstock.TimeQueue) -> int:
        return queue._client.index

    def _body(self, size: int) -> bytes:
        self.bodies += 1
        return (b"%d " % self.bodies).ljust(self.BODIES[size % len(self.BODIES)], b".")

    # ------------------------------------------------------------ putting

    def _used_bytes(self) -> int:
        return sum(self._most_bytes(len(e.body)) for e in self.model.entries)

    @staticmethod
    def _most_bytes(body_bytes: int) -> int:
        """At most what a message takes, wherever its body is stored."""
        return max(L.units(body_bytes) * L.UNIT_BYTES, L.UNIT_BYTES + body_bytes)

    def _put(self, queue: penstock.TimeQueue, bodies: list[bytes], priority: int, when: Any, *, how: str) -> None:
        options: dict[str, Any] = {"priority": priority}
        deliver_us = None
        if when is not None:
            kind, value = when
            moment_us = self.clock.wall_us() + round(value * 1e6)
            deliver_us = moment_us
            if kind == "delay":
                options["delay"] = value
            else:
                options["deliver_at"] = moment_us / 1e6
                deliver_us = round(moment_us / 1e6 * 1e6)
        there = len(self.model.entries)
        fits = there + len(bodies) <= self.SLOTS
        try:
            if how == "many":
                ids = list(queue.put_many(bodies, **options))
            elif how == "one":
                ids = [queue.put(bodies[0], **options)]
            else:
                source: Any = io.BytesIO(bodies[0]) if how == "file" else Pipe(bodies[0], 300)
                ids = [queue.put_file(source, **options)]
        except QueueFull as full:
            note(f"full: {full.which}")
            if full.which == "slots":
                assert not fits
            else:
                wanted = sum(self._most_bytes(len(body)) for body in bodies)
                assert self._used_bytes() + wanted + L.UNIT_BYTES * len(bodies) > self.DATA_BYTES
            return
        assert fits
        self.model.put(ids, bodies, priority, deliver_us)

    @rule(pick=picks, size=picks, priority=priorities, when=times)
    def put(self, pick: int, size: int, priority: int, when: Any) -> None:
        self._put(self._client(pick), [self._body(size)], priority, when, how="one")

    @rule(pick=picks, size=picks, priority=priorities, when=times, how=st.sampled_from(["file", "pipe"]))
    def put_file(self, pick: int, size: int, priority: int, when: Any, how: str) -> None:
        self._put(self._client(pick), [self._body(size)], priority, when, how=how)

    @rule(pick=picks, sizes=st.lists(picks, min_size=1, max_size=5), priority=priorities, when=times)
    def put_many(self, pick: int, sizes: list[int], priority: int, when: Any) -> None:
        self._put(self._client(pick), [self._body(size) for size in sizes], priority, when, how="many")

    # ------------------------------------------------------------ getting

    @rule(pick=picks, most=st.sampled_from([1, 1, 2, 5]), lease=st.sampled_from([None, 0.5, 5.0]))
    def get(self, pick: int, most: int, lease: float | None) -> None:
        queue = self._client(pick)
        found = queue.get_many(most, lease=lease)
        lease_us = round((lease or LEASE_S) * 1e6)
        expected = self.model.look(self._index(queue), most, lease_us)
        assert [(m.id, m.body, m.attempts) for m in found] == [(e.id, e.body, e.attempts) for e in expected]
        for message, entry in zip(found, expected, strict=True):
            assert (message.deliver_us, message.enqueued_us) == (entry.deliver_us, entry.enqueued_us)
            assert (message.last_attempt_us, message.priority) == (entry.attempt_us, entry.priority)
            assert message.lease_us == self.clock.wall_us() + lease_us
            self.handles.append(Handle(queue, message, entry, entry.attempts))

    @rule(pick=picks, prefetch=st.sampled_from([1, 2, 5]), most=st.sampled_from([1, 2, 4, 100]))
    def consume(self, pick: int, prefetch: int, most: int) -> None:
        """A loop that is left with the last message in hand; or that comes to its end, where fewer are due."""
        queue = self._client(pick)
        found = []
        with queue.consumer(prefetch=prefetch, wait=0) as consumer:
            for message in consumer:
                found.append((message.id, message.body, message.attempts))
                if len(found) == most:
                    break
        expected: list[tuple[str, bytes, int]] = []
        while len(expected) < most and (batch := self.model.look(self._index(queue), prefetch, round(LEASE_S * 1e6))):
            done = batch[: most - len(expected)]
            for entry in batch[len(done) :]:
                entry.attempts -= 1
            expected += [(entry.id, entry.body, entry.attempts) for entry in done]
            self.model.give_back(self._index(queue), *batch)
            for entry in done[:-1] if len(expected) == most else done:
                self._left(entry)
        assert found == expected

    def _ours(self, handle: Handle) -> bool:
        return self.model.holds(self._index(handle.client), handle.entry, handle.attempts)

    def _try(self, handle: Handle, act: Any) -> bool:
        """Whether the act was allowed, which the model foresees."""
        ours = self._ours(handle)
        try:
            act()
        except LeaseLost as lost:
            assert not ours and lost.message_id == handle.entry.id
            return False
        assert ours
        return True

    def _left(self, entry: Entry) -> None:
        self.model.remove(entry)
        self.gone.append(entry.id)

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def ack(self, pick: int) -> None:
        handle = self._handle(pick)
        if self._try(handle, handle.message.ack):
            self._left(handle.entry)

    @precondition(lambda self: self.handles)
    @rule(picked=st.lists(picks, max_size=4, unique=True))
    def ack_many(self, picked: list[int]) -> None:
        client = self._handle(0).client
        handles = {id(h): h for h in map(self._handle, picked) if h.client is client}
        ours = [handle for handle in handles.values() if self._ours(handle)]
        try:
            client.ack_many([handle.message for handle in handles.values()])
            assert len(ours) == len(handles)
        except LeaseLost:
            assert len(ours) < len(handles)
        for handle in ours:
            self._left(handle.entry)

    @precondition(lambda self: self.handles)
    @rule(pick=picks, delay=st.one_of(st.none(), st.sampled_from([0.5, 2.5, 3600.0])))
    def release(self, pick: int, delay: float | None) -> None:
        handle = self._handle(pick)
        if self._try(handle, lambda: handle.message.release(delay=delay)):
            handle.entry.owner = None
            if delay:
                handle.entry.ready = False
                handle.entry.deliver_us = self.clock.wall_us() + round(delay * 1e6)

    @precondition(lambda self: self.handles)
    @rule(picked=st.lists(picks, max_size=4, unique=True))
    def unget(self, picked: list[int]) -> None:
        client = self._handle(0).client
        handles = {id(h): h for h in map(self._handle, picked) if h.client is client}
        client.unget([handle.message for handle in handles.values()])
        for handle in handles.values():
            if self._ours(handle):
                handle.entry.owner = None
                handle.entry.attempts -= 1
                handle.attempts = 0  # it answers nothing any more

    @precondition(lambda self: self.handles)
    @rule(pick=picks, span=st.sampled_from([0.25, 1.0, 30.0]))
    def extend(self, pick: int, span: float) -> None:
        handle = self._handle(pick)
        if self._try(handle, lambda: handle.message.extend(span)):
            handle.entry.lease_us = self.clock.boot_us() + round(span * 1e6)

    # ------------------------------------------------------------ removing

    @precondition(lambda self: self.model.entries)
    @rule(pick=picks, which=st.integers(0, 63))
    def cancel(self, pick: int, which: int) -> None:
        entry = self.model.entries[which % len(self.model.entries)]
        waits = entry.owner is None
        assert self._client(pick).cancel(entry.id) is waits
        if waits:
            self._left(entry)

    @precondition(lambda self: self.gone)
    @rule(pick=picks, which=picks)
    def cancel_what_is_gone(self, pick: int, which: int) -> None:
        assert self._client(pick).cancel(self.gone[-1 - which % len(self.gone)]) is False

    @precondition(lambda self: self.steps % 5 == 0)  # seldom: an empty queue has little to show
    @rule(pick=picks)
    def purge(self, pick: int) -> None:
        waiting = self.model.waiting()
        assert self._client(pick).purge() == len(waiting)
        for entry in waiting:
            self._left(entry)

    # ------------------------------------------------------------ time

    @rule(span=seconds)
    def time_passes(self, span: float) -> None:
        self.clock.advance(span)

    @rule(jump=st.sampled_from([-86_400.0, -5.0, -0.5, 0.5, 5.0, 86_400.0]))
    def clock_is_set(self, jump: float) -> None:
        self.clock.set_wall(self.clock.now_s + jump)

    # ------------------------------------------------------------ clients come and go

    def _open(self) -> None:
        queue = penstock.open(self.folder / "queue", clock=self.clock)
        self.clients.append(queue)
        index = self._index(queue)
        if index in self.model.dead:  # its predecessor's messages were handed back first
            self.model.dead.remove(index)
            self.model.give_back(index)

    def _drop(self, queue: penstock.TimeQueue) -> None:
        self.clients.remove(queue)
        self.handles = [handle for handle in self.handles if handle.client is not queue]

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule()
    def open(self) -> None:
        self._open()

    @rule(pick=picks)
    def sync_index(self, pick: int) -> None:
        self._client(pick).sync_index()
        assert self.clients[0].stats().kept == 0

    @precondition(lambda self: len(self.clients) > 1)
    @rule(pick=picks)
    def close(self, pick: int) -> None:
        queue = self._client(pick)
        index = self._index(queue)
        queue.close()
        self.model.give_back(index)
        self._drop(queue)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(pick=picks)
    def die(self, pick: int) -> None:
        queue = self._client(pick)
        self.model.dead.add(self._index(queue))
        queue._client.forget()  # closes descriptors, as the end of a process does, and nothing else
        queue._client = None
        queue._closed = True
        self._drop(queue)
        self.clock.advance(0.2)  # a busy receiver looks for the dead ten times a second

    # ------------------------------------------------------------ what is always true

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        self.steps += 1
        queue = self.clients[self.steps % len(self.clients)]
        stats = queue.stats()
        waiting, pending = len(self.model.waiting()), len(self.model.pending())
        assert (stats.waiting, stats.pending, stats.filling) == (waiting, pending, 0)
        assert stats.vacant + stats.kept == self.SLOTS - waiting - pending
        assert stats.ready == sum(e.ready for e in self.model.listed())
        assert stats.ready + stats.timed + stats.held == stats.waiting
        assert len(stats.clients) == len(self.clients)
        if self.steps % 3 == 0:
            self._browse(queue)
        if self.steps % CHECKED_EVERY == 0:
            assert_whole(self.folder / "queue")

    def _browse(self, queue: penstock.TimeQueue) -> None:
        expected = self.model.in_order()
        assert [m.id for m in queue.browse()] == [e.id for e in expected]
        found = list(queue.browse(state="pending"))
        pending = self.model.pending()
        assert [(m.id, m.body, m.attempts) for m in found] == [(e.id, e.body, e.attempts) for e in pending]
        offset_us = self.clock.wall_us() - self.clock.boot_us()
        assert [m.lease_us - offset_us for m in found] == [e.lease_us for e in pending]
        spilled = sum(1 for _ in (self.folder / "queue" / "bodies").iterdir())
        assert spilled <= len(self.model.entries) + queue.stats().kept

    def _empty(self, queue: penstock.TimeQueue) -> None:
        """What is due comes out and is done, until nothing is left."""
        while self.model.entries:
            expected = self.model.look(0, len(self.model.entries), 1)
            found = queue.get_many(len(expected) + 1)
            assert [m.id for m in found] == [e.id for e in expected]
            queue.ack_many(found)
            for entry in expected:
                self.model.remove(entry)

    def teardown(self) -> None:
        try:
            # All that is left comes out in the model's order, and then nothing is used any more.
            queue = self.clients[0]
            for other in self.clients[1:]:
                index = self._index(other)
                other.close()
                self.model.give_back(index)
            self.model.give_back(self._index(queue))
            queue.close()
            queue = penstock.open(self.folder / "queue", clock=self.clock)
            self.clients = [queue]
            self.clock.set_wall(max(self.clock.now_s, WALL_START_S) + 1000 * 86_400)  # past every time that was given
            self.clock.advance(7200)
            self._empty(queue)
            queue.sync_index()
            stats = queue.stats()
            assert (stats.vacant, stats.used_bytes, stats.spilled_bytes) == (self.SLOTS, 0, 0)
            assert list((self.folder / "queue" / "bodies").iterdir()) == []
            assert_whole(self.folder / "queue")
            queue.close()
        finally:
            shutil.rmtree(self.folder)


class Tight(QueueAgainstModel):
    """Slots and data run out all the time; bodies spill for want of a gap, or of their size."""

    SLOTS = 12
    DATA_BYTES = 4096  # sixteen units, so that gaps are filled exactly
    BODIES: ClassVar[list[int]] = [10, 10, 190, 300, 400, 500, 700, 1500]


class Roomy(QueueAgainstModel):
    """Lists long enough that their express lanes are used, and several data files."""

    SLOTS = 60  # below what is handed back in one turn: the model does it all at once
    DATA_BYTES = 32 << 10
    FILES = 4
    BODIES: ClassVar[list[int]] = [10, 10, 10, 300]


bounded = settings(
    max_examples=200 if IN_FULL else 60,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

# Passing takes seconds; finding the shortest way to a failure may take minutes, and must not be cut off by the clock.
Patient = pytest.mark.timeout(400)

TestTight = pytest.mark.slow(Patient(Tight.TestCase))
TestTight.settings = bounded
TestRoomy = pytest.mark.slow(Patient(Roomy.TestCase))
TestRoomy.settings = bounded
