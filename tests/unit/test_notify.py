"""How long a receiver sleeps, the bell, and who is told of what."""

from __future__ import annotations

import threading
import time

import pytest

from penstock import LeaseLost, QueueFull
from penstock.store import layout as L
from penstock.timequeue.notify import SLEEP_MAX_S, sleep_s
from tests.conftest import Queues, SimulatedClock

S = 1_000_000


@pytest.mark.parametrize(
    "due_s, lease_s, left_s, expected",
    [
        (0, 0, None, SLEEP_MAX_S),
        (0, 0, 0.3, 0.3),
        (0, 0, 30.0, SLEEP_MAX_S),
        (100.25, 0, None, 0.25),
        (100.25, 50.125, None, 0.125),
        (100.25, 50.125, 0.0625, 0.0625),
        (3600, 0, None, SLEEP_MAX_S),
        (99, 0, None, 0.0),
        (0, 49, None, 0.0),
        (0, 0, 0.0, 0.0),
    ],
)
def test_a_sleep_ends_at_the_first_reason_to_look(
    due_s: float, lease_s: float, left_s: float | None, expected: float
) -> None:
    found = sleep_s(
        now_us=100 * S, boot_us=50 * S, next_due_us=int(due_s * S), next_lease_us=int(lease_s * S), left_s=left_s
    )
    assert found == expected


def test_a_bell_that_was_rung_before_does_not_let_sleep(queue: Queues) -> None:
    client = queue()._client
    seen = client.turn(client.kernel.sleepers.arm, L.H_WAKE)
    assert client.receivers.sleep(seen, 0.01) is False
    assert client.receivers.sleep(seen, 0) is False
    assert client.receivers.sleep(seen + 1, 10) is True  # the word is not what it was: no sleep at all


def test_a_ring_ends_the_sleep_of_another_client(queue: Queues) -> None:
    q = queue()
    client, peer = q._client, queue.open(q)._client
    seen = client.turn(client.kernel.sleepers.arm, L.H_WAKE)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(client.receivers.sleep(seen, 10)))
    thread.start()
    start_s = time.monotonic()
    while thread.is_alive():  # it may not be asleep yet
        peer.receivers.ring(1)
        thread.join(0.005)
        assert time.monotonic() - start_s < 5
    assert woken == [True]


class Told:
    """What a change told the receivers: how far the bell moved, and how many are still counted as asleep."""

    def __init__(self, queue: Queues, sleepers: int = 3) -> None:
        self.q = queue(slots=8)
        self.client = self.q._client
        self.get = self.client.kernel.get
        for _ in range(sleepers):
            self.client.turn(self.client.kernel.sleepers.arm, L.H_WAKE)
        self.word = self.get(L.H_WAKE)

    @property
    def rung(self) -> int:
        return int(self.get(L.H_WAKE) - self.word)

    @property
    def asleep(self) -> int:
        return int(self.get(L.H_SLEEPERS))


def test_a_message_that_is_due_wakes_one(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue)
    told.q.put(b"x")
    assert (told.rung, told.asleep) == (1, 2)
    told.q.put(b"x", deliver_at=clock.now_s - 1)
    assert (told.rung, told.asleep) == (2, 1)


def test_a_batch_wakes_as_many_as_it_has_messages(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue)
    told.q.put_many([b"x", b"y"])
    assert (told.rung, told.asleep) == (1, 1)


def test_a_new_earliest_delivery_time_wakes_all_to_plan_anew(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue)
    told.q.put(b"x", delay=60)
    assert (told.rung, told.asleep) == (1, 0)


def test_a_later_delivery_time_wakes_nobody(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue, sleepers=0)
    told.q.put(b"x", delay=60)
    told.client.turn(told.client.kernel.sleepers.arm, L.H_WAKE)
    word = told.get(L.H_WAKE)
    told.q.put(b"y", delay=61)
    assert (told.get(L.H_WAKE), told.asleep) == (word, 1)


def test_nobody_asleep_means_nobody_is_told(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue, sleepers=0)
    told.q.put_many([b"x"] * 4)
    told.q.put(b"y", delay=60)
    assert (told.rung, told.get(L.H_OWED)) == (0, 0)


def test_a_sleeper_that_timed_out_is_not_counted_any_more(queue: Queues) -> None:
    q = queue()
    assert q.get_many(1, wait=0.01) == []
    assert q._client.kernel.get(L.H_SLEEPERS) == 0


def test_whoever_waits_for_room_is_told_also_when_the_call_fails_later(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue, sleepers=0)
    told.q.put_many([b"x"] * 8)
    ours, lost = told.q.get_many(2)
    lost.ack()
    client = told.client
    seen = client.turn(client.kernel.sleepers.arm, L.H_ROOM)
    with pytest.raises(LeaseLost):
        told.q.ack_many([ours, lost])
    assert client.producers.sleep(seen, 10) is True
    assert told.get(L.H_OWED) == 0  # the ring itself was not left to whoever comes next


def test_a_batch_that_finds_no_room_tells_nobody_that_there_is_some(queue: Queues, clock: SimulatedClock) -> None:
    told = Told(queue, sleepers=0)
    told.q.put_many([b"x"] * 6)
    seen = told.client.turn(told.client.kernel.sleepers.arm, L.H_ROOM)
    with pytest.raises(QueueFull):
        told.q.put_many([b"y"] * 3)
    assert told.get(L.H_ROOM) == seen
