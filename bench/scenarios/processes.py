"""Two producer and two consumer processes, end to end: message by message (e) and in batches (f).

The clock runs from the first put to the last ack, by CLOCK_MONOTONIC, which all processes share. Consumers count in
shared memory; when all has arrived the parent puts a last message for each of them, so that nobody needs a timeout.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from ctypes import c_longlong
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bench.scenarios.measuring import NUMBER_BYTES, bodies, check, chunks, made, numbered
from bench.systems.interface import System

PRODUCERS = 2
CONSUMERS = 2
BATCH = 100
TIMEOUT_S = 180.0  # far above any system's time: then something is lost
LOOK_S = 0.005
SETTLE_S = 0.05  # between opening and the start: connections are made in the background
STOP = (1 << 64) - 1

# A fork of a process with nothing open: cheap to start, and inherits nobody's queue.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["bench.scenarios.preload"])


class Worker:
    """A process that runs ``function(*arguments)`` and sends back what it returns."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.result, theirs = processes.Pipe(duplex=False)
        self.process = processes.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def value(self, timeout_s: float = TIMEOUT_S) -> Any:
        check(self.result.poll(timeout_s), "a worker process did not finish: a message was lost")
        try:
            failed, value = self.result.recv()
        except EOFError:
            failed, value = True, "it died"
        check(not failed, f"a worker process failed: {value}")
        self.process.join()
        return value

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _run(result: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's affair, who then ends us
    try:
        result.send((False, function(*arguments)))
    except BaseException:
        result.send((True, traceback.format_exc()))


@contextlib.contextmanager
def ended(workers: list[Worker]) -> Iterator[None]:
    """Whatever happens, none of them is left running."""
    try:
        yield
    finally:
        for worker in workers:
            worker.end()


def end_to_end(system: System, below: Path, *, count: int, body_bytes: int, batch: bool) -> dict[str, float]:
    """Messages a second from the first put to the last ack."""
    share = count // PRODUCERS
    received = processes.RawArray(c_longlong, CONSUMERS)
    start = processes.Barrier(PRODUCERS + CONSUMERS)
    arrived = processes.Event()
    with made(system, below, messages=count + CONSUMERS, body_bytes=body_bytes, consumers=CONSUMERS):
        consumers: list[Worker] = []
        producers: list[Worker] = []
        with ended(consumers), ended(producers):
            for index in range(CONSUMERS):
                consumers.append(Worker(_consume, system, index, received, start, batch))
            for index in range(PRODUCERS):
                producers.append(Worker(_produce, system, index, share, body_bytes, start, arrived, batch))
            _wait_for(system, received, share * PRODUCERS, consumers + producers)
            arrived.set()
            started = [producer.value() for producer in producers]
            results = _stop(system, consumers, body_bytes, batch)
        _check(system, [seen for _, seen, _ in results], share)
        check(all(size == body_bytes for _, _, size in results), f"{system.name}: bodies changed their size")
        if system.durable:
            client = system.open()
            check(client.left() == 0, f"{system.name}: {client.left()} messages are left over")
            client.close()
    seconds = (max(end_ns for end_ns, _, _ in results) - min(started)) / 1e9
    return {"f" if batch else "e": share * PRODUCERS / seconds}


def _produce(system: System, index: int, count: int, body_bytes: int, start: Any, arrived: Any, batch: bool) -> int:
    """When the first put began."""
    items = bodies(count, body_bytes, first=index * count)
    batches = chunks(items, BATCH)
    start.wait(TIMEOUT_S)  # the consumers are there: a producer of ZeroMQ that finds none tries again only later
    client = system.open(role="producer", index=index)
    time.sleep(SETTLE_S)
    start.wait(TIMEOUT_S)
    start_ns = time.monotonic_ns()
    if batch:
        for some in batches:
            client.put_many(some)
    else:
        put = client.put
        for body in items:
            put(body)
    arrived.wait(TIMEOUT_S)  # ZeroMQ loses what a busy consumer has not read yet when the producer closes
    client.close()
    return start_ns


def _consume(system: System, index: int, received: Any, start: Any, batch: bool) -> tuple[int, bytes, int]:
    """When the last ack ended, the numbers of all that came, and their one size (or -1)."""
    client = system.open(role="consumer", index=index)
    seen: list[bytes] = []
    sizes: set[int] = set()
    stop = STOP.to_bytes(NUMBER_BYTES, "big")
    start.wait(TIMEOUT_S)
    start.wait(TIMEOUT_S)
    consume = _consume_batches if batch else _consume_each
    end_ns = consume(client, seen, sizes, stop, received, index)
    client.close()
    return end_ns, b"".join(seen), sizes.pop() if len(sizes) == 1 else -1


def _consume_each(client: Any, seen: list[bytes], sizes: set[int], stop: bytes, received: Any, index: int) -> int:
    get, ack = client.get, client.ack
    end_ns = 0
    while True:
        token, body = get()
        ack(token)
        number = body[:NUMBER_BYTES]
        sizes.add(len(body))
        if number == stop:
            return end_ns
        end_ns = time.monotonic_ns()
        seen.append(number)
        received[index] = len(seen)


def _consume_batches(client: Any, seen: list[bytes], sizes: set[int], stop: bytes, received: Any, index: int) -> int:
    end_ns = 0
    while True:
        tokens, found = client.get_many(BATCH)
        client.ack_many(tokens)
        numbers = [body[:NUMBER_BYTES] for body in found]
        sizes.update(map(len, found))
        if stop in numbers:
            return end_ns
        end_ns = time.monotonic_ns()
        seen += numbers
        received[index] = len(seen)


def _wait_for(system: System, received: Any, count: int, workers: list[Worker]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while sum(received) < count:
        for worker in workers:
            if worker.result.poll(0):
                worker.value()  # it failed: raises with its reason
        check(time.monotonic() < deadline, f"{system.name}: only {sum(received)} of {count} messages arrived")
        time.sleep(LOOK_S)


def _stop(system: System, consumers: list[Worker], body_bytes: int, batch: bool) -> list[Any]:
    """One last message for each consumer, one after the other: a batch could take two of them."""
    client = system.open(role="producer", index=PRODUCERS)
    last = numbered(STOP, body_bytes)
    waiting = {consumer.result: consumer for consumer in consumers}
    results = []
    while waiting:
        if batch:
            client.put_many([last])
        else:
            client.put(last)
        done = wait(list(waiting), TIMEOUT_S)
        check(bool(done), "a consumer did not get its last message")
        results += [waiting.pop(result).value() for result in done]
    client.close()
    return results


def _check(system: System, seen: list[bytes], share: int) -> None:
    """Everything exactly once."""
    joined = b"".join(seen)
    numbers = [joined[at : at + NUMBER_BYTES] for at in range(0, len(joined), NUMBER_BYTES)]
    count = share * PRODUCERS
    expected = {number.to_bytes(NUMBER_BYTES, "big") for number in range(count)}
    check(len(numbers) == count, f"{system.name}: {len(numbers)} deliveries of {count} messages")
    check(set(numbers) == expected, f"{system.name}: messages were lost or delivered twice")
