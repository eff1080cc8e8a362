"""What every kind of queue knows of itself: how long messages waited, were late and were worked on, how often things
happen, and who is at it."""

from __future__ import annotations

import math
from typing import Any

import pytest

import penstock
from penstock import LeaseLost
from penstock.timequeue import combined, resize_queue, restore_queue
from tests.conftest import Queues, SimulatedClock
from tests.contract.test_queue_contract import Local, Macro, kind, take  # noqa: F401

# ruff: noqa: F811 (the fixtures)


def spans(queue: Any) -> dict[str, tuple[int, float | None]]:
    """Count and mean of each."""
    stats = queue.stats()
    return {
        name: (found.count, found.mean_s)
        for name in ("waiting_time", "lateness", "service_time")
        if (found := getattr(stats, name)) is not None
    }


def test_a_new_queue_knows_nothing_yet(kind: Local) -> None:
    stats = kind.make().stats()
    nothing = penstock.Distribution(0, None, None, None, None, None, [])
    assert stats.waiting_time == stats.lateness == stats.service_time == nothing
    assert stats.service_recent_s is None
    assert stats.rates == {
        name: {"1s": 0.0, "1m": 0.0, "15m": 0.0}
        for name in ("puts", "gets", "acks", "retries", "dead_letters", "syncs")
    }
    assert (stats.producers, stats.consumers, stats.remote_clients) == (0, 0, 0)


def test_waiting_is_from_put_to_delivery_and_service_from_there_to_the_ack(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"a")
    clock.advance(3)
    message = take(q)
    clock.advance(2)
    message.ack()
    assert spans(q) == {"waiting_time": (1, 3.0), "lateness": (1, 3.0), "service_time": (1, 2.0)}
    stats = q.stats()
    assert stats.service_recent_s == 2.0
    assert stats.waiting_time.p50_s == pytest.approx(3, rel=0.2) and stats.waiting_time.max_s == 3.0


def test_lateness_is_from_when_it_was_due(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"a", delay=10)
    q.put(b"b", deliver_at=clock.now_s - 1000)
    clock.advance(4)
    take(q).ack()
    clock.advance(7)
    take(q).ack()
    assert spans(q)["waiting_time"] == (2, (4 + 11) / 2)
    assert spans(q)["lateness"] == (2, (4 + 1) / 2), "what is put for a time that has passed is due from then on"


def test_batches_count_each_message(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put_many([b"x"] * 10)
    clock.advance(1)
    messages = q.get_many(10)
    clock.advance(1)
    q.ack_many(messages)
    assert spans(q) == {"waiting_time": (10, 1.0), "lateness": (10, 1.0), "service_time": (10, 1.0)}


def test_a_message_that_comes_back_waited_once_and_is_late_when_it_is_due_again(
    kind: Local, clock: SimulatedClock
) -> None:
    q = kind.make()
    q.put(b"a")
    clock.advance(1)
    take(q).release()
    clock.advance(1)
    take(q).release(delay=10)
    clock.advance(13)
    take(q).ack()
    assert spans(q) == {"waiting_time": (1, 1.0), "lateness": (2, (1 + 3) / 2), "service_time": (1, 0.0)}


def test_what_was_got_and_not_begun_counts_once(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"a")
    for _ in range(5):
        clock.advance(1)
        q.unget([take(q)])
    take(q).ack()
    assert spans(q)["waiting_time"] == spans(q)["lateness"] == (1, 1.0)


def test_only_what_is_acknowledged_has_a_service_time(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put_many([b"a", b"b", b"c"])
    first, second, third = q.get_many(3, lease=5)
    clock.advance(1)
    q.dead_letter(first, "broken")
    q.release(second)
    clock.advance(10)
    again = take(q)  # and with that the third comes back
    with pytest.raises(LeaseLost):
        third.ack()
    clock.advance(4)
    again.ack()
    stats = q.stats()
    assert (stats.service_time.count, stats.service_time.mean_s) == (1, 4.0)
    assert (stats.dead_lettered, stats.releases, stats.expired) == (1, 1, 1)


def test_a_clock_that_is_set_back_makes_no_time_negative(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"a")
    clock.set_wall(clock.now_s - 3600)
    message = take(q)
    clock.set_wall(clock.now_s - 3600)
    message.ack()
    assert spans(q) == {"waiting_time": (1, 0.0), "lateness": (1, 0.0), "service_time": (1, 0.0)}


def test_rates_are_those_of_the_last_second_minute_and_quarter_of_an_hour(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    for _ in range(60):
        q.put_many([b"x"] * 10)
        q.unget(q.get_many(10))
        q.ack_many(q.get_many(10))
        clock.advance(1)
    rates = q.stats().rates
    for name, a_second in (("puts", 10), ("gets", 20), ("acks", 10), ("retries", 10)):
        assert rates[name]["1m"] == pytest.approx(a_second * -math.expm1(-1), rel=0.02)
        assert rates[name]["15m"] == pytest.approx(a_second * -math.expm1(-60 / 900), rel=0.02)
    for _ in range(30):
        q.put(b"x")
        clock.advance(0.1)
    assert q.stats().rates["puts"]["1s"] == pytest.approx(10, rel=0.1)
    before = q.stats().rates["puts"]
    clock.advance(3600)
    faded = q.stats().rates["puts"]
    assert faded["1s"] == faded["1m"] == 0.0
    assert faded["15m"] == pytest.approx(before["15m"] * math.exp(-4), rel=0.01)


def test_rates_do_not_mind_a_wall_clock_that_jumps(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    for n in range(40):
        q.put(b"x")
        clock.advance(0.1)
        if n % 7 == 0:
            clock.set_wall(clock.now_s + (-1) ** n * 86_400)
    assert q.stats().rates["puts"]["1s"] == pytest.approx(10, rel=0.15)


def test_clients_are_known_by_what_they_have_done(kind: Local) -> None:
    if isinstance(kind, Macro):
        pytest.skip("a client of a macro queue is one of each of its members, and counted there")
    producer = kind.make()
    consumer, both, neither = (kind.peer(producer) for _ in range(3))
    producer.put(b"a")
    assert (producer.stats().producers, producer.stats().consumers) == (1, 0)
    assert consumer.get_many(5, type="none") == []
    both.put_many([b"b"])
    take(both).ack()
    stats = neither.stats()
    assert (stats.producers, stats.consumers, len(stats.clients)) == (2, 2, 4)
    assert [(each["produces"], each["consumes"]) for each in stats.clients] == [(1, 0), (0, 1), (1, 1), (0, 0)]
    both.close()
    assert (neither.stats().producers, neither.stats().consumers) == (1, 1)


def test_claims_are_deliveries_and_their_ends_acknowledgements(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(spill_bytes=1000)
    q.put_many([b"x"] * 6)
    q.put(b"large " * 4000)
    clock.advance(2)
    with q.receiver("report") as receiver:
        claim = receiver.claim(10)
        assert claim is not None and q.stats().claimed == 7
        clock.advance(5)
        receiver.commit(claim.number)
    stats = q.stats()
    assert spans(q) == {"waiting_time": (7, 2.0), "lateness": (7, 2.0), "service_time": (7, 5.0)}
    assert (stats.acks, stats.consumers, stats.service_recent_s) == (7, 1, 5.0)


def test_spans_outlive_all_clients(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put(b"a")
    clock.advance(1)
    take(q).ack()
    before = q.stats()
    q.close()
    after = queue.open(q.path).stats()
    for name in ("waiting_time", "lateness", "service_time", "service_recent_s", "rates", "puts"):
        assert getattr(after, name) == getattr(before, name)


@pytest.mark.parametrize("what", ["restore", "resize", "backup"])
def test_what_becomes_of_the_figures(what: str, queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put_many([b"a", b"b"])
    clock.advance(3)
    take(q).ack()
    before = q.stats()
    path = q.path
    if what == "backup":
        path = path.with_name("copy")
        penstock.backup(q.path, path)
    q.close()
    if what == "restore":
        restore_queue(path)
    elif what == "resize":
        resize_queue(path, slots=100)
    other = queue.open(path)
    after = other.stats()
    if what == "backup":
        assert (after.puts, after.waiting_time.count, after.depth_max) == (0, 0, 1)
    else:
        assert (after.puts, after.acks) == (2, 1)
        assert (after.waiting_time, after.service_time) == (before.waiting_time, before.service_time)
    assert after.rates == (before.rates if what == "resize" else combined([], path="").rates)
    clock.advance(4)
    take(other).ack()
    found = other.stats().waiting_time
    assert found.max_s == 7.0, "the time of the put is known"
