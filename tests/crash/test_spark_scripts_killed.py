"""Kill -9 at every store and effect of scripts on Spark, in the driver and in its tasks, and of whoever comes next:
each message has changed its context once, and its follow-ups, timers and reply are there once. Without Spark itself:
see tests/spark/fakespark.py; tests/spark/test_scripts_killed.py has the same with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import NoAnswer
from penstock.scripts import App, Context, ScriptMessage
from penstock.scripts.context import TIMER
from penstock.timequeue import check_queue
from tests.crash.rig import STEPS_MAX, in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL

pytest.importorskip("pyspark")
from penstock.spark.scripting.place import Place
from tests.spark.fakespark import FakeSpark

SMALL: dict[str, Any] = {"depth": 32, "data_bytes": 32 << 10, "durability": "relaxed"}
EVERY = 29 if IN_FULL else 149
AGAIN_EVERY = 401 if IN_FULL else 1301
SECOND_EVERY = 211 if IN_FULL else 997


class Account(msgspec.Struct):
    orders: list[str] = []
    followed: list[str] = []


app = App("shop", input="all", context=Account)


@app.script("order")
def order(context: Context[Account], message: ScriptMessage) -> None:
    context.state.orders.append(message.body)
    context.put(f"{message.key}: {message.body}", to="output")
    context.put(message.body, type="follow")
    context.after(3600, "late", message.body)
    if message.wants_reply:
        message.reply(f"yes, {message.key}")


@app.script("follow", "late")
def follow(context: Context[Account], message: ScriptMessage) -> None:
    context.state.followed.append(message.body)


@app.script("end")
def end(context: Context[Account], message: ScriptMessage) -> None:
    context.put(f"{message.key}: end", to="output")
    context.end()


@app.script("fail")
def fail(context: Context[Account], message: ScriptMessage) -> None:
    context.state.orders.append("never")
    raise ValueError("never")


AFTER = {
    "ann": Account(orders=["before", "second"], followed=["before", "second"]),
    "bob": Account(orders=["first"], followed=["first"]),
}
OUTPUT = sorted(["ann: before", "eve: before", "ann: second", "bob: first", "eve: end"])


class Saved:
    """Queues, and the folder of scripts on Spark, to be put back as often as needed."""

    def __init__(self, queues: list[Path], folder: Path) -> None:
        self._queues = [Snapshot(queue) for queue in queues]
        self._folder = folder
        self._files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def put_back(self) -> None:
        for queue in self._queues:
            queue.put_back()
        shutil.rmtree(self._folder)
        for path, data in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class Root:
    """A macro queue of two queues and an output, with contexts, timers and messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with penstock.QueueManager(path) as manager:
            for name in ("one", "two"):
                manager.create(name, max_attempts=5, dead_letter="letters", **SMALL)
            for name in ("output", "letters"):
                manager.create(name, **SMALL)
            manager.create_macro("all", ["one", "two"])
            with manager.open("one") as one, manager.open("two") as two:
                for key in ("ann", "eve"):
                    one.put("before", type="order", key=key)
                FakeSpark(app, path).run()
                one.put("second", type="order", key="ann")
                two.put("end", type="end", key="eve")
                two.put("never", type="fail", key="joe", max_attempts=1)
                with pytest.raises(NoAnswer) as caught:
                    two.put("first", type="order", key="bob", model="two-way", timeout=0)
                self.question = str(caught.value.message_id)
        self.folder = Place(path, "shop").path
        self.queues = [path / name for name in ("one", "two", "output", "letters", "two/replies")]
        self.begun = self.saved()

    def saved(self) -> Saved:
        return Saved(self.queues, self.folder)

    def judge(self) -> None:
        """All is there once."""
        for queue in self.queues:
            assert not check_queue(queue), queue
        assert dict(app.contexts(self.path)) == AFTER
        with penstock.QueueManager(self.path) as manager:
            with manager.open("output") as output:
                assert sorted(message.body for message in output.browse()) == OUTPUT
            with manager.open("letters") as letters:
                assert [letter.body for letter in letters.browse()] == ["never"]
            with manager.open("all") as both:
                waiting = [message.headers.get(TIMER) for message in both.browse(state="all")]
                assert None not in waiting, "a message was left"
                assert both.answer(self.question).result(20) == "yes, bob"
        timers = [id for id in waiting if id is not None]
        assert len(timers) == len(set(timers)) == 4  # those of ann and eve that are set no longer are dropped in time


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    with tempfile.TemporaryDirectory(prefix="penstock-scripts-", dir=FAST) as folder:
        yield Root(Path(folder))


def works(driver: FakeSpark) -> None:
    driver.run()


def finishes(root: Root) -> None:
    """Whoever comes next; also how it opens all, and what it finds to do for the one before."""
    FakeSpark(app, root.path).run()


def test_killed_at_every_step_each_message_has_its_effects_once(root: Root) -> None:
    for step in range(1, STEPS_MAX, EVERY):
        root.begun.put_back()
        died = killed_at(step, works, lambda: FakeSpark(app, root.path))  # type: ignore[arg-type]
        assert in_child(lambda: finishes(root)) == 0
        root.judge()
        if not died:
            assert step > 1000
            return
    raise AssertionError("it has no end")


def test_the_next_driver_may_be_killed_at_every_step_too(root: Root) -> None:
    killed = 0
    for step in range(97, STEPS_MAX, AGAIN_EVERY):
        root.begun.put_back()
        if not killed_at(step, works, lambda: FakeSpark(app, root.path)):  # type: ignore[arg-type]
            assert killed > 3
            return
        left = root.saved()
        for second in range(1, STEPS_MAX, SECOND_EVERY):
            left.put_back()
            died = killed_at(second, finishes, lambda: root)  # type: ignore[arg-type]
            assert in_child(lambda: finishes(root)) == 0
            root.judge()
            killed += died
            if not died:
                break
