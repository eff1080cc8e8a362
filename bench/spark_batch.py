"""Spark reading and writing a queue in batches, against the parquet file source on the same rows.

Run as ``python -m bench.spark_batch [messages] [body_bytes]``. Makes queues in a temporary directory, reads them to a
sink that does nothing in turns with parquet files of the same rows, and prints rows a second and their ratios. Bodies
are random bytes; the queues are relaxed. Besides: how long the lock is held for a snapshot, what it costs to look
through it, and what gathering alone takes.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import penstock
from penstock.spark import session, snapshot
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store.files import private_memory
from penstock.timequeue.copying import take_picture

ROUNDS = 5
BATCH = 1000


def build(path: Path, messages: int, size_bytes: Callable[[random.Random], int]) -> penstock.TimeQueue:
    rng = random.Random(1)
    sizes = [size_bytes(rng) for _ in range(messages)]
    data_bytes = -(-sum(map(L.units, sizes)) * L.UNIT_BYTES // L.PAGE_BYTES) * L.PAGE_BYTES
    queue = penstock.create(path, slots=messages, data_bytes=data_bytes, durability="relaxed")
    for start in range(0, messages, BATCH):
        queue.put_many([rng.randbytes(size) for size in sizes[start : start + BATCH]])
    return queue


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def planning(queue: penstock.TimeQueue) -> None:
    client = queue._mine()
    kernel = client.files.kernel
    image = private_memory(len(kernel), touched=True)
    held = [timed(lambda: client.turn(image.__setitem__, slice(0, len(kernel)), kernel)) for _ in range(ROUNDS)]
    picture = take_picture(client)
    look = [timed(lambda: snapshot.references(picture, state="all", now_us=0, conditions=[])) for _ in range(ROUNDS)]
    references = snapshot.references(picture, state="all", now_us=0, conditions=[])
    flat = references.reshape(-1)
    gather = G.Gather(client.files.mappings(), client.signature)
    collect = [timed(lambda: gather_all(gather, flat, len(references))) for _ in range(ROUNDS)]
    gather.close()
    print(
        f"  lock held {median(held) * 1e3:.0f} ms, references {median(look) * 1e3:.0f} ms, "
        f"gathering {len(references) / median(collect) / 1e6:.1f}M rows/s"
    )


def gather_all(gather: G.Gather, flat: np.ndarray[Any, Any], count: int) -> None:
    for start in range(0, count, 10_000):
        gather.collect(flat, start, min(10_000, count - start), True)


def reading(spark: Any, queue: penstock.TimeQueue, parquet: Path, messages: int) -> None:
    def load() -> Any:
        return spark.read.format("penstock").load(str(queue.path))

    load().write.mode("overwrite").parquet(str(parquet))
    ours, theirs, narrow = [], [], []
    for _ in range(ROUNDS):
        ours.append(timed(lambda: noop(load())))
        theirs.append(timed(lambda: noop(spark.read.parquet(str(parquet)))))
        light = spark.read.format("penstock").schema("id string, number long, deliver_at timestamp")
        narrow.append(timed(lambda: noop(light.load(str(queue.path)))))  # noqa: B023
    ratio = median(b / a for a, b in zip(ours, theirs, strict=True))
    print(
        f"  queue {messages / median(ours) / 1e6:.2f}M rows/s, parquet {messages / median(theirs) / 1e6:.2f}M rows/s, "
        f"ratio {ratio:.2f}; id, number and deliver_at only {messages / median(narrow) / 1e6:.2f}M rows/s"
    )


def writing(spark: Any, source: Path, folder: Path, messages: int, body_bytes: int) -> None:
    frame = spark.read.parquet(str(source)).select("body").limit(messages)
    data_bytes = -(-messages * L.units(body_bytes) * L.UNIT_BYTES // L.PAGE_BYTES) * L.PAGE_BYTES
    target = penstock.create(folder / "target", slots=messages, data_bytes=data_bytes, durability="relaxed")
    took = []
    for i in range(ROUNDS):
        took.append(timed(lambda: frame.write.format("penstock").mode("append").save(str(target.path))))
        if target.purge() != messages:
            raise SystemExit(f"round {i}: not all of the messages were in the queue")
    print(f"  parquet to queue {messages / median(took) / 1e3:.0f}k rows/s")
    target.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("messages", nargs="?", type=int, default=1_000_000)
    parser.add_argument("body_bytes", nargs="?", type=int, default=200)
    arguments = parser.parse_args()
    messages, body_bytes = arguments.messages, arguments.body_bytes
    print(f"{messages} messages, relaxed; compiled: {penstock.compiled}; load {os.getloadavg()[0]:.1f}")
    spark = session(master="local[2]", **{"spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = {
            "equal": (lambda rng: body_bytes, f"{body_bytes} B"),
            "mixed": (lambda rng: rng.randrange(2 * body_bytes), f"0 to {2 * body_bytes} B"),
        }
        for label, (size_bytes, words) in kinds.items():
            print(f"bodies of {words}:", flush=True)
            with build(folder / label, messages, size_bytes) as queue:
                planning(queue)
                reading(spark, queue, folder / f"{label}.parquet", messages)
        writing(spark, folder / "equal.parquet", folder, min(messages, 200_000), body_bytes)
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
