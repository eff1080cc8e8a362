"""Retries, dead letters, moves, dedup ids and expiry of a queue, on a simulated clock, against a plain model."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import penstock
from penstock import Backoff, LeaseLost, QueueFull
from tests.conftest import SimulatedClock, assert_whole
from tests.model.test_queue_against_model import MEMORY
from tests.thoroughness import IN_FULL

SLOTS = 16
LEASE_US = 10_000_000
WINDOW_US = 20_000_000
LIMIT = 3
BACKOFF = Backoff.exponential(1, factor=2, most=3)


@dataclass
class Entry:
    id: str
    body: bytes
    arrival: int
    limit: int
    expires_us: int | None
    ready: bool
    deliver_us: int
    attempts: int = 0
    lease_us: int | None = None  # None: it waits


class Retries(RuleBasedStateMachine):
    """The model is a list of what is in the queue, one of dead letters, and what each dedup id stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-model-", dir=MEMORY))
        self.clock = SimulatedClock()
        self.queue = self._make()
        self.other = penstock.create(
            self.folder / "other", slots=1000, data_bytes=1 << 20, index_sync_ms=0, clock=self.clock
        )
        self.moved: list[tuple[str, bytes]] = []  # to the other queue
        self.here: list[Entry] = []
        self.dead: list[tuple[str, bytes, str]] = []  # id, body and reason
        self.known: dict[str, tuple[str, int]] = {}  # dedup id: message, until when
        self.held: list[tuple[penstock.Message, Entry, int]] = []
        self.arrivals = 0
        self.dropped = self.lettered = 0

    def _make(self) -> penstock.TimeQueue:
        return penstock.create(
            self.folder / "queue",
            slots=SLOTS,
            data_bytes=64 << 10,
            lease=LEASE_US / 1e6,
            durability="relaxed",
            index_sync_ms=0,
            max_attempts=LIMIT,
            backoff=BACKOFF,
            dedup_window=WINDOW_US / 1e6,
            clock=self.clock,
        )

    # ------------------------------------------------------------ the queue's rules, once more

    def _lives(self, entry: Entry) -> bool:
        return any(entry is other for other in self.here)

    def _wait(self, entry: Entry) -> None:
        entry.lease_us = None
        entry.ready = False
        entry.deliver_us = self.clock.wall_us() + BACKOFF.delay_us(entry.attempts, 0)

    def _give_up(self, entry: Entry, reason: str) -> None:
        self.here = [other for other in self.here if other is not entry]
        if reason == "expired":
            self.dropped += 1
        else:
            self.lettered += 1
            self.dead.append((entry.id, entry.body, reason))

    def _due(self) -> list[Entry]:
        now_us = self.clock.wall_us()
        waiting = [e for e in self.here if e.lease_us is None and (e.ready or e.deliver_us <= now_us)]
        ready = sorted((e for e in waiting if e.ready), key=lambda e: e.arrival)
        timed = sorted((e for e in waiting if not e.ready), key=lambda e: (e.deliver_us, e.arrival))
        found = []
        while ready or timed:  # the earlier of both heads
            heads = [some for some in (ready, timed) if some]
            found.append(min(heads, key=lambda some: (some[0].deliver_us, some[0].arrival)).pop(0))
        return found

    def _expected(self, most: int) -> list[Entry]:
        for entry in sorted((e for e in self.here if e.lease_us is not None), key=lambda e: (e.lease_us, e.arrival)):
            if entry.lease_us is not None and entry.lease_us <= self.clock.boot_us():
                self._wait(entry)
        while batch := self._due()[:most]:
            found = []
            for entry in batch:
                entry.attempts += 1
                entry.lease_us = self.clock.boot_us() + LEASE_US
                if entry.expires_us is not None and entry.expires_us <= self.clock.wall_us():
                    self._give_up(entry, "expired")
                elif entry.attempts > entry.limit:
                    self._give_up(entry, "max_attempts")
                else:
                    found.append(entry)
            if found:
                return found
        return []

    # ------------------------------------------------------------ what is done

    @rule(
        dedup=st.sampled_from([None, "a", "b", "c"]),
        ttl=st.sampled_from([None, None, 0, 2.5, 15]),
        limit=st.sampled_from([None, 1, 5]),
        delay=st.sampled_from([None, None, 2]),
        durability=st.sampled_from(["relaxed", "commit"]),
    )
    def put(
        self, dedup: str | None, ttl: float | None, limit: int | None, delay: float | None, durability: str
    ) -> None:
        now_us = self.clock.wall_us()
        self.arrivals += 1
        body = b"%d" % self.arrivals
        first = self.known.get(dedup) if dedup is not None else None
        try:
            found = self.queue.put(
                body, dedup_id=dedup, ttl=ttl, max_attempts=limit, delay=delay, durability=durability
            )
        except QueueFull:
            assert len(self.here) == SLOTS
            return
        if first is not None and first[1] > now_us:
            assert found == first[0]
            return
        assert all(found != entry.id for entry in self.here)
        if dedup is not None:
            self.known[dedup] = (found, now_us + WINDOW_US)
        expires_us = None if ttl is None else now_us + round(ttl * 1e6)
        due_us = now_us + round((delay or 0) * 1e6)
        self.here.append(Entry(found, body, self.arrivals, limit or LIMIT, expires_us, delay is None, due_us))

    @rule(most=st.sampled_from([1, 2, 5]))
    def get(self, most: int) -> None:
        found = self.queue.get_many(most)
        expected = self._expected(most)
        assert [(m.id, m.data, m.attempts) for m in found] == [(e.id, e.body, e.attempts) for e in expected]
        self.held += [(m, e, e.attempts) for m, e in zip(found, expected, strict=True)]

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 5), what=st.sampled_from(["ack", "fail", "dead_letter", "release", "move"]))
    def decide(self, pick: int, what: str) -> None:
        message, entry, attempts = self.held.pop(pick % len(self.held))
        ours = self._lives(entry) and entry.lease_us is not None and entry.attempts == attempts
        exhausted = what == "fail" and entry.attempts >= entry.limit and attempts >= entry.limit
        try:
            if what == "dead_letter":
                message.dead_letter("bad")
            elif what == "fail":
                message.fail("no")
            elif what == "move":
                message.move(to=self.other)
            else:
                getattr(message, what)()
        except LeaseLost:
            assert not ours
            return
        assert ours
        if what in ("ack", "move"):
            self.here = [other for other in self.here if other is not entry]
            self.moved += [(entry.id, entry.body)] if what == "move" else []
        elif what == "release":
            entry.lease_us = None
        elif what == "dead_letter" or exhausted:
            self._give_up(entry, "bad" if what == "dead_letter" else "max_attempts")
        else:
            self._wait(entry)

    @precondition(lambda self: len(self.here) > SLOTS // 2)
    @rule(limit=st.sampled_from([1, 3, None]))
    def move_all(self, limit: int | None) -> None:
        """All that wait, due or not; some of them in no order that is promised."""
        waiting = {entry.id: entry for entry in self.here if entry.lease_us is None}
        known = {id_ for id_, _ in self.moved}
        count = self.queue.move_all(to=self.other, limit=limit)
        assert count == (len(waiting) if limit is None else min(limit, len(waiting)))
        gone = {id_ for id_ in (m.id for m in self.other.browse()) if id_ not in known}
        assert len(gone) == count and gone <= waiting.keys()
        self.moved += [(id_, waiting[id_].body) for id_ in gone]
        self.here = [entry for entry in self.here if entry.id not in gone]

    @rule(seconds=st.sampled_from([0.5, 1, 3, 10, 20]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def open_again(self) -> None:
        """What was got goes back, without a wait; what is remembered stays."""
        self.queue.close()
        self.queue = penstock.open(self.folder / "queue", clock=self.clock)
        self.held = []
        for entry in self.here:
            if entry.lease_us is not None:
                entry.lease_us = None

    @rule(reason=st.sampled_from([None, "bad", "max_attempts"]))
    def redrive(self, reason: str | None) -> None:
        wanted = [letter for letter in self.dead if reason in (None, letter[2])]
        limits = {letter[0]: letter for letter in wanted}
        if len(self.here) + len(wanted) > SLOTS:
            return
        assert self.queue.redrive(reason=reason) == len(wanted)
        self.dead = [letter for letter in self.dead if letter not in wanted]
        own = {m.id: (m.max_attempts, m.expires_at) for m in self.queue.browse() if m.id in limits}
        for id_, body, _ in wanted:
            self.arrivals += 1
            limit, expires = own[id_]
            expires_us = None if expires is None else round(expires.timestamp() * 1e6)
            now_us = self.clock.wall_us()
            self.here.append(Entry(id_, body, self.arrivals, limit or LIMIT, expires_us, True, now_us))

    # ------------------------------------------------------------ what must hold

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        assert sorted(m.id for m in self.queue.browse(state="all")) == sorted(e.id for e in self.here)
        stats = self.queue.stats()
        assert (stats.dropped, stats.dead_lettered, stats.parked) == (self.dropped, self.lettered, 0)
        dead = self.queue.dead_letters()
        letters = [(m.id, m.data, m.reason) for m in dead.browse()] if dead is not None else []
        assert letters == self.dead
        assert sorted((m.id, m.data) for m in self.other.browse()) == sorted(self.moved)

    def teardown(self) -> None:
        try:
            self.queue.close()
            self.other.close()
            assert_whole(self.folder / "other")
            assert_whole(self.folder / "queue")
            if (self.folder / "queue.dead").exists():
                assert_whole(self.folder / "queue.dead")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


TestRetries = Retries.TestCase
TestRetries.settings = settings(
    max_examples=100 if IN_FULL else 40,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
