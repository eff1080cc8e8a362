"""Owns rows of Spark's as the messages that scripts are called with, and by parts of keys. Never reads a queue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.spark import schema as S
from penstock.spark.scripting.results import Marks, marks_of
from penstock.spark.scripting.rowmessage import RowMessage

AT_ONCE = 500  # messages, whose contexts are read together

# All that a script may see.
COLUMNS = StructType([*S.COLUMNS, *S.MORE])


def messages(batch: pa.RecordBatch) -> Iterator[RowMessage]:
    """Of a batch whose columns are ours."""
    columns = [values(batch.column(field.name)) for field in COLUMNS]
    return (RowMessage(*row) for row in zip(*columns, strict=True))


def values(column: pa.Array) -> list[Any]:
    """Of a column; times as microseconds: a script hardly ever asks. By way of numpy: it makes no object of Arrow's."""
    if pa.types.is_map(column.type):
        return column.to_pylist() if column.null_count < len(column) else [None] * len(column)
    if column.null_count and pa.types.is_integer(column.type):
        return column.to_pylist()  # numpy's would be numbers with a point
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


class PartOfRows:
    """The messages of one part of the keys that are in a batch, as ``references.Part`` has them, here at hand."""

    def __init__(self, number: int, rows: list[RowMessage]) -> None:
        self.number = number
        self._rows = rows

    def marks(self) -> Marks:
        return marks_of(self._rows)

    def messages(self) -> Iterator[list[RowMessage]]:
        return (self._rows[first : first + AT_ONCE] for first in range(0, len(self._rows), AT_ONCE))


def parts_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[PartOfRows]:
    """Rows that come sorted by part."""
    numbered = (
        pair for batch in batches for pair in zip(batch.column(S.PART).to_pylist(), messages(batch), strict=True)
    )
    for number, some in itertools.groupby(numbered, key=lambda pair: pair[0]):
        yield PartOfRows(number, [message for _, message in some])
