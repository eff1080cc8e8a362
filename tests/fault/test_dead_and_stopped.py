"""Processes that are killed or stopped: their messages return, nobody is wedged, and who comes late harms nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import LeaseLost, QueueBusy, QueueEmpty
from penstock.store import layout as L
from penstock.store.rig import kill_at
from penstock.timequeue.clients import RETURNED_A_TURN_MAX
from tests.conftest import Queues
from tests.fault.processes import Child

Start = Callable[..., Child]

interpreted = pytest.mark.skipif(penstock.compiled, reason="nothing can be put in the way of compiled methods")


def _hold(say: Any, queue: penstock.TimeQueue, most: int = 1, lease: float = 3600) -> None:
    """Receive, say what, and never come back."""
    messages = queue.get_many(most, wait=10, lease=lease)
    say([message.body for message in messages])
    while True:
        signal.pause()


def test_a_killed_receiver_s_message_returns_to_the_next_at_once(queue: Queues, start: Start) -> None:
    q = queue()
    id_ = q.put("x")
    receiver = start(_hold, q)
    assert receiver.hear() == ["x"]
    with pytest.raises(QueueEmpty):
        q.get(block=False)
    receiver.kill()
    message = q.get(block=False)
    assert (message.id, message.attempts) == (id_, 2)
    message.ack()
    assert (q.stats().returned, len(q.stats().clients)) == (1, 1)


def test_a_waiting_receiver_gets_a_killed_one_s_message(queue: Queues, start: Start) -> None:
    q = queue()
    q.put("x")
    receiver = start(_hold, q)
    receiver.hear()
    waiting = start(lambda say: say((say("waiting"), q.get(timeout=10).body)[1]))
    waiting.hear()
    receiver.kill()
    assert waiting.hear(3) == "x"  # it looks for the dead once a second


def test_all_messages_of_a_killed_receiver_return_in_their_order(queue: Queues, start: Start) -> None:
    """Also more than are handed back in one turn."""
    count = 2 * RETURNED_A_TURN_MAX + 10
    q = queue(slots=count + 100, data_bytes=2 << 20)
    q.put_many(range(count + 100))
    receiver = start(_hold, q, count)
    assert receiver.hear() == list(range(count))
    receiver.kill()
    assert [message.body for message in q.get_many(3 * count)] == list(range(count + 100))


def test_the_place_of_a_dead_client_is_given_anew_only_when_it_is_cleared(queue: Queues, start: Start) -> None:
    q = queue()
    q.put_many(["a", "b"])
    receiver = start(_hold, q, 2)
    receiver.hear()
    receiver.kill()
    successor = queue.open(q)
    assert successor._client.index == 1  # the dead one's
    assert q.stats().pending == 0
    assert [message.body for message in successor.get_many(5)] == ["a", "b"]


def test_life_is_a_lock_in_the_client_table_not_a_pid(queue: Queues, start: Start) -> None:
    q = queue()
    q.put_many(["dead one's", "living one's"])
    dead = start(_hold, q)
    dead.hear()
    living = queue.open(q)
    held = living.get(block=False)
    dead.kill()

    def forge(client: int, pid: int) -> None:
        kernel = q._client.kernel
        kernel.words.raw(kernel.get(L.H_CLIENTS_AT) + client * L.CLIENT_WORDS + L.C_PID, pid)

    # The dead one's pid is now ours, as when numbers are given again; the living one's is nobody's here, as in a
    # container with its own numbering.
    q._client.turn(forge, 1, os.getpid())
    q._client.turn(forge, 2, dead.pid)
    assert q.get(block=False).body == "dead one's"
    with pytest.raises(QueueEmpty):
        q.get(block=False)
    held.ack()


def test_a_stopped_receiver_s_message_returns_when_its_lease_ends(queue: Queues, start: Start) -> None:
    q = queue()

    def slow(say: Any) -> None:
        message = q.get(timeout=10, lease=0.3)
        say("got")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            message.ack()
            say("acked")
        except LeaseLost:
            say("lost")

    id_ = q.put("x")
    receiver = start(slow)
    assert receiver.hear() == "got"
    receiver.until_stopped()
    message = q.get(timeout=5)
    assert (message.id, message.attempts) == (id_, 2)
    receiver.go_on()
    assert receiver.hear() == "lost"
    assert q.stats().pending == 1
    message.ack()
    assert (q.stats().expired, q.stats().acks) == (1, 1)


def _stop_with_the_lock(say: Any, queue: penstock.TimeQueue) -> None:
    queue.qsize()
    queue._client.turn(os.kill, os.getpid(), signal.SIGSTOP)
    say("went on")


def test_a_stopped_holder_of_the_lock_makes_the_queue_busy_past_the_deadline(queue: Queues, start: Start) -> None:
    q = queue(busy_s=0.2)
    q.put("x")
    message = q.get(block=False)
    holder = start(_stop_with_the_lock, q)
    holder.until_stopped()
    calls: list[Callable[[], Any]] = [
        lambda: q.put("y"),
        lambda: q.put("y", timeout=60),
        lambda: q.get(timeout=60),
        lambda: q.get(block=False),
        lambda: q.cancel(message.id),
        message.ack,
        q.stats,
        lambda: penstock.open(q.path, busy_s=0.2),
    ]
    for call in calls:
        start_s = time.monotonic()
        with pytest.raises(QueueBusy) as caught:
            call()
        assert 0.2 <= time.monotonic() - start_s < 2
        assert isinstance(caught.value, TimeoutError) and caught.value.waited_s == 0.2
    holder.go_on()
    assert holder.hear() == "went on"
    message.ack()  # nothing was changed by what failed
    assert (q.stats().puts, q.stats().acks, q.qsize()) == (1, 1, 0)


def test_a_killed_holder_of_the_lock_holds_nobody_up(queue: Queues, start: Start) -> None:
    q = queue(busy_s=5)
    holder = start(_stop_with_the_lock, q)
    holder.until_stopped()
    threading.Timer(0.2, holder.send_signal, [signal.SIGKILL]).start()
    q.put("x")
    assert q.get(block=False).body == "x"


def _kill_while_filling(q: penstock.TimeQueue, start: Start, bodies: list[Any], *, spilled: int = 0) -> None:
    """Kill a producer, step by step later, until it dies with all slots reserved, its files written, none published."""

    def produce(say: Any, step: int) -> None:
        q.qsize()
        kill_at(step)
        q.put_many(bodies)

    for step in range(1, 1000):
        assert start(produce, step).join() == -signal.SIGKILL
        if q.stats().filling == len(bodies) and len(list((q.path / "bodies").iterdir())) == spilled:
            return
        penstock.open(q.path).close()  # takes the dead one's place, and with it hands back what it held
    raise AssertionError("it never got there")


def test_a_producer_killed_between_reserve_and_publish_leaves_nothing(queue: Queues, start: Start) -> None:
    q = queue(slots=8, spill_bytes=1000)
    q.put("confirmed")
    # In the middle of the copy, which is done without the lock: the body is there, the records are not yet.
    _kill_while_filling(q, start, [b"x" * 100, b"y" * 2000, b"z"], spilled=1)
    before = q.stats().abandoned
    assert [message.body for message in q.get_many(10)] == ["confirmed"]
    assert q.get_many(10) == []
    stats = q.stats()
    assert (stats.filling, stats.abandoned - before, stats.vacant, stats.spilled_bytes) == (0, 3, 7, 0)
    assert list((q.path / "bodies").iterdir()) == []


@pytest.mark.parametrize("timeout", [None, 5])
def test_a_producer_gets_the_room_of_a_killed_one(queue: Queues, start: Start, timeout: float | None) -> None:
    q = queue(slots=2)
    _kill_while_filling(q, start, [1, 2])
    q.put("x", timeout=timeout)
    assert q.get(block=False).body == "x"


@interpreted
def test_a_stopped_producer_keeps_its_room_until_it_goes_on(queue: Queues, start: Start) -> None:
    q = queue(slots=8)

    def producer(say: Any) -> None:
        q.qsize()
        write = q._client.files.write
        q._client.files.write = lambda unit, data: (os.kill(os.getpid(), signal.SIGSTOP), write(unit, data))
        q.put_many(["a", "b"])
        say("put")

    stopped = start(producer)
    stopped.until_stopped()
    q.put("c")
    assert q.get(block=False).body == "c"  # nobody waits for the stopped one, and nobody writes over its room
    assert q.get_many(5) == [] and q.stats().filling == 2
    stopped.go_on()
    assert stopped.hear() == "put"
    assert [message.body for message in q.get_many(5)] == ["a", "b"]


@interpreted
@pytest.mark.parametrize("spill_bytes", [100, 10_000])
def test_a_put_that_fails_on_the_disk_leaves_nothing(queue: Queues, spill_bytes: int) -> None:
    q = queue(slots=8, spill_bytes=spill_bytes)
    files = q._client.files
    write = files.write
    calls = [0]

    def broken(unit: int, data: Any) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError(28, "No space left on device")
        write(unit, data)

    files.write = broken
    with pytest.raises(OSError, match="No space"):
        q.put_many([b"x" * 500, b"y"])
    assert (q.qsize(), q.stats().filling, q.stats().vacant, q.stats().spilled_bytes) == (0, 0, 8, 0)
    assert list((q.path / "bodies").iterdir()) == []
    q.put_many([b"x" * 500, b"y"])
    assert [message.body for message in q.get_many(5)] == [b"x" * 500, b"y"]


def test_an_interrupted_put_or_get_leaves_the_queue_usable(queue: Queues) -> None:
    q = queue()
    kernel = q._client.kernel

    def interrupted() -> None:
        kernel.take(1)  # an open transaction
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        q._client.turn(interrupted)
    assert q.stats().vacant == q.stats().slots
    q.put("x")
    assert q.get(block=False).body == "x"
