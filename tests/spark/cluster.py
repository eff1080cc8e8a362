"""A driver whose executors are processes of their own: ``python -m tests.spark.cluster <folder> <master>``.

Writes a batch of messages into the queue ``in``, reads them back, and sends them to ``out`` by a stream.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

from tests.spark.archive import java_options
from tests.spark.driver import ROWS, pipe, start
from tests.spark.processes import PATHS
from tests.spark.steps import FOLDER

MESSAGES = 3 * ROWS


def main(folder: Path, master: str) -> None:
    os.environ[FOLDER] = str(folder)
    settings = {
        "spark.executorEnv.PYTHONPATH": PATHS,
        f"spark.executorEnv.{FOLDER}": folder,
        "spark.executor.extraJavaOptions": java_options(),
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        "spark.default.parallelism": 2,
    }
    spark = start(folder, master, **settings)
    try:
        rows = spark.range(0, MESSAGES, 1, 2).selectExpr("cast(id as string) as body")
        rows.write.format("penstock").mode("append").save(str(folder / "in"))
        read = spark.read.format("penstock").option("partitions", 2).load(str(folder / "in"))
        found = read.selectExpr("id", "cast(body as string) as body").collect()
        (folder / "found").write_text(json.dumps([[row.id, row.body] for row in found]))
        pipe(spark, folder).awaitTermination()
    finally:
        application = spark.sparkContext.applicationId
        spark.stop()
        remove_work_of(application)


def remove_work_of(application: str) -> None:
    """What executors of a ``local-cluster`` left beside the package of Spark."""
    import pyspark

    work = Path(pyspark.__file__).parent / "work"
    shutil.rmtree(work / application, ignore_errors=True)
    with contextlib.suppress(OSError):
        work.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
