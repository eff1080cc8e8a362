"""Owns reading messages that references name, straight from the data files into Arrow batches.

Runs in Spark's executors: opens the files of the queue and is no client of it. Takes no lock and changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.codec import Meta, decode_meta
from penstock.errors import Corrupt, PenstockError, QueueNotFound
from penstock.spark.filters import Condition, by_head, passes
from penstock.spark.schema import FROM_SLOT
from penstock.spark.snapshot import SAID, Messages, Place
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store import record
from penstock.store.directory import read_options
from penstock.store.files import LocalFiles, body_name
from penstock.store.options import Options
from penstock.timequeue.models import WANTS_REPLY

# Of bodies in an Arrow batch, if there is more than one. Memory for so much is used again; with 32 MiB the system gives
# new pages for each batch, and rows of 4 KiB cost two and a half times as much.
BATCH_BYTES_MOST = 8 << 20
HEADS_AT_ONCE = 4_000  # without bodies: what was read is still at hand when it is looked at
BODY_BYTES_MOST = (1 << 31) - 1


class MessageGone(PenstockError):
    """A message of the snapshot was removed and overwritten before it was read."""


class MessageReader:
    """Turns references into Arrow batches of the wanted columns."""

    def __init__(
        self, place: Place, schema: StructType, *, conditions: list[Condition], batch_rows: int, fail_if_gone: bool
    ) -> None:
        self._place = place
        self._arrow_schema = to_arrow_schema(schema, timezone="UTC")
        names = set(schema.fieldNames())
        self._bodies = "body" in names
        self._conditions = by_head(conditions)
        self._heads = self._bodies or not names <= FROM_SLOT
        self._batch_rows = batch_rows
        self._fail_if_gone = fail_if_gone

    def read(self, partition: Messages) -> Iterator[pa.RecordBatch]:
        return self.read_rows(partition.references)

    def read_rows(self, references: Any) -> Iterator[pa.RecordBatch]:
        rows = np.frombuffer(references, dtype=np.uint64).reshape(-1, G.REFERENCE_WORDS)
        if not self._heads and not self._conditions:
            for start in range(0, len(rows), self._batch_rows):
                yield self._batch(rows[start : start + self._batch_rows], {})
            return
        with self._opened() as (files, gather, kernel):
            yield from self._read(files, gather, kernel, rows)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[LocalFiles, G.Gather, memoryview]]:
        options = self._options()
        files = LocalFiles(Path(self._place.path), options, busy_s=self._place.busy_s)
        gather = G.Gather(files.mappings(), options.signature, files.descriptors())
        kernel = memoryview(files.kernel).cast("Q")
        try:
            yield files, gather, kernel
        finally:
            kernel.release()
            gather.close()
            files.close()

    def keys(self, rows: Any) -> tuple[list[str | None], Any]:
        """The keys that there are, and which of them each message has. One that is gone has none here: whoever reads it
        says what is to be said about it."""
        flat = rows.reshape(-1)
        known: dict[bytes, int] = {}
        which: Any = np.empty(len(rows), dtype=np.int32)
        with self._opened() as (_, gather, kernel):
            for first in range(0, len(rows), HEADS_AT_ONCE):
                count = min(HEADS_AT_ONCE, len(rows) - first)
                found = gather.collect(flat, first, count, False)
                G.still_there(kernel, kernel[L.H_SLOTS_AT], flat, first, count, found.faults)
                G.tell_apart(found.metas, found.faults, known, which[first : first + count])
        return [meta.k for meta in self._metas(known)], which

    def _options(self) -> Options:
        options = read_options(Path(self._place.path))
        if options.uuid != self._place.uuid:
            raise QueueNotFound(f"{self._place.path}: another queue is here now")
        return options

    def _read(self, files: LocalFiles, gather: G.Gather, kernel: memoryview, rows: Any) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks(rows):
            if self._conditions:
                chunk = self._passing(gather, chunk)
            if len(chunk):
                yield from self._read_chunk(files, gather, kernel, chunk)

    def _chunks(self, rows: Any) -> Iterator[Any]:
        """Runs of references whose records fit a batch together."""
        ends = np.cumsum((rows[:, G.F_PLACE] & np.uint64(L.PLACE_MASK)).astype(np.int64) * L.UNIT_BYTES)
        start = done_bytes = 0
        while start < len(rows):
            end = int(np.searchsorted(ends, done_bytes + BATCH_BYTES_MOST, side="right"))
            end = min(max(end, start + 1), start + self._batch_rows)
            yield rows[start:end]
            start = end
            done_bytes = int(ends[end - 1])

    def _passing(self, gather: G.Gather, rows: Any) -> Any:
        """Leave out what its head says cannot pass. What cannot be read here is kept, and looked at again."""
        found = gather.collect(rows.reshape(-1), 0, len(rows), False)
        metas, which = self._decoded(found)
        keep = [
            fault != G.GATHERED or passes(self._conditions, metas[i], enqueued_us)
            for fault, i, enqueued_us in zip(found.faults, which, found.enqueued_us, strict=True)
        ]
        return rows[np.array(keep, dtype=bool)]

    def _decoded(self, found: G.Collected) -> tuple[list[Meta], Any]:
        """Each meta that there is, decoded, and which of them each message has."""
        if found.metas and found.one_meta:  # above all, none says anything
            return self._metas(found.metas[:1]), np.zeros(len(found.metas), dtype=np.int32)
        known: dict[bytes, int] = {}
        which: Any = np.empty(len(found.metas), dtype=np.int32)
        G.tell_apart(found.metas, found.faults, known, which)
        return self._metas(known), which

    def _metas(self, known: Iterable[bytes]) -> list[Meta]:
        with self._corrupt_heads():
            return [decode_meta(meta) for meta in known]

    @contextlib.contextmanager
    def _corrupt_heads(self) -> Iterator[None]:
        """An error of what decodes them, said in our words."""
        try:
            yield
        except msgspec.DecodeError as error:
            raise Corrupt(self._place.path, offset=0, expected="type, key and headers", found=str(error)) from error

    def _read_chunk(
        self, files: LocalFiles, gather: G.Gather, kernel: memoryview, rows: Any
    ) -> Iterator[pa.RecordBatch]:
        if not self._heads:
            yield self._batch(rows, {})
            return
        found, keep = self._collected(files, gather, kernel, rows)
        arrays = self._head_arrays(found)
        if self._bodies and are_spilled(found).any():
            yield from self._with_spilled(files, kernel, rows, found, arrays, keep)
            return
        if self._bodies:
            arrays["body"] = binary(found.bodies, found.body_ends)
        batch = self._batch(rows, arrays)
        yield batch if keep.all() else batch.filter(pa.array(keep))

    def _collected(self, files: LocalFiles, gather: G.Gather, kernel: memoryview, rows: Any) -> tuple[G.Collected, Any]:
        """The records of these rows, and which of them were there."""
        flat = rows.reshape(-1)
        found = gather.collect(flat, 0, len(rows), self._bodies)
        slots_at = kernel[L.H_SLOTS_AT]
        if not self._bodies:
            # Without bodies there is no checksum: what was copied counts if the message had not left meanwhile.
            G.still_there(kernel, slots_at, flat, 0, len(rows), found.faults)
        keep = np.frombuffer(found.faults, dtype=np.uint8) == G.GATHERED
        if not keep.all():
            for row in rows[~keep]:
                self._explain(files, kernel, slots_at, row)
        return found, keep

    def _head_arrays(self, found: G.Collected) -> dict[str, Any]:
        names = self._arrow_schema.names
        arrays: dict[str, Any] = {}
        if "enqueued_at" in names:
            arrays["enqueued_at"] = pa.array(np.frombuffer(found.enqueued_us, dtype=np.int64)).cast(
                self._arrow_schema.field("enqueued_at").type
            )
        said = [name for name in names if name in FROM_META]
        if said:
            metas, which = self._decoded(found)
            for name in said:
                values = [FROM_META[name](meta) for meta in metas]
                arrays[name] = spread(values, which, self._arrow_schema.field(name).type)
        return arrays

    def _with_spilled(
        self, files: LocalFiles, kernel: memoryview, rows: Any, found: G.Collected, arrays: dict[str, Any], keep: Any
    ) -> Iterator[pa.RecordBatch]:
        """Bodies in files of their own are read one by one; a batch ends when it is large enough."""
        bodies: list[bytes] = []
        picked: list[int] = []
        size_bytes = 0
        for i in np.flatnonzero(keep).tolist():
            body: bytes | None = bytes(found.bodies[found.body_ends[i] : found.body_ends[i + 1]])
            if found.flags[i] & L.FLAG_SPILLED:
                body = self._spilled_body(files, kernel, rows[i], body or b"")
                if body is None:
                    continue
            assert body is not None
            if bodies and size_bytes + len(body) > BATCH_BYTES_MOST:
                yield self._picked(rows, arrays, picked, bodies)
                bodies, picked, size_bytes = [], [], 0
            bodies.append(body)
            picked.append(i)
            size_bytes += len(body)
        if bodies:
            yield self._picked(rows, arrays, picked, bodies)

    def _picked(self, rows: Any, arrays: dict[str, Any], picked: list[int], bodies: list[bytes]) -> pa.RecordBatch:
        taken = {name: array.take(pa.array(picked)) for name, array in arrays.items()}
        taken["body"] = pa.array(bodies, type=pa.binary())
        return self._batch(rows[picked], taken)

    def _spilled_body(self, files: LocalFiles, kernel: memoryview, row: Any, reference: bytes) -> bytes | None:
        number, slot = int(row[G.F_NUMBER]), int(row[G.F_SLOT])
        length, check = L.SPILL.unpack(reference)
        if length > BODY_BYTES_MOST:
            raise PenstockError(f"{files.name}: message {number} has {length} bytes, too many for a row of Spark's")
        try:
            body = files.read_body(body_name(number, slot))
        except FileNotFoundError:
            body = b""
        if len(body) == length and record.crc32(body) == check:
            return body
        self._explain(files, kernel, kernel[L.H_SLOTS_AT], row)
        return None

    def _explain(self, files: LocalFiles, kernel: memoryview, slots_at: int, row: Any) -> None:
        """A record could not be read: it is damaged if its message is still there, else the message is gone."""
        number, slot = int(row[G.F_NUMBER]), int(row[G.F_SLOT])
        word = kernel[slots_at + slot * L.SLOT_WORDS + L.S_WORD]
        if word >> L.NUMBER_SHIFT == number and (word >> L.STATE_SHIFT) & 0xF >= L.STATE_WAITING:
            path, offset = files.place_of(int(row[G.F_PLACE]) >> L.PLACE_SHIFT)
            raise Corrupt(path, offset=offset, expected=f"the record of message {number}")
        if self._fail_if_gone:
            raise self._gone(f"{files.name}: message {self._place.id_prefix}{slot:x}-{number:x}")

    def _gone(self, message: str) -> PenstockError:
        return MessageGone(
            f"{message} was removed while the queue was read; read again, or leave such messages out with option "
            f"onGone=skip"
        )

    def _batch(self, rows: Any, arrays: dict[str, Any]) -> pa.RecordBatch:
        """What references say, beside what was read."""
        made = []
        for field in self._arrow_schema:
            if field.name in arrays:
                made.append(arrays[field.name])
            elif field.name == "id":
                data, ends = G.identify(
                    self._place.id_prefix.encode(), np.ascontiguousarray(rows).reshape(-1), 0, len(rows)
                )
                made.append(binary(data, ends, pa.string()))
            elif field.name == "queue":
                made.append(pa.repeat(pa.scalar(self._place.path, pa.string()), len(rows)))
            else:
                made.append(pa.array(SAID[field.name](rows)).cast(field.type))
        return pa.RecordBatch.from_arrays(made, schema=self._arrow_schema)


def are_spilled(found: G.Collected) -> Any:
    """Of which records the body is a file of its own: not zero."""
    return np.frombuffer(found.flags, dtype=np.uint8) & np.uint8(L.FLAG_SPILLED)


# What the meta of a record says.
FROM_META: dict[str, Callable[[Meta], Any]] = {
    "type": lambda meta: meta.t,
    "key": lambda meta: meta.k,
    "headers": lambda meta: list(meta.h.items()) if meta.h else None,
    "wants_reply": lambda meta: meta.q is not None and meta.q[0] == WANTS_REPLY,
}


def spread(values: list[Any], which: Any, kind: pa.DataType) -> pa.Array:
    """For each message the value that is its own. Often all have the same: most of all, none."""
    if all(value == values[0] for value in values):
        same = values[0]
        return pa.nulls(len(which), kind) if same is None else pa.repeat(pa.scalar(same, kind), len(which))
    return pa.array(values, type=kind).take(pa.array(which))


def binary(data: Any, ends: Any, kind: Any = None) -> pa.Array:
    """Bytes and their ends as an Arrow array, without a copy."""
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(ends) - 1, buffers)
