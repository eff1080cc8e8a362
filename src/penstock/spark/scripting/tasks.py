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
from penstock.spark.scripting.references import Part, part_of
from penstock.spark.scripting.results import Marks, Result, Worked, encode, encode_marks, encode_worked
from penstock.spark.scripting.rowmessage import RowMessage
from penstock.spark.scripting.rows import PartOfRows, parts_of_rows
from penstock.store import rig
from penstock.timequeue.arguments import BUSY_S

OUTPUT = "part int, marks binary, results binary"
_ARROW = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("marks", pa.binary()),
        pa.field("results", pa.binary()),
    ]
)


class _Task:
    """The scripts of one part of the keys."""

    def __init__(self, app: App[Any], root: str, parts: list[str], serial: int) -> None:
        self._app = app
        self._root = root
        self._parts = parts  # files
        self._serial = serial

    def _run(self, part: Part | PartOfRows) -> Worked:
        path = self._parts[part.number]
        marks = part.marks()
        with contextlib.closing(BatchStore(Path(path), busy_s=BUSY_S)) as store:
            last = store.batch()
            if last is None or last.serial < self._serial:
                results, contexts = self._work(store, part.messages())
                last = store.keep_batch(Batch(self._serial, marks, results), contexts, time.time_ns() // 1000)
            if (last.serial, last.marks) != (self._serial, marks):
                raise differ(path, f"batch {self._serial}", marks, last)
            return Worked(part.number, encode_marks(last.marks), last.results)

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


class Task(_Task):
    """What is done with each part of a batch, where it is read. ``known`` are UUIDs of queues whose messages in this
    batch are done."""

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
        super().__init__(app, root, parts, serial)
        self._known = known
        self._fail_if_gone = fail_if_gone

    def __call__(self, pieces: bytes) -> bytes | None:
        part = part_of(pieces, fail_if_gone=self._fail_if_gone).without(self._known)
        return encode_worked(self._run(part)) if len(part) else None


class TaskOfRows(_Task):
    """What ``mapInArrow`` is given: the same where the messages themselves are in the rows, since something has been
    made of them before. They come sorted, by part and then as they are due."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workers.begin_task()
        for part in parts_of_rows(batches):
            done = self._run(part)
            values = [[done.part], [done.marks], [done.results]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(value, type=field.type) for value, field in zip(values, _ARROW, strict=True)], schema=_ARROW
            )


class Marker:
    """What is done with each part of a batch to know it again: its messages are looked up, and nothing else."""

    def __init__(self, *, fail_if_gone: bool) -> None:
        self._fail_if_gone = fail_if_gone

    def __call__(self, pieces: bytes) -> bytes | None:
        part = part_of(pieces, fail_if_gone=self._fail_if_gone)
        return encode_marks(part.marks()) if len(part) else None


def differ(path: str | os.PathLike[str], what: str, marks: Marks, stored: Batch) -> PenstockError:
    """A batch that is stored is passed over when it comes again. If other messages came, they would be lost."""
    return PenstockError(
        f"{path}: {what} has {_said(marks)}, but batch {stored.serial} is stored already, with {_said(stored.marks)}: "
        f"the checkpoint is older than the contexts, or a claim was released. Nothing was done; what to do: "
        f"docs/scripts-on-spark.md#when-checkpoint-and-contexts-disagree"
    )


def _said(marks: Marks) -> str:
    return ", ".join(f"{mark.count} messages from {mark.first} to {mark.last}" for mark in marks.values()) or "none"
