"""What every kind of queue promises to a program, whatever it is made of. A new kind joins by an entry in KINDS."""

from __future__ import annotations

import queue as stdlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

import penstock
from penstock import Draft, LeaseLost, Misuse, QueueEmpty, QueueFull
from penstock.store import layout as L
from penstock.store.kernel import Kernel
from tests.conftest import Queues, SimulatedClock

DAY_S = 86_400


class SummerTime(tzinfo):
    """A zone like Prague's in 2024 and Britain's in 1970, whether or not this machine has a time zone database."""

    BEGINS = datetime(2024, 3, 31, 2)
    ENDS = datetime(2024, 10, 27, 3)

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1) + self.dst(moment)

    def dst(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        naive = moment.replace(tzinfo=None, fold=0)
        again = self.ENDS - timedelta(hours=1) <= naive < self.ENDS and moment.fold
        summer = self.BEGINS <= naive < self.ENDS and not again
        return timedelta(hours=1 if summer or naive.year == 1970 else 0)

    def tzname(self, moment: datetime | None) -> str:
        return "summer time"

    def __str__(self) -> str:
        return "summer-time"


class Local:
    """A directory on this machine's disk."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def make(self, name: str = "queue", **options: Any) -> penstock.TimeQueue:
        return self._queues(name, **options)

    def peer(self, queue: penstock.TimeQueue) -> penstock.TimeQueue:
        """Another program's view of the same queue."""
        return self._queues.open(queue)

    def kernel(self, queue: penstock.TimeQueue) -> Kernel:
        """What is behind it, for tests that wait until somebody sleeps."""
        return queue._mine().kernel

    def sleepers(self, queue: penstock.TimeQueue) -> int:
        """How many wait for messages."""
        return self.kernel(queue).get(L.H_SLEEPERS)

    def bodies(self, queue: penstock.TimeQueue) -> int:
        """How many bodies are stored on their own."""
        return len(list((queue.path / "bodies").iterdir()))


class Managed(Local):
    """One that a manager has opened, for a producer and consumer: a program cannot tell."""

    def make(self, name: str = "queue", **options: Any) -> Any:
        return self._queues.managed(name, **options)

    def peer(self, queue: Any) -> Any:
        return self._queues.manage(queue)

    def kernel(self, queue: Any) -> Kernel:
        return super().kernel(queue._inner)


class Macro(Local):
    """A macro queue of several members, the first of which has room for all that these tests put."""

    def make(self, name: str = "queue", **options: Any) -> Any:
        return self._queues.macro(name, **options)

    def peer(self, queue: Any) -> Any:
        return self._queues.macro_peer(queue)

    def kernel(self, queue: Any) -> Kernel:
        return super().kernel(queue._queues()[0])

    def sleepers(self, queue: Any) -> int:
        """They are not counted: of other objects only whether there are any is known, of this one what they want."""
        settled = [vigil for vigil in list(queue._consumer._vigils.values()) if not vigil.awake]
        return len(settled) or min(self.kernel(queue).get(L.H_WATCHED), 1)

    def bodies(self, queue: Any) -> int:
        return super().bodies(queue._queues()[0])


KINDS: dict[str, Callable[[Queues], Local]] = {"local": Local, "managed": Managed, "macro": Macro}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, queue: Queues, clock: SimulatedClock) -> Local:
    """In simulated time: nothing here waits."""
    return KINDS[request.param](queue)


@pytest.fixture(params=KINDS)
def live(request: pytest.FixtureRequest, queue: Queues) -> Local:
    """In real time, for what waits and is woken."""
    return KINDS[request.param](queue)


def take(queue: penstock.TimeQueue) -> penstock.Message:
    return queue.get(block=False)


def drain(queue: penstock.TimeQueue) -> list[Any]:
    """Bodies of all that is due, one by one, acknowledged."""
    found = []
    while True:
        try:
            with take(queue) as message:
                found.append(message.body)
        except QueueEmpty:
            return found


# ---------------------------------------------------------------- what goes in comes out


def test_a_queue_satisfies_the_interface(kind: Local) -> None:
    assert isinstance(kind.make(), penstock.Queue)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        bytes(range(256)) * 40,
        "",
        "žluťoučký kůň \N{GRINNING FACE} \0 end",
        None,
        True,
        0,
        -(2**80),
        0.1,
        -0.0,
        1e308,
        [],
        {},
        {"": [1, 1.0, "1", None, False, {"a": {"b": [[]]}}]},
        {"z": 1, "a": 2},
        '\u2028\x7f"\\',
    ],
    ids=lambda body: f"{type(body).__name__}-{str(body)[:12]!a}",
)
def test_a_body_comes_back_equal_and_of_the_same_type(kind: Local, body: Any) -> None:
    q = kind.make()
    q.put(body)
    found = take(q).body
    assert repr(found) == repr(body)  # 1 and 1.0, 0.0 and -0.0, and the order of keys differ only here


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc")], ids=["bytearray", "memoryview"])
def test_other_bytes_come_back_as_bytes(kind: Local, body: Any) -> None:
    q = kind.make()
    q.put(body)
    assert take(q).body == b"abc"


@pytest.mark.parametrize(
    "body",
    [
        (1, 2),
        {"a": (1,)},
        {1: "a"},
        {None: 1},
        {"a": {2: 3}},
        {1, 2},
        float("nan"),
        [float("inf")],
        {"a": -float("inf")},
        object(),
        datetime(2024, 1, 1),
        {"a": b"bytes"},
        "\ud800",
        1j,
    ],
    ids=lambda body: f"{type(body).__name__}-{str(body)[:12]!a}",
)
def test_a_body_that_would_come_back_different_is_refused(kind: Local, body: Any) -> None:
    q = kind.make()
    with pytest.raises(Misuse):
        q.put(body)
    assert q.qsize() == 0


def test_a_value_that_contains_itself_is_refused(kind: Local) -> None:
    q = kind.make()
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Misuse):
        q.put(loop)


def test_half_characters_in_a_value_come_back_the_same_or_are_refused(kind: Local) -> None:
    q = kind.make()
    body = ["\ud83d\ude00"]  # two halves, which JSON's escapes would join into one character
    try:
        q.put(body)
    except Misuse:
        return
    assert take(q).body == body


def test_a_message_carries_all_that_was_given_with_it(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    put_us = clock.wall_us()
    id_ = q.put({"order": 7}, delay=2, priority=3, type="order", key="example.com", headers={"a": "b", "č": ""})
    clock.advance(5)
    message = q.get(block=False, lease=30)
    assert (message.id, message.body, message.data) == (id_, {"order": 7}, b'{"order":7}')
    assert (message.priority, message.type, message.key) == (3, "order", "example.com")
    assert message.headers == {"a": "b", "č": ""}
    assert (message.enqueued_us, message.deliver_us) == (put_us, put_us + 2_000_000)
    assert (message.attempts, message.last_attempt_us) == (1, put_us + 5_000_000)
    assert message.lease_us == put_us + 35_000_000
    assert message.lease_ends_at == message.last_attempt_at + timedelta(seconds=30)
    assert message.enqueued_at == datetime.fromtimestamp(put_us // 1_000_000, UTC)
    assert message.deliver_at - message.enqueued_at == timedelta(seconds=2)
    assert message.owner != 0 and message.number >= 1


def test_a_plain_message_has_no_type_key_or_headers(kind: Local) -> None:
    q = kind.make()
    q.put_many([b"a", Draft(body=b"b", headers={})])
    for message in q.get_many(2):
        assert (message.type, message.key, message.headers) == (None, None, {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": -1},
        {"priority": 16},
        {"priority": 1.0},
        {"priority": True},
        {"delay": -1},
        {"delay": "1"},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": True},
        {"delay": 10**400},
        {"deliver_at": "tomorrow"},
        {"deliver_at": float("nan")},
        {"deliver_at": 1e300},
        {"deliver_at": 1, "delay": 1},
        {"type": 1},
        {"key": b"k"},
        {"headers": {"a": 1}},
        {"headers": [("a", "b")]},
        {"headers": {"a": "x" * 70_000}},
        {"key": "\ud800"},
        {"durability": "none"},
        {"timeout": -1},
    ],
    ids=lambda wrong: str(wrong)[:32],
)
def test_an_option_that_makes_no_sense_is_refused(kind: Local, wrong: dict[str, Any]) -> None:
    q = kind.make()
    with pytest.raises(Misuse):
        q.put(b"body", **wrong)
    with pytest.raises(Misuse):
        q.put_many([b"body"], **wrong)
    assert q.qsize() == 0


# ---------------------------------------------------------------- ids


def test_ids_are_unique_and_stay_with_their_message(kind: Local) -> None:
    q = kind.make(slots=8)
    seen: list[str] = []
    for _ in range(5):  # the same slots over and over
        ids = [q.put(b"x"), *q.put_many([b"y", b"z"])]
        first = take(q)
        first.release()
        again = q.get_many(3)
        assert [message.id for message in again] == ids and first.id == ids[0]
        q.ack_many(again)
        seen += ids
    assert len(set(seen)) == len(seen)


def test_ids_of_two_queues_never_meet(kind: Local) -> None:
    a, b = kind.make("a"), kind.make("b")
    ids = {a.put(b"x"), b.put(b"x")}
    assert len(ids) == 2
    with pytest.raises(Misuse):
        a.cancel(next(message.id for message in b.browse()))


@pytest.mark.parametrize("wrong", ["", "x", "a-b", "--", "1-2-3-4", 7, None])
def test_what_is_not_an_id_is_refused(kind: Local, wrong: Any) -> None:
    q = kind.make()
    with pytest.raises(Misuse):
        q.cancel(wrong)


def test_a_batch_gives_its_ids_in_order(kind: Local) -> None:
    q = kind.make()
    ids = q.put_many(str(n) for n in range(5))
    assert len(ids) == 5 and list(ids[1:3]) == [ids[1], ids[2]] and ids[-1] == ids[4]
    assert [message.id for message in q.get_many(5)] == list(ids)


# ---------------------------------------------------------------- order


def test_messages_come_in_the_order_of_arrival(kind: Local) -> None:
    q = kind.make()
    peer = kind.peer(q)
    for n in range(20):
        (q if n % 2 else peer).put(n)
    assert drain(q) == list(range(20))


def test_higher_priority_comes_first_and_arrival_decides_within_it(kind: Local) -> None:
    q = kind.make()
    for n in range(48):
        q.put(n, priority=n * 7 % 16)
    assert drain(q) == sorted(range(48), key=lambda n: (-(n * 7 % 16), n))


def test_delivery_time_decides_then_arrival(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    delays = [5, 1, 3, 1, 5, 2, 4, 3]
    for n, delay in enumerate(delays):
        q.put(n, delay=delay)
    clock.advance(10)
    assert drain(q) == sorted(range(len(delays)), key=lambda n: (delays[n], n))


def test_delivery_times_differ_by_microseconds(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    for late_us in (3, 1, 2):
        q.put(late_us, deliver_at=datetime.fromtimestamp(clock.now_s + 10, UTC) + timedelta(microseconds=late_us))
    clock.advance(10)
    assert drain(q) == []
    clock.advance(0.000_002)
    assert drain(q) == [1, 2]
    clock.advance(0.000_001)
    assert drain(q) == [3]


def test_priority_matters_only_among_messages_that_are_due(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("urgent but later", delay=10, priority=15)
    q.put("now", priority=0)
    assert drain(q) == ["now"]
    q.put("now again", priority=0)
    clock.advance(10)
    assert drain(q) == ["urgent but later", "now again"]


def test_a_timed_message_that_falls_due_takes_its_place_by_time(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("second", delay=5)
    q.put("first")
    clock.advance(10)
    q.put("third")
    assert drain(q) == ["first", "second", "third"]


def test_a_time_in_the_past_is_due_at_once_and_first(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("now")
    q.put("past", deliver_at=clock.now_s - 60)
    q.put("long past", deliver_at=datetime(1950, 1, 1, tzinfo=UTC))
    q.put("longer past", deliver_at=-5e9)
    assert drain(q) == ["long past", "longer past", "past", "now"]


@pytest.mark.parametrize(
    "zone",
    [UTC, timezone(timedelta(hours=-9, minutes=-30)), SummerTime()],
    ids=str,
)
@pytest.mark.parametrize("month", [1, 7])
def test_an_aware_datetime_means_its_instant(kind: Local, clock: SimulatedClock, zone: Any, month: int) -> None:
    q = kind.make()
    moment = datetime(2024, month, 1, 12, 30, 15, 250_001, tzinfo=zone)
    q.put(b"x", deliver_at=moment)
    (message,) = q.browse()
    assert message.deliver_at == moment.astimezone(UTC)


def test_the_hour_that_comes_twice_is_told_apart(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    zone = SummerTime()
    q.put("second", deliver_at=datetime(2024, 10, 27, 2, 10, tzinfo=zone, fold=1))
    q.put("first", deliver_at=datetime(2024, 10, 27, 2, 50, tzinfo=zone, fold=0))
    clock.set_wall(datetime(2024, 12, 1, tzinfo=UTC).timestamp())
    assert drain(q) == ["first", "second"]


def test_a_naive_datetime_is_refused(kind: Local) -> None:
    q = kind.make()
    with pytest.raises(Misuse, match="time zone"):
        q.put(b"x", deliver_at=datetime(2030, 1, 1))


def test_a_delay_is_seconds_or_a_timedelta(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("b", delay=1.5)
    q.put("a", delay=timedelta(milliseconds=1499))
    clock.advance(1.499)
    assert drain(q) == ["a"]
    clock.advance(0.001)
    assert drain(q) == ["b"]


# ---------------------------------------------------------------- clocks


JUMPS_S = pytest.mark.parametrize("jump_s", [3600, DAY_S, 365 * DAY_S])


@JUMPS_S
def test_a_clock_that_goes_back_does_not_hide_immediate_messages(
    kind: Local, clock: SimulatedClock, jump_s: float
) -> None:
    q = kind.make()
    q.put("one")
    clock.set_wall(clock.now_s - jump_s)
    q.put("two", durability="commit")
    clock.set_wall(clock.now_s - jump_s)
    assert drain(q) == ["one", "two"]


@JUMPS_S
def test_a_clock_that_goes_forward_keeps_the_order(kind: Local, clock: SimulatedClock, jump_s: float) -> None:
    q = kind.make()
    q.put("two", delay=0.5 * jump_s)
    q.put("one", delay=0.25 * jump_s)
    q.put("now")
    clock.set_wall(clock.now_s + jump_s)
    q.put("last", durability="commit")
    assert drain(q) == ["now", "one", "two", "last"]


def test_delivery_times_are_absolute_when_the_clock_is_set(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("later", delay=60)
    clock.set_wall(clock.now_s - 3600)
    clock.advance(61)
    assert drain(q) == []
    clock.set_wall(clock.now_s + 3600)
    assert drain(q) == ["later"]


@JUMPS_S
def test_setting_the_clock_neither_ends_nor_extends_a_lease(kind: Local, clock: SimulatedClock, jump_s: float) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put(b"x")
    message = q.get(block=False, lease=60)
    clock.set_wall(clock.now_s + jump_s)
    assert drain(peer) == []
    clock.set_wall(clock.now_s - 2 * jump_s)
    clock.advance(60)
    assert drain(peer) == [b"x"]
    with pytest.raises(LeaseLost):
        message.ack()


# ---------------------------------------------------------------- batches


def test_a_batch_goes_in_whole_or_not_at_all(kind: Local) -> None:
    q = kind.make(slots=8)
    q.put_many(range(5))
    with pytest.raises(QueueFull):
        q.put_many(range(4))
    assert q.qsize() == 5
    q.put_many([5, 6, 7])
    assert drain(q) == list(range(8))


def test_a_batch_with_one_bad_message_puts_none(kind: Local) -> None:
    q = kind.make()
    with pytest.raises(Misuse):
        q.put_many([b"good", {1: 2}])
    with pytest.raises(Misuse):
        q.put_many([b"good", Draft(body=b"bad", priority=99)])
    assert q.qsize() == 0 and q.stats().filling == 0


def test_an_empty_batch_is_nothing(kind: Local) -> None:
    q = kind.make()
    assert list(q.put_many([])) == []
    q.ack_many([])
    assert q.stats().puts == 0


def test_drafts_bring_their_own_options(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put_many(
        ["plain", Draft(body="urgent", priority=9), Draft(body="later", delay=5), Draft(body="k", key="key", type="t")],
        priority=2,
    )
    found = q.get_many(10)
    assert [(m.body, m.priority) for m in found] == [("urgent", 9), ("plain", 2), ("k", 0)]
    assert (found[2].key, found[2].type) == ("key", "t")
    clock.advance(5)
    assert take(q).body == "later"


def test_a_large_batch_keeps_its_order(kind: Local) -> None:
    q = kind.make(slots=3000, data_bytes=1 << 20)
    bodies = [f"{n:04}" for n in range(2500)]
    q.put_many(bodies)
    assert q.qsize() == 2500
    found = [message for _ in range(5) for message in q.get_many(500)]
    assert [message.body for message in found] == bodies
    q.ack_many(found)
    assert (q.qsize(), q.stats().pending, q.stats().used_bytes) == (0, 0, 0)


def test_get_many_takes_what_is_due_and_no_more_than_asked(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put_many([1, 2, 3])
    q.put("later", delay=60)
    assert [m.body for m in q.get_many(2)] == [1, 2]
    assert [m.body for m in q.get_many(10)] == [3]
    assert q.get_many(10) == []


@pytest.mark.parametrize("most", [0, -1, 1.0, True, None])
def test_get_many_of_no_sensible_number_is_refused(kind: Local, most: Any) -> None:
    with pytest.raises(Misuse):
        kind.make().get_many(most)


# ---------------------------------------------------------------- what becomes of a delivery


def test_an_acknowledged_message_is_gone(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"x")
    take(q).ack()
    clock.advance(3600)
    assert drain(q) == [] and q.stats().vacant == q.stats().slots


def test_a_message_is_with_one_receiver_only(kind: Local) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put(b"x")
    held = take(q)
    with pytest.raises(QueueEmpty):
        take(peer)
    assert held.body == b"x"


def test_the_block_acknowledges_and_an_exception_releases(kind: Local) -> None:
    q = kind.make()
    q.put(b"x")
    with pytest.raises(ZeroDivisionError), take(q):
        _ = 1 / 0
    assert q.qsize() == 1
    with take(q) as message:
        assert message.attempts == 2
    assert (q.qsize(), q.stats().acks, q.stats().releases) == (0, 1, 1)


def test_what_was_decided_inside_the_block_stays(kind: Local) -> None:
    q = kind.make()
    q.put_many(["ack", "release"])
    with take(q) as message:
        message.ack()
    with pytest.raises(ZeroDivisionError), take(q) as message:
        message.release(delay=10)
        _ = 1 / 0
    assert (q.stats().acks, q.stats().releases, q.qsize()) == (1, 1, 1)
    assert drain(q) == []


def test_a_released_message_returns_to_its_old_place(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put_many(["a", "b", "c"])
    a = take(q)
    take(q).ack()
    clock.advance(1)
    q.put("d")
    a.release()
    assert drain(q) == ["a", "c", "d"]


def test_a_released_timed_message_returns_to_its_old_place(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("b", delay=2)
    q.put("a", delay=1)
    clock.advance(5)
    a = take(q)
    q.put("c")
    a.release()
    assert drain(q) == ["a", "b", "c"]


@pytest.mark.parametrize("delay", [30, timedelta(seconds=30)])
def test_a_message_released_with_a_delay_comes_after_it(kind: Local, clock: SimulatedClock, delay: Any) -> None:
    q = kind.make()
    id_ = q.put("a")
    q.put("b")
    take(q).release(delay=delay)
    assert drain(q) == ["b"]
    clock.advance(29.999)
    assert drain(q) == []
    clock.advance(0.001)
    message = take(q)
    assert (message.id, message.attempts) == (id_, 2)
    assert message.deliver_us - message.enqueued_us == 30_000_000


@pytest.mark.parametrize("wrong", [-1, "1", float("nan")])
def test_a_release_or_extension_that_makes_no_sense_is_refused(kind: Local, wrong: Any) -> None:
    q = kind.make()
    q.put(b"x")
    message = take(q)
    with pytest.raises(Misuse):
        message.release(delay=wrong)
    with pytest.raises(Misuse):
        message.extend(wrong)
    with pytest.raises(Misuse):
        q.get(block=False, lease=wrong)
    message.ack()


def test_attempts_count_every_delivery(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"x")
    (waiting,) = q.browse()
    assert (waiting.attempts, waiting.last_attempt_at) == (0, None)
    for attempt in (1, 2, 3):
        clock.advance(10)
        message = take(q)
        assert (message.attempts, message.last_attempt_us) == (attempt, clock.wall_us())
        message.release()
    (waiting,) = q.browse()
    assert (waiting.attempts, waiting.last_attempt_us) == (3, clock.wall_us())


def test_every_second_decision_on_a_delivery_is_refused(kind: Local) -> None:
    q = kind.make()
    q.put(b"x")
    message = take(q)
    message.ack()
    for act in (message.ack, message.release, lambda: message.extend(5)):
        with pytest.raises(LeaseLost):
            act()
    assert q.stats().acks == 1


def test_a_message_is_decided_on_only_through_the_queue_that_gave_it(kind: Local) -> None:
    a, b = kind.make("a"), kind.make("b")
    a.put(b"x")
    b.put(b"x")
    of_a, of_b = take(a), take(b)
    for act in (b.ack, b.release, lambda m: b.extend(m, 5)):
        with pytest.raises((LeaseLost, Misuse)):
            act(of_a)
    of_a.ack()
    of_b.ack()


def test_nobody_decides_on_what_another_receiver_holds(kind: Local) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put(b"x")
    message = take(q)
    for act in (peer.ack, peer.release, lambda m: peer.extend(m, 5)):
        with pytest.raises(LeaseLost):
            act(message)
    message.ack()


# ---------------------------------------------------------------- leases


def test_a_message_returns_when_its_lease_ends_and_the_late_ack_harms_nothing(
    kind: Local, clock: SimulatedClock
) -> None:
    q = kind.make()
    peer = kind.peer(q)
    id_ = q.put(b"x")
    late = q.get(block=False, lease=10)
    clock.advance(9.999)
    assert drain(peer) == []
    clock.advance(0.001)
    again = take(peer)
    assert (again.id, again.attempts) == (id_, 2)
    for act in (late.ack, late.release, lambda: late.extend(60)):
        with pytest.raises(LeaseLost) as caught:
            act()
        assert caught.value.message_id == id_
    assert q.stats().pending == 1
    again.ack()
    assert (q.stats().acks, q.stats().expired, q.stats().vacant) == (1, 1, q.stats().slots)


def test_a_late_owner_in_the_same_program_is_late_too(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put(b"x")
    late = q.get(block=False, lease=1)
    clock.advance(1)
    again = take(q)
    with pytest.raises(LeaseLost):
        late.ack()
    again.ack()


def test_a_late_ack_does_not_touch_the_next_message_in_the_same_place(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make(slots=1)
    q.put("old")
    late = q.get(block=False, lease=1)
    clock.advance(1)
    assert drain(q) == ["old"]
    q.put("new")
    held = take(q)
    with pytest.raises(LeaseLost):
        late.ack()
    assert held.body == "new"
    held.ack()


def test_extending_keeps_a_message_from_now_on(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put(b"x")
    message = q.get(block=False, lease=10)
    clock.advance(9)
    message.extend(10)
    assert message.lease_us == clock.wall_us() + 10_000_000
    clock.advance(9.999)
    assert drain(peer) == []
    message.ack()
    clock.advance(100)
    assert drain(peer) == []


def test_the_queue_s_own_lease_holds_where_none_is_given(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make(lease=5)
    peer = kind.peer(q)
    q.put(b"x")
    take(q)
    clock.advance(4.999)
    assert drain(peer) == []
    clock.advance(0.001)
    assert drain(peer) == [b"x"]


def test_ack_many_acknowledges_what_is_ours_and_names_what_is_not(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put_many(["a", "b", "c"])
    lost = q.get(block=False, lease=1)
    others = q.get_many(2, lease=60)
    clock.advance(1)
    again = take(peer)
    with pytest.raises(LeaseLost) as caught:
        q.ack_many([others[0], lost, others[1]])
    assert caught.value.message_id == lost.id == again.id
    assert (q.stats().acks, q.stats().pending) == (2, 1)


def test_closing_gives_back_what_was_not_acknowledged(kind: Local) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put_many(["a", "b"])
    held = take(peer)
    peer.close()
    peer.close()
    assert drain(q) == ["a", "b"]
    for act in (held.ack, lambda: peer.put(b"x"), lambda: peer.get(block=False), peer.qsize, peer.stats):
        with pytest.raises(Misuse):
            act()


# ---------------------------------------------------------------- a look inside


def test_browsing_shows_all_that_waits_in_order_and_takes_nothing(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    q.put("later", delay=60)
    q.put("now", type="t", key="k", headers={"h": "v"})
    q.put("urgent", priority=5)
    q.put("much later", delay=600, priority=5)
    for _ in range(2):
        found = list(q.browse())
        assert [m.body for m in found] == ["urgent", "much later", "now", "later"]
        assert [m.state for m in found] == ["waiting"] * 4
    assert (found[2].type, found[2].key, found[2].headers) == ("t", "k", {"h": "v"})
    assert (q.qsize(), q.stats().gets) == (4, 0)
    assert [m.body for m in q.browse(limit=2)] == ["urgent", "much later"]
    assert list(q.browse(limit=0)) == []


def test_browsing_shows_who_holds_what_is_pending(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    peer = kind.peer(q)
    q.put_many(["a", "b"])
    held = q.get(block=False, lease=30)
    assert [m.body for m in peer.browse()] == ["b"]
    (seen,) = peer.browse(state="pending")
    assert (seen.body, seen.owner, seen.lease_us, seen.state) == ("a", held.owner, held.lease_us, "pending")
    assert [m.body for m in peer.browse(state="all")] == ["b", "a"]
    with pytest.raises(Misuse):
        peer.browse(state="gone")


def test_a_look_at_a_message_gives_no_right_to_it(kind: Local) -> None:
    q = kind.make()
    q.put(b"x")
    (seen,) = q.browse()
    with pytest.raises(LeaseLost):
        seen.ack()
    with seen:
        pass
    assert q.qsize() == 1


@pytest.mark.parametrize("size_bytes", [10, 600], ids=["inside", "spilled"])
@pytest.mark.parametrize("state", ["waiting", "pending"])
def test_browsing_survives_that_messages_leave_meanwhile(kind: Local, size_bytes: int, state: str) -> None:
    q = kind.make(slots=16, data_bytes=16 << 10, spill_bytes=500)
    ids = q.put_many([bytes([n]) * size_bytes for n in range(6)])
    held = q.get_many(6) if state == "pending" else []
    view = q.browse(state=state)
    assert next(view).data[0] == 0
    if held:
        q.ack_many(held)
    else:
        assert all(q.cancel(id_) for id_ in ids)
    q.put("over the old records: " + "x" * 400)
    list(view)  # what left meanwhile may or may not be seen


def test_many_messages_are_browsed_once_each(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make(slots=2000, data_bytes=1 << 20)
    q.put_many(Draft(body=n, priority=n % 3, delay=n % 7) for n in range(1500))
    expected = sorted(range(1500), key=lambda n: (-(n % 3), n % 7, n))
    assert [m.body for m in q.browse()] == expected
    found = []
    for message in q.browse():  # with others at work meanwhile
        found.append(message.body)
        if len(found) == 300:
            assert len(q.get_many(20)) == 20
            q.put("new")
    numbers = [body for body in found if body != "new"]
    assert len(set(numbers)) == len(numbers) >= 1480


def test_a_cancelled_message_is_never_delivered(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make()
    peer = kind.peer(q)
    ids = [q.put(n, delay=n, priority=n % 2) for n in range(6)]
    assert peer.cancel(ids[3]) and peer.cancel(ids[0])
    assert not peer.cancel(ids[3])
    clock.advance(10)
    assert sorted(drain(q)) == [1, 2, 4, 5]
    assert not q.cancel(ids[1])


def test_what_a_receiver_holds_cannot_be_cancelled(kind: Local) -> None:
    q = kind.make()
    id_ = q.put(b"x")
    message = take(q)
    assert not q.cancel(id_)
    message.release()
    assert q.cancel(id_)
    assert q.qsize() == 0


def test_an_old_id_does_not_cancel_the_next_message_in_the_same_place(kind: Local) -> None:
    q = kind.make(slots=1)
    old = q.put("old")
    take(q).ack()
    q.put("new")
    assert not q.cancel(old)
    assert drain(q) == ["new"]


def test_purging_removes_all_that_waits_and_leaves_what_is_held(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make(slots=1000, data_bytes=1 << 20)
    q.put_many(Draft(body=n, delay=n % 2, priority=n % 16) for n in range(700))
    held = take(q)
    assert q.purge() == 699
    assert q.purge() == 0
    assert (q.qsize(), q.stats().pending, q.stats().cancels) == (0, 1, 699)
    held.ack()
    assert q.stats().used_bytes == 0


def test_the_statistics_add_up(kind: Local, clock: SimulatedClock) -> None:
    if isinstance(kind, Macro):
        pytest.skip("they are sums over several members: test_macro.py has them")
    q = kind.make(slots=10, data_bytes=8192)
    peer = kind.peer(q)
    ids = q.put_many([b"x"] * 5)
    later = q.put(b"later", delay=60)
    q.cancel(ids[4])
    take(q).ack()
    take(peer).release()
    q.get(block=False, lease=1)
    stats = q.stats()
    assert (stats.slots, stats.waiting, stats.ready, stats.timed) == (10, 3, 2, 1)
    assert (stats.pending, stats.filling, stats.vacant) == (1, 0, 6)
    assert (stats.puts, stats.gets, stats.acks, stats.releases, stats.cancels) == (6, 3, 1, 1, 1)
    assert (stats.data_bytes, stats.used_bytes, stats.spilled_bytes, stats.depth_max) == (8192, 4 * 256, 0, 6)
    assert stats.next_due_at == clock.now_s + 60
    assert len(stats.clients) == 2
    assert q.qsize() == peer.qsize() == 3
    peer.close()
    assert len(q.stats().clients) == 1
    assert q.cancel(later)
    assert q.stats().next_due_at is None


# ---------------------------------------------------------------- large bodies


def test_a_large_body_is_stored_on_its_own_and_removed_with_its_message(kind: Local, clock: SimulatedClock) -> None:
    q = kind.make(data_bytes=1 << 20, spill_bytes=1000)
    body = bytes(range(256)) * 40
    acked = q.put(body)
    cancelled, _ = q.put_many([body, body])
    q.put(b"s" * 1000)
    assert kind.bodies(q) == 3 and q.stats().spilled_bytes == 3 * len(body) and q.stats().spills == 3
    assert [m.body for m in q.browse(limit=1)] == [body]
    message = take(q)
    assert (message.id, message.body) == (acked, body)
    message.release()
    message = take(q)
    message.ack(durable=True)
    assert kind.bodies(q) == 2
    assert q.cancel(cancelled)
    q.sync_index()
    assert kind.bodies(q) == 1
    assert q.purge() == 2
    assert kind.bodies(q) == 1, "until the kernel on disk says that its message is gone"
    q.sync_index()
    assert kind.bodies(q) == 0
    assert (q.stats().spilled_bytes, q.stats().used_bytes) == (0, 0)


def test_a_large_value_survives_the_way_through_a_file(kind: Local) -> None:
    q = kind.make(data_bytes=1 << 20, spill_bytes=1000)
    value = {"text": "ž" * 5000, "list": list(range(500))}
    q.put(value)
    q.put("š" * 5000)
    assert drain(q) == [value, "š" * 5000]


def test_a_body_that_finds_no_gap_is_stored_on_its_own(kind: Local) -> None:
    q = kind.make(slots=64, data_bytes=8192)  # 32 units
    ids = q.put_many([b"x" * 100] * 32)
    for id_ in ids[::2]:
        assert q.cancel(id_)  # sixteen gaps of one unit each
    body = b"y" * 1000
    q.put(body)
    assert kind.bodies(q) == 1
    assert drain(q) == [b"x" * 100] * 16 + [body]
    q.sync_index()
    assert kind.bodies(q) == 0


def test_a_batch_that_once_found_no_gap_is_right_when_it_finds_one(live: Local) -> None:
    q = live.make(slots=40, data_bytes=8192)
    ids = q.put_many([b"x" * 100] * 32)
    for id_ in ids[::2]:
        assert q.cancel(id_)
    batch = [b"y" * 1000, b"z" * 5000]  # the first is to be spilled, then the second finds no room at all
    done = in_thread(lambda: q.put_many(batch, timeout=10))
    time.sleep(0.1)  # let it try, fail and fall asleep
    for id_ in ids[1::2]:
        assert q.cancel(id_)
    done()
    assert drain(q) == batch


# ---------------------------------------------------------------- full and empty


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start ``work``; the answer waits for its end and gives its result or raises what it raised."""
    result: list[Any] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def done() -> Any:
        thread.join(20)
        assert not thread.is_alive()
        if error:
            raise error[0]
        return result[0]

    return done


def test_an_empty_queue_says_so_at_once_or_after_the_timeout(live: Local) -> None:
    q = live.make()
    for call in (lambda: q.get(block=False), lambda: q.get(timeout=0), lambda: q.get(timeout=0.05)):
        with pytest.raises(QueueEmpty) as caught:
            call()
        assert isinstance(caught.value, stdlib.Empty) and caught.value.queue == q.name
    assert q.get_many(5) == q.get_many(5, wait=0.05) == []
    with pytest.raises(Misuse):
        q.get(timeout=-1)


def test_full_slots_are_named_with_their_number_and_what_to_do(kind: Local) -> None:
    q = kind.make(slots=3)
    q.put_many([1, 2, 3])
    for call in (lambda: q.put(4), lambda: q.put_many([4]), lambda: q.put(4, timeout=0)):
        with pytest.raises(QueueFull, match=r"all 3 slots.*slots=") as caught:
            call()
        assert isinstance(caught.value, stdlib.Full)
        assert (caught.value.which, caught.value.size, caught.value.queue) == ("slots", 3, q.name)
    assert drain(q) == [1, 2, 3]
    q.put(5)


def test_full_data_is_named_with_its_size_and_what_to_do(kind: Local) -> None:
    q = kind.make(slots=64, data_bytes=8192)
    q.put_many([b"x" * 1000] * 6)
    with pytest.raises(QueueFull, match=r"8192 bytes.*data_bytes=") as caught:
        q.put(b"x" * 3000)
    assert (caught.value.which, caught.value.size) == ("data", 8192)
    for _ in range(3):
        take(q).ack()
    q.put(b"y" * 3000)
    assert drain(q)[-1] == b"y" * 3000


def test_what_can_never_fit_is_refused_for_good(kind: Local) -> None:
    q = kind.make(slots=4, data_bytes=8192)
    with pytest.raises(penstock.BodyTooLarge) as caught:
        q.put(b"x" * 9000, timeout=60)
    assert (caught.value.body_bytes, caught.value.limit_bytes) == (9000, 8192)
    assert isinstance(caught.value, Misuse)
    with pytest.raises(Misuse):
        q.put_many([b"x"] * 5, timeout=60)
    assert q.qsize() == 0


def test_messages_that_are_held_count_as_room(kind: Local) -> None:
    q = kind.make(slots=2)
    q.put_many([1, 2])
    held = q.get_many(2)
    with pytest.raises(QueueFull):
        q.put(3)
    q.ack_many(held)
    q.put(3)


@pytest.mark.parametrize("how", ["ack", "ack_many", "cancel", "purge"])
def test_a_waiting_put_is_woken_when_there_is_room(live: Local, how: str) -> None:
    q = live.make(slots=2)
    peer = live.peer(q)
    first, _ = q.put_many(["a", "b"])
    done = in_thread(lambda: (q.put("c", timeout=10), time.monotonic()))
    message = take(peer) if how in ("ack", "ack_many") else None
    time.sleep(0.1)  # let it fall asleep: a put that tries again at once would pass without being woken
    start = time.monotonic()
    if message is not None:
        message.ack() if how == "ack" else peer.ack_many([message])
    elif how == "cancel":
        peer.cancel(first)
    else:
        peer.purge()
    _, end = done()
    assert end - start < 0.5
    assert drain(q)[-1] == "c"


def test_a_waiting_batch_goes_in_when_there_is_room_for_all(live: Local) -> None:
    q = live.make(slots=4)
    q.put_many(range(3))
    done = in_thread(lambda: q.put_many([3, 4, 5], timeout=10))
    time.sleep(0.1)  # let it try, fail and fall asleep
    assert [take(q).ack() for _ in range(3)] == [None] * 3
    done()
    assert drain(q) == [3, 4, 5]


def test_a_batch_that_waits_for_room_sleeps(live: Local) -> None:
    q = live.make(slots=4)
    q.put_many(range(3))
    start = time.process_time()
    with pytest.raises(QueueFull):
        q.put_many([3, 4], timeout=0.5)
    assert time.process_time() - start < 0.1


def test_a_waiting_put_gives_up_after_its_timeout(live: Local) -> None:
    q = live.make(slots=1)
    q.put("a")
    start = time.monotonic()
    with pytest.raises(QueueFull):
        q.put("b", timeout=0.2)
    assert 0.2 <= time.monotonic() - start < 2
    assert drain(q) == ["a"]


@pytest.mark.parametrize("how", ["put", "put_many", "release", "close", "delay"])
def test_a_waiting_get_is_woken_by_a_message(live: Local, how: str) -> None:
    q = live.make()
    peer = live.peer(q)
    if how in ("release", "close"):
        q.put("x")
    held = take(peer) if how in ("release", "close") else None
    done = in_thread(lambda: (q.get(timeout=10).body, time.monotonic()))
    time.sleep(0.1)  # let it fall asleep
    start = time.monotonic()
    if how == "put":
        peer.put("x")
    elif how == "put_many":
        peer.put_many(["x"])
    elif how == "delay":
        peer.put("x", delay=0.15)
        start += 0.15
    elif how == "release":
        held.release()
    else:
        peer.close()
    body, end = done()
    assert body == "x" and 0 <= end - start < 0.5


def test_a_waiting_get_is_not_misled_by_messages_of_the_far_future(live: Local) -> None:
    q = live.make()
    q.put("next year", delay=365 * DAY_S)
    done = in_thread(lambda: q.get(timeout=10).body)
    time.sleep(0.05)
    q.put("later", delay=300)
    q.put("soon", delay=0.1)
    assert done() == "soon"


def test_get_many_waits_for_the_first_and_takes_what_is_there(live: Local) -> None:
    q = live.make()
    done = in_thread(lambda: [m.body for m in q.get_many(10, wait=10)])
    time.sleep(0.05)
    q.put_many(["a", "b"])
    assert done() == ["a", "b"]


def test_a_get_that_waits_ends_when_its_queue_is_closed(live: Local) -> None:
    q = live.make()
    done = in_thread(lambda: q.get())
    time.sleep(0.05)
    q.close()
    with pytest.raises(Misuse):
        done()


def test_a_message_keeps_its_id_when_its_queue_is_closed(kind: Local) -> None:
    q = kind.make()
    message_id = q.put("x")
    message = q.get(block=False)
    q.close()
    assert message.id == message_id
    assert message_id in repr(message)


def test_the_error_of_a_block_is_not_hidden_by_a_lost_lease(kind: Local) -> None:
    q = kind.make()
    q.put("x")
    with pytest.raises(KeyError) as caught, q.get(block=False):
        q.close()
        raise KeyError("the block's own")
    assert "closed" in caught.value.__notes__[0]


@pytest.mark.parametrize("given", [None, "x", b"id", 7])
def test_what_is_no_message_is_refused(kind: Local, given: Any) -> None:
    q = kind.make()
    for call in (q.ack, lambda m: q.ack_many([m]), q.release, lambda m: q.extend(m, 5)):
        with pytest.raises(penstock.Misuse, match="not a message"):
            call(given)
