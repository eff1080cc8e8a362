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
from penstock.spark import PenstockDataSource
from penstock.spark.pipelines.batches import PipelineStore
from penstock.spark.scripting.place import receiver_of
from penstock.spark.scripting.rows import COLUMNS
from tests.spark.fakepipeline import FakePipeline, rows_of
from tests.spark.fakespark import Tasks

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


# ---------------------------------------------------------------- outcomes on their way


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("script", [False, True])
def test_a_batch_of_which_an_outcome_is_missing_is_an_error_and_nothing_is_acknowledged(
    root: Path, monkeypatch: pytest.MonkeyPatch, script: bool, logged: bool
) -> None:
    put(root, 1, 2, 3, 4)
    driver, outcomes = pipeline(root, script=script), FakePipeline._outcomes

    def cut(self: FakePipeline, *given: Any) -> Any:
        if not logged:
            shutil.rmtree(root / ".pipelines" / "numbers" / "checkpoint" / "offsets")
        return outcomes(self, *given)[:-1]

    with monkeypatch.context() as patch:
        patch.setattr(FakePipeline, "_outcomes", cut)
        with pytest.raises(PenstockError, match=r"^pipeline.numbers: batch 0: 1 of its 4 messages have no outcome: "):
            driver.batch()
    driver.stop()
    assert output(root) == rows_of(root) == seen(root) == []
    with penstock.open(root / "in") as queue:
        assert queue.stats().claimed == 4
    pipeline(root, script=script).run()
    assert output(root) == rows_of(root) == [1, 2, 3, 4]


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


def test_messages_that_waited_for_the_scripts_of_one_app_are_not_given_to_those_of_another(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, 1, 2)
    killed(pipeline(root), monkeypatch, PipelineStore, "post_batch")  # the scripts have been run
    other = App[dict[str, Any]]("others", input="in")
    other.scripts.update(app.scripts)
    changed = FakePipeline(root, other, no_error)
    with pytest.raises(PenstockError, match="wait for the scripts of 'counts', and the step has those of 'others' now"):
        changed.batch()
    changed.stop()
    assert not other.contexts(root) and not output(root)
    pipeline(root).run()
    assert output(root) == rows_of(root) == seen(root) == [1, 2]
    put(root, 3)
    FakePipeline(root, other, no_error).run()  # nothing waits
    assert [each["seen"] for each in other.contexts(root).values()] == [[3]]


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


# ---------------------------------------------------------------- Spark's log


class TwoSources(FakePipeline):
    """As Spark joins them: a batch that is not in its log any more is put together anew, of what each has by then."""

    def __init__(self, root: Path, error: Any = no_error) -> None:
        super().__init__(root, app, error)
        options = {"root": str(root), "receiver": receiver_of("numbers"), "maxrows": "4", "receiverwait": "5"}
        more = PenstockDataSource({**options, "queue": "more"}).streamReader(COLUMNS)
        self._readers = {"in": self._reader, "more": more}
        self._definition.sources.append("more")

    def give(self, number: int, *sources: str) -> None:
        """A batch that has what these have."""
        tasks: Tasks = []
        for reader in (self._readers[name] for name in sources):
            start = reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            tasks += [list(reader.read(part)) for part in reader.partitions(start, end)]
        self._batches.run(
            number, lambda serial, known: self._outcomes(tasks, serial, known), lambda: self._marks(tasks)
        )

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.stop()


@pytest.fixture
def two(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline of two queues, whose driver was killed behind the script of the first message, of one of them."""
    with penstock.QueueManager(root) as manager:
        manager.create("more")
    put(root, 1)
    first = TwoSources(root)
    with monkeypatch.context() as patch:
        patch.setattr(PipelineStore, "post_batch", dies)
        with pytest.raises(OSError, match="killed"):
            first.give(0, "in", "more")
    first.stop()
    put(root, 7, 8, queue="more", key="b")
    return root


def fails_now(number: int, attempt: int) -> str | None:
    return "not now" if number == 1 else None


@pytest.mark.parametrize("batches", [[("in", "more")], [("more",), ("in",)], [("in",), ("more",)]])
def test_what_waits_behind_a_script_is_finished_when_spark_puts_its_batch_together_anew(
    two: Path, batches: list[tuple[str, ...]]
) -> None:
    for number, sources in enumerate(batches):
        driver = TwoSources(two, fails_now)
        driver.give(number, *sources)
        driver.give(number, *sources)  # again, as it is in Spark's log now
        driver.stop()
    assert output(two) == rows_of(two) == seen(two) == [1, 7, 8]


def test_a_driver_that_is_killed_again_behind_what_waited_goes_on_with_the_rest(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, stored = PipelineStore.post_batch, []

    def once(self: PipelineStore, *given: Any) -> None:
        if stored:
            raise OSError("killed")
        stored.append(given)
        post(self, *given)

    second = TwoSources(two)
    with monkeypatch.context() as patch:
        patch.setattr(PipelineStore, "post_batch", once)
        with pytest.raises(OSError, match="killed"):
            second.give(0, "in", "more")
    second.stop()
    third = TwoSources(two, lambda number, attempt: "not now")
    third.give(0, "in", "more")
    third.stop()
    assert output(two) == rows_of(two) == seen(two) == [1, 7, 8]


def test_other_messages_than_those_that_wait_behind_a_script_are_refused(two: Path) -> None:
    with penstock.open(two / "in") as queue, queue.receiver(receiver_of("numbers")) as receiver:
        receiver.release(1)
    put(two, 2)
    driver = TwoSources(two)
    with pytest.raises(PenstockError, match="is stored already"):
        driver.give(0, "in", "more")
    driver.stop()
    assert output(two) == rows_of(two) == []
    assert seen(two) == [1]
