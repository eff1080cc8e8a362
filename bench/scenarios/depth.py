"""What a full queue costs (j): each operation beside a million waiting messages and beside a thousand.

The two queues take turns, a few hundred operations each, so that whatever else the machine does hits both.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import penstock
from bench.scenarios.measuring import bodies, check, chunks, number_of, numbered, settle
from bench.scenarios.scheduled import FILL_BATCH, MONTH_US, SOON_US
from bench.systems.penstock_queue import PenstockClient

BODY_BYTES = 200
SHALLOW = 1000
TURNS = 10
OPERATIONS = 200  # in each turn, of each kind
OPENS = 9
WARMING_TURNS = 100
RECORD_BYTES = 272  # a little more than the record of such a body takes
SPARE = 20_000  # slots for what is put while measuring

OPERATION_NAMES = ("put", "get", "ack")


class Prepared:
    """A queue with ``depth`` messages: due at once, or all next month."""

    def __init__(self, path: Path, depth: int, *, next_month: bool) -> None:
        self.path = path
        self.depth = depth
        self.next_month = next_month
        self.random = random.Random(depth)
        self.first = self.next = 0  # numbers of the oldest and the next immediate message
        slots = depth + SPARE
        penstock.create(path, slots=slots, data_bytes=slots * RECORD_BYTES, durability="relaxed").close()
        self.open()
        for batch in chunks(bodies(depth, BODY_BYTES), FILL_BATCH):
            if next_month:
                self.client.put_many_at(batch, [self.random_us() for _ in batch])
            else:
                self.client.put_many(batch)
                self.next += len(batch)
        settle(path)

    def open(self) -> None:
        self.client = PenstockClient(penstock.open(self.path))

    def close(self) -> None:
        self.client.close()

    def random_us(self) -> int:
        return time.time_ns() // 1000 + SOON_US + self.random.randrange(MONTH_US)

    def immediate(self) -> dict[str, float]:
        """Seconds for an operation; as many are taken as were put, so that the depth stays."""
        items = bodies(OPERATIONS, BODY_BYTES, first=self.next)
        self.next += OPERATIONS
        put, get, ack = self.client.put, self.client.get, self.client.ack
        times = [time.perf_counter()]
        for body in items:
            put(body)
        times.append(time.perf_counter())
        found = [get() for _ in items]
        times.append(time.perf_counter())
        for token, _ in found:
            ack(token)
        times.append(time.perf_counter())
        numbers = [number_of(body) for _, body in found]
        check(numbers == list(range(self.first, self.first + OPERATIONS)), "Penstock: messages came out of order")
        self.first += OPERATIONS
        return {name: (times[at + 1] - times[at]) / OPERATIONS for at, name in enumerate(OPERATION_NAMES)}

    def insert(self) -> float:
        """Seconds for an insert at a random future time. What was inserted is cancelled again."""
        times = [self.random_us() for _ in range(OPERATIONS)]
        body = numbered(0, BODY_BYTES)
        put_at = self.client.put_at
        start = time.perf_counter()
        ids = [put_at(body, deliver_us) for deliver_us in times]
        seconds = time.perf_counter() - start
        check(all(self.client.queue.cancel(str(id)) for id in ids), "Penstock: an inserted message is missing")
        return seconds / OPERATIONS

    def opening(self) -> float:
        """Seconds to open it, after it was closed cleanly."""
        self.close()
        start = time.perf_counter()
        self.open()
        return time.perf_counter() - start

    def check(self) -> None:
        found = self.client.queue.qsize()
        check(found == self.depth, f"Penstock: {found} messages wait instead of {self.depth}")


class Depth:
    """The prepared queues, which are kept for all rounds."""

    def __init__(self, where: Path, *, deep: int) -> None:
        self.deep = Prepared(where / "deep", deep, next_month=False)
        self.shallow = Prepared(where / "shallow", SHALLOW, next_month=False)
        self.deep_later = Prepared(where / "deep-later", deep, next_month=True)
        self.shallow_later = Prepared(where / "shallow-later", SHALLOW, next_month=True)
        self.empty = Prepared(where / "empty", 0, next_month=False)
        self.all = (self.deep, self.shallow, self.deep_later, self.shallow_later, self.empty)

    def round(self) -> dict[str, tuple[float, float]]:
        """For each operation, seconds in the deep queue and in the shallow one."""
        samples: dict[str, tuple[list[float], list[float]]] = {}

        def note(name: str, deep_s: float, shallow_s: float) -> None:
            pair = samples.setdefault(name, ([], []))
            pair[0].append(deep_s)
            pair[1].append(shallow_s)

        for _ in range(TURNS):
            shallow = self.shallow.immediate()
            deep = self.deep.immediate()
            later = self.deep_later.immediate()
            for name in OPERATION_NAMES:
                note(name, deep[name], shallow[name])
                note(f"{name}, all next month", later[name], shallow[name])
        # After a write-back the system makes each page of a mapping fault once more, and inserts at random times touch
        # pages everywhere. So there are two figures: just after one, and when most of the pages were touched again.
        for queue in (self.deep_later, self.shallow_later):
            settle(queue.path)
        for _ in range(TURNS):
            note("random future insert after a write-back", self.deep_later.insert(), self.shallow_later.insert())
        for _ in range(WARMING_TURNS):
            self.deep_later.insert()
        for _ in range(TURNS):
            note("random future insert", self.deep_later.insert(), self.shallow_later.insert())
        for _ in range(OPENS):
            note("open", self.deep.opening(), self.empty.opening())
        return {name: (_middle(deep), _middle(shallow)) for name, (deep, shallow) in samples.items()}

    def finish(self) -> None:
        for queue in self.all:
            queue.check()
            queue.close()


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
