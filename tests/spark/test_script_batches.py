"""The driver's side of batches of scripts when something else has changed before it goes on: the path of the root, or
the checkpoint. Without Spark itself: see fakespark.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.scripts import App, Context, ScriptMessage
from penstock.spark.scripting.batches import Batches
from penstock.spark.scripting.batchstore import BatchStore
from penstock.spark.scripting.place import Place
from penstock.spark.stream import ClaimReader
from tests.spark.fakespark import FakeSpark

app = App("counts", input="in")


@app.script("n")
def counted(context: Context[dict[str, Any]], message: ScriptMessage) -> None:
    if message.body == 2 and message.attempts == 1:
        raise ValueError("not now")
    context.state["seen"] = [*context.state.get("seen", []), message.body]
    context.put(message.body, to="output")


def output(root: Path) -> list[int]:
    with penstock.open(root / "output") as queue:
        return sorted(message.body for message in queue.browse(state="all"))


def seen(root: Path) -> list[int]:
    return sorted(n for state in app.contexts(root).values() for n in state["seen"])


def dies(*_: object) -> None:
    raise OSError("killed")


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("target, name", [(BatchStore, "post_batch"), (Batches, "_put"), (Batches, "_judge")])
def test_a_batch_is_known_again_when_its_root_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, lost: bool
) -> None:
    root = tmp_path / "root"
    with penstock.QueueManager(root) as manager:
        manager.create("in", backoff=penstock.Backoff.constant(0.001))
        manager.create("output")
        with manager.open("in") as queue:
            queue.put_many([1, 2], type="n", key="a")
    driver = FakeSpark(app, root)
    with monkeypatch.context() as patch:
        patch.setattr(target, name, dies)
        with pytest.raises(OSError, match="killed"):
            driver.batch()
    driver.stop()
    there = root.rename(tmp_path / "elsewhere")
    if lost:
        shutil.rmtree(Place(there, app.name).checkpoint)
    for _ in range(3):  # what failed comes again when its claim is committed
        FakeSpark(app, there, query="another" if lost else "query").run()
    assert output(there) == seen(there) == [1, 2]


def test_a_batch_of_which_an_outcome_is_missing_is_an_error_and_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        for name in ("in", "output"):
            manager.create(name)
        with manager.open("in") as queue:
            for n in (10, 11, 12, 20):
                queue.put(n, type="n", key=f"{n}")
    driver, outcomes = FakeSpark(app, tmp_path), FakeSpark._outcomes
    with monkeypatch.context() as patch:
        patch.setattr(FakeSpark, "_outcomes", lambda *given: outcomes(*given)[:1])
        with pytest.raises(penstock.PenstockError, match=r"^scripts.counts: batch 0: [1-3] of its 4 messages have no "):
            driver.batch()
    driver.stop()
    assert not output(tmp_path)
    FakeSpark(app, tmp_path).run()
    assert output(tmp_path) == seen(tmp_path) == [10, 11, 12, 20]


def test_a_member_whose_claim_could_not_be_finished_is_known_when_the_checkpoint_is_lost_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        for name, number in (("a", 10), ("b", 20)):
            manager.create(name)
            with manager.open(name) as queue:
                queue.put(number, type="n", key="x")
        manager.create("output")
        manager.create_macro("in", ["a", "b"])
    driver = FakeSpark(app, tmp_path)
    while output(tmp_path) != [10, 20]:
        assert driver.batch()
    finish = ClaimReader.finish

    def fails(reader: ClaimReader, start: dict[str, Any]) -> int:
        if reader.path.endswith("/b"):
            raise OSError("not now")
        return finish(reader, start)

    with monkeypatch.context() as patch:
        patch.setattr(ClaimReader, "finish", fails)
        for number in (11, 12):
            with penstock.open(tmp_path / "a") as queue:
                queue.put(number, type="n", key="x")
            assert driver.batch()
    driver.lose_checkpoint()
    for query in ("another", "another", "a third"):
        FakeSpark(app, tmp_path, query=query).run()
    assert output(tmp_path) == seen(tmp_path) == [10, 11, 12, 20]
