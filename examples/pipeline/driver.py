"""The Spark pipeline: three queries that read the inbound queue, each as a receiver of its own.

Two pass on the messages of one type each; one sums up the sales by shop and window. Each writes into a queue of its
own, every micro-batch once, whatever is killed: the claim that it reads outlives it, and the destination remembers the
batches that it has. For the sums, of which every change is published (``update``), that takes a ``foreachBatch``: Spark
lets a data source in Python only append.

    python -m examples.pipeline.driver FOLDER        # Ctrl-C ends it; it goes on where it was when started again
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.spark import json_body, session

from .journal import Journal
from .plan import COUNTED, INBOUND, ROUTES, TOTALS, WINDOW_S, Folder

EVENT = "n long, shop string, cents long, at_ms long"
# How late a sale may come and still be counted: the pipeline may stand still for a while.
LATE = "1 hour"
TRIGGER = "300 milliseconds"  # the queries share two cores
BATCH_ROWS = 2000  # so that a backlog is worked off in steps that can be seen
PROGRESS_EVERY_S = 0.5
# Quick to start: it runs for too short a time to be worth optimising.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def events(spark: SparkSession, folder: Folder, kind: str) -> DataFrame:
    """The messages of a type, parsed. The query that reads them is the receiver ``kind`` of the inbound queue."""
    stream = spark.readStream.format("penstock").option("receiver", kind).option("types", kind)
    return stream.option("maxRows", BATCH_ROWS).load(str(folder.queue(INBOUND))).withColumn("event", json_body(EVENT))


def routed(messages: DataFrame) -> DataFrame:
    """Each message as the destination gets it: with its id and the time when it was due in the inbound queue."""
    due_us = F.unix_micros(F.greatest("enqueued_at", "deliver_at"))
    return messages.select(
        _json(F.col("id").alias("inbound_id"), "event.*", due_us.alias("due_us")), "type", "key", "priority"
    )


def totals(sales: DataFrame) -> DataFrame:
    """Number and sum of the sales of a shop in a window, whenever they change. ``check`` sums up who they were."""
    by_window = (
        sales.select("key", "event.*", F.timestamp_millis("event.at_ms").alias("at"))
        .withWatermark("at", LATE)
        .groupBy(F.window("at", f"{WINDOW_S} seconds"), "key")
        .agg(F.count("*").alias("sales"), F.sum("cents").alias("cents"), F.sum("n").alias("check"))
    )
    start_s = F.unix_seconds("window.start").alias("start_s")
    return by_window.select(
        _json(start_s, F.col("key").alias("shop"), "sales", "cents", "check"), F.lit("total").alias("type"), "key"
    )


def _json(*columns: Column | str) -> Column:
    return F.to_json(F.struct(*columns)).alias("body")


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


def start(rows: DataFrame, folder: Folder, destination: str, *, changes: bool = False) -> Any:
    """A query that adds its rows to the destination, or whatever has changed of them."""
    queue, checkpoint = folder.queue(destination), folder.checkpoint(destination)
    writer = rows.writeStream.queryName(destination).option("checkpointLocation", str(checkpoint))
    if changes:
        writer = writer.outputMode("update").foreachBatch(PutOnce(queue, checkpoint))
    else:
        writer = writer.format("penstock").option("path", str(queue))
    return writer.trigger(processingTime=TRIGGER).start()


def run(spark: SparkSession, folder: Folder, stop: Event) -> None:
    queries = [start(routed(events(spark, folder, kind)), folder, queue) for kind, queue in ROUTES.items()]
    queries.append(start(totals(events(spark, folder, COUNTED)), folder, TOTALS, changes=True))
    journal = Journal(folder.journal("driver"))
    parent = os.getppid()
    while os.getppid() == parent and not stop.is_set():
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
        journal.write({"at_s": time.time(), "pid": os.getpid(), "queries": [_progress(query) for query in queries]})
        stop.wait(PROGRESS_EVERY_S)
    for query in queries:
        query.stop()


def _progress(query: Any) -> dict[str, Any]:
    last = query.lastProgress
    return {
        "name": query.name,
        "ready": last is not None or query.status["message"].startswith("Waiting"),
        "batch": last["batchId"] if last else None,
        "rows": last["numInputRows"] if last else 0,
        "took_ms": last["durationMs"].get("triggerExecution", 0) if last else 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that an earlier run of the example has left")
    folder = Folder(parser.parse_args().folder.resolve())
    scratch = tempfile.gettempdir()
    settings = {
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }
    spark = session("penstock-pipeline", master="local[2]", **settings)
    stop = Event()
    for each in (signal.SIGINT, signal.SIGTERM):  # not an exception, which would break off a talk with Java
        signal.signal(each, lambda *_: stop.set())
    try:
        run(spark, folder, stop)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
