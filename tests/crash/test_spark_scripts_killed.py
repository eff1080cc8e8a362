"""Kill -9 at every store and effect of scripts on Spark, in the driver and in its tasks, and of whoever comes next:
each message has changed its context once, and its follow-ups, timers and reply are there once. Without Spark itself:
see tests/spark/fakespark.py; tests/spark/test_scripts_killed.py has the same with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.scripted import SavedFiles, Shop, app, kill_at_steps, kill_two
from tests.snapshot import FAST
from tests.thoroughness import IN_FULL

pytest.importorskip("pyspark")
from penstock.spark.scripting.place import Place
from tests.spark.fakespark import FakeSpark

EVERY = 29 if IN_FULL else 251
AGAIN_EVERY = 401 if IN_FULL else 1301
SECOND_EVERY = 211 if IN_FULL else 997


class Root(Shop):
    def __init__(self, path: Path) -> None:
        super().__init__(path, exclusive_keys=False)

    def saved(self) -> SavedFiles:
        return SavedFiles(self.queues, Place(self.path, "shop").path)

    def driver(self) -> FakeSpark:
        return FakeSpark(app, self.path)

    def finish(self) -> None:
        self.driver().run()

    def judge(self) -> list[str]:
        waiting = super().judge()
        # Those of ann and eve that are set no longer are dropped in time.
        assert len(waiting) == len(set(waiting)) == 4
        return waiting


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    with tempfile.TemporaryDirectory(prefix="penstock-scripts-", dir=FAST) as folder:
        yield Root(Path(folder))


def test_killed_at_every_step_each_message_has_its_effects_once(root: Root) -> None:
    kill_at_steps(root, EVERY, FakeSpark.run, root.driver, least=1000)


def test_the_next_driver_may_be_killed_at_every_step_too(root: Root) -> None:
    kill_two(root, AGAIN_EVERY, SECOND_EVERY, FakeSpark.run, root.driver, least=3)
