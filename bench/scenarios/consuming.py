"""What convenience costs: a consumer against batches by hand (v), coroutines against blocking calls (w).

Both of a pair run in one process on one queue, in turns, so that whatever else the machine does hits both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import penstock
from bench.scenarios.measuring import Stopwatch, bodies, check, chunks, scratch
from bench.systems.penstock_queue import RECORD_EXTRA_BYTES

PREFETCH = 100
FILL_BATCH = 1000
TURNS = 4  # of each of a pair, in a round
OURS = "Penstock"


def consumer(below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second that are got and acknowledged: by a loop over a consumer, and in batches by hand."""
    return _in_turns(below, count, body_bytes, {OURS: _loop, "batches of 100": _batches}, filled=True)


def coroutines(below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second that are put, got and acknowledged one by one."""
    return _in_turns(below, count, body_bytes, {OURS: _await_each, "blocking": _each}, filled=False)


Way = Callable[[penstock.TimeQueue, list[bytes]], int]


def _in_turns(below: Path, count: int, body_bytes: int, ways: dict[str, Way], *, filled: bool) -> dict[str, float]:
    items = bodies(count // TURNS, body_bytes)
    seconds = dict.fromkeys(ways, 0.0)
    with scratch(below) as where:
        data_bytes = (len(items) + FILL_BATCH) * (body_bytes + RECORD_EXTRA_BYTES)
        with penstock.create(
            where / "queue", slots=len(items) + FILL_BATCH, data_bytes=data_bytes, durability="relaxed"
        ) as q:
            for turn in range(TURNS + 1):
                for name, way in ways.items():
                    for batch in chunks(items, FILL_BATCH) if filled else ():
                        q.put_many(batch)
                    with Stopwatch() as watch:
                        wrong = way(q, items)
                    check(wrong == 0, f"{name}: {wrong} deliveries were not what was put, in its order")
                    check(q.stats().waiting + q.stats().pending == 0, f"{name}: messages are left over")
                    seconds[name] += watch.seconds if turn else 0.0  # the first turn warms up
    return {name: TURNS * len(items) / seconds[name] for name in ways}


def _loop(q: penstock.TimeQueue, items: list[bytes]) -> int:
    wrong = 0
    expected = iter(items)
    with q.consumer(PREFETCH, wait=0) as found:
        for message in found:
            wrong += message.body != next(expected)
    return wrong


def _batches(q: penstock.TimeQueue, items: list[bytes]) -> int:
    wrong = 0
    expected = iter(items)
    while messages := q.get_many(PREFETCH):
        for message in messages:
            wrong += message.body != next(expected)
        q.ack_many(messages)
    return wrong


def _each(q: penstock.TimeQueue, items: list[bytes]) -> int:
    wrong = 0
    for body in items:
        q.put(body)
    for body in items:
        message = q.get()
        wrong += message.body != body
        q.ack(message)
    return wrong


def _await_each(q: penstock.TimeQueue, items: list[bytes]) -> int:
    async def run() -> int:
        wrong = 0
        for body in items:
            await q.aput(body)
        for body in items:
            message = await q.aget()
            wrong += message.body != body
            await q.aack(message)
        return wrong

    return asyncio.run(run())
