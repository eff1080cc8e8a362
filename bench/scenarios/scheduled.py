"""Inserts at random future times into a queue in which 100,000 already wait (g)."""

from __future__ import annotations

import random
import time
from pathlib import Path

from bench.scenarios.measuring import Stopwatch, bodies, check, chunks, number_of, settle
from bench.systems.interface import Client, System

MONTH_US = 30 * 86_400 * 1_000_000
SOON_US = 86_400 * 1_000_000  # far enough that nothing becomes due while we measure
FILL_BATCH = 1000


class Scheduled:
    """One system's prepared queue, which is kept for all rounds and grows a little with each."""

    def __init__(self, system: System, where: Path, *, waiting: int, inserts: int, rounds: int, body_bytes: int):
        self.system = system
        self.inserts = inserts
        self.body_bytes = body_bytes
        self.random = random.Random(2)  # the same times for every system
        self.start_us = time.time_ns() // 1000 + SOON_US
        self.expected: list[tuple[int, int]] = []
        system.create(where, messages=waiting + inserts * rounds, body_bytes=body_bytes)
        self.client: Client = system.open()
        for batch in chunks(bodies(waiting, body_bytes), FILL_BATCH):
            self.client.put_many_at(batch, self._times(batch))
        settle(where)

    def _times(self, items: list[bytes]) -> list[int]:
        times = [self.start_us + self.random.randrange(MONTH_US) for _ in items]
        self.expected += zip(times, map(number_of, items), strict=True)
        return times

    def round(self) -> dict[str, float]:
        """Inserts a second, each an operation of its own."""
        items = bodies(self.inserts, self.body_bytes, first=len(self.expected))
        times = self._times(items)
        put_at = self.client.put_at
        with Stopwatch() as watch:
            for body, deliver_us in zip(items, times, strict=True):
                put_at(body, deliver_us)
        return {"g": self.inserts / watch.seconds}

    def finish(self) -> None:
        """All there, and in the order of delivery."""
        found = [(deliver_us, number_of(body)) for deliver_us, body in self.client.waiting()]
        self.client.close()
        check(found == sorted(self.expected), f"{self.system.name}: scheduled messages are missing or out of order")
