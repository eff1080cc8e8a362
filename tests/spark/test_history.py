"""The history of queues as a DataFrame: what Python reads, each row once, with times as times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import outcomes

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'penstock[spark]'")

SMALL: dict[str, Any] = {"data_bytes": 256 << 10, "durability": "relaxed", "history_bytes": 1 << 20}


def work(q: Any, count: int = 20) -> None:
    """Messages of some types and keys, each acknowledged, some at the second attempt; then the queue is closed."""
    for number in range(count):
        q.put(number, type="even" if number % 2 == 0 else "odd", key=f"k{number % 3}", priority=number % 2)
    failed = set()
    while q.qsize():
        message = q.get(block=False)
        if message.body % 5 == 0 and message.body not in failed:
            failed.add(message.body)
            message.fail(ValueError("once"))
        else:
            message.ack()
    q.cancel(q.put("never", delay=1000))
    q.close()


def test_the_frame_has_what_python_reads(spark: Any, queue: Any) -> None:
    from penstock.spark import history

    q = queue(history_bytes=1 << 20)
    path = q.path
    work(q)
    expected = {(each.id, each.attempts, each.result): each for each in penstock.outcomes(path)}
    assert len(expected) == 25
    rows = history(path, spark).collect()
    assert len(rows) == len(expected)
    for row in rows:
        each = expected[row.id, row.attempts, row.result]
        assert (row.type, row.key, row.priority, row.owner, row.reason, row.error) == (
            each.type, each.key, each.priority, each.owner, each.reason, each.error,
        )  # fmt: skip
        assert row.enqueued_at == datetime.fromtimestamp(each.enqueued_us / 1e6)
        assert row.queue == str(path)
        if each.taken_us == 0:
            assert each.result == "cancelled"
            assert row.taken_at is row.waiting_s is row.lateness_s is row.service_s is None
        else:
            assert row.waiting_s == pytest.approx((each.taken_us - each.enqueued_us) / 1e6)
            assert row.lateness_s == pytest.approx((each.taken_us - max(each.deliver_us, each.enqueued_us)) / 1e6)
            assert row.service_s == pytest.approx((each.done_us - each.taken_us) / 1e6)
            assert 0 <= row.lateness_s <= row.waiting_s


def test_times_are_right_to_the_microsecond(spark: Any, queue: Any) -> None:
    from penstock.spark import history

    q = queue(history_bytes=1 << 20)
    q.put("a", deliver_at=datetime(2020, 2, 29, 12, 30, tzinfo=UTC))
    q.get().ack()
    q.close()
    (each,) = penstock.outcomes(q.path)
    (row,) = history(q.path, spark).selectExpr("unix_micros(deliver_at)", "unix_micros(done_at)").collect()
    assert tuple(row) == (1_582_979_400_000_000, each.done_us)


def test_a_root_and_a_macro_queue_have_each_row_once(spark: Any, tmp_path: Path) -> None:
    from penstock.spark import history

    with penstock.QueueManager(tmp_path) as manager:
        for name in ("a", "b", "alone"):
            manager.create(name, **SMALL)
            with manager.open(name) as q:
                work(q)
            manager.close(name)
        manager.create_macro("both", ["a", "b"])
        assert history(manager, spark).count() == 3 * 25
        assert history(tmp_path, spark).count() == 3 * 25
        both = history(tmp_path / "both", spark)
        assert both.count() == both.select("id", "attempts").distinct().count() == 2 * 25
        counts = {Path(row["queue"]).name: row["count"] for row in both.groupBy("queue").count().collect()}
        assert counts == {"a": 25, "b": 25}


def test_a_frame_stays_what_it_was_and_the_next_has_more(spark: Any, queue: Any) -> None:
    from penstock.spark import history

    q = queue(history_bytes=1 << 20)
    q.put_many([1, 2])
    q.get().ack()
    client = q._mine()
    client.seal_history()
    client.history.write(wait=True)
    before = history(q, spark)
    q.get().ack()
    client.seal_history()
    client.history.write(wait=True)
    assert before.count() == 1
    assert history(q, spark).count() == 2


def test_without_a_history_the_frame_is_empty_and_without_a_queue_it_is_an_error(
    spark: Any, queue: Any, tmp_path: Path
) -> None:
    from penstock.spark import history

    q = queue()
    frame = history(q, spark)
    assert frame.count() == 0
    assert "lateness_s" in frame.columns
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "nothing", tmp_path / "empty"):
        with pytest.raises(penstock.QueueNotFound):
            history(wrong, spark)


def test_a_damaged_block_costs_its_rows_only(spark: Any, queue: Any) -> None:
    from penstock.spark import history

    q = queue(history_bytes=1 << 20)
    for n in range(3):
        q.put(n)
        q.get().ack()
        q._mine().seal_history()
    q.close()
    (file,) = (q.path / "history").iterdir()
    data = bytearray(file.read_bytes())
    second = data.index(outcomes.BLOCK_MAGIC, data.index(outcomes.BLOCK_MAGIC) + 1)
    data[second + 30] ^= 1
    file.write_bytes(data)
    assert history(q.path, spark).count() == 2


def test_the_example_of_the_page_about_it_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/history.md").read_text()
    monkeypatch.chdir(tmp_path)
    first, frame = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(first, {})
    names: dict[str, Any] = {}
    exec(frame, names)
    assert "example.org|ConnectionError: no route|1" in capsys.readouterr().out
    told = re.findall(r"`(\w+)`", text.split("| column | type |")[1].split("\n\n")[0])
    assert set(names["outcomes"].columns) <= set(told)
