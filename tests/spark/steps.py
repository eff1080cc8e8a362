"""The data source with a place to stop at each step of both protocols, where somebody is then killed.

The real reader and the real writer, with a look at the file ``stop`` on the way: whoever gets first to the step it
names says so in the file ``mark`` and waits. Batches are counted from 0; a claim's batch is its number less one, as
long as the queue is never empty when the query looks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from penstock.spark.many import MacroReader
from penstock.spark.schema import SAID
from penstock.spark.sink import StagedOfBatch, StreamWriter
from penstock.spark.source import PenstockDataSource
from penstock.spark.staging import Staging
from penstock.spark.stream import ClaimReader

FOLDER = "PENSTOCK_STEPS"  # in the environment: where the files are; without it nobody stops
STOPPED_S_MAX = 120.0  # by then it was killed; one that was an orphan when it stopped has no parent to lose
ORPHAN_S = 2.0  # how long a process that lost its parent lives on, as they do now and then

BEFORE_PUBLISHING = ("claimed", "planned", "reading", "staging", "staged", "committing")
AFTER_PUBLISHING = ("published", "sunk", "acknowledging", "acknowledged")
STEPS = (*BEFORE_PUBLISHING, *AFTER_PUBLISHING)  # of a batch, in their order


def stop_at(folder: Path, step: str, batch: int | None) -> None:
    """The next one to get there stops; without a batch, in any."""
    (folder / "mark").unlink(missing_ok=True)
    aside = folder / "stop.new"
    aside.write_text(json.dumps([step, batch]))
    aside.rename(folder / "stop")


def stopped(folder: Path) -> int | None:
    """The process that stopped, if one did."""
    try:
        return int((folder / "mark").read_text())
    except FileNotFoundError:
        return None


def reached(step: str, batch: int) -> None:
    """Wait to be killed, if this is where it shall happen, and go on after that if it was somebody else."""
    folder = Path(os.environ.get(FOLDER, "/nowhere"))
    try:
        chosen = json.loads((folder / "stop").read_text())
    except FileNotFoundError:
        return
    if chosen[0] != step or chosen[1] not in (None, batch):
        return
    aside = folder / f"mark.{os.getpid()}"
    aside.write_text(f"{os.getpid()}")
    parent = os.getppid()
    try:
        os.link(aside, folder / "mark")
    except FileExistsError:  # somebody was here before, perhaps an attempt at the same that was killed
        return
    finally:
        aside.unlink()
    end = time.monotonic() + STOPPED_S_MAX
    while os.getppid() == parent and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(ORPHAN_S)


def note(name: str, *words: Any) -> None:
    """A line that survives a kill."""
    if FOLDER in os.environ:
        fd = os.open(Path(os.environ[FOLDER]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, (json.dumps(words) + "\n").encode())
        os.close(fd)


def read_again(folder: Path) -> tuple[int, list[int]]:
    """How often a part of a batch was read once more, and the batches that had other rows then."""
    seen: dict[tuple[int, int], list[str]] = {}
    again, differing = 0, []
    rows = folder / "rows"
    for line in rows.read_text().splitlines() if rows.exists() else ():  # killed before anything was read: none
        try:
            batch, part, ids = json.loads(line)
        except ValueError:  # a kill may cut a long line short
            continue
        if (batch, part) in seen:
            again += 1
            if seen[batch, part] != ids:
                differing.append(batch)
        seen[batch, part] = ids
    return again, differing


def _ids(batch: Any) -> list[str]:
    """By what the rows of a batch are known: those of scripts have no ids, and say what was done with them."""
    if "id" in batch.schema.names:
        return list(batch.column("id").to_pylist())
    return [str(said) for said in batch.column(SAID).to_pylist()]


class Stepping:
    """What the readers of a queue and of a macro queue have in common. ``batch_of`` says which batch an offset ends."""

    def batch_of(self, offset: dict[str, Any]) -> int:
        raise NotImplementedError

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        if end != start:
            reached("claimed", self.batch_of(end))
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        found = super().partitions(start, end)
        reached("planned", self.batch_of(end))
        for which, partition in enumerate(found):
            partition.batch, partition.which = self.batch_of(end), which
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        ids = []
        for batch in super().read(partition):
            ids += _ids(batch)
            yield batch
            reached("reading", partition.batch)
        note("rows", partition.batch, partition.which, ids)


class SteppedReader(Stepping, ClaimReader):
    def batch_of(self, offset: dict[str, Any]) -> int:
        return offset["claim"] - 1

    def _acknowledge(self, claim: int, messages: int) -> None:
        reached("acknowledging", claim - 1)
        super()._acknowledge(claim, messages)
        reached("acknowledged", claim - 1)


class SteppedMacroReader(Stepping, MacroReader):
    """The first batch only says who the members are; after it every member gives to every batch."""

    def batch_of(self, offset: dict[str, Any]) -> int:
        return max((mark[1] for mark in offset["members"].values()), default=0)

    def _mark(self, uuid: str, number: int) -> Any:
        mark = super()._mark(uuid, number)
        reached("between", number)  # the claims of two members
        return mark

    def _finish(self, reader: Any, uuid: str, began: Any) -> bool:
        done = super()._finish(reader, uuid, began)
        reached("acknowledged", began[uuid].claim)
        return done


class SteppedStaging(Staging):
    batch = -1

    def remove(self) -> None:
        reached("published", self.batch)
        super().remove()


class SteppedWriter(StreamWriter):
    def stage(self, batches: Any, query: str, batch: int, partition: int, attempt: int) -> StagedOfBatch:
        def stopping() -> Iterator[Any]:
            for each in batches:
                yield each
                reached("staging", batch)

        done = super().stage(stopping(), query, batch, partition, attempt)
        reached("staged", batch)
        return done

    def commit(self, messages: list[Any], batchId: int) -> None:
        reached("committing", batchId)
        super().commit(messages, batchId)
        reached("sunk", batchId)

    def _staging(self, query: str, batch: int) -> Staging:
        staging = SteppedStaging(self._given["path"], f"{query}.{batch}")
        staging.batch = batch
        return staging


class SteppedDataSource(PenstockDataSource):
    def streamReader(self, schema: StructType) -> SteppedReader | SteppedMacroReader:
        real = super().streamReader(schema)
        return (SteppedMacroReader if isinstance(real, MacroReader) else SteppedReader)(real._given, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SteppedWriter:
        real = super().streamWriter(schema, overwrite)
        assert isinstance(real, StreamWriter)
        return SteppedWriter(real._given, real._columns)
