"""A queue as a stream, with a real Spark: rows, restarts, who shares it, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException

from penstock.spark import json_body

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time


class Sink:
    """Keeps the rows of each batch, and may fail."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[Any]]] = []
        self.fail_at = -1

    def __call__(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        self.batches.append((batch, rows))
        if batch == self.fail_at:
            raise RuntimeError("the sink failed")

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(row.body) for _, rows in self.batches for row in rows]


def stream(spark: Any, queue: Any, **options: Any) -> Any:
    reader = spark.readStream.format("penstock").option("receiver", "r")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(queue.path))


def available_now(frame: Any, sink: Any, checkpoint: Path) -> Any:
    """Run it to its end."""
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def until(true: Callable[[], Any], query: Any = None) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        if query is not None and query.exception():
            raise query.exception()
        time.sleep(0.02)


@pytest.fixture
def large(queue: Any) -> Any:
    return queue(slots=4096, data_bytes=4 << 20)


def test_rows_are_right_in_each_column_and_json_bodies_are_parsed(spark: Any, queue: Any, tmp_path: Path) -> None:
    q = queue(spill_bytes=4096)
    before = datetime.now(UTC)
    ids = [
        q.put({"item": "lamp", "count": 2}, type="order", key="k", priority=3, headers={"a": "b"}),
        q.put(b"x" * 5000, deliver_at=1000.5),
    ]
    q.put(b"later", delay=3600)
    sink = Sink()
    available_now(stream(spark, q), sink, tmp_path / "checkpoint")
    order, large = (row for _, rows in sink.batches for row in rows)
    assert [order.id, large.id] == ids and (order.number, large.number) == (1, 2)
    assert (order.queue, order.type, order.key, order.priority, order.attempts) == (q.name, "order", "k", 3, 1)
    assert (large.type, large.key, large.priority, large.headers) == (None, None, 0, None)
    assert order.headers == {"a": "b"} and json.loads(bytes(order.body)) == {"item": "lamp", "count": 2}
    assert bytes(large.body) == b"x" * 5000
    assert large.deliver_at.timestamp() == 1000.5
    assert abs(order.enqueued_at.timestamp() - before.timestamp()) < 60
    assert q.qsize() == 1

    q.put({"item": "lamp", "count": 2})
    parsed = stream(spark, q).select(json_body("item string, count int").alias("order"), "number")
    sink = Sink()
    available_now(parsed, sink, tmp_path / "checkpoint")
    assert [tuple(row.order) for _, rows in sink.batches for row in rows] == [("lamp", 2)]


def test_available_now_ends_and_acknowledges_the_last_batch_too(spark: Any, large: Any, tmp_path: Path) -> None:
    large.put_many([b"%d" % i for i in range(50)])
    sink = Sink()
    frame = stream(spark, large, maxRows=20, partitions=2)
    query = available_now(frame, sink, tmp_path / "checkpoint")
    assert [len(rows) for _, rows in sink.batches] == [20, 20, 10]
    assert Counter(sink.bodies) == Counter(b"%d" % i for i in range(50))
    assert large.stats().claimed == 0  # Spark asked once more before it ended, and got no more
    large.put(b"new")
    available_now(frame, sink, tmp_path / "checkpoint")
    assert sink.bodies[50:] == [b"new"] and large.stats().claimed == 0 and large.qsize() == 0
    said = [progress for progress in query.recentProgress if progress["numInputRows"]]
    backlog = json.loads(said[0]["sources"][0]["latestOffset"])
    assert 0 < backlog["due"] <= 50 and backlog["oldestDueMs"] >= 0


def test_available_now_ends_when_all_of_each_exclusive_key_is_done(spark: Any, queue: Any, tmp_path: Path) -> None:
    q = queue(exclusive_keys=True)
    q.put_many([penstock.Draft(body=b"%d" % n, key=f"key {n % 2}") for n in range(6)])
    sink = Sink()
    available_now(stream(spark, q), sink, tmp_path / "checkpoint")
    assert [sorted(bytes(row.body) for row in rows) for _, rows in sink.batches] == [
        [b"0", b"1"],
        [b"2", b"3"],
        [b"4", b"5"],
    ]
    assert q.qsize() == 0 and q.stats().claimed == 0


def test_a_batch_that_failed_is_seen_again_with_the_same_rows(spark: Any, large: Any, tmp_path: Path) -> None:
    large.put_many([b"%d" % i for i in range(30)])
    sink = Sink()
    sink.fail_at = 1
    frame = stream(spark, large, maxRows=10)
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        available_now(frame, sink, tmp_path / "checkpoint")
    large.put(b"between", priority=9)  # must not come into the batch
    sink.fail_at = -1
    available_now(stream(spark, large, maxRows=100), sink, tmp_path / "checkpoint")
    _, (_, failed), (_, again), *_, (_, rest) = sink.batches  # another one was claimed ahead
    assert failed == again and len(again) == 10
    assert Counter(sink.bodies) - Counter(bytes(row.body) for row in failed) == Counter(
        [b"%d" % i for i in range(30)] + [b"between"]
    )
    assert [row.body for row in rest] == [b"between"] and large.stats().claimed == 0


def test_two_queries_and_a_plain_consumer_share_a_queue(spark: Any, large: Any, tmp_path: Path) -> None:
    sinks = {"one": Sink(), "two": Sink()}
    queries = [
        stream(spark, large, receiver=name, maxRows=40)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / name))
        .start()
        for name, sink in sinks.items()
    ]
    consumed: list[bytes] = []
    stopped = threading.Event()

    def consume() -> None:
        while not stopped.is_set():
            for message in large.get_many(2, wait=0.05):
                consumed.append(message.data)
                large.ack(message)
            time.sleep(0.01)

    consumer = threading.Thread(target=consume)
    consumer.start()
    total = 0
    try:
        while total < 600 or not all([consumed, *(sink.bodies for sink in sinks.values())]):
            large.put_many([b"%d" % i for i in range(total, total + 100)])
            total += 100
            until(lambda: large.qsize() < 200)
        until(lambda: large.qsize() == 0 and large.stats().claimed == 0 and large.stats().pending == 0)
    finally:
        stopped.set()
        consumer.join()
        for query in queries:
            query.stop()
    found = [*consumed, *sinks["one"].bodies, *sinks["two"].bodies]
    assert Counter(found) == Counter(b"%d" % i for i in range(total))


def test_a_second_query_of_the_name_is_refused(spark: Any, large: Any, tmp_path: Path) -> None:
    large.put(b"x")
    sink = Sink()
    first = (
        stream(spark, large)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "first"))
        .start()
    )
    try:
        until(lambda: sink.bodies, first)
        with pytest.raises(StreamingQueryException, match="receiver 'r' is in use"):
            available_now(stream(spark, large, receiverWait=0.2), Sink(), tmp_path / "second")
        assert first.isActive
    finally:
        first.stop()
    large.put(b"y")
    available_now(stream(spark, large), sink, tmp_path / "first")  # the name is free soon after a stop
    assert sink.bodies == [b"x", b"y"] and large.stats().claimed == 0


def test_types_are_for_this_query_and_the_rest_for_others(spark: Any, large: Any, tmp_path: Path) -> None:
    for i in range(40):
        large.put(b"%d" % i, type="ab"[i % 2], key="k" if i % 4 == 0 else None)
    sink = Sink()
    available_now(stream(spark, large, types="a", keys="k"), sink, tmp_path / "checkpoint")
    assert sorted(map(int, sink.bodies)) == list(range(0, 40, 4))
    assert large.qsize() == 30 and large.get().data == b"1"


def test_a_narrower_schema_is_honoured(spark: Any, large: Any, tmp_path: Path) -> None:
    large.put_many([b"x"] * 3, type="t")
    sink = Sink()
    frame = (
        spark.readStream.format("penstock").schema("type string, number long").option("receiver", "r").load(large.name)
    )
    available_now(frame, sink, tmp_path / "checkpoint")
    assert [tuple(row) for _, rows in sink.batches for row in rows] == [("t", 1), ("t", 2), ("t", 3)]


def test_a_checkpoint_of_another_queue_says_what_to_do(spark: Any, queue: Any, large: Any, tmp_path: Path) -> None:
    large.put(b"x")
    available_now(stream(spark, large), Sink(), tmp_path / "checkpoint")
    other = queue(name="other")
    other.put(b"y")
    with pytest.raises(StreamingQueryException, match=r"belongs to another queue .* start with a new checkpoint"):
        available_now(stream(spark, other), Sink(), tmp_path / "checkpoint")
    assert other.qsize() == 1


def test_options_are_refused_with_the_right_ones(spark: Any, large: Any, tmp_path: Path) -> None:
    for options, words in (
        ({"receiver": "no/name"}, "option receiver: a receiver's name"),
        ({"maxRows": "many"}, "option maxRows must be a whole number"),
        ({"state": "all"}, "option state is for read only"),
    ):
        with pytest.raises(Exception, match=words):
            available_now(stream(spark, large, **options), Sink(), tmp_path / words.replace(" ", "-"))
