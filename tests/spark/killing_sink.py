"""A sink that ends its driver, Java and all, by SIGKILL at a given step of the first batch; and a driver that uses it.

python -m tests.spark.killing_sink <queue> <source> <checkpoint> <step>
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from penstock.spark.sink import StreamWriter
from penstock.spark.source import PenstockDataSource
from tests.spark.conftest import QUICK

STAGED = "staged"  # before the commit
COMMITTED = "committed"  # after the sink's commit, before Spark's log
STEPS = (STAGED, COMMITTED)


def end_all() -> None:
    for pid in json.loads(Path(os.environ["KILLING_PIDS"]).read_text()):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class KillingWriter(StreamWriter):
    def commit(self, messages: list[Any], batchId: int) -> None:
        if os.environ["KILLING_STEP"] == STAGED:
            end_all()
        super().commit(messages, batchId)
        end_all()


class KillingSource(PenstockDataSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingWriter:
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return KillingWriter(writer._given, writer._columns)


def main(queue: str, source: str, checkpoint: str, step: str) -> None:
    from penstock.spark import session

    with tempfile.NamedTemporaryFile("w", delete=False) as pids:
        os.environ["KILLING_PIDS"], os.environ["KILLING_STEP"] = pids.name, step
        spark = session("killing", master="local[1]", **QUICK)
        json.dump([spark.sparkContext._gateway.proc.pid, os.getpid()], pids)
    spark.dataSource.register(KillingSource)
    rows = spark.readStream.schema("body string").parquet(source)
    query = rows.writeStream.format("killing").option("checkpointLocation", checkpoint).start(queue)
    query.awaitTermination(100)


if __name__ == "__main__":
    main(*sys.argv[1:])
