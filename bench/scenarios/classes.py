"""What types, keys and priorities cost: put, get and ack of a message by its type (x), with exclusive keys (y), of 16
priorities in turn (2), all against a queue whose messages have none of these; and of a rare type among a million others
against among a thousand (1).

The queues take turns, a few hundred messages each, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from bench.results import OURS
from bench.scenarios.measuring import bodies, check, chunks

BODY_BYTES = 200
WAITING = 1000  # in each queue, besides: of as many types and keys as are used
TURNS = 10
OPERATIONS = 300  # in each turn: put, get and ack
TYPES = 8
KEYS = 50
SHALLOW = 1000
FILL_BATCH = 10_000
RECORD_BYTES = 528
SPARE = 1000

PRIORITIES = 16

PLAIN = "neither type nor key"
ONE = "one priority"
FEW = "1,000 others"


class Classes:
    """The queues, made once and used in all rounds."""

    def __init__(self, below: Path, *, deep: int, wanted: set[str]) -> None:
        self._wanted = wanted
        self._queues: dict[str, penstock.TimeQueue] = {}
        self._below = below
        self._make("plain", WAITING)
        if "x" in wanted:
            self._make("typed", WAITING)
        if "y" in wanted:
            self._make("exclusive", WAITING, exclusive_keys=True)
        if "2" in wanted:
            self._make("prioritised", WAITING)
        if "1" in wanted:
            self._make("deep", deep)
            self._make("shallow", SHALLOW)

    def _make(self, name: str, count: int, **options: Any) -> None:
        slots = count + SPARE
        queue = penstock.create(
            self._below / name, slots=slots, data_bytes=slots * RECORD_BYTES, durability="relaxed", **options
        )
        for batch in chunks(bodies(count, BODY_BYTES), FILL_BATCH):
            queue.put_many([penstock.Draft(body=body, **_class(name, n)) for n, body in enumerate(batch)])
        queue.sync_index()
        self._queues[name] = queue

    def round(self) -> dict[tuple[str, str], list[float]]:
        """Seconds for a message, on average of each turn, by scenario and system."""
        seconds: dict[str, list[float]] = {name: [] for name in self._queues}
        for turn in range(TURNS):
            for name, queue in self._queues.items():
                seconds[name].append(_turn(queue, name, turn))
        found: dict[tuple[str, str], list[float]] = {}
        for letter, ours, theirs, system in (
            ("x", "typed", "plain", PLAIN),
            ("y", "exclusive", "plain", PLAIN),
            ("2", "prioritised", "plain", ONE),
            ("1", "deep", "shallow", FEW),
        ):
            if letter in self._wanted:
                found[letter, OURS] = seconds[ours]
                found[letter, system] = seconds[theirs]
        return found

    def finish(self) -> None:
        for queue in self._queues.values():
            queue.close()


TYPE_NAMES = [f"type {n}" for n in range(TYPES)]
KEY_NAMES = [f"customer {n}" for n in range(KEYS)]


def _class(name: str, n: int) -> dict[str, Any]:
    """Type, key or priority of message number ``n`` of a queue."""
    if name == "plain":
        return {}
    if name == "prioritised":
        return {"priority": n * 7 % PRIORITIES}  # neither rising nor falling
    if name == "exclusive":
        return {"key": KEY_NAMES[n % KEYS]}
    return {"type": TYPE_NAMES[n % TYPES]}


def _turn(queue: penstock.TimeQueue, name: str, turn: int) -> float:
    """Each message is put, got and acknowledged before the next one, as a worker does. As many are left as before."""
    items = bodies(OPERATIONS, BODY_BYTES, first=turn * OPERATIONS)
    rare = name in ("deep", "shallow")
    classes = [{"type": "rare"} if rare else _class(name, n) for n in range(OPERATIONS)]
    wanted = [{"block": False} | ({} if name in ("exclusive", "prioritised") else each) for each in classes]
    put: Callable[..., str] = queue.put
    get: Callable[..., penstock.Message] = queue.get
    begun = time.perf_counter()
    for body, each, options in zip(items, classes, wanted, strict=True):
        put(body, **each)
        message = get(**options)
        message.ack()
    seconds = (time.perf_counter() - begun) / OPERATIONS
    check(not rare or message.type == "rare", "Penstock: another type was delivered")
    return seconds
