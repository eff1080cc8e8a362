"""The way in: delivery times, and a put that is whole or not at all."""

from __future__ import annotations

import gc
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import Misuse, QueueFull
from penstock.store import layout as L
from penstock.timequeue.producer import RUN_BYTES_MAX
from penstock.timequeue.puts import plain, to_us
from tests.conftest import Queues

interpreted = pytest.mark.skipif(penstock.compiled, reason="nothing can be put in the way of compiled methods")

NOW_US = 1_700_000_000_000_000


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9999, 12, 30)), st.integers(-1439, 1439))
def test_a_datetime_is_its_instant_to_the_microsecond(naive: datetime, offset_minutes: int) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    assert to_us(moment, None, NOW_US) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(st.integers(1, 4_000_000_000_000_000))
def test_epoch_seconds_keep_the_microsecond(us: int) -> None:
    assert to_us(us / 1e6, None, NOW_US) == us


def test_a_delay_counts_from_now_and_none_at_all_means_at_once() -> None:
    assert to_us(None, 1.5, NOW_US) == to_us(None, timedelta(seconds=1.5), NOW_US) == NOW_US + 1_500_000
    assert to_us(None, 0, NOW_US) == to_us(None, timedelta(0), NOW_US) == to_us(None, None, NOW_US) == 0


def test_before_1970_is_long_due_and_not_at_once() -> None:
    for moment in (-5.0, 0, datetime(1, 1, 2, tzinfo=UTC)):
        assert to_us(moment, None, NOW_US) == 1


@pytest.mark.parametrize("moment", [1e300, 10**400, -(10**400), float("-inf"), 1 << 43])
def test_times_beyond_the_format_are_refused(moment: Any) -> None:
    with pytest.raises(Misuse):
        to_us(moment, None, NOW_US)


@pytest.mark.parametrize("durability", ["relaxed", "commit"])
@pytest.mark.parametrize("size_bytes", [0, 1, 199, 200, 201, 16_384, 16_385, 40_000])
def test_a_body_of_any_size_arrives_on_every_way_in(queue: Queues, durability: str, size_bytes: int) -> None:
    q = queue(data_bytes=1 << 20, spill_bytes=20_000)
    body = os.urandom(size_bytes)
    q.put(body, durability=durability, key="k")
    q.put_many([body, body], durability=durability)
    assert [m.data for m in q.get_many(5)] == [body] * 3


def test_a_batch_larger_than_one_write_arrives_whole(queue: Queues) -> None:
    q = queue(slots=500, data_bytes=4 << 20)
    bodies = [bytes([n % 251]) * (n * 53 % 20_000) for n in range(300)]
    assert sum(map(len, bodies)) > 2 * RUN_BYTES_MAX
    q.put_many(bodies)
    assert [m.data for m in q.get_many(500)] == bodies


def test_a_batch_that_fills_several_data_files_arrives_whole(queue: Queues, tmp_path: Path) -> None:
    q = queue(data_bytes=3 * 4096, data_dirs=[tmp_path / f"disk{n}" for n in range(3)])
    bodies = [bytes([n]) * 150 for n in range(48)]
    q.put_many(bodies)
    assert q.stats().used_bytes == 3 * 4096
    assert [m.data for m in q.get_many(50)] == bodies


def test_a_batch_is_spread_over_the_gaps_there_are(queue: Queues, tmp_path: Path) -> None:
    q = queue(data_bytes=3 * 4096, data_dirs=[tmp_path / f"disk{n}" for n in range(3)])
    ids = [q.put(b"x" * 150) for _ in range(48)]
    for id_ in ids[::3]:
        q.cancel(id_)
    bodies = [bytes([n]) * 150 for n in range(16)]
    q.put_many(bodies, priority=1)
    assert [m.data for m in q.get_many(16)] == bodies
    with pytest.raises(QueueFull):
        q.put(b"")


def test_a_batch_that_does_not_fit_gives_back_every_slot_body_and_byte(queue: Queues) -> None:
    q = queue(slots=8, data_bytes=16 << 10, spill_bytes=1000)
    q.put(b"first")
    before = q.stats()
    with pytest.raises(QueueFull) as caught:
        q.put_many([b"a" * 500, b"b" * 3000, b"c" * 14_000])
    assert caught.value.which == "data"
    with pytest.raises(QueueFull):
        q.put_many([b"b" * 1500] * 8)
    after = q.stats()
    for name in ("waiting", "filling", "vacant", "used_bytes", "spilled_bytes", "puts"):
        assert getattr(after, name) == getattr(before, name), name
    assert list((q.path / "bodies").iterdir()) == []


def test_spilled_bodies_count_as_data(queue: Queues) -> None:
    q = queue(data_bytes=16 << 10, spill_bytes=1000)
    q.put(b"x" * 10_000)
    with pytest.raises(QueueFull) as caught:
        q.put(b"y" * 10_000)
    assert (caught.value.which, caught.value.size) == ("data", 16 << 10)


@interpreted
def test_a_confirmed_put_was_synced_before_it_was_published(queue: Queues) -> None:
    q = queue(durability="commit", index_sync_ms=0, spill_bytes=1000, data_bytes=1 << 20)
    files = q._client.files
    seen: list[str] = []
    sync_data = files.sync_data

    def noted() -> None:
        seen.append(f"sync with {q.qsize()} waiting")
        sync_data()

    files.sync_data = noted
    q.put(b"x")
    q.put_many([b"y", b"z" * 5000])
    q.put(b"w", durability="relaxed")
    assert seen == ["sync with 0 waiting", "sync with 1 waiting"]


@interpreted
@pytest.mark.damages
def test_a_failed_sync_confirms_nothing(queue: Queues) -> None:
    q = queue(durability="commit", index_sync_ms=0)

    def broken() -> None:
        raise OSError(5, "Input/output error")

    q._client.files.sync_data = broken
    with pytest.raises(OSError, match="Input/output"):
        q.put(b"x")
    assert (q.qsize(), q.stats().filling, q.stats().vacant) == (0, 0, 64)


@interpreted
@pytest.mark.damages
def test_a_discarded_record_cannot_be_taken_for_a_message_later(queue: Queues) -> None:
    q = queue(index_sync_ms=0)
    client = q._client

    def broken() -> None:
        raise OSError(5, "Input/output error")

    client.files.sync_data = broken
    with pytest.raises(OSError, match="Input/output"):
        q.put(b"x", durability="commit")
    assert client.files.read(0, 1)[: L.WORD_BYTES] == bytes(L.WORD_BYTES)  # its signature is gone


@interpreted
def test_closing_waits_for_nobody_but_refuses_while_a_put_is_under_way(queue: Queues) -> None:
    q = queue()
    files = q._client.files
    write = files.write
    refused: list[bool] = []

    def slow(unit: int, data: Any) -> None:
        try:
            q.close()
        except Misuse:
            refused.append(True)
        write(unit, data)

    files.write = slow
    q.put_many([b"x", b"y"])
    files.write = write
    assert refused == [True] and q.qsize() == 2


def test_a_draft_knows_only_the_options_of_a_message() -> None:
    with pytest.raises(TypeError):
        penstock.Draft(body=b"x", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        penstock.Draft(b"x")  # type: ignore[misc]


@pytest.mark.skipif(not penstock.compiled, reason="of compiled classes only")
def test_the_garbage_collector_does_not_walk_through_entries() -> None:
    """Or it does so again and again while a large batch is made."""
    assert not any(gc.is_tracked(plain(body)) for body in (b"x", b"y"))
