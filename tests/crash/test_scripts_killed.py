"""Kill -9 at every store and effect of a worker of scripts, and of the one that comes after it: each message has
changed its context once, and its follow-ups, timers and reply are there once."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import NoAnswer
from penstock.scripts import App, Context, ScriptMessage, Worker
from penstock.scripts.context import TIMER
from penstock.scripts.folder import Folder
from penstock.scripts.store import Store
from penstock.store import rig
from penstock.timequeue import check_queue
from tests.crash.rig import STEPS_MAX, in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL

SMALL: dict[str, Any] = {"depth": 32, "data_bytes": 32 << 10, "durability": "relaxed"}
# Gets, puts and acknowledgements are killed at every step elsewhere: here it is their order that counts, and that of
# the transactions between them.
EVERY = 17 if IN_FULL else 59
AGAIN_EVERY = 301 if IN_FULL else 701
SECOND_EVERY = 151 if IN_FULL else 499


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
    """The files of queues and of the store, to be put back as often as needed."""

    def __init__(self, queues: list[Path], store: Path) -> None:
        self._queues = [Snapshot(queue) for queue in queues]
        self._files = [store.with_name(store.name + extra) for extra in ("", "-wal", "-shm")]
        self._stored = {path: path.read_bytes() for path in self._files if path.exists()}

    def put_back(self) -> None:
        for queue in self._queues:
            queue.put_back()
        for path in self._files:
            path.unlink(missing_ok=True)
        for path, data in self._stored.items():
            path.write_bytes(data)


class Root:
    """A macro queue of two queues and an output, with contexts, timers and messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with penstock.QueueManager(path) as manager:
            for name in ("one", "two"):
                manager.create(name, exclusive_keys=True, max_attempts=5, dead_letter="letters", **SMALL)
            for name in ("output", "letters"):
                manager.create(name, **SMALL)
            manager.create_macro("all", ["one", "two"])
            with manager.open("one") as one, manager.open("two") as two:
                for key in ("ann", "eve"):
                    one.put("before", type="order", key=key)
                app.run(path, until_empty=True)
                one.put("second", type="order", key="ann")
                two.put("end", type="end", key="eve")
                two.put("never", type="fail", key="joe", max_attempts=1)
                with pytest.raises(NoAnswer) as caught:
                    two.put("first", type="order", key="bob", model="two-way", timeout=0)
                self.question = str(caught.value.message_id)
        self.folder = Folder(path, "shop")
        self.queues = [path / name for name in ("one", "two", "output", "letters", "two/replies")]
        self.begun = self.saved()

    def saved(self) -> Saved:
        """All as it is now."""
        return Saved(self.queues, self.folder.store)

    def worker(self) -> Worker:
        return app.worker(self.path, busy_s=5)

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
        store = Store(self.folder.store, busy_s=5)
        try:
            timers = [timer.id for _, kept in store.all_contexts() for timer in kept.timers.values()]
            assert len(timers) == 2 and all(waiting.count(timer) == 1 for timer in timers)
            assert store.slots() == [], "what is done and what is to be put has been settled"
        finally:
            store.close()


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    with tempfile.TemporaryDirectory(prefix="penstock-scripts-", dir=FAST) as folder:
        yield Root(Path(folder))


def works(worker: Worker) -> None:
    worker.run(until_empty=True)
    worker.close()


def finishes(root: Root) -> None:
    """Whoever comes next; also how it opens all, and what it finds to do for those before it."""
    with root.worker() as worker:
        worker.run(until_empty=True)


def test_killed_at_every_step_each_message_has_its_effects_once(root: Root) -> None:
    for step in range(1, STEPS_MAX, EVERY):
        root.begun.put_back()
        died = killed_at(step, works, root.worker)  # type: ignore[arg-type]
        assert in_child(lambda: finishes(root)) == 0
        root.judge()
        if not died:
            assert step > 500
            return
    raise AssertionError("it has no end")


class KilledAtTransaction:
    """Ends this process just before the ``nth`` transaction of the store begins or is committed, or just after."""

    def __init__(self, store: Path, nth: int, *, after: bool) -> None:
        self._store = str(store)
        self._left = nth
        self._after = after

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        self.store("", 0, 0)
        self._left -= target == self._store
        if not self._after:
            self.store("", 0, 0)

    def store(self, path: str, index: int, value: int) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("after", [False, True])
def test_killed_around_each_transaction_each_message_has_its_effects_once(root: Root, after: bool) -> None:
    for nth in range(1, STEPS_MAX):
        root.begun.put_back()

        def watched(nth: int = nth) -> None:
            with root.worker() as worker:
                rig.observe(KilledAtTransaction(root.folder.store, nth, after=after))
                worker.run(until_empty=True)

        status = in_child(watched)
        assert in_child(lambda: finishes(root)) == 0
        root.judge()
        if not os.WIFSIGNALED(status):
            assert status == 0 and nth > 5
            return


def test_the_next_worker_may_be_killed_at_every_step_too(root: Root) -> None:
    killed = 0
    for step in range(97, STEPS_MAX, AGAIN_EVERY):
        root.begun.put_back()
        if not killed_at(step, works, root.worker):  # type: ignore[arg-type]
            assert killed > 10
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
