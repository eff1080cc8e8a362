"""Owns the way from the rows that a task is given, which only say where messages lie, to the messages, and to that by
which they are known again. Never calls a script.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark import schema as S
from penstock.spark.claimed import ClaimedReader
from penstock.spark.reader import binary
from penstock.spark.scripting.results import Mark, Marks
from penstock.spark.scripting.rowmessage import RowMessage
from penstock.spark.scripting.rows import COLUMNS, messages
from penstock.spark.snapshot import Place, columns
from penstock.store import gather as G

READ_AT_ONCE = 10_000  # messages, if their bodies are small

_decode_place = msgspec.msgpack.Decoder(Place).decode


class Part:
    """The messages of one part of the keys that are in a batch."""

    def __init__(self, number: int, rows: pa.Table) -> None:
        self.number = number
        self._homes = [(_decode_place(place), _in_order(some)) for place, some in _grouped(rows, S.PLACE)]

    def marks(self) -> Marks:
        return {place.uuid: _mark(place, rows) for place, rows in self._homes}

    def without(self, known: Collection[str]) -> Part:
        """But for those in queues with these UUIDs."""
        self._homes = [(place, rows) for place, rows in self._homes if place.uuid not in known]
        return self

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._homes)

    def messages(self, *, fail_if_gone: bool) -> Iterator[RowMessage]:
        """All of them, as they are due, whichever queue they are in."""
        found = [_read(place, rows, fail_if_gone) for place, rows in self._homes]
        return found[0] if len(found) == 1 else heapq.merge(*found, key=lambda message: message.order)


def parts(batches: Iterable[pa.RecordBatch]) -> list[Part]:
    """Of all rows that a task is given. It has one part, or none."""
    some = list(batches)
    if not some:
        return []
    return [Part(number, rows) for number, rows in _grouped(pa.Table.from_batches(some), S.PART)]


def _grouped(rows: pa.Table, by: str) -> list[tuple[Any, pa.Table]]:
    """Rows by what a column of theirs says: nearly always all of them the same."""
    column = rows.column(by)
    values = column.unique().to_pylist()
    if len(values) == 1:
        return [(values[0], rows)]
    return [(value, rows.filter(pc.equal(column, value))) for value in values]


def _in_order(rows: pa.Table) -> Any:
    found = np.frombuffer(b"".join(rows.column(S.REFERENCE).to_pylist()), dtype=np.uint64)
    found = found.reshape(-1, G.REFERENCE_WORDS)
    said = columns(found)
    return found[np.lexsort((said["number"], said["deliver_at"], -said["priority"]))]


def _mark(place: Place, rows: Any) -> Mark:
    said = columns(rows)
    ids = binary(*G.identify(place.id_prefix.encode(), rows.reshape(-1), 0, len(rows)), pa.string())
    ends = pc.min_max(ids).as_py()
    return Mark(len(rows), ends["min"], ends["max"], int(said["number"].sum()), int(said["attempts"].sum()))


def _read(place: Place, rows: Any, fail_if_gone: bool) -> Iterator[RowMessage]:
    reader = ClaimedReader(place, COLUMNS, conditions=[], batch_rows=READ_AT_ONCE, fail_if_gone=fail_if_gone)
    for batch in reader.read_rows(rows):
        yield from messages(batch)
