"""Puts that are on disk when they are confirmed: one producer (l), many producer processes (m), batches (n).

A sync takes as long as the disk happens to take, and that drifts. So in l the systems take turns of a few puts each, in
one process; the others are measured one after the other in each round. Nothing is received: what is in the system at
the end is compared with what was put.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from ctypes import c_longlong
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scenarios.measuring import Stopwatch, bodies, check, chunks, made, number_of, numbered, settle
from bench.scenarios.processes import TIMEOUT_S, Worker, ended, processes
from bench.systems.interface import Client, System

WARM_UP = 20
TURN = 10  # puts of one system before the next has its turn
BATCH = 1000
PUTS_A_SECOND_MAX = 100_000  # room for what many producers put: several times what was seen
START_S = 0.05  # from "all are ready" to the first put, so that all begin at the same time
NUMBERS_EACH = 1 << 32  # each producer numbers its bodies in a range of its own


def latency(systems: list[System], below: Path, *, turns: int, body_bytes: int, first: int) -> dict[str, list[float]]:
    """Seconds of each single put, by the system's name. ``first`` is the one that begins."""
    count = WARM_UP + turns * TURN
    items = bodies(count, body_bytes)
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    with contextlib.ExitStack() as stack:
        clients = [(system, stack.enter_context(_opened(system, below, count, body_bytes))) for system in systems]
        for _, client in clients:
            for body in items[:WARM_UP]:
                client.put(body)
        gc.collect()
        for turn, some in enumerate(chunks(items[WARM_UP:], TURN)):
            start = (first + turn) % len(clients)
            for system, client in clients[start:] + clients[:start]:
                seconds[system.name] += _timed(client, some)
        for system, client in clients:
            _check(system, client, list(range(count)))
    return seconds


def _timed(client: Client, items: list[bytes]) -> list[float]:
    put, clock = client.put, time.perf_counter
    found = []
    for body in items:
        start = clock()
        put(body)
        found.append(clock() - start)
    return found


def batches(system: System, below: Path, *, count: int, body_bytes: int) -> float:
    """Messages a second, in batches of 1000 that are each on disk before the next begins."""
    with _opened(system, below, BATCH + count, body_bytes) as client:
        warm, *packed = [client.packed(some) for some in chunks(bodies(BATCH + count, body_bytes), BATCH)]
        client.put_many(warm)
        with Stopwatch() as watch:
            for some in packed:
                client.put_many(some)
        _check(system, client, list(range(BATCH + count)))
    return count / watch.seconds


@dataclass(frozen=True)
class Shared:
    """What many producers reached together."""

    rate: float
    least_share: float  # the unluckiest one's puts to the luckiest one's
    puts_a_sync: float | None  # if the system tells


def many(system: System, below: Path, *, producers: int, seconds: float, body_bytes: int) -> Shared:
    """``producers`` processes put one by one for so many seconds; only what was confirmed in that time counts."""
    start = processes.Barrier(producers + 1)
    go_ns = processes.RawValue(c_longlong)
    messages = int(PUTS_A_SECOND_MAX * seconds) + producers
    with made(system, below, messages=messages, body_bytes=body_bytes):
        client = system.open(role="producer", index=producers)
        workers: list[Worker] = []
        with contextlib.closing(client), ended(workers):
            for index in range(producers):
                workers.append(Worker(_produce, system, index, seconds, body_bytes, start, go_ns))
            start.wait(TIMEOUT_S)
            go_ns.value = time.monotonic_ns() + int(START_S * 1e9)
            start.wait(TIMEOUT_S)
            counts = [worker.value() for worker in workers]
            _check_many(system, client, [put for _, put in counts])
            puts_a_sync = client.puts_a_sync()
    in_time = [counted for counted, _ in counts]
    return Shared(sum(in_time) / seconds, min(in_time) / max(max(in_time), 1), puts_a_sync)


def _produce(system: System, index: int, seconds: float, body_bytes: int, start: Any, go_ns: Any) -> tuple[int, int]:
    """How many puts were confirmed in time, and how many there were."""
    client = system.open(role="producer", index=index)
    number = index * NUMBERS_EACH
    filler = numbered(0, body_bytes)[8:]
    start.wait(TIMEOUT_S)
    start.wait(TIMEOUT_S)
    put, clock_ns = client.put, time.monotonic_ns
    end_ns = go_ns.value + int(seconds * 1e9)
    time.sleep(max(go_ns.value - clock_ns(), 0) / 1e9)
    counted = 0
    while clock_ns() < end_ns:
        put(number.to_bytes(8, "big") + filler)
        number += 1
        counted += clock_ns() < end_ns
    client.close()
    return counted, number - index * NUMBERS_EACH


@contextlib.contextmanager
def _opened(system: System, below: Path, messages: int, body_bytes: int) -> Iterator[Client]:
    with made(system, below, messages=messages, body_bytes=body_bytes) as ready, contextlib.closing(ready.open()) as it:
        settle(below)
        yield it


def _check(system: System, client: Client, expected: list[int]) -> None:
    found = [number_of(body) for _, body in client.waiting()]
    check(found == expected, f"{system.name}: what is there is not what was put, in its order")


def _check_many(system: System, client: Client, put: list[int]) -> None:
    """Everything exactly once; in which order they came is their affair."""
    expected = {index * NUMBERS_EACH + at for index, count in enumerate(put) for at in range(count)}
    found = [number_of(body) for _, body in client.waiting()]
    check(len(found) == len(expected), f"{system.name}: {len(found)} messages are there, {len(expected)} were put")
    check(set(found) == expected, f"{system.name}: what is there is not what was put")
