"""What a script is given and what is stored of it, of one message of a key after the other: the same with workers, who
store each by itself, and on Spark, where all of a batch are worked on together (tests/spark/fakespark.py)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

import penstock
from penstock.scripts import App, Context, ScriptMessage

pytest.importorskip("pyspark")
from tests.spark.fakespark import FakeSpark

SMALL: dict[str, Any] = {"depth": 256, "data_bytes": 256 << 10, "durability": "relaxed"}
WAYS = ["workers", "Spark"]


@dataclasses.dataclass
class Total:
    sum: int = 0
    seen: list[int] = dataclasses.field(default_factory=list)


class Root:
    """A root with an input and an output, and how its scripts are run."""

    def __init__(self, path: Path, way: str, kind: Any = Total) -> None:
        self.path = path
        self.way = way
        self.app: App[Any] = App("states", input="input", context=kind)
        with penstock.QueueManager(path) as manager:
            manager.create("input", exclusive_keys=way == "workers", max_attempts=1, spill_bytes=4096, **SMALL)
            manager.create("output", **SMALL)

    def put(self, *bodies: Any, key: str = "a", type: str = "n", **options: Any) -> None:
        with penstock.open(self.path / "input") as queue:
            queue.put_many(bodies, type=type, key=key, **options)

    def run(self) -> None:
        if self.way == "workers":
            self.app.run(self.path, until_empty=True)
        else:
            FakeSpark(self.app, self.path, partitions=1).run()

    @property
    def contexts(self) -> dict[str, Any]:
        return dict(self.app.contexts(self.path))

    def bodies(self, queue: str) -> list[Any]:
        with penstock.open(self.path / queue) as opened:
            return [message.body for message in opened.browse()]


Make = Callable[..., Root]


@pytest.fixture(params=WAYS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return lambda kind=Total: Root(tmp_path, request.param, kind)


def test_a_state_that_a_script_has_kept_and_changes_later_is_not_what_is_stored(make: Make) -> None:
    root = make()
    kept: list[Total] = []

    @root.app.script("n")
    def n(context: Context[Total], message: ScriptMessage) -> None:
        for other in kept:
            assert other is not context.state and other.seen is not context.state.seen
            other.sum = -1
            other.seen.append(-1)
        context.state.sum += message.body
        context.state.seen.append(message.body)
        kept.append(context.state)

    root.put(1, 2, 3, 4)
    root.run()
    assert len(kept) == 4 and root.contexts == {"a": Total(10, [1, 2, 3, 4])}


def test_a_script_that_fails_after_it_changed_the_state_leaves_it_to_the_next_as_it_was(make: Make) -> None:
    root = make()
    found: list[Total] = []

    @root.app.script("n")
    def n(context: Context[Total], message: ScriptMessage) -> None:
        found.append(dataclasses.replace(context.state, seen=list(context.state.seen)))
        context.state.sum += message.body
        context.state.seen.append(message.body)
        if message.body % 2:
            raise ValueError("odd")

    root.put(1, 2, 3, 5, 4, 7)
    root.run()
    assert found == [
        Total(),
        Total(),
        Total(2, [2]),
        Total(2, [2]),
        Total(2, [2]),
        Total(6, [2, 4]),
    ]
    assert root.contexts == {"a": Total(6, [2, 4])} and root.bodies("input.dead") == [1, 3, 5, 7]


def test_what_a_script_asked_for_and_cannot_be_put_takes_its_state_with_it(make: Make) -> None:
    root = make()

    @root.app.script("n")
    def n(context: Context[Total], message: ScriptMessage) -> None:
        context.state.sum += message.body
        context.put(context.state.sum, to="output" if message.body < 10 else "nowhere")

    root.put(1, 10, 2, 20, 3)
    root.run()
    assert root.contexts == {"a": Total(6)} and root.bodies("output") == [1, 3, 6]
    assert root.bodies("input.dead") == [10, 20]


def test_a_state_that_cannot_be_stored_is_not_what_the_next_is_given(make: Make) -> None:
    root = make(dict)

    @root.app.script("n")
    def n(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
        context.state.setdefault("seen", []).append(message.body)
        if message.body == 2:
            context.state["lock"] = object()

    root.put(1, 2, 3)
    root.run()
    assert root.contexts == {"a": {"seen": [1, 3]}} and root.bodies("input.dead") == [2]


def test_each_message_is_given_what_was_stored_and_not_what_the_last_one_left(make: Make) -> None:
    root = make(dict)
    kinds: list[str] = []

    @root.app.script("n")
    def n(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
        kinds.append(type(context.state.get("pair")).__name__)
        context.state["pair"] = (message.body, datetime(2030, 1, message.body, tzinfo=UTC))

    root.put(1, 2, 3)
    root.run()
    assert kinds == ["NoneType", "list", "list"]
    assert root.contexts == {"a": {"pair": [3, "2030-01-03T00:00:00Z"]}}


def test_what_a_script_notes_on_the_object_and_is_not_stored_is_not_there_for_the_next(make: Make) -> None:
    root = make()
    there: list[bool] = []

    @root.app.script("n")
    def n(context: Context[Total], message: ScriptMessage) -> None:
        there.append(hasattr(context.state, "aside"))
        context.state.aside = True  # type: ignore[attr-defined]
        if message.body:
            context.state.sum += message.body

    root.put(0, 1, 0, 0, 2, 0)
    root.run()
    assert there == [False] * 6 and root.contexts == {"a": Total(3)}


def test_a_context_that_ended_begins_anew_with_the_next_message(make: Make) -> None:
    root = make()
    found: list[int] = []

    @root.app.script("n")
    def n(context: Context[Total], message: ScriptMessage) -> None:
        found.append(context.state.sum)
        context.state.sum += message.body
        if message.body == 3:
            context.put("ended", to="output")
            context.end()

    root.put(1, 2, 3, 4, 5)
    root.run()
    assert found == [0, 1, 3, 0, 4] and root.contexts == {"a": Total(9)} and root.bodies("output") == ["ended"]
    root.put(3)
    root.run()
    assert root.contexts == {}


def test_timers_that_are_set_cancelled_and_set_anew_go_with_the_state(make: Make) -> None:
    root = make()
    timers: list[dict[str, datetime]] = []
    fired: list[str] = []

    @root.app.script("n")
    def n(context: Context[Total], message: ScriptMessage) -> None:
        timers.append(context.timers)
        if message.body == "set":
            context.at(datetime(2030, 1, 1, tzinfo=UTC), "later")
            context.after(0, "ring", "of the first")
        elif message.body == "fail":
            context.cancel("later")
            raise ValueError("and is set all the same")
        elif message.body == "anew":
            context.after(0, "ring", "of the second")

    @root.app.script("ring", "later")
    def ring(context: Context[Total], message: ScriptMessage) -> None:
        fired.append(message.body)

    root.put("set", "fail", "anew")
    root.run()
    assert list(timers[0]) == [] and sorted(timers[1]) == sorted(timers[2]) == ["later", "ring"]
    if root.way == "Spark":
        time.sleep(0.01)
        root.run()
    assert fired[-1] == "of the second" and fired.count("of the second") == 1 and len(fired) <= 2


def test_large_states_come_to_the_same_where_not_all_of_them_are_kept_as_objects(make: Make) -> None:
    root = make(dict)

    @root.app.script("n")
    def n(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
        context.state.setdefault("seen", []).append(message.body)
        context.state["ballast"] = "x" * 3_000_000
        if message.body == 2:
            raise ValueError("as it was")

    keys = [f"key {n}" for n in range(8)]
    for n_of in (1, 2, 3):
        for key in keys:
            root.put(n_of, key=key)
    root.run()
    assert {key: state["seen"] for key, state in root.contexts.items()} == {key: [1, 3] for key in keys}


class Seen(msgspec.Struct):
    """All that a script can ask its message."""

    id: str
    type: str | None
    key: str | None
    body: Any
    data: bytes
    opened: bytes
    headers: dict[str, str]
    priority: int
    attempts: int
    enqueued_at: datetime
    deliver_at: datetime
    wants_reply: bool
    text: str


def test_a_message_is_the_same_for_a_script_whoever_calls_it(tmp_path: Path) -> None:
    """On Spark it is made of what references and records say."""
    found: dict[str, list[Seen]] = {}
    moment = datetime(2020, 2, 2, tzinfo=UTC)
    for way in WAYS:
        root = Root(tmp_path / way, way)

        def n(context: Context[Total], message: ScriptMessage, way: str = way) -> None:
            assert message.body is message.body or isinstance(message.body, bytes)
            with message.open() as opened:
                found.setdefault(way, []).append(
                    Seen(
                        message.id.split("-", 1)[1],
                        message.type,
                        message.key,
                        message.body,
                        message.data,
                        opened.read(),
                        message.headers,
                        message.priority,
                        message.attempts,
                        message.enqueued_at,
                        message.deliver_at,
                        message.wants_reply,
                        repr(message).split("-", 1)[1],
                    )
                )

        root.app.script("n", "ä")(n)
        with penstock.open(root.path / "input") as queue:
            bodies = [b"\xff", b"", "text", {"a": [1, None]}, None, 10**400, "in a file of its own" * 1000]
            for number, body in enumerate(bodies):
                headers = {"a": "ü"} if number % 2 else None
                queue.put(body, type="n", key=str(number), priority=number % 3, headers=headers)
            queue.put(1, type="ä", key="ö", deliver_at=moment)
            assert queue.stats().spilled_bytes == 20_000
        root.run()
    first, second = (sorted(found[way], key=lambda seen: str(seen.key)) for way in WAYS)
    assert len(first) == 8 and [seen.headers for seen in first].count({"a": "ü"}) == 3
    for one, other in zip(first, second, strict=True):
        assert one.enqueued_at < other.enqueued_at and (one.deliver_at == moment) == (one.key == "ö")
        like = {"enqueued_at": moment, "deliver_at": moment} if one.key != "ö" else {"enqueued_at": moment}
        assert msgspec.structs.replace(one, **like) == msgspec.structs.replace(other, **like)


def test_the_type_of_a_state_can_be_said_where_annotations_are_evaluated() -> None:
    def script(context: Context[Total], message: ScriptMessage) -> None: ...

    assert get_origin(get_type_hints(script)["context"]) is Context
    assert get_args(get_type_hints(script)["context"]) == (Total,)
