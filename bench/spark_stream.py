"""Spark reading a queue as a stream, against the parquet and JSON file sources on the same rows.

Run as ``python -m bench.spark_stream [rows a batch] [body_bytes]``. Each stream goes to a sink that does nothing, in
turns with the others, and what is printed is the median batch: rows a second, and where the time of a batch of ours
went, as Spark's progress tells it. ``latestOffset`` acknowledges the batch before and claims the next one. Bodies are
random bytes; the queue is relaxed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import penstock
from bench.spark_batch import build
from penstock.spark import session

BATCHES = 4  # the first of each stream is left out
ROUNDS = 2


def batches(frame: Any, checkpoint: Path) -> list[dict[str, Any]]:
    """The progress of each batch with rows, without the first."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    running = query.start()
    running.awaitTermination()
    return [progress for progress in running.recentProgress if progress["numInputRows"]][1:]


def rate(found: list[dict[str, Any]]) -> float:
    return median(one["numInputRows"] / one["durationMs"]["triggerExecution"] * 1e3 for one in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("rows", nargs="?", type=int, default=500_000)
    parser.add_argument("body_bytes", nargs="?", type=int, default=200)
    arguments = parser.parse_args()
    rows, body_bytes = arguments.rows, arguments.body_bytes
    print(f"{rows} rows a batch, {body_bytes} B, relaxed; compiled: {penstock.compiled}; load {os.getloadavg()[0]:.1f}")
    spark = session(master="local[2]", **{"spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, list[dict[str, Any]]] = {"queue": [], "parquet": [], "json": []}
        for turn in range(ROUNDS):
            with build(folder / f"queue{turn}", rows * BATCHES, lambda rng: body_bytes) as queue:
                queue.sync_index()  # what was put is not part of the first claim's sync
                if turn == 0:
                    whole = spark.read.format("penstock").load(queue.name).cache()
                    for kind in ("parquet", "json"):
                        for batch in range(BATCHES):
                            part = whole.filter(f"number > {batch * rows} and number <= {(batch + 1) * rows}")
                            part.coalesce(2).write.mode("append").format(kind).save(str(folder / kind))
                    whole.unpersist()
                ours = spark.readStream.format("penstock").option("receiver", "bench").option("maxRows", rows)
                found["queue"] += batches(ours.load(queue.name), folder / f"checkpoint-{turn}")
            for kind in ("parquet", "json"):
                files = spark.readStream.format(kind).schema(whole.schema).option("maxFilesPerTrigger", 2)
                found[kind] += batches(files.load(str(folder / kind)), folder / f"checkpoint-{kind}-{turn}")
        for kind, ones in found.items():
            print(f"  {kind}: {rate(ones) / 1e6:.2f}M rows/s, {rate(found['queue']) / rate(ones):.2f} x")
        for part in ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets"):
            print(f"    {part}: {median(one['durationMs'].get(part, 0) for one in found['queue']):.0f} ms")
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
