"""A second query, as plain Spark: the sales, summed up by lane and window, into a queue of their own.

It reads a queue, parses, aggregates and writes. Every change of a sum is published (``update``), each micro-batch once:
that takes a ``foreachBatch``, since Spark lets a data source in Python only append.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.spark import json_body

from .plan import SALES, TOTALS, WINDOW_S, Folder

SALE = "n long, cents long, at_ms long"
# How late a sale may come and still be counted: the scripts may stand still for a while.
LATE = "1 hour"
TRIGGER = "2 seconds"  # it shares two cores with the scripts


def sales(spark: SparkSession, folder: Folder) -> DataFrame:
    stream = spark.readStream.format("penstock").option("receiver", TOTALS)
    return stream.load(str(folder.queue(SALES))).withColumn("sale", json_body(SALE))


def totals(sold: DataFrame) -> DataFrame:
    """Number and sum of the sales of a lane in a window, whenever they change. ``check`` sums up who they were."""
    by_window = (
        sold.select("key", "sale.*", F.timestamp_millis("sale.at_ms").alias("at"))
        .withWatermark("at", LATE)
        .groupBy(F.window("at", f"{WINDOW_S} seconds"), "key")
        .agg(F.count("*").alias("count"), F.sum("cents").alias("cents"), F.sum("n").alias("check"))
    )
    start_s = F.unix_seconds("window.start").alias("start_s")
    body = F.to_json(F.struct(start_s, F.col("key").alias("lane"), "count", "cents", "check"))
    return by_window.select(body.alias("body"), F.lit("total").alias("type"), "key")


class PutOnce:
    """A sink for small results: the batch has a number, so that the queue takes it once."""

    def __init__(self, queue: Path, checkpoint: Path) -> None:
        self._queue = queue
        self._checkpoint = checkpoint

    def __call__(self, frame: DataFrame, batch: int) -> None:
        query = json.loads((self._checkpoint / "metadata").read_text())["id"]  # a new checkpoint is a new query
        drafts = [penstock.Draft(**row.asDict()) for row in frame.collect()]
        if drafts:
            with penstock.open(self._queue) as queue:
                queue.put_once(query, batch, drafts)


def start(spark: SparkSession, folder: Folder) -> Any:
    checkpoint = folder.checkpoint(TOTALS)
    writer = totals(sales(spark, folder)).writeStream.queryName(TOTALS).outputMode("update")
    writer = writer.foreachBatch(PutOnce(folder.queue(TOTALS), checkpoint))
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=TRIGGER).start()
