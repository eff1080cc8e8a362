"""Owns the way from what a task is told of where its messages lie to the messages, and to that by which they are known
again. Never calls a script.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.bykeys import Piece, decode_pieces
from penstock.spark.claimed import ClaimedReader
from penstock.spark.reader import BATCH_BYTES_MOST, are_spilled, binary
from penstock.spark.scripting.gathered import Gathered, Head, Home, gathered
from penstock.spark.scripting.results import Mark, Marks
from penstock.spark.scripting.rows import AT_ONCE, COLUMNS
from penstock.spark.snapshot import SAID, Place, columns
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store.files import LocalFiles

READ_AT_ONCE = 2_000  # messages, if their bodies are small: what was read is still at hand when it is used

Heads = dict[bytes, Head]


class Part:
    """The messages of one part of the keys that are in a batch."""

    def __init__(self, number: int, pieces: Iterable[Piece], fail_if_gone: bool) -> None:
        self.number = number
        self._fail_if_gone = fail_if_gone
        found: dict[Place, list[Any]] = {}
        for piece in pieces:
            found.setdefault(piece.place, []).append(piece.references(self._reader(piece.place)))
        homes = ((place, np.concatenate(rows)) for place, rows in found.items())
        self._homes = [(place, _in_order(rows)) for place, rows in homes if len(rows)]  # none: their claim was lost

    def _reader(self, place: Place) -> Reader:
        return Reader(place, self._fail_if_gone)

    def marks(self) -> Marks:
        return {place.uuid: _mark(place, rows) for place, rows in self._homes}

    def without(self, known: Collection[str]) -> Part:
        """But for those in queues with these UUIDs."""
        self._homes = [(place, rows) for place, rows in self._homes if place.uuid not in known]
        return self

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._homes)

    def messages(self) -> Iterator[list[Gathered]]:
        """All of them, some at a time, as they are due, whichever queue they are in."""
        found = [self._reader(place).messages(rows) for place, rows in self._homes]
        if len(found) == 1:
            return found[0]
        merged = heapq.merge(*map(itertools.chain.from_iterable, found), key=lambda message: message.order)
        return iter(lambda: list(itertools.islice(merged, AT_ONCE)), [])


def part_of(pieces: bytes, *, fail_if_gone: bool) -> Part:
    """By what a task is told of it."""
    said = decode_pieces(pieces)
    return Part(said.part, said.pieces, fail_if_gone)


def _in_order(rows: Any) -> Any:
    """As they are due. Those of a claim nearly always are already, which is seen sooner than sorted."""
    priority, due_us, number = (SAID[name](rows) for name in ("priority", "deliver_at", "number"))
    later = (due_us[1:] > due_us[:-1]) | ((due_us[1:] == due_us[:-1]) & (number[1:] > number[:-1]))
    if later.all() and (priority[1:] == priority[:-1]).all():
        return rows
    return rows[np.lexsort((number, due_us, -priority))]


def _mark(place: Place, rows: Any) -> Mark:
    said = columns(rows)
    ids = binary(*G.identify(place.id_prefix.encode(), rows.reshape(-1), 0, len(rows)), pa.string())
    ends = pc.min_max(ids).as_py()
    return Mark(len(rows), ends["min"], ends["max"], int(said["number"].sum()), int(said["attempts"].sum()))


class Reader(ClaimedReader):
    """Reads messages of one queue as scripts want them."""

    def __init__(self, place: Place, fail_if_gone: bool) -> None:
        super().__init__(place, COLUMNS, conditions=[], batch_rows=READ_AT_ONCE, fail_if_gone=fail_if_gone)
        self._home = Home(place.path, place.id_prefix)

    def messages(self, rows: Any) -> Iterator[list[Gathered]]:
        """Those of these references, in their order, some at a time."""
        heads: Heads = {}
        with self._opened() as (files, gather, kernel):
            for chunk in self._chunks(rows):
                found, keep = self._collected(files, gather, kernel, chunk)
                if are_spilled(found).any():
                    yield from self._one_by_one(files, kernel, chunk, found, keep, heads)
                    continue
                for first in range(0, len(chunk), AT_ONCE):
                    yield self._gathered(chunk, found, heads, first, min(first + AT_ONCE, len(chunk)))

    def _gathered(self, rows: Any, found: G.Collected, heads: Heads, first: int, end: int) -> list[Gathered]:
        with self._corrupt_heads():
            return gathered(self._home, heads, memoryview(rows.reshape(-1)), found, first, end)

    def _one_by_one(
        self, files: LocalFiles, kernel: memoryview, rows: Any, found: G.Collected, keep: Any, heads: Heads
    ) -> Iterator[list[Gathered]]:
        """Where bodies are files of their own, which are as large as they are."""
        some: list[Gathered] = []
        size_bytes = 0
        for i in np.flatnonzero(keep).tolist():
            (message,) = self._gathered(rows, found, heads, i, i + 1)
            if found.flags[i] & L.FLAG_SPILLED:
                body = self._spilled_body(files, kernel, rows[i], message.data)
                if body is None:
                    continue
                message.data = body
            if some and (len(some) == AT_ONCE or size_bytes + len(message.data) > BATCH_BYTES_MOST):
                yield some
                some, size_bytes = [], 0
            some.append(message)
            size_bytes += len(message.data)
        if some:
            yield some
