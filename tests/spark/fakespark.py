"""A query of scripts led as Spark leads it, without Spark: offsets are logged before a batch runs, and that it is done
afterwards. What it calls is the real thing: the stream reader, the tasks, and the driver's side of a batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from penstock.scripts import App
from penstock.spark import PenstockDataSource, bykeys
from penstock.spark.bykeys import Work
from penstock.spark.schema import BY_KEYS
from penstock.spark.scripting.batches import Batches
from penstock.spark.scripting.place import PARTS, Place
from penstock.spark.scripting.results import Marks, decode_marks, decode_worked, joined
from penstock.spark.scripting.tasks import Marker, Task

Tasks = list[Any]  # what each is given: a part of the keys, or rows
Rows = list[dict[str, Any]]  # what they come to


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
        options = {"root": root, "queue": app.input, "receiver": receiver, "maxrows": max_rows, "receiverwait": 5}
        self._begin(query, BY_KEYS, **options, partitions=partitions)
        self._batches = Batches(app, self._place, receiver, None, 5.0)

    def _begin(self, query: str, schema: StructType, **options: Any) -> None:
        """The checkpoint, and the stream of the source."""
        (self._place.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self._place.checkpoint / "metadata").write_text(json.dumps({"id": query}))
        self._commits = self._place.checkpoint / "commits"
        given = {name: str(value) for name, value in options.items()}
        self._reader = PenstockDataSource(given).streamReader(schema)

    def _done(self) -> int:
        return len(self._commits.read_text()) if self._commits.exists() else 0

    def _logged(self, number: int) -> Path:
        return self._place.checkpoint / "offsets" / str(number)

    def _offset(self, number: int) -> Any:
        return json.loads(self._logged(number).read_text().splitlines()[2])

    def _log(self, number: int, end: Any) -> None:
        """There whole or not at all, as Spark's are: whoever writes it may be killed."""
        fresh = self._place.checkpoint / "offsets" / f".{number}.tmp"
        fresh.write_text(f"v1\n{{}}\n{json.dumps(end)}")
        fresh.rename(self._logged(number))

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
        done = self._done()
        start = self._offset(done - 1) if done else self._reader.initialOffset()
        if self._logged(done).exists():
            end = self._offset(done)
        else:
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if end == start:
                return False
            self._log(done, end)
        tasks = [self._given(part) for part in self._reader.partitions(start, end)]
        self._batches.run(
            done,
            lambda serial, known: self._outcomes(tasks, serial, known),
            lambda: self._marks(tasks),
        )
        with self._commits.open("a") as file:
            file.write(".")
        return True

    def _given(self, part: Any) -> Any:
        """To a task."""
        return part

    def _outcomes(self, tasks: Tasks, serial: int, known: set[str]) -> Rows:
        files = [str(self._place.part(number)) for number in range(self._partitions)]
        said = _worked(tasks, Task(self._app, str(self._place.folder.root), files, serial, known=known))
        return [msgspec.structs.asdict(decode_worked(each)) for each in said]

    def _marks(self, tasks: Tasks) -> Marks:
        return joined(decode_marks(each) for each in _worked(tasks, Marker(fail_if_gone=True)))


def _worked(tasks: Tasks, work: Work) -> list[bytes]:
    """What ``bykeys.collect`` finds where there is a row for each message."""
    found = []
    for part in tasks:
        rows = bykeys.rows(part.count, work(part.pieces)).column(0).to_pylist()
        assert len(rows) == part.count and rows[1:] == [None] * (len(rows) - 1)
        found += [row for row in rows if row is not None]
    return found


def mapped(tasks: Tasks, task: Any) -> Rows:
    """What ``mapInArrow`` makes of the rows of each task."""
    found: Rows = []
    for batches in tasks:
        few = (batch.slice(start, 3) for batch in batches for start in range(0, batch.num_rows, 3))
        for batch in task(few):
            found += batch.to_pylist()
    return found
