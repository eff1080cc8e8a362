"""Kill -9 at every store and effect of a pipeline's driver and tasks, and of whoever comes next: each message is in its
sink, in the table and in its context once; or it failed, and is in none of them. Without Spark itself: see
tests/spark/fakepipeline.py; tests/spark/test_pipelines_killed.py has the same with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.scripts import App, Context, ScriptMessage
from penstock.timequeue import check_queue
from tests.crash.scripted import SMALL, SavedFiles, kill_at_steps, kill_two
from tests.snapshot import FAST
from tests.thoroughness import IN_FULL

pytest.importorskip("pyspark")
import pyarrow as pa

from penstock.spark.pipelines.batches import PipelineBatches, PipelineStore
from penstock.spark.pipelines.definition import Call, Group
from penstock.spark.pipelines.tasks import Finish, column_of
from tests.spark.fakepipeline import FakePipeline, rows_of
from tests.spark.fakespark import Rows, Tasks

EVERY = 11 if IN_FULL else 199
AGAIN_EVERY = 401 if IN_FULL else 1301
SECOND_EVERY = 211 if IN_FULL else 997

NUMBERS = range(6)
FLAKY, POISON, NOT_FOR_SCRIPTS, FICKLE = 1, 2, 3, 4
DONE = [n for n in NUMBERS if n not in (POISON, NOT_FOR_SCRIPTS)]

app = App("counts", input="in")


@app.script("n")
def counted(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
    if message.body == NOT_FOR_SCRIPTS:
        raise ValueError("never")
    context.state["seen"] = [*context.state.get("seen", []), message.body]
    context.put(message.body, to="counted")


def error_of(number: int, attempt: int) -> str | None:
    """Also of one that is not the same when it is called again, by a driver that comes next."""
    first = attempt == 1 and (number == FLAKY or (number == FICKLE and os.getpid() % 2 == 0))
    return f"attempt {attempt}" if number == POISON or first else None


class Root:
    """Queues with numbers, and what must be there when all is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with penstock.QueueManager(path) as manager:
            for name in ("in", "output", "counted", "letters"):
                manager.create(name, **SMALL, **({"dead_letter": "letters"} if name == "in" else {}))
            with manager.open("in") as queue:
                queue.put_many(list(NUMBERS[:2]), type="n", key="a")
                self.finish()  # a pipeline that has run before
                queue.put_many(list(NUMBERS[2:]), type="n", key="b")
        self.queues = [path / name for name in ("in", "output", "counted", "letters")]
        self.begun = self.saved()

    def saved(self) -> SavedFiles:
        return SavedFiles(self.queues, self.path / ".pipelines", self.path / ".scripts", self.path / ".table")

    def driver(self, query: str = "query") -> FakePipeline:
        return FakePipeline(self.path, app, error_of, query=query)

    def finish(self, query: str = "query") -> None:
        """A message that failed is due again when its claim is committed, which a driver does last."""
        for _ in range(4):
            self.driver(query).run()

    def judge(self) -> None:
        for queue in self.queues:
            assert not check_queue(queue), queue
        found = {}
        with penstock.QueueManager(self.path) as manager:
            for name in ("in", "output", "counted", "letters"):
                with manager.open(name) as queue:
                    found[name] = sorted(message.body for message in queue.browse(state="all"))
        seen = sorted(n for state in app.contexts(self.path).values() for n in state["seen"])
        assert found == {"in": [], "output": DONE, "counted": DONE, "letters": [POISON, NOT_FOR_SCRIPTS]}
        assert seen == rows_of(self.path) == DONE


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    with tempfile.TemporaryDirectory(prefix="penstock-pipelines-", dir=FAST) as folder:
        yield Root(Path(folder))


def test_killed_at_every_step_each_message_is_in_its_sinks_once_or_has_failed(root: Root) -> None:
    kill_at_steps(root, EVERY, FakePipeline.run, root.driver, least=1000)


def test_the_next_driver_of_a_pipeline_may_be_killed_at_every_step_too(root: Root) -> None:
    kill_two(root, AGAIN_EVERY, SECOND_EVERY, FakePipeline.run, root.driver, least=2)


def test_a_batch_that_is_written_down_is_known_when_the_checkpoint_is_lost(root: Root) -> None:
    root.begun.put_back()
    driver = root.driver()
    assert driver.batch()
    driver.lose_checkpoint()
    root.finish("another query")
    root.judge()


def test_what_came_before_a_script_is_not_asked_again_when_the_driver_died_behind_it(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.begun.put_back()

    def dies(*_: object) -> None:
        raise OSError("killed")

    driver = FakePipeline(root.path, app, lambda number, attempt: "poison" if number == POISON else None)
    with monkeypatch.context() as patch:
        patch.setattr(PipelineStore, "post_batch", dies)
        with pytest.raises(OSError, match="killed"):
            driver.run()
    driver.stop()
    following = FakePipeline(root.path, app, lambda number, attempt: f"{number} fails now")
    assert following.batch()
    following.stop()
    with penstock.open(root.path / "output") as output:
        assert sorted(message.body for message in output.browse()) == DONE
    root.finish()
    root.judge()


class Grouped(FakePipeline):
    """With a call before a group: tasks that were run again have other groups, with these of the batch's messages."""

    def __init__(self, root: Path, *there: int) -> None:
        super().__init__(root, app, lambda number, attempt: None)
        self._there = there
        steps = (Call(call="tests.spark.pipesteps:shouted"), Group(group="tests.spark.pipesteps:summed"))
        self._batches = PipelineBatches(
            msgspec.structs.replace(self._definition, steps=(*steps, *self._definition.tables)),
            self._place,
            self._write,
            None,
        )

    def _outcomes(self, tasks: Tasks, serial: int, known: set[str]) -> Rows:
        rows = pa.Table.from_batches([batch for some in tasks for batch in some]).take(pa.array(self._there))
        return super()._outcomes([rows.to_batches()], serial, known)

    def _groups(self, rows: list[Any]) -> list[bytes | None]:
        """Each has one of its own."""
        return [b"=%d" % n for n in range(len(rows))]

    def _finish(self) -> Finish:
        return Finish(self._definition.root, self._app.input, 2, [column_of(0)], script=False)


@pytest.mark.parametrize("others", [(0, 2), (0, 1, 2, 0), (0, 1, 1, 0), (0, 1, 1, 2)])
def test_a_message_that_is_in_no_group_or_in_two_stops_the_pipeline_before_anything_is_done(
    tmp_path: Path, others: tuple[int, ...]
) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        for name in ("in", "output"):
            manager.create(name, **SMALL)
        with manager.open("in") as queue:
            queue.put_many(list(NUMBERS[:3]), type="n", key="a")

    def there(name: str) -> list[Any]:
        with penstock.open(tmp_path / name) as queue:
            return sorted(message.body for message in queue.browse(state="all"))

    driver = Grouped(tmp_path, *others)
    with pytest.raises(penstock.PenstockError, match="not every message of the batch is in one group"):
        driver.batch()
    driver.stop()
    assert (there("in"), there("output")) == ([0, 1, 2], [])
    following = Grouped(tmp_path, 0, 1, 2)
    assert following.batch()
    following.stop()
    Grouped(tmp_path).run()  # which says that the batch is done
    assert (there("in"), there("output")) == ([], [0, 1, 2])
    assert rows_of(tmp_path) == [0, 1, 2]
