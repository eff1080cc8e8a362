"""A query of scripts led as Spark leads it, without Spark: offsets are logged before a batch runs, and that it is done
afterwards. What it calls is the real thing: the stream reader, the tasks, and the driver's side of a batch."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.scripts import App
from penstock.spark import PenstockDataSource
from penstock.spark.scripting.batches import Batches
from penstock.spark.scripting.place import PARTS, Place
from penstock.spark.scripting.results import marks_of
from penstock.spark.scripting.rows import COLUMNS, messages
from penstock.spark.scripting.tasks import PART, Task

ORDER = [(PART, "ascending"), ("priority", "descending"), ("deliver_at", "ascending"), ("number", "ascending")]


class Rows(list[Any]):
    """What a DataFrame of outcomes is to the driver."""

    def collect(self) -> list[Any]:
        return list(self)


class Outcome(dict[str, Any]):
    @property
    def part(self) -> int:
        return int(self["part"])


class FakeSpark:
    """One driver. Its logs are files of the checkpoint, as Spark's are."""

    def __init__(
        self, app: App[Any], root: Path, *, partitions: int = 2, max_rows: int = 1000, query: str = "query"
    ) -> None:
        self._app = app
        self._place = Place(root, app.name)
        with self._place.nobody_works():
            self._place.settle_on(PARTS, partitions, app.input, partitions)
        self._partitions = partitions
        receiver = f"scripts.{app.name}"
        self._begin(query, root=root, queue=app.input, receiver=receiver, maxrows=max_rows, receiverwait=5)
        self._batches = Batches(app, self._place, receiver, None, 5.0)

    def _begin(self, query: str, **options: Any) -> None:
        """The checkpoint, and the stream of the source."""
        self._place.checkpoint.mkdir(exist_ok=True)
        (self._place.checkpoint / "metadata").write_text(json.dumps({"id": query}))
        self._offsets = self._place.checkpoint / "offsets"
        self._commits = self._place.checkpoint / "commits"
        given = {name: str(value) for name, value in options.items()}
        self._reader = PenstockDataSource(given).streamReader(COLUMNS)

    def _log(self, path: Path, line: str) -> None:
        with path.open("a") as file:
            file.write(line + "\n")

    def _lines(self, path: Path) -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    def run(self) -> None:
        """Until nothing is due."""
        self._batches.put_left()
        while self.batch():
            pass
        self._reader.stop()

    def stop(self) -> None:
        self._reader.stop()

    def lose_checkpoint(self) -> None:
        self.stop()
        shutil.rmtree(self._place.checkpoint)

    def batch(self) -> bool:
        """The next one; False if there is none."""
        offsets, done = self._lines(self._offsets), len(self._lines(self._commits))
        start = json.loads(offsets[done - 1]) if done else self._reader.initialOffset()
        if len(offsets) > done:
            end = json.loads(offsets[done])
        else:
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if end == start:
                return False
            self._log(self._offsets, json.dumps(end))
        table = self._rows(start, end)
        self._batches.run(
            done,
            lambda serial, known: self._outcomes(table, serial, known),
            lambda: marks_of(message for batch in table.to_batches() for message in messages(batch)),
        )
        self._log(self._commits, "done")
        return True

    def _rows(self, start: Any, end: Any) -> Any:
        batches = [batch for part in self._reader.partitions(start, end) for batch in self._reader.read(part)]
        if not batches:
            return pa.table({})
        return self._parted(pa.Table.from_batches(batches))

    def _parted(self, table: Any) -> Any:
        parts = [zlib.crc32((key or "").encode()) % self._partitions for key in table.column("key").to_pylist()]
        return table.append_column(PART, pa.array(parts, pa.int32())).sort_by(ORDER)

    def _outcomes(self, table: Any, serial: int, known: set[str]) -> Rows:
        files = [str(self._place.part(number)) for number in range(self._partitions)]
        return self._mapped(table, Task(self._app, str(self._place.folder.root), files, serial), known)

    def _mapped(self, table: Any, task: Any, known: set[str]) -> Rows:
        found = Rows()
        if known:
            table = table.filter([queue not in known for queue in table.column("queue").to_pylist()])
        if table.num_rows:
            for batch in task(iter(table.to_batches(max_chunksize=3))):
                found += [Outcome(row) for row in batch.to_pylist()]
        return found
