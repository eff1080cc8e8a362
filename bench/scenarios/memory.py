"""How much memory of its own a process needs that streams far more than fits through a small queue (k)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import penstock
from bench.scenarios.measuring import bodies, check, number_of, scratch
from bench.scenarios.processes import Worker, ended

QUEUE_BYTES = 256 << 20
BODY_BYTES = 4096
BATCH = 100
SLOTS = 2 * QUEUE_BYTES // BODY_BYTES  # so that the data is full first
TIMEOUT_S = 3600.0


def stream(below: Path, *, stream_bytes: int) -> dict[str, Any]:
    """The peak of RssAnon in bytes, the bytes streamed and the seconds it took."""
    with scratch(below) as where:
        workers = [Worker(_stream, where / "queue", stream_bytes)]
        with ended(workers):
            return workers[0].value(TIMEOUT_S)


def _stream(path: Path, stream_bytes: int) -> dict[str, Any]:
    """Fills the queue to the brim, empties half of it, and so on until everything went through."""
    queue = penstock.create(path, slots=SLOTS, data_bytes=QUEUE_BYTES, durability="relaxed")
    batches = max(stream_bytes // (BODY_BYTES * BATCH), 1)
    put = got = fills = 0
    peak_bytes = before_bytes = anonymous_bytes()
    start = time.perf_counter()
    while got < batches:
        try:
            while put < batches:
                queue.put_many(bodies(BATCH, BODY_BYTES, first=put * BATCH))
                put += 1
        except penstock.QueueFull:
            fills += 1
        peak_bytes = max(peak_bytes, anonymous_bytes())
        for _ in range((put - got + 1) // 2):
            messages = queue.get_many(BATCH)
            numbers = [number_of(message.body) for message in messages]
            check(numbers == list(range(got * BATCH, (got + 1) * BATCH)), "Penstock: streamed messages are wrong")
            queue.ack_many(messages)
            got += 1
        peak_bytes = max(peak_bytes, anonymous_bytes())
    seconds = time.perf_counter() - start
    check(queue.stats().waiting + queue.stats().pending == 0, "Penstock: messages are left over")
    queue.close()
    return {
        "peak_bytes": peak_bytes,
        "before_bytes": before_bytes,
        "streamed_bytes": batches * BATCH * BODY_BYTES,
        "times_full": fills,
        "seconds": seconds,
    }


def anonymous_bytes() -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("this kernel does not tell RssAnon")
