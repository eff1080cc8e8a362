"""Owns ``format("penstock")``: what Spark calls, and which part does it. Never opens a queue itself.

Spark makes a ``PenstockDataSource`` at ``load()``: what is wrong with the options is said there, as far as it can be
known then. For a write it makes one only when the writing begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
)
from pyspark.sql.types import StructType

from penstock.errors import Misuse
from penstock.spark import finding, snapshot, workers
from penstock.spark import options as O
from penstock.spark import schema as S
from penstock.spark.filters import Condition, understood
from penstock.spark.many import MacroReader
from penstock.spark.reader import MessageReader
from penstock.spark.sink import StreamWriter
from penstock.spark.snapshot import Messages
from penstock.spark.stream import ClaimReader
from penstock.spark.writer import QueueWriter


class PenstockDataSource(DataSource):
    """A queue as a data source. ``spark.dataSource.register(PenstockDataSource)``, or found by Spark by itself."""

    def __init__(self, options: dict[str, str]) -> None:
        finding.path_of(O.check(options))
        super().__init__(options)

    def _given(self, use: str) -> dict[str, Any]:
        """What the options mean for a use; ``path`` is the directory of what they name."""
        given = O.parse(self.options, use)
        return {**given, "path": finding.path_of(given)}

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return S.COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        S.check_read(schema)
        given = self._given(O.READ)
        return (FilteringReader if given["pushFilters"] else SnapshotReader)(given, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        S.check_read(schema)
        given = self._given(O.STREAM)
        return (MacroReader if finding.is_macro(given["path"]) else ClaimReader)(given, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise Misuse("messages are added to a queue, mode('append'); to empty it first: penstock purge")
        S.check_write(schema)
        return QueueWriter(self._given(O.WRITE), schema.fieldNames())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise Misuse("messages are added to a queue: outputMode('append'), not ('complete')")
        S.check_write(schema)
        return StreamWriter(self._given(O.WRITE), schema.fieldNames())


class SnapshotReader(DataSourceReader):
    """A batch read: a snapshot, taken on planning, is read by the tasks. Nothing is consumed."""

    def __init__(self, given: dict[str, Any], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._conditions: list[Condition] = []

    def partitions(self) -> Sequence[Messages]:
        given = self._given
        taken = [
            snapshot.take(path, state=given["state"], conditions=self._conditions, busy_s=given["busyTimeout"])
            for path in finding.queues_of(given["path"])
        ]
        return snapshot.split(taken, given["partitions"])

    def read(self, partition: Messages) -> Iterator[pa.RecordBatch]:
        workers.begin_task()
        if not partition.references:
            return iter(())
        return MessageReader(
            partition.place,
            self._schema,
            conditions=self._conditions,
            batch_rows=self._given["batchRows"],
            fail_if_gone=self._given["onGone"] == "fail",
        ).read(partition)


class FilteringReader(SnapshotReader):
    """The same where filters are pushed down, which the session must allow.

    Only for those who ask for it: Spark 4.3 keeps a DataFrame's last reader and uses it, with the filters it was given,
    for queries of the same DataFrame that have no filter or are planned together with it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._conditions = understood(filters)
        return iter(filters)
