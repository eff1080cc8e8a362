"""A consumer whose process is killed: what it had not acknowledged comes back, prefetched or in hand."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from tests.fault.processes import Child


def _consume(say: Callable[[Any], None], path: Path, *, until: int) -> None:
    with penstock.open(path) as q, q.consumer(prefetch=10) as consumer:
        for message in consumer:
            if message.body == until:
                consumer.flush()
                say(q.stats().acks)
                signal.pause()


def test_what_a_killed_consumer_held_comes_back_in_order(path: Path, start: Callable[..., Child]) -> None:
    with penstock.create(path, slots=64, data_bytes=1 << 16, durability="relaxed") as q:
        q.put_many(range(30))
        child = start(_consume_13, path)
        assert child.hear() == 13
        os.kill(child.pid, signal.SIGKILL)
        child.kill()
        with q.consumer(prefetch=5, wait=0) as consumer:
            found = [(message.body, message.attempts) for message in consumer]
        assert found == [(n, 2 if n < 20 else 1) for n in range(13, 30)]
        assert q.stats().acks == 30


def _consume_13(say: Callable[[Any], None], path: Path) -> None:
    _consume(say, path, until=13)


def test_an_event_loop_that_is_killed_gives_everything_back(path: Path, start: Callable[..., Child]) -> None:
    with penstock.create(path, slots=64, data_bytes=1 << 16, durability="relaxed") as q:
        child = start(_wait_in_many, path)
        assert child.hear() == "waiting"
        q.put_many(range(20))
        assert child.hear() == "all have one"
        child.kill()
        assert sorted(message.body for message in q.get_many(30, wait=5)) == list(range(20))


def _wait_in_many(say: Callable[[Any], None], path: Path) -> None:
    import asyncio

    async def run() -> None:
        q = penstock.open(path)
        waiting = [asyncio.create_task(q.aget()) for _ in range(20)]
        await asyncio.sleep(0.05)
        say("waiting")
        await asyncio.gather(*waiting)
        say("all have one")
        await asyncio.sleep(60)

    asyncio.run(run())
