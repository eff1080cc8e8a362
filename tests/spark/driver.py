"""A driver of one query from queue to queue: ``python -m tests.spark.driver <folder> [rows [goes-on]]``.

The queues are ``in`` and ``out`` in the folder, and a message that was sent has the id of the one it came from. It
begins when it is told to, by a line on its standard input, so that one can be ready when another is killed. It
ends when all that was due is done, or with ``goes-on`` not by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from penstock.spark import session
from tests.spark.archive import java_options
from tests.spark.steps import FOLDER, SteppedDataSource

ROWS = 20  # of a batch; in two parts, of several Arrow batches each


def pipe(spark: Any, folder: Path, *, rows: int = ROWS, ends: bool = True) -> Any:
    """Start the query."""
    read = spark.readStream.format("penstock").options(receiver="pipe", maxRows=rows, partitions=2, batchRows=7)
    sent = read.load(str(folder / "in")).selectExpr("body", "map('from', id) as headers")
    write = sent.writeStream.format("penstock").option("checkpointLocation", str(folder / "checkpoint"))
    return (write.trigger(availableNow=True) if ends else write).start(str(folder / "out"))


def start(folder: Path, master: str = "local[2]", *, java: str | None = None, **settings: object) -> Any:
    given = {
        "spark.driver.extraJavaOptions": java_options() if java is None else java,
        "spark.local.dir": folder / "spark",
        "spark.sql.warehouse.dir": folder / "warehouse",
        **settings,
    }
    spark = session("driver", master=master, **given)
    spark.dataSource.register(SteppedDataSource)
    return spark


def main(folder: Path, rows: int = ROWS, how: str = "") -> None:
    os.environ[FOLDER] = str(folder)
    spark = start(folder)
    sys.stdin.readline()
    (folder / f"begun.{os.getpid()}").touch()
    pipe(spark, folder, rows=rows, ends=how != "goes-on").awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:4])
