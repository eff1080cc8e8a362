"""A queue as a table: what a snapshot holds, which columns, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import layout as L

pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PythonException

from penstock.spark import PenstockDataSource, json_body, text_body

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

COLUMNS = ["id", "number", "queue", "type", "key", "priority", "attempts", "enqueued_at", "deliver_at", "headers"]
COLUMNS.append("body")


def read(spark: Any, queue: Any, **options: Any) -> Any:
    reader = spark.read.format("penstock")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(queue.path))


def numbers(frame: Any) -> list[int]:
    return sorted(row.number for row in frame.select("number").collect())


@pytest.fixture
def mixed(queue: Any) -> Any:
    """Message 1 is due, 2 is scheduled, 3 is with a receiver, 4 has a body of its own, 5 is due."""
    q = queue(slots=64, data_bytes=1 << 20, spill_bytes=4096)
    q.put(b"first", type="order", key="example.com", headers={"größe": "日本", "empty": ""})
    q.put({"n": 2}, delay=100_000, type="order", key="other")
    q.put("dritte", priority=9, type="note")
    q.put(os.urandom(20_000), type="large")
    q.put(b"")
    assert q.get(block=False, lease=10_000).number == 3
    return q


def test_every_column_says_what_the_message_says(spark: Any, mixed: Any) -> None:
    frame = read(spark, mixed, state="all")
    assert frame.columns == COLUMNS
    rows = {row.number: row for row in frame.collect()}
    messages = {message.number: message for message in mixed.browse(state="all")}
    assert rows.keys() == messages.keys() == {1, 2, 3, 4, 5}
    for number, message in messages.items():
        row = rows[number]
        assert (row.id, row.queue, row.type, row.key) == (message.id, mixed.name, message.type, message.key)
        assert (row.priority, row.attempts) == (message.priority, message.attempts)
        assert (row.headers or {}) == message.headers and row.headers != {}
        assert bytes(row.body) == message.data
        assert in_utc(row.enqueued_at) == message.enqueued_at
        assert in_utc(row.deliver_at) == message.deliver_at


def in_utc(moment: datetime) -> datetime:
    """Spark hands out naive datetimes in the time zone of this process."""
    return moment.astimezone(UTC)


@pytest.mark.parametrize(
    "state, expected", [("waiting", [1, 2, 4, 5]), ("scheduled", [2]), ("pending", [3]), ("ALL", [1, 2, 3, 4, 5])]
)
def test_a_state_selects_its_messages(spark: Any, mixed: Any, state: str, expected: list[int]) -> None:
    assert numbers(read(spark, mixed, state=state)) == expected


def test_reading_consumes_nothing(spark: Any, mixed: Any) -> None:
    before = mixed.stats()
    assert read(spark, mixed, state="all").count() == 5
    after = mixed.stats()
    assert (after.waiting, after.pending, after.gets) == (before.waiting, before.pending, before.gets)


def test_an_empty_queue_has_no_rows(spark: Any, queue: Any) -> None:
    frame = read(spark, queue())
    assert frame.collect() == []
    assert frame.columns == COLUMNS


def test_bodies_of_mixed_sizes_in_several_partitions_and_batches(spark: Any, queue: Any) -> None:
    q = queue(slots=3000, data_bytes=8 << 20, spill_bytes=3000)
    bodies = [os.urandom((i * 37) % 3500) for i in range(2500)]
    q.put_many(bodies)
    frame = read(spark, q, partitions=3, batchRows=100)
    assert frame.rdd.getNumPartitions() == 3
    assert Counter(bytes(row.body) for row in frame.collect()) == Counter(bodies)


def test_a_narrow_schema_is_honoured(spark: Any, mixed: Any) -> None:
    narrow = spark.read.format("penstock").option("state", "all")
    load = lambda schema: narrow.schema(schema).load(str(mixed.path))  # noqa: E731
    heads = load("type string, headers map<string,string>, number long").orderBy("number")
    assert heads.columns == ["type", "headers", "number"]
    assert [row.type for row in heads.collect()] == ["order", "order", "note", "large", None]
    with pytest.raises(AnalysisException, match="column body is binary, not string"):
        load("body string").collect()
    with pytest.raises(AnalysisException, match="there is no column bodies; the columns are struct<id:string"):
        load("bodies binary").collect()


@pytest.mark.damages
def test_what_is_not_asked_for_is_not_read_and_damage_is_found(spark: Any, queue: Any) -> None:
    q = queue()
    q.put(b"x" * 100, type="a")
    with open(q.path / "data.0", "r+b") as file:
        at = file.read().index(b"x" * 100)
        file.seek(at)
        file.write(b"y")
    narrow = spark.read.format("penstock")
    assert [r.type for r in narrow.schema("type string").load(str(q.path)).collect()] == ["a"]
    assert [r.number for r in narrow.schema("number long").load(str(q.path)).collect()] == [1]
    with pytest.raises(
        PythonException, match=r"data\.0: damaged at byte \d+: expected .* of message 1, .*`penstock check`"
    ):
        read(spark, q).collect()


def test_filters_give_what_they_say_whether_pushed_down_or_not(spark: Any, mixed: Any) -> None:
    cases = {
        "type = 'order'": [1, 2],
        "type in ('note', 'large')": [3, 4],
        "type is null": [5],
        "type is not null and key is null": [3, 4],
        "key = 'other'": [2],
        "priority > 3": [3],
        "priority <= 3 and number >= 4": [4, 5],
        "number in (1, 5)": [1, 5],
        "attempts = 1": [3],
        "type <> 'order'": [3, 4],
        "deliver_at > current_timestamp()": [2],
        "deliver_at > timestamp'2020-01-01 00:00:00'": [1, 2, 3, 4, 5],
        "enqueued_at < timestamp'2020-01-01 00:00:00'": [],
        "type = 'order' or number = 5": [1, 2, 5],
        "type = 'order' and length(body) = 5": [1],
    }
    for text, expected in cases.items():
        frame = read(spark, mixed, state="all", pushFilters="true")
        assert numbers(frame.filter(text)) == expected, text
    frame = read(spark, mixed, state="all")
    assert {text: numbers(frame.filter(text)) for text in list(cases)[:4]} == dict(list(cases.items())[:4])


def test_a_dataframe_can_be_filtered_in_several_ways(spark: Any, mixed: Any) -> None:
    """With filters pushed down Spark 4.3 would mix them up, which is why that has to be asked for."""
    frame = read(spark, mixed, state="all")
    assert numbers(frame.filter("type = 'order'")) == [1, 2]
    assert numbers(frame) == [1, 2, 3, 4, 5]
    both = frame.filter("type = 'order'").union(frame.filter("type = 'note'"))
    assert numbers(both) == [1, 2, 3]


def test_pushed_filters_leave_messages_out_before_their_bodies_are_read(spark: Any, mixed: Any) -> None:
    """Bodies that are files of their own are gone here: whoever reads them notices."""
    for file in (mixed.path / "bodies").iterdir():
        kept = file.read_bytes()
        file.unlink()
    frame = read(spark, mixed, state="all", pushFilters="true")
    assert numbers(frame.filter("type = 'order'")) == [1, 2]
    with pytest.raises(PythonException, match="expected the record of message 4"):
        numbers(read(spark, mixed, state="all"))
    file.write_bytes(kept)


def test_a_message_that_is_gone_and_overwritten_is_left_out_or_fails_the_read(spark: Any, queue: Any) -> None:
    q = queue(slots=8)
    q.put_many([b"a", b"b", b"c"])
    skipping, failing = read(spark, q), read(spark, q, onGone="fail")
    assert skipping.count() == failing.count() == 3  # from here on these two have their snapshots
    first = q.get(block=False)
    place = q._mine().kernel.field(first.slot, L.S_PLACE) >> L.PLACE_SHIFT
    first.ack()
    q._mine().files.write(place, bytes(L.UNIT_BYTES))  # as another message there would
    assert numbers(skipping) == [2, 3]
    with pytest.raises(PythonException, match="was removed while the queue was read; read again"):
        failing.collect()


def test_a_dataframe_keeps_its_snapshot(spark: Any, queue: Any) -> None:
    q = queue()
    q.put(b"a")
    frame = read(spark, q)
    assert frame.count() == 1
    q.put(b"b")
    assert frame.count() == 1
    assert read(spark, q).count() == 2


@pytest.mark.parametrize(
    "options, words",
    [
        ({"colour": "red"}, "unknown option colour; the options of penstock are path, root, queue, state, "),
        ({"state": "new"}, "option state must be one of waiting, scheduled, pending, all, not 'new'"),
        ({"batchRows": "0"}, "option batchRows must be a whole number from 1 to "),
        ({"partitions": "-1"}, "option partitions must be a whole number from 0 to "),
        ({"timeout": "3"}, "option timeout is for write only; the options for a read are path, root, queue, state, "),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_ones(spark: Any, mixed: Any, options: Any, words: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, mixed, **options).collect()
    assert words in str(caught.value)


def test_a_missing_queue_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="there is no queue here"):
        spark.read.format("penstock").load(str(tmp_path / "none"))


def test_bodies_as_text_and_json(spark: Any, queue: Any) -> None:
    q = queue()
    q.put({"name": "Jürgen", "n": 3})
    q.put("not JSON")
    q.put(b'{"name": "J\xfcrgen", "n": 3}')
    frame = read(spark, q).orderBy("number")
    rows = frame.select(text_body(), json_body("name string, n int")).collect()
    assert [row.text for row in rows] == ['{"name":"Jürgen","n":3}', "not JSON", None]
    assert (rows[0].json.name, rows[0].json.n) == ("Jürgen", 3)
    assert rows[1].json is None or rows[1].json.name is None
    assert rows[2].json is None


def test_it_can_be_registered_by_hand(spark: Any, mixed: Any) -> None:
    spark.dataSource.register(PenstockDataSource)
    assert read(spark, mixed).count() == 4


def test_a_re_created_queue_shows_no_stale_data(spark: Any, tmp_path: Path) -> None:
    for body in (b"old", b"new"):
        path = tmp_path / "again"
        if path.exists():
            os.rename(path, tmp_path / "before")
        with penstock.create(path, slots=8, data_bytes=8192, durability="relaxed") as q:
            q.put(body)
        assert [bytes(r.body) for r in spark.read.format("penstock").load(str(path)).collect()] == [body]
