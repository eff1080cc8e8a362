"""Owns the course of a run: who is started when, who is killed, and when it is over. Never reads or puts a message.

The others do not know it is there: they have the folder and nothing else. It sees what they do as anybody could, by
their journals and by the figures of the queues.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
DEAD_S = 1.5  # before it is started again
SETTLE_S = 1.5  # after the last message: a duplicate would come now
STALLED_S_MAX = 150.0  # without a single message coming through; Spark may take a minute to start where others compute


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
        return self.queues[INBOUND].waiting + self.queues[INBOUND].pending


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


class Director:
    def __init__(self, folder: Folder, *, messages: int, producers: int, seconds: float) -> None:
        self._folder = folder
        self._producers = producers
        self._seconds = seconds
        self._children = Children(folder.root / "logs", folder.scratch)
        self._follower = Follower(folder.root / "journals")
        self._queues: dict[str, penstock.TimeQueue] = {}
        self.course = Course(messages, time.time())

    def run(self, show: Callable[[Course], None]) -> None:
        """All of it. Whatever happens, no process is left."""
        try:
            self._make_queues()
            self._perform(show)
        finally:
            for each in (signal.SIGINT, signal.SIGTERM):  # nobody is left behind, however often it is pressed
                signal.signal(each, signal.SIG_IGN)
            self._children.end_all()
            self._look()

    def held(self) -> dict[str, Held]:
        last = self.course.samples[-1].queues
        return {name: Held(stats.puts, stats.waiting + stats.pending + stats.filling) for name, stats in last.items()}

    def _make_queues(self) -> None:
        slots = max(2 * self.course.messages, SLOTS_LEAST)
        for name in (INBOUND, *DESTINATIONS):
            path = self._folder.queue(name)
            self._queues[name] = penstock.create(path, slots=slots, data_bytes=slots * MESSAGE_BYTES)

    def _perform(self, show: Callable[[Course], None]) -> None:
        producers = self._make_producers()
        driver = Child("driver", "driver", self._folder.root)
        consumers = [Child(f"consumer-{name}", "consumers", self._folder.root, name) for name in DESTINATIONS]
        for child in (driver, *consumers, *producers):
            self._children.start(child)
        victims = (
            Victim(producers[0], "producer 0", KILL_PRODUCER_AT),
            Victim(driver, "Spark driver (Python and Java)", KILL_DRIVER_AT),
        )
        moved_s, done, settled_s = time.monotonic(), -1, None
        while True:
            self._look()
            self._see(*victims)
            self._persecute(victims[0], len(self.course.account.put))
            self._persecute(victims[1], self._done_for_a_while())
            show(self.course)
            self._refuse_the_ended([driver, *consumers, *producers])
            if self.course.account.done != done:
                moved_s, done = time.monotonic(), self.course.account.done
            if time.monotonic() - moved_s > STALLED_S_MAX:
                self.course.happened("nothing moves any more: given up")
                return
            if not self._is_over(victims, producers):
                settled_s = None
            elif settled_s is None:
                settled_s = time.monotonic() + SETTLE_S
            elif time.monotonic() > settled_s:
                return
            time.sleep(LOOK_EVERY_S)

    def _make_producers(self) -> list[Child]:
        share, more = divmod(self.course.messages, self._producers)
        made = []
        for n in range(self._producers):
            arguments = ["--of", self._producers, "--messages", share + (n < more)]
            arguments += ["--start", self.course.start_s, "--seconds", self._seconds]
            made.append(Child(f"producer-{n}", "producers", self._folder.root, n, *arguments))
        return made

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

    def _see(self, producer: Victim, driver: Victim) -> None:
        """Who works: Spark if its queries run, a producer if it has put something since."""
        course = self.course
        running = course.driver_pid is not None and course.driver_pid == driver.child.pid and driver.child.code is None
        before, course.spark = course.spark, "running" if running else "dead" if driver.child.code else "starting"
        if running and before != "running":
            course.happened("Spark is up again" if driver.death else "Spark is up")
        if running and driver.death is not None and driver.death.to_s is None:
            driver.death.to_s = time.time()
        if producer.restarted_s and producer.death and not producer.death.to_s:
            last_s = course.put_by.get(producer.child.name, 0.0)
            if last_s > producer.restarted_s or producer.child.code == 0:
                producer.death.to_s = max(last_s, producer.restarted_s)

    def _refuse_the_ended(self, children: list[Child]) -> None:
        """Nobody ends before the end but a producer that is through."""
        for child in children:
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

    def _is_over(self, victims: tuple[Victim, ...], producers: list[Child]) -> bool:
        course = self.course
        queues = course.samples[-1].queues.values()
        return (
            all(victim.is_back for victim in victims)
            and all(child.code == 0 for child in producers)
            and course.account.done >= course.messages
            and not any(stats.waiting + stats.pending + stats.filling for stats in queues)
        )
