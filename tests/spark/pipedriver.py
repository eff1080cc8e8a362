"""A driver of a pipeline over numbered messages: ``python -m tests.spark.pipedriver <folder> <kind> <step>``.

It begins when it is told to, by a line on its standard input. At the step, once it gets there, it kills itself and its
Java; with ``none`` it goes on until nothing is left.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock.spark import Pipeline
from penstock.spark.pipelines import tables
from penstock.spark.pipelines.batches import PipelineBatches, PipelineStore
from tests.spark.driver import start
from tests.spark.pipesteps import counts, flaky
from tests.spark.scriptdriver import kill_at

COUNT = 60
SMALL: dict[str, Any] = {"depth": 500, "data_bytes": 1 << 18, "durability": "relaxed"}

# In the driver, of a batch: what the tasks came to is not written down yet, is, is put, is in its table, is noted to be
# there, is said of its messages. With a script: what came before it is written down, and the script is done.
STEPS: dict[str, tuple[Any, str, bool]] = {
    "collected": (PipelineStore, "post_batch", False),
    "written": (PipelineStore, "post_batch", True),
    "put": (tables, "write", False),
    "tabled": (tables, "write", True),
    "noted": (PipelineStore, "written", True),
    "judged": (PipelineBatches, "_judge", True),
}
SCRIPT_STEPS: dict[str, tuple[Any, str, bool]] = {
    "staged": (PipelineStore, "stage", True),
    "counted": (PipelineBatches, "_with_script", True),
    **STEPS,
}


def fill(folder: Path) -> None:
    with penstock.QueueManager(folder / "queues") as manager:
        for name in ("in", "even", "odd", "counted"):
            manager.create(name, **SMALL)
        with manager.open("in") as queue:
            for n in range(COUNT):
                queue.put(n, type="n", key=f"key {n % 4}")


def pipeline(folder: Path, kind: str) -> Pipeline:
    made = Pipeline("numbers", root=folder / "queues", source="in", max_attempts=2, retry_delay=0.05, max_rows=25)
    made.call(flaky).filter("int(decode(body, 'utf-8')) <> 5")
    made.route({"int(decode(body, 'utf-8')) % 2 = 0": "even"}, otherwise="odd")
    made.table(folder / "table", columns=["id", "int(decode(body, 'utf-8')) as n"])
    return made.script(counts, partitions=2) if kind == "script" else made


def judge(spark: Any, folder: Path, kind: str) -> None:
    """Each number is where it should be, once."""
    dead = {n for n in range(COUNT) if n % 10 == 7 or (kind == "script" and n % 10 == 9)}
    done = [n for n in range(COUNT) if n not in dead and n != 5]
    found = {name: _bodies(folder / "queues" / name) for name in ("in", "even", "odd", "counted", "in.dead")}
    assert found["in"] == Counter()
    assert found["even"] == Counter(n for n in done if n % 2 == 0)
    assert found["odd"] == Counter(n for n in done if n % 2)
    assert found["in.dead"] == Counter(dead)
    assert Counter(row.n for row in spark.read.parquet(str(folder / "table")).collect()) == Counter(done)
    assert found["counted"] == Counter(done if kind == "script" else ())
    if kind == "script":
        seen = [n for state in counts.contexts(folder / "queues").values() for n in state["seen"]]
        assert Counter(seen) == Counter(done)


def _bodies(path: Path) -> Counter[int]:
    with penstock.open(path) as queue:
        return Counter(message.body for message in queue.browse(state="all"))


def main(folder: Path, kind: str, step: str) -> None:
    spark = start(folder)
    sys.stdin.readline()
    if step != "none":
        kill_at(*SCRIPT_STEPS[step])
    with penstock.open(folder / "queues/in") as queue:
        while queue.qsize() or queue.stats().claimed:
            pipeline(folder, kind).run(spark)
            time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])
