"""A stream into a queue: every micro-batch once, whatever is tried again."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

import penstock
from penstock.spark.sink import StreamWriter
from penstock.spark.source import PenstockDataSource
from penstock.spark.staging import STAGING

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

QUERY = str(uuid.UUID(int=7))


def staged(queue: Any) -> list[str]:
    folder = queue.path / STAGING
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*")) if folder.exists() else []


def bodies(queue: Any) -> list[Any]:
    return sorted(message.body for message in queue.browse())


def rows(*values: str | bytes, **columns: Any) -> Iterator[pa.RecordBatch]:
    """One Arrow batch, as Spark gives it to a task."""
    names = {"body": pa.array(values), **columns}
    return iter([pa.RecordBatch.from_arrays(list(names.values()), names=list(names))])


def writer(queue: Any, *columns: str, **options: Any) -> StreamWriter:
    """As Spark makes one for each task and each commit."""
    given = {"path": str(queue.path), "timeout": 0.0, "busyTimeout": 10.0, **options}
    return StreamWriter(given, ["body", *columns])


# ---------------------------------------------------------------- the protocol, without Spark


def test_a_batch_is_put_once_however_often_it_is_tried(queue: Any) -> None:
    q = queue()
    for attempt in range(3):
        messages = [writer(q).stage(rows(f"{p}"), QUERY, 0, p, 10 * attempt + p) for p in range(2)]
        writer(q).commit([*messages], 0)
        assert bodies(q) == ["0", "1"] and staged(q) == []
    messages = [writer(q).stage(rows("2"), QUERY, 1, 0, 99)]
    writer(q).commit([*messages], 1)
    assert bodies(q) == ["0", "1", "2"]
    assert [(each.publisher, each.last) for each in q.publishers()] == [(QUERY, 1)]


def test_only_the_attempts_that_spark_chose_are_put(queue: Any) -> None:
    """One that was given up, or a speculative one, staged too, and perhaps a part of it only."""
    q = queue()
    writer(q).stage(rows("dead", "and gone"), QUERY, 0, 0, 1)
    chosen = writer(q).stage(rows("chosen"), QUERY, 0, 0, 2)
    writer(q).commit([chosen], 0)
    assert bodies(q) == ["chosen"] and staged(q) == []


def test_what_dead_attempts_staged_is_swept_with_the_next_batch(queue: Any) -> None:
    q = queue()
    writer(q).stage(rows("batch 3, and the driver died"), QUERY, 3, 0, 1)
    other = str(uuid.UUID(int=8))
    writer(q).stage(rows("another query's"), other, 3, 0, 1)
    later = writer(q).stage(rows("4"), QUERY, 4, 0, 2)
    writer(q).stage(rows("5"), QUERY, 5, 0, 3)
    writer(q).commit([later], 4)
    assert [name for name in staged(q) if "/" not in name] == sorted([f"{other}.3", f"{QUERY}.5"])


def test_a_stale_driver_and_a_checkpoint_that_went_back_put_nothing_and_are_told(queue: Any) -> None:
    q = queue()
    old = [writer(q).stage(rows("stale"), QUERY, 0, 0, 1)]
    for batch in range(3):
        writer(q).commit([writer(q).stage(rows(f"{batch}"), QUERY, batch, 0, 2)], batch)
    with pytest.raises(penstock.PenstockError, match="comes with batch 0, and has put batch 2 before"):
        writer(q).commit([*old], 0)
    writer(q).commit([writer(q).stage(rows(), QUERY, 1, 0, 3)], 1)  # a lost claim that is skipped: no rows
    assert bodies(q) == ["0", "1", "2"]


def test_columns_become_what_the_message_says(queue: Any) -> None:
    q = queue()
    at = datetime(2100, 1, 1, 12, 30, 0, 7, tzinfo=UTC)
    columns = {
        "type": pa.array(["order", None, None, "order"]),
        "key": pa.array([None, None, "k", None]),
        "priority": pa.array([3, None, 0, 15], pa.int32()),
        "deliver_at": pa.array([at, None, datetime(1960, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
        "headers": pa.array([[("größe", "日本")], None, [], None], pa.map_(pa.string(), pa.string())),
    }
    sink = writer(q, *columns)
    sink.commit([sink.stage(rows(b"\x00\xff", b"", b"c", b"d", **columns), QUERY, 0, 0, 1)], 0)
    found = sorted(q.browse(), key=lambda message: message.number)
    assert [m.body for m in found] == [b"\x00\xff", b"", b"c", b"d"]
    assert [(m.type, m.key, m.priority) for m in found] == [
        ("order", None, 3), (None, None, 0), (None, "k", 0), ("order", None, 15),
    ]  # fmt: skip
    assert [m.headers for m in found] == [{"größe": "日本"}, {}, {}, {}]
    assert found[0].deliver_at == at
    assert [m.body for m in q.get_many(9)] == [b"d", b"c", b""]
    assert penstock.timequeue.check_queue(q.path) == []


@pytest.mark.parametrize(
    "columns, words",
    [
        ({"priority": pa.array([1, 16])}, "priority must be from 0 to 15, or null: a row has 16"),
        ({"headers": pa.array([[], [("a", None)]], pa.map_(pa.string(), pa.string()))}, "null as the value of a"),
        ({"deliver_at": pa.array([1, 1 << 60], pa.timestamp("us", tz="UTC"))}, "too far away"),
        ({"body": pa.array(["x", None])}, "column body is null in a row"),
        ({"body": pa.array([b"x", b"\xff"]).view(pa.string())}, "not valid Unicode"),
    ],
)
def test_a_row_that_cannot_be_put_fails_its_task_and_leaves_nothing(queue: Any, columns: Any, words: str) -> None:
    q = queue()
    good = pa.RecordBatch.from_arrays([pa.array(["good"])], names=["body"])
    names = {"body": pa.array(["x", "y"]), **columns}
    bad = pa.RecordBatch.from_arrays(list(names.values()), names=list(names))
    first = good if list(names) == ["body"] else bad
    with pytest.raises(penstock.Misuse, match=words):
        writer(q, *list(names)[1:]).stage(iter([first, bad]), QUERY, 0, 0, 1)
    assert staged(q) == []


def test_a_batch_that_never_fits_says_where_the_way_out_is(queue: Any) -> None:
    q = queue(slots=3)
    messages = [writer(q).stage(rows("a", "b", "c", "d"), QUERY, 0, 0, 1)]
    with pytest.raises(penstock.BatchTooLarge, match=r"4 never fits into 3 slots: .*maxRows.*#a-batch-that-never-fits"):
        writer(q).commit([*messages], 0)


def test_a_full_queue_gets_nothing_and_the_batch_goes_through_later(queue: Any) -> None:
    q = queue(slots=3)
    q.put_many(["here"] * 2)
    messages = [writer(q).stage(rows("a", "b"), QUERY, 0, 0, 1)]
    with pytest.raises(penstock.QueueFull, match=r"all 3 slots are in use; .*with the option timeout"):
        writer(q).commit([*messages], 0)
    assert bodies(q) == ["here", "here"]
    writer(q).abort([*messages, None], 0)
    assert staged(q) == []
    q.purge()
    messages = [writer(q).stage(rows("a", "b"), QUERY, 0, 0, 2)]
    writer(q).commit([*messages], 0)
    assert bodies(q) == ["a", "b"]


def test_empty_batches_put_nothing_and_count(queue: Any) -> None:
    q = queue()
    writer(q).commit([], 0)
    writer(q).commit([writer(q).stage(iter([]), QUERY, 1, 0, 1)], 1)
    assert q.stats().puts == 0 and staged(q) == []
    assert [each.last for each in q.publishers()] == [1]


def test_a_missing_file_of_a_batch_is_an_error_and_puts_nothing(queue: Any) -> None:
    q = queue()
    message = writer(q).stage(rows("a"), QUERY, 0, 0, 1)
    other = writer(q).stage(rows("b"), QUERY, 0, 1, 2)
    os.unlink(q.path / STAGING / f"{QUERY}.0" / f"{other.name}")
    with pytest.raises(FileNotFoundError):
        writer(q).commit([message, other], 0)
    assert q.stats().puts == 0
    other.batch = 1
    with pytest.raises(penstock.Misuse, match="another query or batch"):
        writer(q).commit([message, other], 0)


def test_a_complete_result_and_a_missing_queue_are_refused(queue: Any, tmp_path: Path) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("body", StringType())])
    with pytest.raises(penstock.Misuse, match="not \\('complete'\\)"):
        PenstockDataSource({"path": str(queue().path)}).streamWriter(schema, True)
    with pytest.raises(penstock.QueueNotFound):
        PenstockDataSource({"path": str(tmp_path / "missing")}).streamWriter(schema, False)


# ---------------------------------------------------------------- with Spark


def write_source(folder: Path, name: str, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    aside = folder / f".{name}"
    pq.write_table(pa.table({"body": [f"{i:05}" for i in range(first, first + count)]}), aside)
    aside.rename(folder / f"{name}.parquet")


def stream(spark: Any, source: Path, queue: Any, checkpoint: Path, **options: Any) -> Any:
    read = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1).parquet(str(source))
    sink = read.writeStream.format("penstock").option("checkpointLocation", str(checkpoint)).options(**options)
    return sink.trigger(availableNow=True).start(str(queue.path))


def expected(count: int) -> list[str]:
    return [f"{i:05}" for i in range(count)]


def test_a_stream_of_several_batches_ends_in_the_queue_once(spark: Any, queue: Any, tmp_path: Path) -> None:
    q = queue(slots=5000, data_bytes=4 << 20)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for i in range(2):
        write_source(source, f"{i}", i * 500, 500)
    query = stream(spark, source, q, checkpoint)
    query.awaitTermination()
    assert bodies(q) == expected(1000)
    assert [(each.publisher, each.last) for each in q.publishers()] == [(query.id, 1)]
    write_source(source, "more", 1000, 10)
    again = stream(spark, source, q, checkpoint)
    again.awaitTermination()
    assert again.id == query.id and bodies(q) == expected(1010)
    # Spark loses its note that the last batch is done, as when its driver dies before it is written.
    last = q.publishers()[0].last
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    stream(spark, source, q, checkpoint).awaitTermination()
    assert bodies(q) == expected(1010) and staged(q) == []
    # A new checkpoint is a new query, which publishes all of it again.
    stream(spark, source, q, tmp_path / "new").awaitTermination()
    assert Counter(bodies(q)) == Counter(expected(1010) * 2)


def test_wrong_columns_and_options_are_refused_at_once(spark: Any, queue: Any, tmp_path: Path) -> None:
    q = queue()
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    for frame, options, words in (
        (rates, {}, "column timestamp cannot be written to a queue"),
        (rates.selectExpr("value as body"), {}, "column body must be binary or string"),
        (rates.selectExpr("string(value) as body"), {"publishAs": "x"}, "unknown option publishas"),
    ):
        write = frame.writeStream.format("penstock").option("checkpointLocation", str(tmp_path / "c"))
        with pytest.raises(PySparkException, match=words):
            write.options(**options).trigger(availableNow=True).start(str(q.path)).awaitTermination()
    assert q.stats().puts == 0 and staged(q) == []


def test_a_failing_task_leaves_nothing_and_the_query_goes_on_when_it_can(
    spark: Any, queue: Any, tmp_path: Path
) -> None:
    q = queue(slots=200)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    write_source(source, "0", 0, 100)
    read = spark.readStream.schema("body string").parquet(str(source)).repartitionByRange(2, "body")
    body = F.when(F.col("body") == "00099", F.raise_error(F.lit("broken row"))).otherwise(F.col("body"))
    broken = read.select(body.alias("body")).writeStream.format("penstock")
    with pytest.raises(StreamingQueryException, match="broken row"):
        query = broken.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(q.path))
        query.awaitTermination()
    assert q.stats().puts == 0  # a task that Spark gave up may still have staged something
    mended = read.writeStream.format("penstock").option("checkpointLocation", str(checkpoint))
    mended.trigger(availableNow=True).start(str(q.path)).awaitTermination()
    assert bodies(q) == expected(100) and staged(q) == []
