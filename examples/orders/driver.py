"""Spark: the shop's scripts over the macro queue of all lanes, and the totals of what was sold.

    python -m examples.orders.driver FOLDER          # Ctrl-C ends it; it goes on where it was when started again

With ``--figures FILE`` it ends with a last job: what the history of the queues has, for the report.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
from pyspark.sql import SparkSession

import penstock
from penstock.spark import history, run_scripts, session
from penstock.spark.report import figures

from . import totals
from .journal import Journal
from .plan import SALES, Folder
from .shop import app

BATCH_ROWS = 2000  # so that a backlog is worked off in steps: what is urgent first
PROGRESS_EVERY_S = 0.5
# Quick to start: it runs for too short a time to be worth optimising.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run(spark: SparkSession, folder: Folder, stop: Event) -> None:
    queries = [run_scripts(app, folder.queues, spark=spark, max_rows=BATCH_ROWS)]
    journal = Journal(folder.journal("driver"))
    parent = os.getppid()
    while os.getppid() == parent and not stop.is_set():
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
        progress = [_progress(query) for query in queries]
        journal.write({"at_s": time.time(), "pid": os.getpid(), "queries": progress})
        # One after the other: each starts processes of its own, on two cores.
        if len(queries) == 1 and progress[0]["ready"] and _is_anything_in(folder.queue(SALES)):
            queries.append(totals.start(spark, folder))
        stop.wait(PROGRESS_EVERY_S)
    for query in queries:
        query.stop()


def _is_anything_in(queue: Path) -> bool:
    with penstock.open(queue) as opened:
        stats = opened.stats()
    return stats.waiting + stats.claimed > 0


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
    parser.add_argument("--figures", type=Path, metavar="FILE", help="to write at the end")
    given = parser.parse_args()
    folder = Folder(given.folder.resolve())
    scratch = tempfile.gettempdir()
    settings = {
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }
    spark = session("penstock-orders", master="local[2]", **settings)
    stop = Event()
    for each in (signal.SIGINT, signal.SIGTERM):  # not an exception, which would break off a talk with Java
        signal.signal(each, lambda *_: stop.set())
    try:
        run(spark, folder, stop)
        if given.figures is not None:
            found = figures(history(folder.queues, spark), title=str(folder.queues))
            given.figures.write_bytes(msgspec.json.encode(found))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
