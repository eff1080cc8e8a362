"""Owns the batch write: tasks stage their rows as files, the driver's commit puts all of them into the queue at once.

A task checks and encodes its rows, so that what cannot be put fails there and the driver has little left to do. The
commit is one ``put_many``: all of the job's messages are in the queue, or none. ``sink.py`` stages in the same way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.codec import CODEC_BYTES, CODEC_STR, decode_body, decode_meta, encode_meta
from penstock.errors import Corrupt, Misuse
from penstock.spark import finding, workers
from penstock.spark.destinations import destination
from penstock.spark.staging import Staging
from penstock.spark.words import for_spark
from penstock.store import layout as L
from penstock.timequeue.columns import Columns, Piece
from penstock.timequeue.puts import Draft

JOINED_ROWS_MOST = 10_000  # more are not any quicker
JOINED_BYTES_MOST = 16 << 20  # they are copied; one batch alone may have more
KNOWN_MAX = 10_000  # pairs of type and key that are encoded once for an Arrow batch

# What is staged: messages as the queue has them, in columns.
STAGED = pa.schema(
    [
        ("body", pa.large_binary()),
        ("meta", pa.large_binary()),
        ("info", pa.uint64()),  # as in a slot: priority, codec, flags
        ("deliver_us", pa.uint64()),  # 0: at once
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
        finding.gate(given, "producer").check("put_many")
        Staging(given["path"], self._job).begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        workers.begin_task()
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        attempt = context.taskAttemptId() if context is not None else 0
        staging = Staging(self._given["path"], self._job)
        name, messages = staging.write(f"{partition}-{attempt}", STAGED, encoded(iterator, self._columns))
        return Staged(partition, name, messages)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staging = Staging(self._given["path"], self._job)
        staged = [message for message in messages if isinstance(message, Staged)]
        with for_spark(stream=False):
            destination(self._given).put(StagedMessages(staging, staged))
        staging.remove()
        staging.sweep()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        Staging(self._given["path"], self._job).remove()


# ---------------------------------------------------------------- rows to what is staged


def encoded(batches: Iterable[pa.RecordBatch], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a DataFrame as they are staged, or the error that says which row cannot be put."""
    return (encode(batch) for batch in joined(batch.select(columns) for batch in batches))


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth the calls that each costs; none without rows."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        more_bytes = batch.get_total_buffer_size()  # ``nbytes``, which looks at offsets, takes 12 times as long
        if waiting and (rows + batch.num_rows > JOINED_ROWS_MOST or size_bytes + more_bytes > JOINED_BYTES_MOST):
            yield _joined(waiting)
            waiting, rows, size_bytes = [], 0, 0
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
            size_bytes += more_bytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def encode(batch: pa.RecordBatch) -> pa.RecordBatch:
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    count = batch.num_rows
    body, codec = _body(given["body"])
    deliver_us, is_ready = _deliver_us(given.get("deliver_at"), count)
    flags = pc.multiply(is_ready.cast(pa.uint64()), pa.scalar(L.FLAG_READY << L.FLAGS_SHIFT, pa.uint64()))
    info = pc.add(
        _priority(given.get("priority"), count), pc.add(flags, pa.scalar(codec << L.CODEC_SHIFT, pa.uint64()))
    )
    columns = [body, _meta(*(given.get(name) for name in ("type", "key", "headers")), count=count), info, deliver_us]
    return pa.RecordBatch.from_arrays(columns, schema=STAGED)


def _body(body: Any) -> tuple[Any, int]:
    if body.null_count:
        raise Misuse(
            "column body is null in a row: every message has a body, if only an empty one; filter such rows out"
        )
    if not (pa.types.is_string(body.type) or pa.types.is_large_string(body.type)):
        return body.cast(pa.large_binary()), CODEC_BYTES
    try:
        body.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Misuse(f"a row's body is a string and not valid Unicode ({error}); cast it to binary") from None
    return body.cast(pa.large_binary()), CODEC_STR


def _priority(priority: Any, count: int) -> Any:
    if priority is None:
        return pa.repeat(pa.scalar(0, pa.uint64()), count)
    priority = pc.fill_null(priority.cast(pa.int64()), 0)
    bounds = pc.min_max(priority).as_py()
    if bounds["min"] < 0 or bounds["max"] >= L.PRIORITIES:
        wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
        raise Misuse(f"column priority must be from 0 to {L.PRIORITIES - 1}, or null: a row has {wrong}")
    return priority.cast(pa.uint64())


def _deliver_us(moment: Any, count: int) -> tuple[Any, Any]:
    """Delivery times, and which rows have none."""
    if moment is None:
        return pa.repeat(pa.scalar(0, pa.uint64()), count), pa.repeat(pa.scalar(True), count)
    us = moment.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    bounds = pc.min_max(us).as_py()
    if bounds["max"] is not None and max(abs(bounds["min"]), abs(bounds["max"])) >= L.DELIVER_US_MAX:
        raise Misuse("a row's deliver_at is too far away")
    due = pc.max_element_wise(us, pa.scalar(1, pa.int64()), skip_nulls=False)  # before 1970 is long due
    return pc.fill_null(due, 0).cast(pa.uint64()), pc.is_null(us)


def _meta(types: Any, keys: Any, headers: Any, *, count: int) -> Any:
    """Types, keys and headers that cannot be put fail here, in the task."""
    if headers is not None and headers.offsets[-1].as_py() == headers.offsets[0].as_py():
        headers = None  # all are empty, as those of rows that come from a queue without headers
    if all(column is None or column.null_count == count for column in (types, keys, headers)):
        return pa.repeat(pa.scalar(b"", pa.large_binary()), count)
    columns = (column.to_pylist() if column is not None else [None] * count for column in (types, keys, headers))
    known: dict[tuple[str | None, str | None], bytes] = {(None, None): b""}
    metas = []
    for type_, key, given in zip(*columns, strict=True):
        meta = known.get((type_, key)) if given is None else None
        if meta is None:
            pairs = None if given is None else dict(given)
            if pairs and None in pairs.values():
                names = ", ".join(sorted(name for name, value in pairs.items() if value is None))
                raise Misuse(f"column headers has a null as the value of {names}: leave it out (map_filter)")
            meta = encode_meta(type_, key, pairs)
            if given is None and len(known) < KNOWN_MAX:
                known[type_, key] = meta
        metas.append(meta)
    return pa.array(metas, pa.large_binary())


# ---------------------------------------------------------------- what is staged to messages


class StagedMessages:
    """All that the tasks of a job, or of a micro-batch, have staged."""

    def __init__(self, staging: Staging, staged: Sequence[Staged]) -> None:
        self._staging = staging
        self._staged = staged

    def count(self) -> int:
        return sum(each.messages for each in self._staged)

    def columns(self) -> Columns:
        """By partition."""
        return Columns([_piece(batch) for batch in staged_batches(self._staging, self._staged)])

    def drafts(self) -> list[Draft]:
        return [draft for batch in staged_batches(self._staging, self._staged) for draft in _drafts(batch)]


def staged_batches(staging: Staging, staged: Iterable[Staged]) -> Iterator[pa.RecordBatch]:
    """Those of each task, of which none may be missing."""
    for each in sorted(staged, key=lambda one: one.partition):
        found = 0
        for batch in staging.read(each.name) if each.name is not None else ():
            found += batch.num_rows
            yield batch
        if found != each.messages:
            raise Corrupt(
                staging.path(each.name),
                offset=0,
                expected=f"{each.messages} messages",
                found=str(found),
                remedy="nothing was put: run it again",
            )


def _drafts(batch: pa.RecordBatch) -> Iterator[Draft]:
    """The messages as a program would give them."""
    for row in batch.to_pylist():
        meta = decode_meta(row["meta"])
        yield Draft(
            body=decode_body(row["info"] >> L.CODEC_SHIFT & 0xF, row["body"]),
            priority=row["info"] & (L.PRIORITIES - 1),
            deliver_at=row["deliver_us"] / 1e6 if row["deliver_us"] else None,
            type=meta.t,
            key=meta.k,
            headers=meta.h or None,
        )


def _piece(batch: pa.RecordBatch) -> Piece:
    views = []
    for name in ("body", "meta"):
        column = batch.column(name)
        _, ends, data = column.buffers()
        views += [memoryview(data or b"").cast("B"), memoryview(ends).cast("B").cast("q")[column.offset :]]
    for name in ("info", "deliver_us"):
        column = batch.column(name)
        first, count = column.offset, len(column)
        views.append(memoryview(column.buffers()[1]).cast("B").cast("Q")[first : first + count])
    return Piece(*views)
