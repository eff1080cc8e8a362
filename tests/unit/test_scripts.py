"""Scripts in one process: contexts, follow-ups, timers, replies; what fails, and what is in the way."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Misuse, QueueFull, QueueNotFound, WrongFormat
from penstock.scripts import App, Context, ScriptMessage
from penstock.scripts.folder import Folder, KeyLocks, Slots, place_of
from penstock.scripts.store import Store
from penstock.store import rig
from tests.conftest import SimulatedClock, assert_whole
from tests.crash.rig import in_child

SMALL: dict[str, Any] = {"depth": 64, "data_bytes": 64 << 10, "durability": "relaxed"}


@dataclasses.dataclass
class Customer:
    texts: list[str] = dataclasses.field(default_factory=list)
    reminded: int = 0


class Root:
    """A root with an input and an output, in simulated time, and an app with its worker."""

    def __init__(self, path: Path, clock: SimulatedClock) -> None:
        self.path = path
        self.clock = clock
        self.manager = penstock.QueueManager(path)
        self.manager.create("input", exclusive_keys=True, max_attempts=3, **SMALL)
        self.manager.create("output", **SMALL)
        self.app: App[Customer] = App("shop", input="input", context=Customer)
        self.input = self.manager.open("input", clock=clock)
        self.output = self.manager.open("output", clock=clock)

    def put(self, body: Any = None, type: str = "text", key: str | None = "ann", **options: Any) -> Any:
        return self.input.put(body, type=type, key=key, **options)

    def run(self, **options: Any) -> Any:
        return self.app.run(self.path, until_empty=True, clock=self.clock, **options)

    def worker(self, **options: Any) -> Any:
        return self.app.worker(self.path, clock=self.clock, **options)

    @property
    def contexts(self) -> dict[str, Customer]:
        return dict(self.app.contexts(self.path))

    def letters(self) -> list[Any]:
        dead = self.input._inner.dead_letters()  # type: ignore[attr-defined]
        return [] if dead is None else list(dead.browse())

    def bodies(self) -> list[Any]:
        return [message.body for message in self.output.browse()]

    def rows(self, table: str) -> int:
        with sqlite3.connect(Folder(self.path, "shop").store) as db:
            (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
        db.close()
        return int(count)

    def close(self) -> None:
        self.manager.close()
        for name in ("input", "output"):
            assert_whole(self.path / name)


@pytest.fixture
def root(tmp_path: Path, clock: SimulatedClock) -> Iterator[Root]:
    made = Root(tmp_path, clock)
    yield made
    made.close()


# ---------------------------------------------------------------- contexts


def test_a_script_gets_the_context_of_its_message_s_key(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        assert context.key == message.key
        context.state.texts.append(message.body)

    for n, key in enumerate("abab"):
        root.put(str(n), key=key)
    assert root.run().done == 4
    assert root.contexts == {"a": Customer(texts=["0", "2"]), "b": Customer(texts=["1", "3"])}
    assert root.input.qsize() == 0 and root.rows("done") == root.rows("outbox") == 0


def test_a_context_can_be_a_struct_or_a_plain_dict(root: Root) -> None:
    class Counter(msgspec.Struct):
        since: datetime = datetime(2030, 1, 1, tzinfo=UTC)
        count: int = 0

    app = App("counting", input="input", context=Counter)
    plain = App("plain", input="input")

    @app.script("text")
    def count(context: Context[Counter], message: ScriptMessage) -> None:
        context.state.count += 1

    @plain.script("text")
    def note(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
        context.state[message.body] = True

    root.put()
    app.run(root.path, until_empty=True, clock=root.clock)
    assert app.contexts(root.path)["ann"] == Counter(count=1)
    root.put("seen")
    plain.run(root.path, until_empty=True, clock=root.clock)
    assert dict(plain.contexts(root.path)) == {"ann": {"seen": True}}


def test_contexts_are_a_mapping(root: Root) -> None:
    contexts = root.app.contexts(root.path)
    assert len(contexts) == 0 and list(contexts) == [] and contexts.get("ann") is None

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append("x")

    root.put(key="ann")
    root.put(key="bob")
    root.run()
    assert len(contexts) == 2 and list(contexts) == ["ann", "bob"] and "ann" in contexts and "eve" not in contexts
    assert contexts["bob"] == Customer(texts=["x"]) and list(contexts.values()) == [contexts["ann"], contexts["bob"]]
    with pytest.raises(KeyError):
        contexts["eve"]


def test_who_changes_nothing_and_asks_for_nothing_leaves_nothing(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.cancel("nothing")

    root.put()
    with root.worker() as worker:
        assert worker.step() == 1
        assert root.rows("done") == root.rows("context") == 0
    assert root.input.qsize() == 0 and root.contexts == {}


def test_a_context_that_has_ended_begins_anew(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)
        context.after(60, "reminder")
        if message.body == "bye":
            context.put("gone", to="output")
            context.end()
            with pytest.raises(Misuse, match="has ended"):
                context.after(1, "reminder")

    @root.app.script("reminder")
    def reminder(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1

    root.put("hello")
    root.put("bye")
    root.run()
    assert root.contexts == {} and root.bodies() == ["gone"]
    root.clock.advance(61)
    root.put("again")
    root.run()
    assert root.contexts == {"ann": Customer(texts=["again"])}
    assert root.rows("placed") == 1


def test_a_context_that_does_not_decode_is_left_alone_and_its_message_fails(root: Root) -> None:
    other = App("shop", input="input")

    @other.script("text")
    def text(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
        context.state["texts"] = 7

    @root.app.script("text")
    def typed(context: Context[Customer], message: ScriptMessage) -> None:
        raise AssertionError("it is not called")

    root.put()
    other.run(root.path, until_empty=True, clock=root.clock)
    root.put("kept")
    for _ in range(3):
        assert root.run().failed == 1
        root.clock.advance(2)
    (letter,) = root.letters()
    assert letter.body == "kept" and "shop: the context 'ann' does not fit" in letter.error and "texts" in letter.error
    assert dict(other.contexts(root.path)) == {"ann": {"texts": 7}}
    with pytest.raises(penstock.ContextUnreadable):
        root.contexts  # noqa: B018


def test_a_type_that_cannot_be_a_context_is_refused_at_once() -> None:
    class Needy(msgspec.Struct):
        name: str

    with pytest.raises(Misuse, match=r"shop: contexts of type 'Needy' .*defaults"):
        App("shop", context=Needy)
    with pytest.raises(Misuse, match="name of an app"):
        App("no slashes/here")


# ---------------------------------------------------------------- what scripts ask for


def test_follow_ups_have_what_they_were_given(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put({"n": 1}, to="output", type="mail", priority=3, headers={"a": "b"})
        context.put(b"later", to="output", key="other", delay=60)
        context.put("no key", to="output", key=None, deliver_at=root.clock.now_s + 30)
        context.put("back", type="again")

    @root.app.script("again")
    def again(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(f"{message.body} {message.type} {message.key}")

    root.put()
    root.run()
    first, second, third = root.output.browse()
    assert (first.body, first.type, first.key, first.priority, first.headers) == (
        {"n": 1},
        "mail",
        "ann",
        3,
        {"a": "b"},
    )
    assert (second.body, second.key, third.body, third.key) == ("no key", None, b"later", "other")
    assert second.deliver_at.timestamp() == root.clock.now_s + 30
    assert root.contexts == {"ann": Customer(texts=["back again ann"])}


def test_follow_ups_and_timers_have_the_bodies_and_headers_that_there_were_when_they_were_asked_for(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        body, headers, raw = {"line": 0}, {"of": "0"}, bytearray(b"0")
        for line in range(3):
            body["line"], headers["of"] = line, str(line)
            context.put(body, to="output", headers=headers)
        context.put(raw, to="output")
        context.after(60, "text", body)
        body["line"], raw[:] = 99, b"9"

    root.put()
    root.run()
    assert [(message.body, message.headers) for message in root.output.browse()] == [
        *(({"line": line}, {"of": str(line)}) for line in range(3)),
        (b"0", {}),
    ]
    assert [message.body for message in root.input.browse()] == [{"line": 2}]


def test_a_timer_calls_its_script_at_its_time_and_once(root: Root) -> None:
    calls = []

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.after(60, "reminder", {"n": 7}, headers={"a": "b"})
        assert list(context.timers) == ["reminder"]

    @root.app.script("reminder")
    def reminder(context: Context[Customer], message: ScriptMessage) -> None:
        calls.append((message.body, message.headers["a"], context.timers))
        context.state.reminded += 1

    root.put()
    root.run()
    assert list(root.app.contexts(root.path).timers("ann")) == ["reminder"]
    root.clock.advance(59)
    root.run()
    assert calls == []
    root.clock.advance(2)
    root.run()
    assert calls == [({"n": 7}, "b", {})] and root.contexts == {"ann": Customer(reminded=1)}
    assert root.app.contexts(root.path).timers("ann") == {}


def test_a_timer_that_is_cancelled_or_set_again_does_not_fire_before(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        if message.body == "cancel":
            assert context.cancel("reminder") and not context.cancel("reminder")
        else:
            context.after(message.body, "reminder")

    @root.app.script("reminder")
    def reminder(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1

    root.put(10)
    root.run()
    root.put(100)
    root.run()
    assert root.input.qsize() == 1, "the message of the first is gone"
    root.clock.advance(11)
    root.run()
    assert root.contexts["ann"].reminded == 0
    root.clock.advance(90)
    root.run()
    assert root.contexts["ann"].reminded == 1
    root.put(10)
    root.put("cancel")
    root.run()
    assert root.input.qsize() == 0 and root.rows("placed") == 0
    root.clock.advance(11)
    assert root.run().done == 0 and root.contexts["ann"].reminded == 1


def test_headers_that_a_timer_s_script_passes_on_do_not_make_a_timer_of_the_message(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.after(10, "late", headers={"mine": "yes"})

    @root.app.script("late")
    def late(context: Context[Customer], message: ScriptMessage) -> None:
        assert message.headers == {"mine": "yes"}
        context.put("passed on", type="next", headers=message._incoming.headers)

    @root.app.script("next")
    def following(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    root.put()
    root.run()
    root.clock.advance(10)
    root.run()
    assert root.contexts["ann"].texts == ["passed on"]


def test_the_message_of_an_old_timer_that_comes_all_the_same_is_dropped(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.at(root.clock.now_s + 10, "reminder")

    @root.app.script("reminder")
    def reminder(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1

    root.put()
    root.run()
    (old,) = root.input.browse()
    root.put()
    root.run()
    root.put(old.body, type=old.type, headers=old.headers)  # as if it had not been cancelled
    counts = root.run()
    assert counts.dropped == 1 and counts.done == 0 and root.contexts["ann"].reminded == 0
    root.clock.advance(11)
    assert root.run().done == 1 and root.contexts["ann"].reminded == 1


def test_messages_of_timers_that_several_workers_set_anew_do_not_pile_up(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.after(60, "reminder")

    @root.app.script("reminder")
    def reminder(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1

    with root.worker() as first, root.worker() as second:
        for worker in (first, second) * 4:
            root.put()
            assert worker.step() == 1
    assert root.input.qsize() == root.rows("placed") == 1
    root.clock.advance(61)
    counts = root.run()
    assert (counts.done, counts.dropped) == (1, 0) and root.contexts["ann"].reminded == 1


def test_a_script_replies_to_whoever_asked(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        if message.wants_reply:
            message.reply({"said": message.body})
        else:
            with pytest.raises(Misuse, match="nobody waits"):
                message.reply("?")

    handles = [root.put(n, key=str(n), model="two-way", wait=False) for n in range(3)]
    root.put("told")
    while not all(handle.id for handle in handles):
        pass
    root.run()
    assert [handle.result(20) for handle in handles] == [{"said": n} for n in range(3)]


def test_a_question_that_nobody_replied_to_is_answered_with_none(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append("asked")

    handle = root.put(model="two-way", wait=False)
    while handle.id is None:
        pass
    root.run()
    assert handle.result(20) is None and root.contexts["ann"].texts == ["asked"]


# ---------------------------------------------------------------- what fails


def test_a_script_that_raises_changes_nothing_and_its_message_becomes_a_dead_letter_in_the_end(root: Root) -> None:
    attempts = []

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        attempts.append(message.attempts)
        context.state.texts.append("half")
        context.put("half", to="output")
        context.after(1, "text")
        raise ValueError("no such customer")

    @root.app.script("fine")
    def fine(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append("fine")

    root.put("bad")
    root.put(type="fine", key="bob")
    counts = root.run()
    assert (counts.done, counts.failed) == (1, 1) and attempts == [1]
    assert root.run().failed == 0, "it comes later"
    for n in (2, 3):
        root.clock.advance(1.5)
        root.run()
        assert attempts[-1] == n
    (letter,) = root.letters()
    assert letter.body == "bad" and letter.reason == "max_attempts" and letter.error == "ValueError: no such customer"
    assert root.contexts == {"bob": Customer(texts=["fine"])} and root.bodies() == [] and root.input.qsize() == 0


def test_an_error_that_has_no_text_is_a_failure_like_any_other(root: Root) -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        raise Wordless

    root.put(max_attempts=1)
    assert root.run().failed == 1
    (letter,) = root.letters()
    assert letter.error.startswith("Wordless")


def test_a_state_that_could_not_be_read_again_is_a_failure_of_the_message_that_made_it(root: Root) -> None:
    @dataclasses.dataclass
    class Mean:
        mean: float = 0.0

    app = App("mean", input="input", context=Mean)

    @app.script("text")
    def text(context: Context[Mean], message: ScriptMessage) -> None:
        context.state.mean += float(message.body)

    root.put(1)
    root.put("nan", max_attempts=1)
    root.put(2)
    counts = app.run(root.path, until_empty=True, clock=root.clock)
    assert (counts.done, counts.failed) == (2, 1) and app.contexts(root.path)["ann"] == Mean(3.0)
    (letter,) = root.letters()
    assert "cannot be stored" in letter.error


def test_a_message_without_a_script_or_without_a_key_is_a_dead_letter_at_once_and_can_be_brought_back(
    root: Root,
) -> None:
    root.put("one", type="unheard.of")
    root.put("two", key=None)

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        raise AssertionError("it has no key")

    assert root.run().letters == 2
    errors = {letter.body: (letter.reason, letter.error) for letter in root.letters()}
    assert errors["one"][0] == "no script" and "'unheard.of'" in errors["one"][1] and "no script" in errors["one"][1]
    assert "no key" in errors["two"][1]

    @root.app.script("unheard.of")
    def heard(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    root.input.redrive(reason="no script", type="unheard.of")
    assert root.run().done == 1 and root.contexts == {"ann": Customer(texts=["one"])}


@pytest.mark.parametrize(
    "ask, says",
    [
        (lambda context: context.put("x", to="nowhere"), "nowhere"),
        (lambda context: context.put("x", to=7), "the name of a queue"),
        (lambda context: context.put({1: 2}), "keys of JSON objects are str"),
        (lambda context: context.put("x", priority=99), "priority"),
        (lambda context: context.put(bytes(1 << 17), to="output"), "does not fit"),
        (lambda context: context.after(60, "remindr"), "timer 'remindr'"),
        (lambda context: context.after(-1, "text"), "delay"),
        (lambda context: setattr(context.state, "texts", [object()]), "the context 'ann' cannot be stored"),
    ],
)
def test_what_cannot_be_done_is_an_error_of_the_script_that_asked_for_it(root: Root, ask: Any, says: str) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1
        ask(context)

    root.put(max_attempts=1)
    assert root.run().failed == 1
    (letter,) = root.letters()
    assert says in letter.error
    assert root.contexts == {} and root.bodies() == []


def test_a_script_cannot_be_a_coroutine_nor_there_twice(root: Root) -> None:
    with pytest.raises(Misuse, match="coroutine"):

        @root.app.script("text")
        async def text(context: Any, message: Any) -> None: ...

    root.app.script("text")(print)
    with pytest.raises(Misuse, match="two scripts for 'text'"):
        root.app.script("text")(print)
    with pytest.raises(Misuse, match="for which types"):
        root.app.script()


def test_an_input_without_exclusive_keys_is_refused(root: Root, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"output: .*exclusive_keys"):
        App("shop", input="output").worker(tmp_path)
    with pytest.raises(QueueNotFound):
        App("shop", input="nowhere").worker(tmp_path)
    with pytest.raises(QueueNotFound):
        App("shop").worker(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_store_of_a_later_format_is_refused(root: Root) -> None:
    root.run()
    with sqlite3.connect(Folder(root.path, "shop").store) as db:
        db.execute("PRAGMA user_version=9")
    db.close()
    with pytest.raises(WrongFormat, match="format 9"):
        root.worker()


@pytest.mark.damages
def test_a_store_that_is_none_is_said_to_be_damaged(root: Root) -> None:
    folder = Folder(root.path, "shop")
    folder.make()
    folder.store.write_bytes(b"nothing that SQLite knows" * 100)
    with pytest.raises(penstock.Corrupt, match=r"contexts\.sqlite"):
        root.worker()


# ---------------------------------------------------------------- room


def test_follow_ups_wait_for_room_and_nothing_is_lost(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put(message.body, to="output")
        context.state.texts.append(message.body)

    root.output.put_many(["in the way"] * 60)
    for n in range(10):
        root.put(str(n), key=f"k{n}")
    with root.worker() as worker, caplog.at_level(logging.WARNING, "penstock"):
        assert worker.step() == 10
        assert root.rows("outbox") == 1 and worker.step() == 0, "it waits"
        assert root.input.qsize() == 0, "what is done is acknowledged"
        assert "follow-ups wait for output" in caplog.text and "full" in caplog.text
        root.output.ack_many(root.output.get_many(60))
        assert worker.step() == 0 and root.rows("outbox") == 0
    assert root.bodies() == [str(n) for n in range(10)]


def test_a_worker_that_ends_leaves_what_waits_for_room_to_the_next(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put("x", to="output")

    root.output.put_many(["in the way"] * 64)
    root.put()
    with root.worker() as worker:
        worker.step()
    root.output.ack_many(root.output.get_many(64))
    assert root.bodies() == []
    root.run()
    root.run()
    assert root.bodies() == ["x"]


def test_a_full_input_does_not_block_the_follow_ups_of_its_own_messages(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put("next", type="next")

    @root.app.script("next")
    def following(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1

    with pytest.raises(QueueFull):
        for n in range(100):
            root.put(key=f"k{n}")
    root.run()
    assert len(root.contexts) == 64 and root.input.qsize() == 0


def test_an_input_that_others_keep_full_is_worked_on_while_its_follow_ups_wait(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put("next", type="next")

    @root.app.script("next")
    def following(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1

    with root.worker(batch_s=60) as worker:
        for _ in range(3):
            root.input.put_many([penstock.Draft(body=None, type="text", key=f"k{n}") for n in range(64)])
            assert worker.step() == 64 and worker.waits
        worker.run(until_empty=True)
    assert root.contexts == {f"k{n}": Customer(reminded=3) for n in range(64)} and root.input.qsize() == 0


def test_follow_ups_to_one_queue_by_name_and_by_uuid_are_put_in_one_order(root: Root) -> None:
    uuid = str(root.manager.find("output").uuid)

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        for n in range(4):
            context.put(n, to="output")
        context.put(4, to=uuid)

    root.output.put_many(["in the way"] * 62)
    root.put()
    with root.worker() as worker:
        assert worker.step() == 1 and worker.waits
        for message in root.output.get_many(64):
            message.ack() if message.body == "in the way" else message.release()
        worker.step()
        assert root.bodies() == [0, 1, 2, 3, 4] and not worker.waits


def test_follow_ups_whose_headers_are_larger_than_a_queue_wait_for_room_one_after_the_other(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        for n in range(3):
            context.put(n, to="output", headers={"long": "x" * 25_000})

    root.put()
    with root.worker() as worker:
        assert worker.step() == 1 and root.bodies() == [0, 1]
        root.output.ack_many(root.output.get_many(2))
        worker.step()
        assert root.bodies() == [2] and not worker.waits


# ---------------------------------------------------------------- macro queues


@pytest.fixture
def macro(tmp_path: Path, clock: SimulatedClock) -> Iterator[Root]:
    made = Root(tmp_path, clock)
    made.manager.create("urgent", exclusive_keys=True, **SMALL)
    made.manager.create_macro("all", [("urgent", 2), ("input", 1)])
    made.app = App("shop", input="all", context=Customer)

    @made.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    yield made
    made.close()


def test_the_members_of_a_macro_queue_share_contexts(macro: Root) -> None:
    macro.put("later")
    with macro.manager.open("urgent", clock=macro.clock) as urgent:
        urgent.put("now", type="text", key="ann")
        urgent.put("then", type="text", key="ann")
    macro.run()
    assert macro.contexts == {"ann": Customer(texts=["now", "then", "later"])} or macro.contexts == {
        "ann": Customer(texts=["now", "later", "then"])
    }


def test_a_key_that_another_worker_has_waits_and_others_do_not(macro: Root) -> None:
    with macro.worker() as first, macro.worker() as second:
        macro.put("in hand")
        (held,) = first._taking.take(0)
        with macro.manager.open("urgent", clock=macro.clock) as urgent:
            urgent.put("waits", type="text", key="ann")
            urgent.put("waits too", type="text", key="ann")
        macro.put("goes on", key="bob")
        assert second.step() == 1 and second.step() == 0
        assert macro.contexts == {"bob": Customer(texts=["goes on"])} and second._taking.waits
        first._work([held])
        first._taking.finished()
        assert second.step() == 1 and second.step() == 1 and second.step() == 0
    assert macro.contexts["ann"] == Customer(texts=["in hand", "waits", "waits too"])


def test_follow_ups_to_a_macro_queue_go_where_there_is_room(macro: Root) -> None:
    @macro.app.script("ask")
    def ask(context: Context[Customer], message: ScriptMessage) -> None:
        context.put("asked", type="text")

    macro.manager.create("first", exclusive_keys=True, **{**SMALL, "depth": 8})
    macro.manager.configure("all", members=["first", "urgent", "input"], consuming="round-robin")
    with macro.manager.open("first", clock=macro.clock) as first:
        first.put_many(["full"] * 8, type="text", key="eve", delay=1000)
        for n in range(5):
            macro.put(type="ask", key=f"k{n}")
        macro.run()
        assert first.qsize() == 8
    assert macro.contexts == {f"k{n}": Customer(texts=["asked"]) for n in range(5)}


def test_follow_ups_to_a_macro_queue_with_one_dedup_id_are_put_once(macro: Root) -> None:
    @macro.app.script("pay")
    def pay(context: Context[Customer], message: ScriptMessage) -> None:
        context.put("paid", to="payments", dedup_id="invoice 1")

    for name in ("a", "b"):
        macro.manager.create(name, **SMALL)
    macro.manager.create_macro("payments", ["a", "b"], producing="round-robin")
    for n in range(4):
        macro.put(type="pay", key=f"k{n}")
    assert macro.run(batch=1).done == 4
    with macro.manager.open("payments", clock=macro.clock) as payments:
        assert [message.body for message in payments.browse()] == ["paid"]


def test_the_lease_of_a_message_whose_key_another_worker_has_is_kept(macro: Root) -> None:
    with macro.worker() as first, macro.worker() as second:
        macro.put("in hand")
        assert len(first._taking.take(0)) == 1
        with macro.manager.open("urgent", clock=macro.clock) as urgent:
            urgent.put("waits", type="text", key="ann", lease=5)
        assert second.step() == 0 and second.waits
        assert second._keeper._shortest_s == 5


def test_a_follow_up_to_a_macro_queue_that_copies_goes_to_all_of_its_members(macro: Root) -> None:
    @macro.app.script("tell")
    def tell(context: Context[Customer], message: ScriptMessage) -> None:
        context.put("told", to="everybody")

    for name in ("a", "b"):
        macro.manager.create(name, **SMALL)
    macro.manager.create_macro("everybody", ["a", "b"], producing="copy-to-all")
    macro.put(type="tell")
    macro.run()
    for name in ("a", "b"):
        with macro.manager.open(name, clock=macro.clock) as queue:
            assert [message.body for message in queue.browse()] == ["told"]


# ---------------------------------------------------------------- what one worker leaves to the next


class KilledAfterStoring:
    """Ends this process between the transaction of the store and whatever follows it in its thread. Another one may
    write while SQLite commits."""

    def __init__(self, store: Path) -> None:
        self._store = str(store)
        self._stored_by = 0

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        self.store("", 0, 0)
        if kind == rig.SYNC and target == self._store:
            self._stored_by = threading.get_ident()

    def store(self, path: str, index: int, value: int) -> None:
        if self._stored_by == threading.get_ident():
            os.kill(os.getpid(), signal.SIGKILL)


def killed_after_storing(root: Root, *, slot: int = 0) -> None:
    def work() -> None:
        others = [root.worker() for _ in range(slot)]
        with root.worker() as worker:
            assert worker._slots.mine == slot == len(others)
            rig.observe(KilledAfterStoring(Folder(root.path, "shop").store))
            worker.step()

    assert os.WTERMSIG(in_child(work)) == signal.SIGKILL


def test_a_message_that_was_done_before_is_only_acknowledged(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)
        context.put(message.body, to="output")

    root.put("once")
    killed_after_storing(root)
    assert root.contexts == {"ann": Customer(texts=["once"])} and root.bodies() == [] and root.rows("outbox") == 1
    counts = root.run()
    assert (counts.again, counts.done) == (1, 0)
    assert root.contexts == {"ann": Customer(texts=["once"])} and root.bodies() == ["once"]
    assert root.rows("done") == root.rows("outbox") == 0


def test_the_reply_of_a_worker_that_died_is_sent_by_the_next(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.reminded += 1
        message.reply(context.state.reminded)

    handle = root.put(model="two-way", wait=False)
    while handle.id is None:
        pass
    killed_after_storing(root)
    root.run()
    assert handle.result(20) == 1 and root.contexts["ann"].reminded == 1


def test_a_done_message_that_became_a_dead_letter_is_taken_from_there(root: Root) -> None:
    """Its last attempt was the one whose worker died after it was done."""

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    root.put("once", max_attempts=1)
    killed_after_storing(root)
    root.run()
    assert root.letters() == [] and root.rows("done") == 0
    assert root.input.redrive() == 0 and root.contexts == {"ann": Customer(texts=["once"])}


def test_a_done_message_that_was_brought_back_from_the_dead_letters_is_only_acknowledged(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    root.put("once", max_attempts=1)
    killed_after_storing(root)
    assert root.input.get_many(1) == [] and len(root.letters()) == 1
    assert root.input.redrive() == 1
    assert root.run().again == 1 and root.contexts == {"ann": Customer(texts=["once"])}
    assert root.rows("done") == 0


def test_a_done_message_that_was_moved_to_another_member_is_only_acknowledged(macro: Root) -> None:
    macro.put("once")
    killed_after_storing(macro)
    with macro.manager.open("urgent", clock=macro.clock) as urgent:
        (message,) = macro.input.get_many(1)
        message.move(to=urgent._inner)
    counts = macro.run()
    assert (counts.again, counts.done) == (1, 0) and macro.contexts == {"ann": Customer(texts=["once"])}
    assert macro.rows("done") == 0


def test_follow_ups_of_a_worker_that_died_are_put_before_those_of_the_next_of_its_key(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put(message.body, to="output")

    root.put("first")
    root.put("second")
    killed_after_storing(root, slot=1)
    with root.worker() as worker:
        worker._tend_at_s = math.inf  # as if it had just looked for what others left
        assert worker.step() == 1 and worker.step() == 1
        assert worker.counts.again == 1 and root.bodies() == ["first", "second"]


def test_a_script_that_exits_counts_as_an_attempt(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append("never")
        raise SystemExit(3)

    root.put()
    with pytest.raises(SystemExit):
        root.run()
    (message,) = root.input.browse()
    assert message.attempts == 1 and root.contexts == {}
    assert root.run().done == 0, "it comes later"


def test_a_message_is_known_as_done_until_its_acknowledgement_is_on_disk(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    root.put("once")
    with root.worker() as worker:
        worker.step()
        assert root.input.qsize() == 0 and root.rows("done") == 1
        syncs = root.input.stats().index_syncs
        worker._settle()
        assert root.rows("done") == 0 and root.input.stats().index_syncs > syncs


def test_a_restored_store_does_not_lose_the_follow_ups_of_new_messages(root: Root) -> None:
    """Its numbers are above those that queues remember of it, since they grow with time."""

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put(message.body, to="output")

    store = Folder(root.path, "shop").store
    root.put("one")
    root.run()
    copy = store.read_bytes()
    root.clock.advance(1)
    for n in range(5):
        root.put(f"lost {n}")
    root.run()
    for name in ("-wal", "-shm"):
        store.with_name(store.name + name).unlink(missing_ok=True)
    store.write_bytes(copy)
    root.clock.advance(1)
    root.put("two")
    root.run()
    assert root.bodies() == ["one", *(f"lost {n}" for n in range(5)), "two"]


def test_a_lease_that_ended_while_the_script_ran_makes_its_outcome_void(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        if message.attempts == 1:
            root.clock.advance(1000)
            with root.worker() as other:
                assert other.step() == 1
        context.state.texts.append(f"attempt {message.attempts}")
        context.put(message.attempts, to="output")

    root.put()
    with root.worker() as worker:
        assert worker.step() == 1
        assert worker.counts.lost == 1 and worker.counts.done == 0
    assert root.contexts == {"ann": Customer(texts=["attempt 2"])} and root.bodies() == [2]


def test_a_context_that_a_worker_past_its_lease_has_stored_is_not_overwritten(root: Root) -> None:
    """It was stopped in its transaction, when it had asked whether the message is its own. Meanwhile the next of the
    key was given to another one."""
    stopped: list[Any] = []

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)
        if message.body == "second" and stopped:
            change = msgspec.structs.replace(stopped.pop(), is_ours=lambda: True)
            counted, *_ = first._store.apply(first._slots.mine, [change], root.clock.wall_us(), first._targets.room)
            assert len(counted) == 1

    root.put("first", max_attempts=1)
    root.put("second")
    with root.worker() as first, root.worker() as second:
        ((_, change),) = first._call_all(first._taking.take(0)).changes
        stopped.append(change)
        root.clock.advance(1000)
        assert second.step() == 1 and second.counts.lost == 1
        assert second.step() == 1 and second.counts.done == 1
    assert root.contexts == {"ann": Customer(texts=["first", "second"])}


def test_a_message_that_was_delivered_before_is_worked_on_alone(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)

    for n in range(6):
        root.put(str(n), key=f"k{n}")
    for message in root.input.get_many(2):
        message.release()
    sizes = []
    with root.worker() as worker:
        while count := worker.step():
            sizes.append(count)
    assert sizes == [1, 1, 1, 3] and len(root.contexts) == 6


def test_what_a_long_batch_has_done_is_stored_before_the_rest_is_begun(root: Root) -> None:
    seen: list[int] = []

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        seen.append(len(root.contexts))
        context.state.texts.append(message.body)

    for n in range(8):
        root.put(str(n), key=f"k{n}")
    sizes = []
    with root.worker(batch=8, batch_s=0.0) as worker:
        while count := worker.step():
            sizes.append(count)
    assert sizes == [1] * 8 and seen == list(range(8)) and len(root.contexts) == 8


def test_a_worker_that_is_told_to_stop_gives_back_what_it_has_not_begun(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)
        worker.stop()

    for n in range(5):
        root.put(str(n), key=f"k{n}")
    with root.worker() as worker:
        assert worker.run().done == 1
        assert root.input.qsize() == 4 and [message.attempts for message in root.input.browse()] == [0] * 4
    assert len(root.contexts) == 1


def test_an_input_that_is_deactivated_gives_nothing_until_it_is_activated(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append("x")

    root.put()
    root.manager.deactivate("input")
    assert root.run().done == 0
    root.manager.activate("input")
    assert root.run().done == 1


def test_the_child_of_a_fork_does_not_keep_its_parent_s_locks(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "shop")
    folder.make()
    slots, keys = Slots(folder), KeyLocks(folder)
    assert keys.take("a")
    ready, told = os.pipe()
    over, gone = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(gone)
        os.write(told, b"x")
        os.read(over, 1)
        os._exit(0)
    os.read(ready, 1)
    slots.close()
    keys.close()
    assert Slots(folder).mine == 0 and KeyLocks(folder).take("a")
    os.close(gone)
    os.waitpid(child, 0)
    for fd in (ready, told, over):
        os.close(fd)


def test_a_worker_is_not_used_by_the_child_of_a_fork(root: Root) -> None:
    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.put(message.body, to="output")

    root.put("once")
    with root.worker() as worker:

        def use() -> None:
            with pytest.raises(Misuse, match="forked"):
                worker.step()
            worker.close()
            with pytest.raises(Misuse, match="fork first"):
                root.worker()  # SQLite would do without locks

        assert in_child(use) == 0
        assert worker.step() == 1
    assert root.bodies() == ["once"]


def test_slots_and_keys_are_locked_for_others_and_free_with_their_holder(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "shop")
    folder.make()
    first, second = Slots(folder), Slots(folder)
    assert (first.mine, second.mine) == (0, 1)
    with second.of_the_dead(0) as free:
        assert not free
    first.close()
    with second.of_the_dead(0) as free, Slots(folder).of_the_dead(0) as other:
        assert free and not other
    keys, others = KeyLocks(folder), KeyLocks(folder)
    assert keys.take("a") and not keys.take("a") and not others.take("a") and others.take("b")
    keys.leave("a")
    assert others.take("a")
    others.close()
    assert keys.take("a") and keys.take("b")
    assert place_of("a") != place_of("b") and 0 <= place_of("a") < 1 << 62


def test_a_store_that_somebody_holds_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "contexts.sqlite"
    first, second = Store(path, busy_s=0.05), Store(path, busy_s=0.05)
    with first._transaction(), pytest.raises(penstock.QueueBusy, match=r"contexts\.sqlite"):
        second.forget_done(["a"])
    second.forget_done(["a"])
    first.close()
    second.close()


def test_an_interrupt_while_a_transaction_waits_to_begin_leaves_none_open(tmp_path: Path) -> None:
    class Interrupted:
        """As Ctrl-C while SQLite waits: Python raises it when the call has returned."""

        def __init__(self, db: sqlite3.Connection) -> None:
            self._db = db

        def execute(self, statement: str) -> None:
            self._db.execute(statement)
            if statement.startswith("BEGIN"):
                raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(self._db, name)

    path = tmp_path / "contexts.sqlite"
    first, second = Store(path, busy_s=0.05), Store(path, busy_s=0.05)
    first._db, whole = Interrupted(first._db), first._db  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        first.forget_done(["a"])
    first._db = whole
    second.forget_done(["a"])
    first.forget_done(["a"])
    first.close()
    second.close()


def test_a_worker_that_was_interrupted_goes_on_and_nothing_is_missing(root: Root) -> None:
    class Interrupts:
        """As Ctrl-C does, just after a transaction."""

        def __init__(self) -> None:
            self._stored = False

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if self._stored:
                rig.observe(None)
                raise KeyboardInterrupt
            self._stored = kind == rig.SYNC and str(target).endswith("contexts.sqlite")

        def store(self, path: str, index: int, value: int) -> None: ...

    @root.app.script("text")
    def text(context: Context[Customer], message: ScriptMessage) -> None:
        context.state.texts.append(message.body)
        context.put(message.body, to="output")

    root.put("one")
    root.put("two")
    with root.worker() as worker:
        rig.observe(Interrupts())
        try:
            with pytest.raises(KeyboardInterrupt):
                worker.run(until_empty=True)
        finally:
            rig.observe(None)
        assert root.bodies() == []
        worker.run(until_empty=True)
    assert root.bodies() == ["one", "two"] and root.contexts == {"ann": Customer(texts=["one", "two"])}
