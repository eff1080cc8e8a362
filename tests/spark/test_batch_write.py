"""A DataFrame into a queue: all of it or nothing."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from penstock.spark.staging import STAGING, SWEPT_AFTER_S, Staging
from penstock.spark.writer import JOINED_BYTES_MOST, JOINED_ROWS_MOST, joined

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time


def write(frame: Any, queue: Any, **options: Any) -> None:
    writer = frame.write.format("penstock").mode("append")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(str(queue.path))


def staged(queue: Any) -> list[str]:
    folder = queue.path / STAGING
    return [str(file) for file in folder.rglob("*")] if folder.exists() else []


def test_columns_become_what_the_message_says(spark: Any, queue: Any) -> None:
    q = queue()
    rows = [
        (bytearray(b"\x00\xff"), "order", "example.com", 3, datetime(2100, 1, 1, 12, 30, 0, 7), {"größe": "日本"}),
        (bytearray(b""), None, None, None, None, None),
        (bytearray(b"x"), "", "", 15, None, {}),
    ]
    schema = "body binary, type string, key string, priority int, deliver_at timestamp, headers map<string,string>"
    write(spark.createDataFrame(rows, schema).coalesce(1), q)
    found = sorted(q.browse(), key=lambda message: message.number)
    assert [m.data for m in found] == [b"\x00\xff", b"", b"x"]
    assert [(m.type, m.key, m.priority) for m in found] == [("order", "example.com", 3), (None, None, 0), ("", "", 15)]
    assert [m.headers for m in found] == [{"größe": "日本"}, {}, {}]
    assert found[0].deliver_at == rows[0][4].astimezone(UTC)
    assert q.get(block=False).data == b"x"  # due at once, and of the highest priority
    assert staged(q) == []


def test_a_string_is_put_as_text(spark: Any, queue: Any) -> None:
    q = queue()
    write(spark.createDataFrame([("Grüße",)], "body string"), q)
    assert q.get(block=False).body == "Grüße"


def test_rows_of_many_partitions_are_one_batch(spark: Any, queue: Any) -> None:
    q = queue(slots=5000, data_bytes=4 << 20)
    write(spark.range(5000).repartition(4).select(F.col("id").cast("string").alias("body")), q)
    assert sorted(int(m.body) for m in q.get_many(5000)) == list(range(5000))
    assert q.stats().depth_max == 5000


def test_no_rows_put_nothing(spark: Any, queue: Any) -> None:
    q = queue()
    write(spark.createDataFrame([], "body string, type string"), q)
    assert q.stats().puts == 0
    assert staged(q) == []


def test_a_failing_task_leaves_nothing(spark: Any, queue: Any) -> None:
    """Other tasks have staged their rows by then."""
    q = queue(slots=200)
    number = F.col("id")
    body = F.when(number == 99, F.raise_error(F.lit("broken row"))).otherwise(number.cast("string"))
    with pytest.raises(PySparkException, match="broken row"):
        write(spark.range(100).repartitionByRange(4, "id").select(body.alias("body")), q)
    assert (q.stats().puts, q.qsize()) == (0, 0)
    assert staged(q) == []


@pytest.mark.parametrize(
    "row, schema, words",
    [
        ((None,), "body string", "column body is null in a row"),
        (("x", 16), "body string, priority int", "column priority must be from 0 to 15, or null: a row has 16"),
        (("x", {"a": None}), "body string, headers map<string,string>", "null as the value of a: leave it out"),
        (("x", "y" * 70_000), "body string, type string", "type, key and headers take 7"),
    ],
)
def test_a_row_that_cannot_be_put_fails_the_whole_write(
    spark: Any, queue: Any, row: Any, schema: str, words: str
) -> None:
    q = queue()
    good = ("good", *(None for _ in row[1:]))
    with pytest.raises(PySparkException, match=words):
        write(spark.createDataFrame([good, row], schema), q)
    assert q.stats().puts == 0
    assert staged(q) == []


def test_a_queue_without_room_for_all_of_it_gets_nothing(spark: Any, queue: Any) -> None:
    q = queue(slots=10)
    q.put(b"here before")
    with pytest.raises(PySparkException, match=r"all 10 slots are in use; .* with the option timeout"):
        write(spark.range(10).select(F.col("id").cast("string").alias("body")), q)
    assert q.qsize() == 1
    assert staged(q) == []


@pytest.mark.parametrize(
    "schema, words",
    [
        ("type string", "there is no column body"),
        ("body string, color string", "column color cannot be written to a queue; the columns are body, type, key"),
        ("body int", "column body must be binary or string, not int"),
        ("body string, deliver_at timestamp_ntz", "column deliver_at must be timestamp, not timestamp_ntz"),
        ("body string, type string, body string", "column body is there twice"),
        ("body string, headers map<string,int>", "column headers must be map<string,string>, not map<string,int>"),
    ],
)
def test_columns_that_mean_nothing_to_a_queue_are_refused(spark: Any, queue: Any, schema: str, words: str) -> None:
    q = queue()
    with pytest.raises(AnalysisException, match=words):
        write(spark.createDataFrame([], schema), q)


def test_overwriting_and_wrong_options_are_refused(spark: Any, queue: Any) -> None:
    q = queue()
    frame = spark.createDataFrame([("x",)], "body string")
    with pytest.raises(AnalysisException, match="messages are added to a queue"):
        frame.write.format("penstock").mode("overwrite").save(str(q.path))
    with pytest.raises(AnalysisException, match="option state is for read only; the options for a write are path, "):
        write(frame, q, state="all")
    assert q.qsize() == 0


def test_what_a_dead_job_staged_is_swept_after_a_week(queue: Any) -> None:
    q = queue()
    for job, age_s in (("dead", SWEPT_AFTER_S + 60), ("young", SWEPT_AFTER_S - 3600)):
        folder = q.path / STAGING / job
        folder.mkdir(parents=True)
        (folder / "0-0.arrow").write_bytes(b"")
        os.utime(folder, (time.time() - age_s,) * 2)
    Staging(str(q.path), "mine").sweep()
    assert [folder.name for folder in (q.path / STAGING).iterdir()] == ["young"]


def test_small_batches_are_staged_together_and_large_ones_as_they_are() -> None:
    def batch(first: int, rows: int, body: bytes = b"") -> Any:
        return pa.RecordBatch.from_pydict({"number": list(range(first, first + rows)), "body": [body] * rows})

    half = JOINED_ROWS_MOST // 2
    given = [batch(0, half), batch(0, 0), batch(half, half), batch(2 * half, 1), batch(2 * half + 1, 2)]
    given.append(batch(2 * half + 3, 1, bytes(JOINED_BYTES_MOST)))
    found = list(joined(given))
    assert [each.num_rows for each in found] == [2 * half, 3, 1]
    assert found[-1] is given[-1]
    assert [number for each in found for number in each.column("number").to_pylist()] == list(range(2 * half + 4))
    assert list(joined([batch(0, 0)])) == []
