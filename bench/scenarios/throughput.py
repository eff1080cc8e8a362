"""One process fills a queue and empties it again: message by message (a, c) and in batches (b, d)."""

from __future__ import annotations

from pathlib import Path

from bench.scenarios.measuring import Stopwatch, bodies, check, chunks, made
from bench.systems.interface import Client, System

WARM_UP = 1000
BATCH = 1000


def single(system: System, below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second: "a" put, "c" get and ack."""
    warm, items = _bodies(count, body_bytes)
    with made(system, below, messages=WARM_UP + count, body_bytes=body_bytes):
        client = system.open()
        try:
            _put_each(client, warm)
            _get_each(client, warm)
            with Stopwatch() as putting:
                _put_each(client, items)
            with Stopwatch() as getting:
                wrong = _get_each(client, items)
            _check(system, client, wrong)
        finally:
            client.close()
    return {"a": count / putting.seconds, "c": count / getting.seconds}


def batched(system: System, below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second: "b" put_many, "d" get_many and ack_many."""
    warm, items = _bodies(count, body_bytes)
    batches = chunks(items, BATCH)
    receives = "d" in system.scenarios
    with made(system, below, messages=WARM_UP + count, body_bytes=body_bytes):
        client = system.open()
        try:
            client.put_many(warm)
            if receives:
                _get_batches(client, [warm])
            else:
                _get_each(client, warm)
            with Stopwatch() as putting:
                for batch in batches:
                    client.put_many(batch)
            rates = {"b": count / putting.seconds}
            if receives:
                with Stopwatch() as getting:
                    wrong = _get_batches(client, batches)
                rates["d"] = count / getting.seconds
            else:
                wrong = _get_each(client, items)
            _check(system, client, wrong)
        finally:
            client.close()
    return rates


def _bodies(count: int, body_bytes: int) -> tuple[list[bytes], list[bytes]]:
    return bodies(WARM_UP, body_bytes), bodies(count, body_bytes, first=WARM_UP)


def _put_each(client: Client, items: list[bytes]) -> None:
    put = client.put
    for body in items:
        put(body)


def _get_each(client: Client, items: list[bytes]) -> int:
    """How many were not the expected one."""
    get, ack = client.get, client.ack
    wrong = 0
    for expected in items:
        token, body = get()
        wrong += body != expected
        ack(token)
    return wrong


def _get_batches(client: Client, batches: list[list[bytes]]) -> int:
    wrong = 0
    for expected in batches:
        tokens, found = client.get_many(BATCH)
        wrong += found != expected
        client.ack_many(tokens)
    return wrong


def _check(system: System, client: Client, wrong: int) -> None:
    check(wrong == 0, f"{system.name}: {wrong} deliveries were not what was put, in its order")
    check(client.left() == 0, f"{system.name}: {client.left()} messages are left over")
