"""Owns the driver's side of a pipeline's batch: what its tasks came to is written down with one transaction, then it is
put, written to tables, and said of the messages. With a script, what comes before it is written down first: a function
that is called again may come to something else. Each step can be done again. Never calls a function.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.scripts.outbox import Outbox
from penstock.spark.pipelines.definition import Definition
from penstock.spark.pipelines.place import PipelinePlace
from penstock.spark.pipelines.tasks import (
    SCRIPT,
    WHOSE,
    Beside,
    Limits,
    column_of,
    decode_beside,
    encode_beside,
    packed,
    unpacked,
)
from penstock.spark.scripting.batches import Batches, Outcomes, following
from penstock.spark.scripting.batchstore import Batch, BatchStore
from penstock.spark.scripting.place import receiver_of
from penstock.spark.scripting.results import Marks, Result, decode, decode_marks, encode, encode_marks, joined, uuid_of
from penstock.spark.scripting.tasks import differ

Write = Callable[[str, str, Any], None]  # a table's folder, by what the batch is named there, its rows
RunScript = Callable[[Any, int], Iterable[Result]]  # rows, the batch's serial number

log = logging.getLogger("penstock")


class Collected(msgspec.Struct, frozen=True):
    """What the tasks of a batch came to."""

    marks: Marks
    results: bytes
    beside: bytes
    app: str = ""  # whose scripts wait


class Counts(msgspec.Struct):
    """Of a batch: what became of its messages."""

    messages: int = 0
    put: int = 0  # messages into sinks
    rows: int = 0  # of tables
    failed: int = 0  # they come again
    dead: int = 0


class PipelineStore(BatchStore):
    """The driver's store: the last batch, what is to be put, and rows that are not in their tables yet."""

    schema = (
        BatchStore.schema
        + """
CREATE TABLE IF NOT EXISTS beside (serial INTEGER PRIMARY KEY, name TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS staged (serial INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
    )

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.coming: Beside = {}  # what is to be stored beside the next batch

    def _note(self, batch: Batch) -> None:
        super()._note(batch)
        self._db.execute("DELETE FROM staged")
        if self.coming:
            said = (batch.serial, _name(batch.serial), encode_beside(self.coming))
            self._db.execute("INSERT INTO beside VALUES (?, ?, ?)", said)

    def beside(self) -> list[tuple[int, str, Beside]]:
        """Serial numbers of batches, by what they are named in tables, and rows."""
        with self._told():
            found = self._db.execute("SELECT serial, name, data FROM beside ORDER BY serial")
            return [(serial, name, decode_beside(data)) for serial, name, data in found]

    def written(self, serial: int) -> None:
        with self._told(), self._transaction():
            self._db.execute("DELETE FROM beside WHERE serial = ?", (serial,))

    def staged(self, serial: int) -> Collected | None:
        with self._told():
            found = self._db.execute("SELECT data FROM staged WHERE serial = ?", (serial,)).fetchone()
        return None if found is None else msgspec.msgpack.decode(found[0], type=Collected)

    def stage(self, serial: int, collected: Collected) -> None:
        with self._told(), self._transaction():
            self._db.execute("DELETE FROM staged")
            self._db.execute("INSERT INTO staged VALUES (?, ?)", (serial, msgspec.msgpack.encode(collected)))


class PipelineBatches(Batches):
    """Those of one pipeline."""

    stores = PipelineStore
    what = "the pipeline"

    def __init__(
        self,
        definition: Definition,
        place: PipelinePlace,
        write: Write,
        run_script: RunScript | None,
        app: str = "",
    ) -> None:
        super().__init__(
            definition,
            place,
            receiver_of(definition.name),
            definition.retry_delay,
            definition.wait,
            may_be_gone=definition.skips_gone,
        )
        self._definition = definition
        self._write = write
        self._run_script = run_script
        self._scripts = app  # by whose name they and their contexts are known
        # Rows wait by their folders: steps may be others when what is left of a batch is done.
        self._folders = {column_of(n): step.table for n, step in enumerate(definition.tables)}
        self.counts: dict[int, Counts] = {}  # of the last batches, by Spark's numbers

    def run(self, number: int, outcomes: Outcomes, marked: Callable[[], Marks]) -> None:
        self._counted = Counts()
        super().run(number, outcomes, marked)
        self.counts[number] = self._counted
        while len(self.counts) > 200:
            del self.counts[min(self.counts)]

    def _work(self, store: BatchStore, number: int, outcomes: Outcomes, marked: Callable[[], Marks]) -> Batch:
        assert isinstance(store, PipelineStore)
        self._finish_staged(store, marked)

        def decided(serial: int, known: set[str]) -> list[Any]:
            found = self._collect(store, serial, outcomes(serial, known))
            self._check_groups(found.marks, known, marked)
            results = self._decided(store, serial, found)
            return [{"part": 0, "marks": encode_marks(found.marks), "results": encode(results)}]

        return super()._work(store, number, decided, marked)

    def _finish_staged(self, store: PipelineStore, marked: Callable[[], Marks]) -> None:
        """What messages came to before the script, if a driver was killed since: it was run for some of them, perhaps,
        and must get the same. That is a batch of its own, as if of an earlier checkpoint: what Spark gives now may have
        more than that, or a part of it, where its log was lost, and what is done is known then."""
        last = store.batch() or Batch(0, {}, encode([]))
        staged = store.staged(last.serial + 1)
        if staged is None:
            return
        there = marked()
        if any(there.get(queue, mark) != mark for queue, mark in staged.marks.items()):
            raise differ(self._place.driver, "what Spark gives", there, Batch(last.serial + 1, staged.marks, b""))
        results = self._decided(store, last.serial + 1, staged)
        batch = following(last, "", 0, staged.marks, results, pending=last.last, known={})
        self._store(store, batch, results)

    def _decided(self, store: PipelineStore, serial: int, found: Collected) -> list[Result]:
        """With what the script came to. Rows of tables are left with the store."""
        results, beside = decode(found.results), decode_beside(found.beside)
        rows = beside.pop(SCRIPT, None)
        if rows is not None:
            paths = self._paths(found.marks)
            self._require_script(serial, found.app)
            results, beside = self._with_script(results, beside, unpacked(rows), serial, paths)
        store.coming = beside
        self._count(found.marks, results, beside)
        return results

    def _whole(self, number: int, outcomes: Outcomes, marked: Callable[[], Marks]) -> Outcomes:
        """Where functions come before a group it is ``_check_groups`` that looks, more closely."""
        return outcomes if self._definition.calls_before_group else super()._whole(number, outcomes, marked)

    def _told_of(self, rows: list[Any]) -> dict[str, int]:
        """Tasks name queues by their paths."""
        return {uuid_of(path): count for path, count in super()._told_of(rows).items()}

    def _check_groups(self, marks: Marks, known: set[str], marked: Callable[[], Marks]) -> None:
        """If an executor is lost on the way to the groups, Spark calls functions before them again, for some messages:
        one that is given another key by that is in two groups, or in none, and nobody would know that it failed."""
        if not self._definition.calls_before_group:
            return
        there = {queue: mark for queue, mark in marked().items() if queue not in known}
        if marks != there:
            raise PenstockError(
                f"{self._definition.name}: not every message of the batch is in one group: functions before the group "
                f"were called twice, with other results. Nothing was done; the pipeline can be started again"
            )

    def _collect(self, store: PipelineStore, serial: int, outcomes: list[Any]) -> Collected:
        """Tasks name queues by their paths, and tables by their columns, which may be others when it is read."""
        marks: list[Marks] = []
        results: list[Result] = []
        beside: Beside = {}
        for row in sorted(outcomes, key=lambda row: row["part"]):
            marks.append(decode_marks(row["marks"]))
            results += decode(row["results"])
            for name, several in decode_beside(row["beside"]).items():
                beside.setdefault(self._folders.get(name, name), []).extend(several)
        by_path = joined(marks)
        uuids = {path: uuid_of(path) for path in by_path}
        if self._run_script is not None:  # which may fail a message, and then its rows are looked for
            beside = {name: _of_queues(uuids, several, _column(name)) for name, several in beside.items()}
        found = Collected(
            {uuids[path]: mark for path, mark in by_path.items()},
            encode([msgspec.structs.replace(each, queue=uuids[each.queue]) for each in results]),
            encode_beside(beside),
            self._scripts,
        )
        if self._run_script is not None and found.marks:
            store.stage(serial, found)
        return found

    def _require_script(self, serial: int, app: str) -> None:
        """Of the app that messages wait for: another one would do what it has done with some of them, perhaps."""
        if self._run_script is None:
            raise PenstockError(
                f"{self._place.driver}: messages of batch {serial} wait for their script, and the pipeline has none "
                f"any more; start it once with this step"
            )
        if app not in ("", self._scripts):
            raise PenstockError(
                f"{self._place.driver}: messages of batch {serial} wait for the scripts of {app!r}, and the step has "
                f"those of {self._scripts!r} now; start it once with the app that it had"
            )

    def _with_script(
        self, results: list[Result], beside: Beside, rows: pa.Table, serial: int, paths: dict[str, str]
    ) -> tuple[list[Result], Beside]:
        """What the script came to counts, too: a message that it failed has put nothing before it either."""
        assert self._run_script is not None
        limits = Limits(self._definition.max_attempts)
        attempts = dict(zip(_keys(rows, ("queue", "id")), rows.column("attempts").to_pylist(), strict=True))
        by_message = {(each.queue, each.id): each for each in results}
        failed = set()
        for each in self._run_script(_mapped(rows, "queue", paths), serial):
            key = each.queue, each.id
            if each.error is not None:
                failed.add(key)
                reason = each.reason or limits.failed(paths[each.queue], each.id, attempts[key], each.error).reason
                by_message[key] = msgspec.structs.replace(each, reason=reason)
            else:
                before = by_message[key].posts if key in by_message else []
                by_message[key] = msgspec.structs.replace(each, posts=[*before, *each.posts])
        if failed:
            beside = {name: kept for name, several in beside.items() if (kept := _without(several, failed))}
        return list(by_message.values()), beside

    def _count(self, marks: Marks, results: list[Result], beside: Beside) -> None:
        counted = self._counted
        counted.messages += sum(mark.count for mark in marks.values())
        counted.put += sum(len(each.posts) for each in results)
        counted.rows += sum(unpacked(several).num_rows for several in beside.values())
        counted.failed += sum(each.error is not None and each.reason is None for each in results)
        counted.dead += sum(each.reason is not None for each in results)

    # ------------------------------------------------------------ putting, and writing

    def _outbox(self, store: BatchStore, targets: Any, now_us: Callable[[], int]) -> Outbox:
        return Outbox(self._definition.name, store, targets, now_us, lambda name, slot: receiver_of(name))

    def _put(self, store: BatchStore, outbox: Outbox) -> None:
        """Also rows that are stored and may not be in their tables."""
        assert isinstance(store, PipelineStore)
        super()._put(store, outbox)
        for serial, name, beside in store.beside():
            for folder, several in beside.items():
                self._write(folder, name, unpacked(several).drop_columns(list(WHOSE)))
            store.written(serial)

    def _inputs(self) -> list[str]:
        return self._definition.sources


def _name(serial: int) -> str:
    """Of a batch in tables, made once: a store that was put back from an old copy counts from where that was, and what
    was written since is not written over."""
    return f"{serial:08d}-{uuid.uuid4().hex[:8]}"


def _column(name: str) -> str:
    """Where rows of a table, or for the script, say which queue they come of."""
    return "queue" if name == SCRIPT else WHOSE[0]


def _of_queues(names: dict[str, str], several: list[bytes], column: str) -> list[bytes]:
    return [packed(batch) for batch in _mapped(unpacked(several), column, names).to_batches()]


def _mapped(rows: pa.Table, column: str, names: dict[str, str]) -> pa.Table:
    """The same rows, with other names for their queues."""
    said = pa.array([names[each] for each in rows.column(column).to_pylist()], type=pa.string())
    return rows.set_column(rows.schema.get_field_index(column), column, said)


def _keys(rows: pa.Table, columns: tuple[str, str]) -> list[tuple[str, str]]:
    first, second = (rows.column(name).to_pylist() for name in columns)
    return list(zip(first, second, strict=True))


def _without(several: list[bytes], failed: set[tuple[str, str]]) -> list[bytes]:
    """Rows of a table but those of messages that failed."""
    rows = unpacked(several)
    kept = [n for n, key in enumerate(_keys(rows, WHOSE)) if key not in failed]
    if not kept:
        return []
    return [packed(batch) for batch in rows.take(pa.array(kept)).combine_chunks().to_batches()]
