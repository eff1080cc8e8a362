"""How soon a blocked receiver in another process has its message: a timed one (h), or one put just now (i)."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from bench.scenarios.measuring import NUMBER_BYTES, check, made, number_of, numbered
from bench.scenarios.processes import TIMEOUT_S, Worker, ended, processes
from bench.systems.interface import System

FIRST_S = 0.1  # until the first timed message is due
GAP_S = 0.005  # between two of them, on average: the receiver is asleep when each becomes due
PAUSE_S = (0.002, 0.004)  # before each put: long enough that the receiver is asleep, and not in step with anything


def lateness(system: System, below: Path, *, count: int, body_bytes: int) -> dict[str, list[float]]:
    """Seconds from the delivery time to the receiver, each of ``count`` messages."""
    ready = processes.Event()
    chance = random.Random(8)
    with made(system, below, messages=count + 1, body_bytes=body_bytes):
        workers = [Worker(_receive_timed, system, count, ready)]
        with ended(workers):
            check(ready.wait(TIMEOUT_S), "the receiver did not start")
            client = system.open(role="producer")
            start_us = time.time_ns() // 1000 + int(FIRST_S * 1e6)
            times = [start_us + int(chance.uniform(0, count * GAP_S) * 1e6) for _ in range(count)]
            for number, deliver_us in enumerate(times):
                client.put_at(numbered(number, body_bytes), deliver_us)
            received = workers[0].value()
            check(client.left() == 0, f"{system.name}: timed messages are left over")
            client.close()
    check(sorted(number for number, _ in received) == list(range(count)), f"{system.name}: timed messages were lost")
    late = [(arrived_ns / 1000 - times[number]) / 1e6 for number, arrived_ns in received]
    check(min(late) >= 0, f"{system.name}: a message came before its time")
    return {"h": late}


def _receive_timed(system: System, count: int, ready: Any) -> list[tuple[int, int]]:
    client = system.open(role="consumer")
    ready.set()
    received = []
    for _ in range(count):
        token, body = client.get()
        arrived_ns = time.time_ns()
        client.ack(token)
        received.append((number_of(body), arrived_ns))
    client.close()
    return received


def wake_up(system: System, below: Path, *, count: int, body_bytes: int) -> dict[str, list[float]]:
    """Seconds from just before the put to the receiver, each of ``count`` messages."""
    ready = processes.Event()
    chance = random.Random(9)
    with made(system, below, messages=count + 1, body_bytes=body_bytes):
        workers = [Worker(_receive, system, count, ready)]
        with ended(workers):
            check(ready.wait(TIMEOUT_S), "the receiver did not start")
            client = system.open(role="producer")
            filler = bytes(body_bytes - NUMBER_BYTES)
            sent = []
            for _ in range(count):
                time.sleep(chance.uniform(*PAUSE_S))
                sent_ns = time.monotonic_ns()
                client.put(sent_ns.to_bytes(NUMBER_BYTES, "big") + filler)
                sent.append(sent_ns)
            received = workers[0].value()
            client.close()
    check([sent_ns for sent_ns, _ in received] == sent, f"{system.name}: messages were lost or came out of order")
    return {"i": [(arrived_ns - sent_ns) / 1e9 for sent_ns, arrived_ns in received]}


def _receive(system: System, count: int, ready: Any) -> list[tuple[int, int]]:
    client = system.open(role="consumer")
    ready.set()
    received = []
    for _ in range(count):
        token, body = client.get()
        arrived_ns = time.monotonic_ns()
        client.ack(token)
        received.append((number_of(body), arrived_ns))
    client.close()
    return received
