"""Owns the course of a run: who is started when, who is killed, and when it is over. Never puts or takes a message.

The others do not know it is there: they have the folder and nothing else. It sees what they do as anybody could, by
their journals and by the figures of the queues; at the end it looks at the contexts and at the dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock

from .account import Account, Found, Held, Letter
from .children import Child, Children
from .journal import Follower
from .plan import (
    ATTEMPTS_MAX,
    BACKOFF_S,
    CONSUMED,
    DEAD,
    HISTORY_BYTES,
    LANES,
    MESSAGE_BYTES,
    ORDERS,
    QUEUES,
    SLOTS_LEAST,
    Folder,
)
from .shop import app

LOOK_EVERY_S = 0.25
KILL_PRODUCER_AT = 0.2  # share of all messages that are put by then
KILL_DRIVER_AT = 0.35  # share of all messages that are out by then, but not before it has run for a while:
KILL_DRIVER_AFTER_S = 2.5
ALONE_S_MAX = 20.0  # that the producers let Spark start alone
DEAD_S = 1.5  # before it is started again
SETTLE_S = 1.5  # after the last message: a duplicate would come now
STALLED_S_MAX = 150.0  # without a single message coming out; Spark may take a minute to start where others compute
ENDED_S_MAX = 120.0  # for those who are asked to end; Spark has the report to make
SLOTS_A_MESSAGE = 3  # the first lane has all timers, also those that were cancelled and whose time has not come

RUNNING = "running"
REPORTING = "making the report"


class Failed(Exception):
    """The run cannot go on; for people."""


@dataclass
class Death:
    """From a kill until its victim works again."""

    who: str
    from_s: float
    to_s: float | None = None


@dataclass
class Victim:
    """A process that is killed once and comes back."""

    child: Child
    name: str
    who: str  # in full
    share: float  # of all messages: how far things have come when it is killed
    death: Death | None = None
    is_spared: bool = False  # it was through before
    restarted_s: float | None = None

    @property
    def is_back(self) -> bool:
        return self.is_spared or (self.death is not None and self.death.to_s is not None)


@dataclass(frozen=True)
class Sample:
    """One look at everything."""

    at_s: float
    put: int
    out: int  # as a follow-up or as a dead letter
    queues: dict[str, penstock.Stats]

    @property
    def backlog(self) -> int:
        return sum(left(self.queues[lane]) for lane in LANES)


def left(stats: penstock.Stats) -> int:
    """Messages that are still in a queue, whoever has them."""
    return stats.waiting + stats.pending + stats.claimed + stats.filling


def letter_of(message: penstock.Message) -> Letter:
    return Letter(message.body["n"], message.reason or "", message.error or "", message.attempts_before)


@dataclass
class Course:
    """What happened so far."""

    messages: int
    start_s: float
    account: Account = field(default_factory=Account)
    samples: list[Sample] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    queries: list[dict[str, Any]] = field(default_factory=list)
    put_by: dict[str, float] = field(default_factory=dict)  # when each producer has put last
    driver_pid: int | None = None  # of whom the journal's last line is, while it is alive and ready
    spark: str = "starting"

    def happened(self, what: str) -> None:
        self.events.append((time.time(), what))


class Watch:
    """Knows when to stop looking: all is through for a while, or nothing moves."""

    def __init__(self) -> None:
        self._moved_s = time.monotonic()
        self._out = 0
        self._over_s: float | None = None

    def is_settled(self, over: bool) -> bool:
        now_s = time.monotonic()
        self._over_s = (self._over_s or now_s) if over else None
        return self._over_s is not None and now_s > self._over_s + SETTLE_S

    def is_stalled(self, out: int) -> bool:
        if out != self._out:
            self._moved_s, self._out = time.monotonic(), out
        return time.monotonic() - self._moved_s > STALLED_S_MAX


class Director:
    def __init__(self, folder: Folder, scratch: Path, *, messages: int, producers: int, seconds: float) -> None:
        self._folder = folder
        self._producers = producers
        self._seconds = seconds
        self._children = Children(folder.root, scratch)
        self._follower = Follower(folder.root / "journals")
        self._queues: dict[str, penstock.TimeQueue] = {}
        self._all: list[Child] = []
        self.course = Course(messages, time.time())

    def run(self, show: Callable[[Course], None]) -> None:
        """All of it. Whatever happens, no process is left."""
        try:
            self._make_queues()
            if self._perform(show):
                self._close(show)
        finally:
            self.end()
        self._look()

    def end(self) -> None:
        """No process is left; also if it was interrupted in doing that, and is called again."""
        self._children.end_all()

    def found(self) -> Found:
        """What there is at the end."""
        contexts = app.contexts(self._folder.queues)
        states = dict(contexts.items())
        timers = {key: sorted(contexts.timers(key)) for key in states}
        last = self.course.samples[-1].queues
        held = {name: Held(stats.puts, left(stats)) for name, stats in last.items()}
        letters = [letter_of(each) for each in self._queues[DEAD].browse()]
        return Found(states, {key: names for key, names in timers.items() if names}, letters, held)

    def _make_queues(self) -> None:
        slots = max(SLOTS_A_MESSAGE * self.course.messages, SLOTS_LEAST)
        sizes: dict[str, Any] = {"depth": slots, "data_bytes": slots * MESSAGE_BYTES, "history_bytes": HISTORY_BYTES}
        first_s, most_s = BACKOFF_S
        backoff = penstock.Backoff.exponential(first_s, factor=2, most=most_s, jitter=0.2)
        with penstock.QueueManager(self._folder.queues) as manager:
            for name in QUEUES:
                tried = {"max_attempts": ATTEMPTS_MAX, "backoff": backoff, "dead_letter": DEAD} if name in LANES else {}
                manager.create(name, **sizes, **tried)
            # The first member gets the timers: reminders are not urgent.
            manager.create_macro(ORDERS, sorted(LANES.items(), key=lambda lane: lane[1]))
        for name in QUEUES:
            self._queues[name] = penstock.open(self._folder.queue(name))

    def _perform(self, show: Callable[[Course], None]) -> bool:
        """Until all is out; False if nothing moves any more."""
        spark = Child("driver", "driver", self._folder.root, "--figures", self._folder.figures)
        driver = Victim(spark, "Spark", "Spark driver (Python and Java)", KILL_DRIVER_AT)
        self._start(driver.child)
        for name in CONSUMED:
            self._start(Child(f"consumer-{name}", "consumers", self._folder.root, name))
        producer: Victim | None = None
        watch = Watch()
        while True:
            self._look()
            self._see_driver(driver)
            self._persecute(driver, self._out_for_a_while())
            if producer is not None:
                self._see_producer(producer)
                self._persecute(producer, len(self.course.account.put))
            elif self.course.spark == RUNNING or time.time() > self.course.start_s + ALONE_S_MAX:
                producer = Victim(self._start_producers()[0], "producer", "producer 0", KILL_PRODUCER_AT)
            show(self.course)
            self._refuse_the_ended()
            over = producer is not None and producer.is_back and driver.is_back and self._is_all_out()
            if watch.is_settled(over):
                return True
            if watch.is_stalled(self.course.samples[-1].out):
                self.course.happened("nothing moves any more: given up")
                return False
            time.sleep(LOOK_EVERY_S)

    def _close(self, show: Callable[[Course], None]) -> None:
        """All end by themselves, so that what they know of the history of queues is written; Spark as the last, which
        reads it."""
        deadline = time.monotonic() + ENDED_S_MAX
        course = self.course
        course.happened("all messages are out; Spark makes the report")
        course.spark = REPORTING
        for group in (self._all[1:], self._all[:1]):
            for child in group:
                child.ask_to_end()
            while any(child.code is None for child in group):
                if time.monotonic() > deadline:
                    raise Failed(f"{' and '.join(child.name for child in group if child.code is None)} did not end")
                self._look()
                show(course)
                time.sleep(LOOK_EVERY_S)
        self._refuse_the_ended(at_the_end=True)

    def _start_producers(self) -> list[Child]:
        """All that they know is the folder, a number, and how fast to be."""
        share, more = divmod(self.course.messages, self._producers)
        made = []
        for n in range(self._producers):
            arguments = ["--of", self._producers, "--messages", share + (n < more)]
            arguments += ["--start", time.time(), "--seconds", self._seconds]
            made.append(Child(f"producer-{n}", "producers", self._folder.root, n, *arguments))
            self._start(made[-1])
        return made

    def _start(self, child: Child) -> None:
        self._children.start(child)
        self._all.append(child)

    # ------------------------------------------------------------ looking

    def _look(self) -> None:
        account = self.course.account
        for journal, line in self._follower.new_lines():
            if journal == "driver":
                self.course.queries = line["queries"]
                self.course.driver_pid = line["pid"] if line["queries"][0]["ready"] else None  # the scripts
            else:
                account.add(journal, line)
                if journal.startswith("producer"):
                    self.course.put_by[journal] = line["at_s"]
        queues = {name: queue.stats() for name, queue in self._queues.items()}
        out = account.out + left(queues[DEAD])
        self.course.samples.append(Sample(time.time(), len(account.put), out, queues))

    def _see_driver(self, driver: Victim) -> None:
        """Spark is there when the scripts run."""
        course, child = self.course, driver.child
        running = child.code is None and course.driver_pid is not None and course.driver_pid == child.pid
        before, course.spark = course.spark, RUNNING if running else "dead" if child.code else "starting"
        if not running or before == RUNNING:
            return
        course.happened("Spark is up again" if driver.death else "Spark is up")
        if driver.death is not None:
            driver.death.to_s = time.time()

    def _see_producer(self, producer: Victim) -> None:
        """A producer is back when it has put something, or has nothing left to put."""
        death, child = producer.death, producer.child
        if death is None or death.to_s is not None or producer.restarted_s is None:
            return
        last_s = self.course.put_by.get(child.name, 0.0)
        if last_s > producer.restarted_s or child.code == 0:
            death.to_s = max(last_s, producer.restarted_s)

    def _refuse_the_ended(self, *, at_the_end: bool = False) -> None:
        """Nobody ends before the end but a producer that is through."""
        for child in self._all:
            may_end = at_the_end or child.name.startswith("producer")
            if child.code is None or child.is_killed or (child.code == 0 and may_end):
                continue
            log = self._folder.log(child.name)
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise Failed(f"{child.name} ended with code {child.code}; {log} ends with:\n{last}")

    # ------------------------------------------------------------ killing

    def _persecute(self, victim: Victim, reached: int) -> None:
        """Kill it when its time has come, and start it again a little later."""
        course = self.course
        if victim.is_spared:
            return
        if victim.death is None and victim.child.code == 0:
            victim.is_spared = True
            course.happened(f"{victim.who} was through before it could be killed")
        elif victim.death is None and reached >= victim.share * course.messages:
            victim.child.kill()
            victim.death = Death(f"{victim.name} killed", time.time())
            course.deaths.append(victim.death)
            course.happened(f"{victim.who} killed with -9")
        elif victim.death and not victim.restarted_s and time.time() > victim.death.from_s + DEAD_S:
            self._children.start(victim.child)
            victim.restarted_s = time.time()
            course.happened(f"{victim.who} started again")

    def _out_for_a_while(self) -> int:
        """Messages that are out, once the first of them has been for some seconds."""
        account = self.course.account
        first_s = account.out_at[0][0] if account.out_at else time.time()
        return account.out if time.time() > first_s + KILL_DRIVER_AFTER_S else 0

    def _is_all_out(self) -> bool:
        """Nothing is left but dead letters; timers that were cancelled are in their lane until their time."""
        producers = [child for child in self._all if child.name.startswith("producer")]
        now = self.course.samples[-1]
        in_queues = sum(left(stats) for name, stats in now.queues.items() if name != DEAD)
        is_out = now.out >= self.course.messages and not in_queues
        return is_out and all(child.code == 0 for child in producers)
