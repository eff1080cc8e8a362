"""Jobs and streams into macro queues and into queues by name, as Spark calls them but without Spark: which members get
the messages, all or none, and each micro-batch once."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import PublisherBusy, QueueFull, QueueInactive, WrongRelationship
from tests.conftest import Queues
from tests.crash.rig import killed_at
from tests.fault.processes import Child, hold_and_fork
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, some_of

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark import PenstockDataSource
from penstock.spark.decisions import DecisionFiles
from penstock.spark.sink import StreamWriter
from penstock.spark.writer import QueueWriter

NAMES = ("a", "b", "c")
QUERY = str(uuid.UUID(int=7))
COLUMNS = StructType([StructField("body", StringType())])


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_arrays([pa.array(values)], names=["body"])] if values else [])


def source(root: Path, name: str = "all", **options: str) -> PenstockDataSource:
    return PenstockDataSource({"root": str(root), "queue": name, **options})


def write(root: Path, *values: str, **options: str) -> None:
    """A job."""
    job = source(root, **options).writer(COLUMNS, overwrite=False)
    job.commit([job.write(rows(*values))])


def sink(root: Path, batch: int, *values: str, **options: str) -> None:
    """A micro-batch of a stream, as Spark runs it: writers are made for each call."""
    stream = source(root, **options).streamWriter(COLUMNS, overwrite=False)
    assert isinstance(stream, StreamWriter)
    staged = stream.stage(rows(*values), QUERY, batch, 0, 1)
    stream.commit([staged], batch)


@pytest.fixture
def macro(queue: Queues, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def make(producing: str, slots: int = 16, **options: Any) -> dict[str, Any]:
        queues: dict[str, Any] = {name: queue(name, slots=slots) for name in NAMES}
        penstock.QueueManager(tmp_path).create_macro("all", list(NAMES), producing=producing, **options)
        return queues

    return make


def found(queues: dict[str, Any]) -> list[list[str]]:
    return [[message.body for message in q.browse()] for q in queues.values()]


# ---------------------------------------------------------------- by name


def test_a_job_and_a_stream_find_their_queue_by_name(queue: Queues, tmp_path: Path) -> None:
    q = queue("orders")
    write(tmp_path, "1", "2", name="orders")
    sink(tmp_path, 0, "3", name=penstock.QueueManager(tmp_path).find("orders").uuid or "")
    assert sorted(message.body for message in q.browse()) == ["1", "2", "3"]


def test_what_the_manager_says_holds_for_writers(queue: Queues, tmp_path: Path) -> None:
    q = queue("orders")
    manager = penstock.QueueManager(tmp_path)
    manager.deactivate("orders")
    for attempt in (write, lambda *given, **named: sink(given[0], 0, *given[1:], **named)):
        with pytest.raises(QueueInactive, match="orders: deactivated"):
            attempt(tmp_path, "x", name="orders")
    manager.activate("orders")
    q.close()
    manager.configure("orders", relationship="consumer")
    with pytest.raises(WrongRelationship, match="not for a consumer of this queue"):
        write(tmp_path, "x", name="orders")
    manager.configure("orders", relationship="producer")
    write(tmp_path, "x", name="orders")
    given = {"root": str(tmp_path), "queue": "orders", "receiver": "r"}
    reader = PenstockDataSource(given).streamReader(StructType([StructField("id", StringType())]))
    with pytest.raises(WrongRelationship):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


# ---------------------------------------------------------------- jobs


def test_a_job_goes_to_one_member_as_a_whole_and_passes_over_full_ones(macro: Any, tmp_path: Path) -> None:
    queues = macro("first-available", slots=16)
    write(tmp_path, *"0123456789")
    write(tmp_path, *"abcdefghij")
    assert [len(some) for some in found(queues)] == [10, 10, 0]
    write(tmp_path, *"klmnopqrst")
    assert not list((tmp_path / "all" / "staging").glob("*"))
    with pytest.raises(QueueFull, match="full"):
        write(tmp_path, *"0123456789")
    assert [len(some) for some in found(queues)] == [10, 10, 10]


def test_a_job_that_is_copied_to_all_is_in_all_or_in_none(macro: Any, tmp_path: Path) -> None:
    queues = macro("copy-to-all")
    write(tmp_path, "1", "2")
    assert found(queues) == [["1", "2"]] * 3
    queues["b"].put_many(["full"] * 13)
    with pytest.raises(QueueFull):
        write(tmp_path, "3", "4")
    assert [len(some) for some in found(queues)] == [2, 15, 2]


def test_all_that_a_row_says_is_copied(macro: Any, tmp_path: Path) -> None:
    queues = macro("copy-to-all")
    names = ["body", "type", "key", "priority", "headers"]
    kinds = [pa.binary(), pa.string(), pa.string(), pa.int32(), pa.map_(pa.string(), pa.string())]
    values = [[b"\x00", b""], ["t", None], [None, "k"], [3, 0], [[("h", "v")], None]]
    columns = [pa.array(some, kind) for some, kind in zip(values, kinds, strict=True)]
    stream = StreamWriter({"path": str(tmp_path / "all"), "timeout": 0.0, "busyTimeout": 10.0}, names)
    job = QueueWriter({"path": str(tmp_path / "all"), "timeout": 0.0, "busyTimeout": 10.0}, names)
    for target in (job, stream):
        batch = iter([pa.RecordBatch.from_arrays(columns, names=names)])
        if target is job:
            job.commit([job.write(batch)])
        else:
            stream.commit([stream.stage(batch, QUERY, 0, 0, 1)], 0)
    for q in queues.values():
        said = [(m.data, m.type, m.key, m.priority, m.headers) for m in q.browse()]
        assert said == [(b"\x00", "t", None, 3, {"h": "v"})] * 2 + [(b"", None, "k", 0, {})] * 2


# ---------------------------------------------------------------- streams


def test_a_micro_batch_is_put_once_however_often_it_is_tried(macro: Any, tmp_path: Path) -> None:
    queues = macro("round-robin")
    for _ in range(3):
        sink(tmp_path, 0, "0")
        assert [len(some) for some in found(queues)] == [1, 0, 0]
    for batch in range(1, 6):
        sink(tmp_path, batch, f"{batch}")
        sink(tmp_path, batch, f"{batch}")
    assert found(queues) == [["0", "3"], ["1", "4"], ["2", "5"]]
    with pytest.raises(penstock.PenstockError, match="comes with batch 3, and has put batch 5 before"):
        sink(tmp_path, 3, "3")
    sink(tmp_path, 3)
    assert [len(some) for some in found(queues)] == [2, 2, 2]


def test_a_micro_batch_that_is_tried_again_stays_where_it_was_decided_to_go(macro: Any, tmp_path: Path) -> None:
    queues = macro("shortest")
    queues["a"].put("already there")
    sink(tmp_path, 0, "x")
    queues["b"].put_many(["more"] * 5)
    sink(tmp_path, 0, "x")
    assert [some.count("x") for some in found(queues)] == [0, 1, 0]
    sink(tmp_path, 1, "y")
    assert [some.count("y") for some in found(queues)] == [0, 0, 1]


def test_a_full_member_is_passed_over_and_nothing_is_put_if_all_are(macro: Any, tmp_path: Path) -> None:
    queues = macro("first-available", slots=4)
    queues["a"].put_many(["full"] * 3)
    sink(tmp_path, 0, "1", "2")
    assert [len(some) for some in found(queues)] == [3, 2, 0]
    sink(tmp_path, 1, "3", "4", "5")
    with pytest.raises(QueueFull):
        sink(tmp_path, 2, "6", "7", "8")
    assert [len(some) for some in found(queues)] == [3, 2, 3]
    queues["c"].purge()
    sink(tmp_path, 2, "6", "7", "8")
    sink(tmp_path, 2, "6", "7", "8")
    assert found(queues)[2] == ["6", "7", "8"]


def test_a_copy_to_all_is_nowhere_if_one_is_full(macro: Any, tmp_path: Path) -> None:
    queues = macro("copy-to-all", slots=4)
    queues["c"].put_many(["full"] * 4)
    with pytest.raises(QueueFull):
        sink(tmp_path, 0, "1")
    assert [len(some) for some in found(queues)] == [0, 0, 4]
    queues["c"].purge()
    sink(tmp_path, 0, "1")
    sink(tmp_path, 0, "1")
    assert found(queues) == [["1"]] * 3


@pytest.mark.parametrize("small", ["a", "b"])
def test_a_copy_to_all_is_nowhere_if_one_is_full_though_another_could_make_room(
    small: str, tmp_path: Path, queue: Queues
) -> None:
    queues: dict[str, Any] = {name: queue(name, slots=4 if name == small else 16, durability="commit") for name in "ab"}
    penstock.QueueManager(tmp_path).create_macro("all", ["a", "b"], producing="copy-to-all")
    sink(tmp_path, 0, "0")
    queues[small].put_many(["full"] * 3)
    (other,) = (q for name, q in queues.items() if name != small)
    other.get().ack()  # its room is kept until an index sync, which a put makes that finds none
    other.put_many(["a", "batch"])
    other.ack_many(other.get_many(2))
    assert other.stats().kept > 0
    with pytest.raises(QueueFull):
        sink(tmp_path, 1, "1")
    assert other.qsize() == 0
    queues[small].purge()
    sink(tmp_path, 1, "1")
    assert found(queues) == [["1"]] * 2


def test_a_member_that_joined_after_the_decision_does_not_get_the_batch(
    macro: Any, tmp_path: Path, queue: Queues
) -> None:
    queues = macro("copy-to-all")
    manager = penstock.QueueManager(tmp_path)
    manager.remove_member("all", "c")
    sink(tmp_path, 0, "1")
    manager.add_member("all", "c")
    manager.remove_member("all", "a")
    sink(tmp_path, 0, "1")
    assert found(queues) == [["1"], ["1"], []]
    sink(tmp_path, 1, "2")
    assert found(queues) == [["1"], ["1", "2"], ["2"]]


def test_policies_of_macro_queues_in_macro_queues_are_followed(macro: Any, tmp_path: Path, queue: Queues) -> None:
    queues = macro("copy-to-all")
    other = queue("other")
    other.put("less to do elsewhere")
    penstock.QueueManager(tmp_path).create_macro("outer", ["other", "all"], producing="shortest")
    sink(tmp_path, 0, "1", name="outer")
    sink(tmp_path, 0, "1", name="outer")
    assert found(queues) == [["1"]] * 3 and other.qsize() == 1


def test_two_drivers_of_a_query_do_not_decide_at_the_same_time(macro: Any, tmp_path: Path) -> None:
    macro("round-robin")
    with (
        DecisionFiles(tmp_path / "all", QUERY).alone(0.0),
        pytest.raises(PublisherBusy, match=r"all: publisher .* is publishing"),
    ):
        sink(tmp_path, 0, "x", busytimeout="0.1")


def test_a_child_has_no_part_in_the_lock_of_a_driver(macro: Any, tmp_path: Path) -> None:
    macro("round-robin")
    files = DecisionFiles(tmp_path / "all", QUERY)
    driver = Child(hold_and_fork, lambda: files.alone(1.0))
    child = driver.hear()
    try:
        with pytest.raises(PublisherBusy), files.alone(0.0):
            pass
        driver.kill()
        with files.alone(1.0):
            os.kill(child, 0)
    finally:
        driver.end()
        os.kill(child, signal.SIGKILL)


def test_a_batch_whose_member_is_gone_is_not_put_elsewhere(macro: Any, tmp_path: Path, queue: Queues) -> None:
    macro("first-available")
    manager = penstock.QueueManager(tmp_path)
    manager.create("gone")
    manager.create_macro("other", ["gone", "a"])
    sink(tmp_path, 0, "x", name="other")
    manager.remove_member("other", "gone")
    manager.destroy("gone")
    with pytest.raises(penstock.PenstockError, match="whether it was put nobody knows"):
        sink(tmp_path, 0, "x", name="other")


# ---------------------------------------------------------------- killed on the way

KILLED_AT_EVERY = 9 if IN_FULL else 73


@pytest.fixture(scope="module")
def saved() -> Iterator[tuple[Path, list[Snapshot]]]:
    with tempfile.TemporaryDirectory(prefix="penstock-sink-", dir=FAST) as folder:
        root = Path(folder)
        for name in NAMES:
            penstock.create(root / name, slots=30, data_bytes=64 << 10).close()
        manager = penstock.QueueManager(root)
        for producing in ("round-robin", "copy-to-all"):
            manager.create_macro(producing, list(NAMES), producing=producing)
            sink(root, 0, "before", name=producing)
        yield root, [Snapshot(root / name) for name in NAMES]


@pytest.mark.timeout(1800 if IN_FULL else 300)
@pytest.mark.parametrize("producing", ["round-robin", "copy-to-all"])
def test_killed_at_the_steps_of_a_commit_the_batch_is_put_once(
    producing: str, saved: tuple[Path, list[Snapshot]], tmp_path: Path
) -> None:
    root, queues = saved
    aside = tmp_path / "macro"
    shutil.copytree(root / producing, aside)
    expected = [0, 2, 0] if producing == "round-robin" else [2, 2, 2]
    for step in some_of(KILLED_AT_EVERY):
        for snapshot in queues:
            snapshot.put_back()
        shutil.rmtree(root / producing)
        shutil.copytree(aside, root / producing)
        stream = source(root, producing).streamWriter(COLUMNS, overwrite=False)
        assert isinstance(stream, StreamWriter)
        staged = stream.stage(rows("x", "y"), QUERY, 1, 0, 1)
        died = killed_at(step, lambda _, made=(stream, staged): made[0].commit([made[1]], 1), lambda: None)
        sink(root, 1, "x", "y", name=producing)
        counts = []
        for name in NAMES:
            with penstock.open(root / name) as q:
                counts.append([message.body for message in q.browse()].count("x"))
                assert [message.body for message in q.browse()].count("y") == counts[-1]
        assert [2 * count for count in counts] == expected, step
        if not died:
            assert step > 30
            return
    raise AssertionError("it has no end")
