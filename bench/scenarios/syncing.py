"""The leader scheme and the synchronization component side by side (7): producer processes that put one by one, or in
batches, and how long puts of coroutines hold their event loop.

Both ways take their turns in each round, on queues of their own. What was put is compared with what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Coroutine, Generator, Iterator
from ctypes import c_longlong
from pathlib import Path
from typing import Any

import penstock
from bench.scenarios.durable import NUMBERS_EACH, START_S
from bench.scenarios.measuring import check, number_of, numbered, scratch
from bench.scenarios.processes import TIMEOUT_S, Worker, ended, processes
from bench.systems.penstock_queue import RECORD_EXTRA_BYTES

PRODUCERS = (1, 4, 16, 64)
BATCH = 100
BATCHED_S_MAX = 0.5  # of batches, since so much fits into the room that is made for them
MESSAGES_A_SECOND_MAX = {1: 100_000, BATCH: 2_500_000}  # room for what is put: several times what was seen
SERVING_S = 10.0
COROUTINES = 20

LEADER = "leader"
SYNCER = "syncer"
WAYS: dict[str, list[str] | None] = {LEADER: None, SYNCER: []}
# The options' effect, with many producers.
OPTIONS = (
    ["--gather", "0", "--idle", "0"],
    ["--gather", "1ms", "--idle", "1ms"],
    ["--gather", "5ms", "--idle", "2ms"],
    ["--batch-requests", "8"],
)


@contextlib.contextmanager
def served(path: Path, options: list[str] | None) -> Iterator[None]:
    """A synchronization component serves the queue; None: none does."""
    if options is None:
        yield
        return
    command = [sys.executable, "-m", "penstock", "syncer", str(path), "--json", *options]
    component = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert component.stdout is not None
        check(b"serving" in component.stdout.readline(), "the synchronization component did not start")
        yield
    finally:
        component.terminate()
        component.wait(SERVING_S)


def rate(
    below: Path, *, producers: int, batch: int, seconds: float, body_bytes: int, options: list[str] | None
) -> float:
    """Messages a second that were confirmed in that time."""
    room = int(MESSAGES_A_SECOND_MAX[batch] * seconds) + producers * batch
    with scratch(below) as where:
        path = where / "queue"
        penstock.create(path, slots=room, data_bytes=room * (body_bytes + RECORD_EXTRA_BYTES)).close()
        with served(path, options):
            counts = _counts(path, producers, batch, seconds, body_bytes)
        _check(path, [put for _, put in counts])
    return sum(in_time for in_time, _ in counts) / seconds


def _counts(path: Path, producers: int, batch: int, seconds: float, body_bytes: int) -> list[Any]:
    start = processes.Barrier(producers + 1)
    go_ns = processes.RawValue(c_longlong)
    workers: list[Worker] = []
    with ended(workers):
        for index in range(producers):
            workers.append(Worker(_produce, str(path), index, batch, seconds, body_bytes, start, go_ns))
        start.wait(TIMEOUT_S)
        go_ns.value = time.monotonic_ns() + int(START_S * 1e9)
        start.wait(TIMEOUT_S)
        return [worker.value() for worker in workers]


def _produce(
    path: str, index: int, batch: int, seconds: float, body_bytes: int, start: Any, go_ns: Any
) -> tuple[int, int]:
    """How many messages were confirmed in time, and how many there were."""
    queue = penstock.open(path, busy_s=60)
    number = index * NUMBERS_EACH
    filler = numbered(0, body_bytes)[8:]
    start.wait(TIMEOUT_S)
    start.wait(TIMEOUT_S)
    end_ns = go_ns.value + int(seconds * 1e9)
    time.sleep(max(go_ns.value - time.monotonic_ns(), 0) / 1e9)
    counted = 0
    while time.monotonic_ns() < end_ns:
        if batch == 1:
            queue.put(number.to_bytes(8, "big") + filler)
        else:
            queue.put_many([(number + i).to_bytes(8, "big") + filler for i in range(batch)])
        number += batch
        counted += batch if time.monotonic_ns() < end_ns else 0
    queue.close()
    return counted, number - index * NUMBERS_EACH


def _check(path: Path, put: list[int]) -> None:
    """Everything exactly once."""
    expected = {index * NUMBERS_EACH + at for index, count in enumerate(put) for at in range(count)}
    with penstock.open(path) as queue:
        found = [number_of(message.data) for message in queue.browse()]
    check(len(found) == len(expected) and set(found) == expected, "what is there is not what was put")


def pauses(below: Path, *, seconds: float, body_bytes: int, options: list[str] | None) -> list[float]:
    """How long puts of coroutines held their event loop, each time that they had it."""
    room = int(MESSAGES_A_SECOND_MAX[1] * seconds)
    with scratch(below) as where:
        path = where / "queue"
        data_bytes = room * (body_bytes + RECORD_EXTRA_BYTES)
        with penstock.create(path, slots=room, data_bytes=data_bytes) as queue, served(path, options):
            return asyncio.run(_pauses(queue, seconds, numbered(0, body_bytes)))


class _Timed:
    """Awaits something, and notes how long each step of it takes, from one wait to the next."""

    def __init__(self, awaited: Coroutine[Any, Any, Any], found: list[float]) -> None:
        self._awaited = awaited
        self._found = found

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._awaited.__await__()
        while True:
            start_s = time.perf_counter()
            try:
                waits_for = steps.send(None)
            except StopIteration:
                return
            finally:
                self._found.append(time.perf_counter() - start_s)
            yield waits_for


async def _pauses(queue: penstock.TimeQueue, seconds: float, body: bytes) -> list[float]:
    end_s = time.monotonic() + seconds
    found: list[float] = []

    async def put() -> None:
        while time.monotonic() < end_s:
            await _Timed(queue.aput(body), found)

    await asyncio.gather(*(put() for _ in range(COROUTINES)))
    return found
