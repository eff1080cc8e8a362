"""The driver's side of a pipeline's batches when something else has changed before it goes on: its store, its steps,
the name of the root, its checkpoint. Without Spark itself: see fakepipeline.py."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.scripts import App, Context, ScriptMessage
from penstock.spark.pipelines.batches import PipelineStore
from tests.spark.fakepipeline import FakePipeline, rows_of

app = App("counts", input="in")


@app.script("n")
def counted(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
    context.state["seen"] = [*context.state.get("seen", []), message.body]


def no_error(number: int, attempt: int) -> None:
    return None


def pipeline(root: Path, **options: Any) -> FakePipeline:
    return FakePipeline(root, app, no_error, **options)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "root"
    with penstock.QueueManager(path) as manager:
        for name in ("in", "output"):
            manager.create(name)
    yield path


def put(root: Path, *numbers: int, queue: str = "in", key: str = "a") -> None:
    with penstock.open(root / queue) as target:
        target.put_many(list(numbers), type="n", key=key)


def output(root: Path) -> list[int]:
    with penstock.open(root / "output") as queue:
        return sorted(message.body for message in queue.browse(state="all"))


def seen(root: Path) -> list[int]:
    return sorted(n for state in app.contexts(root).values() for n in state["seen"])


def dies(*_: object) -> None:
    raise OSError("killed")


def killed(driver: FakePipeline, monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> None:
    """Where it calls this."""
    with monkeypatch.context() as patch:
        patch.setattr(target, name, dies)
        with pytest.raises(OSError, match="killed"):
            driver.batch()
    driver.stop()


# ---------------------------------------------------------------- the store


@pytest.mark.parametrize("copied", [True, False])
def test_a_store_that_is_put_back_or_lost_writes_over_no_rows(root: Path, tmp_path: Path, copied: bool) -> None:
    put(root, 1)
    pipeline(root, script=False).run()
    store = root / ".pipelines" / "numbers" / "driver.sqlite"
    copy = tmp_path / "driver.sqlite"
    shutil.copy(store, copy)
    for number in (2, 3):
        put(root, number)
        pipeline(root, script=False).run()
    store.unlink()
    if copied:
        shutil.copy(copy, store)
    for number in (4, 5):
        put(root, number)
        pipeline(root, script=False).run()
    assert output(root) == rows_of(root) == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- the steps


def test_rows_that_waited_for_the_script_go_into_their_own_table_whatever_steps_there_are_now(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, 1, 2)
    killed(pipeline(root), monkeypatch, PipelineStore, "post_batch")
    pipeline(root, tables=(".other", ".table")).run()
    assert rows_of(root, ".table") == [1, 2]
    assert rows_of(root, ".other") == []


def test_messages_that_waited_for_a_script_that_is_no_step_any_more_say_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, 1, 2)
    killed(pipeline(root), monkeypatch, PipelineStore, "post_batch")
    without = pipeline(root, script=False)
    with pytest.raises(PenstockError, match="start it once with this step"):
        without.batch()
    without.stop()
    pipeline(root).run()
    assert output(root) == rows_of(root) == seen(root) == [1, 2]


# ---------------------------------------------------------------- the root


def moved(root: Path) -> Path:
    return root.rename(root.with_name("elsewhere"))


def linked(root: Path) -> Path:
    link = root.with_name("link")
    link.symlink_to(root)
    return link


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("reached", [moved, linked])
def test_a_batch_is_known_again_when_its_root_is_reached_by_another_path(
    root: Path, monkeypatch: pytest.MonkeyPatch, reached: Callable[[Path], Path], script: bool, lost: bool
) -> None:
    put(root, 1, 2)
    first = FakePipeline(root, app, lambda number, attempt: "not now" if (number, attempt) == (2, 1) else None)
    if not script:
        first = FakePipeline(root, app, no_error, script=False)
    killed(first, monkeypatch, first._batches, "_judge")
    there = reached(root)
    if lost:
        shutil.rmtree(there / ".pipelines" / "numbers" / "checkpoint")
    for _ in range(3):  # what failed comes again when its claim is committed
        pipeline(there, script=script, query="another" if lost else "query").run()
    assert output(there) == rows_of(there) == [1, 2]
    assert not script or seen(there) == [1, 2]


def test_what_came_before_a_script_is_not_asked_again_in_a_root_that_was_moved(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, 1, 2)
    killed(pipeline(root), monkeypatch, PipelineStore, "post_batch")
    there = moved(root)
    following = FakePipeline(there, app, lambda number, attempt: "fails now")
    following.run()
    assert output(there) == rows_of(there) == seen(there) == [1, 2]
