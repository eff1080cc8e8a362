"""What workers of scripts, and drivers of scripts on Spark, are killed with: an app, its queues, and what must be there
when all is done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

import penstock
from penstock import NoAnswer
from penstock.scripts import App, Context, ScriptMessage
from penstock.scripts.context import TIMER
from penstock.timequeue import check_queue
from tests.crash.rig import in_child, killed_at
from tests.snapshot import Snapshot
from tests.thoroughness import STEPS_MAX, some_of

SMALL: dict[str, Any] = {"depth": 32, "data_bytes": 32 << 10, "durability": "relaxed"}


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


class Saved(Protocol):
    """Files, to be put back as often as needed."""

    def put_back(self) -> None: ...


class SavedFiles:
    """Queues, and folders beside them, to be put back as often as needed."""

    def __init__(self, queues: list[Path], *folders: Path) -> None:
        self._queues = [Snapshot(queue) for queue in queues]
        self._folders = folders
        self._files = {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}

    def put_back(self) -> None:
        for queue in self._queues:
            queue.put_back()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        for path, data in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class Working(Protocol):
    """What is killed while it works, and finished by others."""

    begun: Any

    def saved(self) -> Saved: ...
    def finish(self) -> None: ...
    def judge(self) -> Any: ...


class Shop:
    """A macro queue of two queues and an output, with contexts, timers and messages."""

    def __init__(self, path: Path, *, exclusive_keys: bool) -> None:
        self.path = path
        with penstock.QueueManager(path) as manager:
            for name in ("one", "two"):
                manager.create(name, exclusive_keys=exclusive_keys, max_attempts=5, dead_letter="letters", **SMALL)
            for name in ("output", "letters"):
                manager.create(name, **SMALL)
            manager.create_macro("all", ["one", "two"])
            with manager.open("one") as one, manager.open("two") as two:
                for key in ("ann", "eve"):
                    one.put("before", type="order", key=key)
                self.finish()
                one.put("second", type="order", key="ann")
                two.put("end", type="end", key="eve")
                two.put("never", type="fail", key="joe", max_attempts=1)
                with pytest.raises(NoAnswer) as caught:
                    two.put("first", type="order", key="bob", model="two-way", timeout=0)
                self.question = str(caught.value.message_id)
        self.queues = [path / name for name in ("one", "two", "output", "letters", "two/replies")]
        self.begun = self.saved()

    def saved(self) -> Saved:
        """All as it is now."""
        raise NotImplementedError

    def finish(self) -> None:
        """Whoever comes next; also how it opens all, and what it finds to do for those before it."""
        raise NotImplementedError

    def judge(self) -> list[str]:
        """All is there once; the timers that wait."""
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
        return [timer for timer in waiting if timer is not None]


def kill_at_steps(shop: Working, every: int, work: Any, prepare: Any, *, least: int) -> None:
    """Whoever works is killed at each so many-th of its steps, and the next one finishes."""
    for step in some_of(every):
        shop.begun.put_back()
        died = killed_at(step, work, prepare)
        assert in_child(shop.finish) == 0
        shop.judge()
        if not died:
            assert step > least
            return
    raise AssertionError("it has no end")


def kill_two(shop: Working, every: int, second_every: int, work: Any, prepare: Any, *, least: int) -> None:
    """So is the one that comes next, and a third one finishes."""
    killed = 0
    for step in range(97, STEPS_MAX, every):
        shop.begun.put_back()
        if not killed_at(step, work, prepare):
            assert killed > least
            return
        left = shop.saved()
        for second in range(1, STEPS_MAX, second_every):
            left.put_back()
            died = killed_at(second, type(shop).finish, lambda: shop)  # type: ignore[arg-type]
            assert in_child(shop.finish) == 0
            shop.judge()
            killed += died
            if not died:
                break
