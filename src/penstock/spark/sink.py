"""Owns the stream write: the tasks of a micro-batch stage their rows as files, the driver's commit puts them once.

The publisher is the streaming query (its id, which lives in the checkpoint), the number is the batch's: however often
tasks, batches or the driver are tried again, the queue publishes a batch once (``put_once``). Staged files of a batch
count for nothing until then. Never keeps anything between two calls: Spark makes a new writer for each.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.errors import Misuse
from penstock.spark import finding, workers
from penstock.spark.destinations import destination
from penstock.spark.staging import Staging, remove_older
from penstock.spark.words import for_spark
from penstock.spark.writer import STAGED, Staged, StagedMessages, encoded

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"


@dataclass
class StagedOfBatch(Staged):
    """What a task of a micro-batch staged. The driver is not told the query: the tasks are."""

    query: str
    batch: int


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of one streaming query."""

    def __init__(self, given: dict[str, Any], columns: list[str]) -> None:
        self._given = given
        self._columns = columns
        finding.gate(given, "producer").check("put_once")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        workers.begin_task()
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(name) if context is not None else None for name in (QUERY, BATCH))
        if context is None or query is None or batch is None:
            raise Misuse("only a task of a streaming query can write to this sink")
        return self.stage(iterator, query, int(batch), context.partitionId(), context.taskAttemptId())

    def stage(
        self, batches: Iterator[pa.RecordBatch], query: str, batch: int, partition: int, attempt: int
    ) -> StagedOfBatch:
        staging = self._staging(query, batch)
        staging.make()
        try:
            # Attempts are counted anew by each driver, and a task of one that died may still be writing.
            file = f"{partition}-{attempt}-{uuid.uuid4().hex}"
            name, messages = staging.write(file, STAGED, encoded(batches, self._columns))
        except BaseException:
            staging.remove_if_empty()
            raise
        return StagedOfBatch(partition, name, messages, query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = self._of(messages, batchId)
        if not staged:
            return
        query = staged[0].query
        staging = self._staging(query, batchId)
        with for_spark(stream=True):
            destination(self._given).put_once(query, batchId, StagedMessages(staging, staged))
        staging.remove()
        remove_older(self._given["path"], query, batchId)
        staging.sweep()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for query in {each.query for each in self._of(messages, batchId)}:
            self._staging(query, batchId).remove()

    def _of(self, messages: list[WriterCommitMessage | None], batch: int) -> list[StagedOfBatch]:
        staged = [message for message in messages if isinstance(message, StagedOfBatch)]
        odd = {(each.query, each.batch) for each in staged} - {(each.query, batch) for each in staged[:1]}
        if odd:
            raise Misuse(f"tasks of another query or batch than {batch} have staged: {sorted(odd)}")
        return staged

    def _staging(self, query: str, batch: int) -> Staging:
        return Staging(self._given["path"], f"{query}.{batch}")
