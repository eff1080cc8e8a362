"""A two-way round trip between two processes, against one wake-up of a blocked receiver (5).

Both take turns, so that whatever else the machine does hits both. The queues are relaxed, and each receiver is asleep
when its message comes.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import penstock
from bench.results import OURS
from bench.scenarios.measuring import NUMBER_BYTES, check
from bench.scenarios.processes import TIMEOUT_S, Worker, ended, processes
from bench.scenarios.timing import PAUSE_S

BODY_BYTES = 200
WAKE_UP = "one wake-up"
SIZES: dict[str, Any] = {"slots": 1000, "data_bytes": 1 << 20, "durability": "relaxed"}


def round_trips(below: Path, *, count: int) -> dict[str, list[float]]:
    """Seconds, each of ``count`` turns: from the question to its reply, and from a put to its receiver."""
    asked, told = below / "asked", below / "told"
    ready = [processes.Event(), processes.Event()]
    chance = random.Random(5)
    filler = bytes(BODY_BYTES - NUMBER_BYTES)
    sent: list[int] = []
    trips: list[float] = []
    with penstock.create(asked, **SIZES) as questions, penstock.create(told, **SIZES) as messages:
        workers = [Worker(_reply, asked, count, ready[0]), Worker(_receive, told, count, ready[1])]
        with ended(workers):
            check(all(each.wait(TIMEOUT_S) for each in ready), "the receivers did not start")
            for _ in range(count):
                time.sleep(chance.uniform(*PAUSE_S))
                sent.append(time.monotonic_ns())
                messages.put(sent[-1].to_bytes(NUMBER_BYTES, "big") + filler)
                time.sleep(chance.uniform(*PAUSE_S))
                began_ns = time.monotonic_ns()
                body = began_ns.to_bytes(NUMBER_BYTES, "big") + filler
                check(questions.put(body, model="two-way", timeout=TIMEOUT_S) == body, "another question's answer")
                trips.append((time.monotonic_ns() - began_ns) / 1e9)
            arrived = workers[1].value()
            workers[0].value()
    return {OURS: trips, WAKE_UP: [(there_ns - sent_ns) / 1e9 for sent_ns, there_ns in zip(sent, arrived, strict=True)]}


def _reply(path: Path, count: int, ready: Any) -> None:
    with penstock.open(path) as queue:
        ready.set()
        for _ in range(count):
            question = queue.get()
            question.reply(question.data)


def _receive(path: Path, count: int, ready: Any) -> list[int]:
    arrived = []
    with penstock.open(path) as queue:
        ready.set()
        for _ in range(count):
            message = queue.get()
            arrived.append(time.monotonic_ns())
            message.ack()
    return arrived
