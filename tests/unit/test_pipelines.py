"""Pipelines without Spark: what a file says, every mistake with its place, and functions called in processes of their
own."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import threading
import time
import types
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.scripts import App
from penstock.spark import options as O
from penstock.spark.pipelines import checking
from penstock.spark.pipelines.calling import Caller, Function
from penstock.spark.pipelines.definition import (
    BadPipeline,
    Call,
    Choice,
    Filter,
    Group,
    Parse,
    Route,
    Table,
    load,
)
from penstock.spark.scripting.place import PARTS, Place

WHOLE = """
name = "orders"
root = "queues"
sources = ["orders", "more"]
max_attempts = 3
retry_delay = 10

[options]
minRows = 5

[[step]]
parse = "item string not null, count int"
into = "order"

[[step]]
name = "none of zero"
filter = "order.count > 0"

[[step]]
call = "tests.unit.test_pipelines:priced"
retries = 2
retry_wait = 0.5
time_limit = 5

[[step]]
group = "tests.unit.test_pipelines:together"
by = "order.item"

[[step]]
route = [{ when = "order.count > 9", to = "big" }]
otherwise = "small"

[[step]]
table = "tables/sold"
columns = ["key", "order.item"]
"""


def priced(message: Any) -> Any:
    return message


def together(key: str, messages: list[Any]) -> Any:
    return None


async def later(message: Any) -> Any:
    return message


app = App("visits", input="elsewhere")
counted = App("counted", input="keyed")


@counted.script("one")
def one(context: Any, message: Any) -> None:
    context.state["n"] = context.state.get("n", 0) + 1


NOT_AN_APP = 7


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with penstock.QueueManager(tmp_path / "queues") as manager:
        for name in ("orders", "more", "big", "small"):
            manager.create(name, data_bytes=1 << 16, durability="relaxed")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(text)
    return path


def test_a_file_says_all_that_a_pipeline_is(root: Path) -> None:
    found = load(written(root, WHOLE))
    assert (found.name, found.root, found.sources) == ("orders", str(root / "queues"), ["orders", "more"])
    assert (found.max_attempts, found.retry_delay, found.options) == (3, 10.0, {"minRows": "5"})
    assert found.steps == (
        Parse(parse="item string not null, count int", into="order"),
        Filter(filter="order.count > 0", name="none of zero"),
        Call(call="tests.unit.test_pipelines:priced", retries=2, retry_wait=0.5, time_limit=5.0),
        Group(group="tests.unit.test_pipelines:together", by="order.item"),
        Route(route=[Choice("order.count > 9", "big")], otherwise="small"),
        Table(table=str(root / "tables/sold"), columns=("key", "order.item")),
    )
    assert found.titles()[1] == "step 2 (filter 'none of zero')"
    assert checking.mistakes_of(found) == []


def one_step(step: str, top: str = 'source = "orders"') -> str:
    return f'name = "orders"\nroot = "queues"\n{top}\n[[step]]\n{step}\n'


MISTAKES = {
    "unknown step": ('fliter = "1"', "step 1: what is it? One of parse, filter, call"),
    "two steps in one": ('put = "big"\nfilter = "true"', "step 1: which of filter, put is it?"),
    "unknown option": ('put = "big"\nretries = 3', "step 1 (put): option retries: there is no such option"),
    "wrong type": ('call = "m:f"\nretries = "many"', "step 1 (call): option retries: Expected int, got str"),
    "out of range": (
        'call = "tests.unit.test_pipelines:priced"\nretries = 101',
        "step 1 (call): option retries: must be from 0 to 100, not 101",
    ),
    "no time": ('call = "m:f"\ntime_limit = 0', "step 1 (call): option time_limit: must be more than 0"),
    "name of a column": ('parse = "a int"\ninto = "a b"', "step 1 (parse): option into: a column's name has letters"),
    "no choice": ("route = []", "step 1 (route): option route: there is no choice in it"),
    "a choice without a queue": ('route = [{ when = "true" }]', "step 1 (route): option route[0]: Object missing"),
    "wrong unmatched": (
        'route = [{ when = "true", to = "big" }]\nunmatched = "drop"',
        "step 1 (route): option unmatched: must be 'fail' or 'pass', not 'drop'",
    ),
    "not a function": ("call = 7", 'step 1 (call): option call: a function is "module:name"'),
    "no such queue": ('name = "out"\nput = "none"', "step 1 (put 'out'): option put: "),
    "a route to nowhere": (
        'route = [{ when = "true", to = "none" }]\notherwise = "nowhere"',
        "step 1 (route): option otherwise: ",
    ),
    "no module": ('call = "no_such_module:f"', "option call: no_such_module:f cannot be had: ModuleNotFoundError"),
    "no function": (
        'call = "tests.unit.test_pipelines:none"',
        "step 1 (call): option call: tests.unit.test_pipelines:none cannot be had: AttributeError",
    ),
    "a coroutine": ('call = "tests.unit.test_pipelines:later"', "is a coroutine function; a plain one is needed"),
    "not to be called": ('call = "tests.unit.test_pipelines:NOT_AN_APP"', "cannot be called"),
    "a group of one argument": (
        'group = "tests.unit.test_pipelines:priced"',
        "tests.unit.test_pipelines:priced is called with a key and its messages: too many positional arguments",
    ),
    "a call of two arguments": (
        'call = "tests.unit.test_pipelines:together"',
        "is called with a message: missing a required argument: 'messages'",
    ),
    "not an app": ('script = "tests.unit.test_pipelines:NOT_AN_APP"', "it is of type int, not a penstock.scripts.App"),
    "an app of another input": (
        'script = "tests.unit.test_pipelines:app"',
        "step 1 (script): option script: the app's input is 'elsewhere', where its timers go",
    ),
    "a script is last": (
        'script = "tests.unit.test_pipelines:app"\n[[step]]\nput = "big"',
        "step 1 (script): a script is the last step",
    ),
    "one group": ('group = "m:f"\n[[step]]\ngroup = "m:g"', "step 2 (group): there is one already: step 1 (group)"),
    "a group is before what is written": (
        'put = "big"\n[[step]]\ngroup = "tests.unit.test_pipelines:together"',
        "step 2 (group): a group comes before what is written: step 1 (put)",
    ),
    "another format": ('table = "t"\nformat = "jdbc"', "step 1 (table): option format: must be one of parquet"),
    "a table twice": ('table = "t"\n[[step]]\ntable = "./t"', "step 2 (table): option table: step 1 (table) writes"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_with_file_step_and_option(root: Path, what: str) -> None:
    step, said = MISTAKES[what]
    assert said in told(root, one_step(step))


TOP_MISTAKES = {
    "no such queue": ('source = "none"', "option sources: "),
    "no source": ("", "option source: give one of them"),
    "two kinds of sources": ('source = "orders"\nsources = ["more"]', "option source: give one of them"),
    "a source twice": ('sources = ["orders", "orders"]', "option sources: a queue is there twice"),
    "an unknown option": ('source = "orders"\nretires = 1', "option retires: there is no such option; there are"),
    "a wrong type": ('source = "orders"\nmax_rows = "all"', "option max_rows: Expected int, got str"),
    "too few": ('source = "orders"\nmax_attempts = 0', "option max_attempts: must be from 1 to 1000000, not 0"),
    "an option of the source": ('source = "orders"\noptions = { minRows = "x" }', "option options: option minRows"),
    "an option of ours": ('source = "orders"\noptions = { receiver = "x" }', "receiver: that is the pipeline's to say"),
    "not TOML": ("source = ", "not TOML: "),
}


@pytest.mark.parametrize("what", TOP_MISTAKES)
def test_a_mistake_of_the_pipeline_itself_is_told_with_its_option(root: Path, what: str) -> None:
    top, said = TOP_MISTAKES[what]
    assert said in told(root, one_step('put = "big"', top))


def told(root: Path, text: str) -> str:
    path = written(root, text)
    try:
        mistakes = checking.mistakes_of(load(path))
    except BadPipeline as bad:
        assert str(bad).startswith(f"{path}: ")
        mistakes = bad.mistakes
    assert mistakes
    return "\n".join(map(str, mistakes))


def test_a_pipeline_needs_a_root_a_name_and_a_step(root: Path) -> None:
    assert "no such folder of queues" in told(root, one_step('put = "big"').replace('"queues"', '"nowhere"'))
    assert "option name: it is missing" in told(root, one_step('put = "big"').replace('name = "orders"', ""))
    assert "option name: the name of an app or a pipeline has" in told(
        root, one_step('put = "big"').replace('name = "orders"', 'name = "a/b"')
    )
    assert "there is no step" in told(root, 'name = "orders"\nroot = "queues"\nsource = "orders"')


def test_the_members_of_a_macro_queue_are_not_sources_beside_it(root: Path) -> None:
    with penstock.QueueManager(root / "queues") as manager:
        manager.create_macro("all", ["orders", "more"])
    assert "all and orders have the queue" in told(root, one_step('put = "big"', 'sources = ["orders", "all"]'))
    found = load(written(root, one_step('put = "big"', 'source = "all"')))
    assert checking.mistakes_of(found) == []


def test_an_app_whose_contexts_are_elsewhere_is_a_mistake(root: Path) -> None:
    with penstock.QueueManager(root / "queues") as manager:
        manager.create("keyed", exclusive_keys=True)
        with manager.open("keyed") as keyed:
            keyed.put("a", type="one", key="k")
    text = one_step('script = "tests.unit.test_pipelines:counted"', 'source = "keyed"')
    assert checking.mistakes_of(load(written(root, text))) == []
    counted.run(root / "queues", until_empty=True)
    assert "step 1 (script): option script: " in told(root, text)
    assert "move them to Spark first: penstock.spark.move_contexts(app, root, pipeline='orders')" in told(root, text)
    Place(root / "queues", "counted").settle_on(PARTS, 3, "keyed", 3)
    assert "made with partitions=3, which stays as it is; not 2" in told(root, text)
    assert "made with input='keyed', which stays" in told(root, text + "partitions = 3")


def test_to_check_consumes_nothing(root: Path) -> None:
    with penstock.open(root / "queues/orders") as orders:
        orders.put("a")
        assert checking.mistakes_of(load(written(root, WHOLE))) == []
        assert orders.qsize() == 1 and orders.receivers() == []
    assert not (root / "queues/.pipelines").exists()


def test_a_definition_in_python_is_that_of_a_file(root: Path) -> None:
    pytest.importorskip("pyspark")
    from penstock.spark import Pipeline

    made = (
        Pipeline(
            "orders",
            root=root / "queues",
            source=["orders", "more"],
            max_attempts=3,
            retry_delay=10,
            minRows=5,
        )
        .parse("item string not null, count int", into="order")
        .filter("order.count > 0", name="none of zero")
        .call("tests.unit.test_pipelines:priced", retries=2, retry_wait=0.5, time_limit=5)
        .group("tests.unit.test_pipelines:together", by="order.item")
        .route({"order.count > 9": "big"}, otherwise="small")
        .table(root / "tables/sold", columns=["key", "order.item"])
    )
    assert made.definition == load(written(root, WHOLE))
    with pytest.raises(BadPipeline, match="orders: option max_attempts: Expected int"):
        Pipeline("orders", root=root, source="orders", max_attempts="three")  # type: ignore[arg-type]
    with pytest.raises(BadPipeline, match=r"orders: step 7 \(call\): option retries: Expected int"):
        made.call(priced, retries="x")
    with pytest.raises(BadPipeline, match=r"step 7 \(call\): option tries"):
        made.call(priced, tries=1)


# ---------------------------------------------------------------- calls


def count(path: str) -> int:
    with open(path, "ab") as file:
        file.write(b".")
    return os.path.getsize(path)


def forked(what: str) -> int:
    """Also as a library in C does: no hook of Python's is called."""
    return int(ctypes.PyDLL(None).fork()) if what.endswith("in C") else os.fork()


def die_with_children(what: str) -> None:
    """One that goes on may have the pipe of its parent."""
    if forked(what) == 0:
        time.sleep(60)
        os._exit(0)
    os._exit(3)


def forge() -> None:
    """An answer more, to an earlier call, before the one that is due."""
    with Connection(os.dup(int(sys.argv[2])), readable=False) as answers:
        answers.send((1, "done", pickle.dumps("forged")))


def forging_later(what: str, path: str) -> str:
    """It forges when there is a file."""

    def wait() -> None:
        while not os.path.exists(path):
            time.sleep(0.01)
        forge()

    if what == "a":
        threading.Thread(target=wait, daemon=True).start()
    return what


class Odd(Exception):
    """It is pickled with one argument."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one)


def of_a_class_elsewhere() -> Any:
    there = sys.modules["elsewhere"] = types.ModuleType("elsewhere")
    exec("class Thing: pass", there.__dict__)
    return there.Thing()


def play(what: str, path: str) -> Any:
    """A function that does as it is told."""
    tried = count(path)
    if what == "raise":
        raise ValueError(f"no \udc80 {tried}")
    if what == "exit":
        raise SystemExit(3)
    if what == "die":
        os._exit(3)
    if what == "sleep":
        time.sleep(60)
    if what == "third" and tried < 3:
        raise ConnectionError("try again")
    if what == "third live" and tried < 3:
        os._exit(4)
    if what == "unsendable":
        return lambda: None
    if what in ("fork", "fork in C"):
        die_with_children(what)
    if what.startswith("come out twice") and forked(what) == 0:
        raise RuntimeError("in the other")
    if what == "answer twice":
        forge()
    if what == "leave":
        os.setpgid(0, os.getpgid(os.getppid()))
        os.closerange(3, 100)
        time.sleep(60)
    if what == "not to be made again":
        return Odd("a", "b")
    if what == "of a class elsewhere":
        return of_a_class_elsewhere()
    return what, tried


def calls(tmp_path: Path, *several: str, **options: Any) -> list[Any]:
    given = {"retries": 0, "retry_wait_s": 0.0, "time_limit_s": None, **options}
    caller = Caller(Function("tests.unit.test_pipelines:play", "play", **given))
    try:
        found = list(caller.calls([(each, str(tmp_path / f"{n}")) for n, each in enumerate(several)]))
    finally:
        caller.close()
    return [each.error or each.result for each in found]


def test_a_call_that_raises_or_ends_its_process_ends_no_other(tmp_path: Path) -> None:
    found = calls(tmp_path, "a", "raise", "b", "die", "c", "exit", "unsendable", "d", retries=1)
    assert found[0] == ("a", 1) and found[2] == ("b", 1) and found[4] == ("c", 1) and found[7] == ("d", 1)
    assert found[1] == "ValueError: no ? 2"
    assert found[3] == "play: it ended its process, with code 3"
    assert found[5] == "SystemExit: 3" and "lambda" in found[6]
    assert [os.path.getsize(tmp_path / str(n)) for n in range(6)] == [1, 2, 1, 2, 1, 2]


def test_a_result_that_cannot_be_had_here_fails_its_message_and_no_other(tmp_path: Path) -> None:
    found = calls(tmp_path, "a", "not to be made again", "of a class elsewhere", "b")
    assert found[0] == ("a", 1) and found[3] == ("b", 1)
    assert found[1].startswith("what it returned cannot be had: TypeError: ")
    assert found[2] == "what it returned cannot be had: ModuleNotFoundError: No module named 'elsewhere'"


@pytest.mark.parametrize("how", ["fork", "fork in C"])
def test_a_process_that_ended_is_not_waited_for_while_those_it_forked_live(tmp_path: Path, how: str) -> None:
    began = time.monotonic()
    assert calls(tmp_path, "a", how, "b") == [("a", 1), "play: it ended its process, with code 3", ("b", 1)]
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("how", ["come out twice", "come out twice in C"])
def test_a_process_that_was_forked_in_a_call_does_not_answer(tmp_path: Path, how: str) -> None:
    assert calls(tmp_path, "a", how, "b", "c", retries=1) == [("a", 1), (how, 1), ("b", 1), ("c", 1)]


def test_an_answer_to_another_call_is_refused(tmp_path: Path) -> None:
    found = calls(tmp_path, "a", "answer twice", "b")
    assert found[:2] == [("a", 1), "play: its process gave an answer that nobody waits for, to call 1"]
    assert found[2][0] == "b"  # the process may have called it before it was ended, and the next one again


def test_an_answer_that_comes_between_calls_is_not_that_of_the_next(tmp_path: Path) -> None:
    caller = Caller(Function("tests.unit.test_pipelines:forging_later", "forging_later", 0, 0.0, None))
    try:
        path = tmp_path / "now"
        assert [each.result for each in caller.calls([("a", str(path))])] == ["a"]
        path.touch()
        assert caller._answers.poll(30)
        assert [each.result for each in caller.calls([("b", str(path)), ("c", str(path))])] == ["b", "c"]
    finally:
        caller.close()


def test_a_process_that_closed_its_pipe_and_left_its_group_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    assert calls(tmp_path, "leave", "b") == ["play: it ended its process, by signal 9", ("b", 1)]
    assert time.monotonic() - began < 30


def test_a_call_is_tried_again_as_often_as_is_said(tmp_path: Path) -> None:
    assert calls(tmp_path, "third", "third live", "a", retries=2, retry_wait_s=0.01) == [
        ("third", 3),
        ("third live", 3),
        ("a", 1),
    ]
    (tmp_path / "less").mkdir()
    assert calls(tmp_path / "less", "third", "a", retries=1) == ["ConnectionError: try again", ("a", 1)]


def test_a_call_that_takes_too_long_ends_with_its_process(tmp_path: Path) -> None:
    began = time.monotonic()
    found = calls(tmp_path, "a", "sleep", "b", time_limit_s=0.5)
    assert found == [("a", 1), "TimeoutError: play took longer than 0.5 s", ("b", 1)]
    assert time.monotonic() - began < 30


def test_a_function_that_cannot_be_had_is_no_fault_of_a_message() -> None:
    caller = Caller(Function("tests.unit.test_pipelines:none", "none", 0, 0.0, None))
    with pytest.raises(penstock.PenstockError, match="none cannot be called: AttributeError"):
        list(caller.calls([("a",)]))


def test_answers_that_nobody_waited_for_are_not_those_of_the_next_calls(tmp_path: Path) -> None:
    caller = Caller(Function("tests.unit.test_pipelines:play", "play", 0, 0.0, None))
    first = caller.calls([("a", str(tmp_path / "a")), ("b", str(tmp_path / "b"))])
    assert next(first).result == ("a", 1)
    first.close()
    assert [each.result for each in caller.calls([("c", str(tmp_path / "c"))])] == [("c", 1)]
    caller.close()


def test_a_queue_without_a_limit_gives_a_poisonous_message_five_attempts(root: Path) -> None:
    pytest.importorskip("pyspark")
    from penstock.spark.pipelines.tasks import Limits

    with penstock.QueueManager(root / "queues") as manager:
        manager.create("limited", max_attempts=9, data_bytes=1 << 16, durability="relaxed")
    without, limited = str(root / "queues/orders"), str(root / "queues/limited")
    ours = Limits(None)
    assert [ours.failed(without, "a", n, "no").reason for n in (4, 5)] == [None, "max_attempts"]
    assert ours.failed(limited, "a", 8, "no").reason is None, "the queue sees to it"
    assert [Limits(2).failed(limited, "a", n, "no").reason for n in (1, 2)] == [None, "max_attempts"]


def test_a_batch_has_32_mib_at_most_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    head = 'name = "a"\nroot = "."\nsource = "in"\n'
    step = '[[step]]\nput = "out"\n'
    for options, most_bytes in (
        ("", 32 << 20),
        ("[options]\nmaxBytes = 1000\n", 1000),
        ("[options]\nmaxbytes = 9\n", 9),
    ):
        (tmp_path / "pipe.toml").write_text(head + options + step)
        given = checking.source_options(load(tmp_path / "pipe.toml"), "in")
        assert O.parse(given, O.STREAM)["maxBytes"] == most_bytes
