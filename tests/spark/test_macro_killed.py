"""Kill -9 of a query of a macro queue at the steps of acknowledging and claiming: what the next one gives to a sink
that knows its batches is every message once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.timequeue import check_queue
from tests.crash.rig import killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, some_of

pytest.importorskip("pyspark")
from tests.spark.queries import Query

NAMES = ("a", "b", "c")
KILLED_AT_EVERY = 7 if IN_FULL else 61
pytestmark = pytest.mark.timeout(1800 if IN_FULL else 300)


class Logged(list[str]):
    """Spark's log of offsets: on disk, before a batch runs."""

    def __init__(self, file: Path) -> None:
        super().__init__(file.read_text().splitlines() if file.exists() else [])
        self._file = file

    def append(self, line: str) -> None:
        with self._file.open("a") as file:
            file.write(line + "\n")
        super().append(line)


class Life:
    """Three queues, their macro queue, and a query that has read a batch of them and not acknowledged it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log, self.commits = root / "log", root / "commits"
        manager = penstock.QueueManager(root)
        for name in NAMES:
            with penstock.create(root / name, slots=30, data_bytes=64 << 10, durability="relaxed") as q:
                q.put_many([f"{name}{i}".encode() for i in range(5)])
        manager.create_macro("all", list(NAMES), consuming="round-robin")
        query = self.query()
        query.batch()
        self.first = query.batch() or []
        query.die()
        self._said = self.log.read_text()
        self._saved = [Snapshot(root / name) for name in NAMES]
        self.put_back()
        query = self.query()
        self.second = query.batch() or []  # the same each time, unless it is killed on the way
        query.die()

    def put_back(self) -> None:
        self.log.write_text(self._said)
        self.commits.write_text("2")  # of two batches Spark knows that they are finished
        for saved in self._saved:
            saved.put_back()

    def query(self) -> Query:
        return Query(self.root / "all", Logged(self.log), maxRows=6)

    def begin(self) -> Query:
        query = self.query()
        query.reader._open_all(query.reader._leaves(), {})
        return query

    def work(self, query: Any) -> None:
        """Acknowledge a batch in all members, claim the next in all of them, log and read it, and acknowledge that."""
        assert len(query.batch()) == 6
        self.commits.write_text("3")
        query.reader.commit(query.start())
        for reader in query.reader._readers.values():
            reader.settle(behind=False)

    def again(self) -> list[bytes]:
        """A new query: it runs the last batch of the log again, as Spark does where it is not known to be finished, and
        then all the others. What a sink has then that knows which batches it had."""
        query = self.query()
        try:
            sunk = {1: self.first, **({2: self.second} if self.commits.read_text() == "3" else {})}
            if len(query.log) == 3 and 2 not in sunk:
                before, end = (json.loads(line) for line in query.log[-2:])
                sunk[2] = [row["body"] for row in query.rows(before, end)]
            while (bodies := query.batch()) is not None:
                sunk[len(query.log) - 1] = bodies
            return sorted(body for bodies in sunk.values() for body in bodies)
        finally:
            query.die()


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    with tempfile.TemporaryDirectory(prefix="penstock-macro-", dir=FAST) as folder:
        yield Life(Path(folder))


def test_killed_at_the_steps_of_a_batch_every_message_is_given_once(life: Life) -> None:
    expected = sorted(f"{name}{i}".encode() for name in NAMES for i in range(5))
    for step in some_of(KILLED_AT_EVERY):
        life.put_back()
        died = killed_at(step, life.work, life.begin)  # type: ignore[arg-type]
        assert life.again() == expected, step
        for name in NAMES:
            assert check_queue(life.root / name) == []
            with penstock.open(life.root / name) as q:
                assert q.qsize() == 0 and q.stats().claimed == 0 and q.claims() == [], step
        if not died:
            assert step > 100
            return
    raise AssertionError("it has no end")
