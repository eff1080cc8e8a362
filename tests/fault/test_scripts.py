"""Workers of scripts in several processes: stopped, killed at random, with messages that kill them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.scripts import App, Context, ScriptMessage
from penstock.scripts.context import TIMER
from tests.conftest import assert_whole
from tests.fault.processes import Child
from tests.snapshot import Snapshot

KILLS_MAX = 12
ENOUGH_S = 60  # for all of it; far more than it takes

Start = Callable[..., Child]


class Seen(msgspec.Struct):
    bodies: list[str] = []


class Root:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.manager = penstock.QueueManager(path)
        options: dict[str, Any] = {"depth": 2000, "data_bytes": 1 << 20, "durability": "relaxed", "lease": 0.5}
        for name in ("one", "two"):
            self.manager.create(name, exclusive_keys=True, **options)
        self.manager.create("output", **options)
        self.manager.create_macro("both", [("one", 1), "two"])

    def app(self, input: str) -> App[Seen]:
        app = App("seeing", input=input, context=Seen)

        @app.script("see")
        def see(context: Context[Seen], message: ScriptMessage) -> None:
            with self.alone(context.key):
                context.state.bodies.append(message.body)
                context.put(message.body, to="output")
                context.after(3600, "later", message.body)

        @app.script("later")
        def later(context: Context[Seen], message: ScriptMessage) -> None:
            raise AssertionError("an hour has not passed")

        @app.script("kill")
        def kill(context: Context[Seen], message: ScriptMessage) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        @app.script("hang")
        def hang(context: Context[Seen], message: ScriptMessage) -> None:
            context.state.bodies.append(message.body)
            context.put(message.body, to="output")
            if message.attempts == 1:
                (self.path / "hangs").touch()
                while not (self.path / "go on").exists():
                    time.sleep(0.005)

        return app

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Nobody else works on this key; the system drops the lock of one that was killed."""
        with open(self.path / f"busy {key}", "w") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error if somebody does
            yield

    def put(self, queue: str, bodies: list[str], keys: list[str], type: str = "see", **options: Any) -> None:
        with self.manager.open(queue) as opened:
            drafts = zip(bodies, keys, strict=True)
            opened.put_many([penstock.Draft(body=body, type=type, key=key, **options) for body, key in drafts])

    def output(self) -> list[str]:
        with self.manager.open("output") as output:
            return sorted(message.body for message in output.browse())

    def close(self) -> None:
        self.manager.close()
        for name in ("one", "two", "output"):
            assert_whole(self.path / name)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    made = Root(tmp_path / "root")
    yield made
    made.close()


def works(say: Callable[[Any], None], app: App[Seen], root: Path, options: dict[str, Any]) -> None:
    with app.worker(root, **options) as worker:
        say("ready")
        say(msgspec.to_builtins(worker.run(until_empty=True)))


def works_on(say: Callable[[Any], None], app: App[Seen], root: Path, options: dict[str, Any]) -> None:
    with app.worker(root, **options) as worker:
        worker.run()


def fill(root: Root, keys: int, messages: int) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Messages of the same keys in both queues: by key and queue in order, and all."""
    wanted: dict[str, dict[str, list[str]]] = {}
    everything: list[str] = []
    for queue in ("one", "two"):
        bodies = [f"{queue} {n}" for n in range(messages)]
        names = [f"k{n % keys}" for n in range(messages)]
        root.put(queue, bodies, names)
        everything += bodies
        for body, key in zip(bodies, names, strict=True):
            wanted.setdefault(key, {}).setdefault(queue, []).append(body)
    return wanted, sorted(everything)


def judge(root: Root, app: App[Seen], wanted: dict[str, dict[str, list[str]]], everything: list[str]) -> None:
    """Each message once, those of a key and queue in order; follow-ups and timers once."""
    contexts = dict(app.contexts(root.path))
    assert contexts.keys() == wanted.keys()
    for key, by_queue in wanted.items():
        for queue, bodies in by_queue.items():
            assert [body for body in contexts[key].bodies if body.startswith(queue)] == bodies
    assert root.output() == everything
    with root.manager.open("both") as both:
        timers = [message.headers[TIMER] for message in both.browse()]
    assert len(timers) == len(set(timers)) and len(timers) >= len(wanted)
    for key in wanted:
        assert list(app.contexts(root.path).timers(key)) == ["later"]


def test_workers_share_a_macro_queue_one_message_of_a_key_at_a_time_and_in_order(root: Root, start: Start) -> None:
    wanted, everything = fill(root, 5, 60)
    app = root.app("both")
    children = [start(works, app, root.path, {"batch": 7}) for _ in range(3)]
    counts = [child.hear() and child.hear(ENOUGH_S) for child in children]
    assert sum(count["done"] for count in counts) == 120 and sum(count["failed"] for count in counts) == 0
    judge(root, app, wanted, everything)


def test_workers_killed_at_random_have_done_each_message_once(root: Root, start: Start) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    wanted, everything = fill(root, 7, 70)
    app = root.app("both")
    options = {"batch": 10, "busy_s": 20}
    children = [start(works_on, app, root.path, options) for _ in range(2)]
    deadline = time.monotonic() + ENOUGH_S
    kills = 0
    while len(root.output()) < len(everything) and time.monotonic() < deadline:
        time.sleep(chance.uniform(0.01, 0.25))
        if kills < KILLS_MAX:
            kills += 1
            n = chance.randrange(2)
            children[n].kill()
            children[n] = start(works_on, app, root.path, options)
    for child in children:
        child.kill()
    app.run(root.path, until_empty=True)
    judge(root, app, wanted, everything)


def test_a_worker_that_was_stopped_past_its_lease_does_not_apply_its_message_again(root: Root, start: Start) -> None:
    root.put("one", ["once"], ["ann"], type="hang")
    app = root.app("one")
    child = start(works, app, root.path, {})
    assert child.hear() == "ready"
    until(lambda: (root.path / "hangs").exists())
    child.stop()
    with app.worker(root.path) as worker:
        until(lambda: worker.step(0.2) or worker.counts.done)
    assert worker.counts.done == 1 and app.contexts(root.path)["ann"].bodies == ["once"]
    (root.path / "go on").touch()
    child.go_on()
    assert child.hear()["lost"] == 1
    assert app.contexts(root.path)["ann"].bodies == ["once"] and root.output() == ["once"]


def test_the_key_of_a_stopped_worker_waits_and_others_go_on_until_it_is_killed(root: Root, start: Start) -> None:
    root.put("one", ["first"], ["ann"], type="hang")
    app = root.app("both")
    child = start(works, app, root.path, {})
    assert child.hear() == "ready"
    until(lambda: (root.path / "hangs").exists())
    child.stop()
    root.put("two", ["second", "third"], ["ann", "bob"])
    with app.worker(root.path) as worker:
        until(lambda: worker.step(0.1) and "bob" in app.contexts(root.path))
        for _ in range(5):
            worker.step(0.2)  # past the lease of the stopped one
        assert list(app.contexts(root.path)) == ["bob"] and worker.waits
        child.kill()
        until(lambda: worker.step(0.2) and len(root.output()) == 3)
    assert sorted(app.contexts(root.path)["ann"].bodies) == ["first", "second"]
    assert root.output() == ["first", "second", "third"]


def test_a_script_that_takes_longer_than_the_lease_keeps_its_message(root: Root, start: Start) -> None:
    root.put("one", ["slow"], ["ann"], type="hang")
    app = root.app("one")
    child = start(works, app, root.path, {})
    assert child.hear() == "ready"
    until(lambda: (root.path / "hangs").exists())
    with app.worker(root.path) as worker:
        for _ in range(6):
            assert worker.step(0.25) == 0  # three leases in all
    (root.path / "go on").touch()
    assert child.hear()["done"] == 1 and root.output() == ["slow"]


def test_a_message_that_kills_its_worker_becomes_a_dead_letter_and_costs_others_nothing(
    root: Root, start: Start
) -> None:
    root.put("one", [f"before {n}" for n in range(5)], [f"a{n}" for n in range(5)], max_attempts=3)
    root.put("one", ["poison"], ["eve"], type="kill", max_attempts=3)
    root.put("one", [f"behind {n}" for n in range(5)], [f"b{n}" for n in range(5)], max_attempts=3)
    app = root.app("one")
    ends = []
    while len(ends) < 10 and (not ends or ends[-1] != 0):
        child = start(works, app, root.path, {})
        ends.append(child.join())
    assert ends == [-signal.SIGKILL] * 3 + [0]
    with penstock.open(root.path / "one.dead") as letters:
        assert [letter.body for letter in letters.browse()] == ["poison"]
    assert root.output() == sorted([f"{where} {n}" for where in ("before", "behind") for n in range(5)])


def test_a_power_loss_that_takes_an_acknowledgement_back_does_not_apply_its_message_again(
    root: Root, start: Start
) -> None:
    """The store is on disk before the message is acknowledged, the acknowledgement after the next index sync: until
    then the queue may be as it was, and the message in it."""
    root.put("one", ["once"], ["ann"])
    root.manager.close()
    app = root.app("one")
    before = Snapshot(root.path / "one")

    def stops_before_settling(say: Callable[[Any], None]) -> None:
        worker = app.worker(root.path)
        say(worker.step())
        time.sleep(ENOUGH_S)

    child = start(stops_before_settling)
    assert child.hear() == 1
    child.kill()
    before.put_back()
    counts = app.run(root.path, until_empty=True)
    assert (counts.again, counts.done) == (1, 0)
    assert app.contexts(root.path)["ann"].bodies == ["once"] and root.output() == ["once"]


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + ENOUGH_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)
