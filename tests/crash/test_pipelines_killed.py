"""Kill -9 at every store and effect of a pipeline's driver and tasks, and of whoever comes next: each message is in its
sink, in the table and in its context once; or it failed, and is in none of them. Without Spark itself: see
tests/spark/fakepipeline.py; tests/spark/test_pipelines_killed.py has the same with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.scripts import App, Context, ScriptMessage
from penstock.timequeue import check_queue
from tests.crash.scripted import SMALL, SavedFiles, kill_at_steps, kill_two
from tests.snapshot import FAST
from tests.thoroughness import IN_FULL

pytest.importorskip("pyspark")
from penstock.spark.pipelines.batches import PipelineStore
from tests.spark.fakepipeline import FakePipeline, rows_of

EVERY = 11 if IN_FULL else 97
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
