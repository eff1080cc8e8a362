"""No wake-up is lost, and waiting costs nothing."""

from __future__ import annotations

import functools
import itertools
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import penstock
from penstock import QueueEmpty, QueueFull
from penstock.store import layout as L
from penstock.timequeue.leases import Wanted, wanted
from penstock.timequeue.puts import entry
from tests.conftest import Queues, SimulatedClock
from tests.fault.processes import Child
from tests.thoroughness import IN_FULL

Start = Callable[..., Child]

# A receiver looks once a second even if nobody wakes it: whatever takes about so long was a lost wake-up.
POLL_S = 1.0
PROMPT_S = 0.9


# ---------------------------------------------------------------- with real processes


def test_waiting_costs_no_measurable_processor_time(queue: Queues, start: Start) -> None:
    empty, timed, full = queue("empty"), queue("timed"), queue("full", slots=4)
    timed.put("x", delay=3600)
    full.put_many(range(3))

    def wait(say: Any, call: Callable[[float], Any]) -> None:
        with pytest.raises((QueueEmpty, QueueFull)):  # so that the child's own client is open
            call(0)
        before = resource.getrusage(resource.RUSAGE_SELF)
        with pytest.raises((QueueEmpty, QueueFull)):
            call(3)
        after = resource.getrusage(resource.RUSAGE_SELF)
        say(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    waits = {
        "a message": lambda timeout_s: empty.get(timeout=timeout_s),
        "a delivery time": lambda timeout_s: timed.get(timeout=timeout_s),
        "room for a batch": lambda timeout_s: full.put_many(range(2), timeout=timeout_s),
        "room": lambda timeout_s: full.put_many(range(3), timeout=timeout_s),
    }
    children = {what: start(wait, call) for what, call in waits.items()}
    spent_s = {what: child.hear() for what, child in children.items()}
    assert max(spent_s.values()) < 0.02 * 3, spent_s


def _receive(say: Any, queue: penstock.TimeQueue) -> None:
    """Say how late each message came, in seconds, until there is one that says "end"."""
    late = []
    say("ready")
    while True:
        with queue.get(timeout=30) as message:
            now_s = time.monotonic()
            if message.body == "end":
                say(late)
                return
            late.append(now_s - message.body)


def _send(say: Any, queue: penstock.TimeQueue, seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        time.sleep(rng.choice([0, 0, 0.001, rng.uniform(0, 0.04)]))
        delay_s = rng.choice([None, None, rng.uniform(0, 0.05)])
        queue.put(time.monotonic() + (delay_s or 0), delay=delay_s, priority=rng.randrange(3), timeout=10)


def test_no_wake_up_is_lost_among_many_receivers_and_senders(queue: Queues, start: Start) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    q = queue(slots=1000, data_bytes=1 << 20)
    receivers = [start(_receive, q) for _ in range(8)]
    for receiver in receivers:
        receiver.hear()
    senders = [start(_send, q, seed + n, 120) for n in range(4)]
    assert [sender.join() for sender in senders] == [0] * 4
    time.sleep(0.1)  # until the last delay is over
    q.put_many(["end"] * 8)
    late = sorted(s for receiver in receivers for s in receiver.hear())
    assert len(late) == 4 * 120
    assert late[-1] < PROMPT_S


def test_each_of_many_sleepers_is_woken_for_a_message_of_its_own(queue: Queues, start: Start) -> None:
    q = queue()

    def one(say: Any) -> None:
        say("ready")
        for _ in range(5):
            with q.get(timeout=30) as message:
                late_s = time.monotonic() - message.body
                # Held for a while: the next message of the round needs another sleeper.
                time.sleep(0.1)
            say(late_s)

    receivers = [start(one) for _ in range(6)]
    for receiver in receivers:
        receiver.hear()
    for _ in range(5):
        time.sleep(0.05)  # let all of them fall asleep
        for _ in range(6):
            q.put(time.monotonic())
        assert max(receiver.hear() for receiver in receivers) < PROMPT_S


# ---------------------------------------------------------------- every interleaving, on a simulated bell
#
# What can interleave: turns at the queue's lock (whole, one at a time), the sleeper's "sleep if the word is still what
# I saw" (atomic, needs no lock), and the ring, which the notifier does after its commit but before it lets go of the
# lock. The kernel is the real one. All schedules are followed; equal states are followed once.


@dataclass(frozen=True)
class Actor:
    """One client and where it stands between two of its steps."""

    role: str
    phase: str
    seen: int = 0  # the bell's value that it armed with
    nap_s: float = 0.0
    timed_out: int | None = None
    naps: int = 0  # sleeps that may still end by themselves, or by a signal
    jobs: tuple[str, ...] = ()  # what it still has to do
    wants: str | None = None  # the type that it takes alone


State = tuple[bytes, tuple[Actor, ...], tuple[tuple[int, int], ...]]


class World:
    """Clients of one queue in one process, whose steps are taken in any order that is asked for."""

    def __init__(self, queues: Queues, clock: SimulatedClock, actors: list[Actor], *, stay: bool, full: int) -> None:
        first = queues(slots=4, data_bytes=4096)
        for n in range(full):
            first.put(n)
        self._clock = clock
        self._stay = stay
        self._mapping = first._client.files.kernel
        self._get = first._client.kernel.get
        self._next_due_us = first._client.kernel.order.next_due_us
        self._clients: list[penstock.TimeQueue] = []
        self._held: list[list[penstock.Message]] = []
        self.rings: tuple[tuple[int, int], ...] = ()
        for actor in actors:
            queue = queues.open(first)
            client = queue._client
            # A simulated bell only notes that it was rung. Who is woken, and when, is the schedule's choice.
            client.receivers.ring = functools.partial(self._ring, L.H_WAKE)
            client.producers.ring = functools.partial(self._ring, L.H_ROOM)
            self._clients.append(queue)
            self._held.append([queue.get(block=False) for job in actor.jobs if job in ("ack", "release")])
        slots_at = self._get(L.H_SLOTS_AT) * L.WORD_BYTES
        journal_end = self._get(L.H_STATS_AT) * L.WORD_BYTES
        # Neither the emptied journal nor the statistics decide anything.
        self._kept = (slice(0, L.PAGE_BYTES), slice(self._get(L.H_LISTS_AT) * L.WORD_BYTES, None))
        assert L.PAGE_BYTES < journal_end < slots_at
        self.start: State = (bytes(self._mapping), tuple(actors), ())

    def _ring(self, word: int, count: int) -> None:
        self.rings += ((word, count),)

    # ------------------------------------------------------------ what may happen next

    def steps(self, state: State) -> list[tuple[str, int, tuple[int, ...]]]:
        """(step, actor, who is woken); what must happen sooner or later first, then what only may."""
        _, actors, rings = state
        found: list[tuple[str, int, tuple[int, ...]]] = []
        if rings:
            word, count = rings[0]
            asleep = [i for i, actor in enumerate(actors) if actor.phase == "asleep" and _bell(actor) == word]
            found += [("ring", -1, who) for who in itertools.combinations(asleep, min(count, len(asleep)))]
        for i, actor in enumerate(actors):
            if actor.phase == "armed":
                found.append(("sleep", i, ()))
            elif actor.phase in ("look", "arm", "try", "job") and not rings:  # needs the lock
                found.append((actor.phase, i, ()))
        return found

    def chances(self, state: State) -> list[tuple[str, int, tuple[int, ...]]]:
        _, actors, _ = state
        asleep = [i for i, actor in enumerate(actors) if actor.phase == "asleep" and actor.naps]
        return [(how, i, ()) for i in asleep for how in ("time out", "signal")]

    # ------------------------------------------------------------ making it happen

    def take(self, state: State, step: tuple[str, int, tuple[int, ...]]) -> State:
        kernel, actors, rings = state
        what, i, woken = step
        self._mapping[:] = kernel
        self.rings = rings
        changed = list(actors)
        if what == "ring":
            self.rings = rings[1:]
            for who in woken:
                changed[who] = _awake(actors[who])
        elif what == "sleep":
            same = self._get(_bell(actors[i])) & L.MASK32 == actors[i].seen & L.MASK32
            changed[i] = replace(actors[i], phase="asleep") if same else _awake(actors[i])
        elif what == "time out":
            changed[i] = replace(_awake(actors[i]), timed_out=actors[i].seen, naps=actors[i].naps - 1)
        elif what == "signal":
            changed[i] = replace(_awake(actors[i]), naps=actors[i].naps - 1)
        else:
            changed[i] = getattr(self, "_" + what)(i, actors[i])
        return bytes(self._mapping), tuple(changed), self.rings

    def _look(self, i: int, actor: Actor) -> Actor:
        queue = self._clients[i]
        client = queue._client
        look = queue._consumer.look(1, 60_000_000, None, actor.timed_out, self._wanted(actor))
        if not look.deliveries:
            return replace(actor, phase="armed", seen=look.seen, nap_s=look.sleep_s, timed_out=None)
        if not self._stay:
            return replace(actor, phase="busy", timed_out=None)
        # Not read first, as a receiver would: the data does not go back in time with the kernel.
        slot = client.kernel.chain_head(client.index)
        client.turn(lambda: (client.kernel.ack(slot, client.index, 0), client.kernel.commit()))
        return replace(actor, phase="look", timed_out=None)

    def _wanted(self, actor: Actor) -> Wanted | None:
        return wanted((actor.wants,), (), self._clients[0]._client.signature) if actor.wants else None

    def _arm(self, i: int, actor: Actor) -> Actor:
        client = self._clients[i]._client
        return replace(actor, phase="try", seen=client.turn(client.kernel.sleepers.arm, L.H_ROOM))

    def _try(self, i: int, actor: Actor) -> Actor:
        now_us = self._clock.wall_us()
        items = [entry(b"x", now_us, None, None, 0, None, None, None) for _ in range(int(actor.jobs[0]))]
        try:
            self._clients[i]._producer.put(items, sync=False, batch=True)
        except QueueFull:
            return replace(actor, phase="armed")
        return replace(actor, phase="busy")

    def _job(self, i: int, actor: Actor) -> Actor:
        queue = self._clients[i]
        job, *rest = actor.jobs
        if job == "now":
            queue.put(b"x")
        elif job == "later":
            queue.put(b"x", delay=0.5)
        elif job == "sooner":
            queue.put(b"x", delay=0.25, priority=1)
        elif job in ("a", "b"):
            queue.put(b"x", type=job)
        elif job == "a later":
            queue.put(b"x", type="a", delay=0.5)
        elif job == "b and a":
            queue.put_many([penstock.Draft(body=b"x", type="b"), penstock.Draft(body=b"y", type="a")])
        elif job == "batch":
            queue.put_many([b"x", b"y"])
        elif job == "mixed batch":
            queue.put_many([b"x", penstock.Draft(body=b"y", delay=0.5)])
        elif job == "ack":
            queue.ack(self._held[i][actor.jobs.count("ack") - 1])
        elif job == "release":
            queue.release(self._held[i][actor.jobs.count("release") - 1])
        else:
            raise AssertionError(job)
        return replace(actor, jobs=tuple(rest), phase="job" if rest else "done")

    # ------------------------------------------------------------ what must never be

    def assert_nobody_is_forgotten(self, state: State, way: tuple[str, ...]) -> None:
        """In a state in which nothing happens any more by itself."""
        words, actors, _ = state
        self._mapping[:] = words
        now_us = self._clock.wall_us()
        waiting = [a for a in actors if a.phase == "asleep" and a.role == "receiver"]
        kernel = self._clients[0]._client.kernel
        for actor in waiting:
            choice = self._wanted(actor)
            due = kernel.due(now_us) if choice is None else kernel.classes.choose(choice.choice, now_us)
            assert not due, f"a message is due and all sleep, after {way}"
            next_due_us = self._next_due_us() if choice is None else kernel.classes.next_us
            soon = not next_due_us or actor.nap_s <= (next_due_us - now_us) / 1e6
            assert soon, f"sleeps past the next delivery time, after {way}"
        blocked = [a for a in actors if a.phase == "asleep" and a.role == "producer"]
        vacant = 4 - self._get(L.H_WAITING) - self._get(L.H_PENDING) - self._get(L.H_FILLING)
        for actor in blocked:
            assert vacant < int(actor.jobs[0]), f"there is room and a producer sleeps, after {way}"

    def key(self, state: State) -> Any:
        kernel, actors, rings = state
        return hash(tuple(kernel[part] for part in self._kept)), actors, rings


def _bell(actor: Actor) -> int:
    return L.H_ROOM if actor.role == "producer" else L.H_WAKE


def _awake(actor: Actor) -> Actor:
    return replace(actor, phase="arm" if actor.role == "producer" else "look", timed_out=None)


def _follow_every_schedule(world: World) -> tuple[int, int]:
    """How many states there were, and in how many of them all was quiet."""
    seen = {world.key(world.start)}
    ways: list[tuple[State, tuple[str, ...]]] = [(world.start, ())]
    quiet = 0
    while ways:
        state, way = ways.pop()
        steps = world.steps(state)
        if not steps:
            quiet += 1
            world.assert_nobody_is_forgotten(state, way)
        for step in steps + world.chances(state):
            following = world.take(state, step)
            key = world.key(following)
            if key not in seen:
                seen.add(key)
                ways.append((following, (*way, f"{step[0]} {step[1]} {step[2] or ''}".strip())))
    world._mapping[:] = world.start[0]
    return len(seen), quiet


def _receivers(count: int, naps: int) -> list[Actor]:
    return [Actor("receiver", "look", naps=naps) for _ in range(count)]


def _senders(*jobs: tuple[str, ...]) -> list[Actor]:
    return [Actor("sender", "job", jobs=each) for each in jobs]


SENDERS = {
    "one puts one": [("now",)],
    "one puts two": [("now", "now")],
    "two put one each": [("now",), ("now",)],
    "two put for later": [("later",), ("sooner",)],
    "one for now and one for later": [("now",), ("later",)],
    "one puts a batch": [("batch",)],
    "one puts a mixed batch, one puts one": [("mixed batch",), ("now",)],
    "one gives back, one puts": [("release",), ("now",)],
}


@pytest.mark.damages  # the kernel goes back in time, the data does not
@pytest.mark.parametrize(
    "receivers, stay",
    [(1, False), (1, True), (2, False), (2, True), (3, False)],
    ids=["one takes one", "one stays", "two take one each", "two stay", "three take one each"],
)
@pytest.mark.parametrize("jobs", SENDERS.values(), ids=SENDERS)
def test_no_schedule_of_arm_check_and_sleep_forgets_a_receiver(
    queue: Queues, clock: SimulatedClock, receivers: int, jobs: list[tuple[str, ...]], stay: bool
) -> None:
    naps_of = {1: 1, 2: 1 if IN_FULL else 0}
    actors = _receivers(receivers, naps=naps_of.get(receivers, 0)) + _senders(*jobs)
    held = sum(each.count("release") for each in jobs)
    states, quiet = _follow_every_schedule(World(queue, clock, actors, stay=stay, full=held))
    assert quiet > 0
    print(f"{states} states, {quiet} quiet")


CHOOSERS = {
    "each its own type": (["a", "b"], [("a",), ("b",)]),
    "one of them wants anything": (["a", None], [("a",), ("b",)]),
    "what is not wanted comes first": (["a", "a"], [("b", "a")]),
    "later is enough": (["a", "b"], [("a later",), ("b",)]),
    "later, with others": (["a", None], [("a later", "now")]),
    "a batch of both": (["a", "b", None], [("b and a",)]),
    "two that want anything": (["a", None, None], [("a",), ("now",)]),
}


@pytest.mark.damages  # the kernel goes back in time, the data does not
@pytest.mark.parametrize("name", CHOOSERS)
def test_no_schedule_forgets_a_receiver_that_chooses(queue: Queues, clock: SimulatedClock, name: str) -> None:
    """Who takes one goes: what is left then is for those that are left, if they want it."""
    wants, jobs = CHOOSERS[name]
    naps = 1 if len(wants) < 3 and IN_FULL else 0
    actors = [Actor("receiver", "look", naps=naps, wants=want) for want in wants] + _senders(*jobs)
    states, quiet = _follow_every_schedule(World(queue, clock, actors, stay=False, full=0))
    assert quiet > 0
    print(f"{states} states, {quiet} quiet")


ACKNOWLEDGERS = [
    pytest.param(producers, jobs, id=f"puts of {'+'.join(producers)}, {len(jobs)} of {'+'.join(jobs[0])}")
    for producers, jobs in (
        (["1"], [("ack",)]),
        (["1", "1"], [("ack",)]),
        (["1", "1"], [("ack",), ("ack",)]),
        (["1", "1", "1"], [("ack", "ack")]),
        (["2"], [("ack",), ("ack",)]),
        (["2", "1"], [("ack",), ("ack",)]),
        (["2", "2"], [("ack", "ack"), ("ack",)]),
    )
]


@pytest.mark.damages
@pytest.mark.parametrize("producers, jobs", ACKNOWLEDGERS)
def test_no_schedule_of_arm_try_and_sleep_forgets_a_producer(
    queue: Queues, clock: SimulatedClock, producers: list[str], jobs: list[tuple[str, ...]]
) -> None:
    actors = [Actor("producer", "arm", jobs=(count,)) for count in producers] + _senders(*jobs)
    states, quiet = _follow_every_schedule(World(queue, clock, actors, stay=False, full=4))
    assert quiet > 0
    print(f"{states} states, {quiet} quiet")


@pytest.mark.damages
def test_the_search_finds_a_sender_that_does_not_ring(queue: Queues, clock: SimulatedClock) -> None:
    """The test of the test: the last sender forgets to ring."""
    world = World(queue, clock, _receivers(2, naps=0) + _senders(("now",), ("now",)), stay=False, full=0)
    take = world.take

    def forgetful(state: State, step: tuple[str, int, tuple[int, ...]]) -> State:
        kernel, actors, rings = take(state, step)
        return kernel, actors, rings if any(actor.phase == "job" for actor in actors) else ()

    world.take = forgetful  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="all sleep"):
        _follow_every_schedule(world)
    world._mapping[:] = world.start[0]


def test_the_notification_file_wakes_receivers_and_producers_too(queue: Queues, start: Start) -> None:
    """T7, the described way: every sleeper watches the file, whoever has news changes an attribute of it."""
    q = queue(slots=1, notify="file")

    def receive(say: Any) -> None:
        say("waiting")
        with q.get(timeout=10) as message:
            say((message.body, time.monotonic()))

    def produce(say: Any) -> None:
        say("waiting")
        q.put("late", timeout=10)
        say(time.monotonic())

    receiver = start(receive)
    receiver.hear()
    time.sleep(0.2)  # so that it sleeps; if it does not yet, the test is weaker and still right
    before_s = time.monotonic()
    q.put("news")
    body, at_s = receiver.hear()
    assert body == "news" and at_s - before_s < PROMPT_S
    receiver.join()

    q.put("in the way")
    producer = start(produce)
    producer.hear()
    time.sleep(0.2)
    before_s = time.monotonic()
    q.get(block=False).ack()
    assert producer.hear() - before_s < PROMPT_S
    assert q.get(block=False).body == "late"
