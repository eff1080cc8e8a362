"""Types, keys, groups and exclusive keys against a plain model: the same machine, with more rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import precondition, rule

import penstock
from penstock import QueueFull
from penstock.store import layout as L
from penstock.timequeue import restore_queue
from tests.conftest import SimulatedClock
from tests.model.test_queue_against_model import (
    LEASE_S,
    Entry,
    Handle,
    Model,
    Patient,
    QueueAgainstModel,
    bounded,
    picks,
    priorities,
    times,
)


@dataclass
class Class:
    """What a message is put with."""

    type: str | None = None
    key: str | None = None


class ClassModel(Model):
    """A list of entries with types and keys. Asked for some of them, it forgets the others for as long as it looks."""

    def __init__(self, clock: SimulatedClock, slots: int, *, exclusive: bool) -> None:
        super().__init__(clock, slots)
        self.exclusive = exclusive
        self.classes: dict[str, Class] = {}  # by id
        self.types: tuple[str, ...] = ()
        self.keys: tuple[str, ...] = ()
        self.frozen: list[Entry] | None = None

    def key(self, entry: Entry) -> str | None:
        return self.classes[entry.id].key

    def busy(self) -> set[str | None]:
        return {self.key(e) for e in self.entries if e.owner is not None} - {None} if self.exclusive else set()

    def listed(self) -> list[Entry]:
        """All that is not held back by others of its key."""
        waiting = self.waiting()
        if not self.exclusive:
            return waiting
        free = [e for e in waiting if self.key(e) is None]
        for key in {self.key(e) for e in waiting} - {None} - self.busy():
            here = [e for e in waiting if self.key(e) == key]
            free += sorted((e for e in here if e.ready), key=lambda e: e.arrival)[:1]
            free += sorted((e for e in here if not e.ready), key=lambda e: (e.deliver_us, e.arrival))[:1]
        return free

    def in_order(self) -> list[Entry]:
        """All that is listed; what is put out of the way meanwhile keeps no others back."""
        self.frozen = self.listed()
        found = super().in_order()
        self.frozen = None
        return found

    def deliverable(self) -> list[Entry]:
        listed = self.listed() if self.frozen is None else [e for e in self.frozen if e.owner is None]
        return [
            e
            for e in listed
            if (not self.types or self.classes[e.id].type in self.types) and (not self.keys or self.key(e) in self.keys)
        ]

    def groups(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.waiting():
            key = self.key(entry)
            if key is not None:
                found.setdefault(key, []).append(entry)
        return found

    def due_of(self, entries: list[Entry]) -> int:
        if self.key(entries[0]) in self.busy():
            return 0
        return sum(e.ready or e.deliver_us <= self.clock.wall_us() for e in entries)

    def oldest_us(self, entries: list[Entry]) -> int:
        """Of each list that its messages are on, the first; of these the earliest."""
        firsts: dict[object, Entry] = {}
        for entry in sorted(entries, key=lambda e: (0 if e.ready else e.deliver_us, e.arrival)):
            run = entry.ready if self.exclusive else (self.classes[entry.id].type, entry.priority, entry.ready)
            firsts.setdefault(run, entry)
        return min(e.deliver_us for e in firsts.values())


types = st.sampled_from([None, "a", "b"])
keys = st.sampled_from([None, "x", "y", "z"])
several_types = st.sampled_from([(), (), ("a",), ("a", "b"), ("none of these",)])
several_keys = st.sampled_from([(), (), ("x",), ("x", "y"), ("nobody's", "z")])


class Classed(QueueAgainstModel):
    """Messages of a few types and keys."""

    SLOTS = 40
    DATA_BYTES = 64 << 10
    BODIES: ClassVar[list[int]] = [10, 10, 100]
    EXCLUSIVE = False

    OPTIONS: ClassVar[dict[str, Any]] = {}

    model: ClassModel

    def __init__(self) -> None:
        super().__init__()
        self.model = ClassModel(self.clock, self.SLOTS, exclusive=self.EXCLUSIVE)

    def _put(self, queue: Any, bodies: list[bytes], priority: int, when: Any, *, how: str) -> None:
        there = len(self.model.entries)
        super()._put(queue, bodies, priority, when, how=how)
        for entry in self.model.entries[there:]:
            self.model.classes[entry.id] = Class()

    @rule(pick=picks, priority=priorities, when=times, classes=st.lists(st.tuples(types, keys), min_size=1, max_size=5))
    def put_classed(self, pick: int, priority: int, when: Any, classes: list[tuple[str | None, str | None]]) -> None:
        deliver_us = None
        options: dict[str, Any] = {"priority": priority}
        if when is not None:
            deliver_us = self.clock.wall_us() + round(when[1] * 1e6)
            options["deliver_at"] = deliver_us / 1e6
            deliver_us = round(deliver_us / 1e6 * 1e6)
        bodies = [self._body(0) for _ in classes]
        drafts = [
            penstock.Draft(body=body, type=type_, key=key, **options)
            for body, (type_, key) in zip(bodies, classes, strict=True)
        ]
        fits = len(self.model.entries) + len(bodies) <= self.SLOTS
        try:
            if len(drafts) == 1:
                type_, key = classes[0]
                ids = [self._client(pick).put(bodies[0], type=type_, key=key, **options)]
            else:
                ids = list(self._client(pick).put_many(drafts))
        except QueueFull as full:
            assert full.which == "slots" and not fits
            return
        self.model.put(ids, bodies, priority, deliver_us)
        self.model.classes |= {id_: Class(*which) for id_, which in zip(ids, classes, strict=True)}

    # ------------------------------------------------------------ getting

    @rule(pick=picks, most=st.sampled_from([1, 2, 5]), types=several_types, keys=several_keys)
    def get_chosen(self, pick: int, most: int, types: tuple[str, ...], keys: tuple[str, ...]) -> None:
        queue = self._client(pick)
        found = queue.get_many(most, type=types or None, key=keys or None)
        self._took(queue, found, most, types, keys)

    def _took(
        self,
        queue: penstock.TimeQueue,
        found: list[penstock.Message],
        most: int,
        types: tuple[str, ...],
        keys: tuple[str, ...],
    ) -> None:
        self.model.types, self.model.keys = types, keys
        expected = self.model.look(self._index(queue), most, round(LEASE_S * 1e6))
        self.model.types = self.model.keys = ()
        assert [(m.id, m.body, m.attempts) for m in found] == [(e.id, e.body, e.attempts) for e in expected]
        for message, entry in zip(found, expected, strict=True):
            which = self.model.classes[entry.id]
            assert (message.type, message.key) == (which.type, which.key)
            self.handles.append(Handle(queue, message, entry, entry.attempts))

    @rule(pick=picks, most=st.sampled_from([1, 3, 50]), group=st.sampled_from(["largest", "oldest"]))
    def get_group(self, pick: int, most: int, group: str) -> None:
        queue = self._client(pick)
        found = queue.get_many(most, group=group)
        self.model.keys = ("nobody",)
        assert not self.model.look(self._index(queue), 1, 1), "it only gives back what others had"
        self.model.keys = ()
        due = {key: each for key, each in self.model.groups().items() if self.model.due_of(each)}
        if not due:
            assert not found
            return
        key = found[0].key
        assert key is not None
        if group == "largest":
            assert self.model.due_of(due[key]) == max(map(self.model.due_of, due.values()))
        else:
            assert self.model.oldest_us(due[key]) == min(map(self.model.oldest_us, due.values()))
        self._took(queue, found, most, (), (key,))

    # ------------------------------------------------------------ what is always true

    @rule(pick=picks)
    def groups(self, pick: int) -> None:
        found = {g.key: (g.waiting, g.due, g.oldest_at, g.busy) for g in self._client(pick).groups()}
        busy = self.model.busy()
        assert found == {
            key: (len(each), self.model.due_of(each), self.model.oldest_us(each) / 1e6, key in busy)
            for key, each in self.model.groups().items()
        }

    def _browse(self, queue: penstock.TimeQueue) -> None:
        expected = [e.id for e in self.model.in_order()]
        found = [m.id for m in queue.browse()]
        assert found[: len(expected)] == expected
        assert sorted(found[len(expected) :]) == sorted({e.id for e in self.model.waiting()} - set(expected))

    @precondition(lambda self: self.steps % 7 == 0)
    @rule()
    def restore(self) -> None:
        """All of it from the records: what clients held waits again, and what was released for later is due again."""
        for queue in self.clients:
            queue.close()
        restore_queue(self.folder / "queue")
        for entry in self.model.entries:
            entry.owner = None
        self.model.dead.clear()
        self.handles.clear()
        self.clients = [penstock.open(self.folder / "queue", clock=self.clock)]
        for message in self.clients[0].browse():
            (entry,) = [e for e in self.model.entries if e.id == message.id]
            entry.deliver_us = message.deliver_us
            entry.ready = self.clients[0]._mine().kernel.list_of(message.slot) < L.LIST_TIMED


class Exclusive(Classed):
    """Of each key one at a time."""

    EXCLUSIVE = True
    OPTIONS: ClassVar[dict[str, Any]] = {"exclusive_keys": True}


TestClassed = pytest.mark.slow(Patient(Classed.TestCase))
TestClassed.settings = bounded
TestExclusive = pytest.mark.slow(Patient(Exclusive.TestCase))
TestExclusive.settings = bounded
