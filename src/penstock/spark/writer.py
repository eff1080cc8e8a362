"""Owns the batch write: tasks stage their rows as files, the driver's commit puts all of them into the queue at once.

A task checks and encodes its rows, so that what cannot be put fails there. The commit is one ``put_many``: all of the
job's messages are in the queue, or none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.codec import encode_meta
from penstock.errors import Corrupt, Misuse
from penstock.message import to_datetime
from penstock.spark.staging import Staging
from penstock.store import layout as L
from penstock.timequeue import Draft, open_queue

# What is staged: drafts in Arrow. Types of fixed names, whatever the DataFrame has.
STAGED = pa.schema(
    [
        ("body", pa.large_binary()),
        ("text", pa.bool_()),
        ("deliver_us", pa.int64()),
        ("priority", pa.int64()),
        ("type", pa.string()),
        ("key", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged: the file's name, and how many messages are in it."""

    partition: int
    name: str | None
    messages: int


class QueueWriter(DataSourceArrowWriter):
    """One job that writes into a queue."""

    def __init__(self, given: dict[str, Any], columns: list[str]) -> None:
        self._given = given
        self._columns = columns
        self._job = uuid.uuid4().hex
        Staging(given["path"], self._job).begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        attempt = context.taskAttemptId() if context is not None else 0
        staging = Staging(self._given["path"], self._job)
        batches = (normalised(batch.select(self._columns)) for batch in iterator if batch.num_rows)
        name, messages = staging.write(f"{partition}-{attempt}", STAGED, batches)
        return Staged(partition, name, messages)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staging = Staging(self._given["path"], self._job)
        staged = sorted((m for m in messages if isinstance(m, Staged)), key=lambda m: m.partition)
        with open_queue(self._given["path"], busy_s=self._given["busyTimeout"]) as queue:
            queue.put_many(_drafts(staging, staged), timeout=self._given["timeout"] or None)
        staging.remove()
        staging.sweep()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        Staging(self._given["path"], self._job).remove()


def _drafts(staging: Staging, staged: list[Staged]) -> Iterator[Draft]:
    for each in staged:
        count = 0
        if each.name is not None:
            for batch in staging.read(each.name):
                count += batch.num_rows
                yield from drafts(batch)
        if count != each.messages:
            raise Corrupt(staging.path(each.name), offset=0, expected=f"{each.messages} messages", found=str(count))


# ---------------------------------------------------------------- rows to messages


def normalised(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a DataFrame as they are staged, or the error that says which row cannot be put."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    body = given["body"]
    if body.null_count:
        raise Misuse("a row has no body (null)")
    text = pa.types.is_string(body.type) or pa.types.is_large_string(body.type)
    priority = given.get("priority")
    if priority is not None:
        priority = pc.fill_null(priority.cast(pa.int64()), 0)
        bounds = pc.min_max(priority).as_py()
        if bounds["min"] < 0 or bounds["max"] >= L.PRIORITIES:
            raise Misuse(f"priority must be from 0 to {L.PRIORITIES - 1}: a row has {bounds['min']} or {bounds['max']}")
    deliver_at = given.get("deliver_at")
    if deliver_at is not None:
        deliver_at = deliver_at.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    count = batch.num_rows
    columns = {
        "body": body.cast(pa.large_binary()),
        "text": pa.repeat(pa.scalar(text), count),
        "deliver_us": deliver_at if deliver_at is not None else pa.nulls(count, pa.int64()),
        "priority": priority if priority is not None else pa.repeat(pa.scalar(0, pa.int64()), count),
    }
    for name in ("type", "key", "headers"):
        column = given.get(name)
        kind = STAGED.field(name).type
        columns[name] = column.cast(kind) if column is not None else pa.nulls(count, kind)
    made = pa.RecordBatch.from_arrays([columns[name] for name in STAGED.names], schema=STAGED)
    _check_meta(made)
    return made


def _check_meta(batch: pa.RecordBatch) -> None:
    """Types, keys and headers that cannot be put fail here, in the task."""
    if all(batch.column(name).null_count == batch.num_rows for name in ("type", "key", "headers")):
        return
    columns = (batch.column(name).to_pylist() for name in ("type", "key", "headers"))
    for type_, key, headers in zip(*columns, strict=True):
        encode_meta(type_, key, None if headers is None else dict(headers))


def drafts(batch: pa.RecordBatch) -> Iterator[Draft]:
    """Staged rows as messages to put."""
    columns = [batch.column(name).to_pylist() for name in STAGED.names]
    for body, text, deliver_us, priority, type_, key, headers in zip(*columns, strict=True):
        yield Draft(
            body=body.decode() if text else body,
            deliver_at=None if deliver_us is None else to_datetime(deliver_us),
            priority=priority,
            type=type_,
            key=key,
            headers=None if headers is None else dict(headers),
        )
