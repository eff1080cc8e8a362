"""A pipeline led as Spark leads it, without Spark: see fakespark.py. What its steps came to is made up here; what
follows is the real thing: the end of a task, the scripts, and the driver's side of a batch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.scripts import App
from penstock.spark.pipelines.batches import PipelineBatches
from penstock.spark.pipelines.definition import Definition
from penstock.spark.pipelines.definition import Script as ScriptStep
from penstock.spark.pipelines.definition import Table as TableStep
from penstock.spark.pipelines.place import PipelinePlace
from penstock.spark.pipelines.tasks import BY, ERROR, LIVE, ORIGINS, SENT, TIMER, Finish, column_of
from penstock.spark.schema import PART
from penstock.spark.scripting.place import PARTS, Place, receiver_of
from penstock.spark.scripting.query import settled
from penstock.spark.scripting.results import Marks, Result, decode, marks_of, uuid_of
from penstock.spark.scripting.rows import COLUMNS, messages
from penstock.spark.scripting.tasks import TaskOfRows
from penstock.store import rig
from tests.spark.fakespark import FakeSpark, Rows, Tasks, mapped

ORDER = [(PART, "ascending"), ("priority", "descending"), ("deliver_at", "ascending"), ("number", "ascending")]

_TEXT = pa.string()
_ORIGIN = pa.struct([("queue", _TEXT), ("id", _TEXT), ("number", pa.int64()), ("attempts", pa.int32())])
_MESSAGE = pa.struct(
    [
        ("to", _TEXT), ("codec", pa.int32()), ("body", pa.binary()), ("type", _TEXT), ("key", _TEXT),
        ("priority", pa.int32()), ("headers", pa.map_(_TEXT, _TEXT)), ("deliver_us", pa.int64()),
    ]
)  # fmt: skip
_ROW = pa.struct([("n", pa.int64())])


class FakePipeline(FakeSpark):
    """One driver. Its messages are numbers: ``error`` says of a number and an attempt why it fails; others are put into
    a queue, are a row of each table, and have a script, if there is one."""

    def __init__(
        self,
        root: Path,
        app: App[Any],
        error: Any,
        *,
        query: str = "query",
        tables: tuple[str, ...] = (".table",),
        script: bool = True,
    ) -> None:
        steps = tuple(TableStep(table=each) for each in tables)
        self._app, self._error, self._partitions = app, error, 2
        self._definition = Definition(
            name="numbers",
            root=str(root),
            sources=[app.input],
            max_attempts=2,
            retry_delay=0.0,
            steps=(*steps, ScriptStep(script=app)) if script else steps,
        )
        self._place = PipelinePlace(root, "numbers")
        self._place.settle(self._definition.sources)
        self._parts = Place(root, app.name)
        settled(self._parts, PARTS, self._partitions, receiver_of("numbers"), 1)
        self._columns = [column_of(n) for n in range(len(tables))]
        options = {"root": root, "queue": app.input, "receiver": receiver_of("numbers"), "maxrows": 4}
        self._begin(query, COLUMNS, **options, receiverwait=5)
        self._batches = PipelineBatches(
            self._definition, self._place, self._write, self._run_script if script else None, app.name
        )

    def _given(self, part: Any) -> Any:
        return list(self._reader.read(part))

    def _outcomes(self, tasks: Tasks, serial: int, known: set[str]) -> Rows:
        return mapped(_as_one(self._applied(_without(known, table)) for table in _tables(tasks)), self._finish())

    def _finish(self) -> Finish:
        script = self._definition.script is not None
        return Finish(self._definition.root, self._app.input, 2, self._columns, script=script)

    def _marks(self, tasks: Tasks) -> Marks:
        return marks_of(message for batches in tasks for batch in batches for message in messages(batch))

    def _applied(self, table: Any) -> Any:
        """All steps but the script."""
        rows = table.select(COLUMNS.fieldNames()).to_pylist()
        errors = [self._error(int(row["body"]), row["attempts"]) for row in rows]
        timers = [bool(row["headers"]) for row in rows]
        live = [error is None and not timer for error, timer in zip(errors, timers, strict=True)]
        sent = [[_sent(row)] if goes_on else [] for row, goes_on in zip(rows, live, strict=True)]
        written = [{"n": int(row["body"])} if goes_on else None for row, goes_on in zip(rows, live, strict=True)]
        origins = [[{name: row[name] for name in ("queue", "id", "number", "attempts")}] for row in rows]
        for name, values, kind in (
            (ERROR, errors, _TEXT),
            (BY, self._groups(rows), pa.binary()),
            (LIVE, live, pa.bool_()),
            (TIMER, timers, pa.bool_()),
            (SENT, sent, pa.list_(_MESSAGE)),
            *((column, written, _ROW) for column in self._columns),
            (ORIGINS, origins, pa.list_(_ORIGIN)),
        ):
            table = table.append_column(name, pa.array(values, type=kind))
        return table

    def _groups(self, rows: list[Any]) -> list[bytes | None]:
        return [None for _ in rows]

    def _run_script(self, rows: Any, serial: int) -> list[Result]:
        files = [str(self._parts.part(number)) for number in range(self._partitions)]
        task = TaskOfRows(self._app, self._definition.root, files, serial)
        return [each for row in mapped(_as_one([self._parted(rows)]), task) for each in decode(row["results"])]

    def _parted(self, table: Any) -> Any:
        parts = [zlib.crc32((key or "").encode()) % self._partitions for key in table.column("key").to_pylist()]
        return table.append_column(PART, pa.array(parts, pa.int32())).sort_by(ORDER)

    def _write(self, folder: str, batch: str, rows: Any) -> None:
        table = Path(self._definition.root) / folder
        table.mkdir(exist_ok=True)
        place = table / f"{batch}.json"
        place.unlink(missing_ok=True)
        for row in rows.to_pylist():  # one by one: a kill leaves some
            rig.effect(rig.WRITE, str(place))
            with place.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _tables(tasks: Tasks) -> list[Any]:
    batches = [batch for some in tasks for batch in some]
    return [pa.Table.from_batches(batches)] if batches else []


def _without(known: set[str], table: Any) -> Any:
    return table.filter(
        pa.array([uuid_of(queue) not in known for queue in table.column("queue").to_pylist()], pa.bool_())
    )


def _as_one(tables: Iterable[Any]) -> Tasks:
    """One task has all rows, if there are any."""
    return [table.to_batches() for table in tables if table.num_rows]


def _sent(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "to": "output",
        "deliver_us": None,
        **{name: row[name] for name in ("codec", "body", "type", "key", "priority")},
    }


def rows_of(root: Path, table: str = ".table") -> list[int]:
    """What is in a table."""
    files = sorted((root / table).glob("*.json"))
    return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())
