"""Owns rows of Spark's as the messages that scripts are called with. Never reads a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.spark import schema as S
from penstock.spark.scripting.rowmessage import RowMessage

# All that a script may see.
COLUMNS = StructType([*S.COLUMNS, *S.MORE])


def messages(batch: pa.RecordBatch) -> Iterator[RowMessage]:
    """Of a batch whose columns are ours."""
    columns = [values(batch.column(field.name)) for field in COLUMNS]
    return (RowMessage(*row) for row in zip(*columns, strict=True))


def values(column: pa.Array) -> list[Any]:
    """Of a column; times as microseconds: a script hardly ever asks."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return column.to_pylist()
