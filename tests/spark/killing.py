"""A query that stops at a chosen step and waits to be killed. Run as ``python -m tests.spark.killing``.

The data source is the real one, with a look at the step before each call goes on. Whoever reaches it makes a file; a
process of Spark's that is left behind by the kill lives on for a while, as they do, and then goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from penstock.spark import PenstockDataSource, session
from penstock.spark.stream import ClaimReader

from .conftest import QUICK

ORPHAN_S = 2.0  # how long a process that lost its parent lives on


def reached(step: str, at: int) -> None:
    """Wait to be killed, if this is where it shall happen."""
    chosen = json.loads(os.environ["PENSTOCK_KILL"])
    if (step, at) != (chosen["step"], chosen["at"]):
        return
    parent = os.getppid()
    Path(chosen["mark"]).touch()
    while os.getppid() == parent:
        time.sleep(0.02)
    time.sleep(ORPHAN_S)


class KilledReader(ClaimReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        if end != start:
            reached("claimed", end["claim"])
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        found = super().partitions(start, end)
        reached("planned", end["claim"])
        for partition in found:
            partition.claim = end["claim"]
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            reached("reading", partition.claim)

    def commit(self, end: dict[str, Any]) -> None:
        super().commit(end)
        reached("committed", end["claim"])


class KilledDataSource(PenstockDataSource):
    def streamReader(self, schema: StructType) -> KilledReader:
        real = super().streamReader(schema)
        return KilledReader(real._given, schema)


class Log:
    """A sink: the ids of each batch, a line for each time it ran."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, frame: Any, batch: int) -> None:
        ids = [row.id for row in frame.select("id").collect()]
        with self._path.open("a") as file:
            file.write(json.dumps([batch, ids]) + "\n")
        if "PENSTOCK_KILL" in os.environ:
            reached("sunk", batch)


def run(spark: Any, folder: Path) -> None:
    """Everything that is due, in batches."""
    frame = spark.readStream.format("penstock").option("receiver", "r").option("maxRows", 40).option("batchRows", 7)
    query = (
        frame.load(str(folder / "queue"))
        .writeStream.foreachBatch(Log(folder / "log"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    folder = Path(sys.argv[1])
    settings = {**QUICK, "spark.local.dir": folder / "spark", "spark.sql.warehouse.dir": folder / "warehouse"}
    spark = session("killed", master="local[2]", **settings)
    spark.dataSource.register(KilledDataSource)
    run(spark, folder)


if __name__ == "__main__":
    main()
