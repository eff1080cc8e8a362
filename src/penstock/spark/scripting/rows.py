"""Owns a row of Spark's as the message that a script is called with. Never reads a queue."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.codec import decode_body
from penstock.message import to_datetime
from penstock.spark import schema as S

# All that a script may see.
COLUMNS = StructType([*S.COLUMNS, *S.MORE])


class RowMessage:
    """A message, as ``penstock.scripts.context.Incoming`` wants it."""

    __slots__ = (
        "_codec",
        "_deliver_us",
        "_enqueued_us",
        "_headers",
        "attempts",
        "data",
        "id",
        "key",
        "number",
        "priority",
        "queue",
        "type",
        "wants_reply",
    )

    def __init__(
        self,
        id: str,
        number: int,
        queue: str,
        type: str | None,
        key: str | None,
        priority: int,
        attempts: int,
        enqueued_us: int,
        deliver_us: int,
        headers: Any,
        data: bytes,
        codec: int,
        wants_reply: bool,
    ) -> None:
        self.id = id
        self.number = number
        self.queue = queue
        self.type = type
        self.key = key
        self.priority = priority
        self.attempts = attempts
        self._enqueued_us = enqueued_us
        self._deliver_us = deliver_us
        self._headers = headers
        self.data = data
        self._codec = codec
        self.wants_reply = wants_reply

    @property
    def body(self) -> Any:
        return decode_body(self._codec, self.data)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._headers) if self._headers else {}

    @property
    def enqueued_at(self) -> datetime:
        return to_datetime(self._enqueued_us)

    @property
    def deliver_at(self) -> datetime:
        return to_datetime(self._deliver_us)

    @property
    def order(self) -> tuple[Any, ...]:
        """Those of a key, as a queue would deliver them."""
        return -self.priority, self._deliver_us, self.number, self.queue

    def open(self) -> io.BufferedIOBase:
        return io.BytesIO(self.data)


def messages(batch: pa.RecordBatch) -> Iterator[RowMessage]:
    """Of a batch whose columns are ours."""
    columns = [_values(batch.column(field.name)) for field in COLUMNS]
    return (RowMessage(*row) for row in zip(*columns, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """Times as microseconds: a script hardly ever asks. By way of numpy, which makes no object of Arrow's a value."""
    if pa.types.is_map(column.type):
        return column.to_pylist() if column.null_count < len(column) else [None] * len(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values
