"""Owns the rows of a batch in a table of files: a folder that is named by the batch. Written again, it has the same
rows and no more. Never decides what is written.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.spark.pipelines.definition import Table
from penstock.spark.pipelines.plan import written
from penstock.store import rig
from penstock.store.files import sync_directory


def write(spark: SparkSession, step: Table, batch: str, rows: pa.Table) -> None:
    """On disk when it returns, where the place is a folder of this machine."""
    place = f"{step.table}/batch={batch}"
    rig.effect(rig.WRITE, place)
    written(spark.createDataFrame(rows), step).save(place)
    if "://" not in step.table:
        sync(Path(place))


def sync(folder: Path) -> None:
    """What Spark has written, which it does not sync."""
    for path in folder.iterdir():
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    for directory in (folder, folder.parent):
        sync_directory(directory)
