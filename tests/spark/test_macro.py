"""Queues by name and macro queues, with a real Spark: as a table, as a stream, and as the place where messages go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conftest import Queues

pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException

from tests.spark.test_stream_read import Sink, available_now

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time


@pytest.fixture
def root(queue: Queues, tmp_path: Path) -> penstock.QueueManager:
    """A manager of three queues with some messages each but the last, and of the macro queue of all of them."""
    manager = penstock.QueueManager(tmp_path)
    for name in "abc":
        queue(name)
    manager.create_macro("all", ["a", "b", "c"])
    for name in "ab":
        with manager.open(name) as q:
            q.put_many([f"{name}{i}" for i in range(5)])
    return manager


def load(spark: Any, root: penstock.QueueManager, name: str, *, stream: bool = False, **options: Any) -> Any:
    reader = (spark.readStream if stream else spark.read).format("penstock")
    return reader.options(root=str(root.root), queue=name, **options).load()


def bodies(frame: Any) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.collect())


def left(root: penstock.QueueManager) -> list[int]:
    found = []
    for name in "abc":
        with penstock.open(root.root / name) as q:
            found.append(q.qsize() + q.stats().claimed)
    return found


EVERY = [f"{name}{i}" for name in "ab" for i in range(5)]


def test_a_table_is_found_by_name_by_uuid_and_by_path(spark: Any, root: penstock.QueueManager) -> None:
    assert bodies(load(spark, root, "a")) == EVERY[:5]
    assert bodies(load(spark, root, str(root.find("b").uuid))) == EVERY[5:]
    assert bodies(spark.read.format("penstock").load(str(root.root / "all"))) == EVERY
    with pytest.raises(AnalysisException, match="none: there is no such queue"):
        load(spark, root, "none")
    with pytest.raises(AnalysisException, match="root together name no queue"):
        spark.read.format("penstock").option("root", str(root.root)).load()


def test_a_macro_queue_is_a_table_of_all_its_members(spark: Any, root: penstock.QueueManager) -> None:
    frame = load(spark, root, "all")
    rows = frame.collect()
    assert Counter(Path(row.queue).name for row in rows) == {"a": 5, "b": 5}
    assert frame.rdd.getNumPartitions() == 2  # a member without messages costs no task
    assert load(spark, root, "all", partitions=4).rdd.getNumPartitions() == 4
    assert left(root) == [5, 5, 0]
    assert load(spark, root, "c").count() == 0


def test_a_macro_queue_is_a_stream_of_all_its_members(spark: Any, root: penstock.QueueManager, tmp_path: Path) -> None:
    sink = Sink()
    frame = load(spark, root, "all", stream=True, receiver="r", maxRows=4)
    available_now(frame, sink, tmp_path / "checkpoint")
    assert [len(rows) for _, rows in sink.batches] == [0, 4, 4, 2]
    assert sorted(body.decode() for body in sink.bodies) == EVERY and left(root) == [0, 0, 0]
    with penstock.open(root.root / "c") as c:
        c.put("later")
    query = available_now(frame, sink, tmp_path / "checkpoint")
    assert sink.bodies[-1] == b"later" and len(sink.bodies) == 11 and left(root) == [0, 0, 0]
    said = query.lastProgress["sources"][0]["latestOffset"]
    assert '"members": 3' in said or '"members":3' in said


def test_a_job_by_name_goes_to_one_member_and_a_stream_goes_on_behind_it(
    spark: Any, root: penstock.QueueManager, tmp_path: Path
) -> None:
    root.create_macro("some", ["b", "c"], producing="shortest")
    frame = spark.createDataFrame([("x",), ("y",)], "body string")
    writer = frame.write.format("penstock").mode("append").options(root=str(root.root), queue="some")
    writer.save()
    assert left(root) == [5, 5, 2]
    stream = load(spark, root, "a", stream=True, receiver="r").select("body").writeStream.format("penstock")
    stream = stream.options(root=str(root.root), queue="some", checkpointLocation=str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert left(root) == [0, 5, 7]
    with pytest.raises(PySparkException, match="c: deactivated: put_many"):
        root.deactivate("c")
        writer.options(queue="c").save()
