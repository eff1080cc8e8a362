"""Owns ``session()``, a Spark session with quick, quiet settings. Nothing needs it: any session works."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark import java, workers

LOG4J2 = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Arrow in Java looks at every value of every row whether its buffer is still there and long enough.
ARROW_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true"
# What a batch makes is gone after it, and on a few cores Java's default collector notes each store beside the program.
COLLECTOR = "-XX:+UseParallelGC"

CHOSEN = re.compile(r"-XX:[+-]Use\w*GC\b")
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")  # which Java reads by itself

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # 200 by default, for clusters
    # Filters on type, key, priority, number and times go to the reader of the queue.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    # Rows on their way to Python: Spark counts the bytes of all that it has gathered anew at every row, which takes
    # longer than all else that is done with a small one. How large they can be together is limited by the source's
    # maxBytes, and by these rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    # By default each file of a checkpoint costs a forked readlink and chmod: 0.1 to 0.2 s a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def session(app: str = "penstock", *, master: str = "local[*]", **conf: object) -> SparkSession:
    """A Spark session on this machine. Settings of your own come last: ``session(**{"spark.driver.memory": "4g"})``.

    If there is a session in this process already, that one is returned: Spark has one at a time. Java and the
    addresses are set in this process's environment, where Spark looks for them.
    """
    settings = {**SETTINGS, "spark.app.name": app, "spark.master": master}
    settings.update({name: _text(value) for name, value in conf.items()})
    quiet = f"-Dlog4j2.configurationFile={LOG4J2.as_uri()}"
    settings[JAVA_OPTIONS] = " ".join(
        [quiet, ARROW_UNCHECKED, *_collector(settings), settings.get(JAVA_OPTIONS, "")]
    ).strip()
    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = java.home_for_spark(java.find())
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", workers.python())
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _collector(settings: dict[str, str]) -> list[str]:
    """Ours, unless one is chosen: with two of them Java does not start."""
    said = [settings.get(JAVA_OPTIONS, ""), *(os.environ.get(name, "") for name in JAVA_VARIABLES)]
    return [] if CHOSEN.search(" ".join(said)) else [COLLECTOR]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
