"""What keeping statistics (6) and a history (0) cost: put, get and ack of messages, with and without.

Both run in one process on one queue, in short turns, so that whatever else the machine does hits both; the median turn
counts. Without: a flag of an object of the core that only this benchmark sets, so that it is the same build.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import penstock
from bench.scenarios.measuring import Stopwatch, bodies, check, scratch
from bench.systems.penstock_queue import RECORD_EXTRA_BYTES
from penstock.store.outcomes import ROWS_MAX

TURN = 100  # messages: a few tenths of a millisecond, seldom interrupted
OURS = "Penstock"
HISTORY_BYTES = 64 << 20


def with_statistics(below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second that are put, got and acknowledged one by one."""
    items = bodies(TURN, body_bytes)
    seconds: dict[str, list[float]] = {OURS: [], "no statistics": []}
    with scratch(below) as where:
        data_bytes = 1000 * (body_bytes + RECORD_EXTRA_BYTES)
        with penstock.create(where / "queue", slots=1000, data_bytes=data_bytes, durability="relaxed") as q:
            measuring = q._mine().kernel.measuring
            turns = 2 * count // TURN
            for turn in range(turns + 1):
                for name in list(seconds) if turn % 2 else reversed(seconds):
                    measuring.keeping = name == OURS
                    with Stopwatch() as watch:
                        _each(q, items)
                    if turn:  # the first warms up
                        seconds[name].append(watch.seconds)
            stats = q.stats()
            check(stats.waiting + stats.pending == 0, "messages are left over")
            check(stats.service_time.count == (turns + 1) * TURN == stats.acks // 2, "not half of them were measured")
    return {name: TURN / statistics.median(each) for name, each in seconds.items()}


def with_history(below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second that are got and acknowledged one by one. A turn is as many as a block of history has, so that
    what writes it is in each."""
    items = bodies(ROWS_MAX, body_bytes)
    seconds: dict[str, list[float]] = {OURS: [], "no history": []}
    turns = max(count // ROWS_MAX, 1) * 4
    with scratch(below) as where:
        data_bytes = 2 * ROWS_MAX * (body_bytes + RECORD_EXTRA_BYTES)
        sizes = {"slots": 2 * ROWS_MAX, "data_bytes": data_bytes, "history_bytes": HISTORY_BYTES}
        with penstock.create(where / "queue", durability="relaxed", **sizes) as q:
            outcomes = q._mine().outcomes
            assert outcomes is not None
            for turn in range(turns + 1):
                for name in list(seconds) if turn % 2 else reversed(seconds):
                    outcomes.keeping = name == OURS
                    q.put_many(items, type="order", key="example.com")
                    with Stopwatch() as watch:
                        for _ in items:
                            q.get().ack()
                    if turn:  # the first warms up
                        seconds[name].append(watch.seconds)
        kept = sum(1 for _ in penstock.outcomes(where / "queue"))
        check(kept == (turns + 1) * ROWS_MAX, f"{kept} outcomes instead of {(turns + 1) * ROWS_MAX}")
    return {name: ROWS_MAX / statistics.median(each) for name, each in seconds.items()}


def _each(q: penstock.TimeQueue, items: list[bytes]) -> None:
    for body in items:
        q.put(body)
    for _ in items:
        q.get().ack()
