"""What a macro queue costs: put, get and ack of a message through one of four members against a plain queue (3), and
how soon a consumer blocked in another process has a message of any of 100 members, against of one and of ten (4).

The queues of (3) take turns, a few hundred messages each, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import penstock
from bench.results import OURS
from bench.scenarios.measuring import bodies, check
from bench.scenarios.processes import TIMEOUT_S, Worker, ended, processes

BODY_BYTES = 200
MEMBERS = 4
DEPTH = 1000
TURNS = 10
OPERATIONS = 300  # in each turn: put, get and ack
MANY = 100
COUNTS = (1, 10, MANY)
PAUSE_S = (0.003, 0.006)  # before each put: long enough that the consumer is asleep

PLAIN = "a plain queue"
ONE = "one member"


class MacroQueues:
    """The queues, made once and used in all rounds."""

    def __init__(self, below: Path, *, wake_ups: int, wanted: set[str]) -> None:
        self._root = below
        self._wanted = wanted
        self._wake_ups = wake_ups
        self._manager = penstock.QueueManager(below)
        names = [f"m{n}" for n in range(MANY if "4" in wanted else MEMBERS)]
        for name in [*names, "plain"]:
            self._manager.create(name, depth=DEPTH, durability="relaxed", data_bytes=1 << 20)
        self._manager.create_macro("macro", names[:MEMBERS])
        for count in COUNTS if "4" in wanted else ():
            self._manager.create_macro(f"of-{count}", names[:count])
        self._queues: dict[str, Any] = {
            OURS: penstock.MacroQueue(below / "macro"),
            PLAIN: penstock.open(below / "plain"),
        }

    def round(self, number: int) -> dict[tuple[str, str], list[float]]:
        """Seconds for a message, by scenario and system."""
        found: dict[tuple[str, str], list[float]] = {}
        if "3" in self._wanted:
            for turn in range(TURNS):
                for system, queue in self._queues.items():
                    found.setdefault(("3", system), []).append(_turn(queue, turn))
        if "4" in self._wanted:
            for count in COUNTS:
                system = {1: ONE, MANY: OURS}.get(count, f"{count} members")
                found["4", system] = self._wake_up(count, number)
        return found

    def _wake_up(self, count: int, number: int) -> list[float]:
        """Seconds from just before the put to the consumer, each of some messages in members by chance."""
        ready = processes.Event()
        chance = random.Random(number)
        worker = Worker(_receive, self._root / f"of-{count}", self._wake_ups, ready)
        members = [penstock.open(self._root / f"m{n}") for n in range(min(count, 10))]
        with ended([worker]):
            check(ready.wait(TIMEOUT_S), "the consumer did not start")
            for _ in range(self._wake_ups):
                time.sleep(chance.uniform(*PAUSE_S))
                chance.choice(members).put(time.monotonic())
            late = list(worker.value())
        for member in members:
            member.close()
        return late

    def finish(self) -> None:
        for queue in self._queues.values():
            queue.close()
        self._manager.close()


def _turn(queue: Any, turn: int) -> float:
    items = bodies(OPERATIONS, BODY_BYTES, first=turn * OPERATIONS)
    begun = time.perf_counter()
    for body in items:
        queue.put(body)
        queue.get(block=False).ack()
    return (time.perf_counter() - begun) / OPERATIONS


def _receive(path: Path, count: int, ready: Any) -> list[float]:
    late = []
    with penstock.MacroQueue(path) as queue:
        check(queue.get_many(1, wait=0.05) == [], "there is something left over")
        ready.set()
        for _ in range(count):
            message = queue.get(timeout=TIMEOUT_S)
            late.append(time.monotonic() - message.body)
            message.ack()
    return late
