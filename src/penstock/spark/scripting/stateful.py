"""Owns scripts as Spark's own ``transformWithState``: contexts are in the state that Spark partitions and checkpoints.
The reference for the parts of ours, and slower. Never puts or acknowledges a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType

from penstock.scripts import App
from penstock.scripts.calling import Kept, held
from penstock.scripts.context import Timer
from penstock.spark.collected import collected
from penstock.spark.scripting.calls import Caller
from penstock.spark.scripting.results import Marks, decode_marks, encode, encode_marks, joined, marks_of
from penstock.spark.scripting.rowmessage import RowMessage
from penstock.spark.scripting.rows import COLUMNS
from penstock.spark.scripting.tasks import OUTPUT

STATE = "context"  # the variable's name: the state can be read by it
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # RocksDB's files are copied with Hadoop's own local file system, and not the quicker one of our session.
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

_KEPT = StructType([StructField("state", BinaryType()), StructField("timers", BinaryType())])
_encode = msgspec.msgpack.Encoder().encode
decode_timers = msgspec.msgpack.Decoder(dict[str, Timer]).decode


class Scripts(StatefulProcessor):
    """Calls the scripts of a key's messages, in order."""

    def __init__(self, app: App[Any], root: str) -> None:
        self._app = app
        self._root = root

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState(STATE, _KEPT)
        self._caller = Caller(self._app, self._root)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        messages = sorted((RowMessage(*row) for row in rows), key=lambda message: message.order)
        found = self._kept.get() if self._kept.exists() else None
        mine = held(None if found is None else Kept(bytes(found[0]), decode_timers(bytes(found[1]))))
        results = [result for message in messages if (result := self._caller.call(message, mine)) is not None]
        if mine.state is None:
            if found is not None:
                self._kept.clear()
        elif mine.changed:
            self._kept.update((mine.state, _encode(mine.timers)))
        yield Row(part=0, marks=encode_marks(marks_of(messages, self._caller.uuid)), results=encode(results))

    def close(self) -> None:
        self._caller.close()


def prepare(spark: SparkSession) -> None:
    """Settings without which there is no state of this kind."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def outcomes(app: App[Any], root: str, rows: DataFrame) -> DataFrame:
    """What the messages of a stream lead to."""
    plain = [
        F.unix_micros(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in COLUMNS
    ]
    keyed = rows.select(*plain).groupBy("key")
    return keyed.transformWithState(
        statefulProcessor=Scripts(app, root), outputStructType=OUTPUT, outputMode="Append", timeMode="None"
    )


def marks(frame: DataFrame) -> Marks:
    """Of a batch of outcomes. All of them are made for it: Spark's state is only then that of this batch."""
    return joined(decode_marks(row["marks"]) for row in collected(frame.select("marks")))
