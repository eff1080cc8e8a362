"""Owns the work of tasks: a function called with each message, or with the messages of each key, and in the end what
each message leads to: messages to put, rows of tables, or that it failed. Never puts or acknowledges a message: that
is the driver's.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from penstock.codec import decode_body
from penstock.errors import Corrupt, NotAQueue, QueueBusy, TooManyClients, WrongFormat
from penstock.manager import QueueManager
from penstock.scripts.calling import error_text
from penstock.scripts.context import FollowUp, without_timer
from penstock.scripts.store import Post
from penstock.scripts.targets import Targets
from penstock.spark import workers
from penstock.spark.pipelines.calling import Answer, Function, caller_of
from penstock.spark.pipelines.definition import ATTEMPTS
from penstock.spark.pipelines.items import CHANGED, Changed, changed, items
from penstock.spark.pipelines.messages import PipelineMessage
from penstock.spark.scripting.batches import SinkLost
from penstock.spark.scripting.results import Mark, Marks, Result, encode, encode_marks, joined
from penstock.spark.scripting.rows import COLUMNS
from penstock.store.directory import read_options
from penstock.store.files import Clock
from penstock.timequeue.puts import Draft
from penstock.timequeue.retries import MAX_ATTEMPTS, text_of

# Columns of ours beside those of a message.
LIVE = "_live"  # whether it goes on
ERROR = "_error"  # why it failed
ORIGINS = "_origins"  # the messages that it comes of: of a group, several
SENT = "_sent"  # what it puts
TIMER = "_timer"  # that it is for the script alone
BY = "_by"  # what its group is grouped by, from there on

WHOSE = ("_queue", "_id")  # the last columns of a table's rows on their way: whose they are. Not written
SCRIPT = "script"  # what is left beside the results for the app, among the tables
OUTPUT = "part int, marks binary, results binary, beside binary"
_ARROW = pa.schema(
    [
        pa.field("part", pa.int32()),
        pa.field("marks", pa.binary()),
        pa.field("results", pa.binary()),
        pa.field("beside", pa.binary()),
    ]
)

# Of a sink: no message is to blame, and all wait until it is there again.
LOST = (NotAQueue, WrongFormat, Corrupt, QueueBusy, TooManyClients, OSError, MemoryError)

Beside = dict[str, list[bytes]]  # by the names of tables: rows, as Arrow has them
encode_beside = msgspec.msgpack.Encoder().encode
decode_beside = msgspec.msgpack.Decoder(Beside).decode


def column_of(table: int) -> str:
    """Of the rows of the n-th table."""
    return f"_table_{table}"


def packed(rows: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def unpacked(several: Sequence[bytes]) -> pa.Table:
    return pa.concat_tables(pa.ipc.open_stream(each).read_all() for each in several)


def _whole(batches: Iterator[pa.RecordBatch], key: Callable[[pa.RecordBatch], list[Any]]) -> Iterator[pa.RecordBatch]:
    """The same rows, with all that have one key, and come one after the other, in one batch."""
    rest: pa.RecordBatch | None = None
    for batch in batches:
        if rest is not None:
            batch = _joined([rest, batch])
        keys = key(batch)
        cut = len(keys)
        while cut and keys[cut - 1] == keys[-1]:
            cut -= 1
        if cut:
            yield batch.slice(0, cut)
        rest = batch.slice(cut)
    if rest is not None and rest.num_rows:
        yield rest


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (one,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return one


def _replaced(batch: pa.RecordBatch, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    arrays = [
        pa.array(columns[field.name], type=field.type) if field.name in columns else batch.column(field.name)
        for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


class Rows:
    """A batch whose rows are changed, one by one."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._columns = {name: batch.column(name).to_pylist() for name in (*CHANGED, LIVE, ERROR)}

    def change(self, row: int, to: Changed) -> None:
        for name, value in zip(CHANGED, msgspec.structs.astuple(to), strict=True):
            self._columns[name][row] = value

    def fail(self, row: int, error: str) -> None:
        self._columns[LIVE][row] = False
        self._columns[ERROR][row] = error

    def end(self, row: int) -> None:
        self._columns[LIVE][row] = False

    def batch(self, **more: list[Any]) -> pa.RecordBatch:
        return _replaced(self._batch, {**self._columns, **more})


class CallEach:
    """``mapInArrow``: a function is called with each message."""

    def __init__(self, title: str, function: Function, parsed: list[str]) -> None:
        self._title = title
        self._function = function
        self._parsed = parsed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workers.begin_task()
        clock = Clock()
        for batch in batches:
            rows = Rows(batch)
            there, errors = items(batch, self._parsed)
            goes_on = batch.column(LIVE).to_pylist()
            for n, error in errors.items():
                if goes_on[n]:
                    rows.fail(n, f"{self._title}: {error}")
            live = [n for n in range(len(there)) if goes_on[n] and n not in errors]
            answers = caller_of(self._function).calls([(there[n],) for n in live])
            for n, answer in zip(live, answers, strict=True):
                self._apply(rows, n, there[n], answer, clock.wall_us())
            yield rows.batch()

    def _apply(self, rows: Rows, n: int, message: PipelineMessage, answer: Answer, now_us: int) -> None:
        if answer.error is not None:
            rows.fail(n, f"{self._title}: {answer.error}")
        elif answer.result is not None:
            try:
                rows.change(n, changed(answer.result, message, now_us))
            except Exception as error:  # what it returned is no message
                rows.fail(n, _said(self._title, error))


class CallGroups:
    """``mapInArrow``: a function is called with the messages of each key. Rows come sorted by it."""

    def __init__(self, title: str, function: Function, parsed: list[str]) -> None:
        self._title = title
        self._function = function
        self._parsed = parsed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workers.begin_task()
        for batch in _whole(batches, lambda each: each.column(BY).to_pylist()):
            keys, live = batch.column(BY).to_pylist(), batch.column(LIVE).to_pylist()
            start = 0
            while start < len(keys):
                end = start + 1
                while end < len(keys) and keys[end] == keys[start]:
                    end += 1
                some = batch.slice(start, end - start)
                yield (
                    self._group(keys[start], some) if keys[start] is not None else self._without(some, live[start:end])
                )
                start = end

    def _without(self, batch: pa.RecordBatch, live: list[bool]) -> pa.RecordBatch:
        """Those that have ended already; and those whose key could not be had."""
        rows = Rows(batch)
        for n, goes_on in enumerate(live):
            if goes_on:
                rows.fail(n, f"{self._title}: what it is grouped by cannot be computed, or is null")
        return rows.batch()

    def _group(self, by: bytes, batch: pa.RecordBatch) -> pa.RecordBatch:
        messages, errors = items(batch, self._parsed)
        answer = self._answer(by, messages, errors)
        try:
            if answer.error is None:
                return self._results(batch, messages, answer.result)
            error = f"{self._title}: {answer.error}"
        except Exception as wrong:  # what it returned is no message
            error = _said(self._title, wrong)
        rows = Rows(batch)
        for n in range(batch.num_rows):
            rows.fail(n, error)
        return rows.batch()

    def _answer(self, by: bytes, messages: list[PipelineMessage], errors: dict[int, str]) -> Answer:
        if errors:
            n, error = min(errors.items())
            return Answer(error=f"message {messages[n].id}: {error}")
        (answer,) = caller_of(self._function).calls([(by.decode()[1:], messages)])
        return answer

    def _results(self, batch: pa.RecordBatch, messages: list[PipelineMessage], result: Any) -> pa.RecordBatch:
        """What goes on in their place, as if it were the first of them; all of them are what it comes of."""
        several = [] if result is None else result if isinstance(result, list | tuple) else [result]
        now_us = Clock().wall_us()
        made = [changed(each, messages[0], now_us) for each in several]
        origins = [origin for one in batch.column(ORIGINS).to_pylist() for origin in one]
        first = batch.take(pa.array([0] * max(len(made), 1)))
        rows = Rows(first)
        for n, each in enumerate(made):
            rows.change(n, each)
        if not made:
            rows.end(0)
        return rows.batch(**{ORIGINS: [origins] * first.num_rows})


def _said(title: str, error: BaseException) -> str:
    return f"{title}: {text_of(error_text(error))}"


class Finish:
    """``mapInArrow``: what all of it comes to."""

    def __init__(self, root: str, input: str, max_attempts: int | None, tables: list[str], *, script: bool) -> None:
        self._root = root
        self._input = input
        self._max_attempts = max_attempts
        self._tables = tables  # columns
        self._script = script

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workers.begin_task()
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        with contextlib.ExitStack() as opened:
            manager = opened.enter_context(QueueManager(self._root))
            targets = opened.enter_context(contextlib.closing(Targets(manager, self._input, Clock())))
            limits = Limits(self._max_attempts)
            for batch in _whole(batches, _bundles):
                values = [[part], *([each] for each in self._finished(batch, targets, limits))]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(value, type=field.type) for value, field in zip(values, _ARROW, strict=True)],
                    schema=_ARROW,
                )

    def _finished(self, batch: pa.RecordBatch, targets: Targets, limits: Limits) -> tuple[bytes, bytes, bytes]:
        origins = batch.column(ORIGINS).to_pylist()
        errors, sent = batch.column(ERROR).to_pylist(), batch.column(SENT).to_pylist()
        results: list[Result] = []
        marks: list[Marks] = []
        kept: list[int] = []  # rows of messages that have not failed
        bundles = _bundles(batch)
        start = 0
        while start < batch.num_rows:
            end = start + 1
            while end < batch.num_rows and bundles[end] == bundles[start]:
                end += 1
            error = next((each for each in errors[start:end] if each is not None), None)
            follow_ups = [each for some in sent[start:end] for each in some or ()]
            some = self._bundle(origins[start], error, follow_ups, targets, limits)
            if all(each.error is None for each in some):
                kept += range(start, end)
            results += some
            marks.append(joined(_mark(origin) for origin in origins[start]))
            start = end
        return encode_marks(joined(marks)), encode(results), encode_beside(self._beside(batch, kept))

    def _bundle(
        self, origins: list[dict[str, Any]], error: str | None, sent: list[Any], targets: Targets, limits: Limits
    ) -> list[Result]:
        """Of messages that succeed or fail together."""
        if error is None:
            try:
                now_us = Clock().wall_us()
                posts = [post for each in sent for post in self._posts(each, targets, now_us)]
                return [Result(origins[0]["queue"], origins[0]["id"], posts=posts)] if posts else []
            except SinkLost:
                raise
            except Exception as refused:  # a queue that cannot take it, ever
                error = text_of(error_text(refused))
        return [limits.failed(each["queue"], each["id"], each["attempts"], error) for each in origins]

    def _posts(self, sent: dict[str, Any], targets: Targets, now_us: int) -> list[Post]:
        follow_up = _follow_up(sent)
        try:
            return targets.posts(follow_up, now_us)
        except LOST as error:
            raise SinkLost(Path(self._root, sent["to"]), error) from error

    def _beside(self, batch: pa.RecordBatch, kept: list[int]) -> Beside:
        found: Beside = {}
        rows = batch.take(pa.array(kept, type=pa.int64()))
        for name in self._tables:
            column = rows.column(name)
            there = column.is_valid()
            if there.true_count:
                whose = [(queue, id) for _, queue, id in _bundles(rows.filter(there))]
                found[name] = [_table(column.filter(there), whose)]
        if self._script:
            live, timers = rows.column(LIVE).to_pylist(), rows.column(TIMER).to_pylist()
            goes_on = [n for n in range(rows.num_rows) if live[n] or timers[n]]
            if goes_on:
                found[SCRIPT] = [packed(rows.select(COLUMNS.fieldNames()).take(pa.array(goes_on)))]
        return found


def _bundles(batch: pa.RecordBatch) -> list[tuple[bytes | None, str, str]]:
    """What belongs together comes of the same message first, in one group: in two of them it is there twice, which the
    driver must know."""
    by, origins = batch.column(BY).to_pylist(), batch.column(ORIGINS).to_pylist()
    return [(group, origin[0]["queue"], origin[0]["id"]) for group, origin in zip(by, origins, strict=True)]


def _table(structs: Any, whose: list[tuple[str, str]]) -> bytes:
    """Rows of a table, with the messages that they come of."""
    count = structs.type.num_fields
    columns = [structs.field(n) for n in range(count)]
    names = [structs.type.field(n).name for n in range(count)]
    origins = [pa.array([each[n] for each in whose], type=pa.string()) for n in range(2)]
    return packed(pa.RecordBatch.from_arrays([*columns, *origins], [*names, *WHOSE]))


def _mark(origin: dict[str, Any]) -> Marks:
    return {origin["queue"]: Mark(1, origin["id"], origin["id"], origin["number"], origin["attempts"])}


def _follow_up(sent: dict[str, Any]) -> FollowUp:
    headers = without_timer(dict(sent["headers"] or ())) or None
    deliver_us = sent["deliver_us"]
    draft = Draft(
        body=decode_body(sent["codec"], sent["body"]),
        type=sent["type"],
        key=sent["key"],
        priority=sent["priority"],
        headers=headers,
        deliver_at=None if deliver_us is None else deliver_us / 1e6,
    )
    return FollowUp(sent["to"], draft)


class Limits:
    """How often a message is tried."""

    def __init__(self, max_attempts: int | None) -> None:
        self._max_attempts = max_attempts
        self._by_queue: dict[str, int | None] = {}

    def failed(self, queue: str, id: str, attempts: int, error: str) -> Result:
        """Of a message that failed: whether it comes again, as far as it is not the queue's to say."""
        limit = self._of(queue)
        return Result(queue, id, error=error, reason=MAX_ATTEMPTS if limit is not None and attempts >= limit else None)

    def _of(self, queue: str) -> int | None:
        """None where the queue has a limit, and the pipeline none."""
        if self._max_attempts is not None:
            return self._max_attempts
        if queue not in self._by_queue:
            self._by_queue[queue] = None if read_options(Path(queue)).max_attempts else ATTEMPTS
        return self._by_queue[queue]
