"""Spark on a queue against Spark's own sources and sinks, in one session of local[2], in turns.

Streams run until what is there is done (``availableNow``); a rate is that of the median batch, without the first of a
stream, over the whole trigger as Spark's progress tells it. Bodies are random bytes, no two the same; queues are
relaxed and are filled again for every round. Needs ``penstock[spark]``; ``missing`` says what is not there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import penstock
from bench.scenarios.measuring import WrongResult
from penstock.store import layout as L

BATCHES = 3  # of a stream; the first is not counted
BATCH_BYTES_MOST = 1 << 30  # all rows of a batch fit
MEMORY_ROWS = 100_000
PUT_AT_ONCE = 1000
WARM_UPS = 3
WARM_UP_ROWS = 50_000
WARM_UP_BYTES = 100
WAIT_S = 120.0
PLANNER = "python_streaming_source_runner"

PARQUET, JSON, EQUAL = "parquet", "JSON", "equal sizes"
TO_PARQUET, RATE_SOURCE, SHALLOW = "parquet to parquet", "rate-micro-batch", "one batch waiting"

Progress = dict[str, Any]


def missing() -> str:
    """Why Spark cannot be measured here; empty if it can."""
    absent = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'penstock[spark]'" if absent else ""


class SparkRun:
    """The session and the queues and files of a run."""

    def __init__(self, folder: Path) -> None:
        from penstock.spark import session

        self._folder = folder
        self._spark = session("penstock-bench", master="local[2]", **{"spark.driver.memory": "3g"})
        self._queues: dict[str, penstock.TimeQueue] = {}
        self._rng = random.Random(1)
        self._checkpoints = 0

    @property
    def session(self) -> Any:
        return self._spark

    def close(self) -> None:
        with contextlib.suppress(Exception):  # interrupted, the connection is out of step; Java ends with us
            self._spark.stop()
        for queue in self._queues.values():
            queue.close()

    def warm_up(self, *, with_sink: bool) -> None:
        """Until Java has compiled what runs most."""
        for _ in range(WARM_UPS):
            self.streams(WARM_UP_ROWS, WARM_UP_BYTES)
            if with_sink:
                self.to_queue(WARM_UP_ROWS, WARM_UP_BYTES)

    # ------------------------------------------------------------ scenarios; each is one round

    def streams(self, rows: int, body_bytes: int) -> dict[tuple[str, str], float]:
        """p, q and r: to a sink that does nothing. {(scenario, system): value}."""
        equal = self._filled(f"equal-{body_bytes}", rows * BATCHES, lambda: body_bytes)
        files = self._written(equal, rows, body_bytes)
        mixed = self._filled(f"mixed-{body_bytes}", rows * BATCHES, lambda: self._rng.randrange(2 * body_bytes))
        turns: dict[str, Callable[[], list[Progress]]] = {
            "equal": lambda: self._drain(equal, rows),
            PARQUET: lambda: self._to_nothing(self._files("parquet", files)),
            JSON: lambda: self._to_nothing(self._files("json", files)),
            "mixed": lambda: self._drain(mixed, rows),
        }
        order = list(turns)
        self._rng.shuffle(order)
        found = {name: turns[name]() for name in order}
        rates = {name: rate(batches) for name, batches in found.items()}
        return {
            ("p", "Penstock"): rates["equal"],
            ("p", PARQUET): rates[PARQUET],
            ("p", JSON): rates[JSON],
            ("q", "Penstock"): median(share(batch, "latestOffset") for batch in found["equal"]),
            ("r", "Penstock"): rates["mixed"],
            ("r", EQUAL): rates["equal"],
        }

    def to_queue(self, rows: int, body_bytes: int) -> dict[tuple[str, str], float]:
        """s: from a queue to a queue, and from files to files."""
        source = self._filled(f"equal-{body_bytes}", rows * BATCHES, lambda: body_bytes)
        files = self._written(source, rows, body_bytes)
        target = self._queue(f"target-{body_bytes}", rows * BATCHES, body_bytes)
        columns = ("body", "type", "key", "priority", "headers")
        ours = self._run(self._claims(source, rows).select(*columns).writeStream.format("penstock"), target.name)
        moved = target.purge()
        if moved != rows * BATCHES:
            raise WrongResult(f"s: {moved} of {rows * BATCHES} messages arrived")
        written = self._folder / f"written-{self._checkpoints}"
        frame = self._files("parquet", files).select(*columns)
        theirs = self._run(frame.writeStream.format("parquet"), str(written))
        shutil.rmtree(written)
        return {("s", "Penstock"): rate(ours), ("s", TO_PARQUET): rate(theirs)}

    def single(self, turns: int) -> dict[str, list[float]]:
        """t: seconds of micro-batches of one message, to a sink that does nothing."""
        queue = self._queue("single", 1000, 200)
        ours = self._claims(queue, 1000)
        rates = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
        return {
            "Penstock": self._one_by_one(ours, turns, lambda: queue.put(self._rng.randbytes(200))),
            RATE_SOURCE: self._one_by_one(rates.load(), turns, lambda: None),
        }

    def memory(self, backlog: int) -> dict[str, float]:
        """u: the most anonymous memory of the process that plans the batches, in bytes."""
        found = {}
        for name, waiting in ((SHALLOW, MEMORY_ROWS), ("Penstock", backlog)):
            queue = self._filled(f"backlog-{waiting}", waiting, lambda: 16)
            found[name] = self._most_memory(self._claims(queue, MEMORY_ROWS))
            self._queues.pop(f"backlog-{waiting}").close()
            shutil.rmtree(queue.path)
        return found

    # ------------------------------------------------------------ queues and files

    def _queue(self, name: str, slots: int, body_bytes: int) -> penstock.TimeQueue:
        if name not in self._queues:
            pages = -(-slots * L.units(body_bytes) * L.UNIT_BYTES // L.PAGE_BYTES) + 1
            path = self._folder / name
            # Twice the room: it is given back a little later than messages are acknowledged.
            self._queues[name] = penstock.create(
                path, slots=2 * slots, data_bytes=2 * pages * L.PAGE_BYTES, durability="relaxed"
            )
        return self._queues[name]

    def _filled(self, name: str, messages: int, size_bytes: Callable[[], int]) -> penstock.TimeQueue:
        """A queue with so many messages."""
        sizes = [size_bytes() for _ in range(messages)]
        queue = self._queue(name, messages, max(sizes))
        have = queue.qsize()
        for start in range(have, messages, PUT_AT_ONCE):
            queue.put_many([self._rng.randbytes(size) for size in sizes[start : start + PUT_AT_ONCE]])
        queue.sync_index()  # what was put is not part of the first claim's sync
        return queue

    def _written(self, queue: penstock.TimeQueue, rows: int, body_bytes: int) -> Path:
        """The same rows as parquet and as JSON: two files a batch."""
        folder = self._folder / f"files-{body_bytes}"
        if not folder.exists():
            for kind in ("parquet", "json"):
                frame = self._spark.read.format("penstock").option("partitions", 2 * BATCHES).load(queue.name)
                frame.write.format(kind).save(str(folder / kind))
        return folder

    def _files(self, kind: str, folder: Path) -> Any:
        from penstock.spark.schema import COLUMNS

        return (
            self._spark.readStream.format(kind).schema(COLUMNS).option("maxFilesPerTrigger", 2).load(str(folder / kind))
        )

    def _claims(self, queue: penstock.TimeQueue, rows: int) -> Any:
        stream = self._spark.readStream.format("penstock").option("receiver", "bench").option("maxRows", rows)
        return stream.option("maxBytes", BATCH_BYTES_MOST).load(queue.name)

    # ------------------------------------------------------------ queries

    def _checkpoint(self) -> str:
        self._checkpoints += 1
        return str(self._folder / f"checkpoint-{self._checkpoints}")

    def _run(self, writer: Any, path: str | None = None) -> list[Progress]:
        """Batches of a stream that runs to its end, without the first."""
        writer = writer.option("checkpointLocation", self._checkpoint()).trigger(availableNow=True)
        query = writer.start(path) if path else writer.start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        if len(batches) != BATCHES:
            raise WrongResult(f"a stream had {len(batches)} batches, not {BATCHES}")
        return batches[1:]

    def _to_nothing(self, frame: Any) -> list[Progress]:
        return self._run(frame.writeStream.format("noop"))

    def _drain(self, queue: penstock.TimeQueue, rows: int) -> list[Progress]:
        batches = self._to_nothing(self._claims(queue, rows))
        if queue.qsize():
            raise WrongResult(f"{queue.qsize()} messages were left in the queue")
        return batches

    def _one_by_one(self, frame: Any, turns: int, put: Callable[[], object]) -> list[float]:
        writer = frame.writeStream.format("noop").option("checkpointLocation", self._checkpoint())
        query = writer.trigger(processingTime="0 seconds").start()
        seen: dict[int, float] = {}
        deadline = time.monotonic() + WAIT_S
        with _stopping(query):
            while len(seen) < 2 * turns:  # the first half warms up
                put()
                before = len(seen)
                while len(seen) == before:
                    for progress in query.recentProgress:
                        if progress["numInputRows"] == 1:
                            seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1e3
                    if time.monotonic() > deadline:
                        raise WrongResult(f"t: {len(seen)} micro-batches in {WAIT_S:g} s")
                    time.sleep(0.01)
        return [seen[batch] for batch in sorted(seen)][turns:]

    def _most_memory(self, frame: Any) -> float:
        writer = frame.writeStream.format("noop").option("checkpointLocation", self._checkpoint())
        query = writer.trigger(availableNow=True).start()
        most = 0
        with _stopping(query):
            while query.isActive:
                most = max([most, *_planners()])
                time.sleep(0.01)
            query.awaitTermination()
        if not most:
            raise WrongResult("u: no process was seen to plan the batches")
        return float(most)


@contextlib.contextmanager
def _stopping(query: Any) -> Iterator[None]:
    try:
        yield
    finally:
        query.stop()


def rate(batches: list[Progress]) -> float:
    """Rows a second of the median batch."""
    return median(one["numInputRows"] / one["durationMs"]["triggerExecution"] * 1e3 for one in batches)


def share(batch: Progress, part: str) -> float:
    return float(batch["durationMs"][part] / batch["durationMs"]["triggerExecution"])


def _planners() -> list[int]:
    """Anonymous memory, in bytes, of the processes below us that plan batches of streams."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended
                if PLANNER in Path(entry.path, "cmdline").read_text() and _is_below_us(int(entry.name)):
                    status = Path(entry.path, "status").read_text()
                    found += [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")]
    return found


def _is_below_us(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == os.getpid()
