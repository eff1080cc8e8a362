"""Owns the work of a task: the scripts of the messages of a part of the keys, in order, and what they lead to. All of
it is stored in the part's file with one transaction; a task that runs again finds it there, and calls nothing. Never
puts or acknowledges a message: that is the driver's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import BodyTooLarge, NoScript, PenstockError
from penstock.manager import QueueManager
from penstock.scripts import App
from penstock.scripts.calling import Kept, Stale, call, error_text
from penstock.scripts.targets import Targets
from penstock.scripts.worker import NO_SCRIPT
from penstock.spark import workers
from penstock.spark.scripting.batchstore import Batch, BatchStore
from penstock.spark.scripting.references import Part, parts
from penstock.spark.scripting.results import Marks, Result, encode, encode_marks, joined
from penstock.spark.scripting.rowmessage import RowMessage
from penstock.spark.scripting.rows import PartOfRows, parts_of_rows
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.directory import read_options
from penstock.store.files import Clock
from penstock.store.options import DELETE, Options
from penstock.timequeue.answers import DATA_BYTES_LEAST, share_of
from penstock.timequeue.arguments import BUSY_S
from penstock.timequeue.retries import text_of

LOOKED_UP = 500  # messages whose contexts are read together

MARKS = "marks"
OUTPUT = "part int, marks binary, results binary"
_ARROW = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("marks", pa.binary()),
        pa.field("results", pa.binary()),
    ]
)


class Caller:
    """Calls scripts, one message after the other; what they ask for is checked as far as it can be."""

    def __init__(self, app: App[Any], root: str) -> None:
        self._app = app
        self._root = root
        self._clock = Clock()
        self._manager: QueueManager | None = None
        self._targets: Targets | None = None
        self._homes: dict[str, Options] = {}

    def __call__(self, message: RowMessage, kept: Kept | None) -> tuple[Kept | None, Result | None]:
        """What is kept for its key from now on, and what else there is to do, if anything."""
        app = self._app
        now_us = self._clock.wall_us()
        try:
            outcome = call(app.name, app.scripts, app.states, kept, message, now_us)
            if outcome is None:
                return kept, None
            if not outcome.follow_ups and outcome.answer is None:
                return outcome.kept, None
            posts = [post for each in outcome.follow_ups for post in self._open().posts(each, now_us)]
            if outcome.answer is not None:
                self._check_answer(message, len(outcome.answer[1]))
            return outcome.kept, Result(self.uuid(message.queue), message.id, posts=posts, answer=outcome.answer)
        except Stale:
            return kept, None
        except (Exception, SystemExit) as error:
            home = self._home(message.queue)
            dead = isinstance(error, NoScript) and home.dead_letter != DELETE
            text = text_of(error_text(error))
            return kept, Result(home.uuid, message.id, error=text, reason=NO_SCRIPT if dead else None)

    def _check_answer(self, message: RowMessage, size_bytes: int) -> None:
        limit = share_of(self._home(message.queue).data_bytes, DATA_BYTES_LEAST)
        if size_bytes + 2 * L.UNIT_BYTES > limit:
            raise BodyTooLarge(f"{message.queue}/replies", body_bytes=size_bytes, limit_bytes=limit)

    def _home(self, path: str) -> Options:
        if path not in self._homes:
            self._homes[path] = read_options(Path(path))
        return self._homes[path]

    def uuid(self, path: str) -> str:
        """Of a queue that messages come from."""
        return self._home(path).uuid

    def _open(self) -> Targets:
        if self._targets is None:
            self._manager = QueueManager(self._root)
            self._targets = Targets(self._manager, self._app.input, self._clock)
        return self._targets

    def close(self) -> None:
        if self._targets is not None:
            self._targets.close()
        if self._manager is not None:
            self._manager.close()


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
        workers.keep_what_is_loaded()
        for part in self._parts_of(batches):
            done = self._run(part)
            values = [[part.number], [encode_marks(done.marks)], [done.results]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(value, type=field.type) for value, field in zip(values, _ARROW, strict=True)], schema=_ARROW
            )

    def _parts_of(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Part | PartOfRows]:
        return [part for part in parts(batches) if len(part.without(self._known))]

    def _run(self, part: Part | PartOfRows) -> Batch:
        path = self._parts[part.number]
        marks = part.marks()
        with contextlib.closing(BatchStore(Path(path), busy_s=BUSY_S)) as store:
            last = store.batch()
            if last is None or last.serial < self._serial:
                results, contexts = self._work(store, part.messages(fail_if_gone=self._fail_if_gone))
                last = store.keep_batch(Batch(self._serial, marks, results), contexts, time.time_ns() // 1000)
            if (last.serial, last.marks) != (self._serial, marks):
                raise differ(path, f"batch {self._serial}", marks, last)
            return last

    def _work(self, store: BatchStore, rows: Iterator[RowMessage]) -> tuple[bytes, dict[str, Kept | None]]:
        contexts: dict[str, Kept | None] = {}  # those that were looked for
        changed: set[str] = set()
        results: list[Result] = []
        with contextlib.closing(Caller(self._app, self._root)) as caller:
            while some := list(itertools.islice(rows, LOOKED_UP)):
                _look_up(store, contexts, some)
                for message in some:
                    key = message.key or ""
                    kept = contexts.get(key)
                    after, result = caller(message, kept)
                    if after is not kept:
                        contexts[key] = after
                        changed.add(key)
                    if result is not None:
                        results.append(result)
                rig.effect(rig.WRITE, "a task's messages")
        return encode(results), {key: contexts[key] for key in changed}


class TaskOfRows(Task):
    """The same where the messages themselves are in the rows, since something has been made of them before. They come
    sorted, by part and then as they are due."""

    def _parts_of(self, batches: Iterator[pa.RecordBatch]) -> Iterable[Part | PartOfRows]:
        return parts_of_rows(batches)


def _look_up(store: BatchStore, contexts: dict[str, Kept | None], some: Iterable[RowMessage]) -> None:
    new = list({key for message in some if (key := message.key) is not None and key not in contexts})
    contexts.update(dict.fromkeys(new))
    contexts.update(store.contexts(new))


def differ(path: str | os.PathLike[str], what: str, marks: Marks, stored: Batch) -> PenstockError:
    """A batch that is stored is passed over when it comes again. If other messages came, they would be lost."""
    return PenstockError(
        f"{path}: {what} has {_said(marks)}, but batch {stored.serial} is stored already, with {_said(stored.marks)}: "
        f"the checkpoint is older than the contexts, or a claim was released. Nothing was done; what to do: "
        f"docs/scripts-on-spark.md#when-checkpoint-and-contexts-disagree"
    )


def _said(marks: Marks) -> str:
    return ", ".join(f"{mark.count} messages from {mark.first} to {mark.last}" for mark in marks.values()) or "none"


def marked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """By what the messages of a batch are known again: what ``mapInArrow`` is given for that."""
    found = joined(part.marks() for part in parts(batches))
    yield pa.RecordBatch.from_arrays([pa.array([encode_marks(found)], type=pa.binary())], names=[MARKS])
