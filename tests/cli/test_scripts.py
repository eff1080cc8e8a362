"""``penstock scripts``: real workers that share a queue, are killed, interrupted and told what is wrong; contexts."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import exits
from tests.conftest import assert_whole

from .conftest import END_S, Run, Start

APP = """
import dataclasses, os, pathlib, signal, time
from penstock.scripts import App

HERE = pathlib.Path(__file__).parent

@dataclasses.dataclass
class Customer:
    seen: list[int] = dataclasses.field(default_factory=list)

app = App("shop", input="orders", context=Customer)
wrong = App("shop", input="plain")
nothing = 7

@app.script("order")
def order(context, message):
    context.state.seen.append(message.body)
    context.put(message.body, to="done")
    context.after(3600, "late")

@app.script("late")
def late(context, message): ...

@app.script("die")
def die(context, message):
    context.state.seen.append(-1)
    if message.attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)

@app.script("fail")
def fail(context, message):
    raise ValueError("not today")

@app.script("wait")
def wait(context, message):
    (HERE / "began").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    context.state.seen.append(-2)
"""


@pytest.fixture
def root(tmp_path: Path) -> Any:
    (tmp_path / "shopping.py").write_text(APP)
    options: dict[str, Any] = {"depth": 500, "data_bytes": 1 << 20, "durability": "relaxed"}
    with penstock.QueueManager(tmp_path / "queues") as manager:
        manager.create("orders", exclusive_keys=True, max_attempts=3, **options)
        manager.create("done", **options)
        manager.create("plain", **options)
    yield tmp_path / "queues"
    for name in ("orders", "done"):
        assert_whole(tmp_path / "queues" / name)


def put(root: Path, count: int, type: str = "order", key: str | None = None) -> None:
    with penstock.open(root / "orders") as queue:
        queue.put_many([penstock.Draft(body=n, type=type, key=key or f"k{n % 5}") for n in range(count)])


def contexts(run: Run, root: Path) -> dict[str, list[int]]:
    lines = run("scripts", "contexts", "shop", "--root", root).stdout.splitlines()
    return {row["key"]: row["state"]["seen"] for row in map(json.loads, lines)}


def test_workers_share_the_messages_and_keep_the_order_of_each_key(start: Start, run: Run, root: Path) -> None:
    put(root, 100)
    words = ("scripts", "run", "shopping:app", "--root", root, "--workers", 3, "--until-empty", "--json")
    process = start(*words, cwd=root.parent)
    out, err = process.communicate(timeout=END_S)
    assert process.returncode == exits.OK, err
    batches = [row for row in map(json.loads, out.splitlines()) if row["event"] == "batch"]
    assert sum(row["done"] for row in batches) == 100
    assert contexts(run, root) == {f"k{n}": list(range(n, 100, 5)) for n in range(5)}
    with penstock.open(root / "done") as done:
        assert sorted(message.body for message in done.browse()) == list(range(100))


def test_contexts_are_lines_of_json(start: Start, run: Run, root: Path) -> None:
    put(root, 2)
    assert start("scripts", "run", "shopping:app", "--root", root, "--until-empty", cwd=root.parent).wait(END_S) == 0
    shown = run("scripts", "contexts", "shop", "--root", root, "--key", "k1").stdout
    row = json.loads(shown)
    assert row["key"] == "k1" and row["state"] == {"seen": [1]} and list(row["timers"]) == ["late"]
    assert run("scripts", "contexts", "shop", "--root", root, "--key", "none", code=exits.NOTHING).stdout == ""
    assert "App('app')" in run("scripts", "contexts", "shopping:app", "--root", root, code=exits.USAGE).stderr
    assert "other" in run("scripts", "contexts", "other", "--root", root, code=exits.NO_QUEUE).stderr


def test_a_worker_that_dies_is_started_again_and_its_message_counts_once(start: Start, run: Run, root: Path) -> None:
    put(root, 1, type="die", key="a")
    put(root, 10)
    process = start("scripts", "run", "shopping:app", "--root", root, "--until-empty", "--json", cwd=root.parent)
    out, _ = process.communicate(timeout=END_S)
    assert process.returncode == exits.OK and b'"crashed"' in out
    assert contexts(run, root) == {"a": [-1]} | {f"k{n}": [n, n + 5] for n in range(5)}


def test_a_script_that_fails_is_told_with_its_trace(start: Start, root: Path) -> None:
    put(root, 1, type="fail", key="a")
    put(root, 1, type="unheard of", key="b")
    words = ("scripts", "run", "shopping:app", "--root", root, "--until-empty", "--retry-delay", "1h")
    process = start(*words, cwd=root.parent)
    _, err = process.communicate(timeout=END_S)
    assert process.returncode == exits.OK
    assert b"of key 'a' failed: ValueError: not today" in err and b"in fail\n" in err
    assert b"is of type 'unheard of', which the app has no script for\n" in err
    assert err.count(b"Traceback") == 1, "nobody's code is to blame where there is no script"


def test_ctrl_c_lets_workers_finish_what_they_have_begun(start: Start, run: Run, root: Path) -> None:
    put(root, 1, type="wait", key="a")
    process = start("scripts", "run", "shopping:app", "--root", root, "-w", 2, cwd=root.parent)
    while not (root.parent / "began").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    (root.parent / "go").touch()
    _, err = process.communicate(timeout=END_S)
    assert process.returncode == exits.INTERRUPTED and b"Traceback" not in err
    assert contexts(run, root) == {"a": [-2]}
    with penstock.open(root / "orders") as orders:
        assert orders.qsize() == 0


@pytest.mark.parametrize(
    "name, says",
    [
        ("nowhere:app", "No module named"),
        ("shopping:missing", "missing"),
        ("shopping:nothing", "is of type int, not a penstock.scripts.App"),
        ("shopping:wrong", "exclusive_keys"),
    ],
)
def test_an_app_that_cannot_be_run_is_told_at_once(start: Start, root: Path, name: str, says: str) -> None:
    process = start("scripts", "run", name, "--root", root, "--workers", 2, cwd=root.parent)
    _, err = process.communicate(timeout=END_S)
    assert process.returncode == exits.USAGE and says in err.decode(), err


def test_options_of_workers_are_not_those_of_spark(run: Run, root: Path) -> None:
    words = ("scripts", "run", "shopping:app", "--root", root)
    assert "leave out --spark" in run(*words, "--spark", "--workers", 4, code=exits.USAGE).stderr
    assert "--partitions is for --spark" in run(*words, "--partitions", 4, code=exits.USAGE).stderr


def test_an_app_that_spark_cannot_run_is_told_in_a_line(start: Start, root: Path) -> None:
    process = start("scripts", "run", "shopping:nothing", "--root", root, "--spark", cwd=root.parent)
    _, err = process.communicate(timeout=END_S)
    assert process.returncode == exits.USAGE and err.count(b"\n") == 1 and b"is of type int" in err, err


def test_a_root_that_is_not_there_is_told(run: Run, tmp_path: Path) -> None:
    assert "--root" in run("scripts", "run", "a:b", "--root", tmp_path / "no", code=exits.NO_QUEUE).stderr
