"""Owns the course of a run: who is started when, who is killed, and when it is over. Never reads or puts a message.

The others do not know it is there: they have the folder and nothing else. It sees what they do as anybody could, by
their journals and by the figures of the queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock

from .account import Account, Held
from .children import Child, Children
from .journal import Follower
from .plan import DESTINATIONS, INBOUND, MESSAGE_BYTES, SLOTS_LEAST, Folder

LOOK_EVERY_S = 0.25
KILL_PRODUCER_AT = 0.2  # share of all messages that are put by then
KILL_DRIVER_AT = 0.35  # share of all messages that are through by then, but not before it has run for a while:
KILL_DRIVER_AFTER_S = 4.0
ALONE_S_MAX = 20.0  # that the producers let Spark start alone
DEAD_S = 1.5  # before it is started again
SETTLE_S = 1.5  # after the last message: a duplicate would come now
STALLED_S_MAX = 150.0  # without a single message coming through; Spark may take a minute to start where others compute


RUNNING = "running"


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
    who: str
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
    done: int
    queues: dict[str, penstock.Stats]

    @property
    def backlog(self) -> int:
        return left(self.queues[INBOUND])


def left(stats: penstock.Stats) -> int:
    """Messages that are still in a queue, whoever has them."""
    return stats.waiting + stats.pending + stats.claimed + stats.filling


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
        self._done = 0
        self._over_s: float | None = None

    def is_settled(self, over: bool) -> bool:
        now_s = time.monotonic()
        self._over_s = (self._over_s or now_s) if over else None
        return self._over_s is not None and now_s > self._over_s + SETTLE_S

    def is_stalled(self, done: int) -> bool:
        if done != self._done:
            self._moved_s, self._done = time.monotonic(), done
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
            self._perform(show)
        finally:
            self.end()
        self._look()

    def end(self) -> None:
        """No process is left; also if it was interrupted in doing that, and is called again."""
        self._children.end_all()

    def held(self) -> dict[str, Held]:
        last = self.course.samples[-1].queues
        return {name: Held(stats.puts, left(stats)) for name, stats in last.items()}

    def _make_queues(self) -> None:
        slots = max(2 * self.course.messages, SLOTS_LEAST)
        for name in (INBOUND, *DESTINATIONS):
            path = self._folder.queue(name)
            self._queues[name] = penstock.create(path, slots=slots, data_bytes=slots * MESSAGE_BYTES)

    def _perform(self, show: Callable[[Course], None]) -> None:
        driver = Victim(Child("driver", "driver", self._folder.root), "Spark driver (Python and Java)", KILL_DRIVER_AT)
        self._start(driver.child)
        for name in DESTINATIONS:
            self._start(Child(f"consumer-{name}", "consumers", self._folder.root, name))
        producer: Victim | None = None
        watch = Watch()
        while True:
            self._look()
            self._see_driver(driver)
            self._persecute(driver, self._done_for_a_while())
            if producer is not None:
                self._see_producer(producer)
                self._persecute(producer, len(self.course.account.put))
            elif self.course.spark == RUNNING or time.time() > self.course.start_s + ALONE_S_MAX:
                producer = Victim(self._start_producers()[0], "producer 0", KILL_PRODUCER_AT)
            show(self.course)
            self._refuse_the_ended()
            over = producer is not None and producer.is_back and driver.is_back and self._is_all_through()
            if watch.is_settled(over):
                return
            if watch.is_stalled(self.course.account.done):
                self.course.happened("nothing moves any more: given up")
                return
            time.sleep(LOOK_EVERY_S)

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
                ready = all(query["ready"] for query in line["queries"])
                self.course.driver_pid = line["pid"] if ready else None
            else:
                account.add(journal, line)
                if journal.startswith("producer"):
                    self.course.put_by[journal] = line["at_s"]
        queues = {name: queue.stats() for name, queue in self._queues.items()}
        self.course.samples.append(Sample(time.time(), len(account.put), account.done, queues))

    def _see_driver(self, driver: Victim) -> None:
        """Spark is there when its queries run."""
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

    def _refuse_the_ended(self) -> None:
        """Nobody ends before the end but a producer that is through."""
        for child in self._all:
            if child.code is None or child.is_killed or (child.code == 0 and child.name.startswith("producer")):
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
            victim.death = Death(f"{victim.who} killed", time.time())
            course.deaths.append(victim.death)
            course.happened(f"{victim.who} killed with -9")
        elif victim.death and not victim.restarted_s and time.time() > victim.death.from_s + DEAD_S:
            self._children.start(victim.child)
            victim.restarted_s = time.time()
            course.happened(f"{victim.who} started again")

    def _done_for_a_while(self) -> int:
        """Messages that are through, once the first of them has been for some seconds."""
        account = self.course.account
        first_s = account.done_at[0][0] if account.done_at else time.time()
        return account.done if time.time() > first_s + KILL_DRIVER_AFTER_S else 0

    def _is_all_through(self) -> bool:
        producers = [child for child in self._all if child.name.startswith("producer")]
        in_queues = sum(held.left for held in self.held().values())
        is_done = self.course.account.done >= self.course.messages and not in_queues
        return is_done and all(child.code == 0 for child in producers)
