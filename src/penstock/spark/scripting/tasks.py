"""Owns the work of a task: the scripts of the messages of a part of the keys, in order, and what they lead to. All of
it is stored in the part's file with one transaction; a task that runs again finds it there, and calls nothing. Never
puts or acknowledges a message: that is the driver's.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.scripts import App
from penstock.scripts.calling import Held, Kept
from penstock.spark import workers
from penstock.spark.scripting.batchstore import Batch, BatchStore
from penstock.spark.scripting.calls import Caller
from penstock.spark.scripting.gathered import Gathered
from penstock.spark.scripting.references import Part, parts
from penstock.spark.scripting.results import Marks, Result, encode, encode_marks, joined
from penstock.spark.scripting.rowmessage import RowMessage
from penstock.spark.scripting.rows import PartOfRows, parts_of_rows
from penstock.store import rig
from penstock.timequeue.arguments import BUSY_S

MARKS = "marks"
OUTPUT = "part int, marks binary, results binary"
_ARROW = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("marks", pa.binary()),
        pa.field("results", pa.binary()),
    ]
)


class Task:
    """What ``mapInArrow`` is given: a task has one part of the keys. ``known`` are UUIDs of queues whose messages in
    this batch are done."""

    def __init__(
        self,
        app: App[Any],
        root: str,
        parts: list[str],
        serial: int,
        *,
        known: Collection[str] = (),
        fail_if_gone: bool = True,
    ) -> None:
        self._app = app
        self._root = root
        self._parts = parts  # files
        self._serial = serial
        self._known = known
        self._fail_if_gone = fail_if_gone

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workers.begin_task()
        for part in self._parts_of(batches):
            done = self._run(part)
            values = [[part.number], [encode_marks(done.marks)], [done.results]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(value, type=field.type) for value, field in zip(values, _ARROW, strict=True)], schema=_ARROW
            )

    def _parts_of(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Part | PartOfRows]:
        found = parts(batches, fail_if_gone=self._fail_if_gone)
        return [part for part in found if len(part.without(self._known))]

    def _run(self, part: Part | PartOfRows) -> Batch:
        path = self._parts[part.number]
        marks = part.marks()
        with contextlib.closing(BatchStore(Path(path), busy_s=BUSY_S)) as store:
            last = store.batch()
            if last is None or last.serial < self._serial:
                results, contexts = self._work(store, part.messages())
                last = store.keep_batch(Batch(self._serial, marks, results), contexts, time.time_ns() // 1000)
            if (last.serial, last.marks) != (self._serial, marks):
                raise differ(path, f"batch {self._serial}", marks, last)
            return last

    def _work(
        self, store: BatchStore, messages: Iterable[list[Gathered] | list[RowMessage]]
    ) -> tuple[bytes, dict[str, Kept | None]]:
        contexts: dict[str, Held] = {}  # those that were looked for
        results: list[Result] = []
        with contextlib.closing(Caller(self._app, self._root)) as caller:
            for some in messages:
                caller.call_all(some, contexts, store.contexts, results)
                rig.effect(rig.WRITE, "a task's messages")
        return encode(results), {key: each.kept for key, each in contexts.items() if each.changed}


class TaskOfRows(Task):
    """The same where the messages themselves are in the rows, since something has been made of them before. They come
    sorted, by part and then as they are due."""

    def _parts_of(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Part | PartOfRows]:
        return parts_of_rows(batches)


def differ(path: str | os.PathLike[str], what: str, marks: Marks, stored: Batch) -> PenstockError:
    """A batch that is stored is passed over when it comes again. If other messages came, they would be lost."""
    return PenstockError(
        f"{path}: {what} has {_said(marks)}, but batch {stored.serial} is stored already, with {_said(stored.marks)}: "
        f"the checkpoint is older than the contexts, or a claim was released. Nothing was done; what to do: "
        f"docs/scripts-on-spark.md#when-checkpoint-and-contexts-disagree"
    )


def _said(marks: Marks) -> str:
    return ", ".join(f"{mark.count} messages from {mark.first} to {mark.last}" for mark in marks.values()) or "none"


def marked(batches: Iterator[pa.RecordBatch], *, fail_if_gone: bool) -> Iterator[pa.RecordBatch]:
    """By what the messages of a batch are known again: what ``mapInArrow`` is given for that."""
    found = joined(part.marks() for part in parts(batches, fail_if_gone=fail_if_gone))
    yield pa.RecordBatch.from_arrays([pa.array([encode_marks(found)], type=pa.binary())], names=[MARKS])
