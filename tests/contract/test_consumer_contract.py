"""What a consumer promises of any kind of queue: only asking for the next acknowledges; the rest goes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Misuse
from tests.conftest import Queues, SimulatedClock
from tests.contract.test_queue_contract import KINDS

LONG_S = 20.0


def counts(q: penstock.TimeQueue) -> tuple[int, int, int]:
    stats = q.stats()
    return stats.waiting, stats.pending, stats.acks


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(params=KINDS)
def q(request: pytest.FixtureRequest, queue: Queues) -> penstock.TimeQueue:
    made = KINDS[request.param](queue).make(slots=1000, data_bytes=1 << 20)
    made.put_many(range(10))
    return made


def test_messages_come_in_order_and_all_are_acknowledged(q: penstock.TimeQueue) -> None:
    with q.consumer(prefetch=3, wait=0) as consumer:
        assert [message.body for message in consumer] == list(range(10))
        assert counts(q) == (0, 0, 10), "also before the block ends"
    assert consumer.lost == 0


def test_coroutines_get_them_in_order_and_all_are_acknowledged(q: penstock.TimeQueue) -> None:
    async def run() -> list[int]:
        async with q.consumer(prefetch=3, wait=0) as consumer:
            return [message.body async for message in consumer]

    assert asyncio.run(run()) == list(range(10))
    assert counts(q) == (0, 0, 10)


def consume(q: penstock.TimeQueue, body: Callable[[penstock.Message], bool], *, prefetch: int = 4) -> None:
    """Until the body says True, which leaves the loop by a break."""
    with q.consumer(prefetch=prefetch, wait=0) as consumer:
        for message in consumer:
            if body(message):
                break


def aconsume(q: penstock.TimeQueue, body: Callable[[penstock.Message], bool], *, prefetch: int = 4) -> None:
    async def run() -> None:
        async with q.consumer(prefetch=prefetch, wait=0) as consumer:
            async for message in consumer:
                if body(message):
                    break

    asyncio.run(run())


both = pytest.mark.parametrize("way", [consume, aconsume])


@both
def test_an_exception_gives_back_what_is_in_hand_and_what_was_not_started(q: penstock.TimeQueue, way: Any) -> None:
    def body(message: penstock.Message) -> bool:
        if message.body == 5:
            raise KeyError("five")
        return False

    with pytest.raises(KeyError):
        way(q, body)
    assert counts(q) == (5, 0, 5)
    assert [message.body for message in q.browse()] == [5, 6, 7, 8, 9]


@both
def test_a_break_gives_the_message_in_hand_back(q: penstock.TimeQueue, way: Any) -> None:
    way(q, lambda message: message.body == 5)
    assert [message.body for message in q.browse()] == [5, 6, 7, 8, 9]
    assert counts(q) == (5, 0, 5)


@both
def test_a_break_after_an_ack_keeps_the_ack(q: penstock.TimeQueue, way: Any) -> None:
    def body(message: penstock.Message) -> bool:
        if message.body == 5:
            message.ack()
        return message.body == 5

    way(q, body)
    assert counts(q) == (4, 0, 6)


@both
def test_what_the_body_answers_itself_is_left_alone(q: penstock.TimeQueue, way: Any) -> None:
    def body(message: penstock.Message) -> bool:
        if message.body % 2:
            message.release(delay=1000)
        elif message.body % 4:
            message.ack()
        return False

    way(q, body)
    assert counts(q) == (5, 0, 5)


def test_an_error_that_is_caught_outside_the_loop_does_not_acknowledge(q: penstock.TimeQueue) -> None:
    with q.consumer(prefetch=10, wait=0) as consumer:
        try:
            for message in consumer:
                if message.body == 2:
                    raise KeyError
        except KeyError:
            pass
        assert [message.body for message in consumer] == [*range(3, 10), 2]
    assert counts(q) == (0, 0, 10)


def test_a_loop_outside_the_block_is_refused(q: penstock.TimeQueue) -> None:
    with pytest.raises(Misuse):
        iter(q.consumer())
    with pytest.raises(Misuse):
        q.consumer().__aiter__()
    with q.consumer() as consumer:
        pass
    with pytest.raises(Misuse):
        iter(consumer)
    with pytest.raises(Misuse), consumer:
        pass


@pytest.mark.parametrize("prefetch", [0, -1, 1.5, True, 10_001, "3"])
def test_a_senseless_prefetch_is_refused(q: penstock.TimeQueue, prefetch: Any) -> None:
    with pytest.raises(Misuse):
        q.consumer(prefetch)


def test_no_more_than_prefetch_are_held(q: penstock.TimeQueue) -> None:
    with q.consumer(prefetch=4, wait=0) as consumer:
        for message in consumer:
            assert q.stats().pending <= 4 + 4, "those not started, and those done whose acknowledgement is gathered"
            message.ack()
            assert q.stats().pending <= 3


def test_acknowledgements_are_sent_while_the_body_works_on(q: penstock.TimeQueue) -> None:
    with q.consumer(prefetch=10, wait=0) as consumer:
        for message in consumer:
            if message.body == 7:
                until(lambda: q.stats().acks == 7)
            if message.body == 8:
                assert q.stats().acks <= 8
    assert counts(q) == (0, 0, 10)


def test_acknowledgements_are_sent_before_a_loop_waits(q: penstock.TimeQueue) -> None:
    consumer = q.consumer(prefetch=10)

    def work() -> None:
        with consumer:
            for _ in consumer:
                pass

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: counts(q) == (0, 0, 10))
    consumer.stop()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_threads_share_a_consumer(q: penstock.TimeQueue) -> None:
    q.put_many(range(10, 500))
    seen: list[int] = []
    with q.consumer(prefetch=20, wait=0.05) as consumer:

        def work() -> None:
            seen.extend(message.body for message in consumer)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
    assert sorted(seen) == list(range(500))
    assert counts(q) == (0, 0, 500)


def test_tasks_share_a_consumer_and_one_that_is_cancelled_loses_nothing(q: penstock.TimeQueue) -> None:
    q.put_many(range(10, 200))
    seen: list[int] = []

    async def work(consumer: Any) -> None:
        async for message in consumer:
            await asyncio.sleep(0.0005)
            seen.append(message.body)

    async def run() -> None:
        async with q.consumer(prefetch=20, wait=0.2) as consumer:
            tasks = [asyncio.create_task(work(consumer)) for _ in range(6)]
            await asyncio.sleep(0.01)
            tasks[0].cancel()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert set(seen) == set(range(200))
    assert counts(q)[:2] == (0, 0)


def test_an_async_loop_cancelled_after_any_number_of_steps_loses_nothing(queue: Queues) -> None:
    q = queue()

    async def work() -> None:
        async with q.consumer(prefetch=2, wait=0.01) as consumer:
            async for _ in consumer:
                await asyncio.sleep(0)

    async def run(steps: int) -> bool:
        task = asyncio.create_task(work())
        for _ in range(steps):
            if task.done():
                return True
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False

    for steps in range(40):
        q.put_many(["a", "b", "c"])
        before = q.stats().acks
        asyncio.run(run(steps))
        until(lambda: q.stats().pending == 0)
        assert q.qsize() + q.stats().acks - before == 3
        q.purge()


def test_stop_lets_a_loop_that_waits_end(queue: Queues) -> None:
    q = queue()
    consumer = q.consumer()
    threading.Timer(0.05, consumer.stop).start()
    with consumer:
        assert list(consumer) == []


def test_a_closed_queue_ends_the_loop_with_an_error_and_the_block_ends(queue: Queues) -> None:
    q = queue()
    q.put(b"a")
    with pytest.raises(penstock.QueueClosed), q.consumer(prefetch=1) as consumer:
        for _ in consumer:
            q.close()


# ---------------------------------------------------------------- leases, in simulated time


@pytest.fixture
def timed(queue: Queues, clock: SimulatedClock) -> penstock.TimeQueue:
    made = queue()
    made.put_many(range(5))
    return made


def consumer_in(q: penstock.TimeQueue, clock: SimulatedClock, lease_s: float) -> penstock.timequeue.QueueConsumer:
    """Its background is called by the test."""
    made = penstock.timequeue.QueueConsumer(
        q, prefetch=3, wait_s=0, lease_s=lease_s, clock=lambda: clock.boot_us() / 1e6
    )
    made._entered = True
    return made


def test_leases_of_what_is_held_are_extended(timed: penstock.TimeQueue, queue: Queues, clock: SimulatedClock) -> None:
    other = queue.open(timed)
    consumer = consumer_in(timed, clock, 30)
    loop = iter(consumer)
    assert next(loop).body == 0
    assert [message.body for message in other.get_many(5, lease=1000)] == [3, 4]
    for _ in range(20):
        clock.advance(10)
        consumer.keep()
        assert other.get_many(1) == []
    assert timed.stats().expired == 0
    assert next(loop).body == 1
    consumer.close()
    assert timed.stats().acks == 1


def test_a_lost_lease_is_said_and_the_others_go_on(
    timed: penstock.TimeQueue, queue: Queues, clock: SimulatedClock, caplog: pytest.LogCaptureFixture
) -> None:
    other = queue.open(timed)
    consumer = consumer_in(timed, clock, 30)
    loop = iter(consumer)
    first = next(loop)
    clock.advance(31)  # the background did not come by: the process was stopped, say
    stolen = other.get_many(3)
    assert [message.body for message in stolen] == [0, 1, 2]
    consumer.keep()
    assert first.state == "lost"
    assert [message.body for message in loop] == [3, 4], "what was not started and is lost is not handed out"
    consumer.close()
    assert consumer.lost == 3
    assert caplog.text.count("delivered again") == 3
    other.ack_many(stolen)
    assert timed.stats().acks == 5


def test_a_lease_that_ended_before_the_acknowledgement_is_said(
    timed: penstock.TimeQueue, queue: Queues, clock: SimulatedClock
) -> None:
    other = queue.open(timed)
    consumer = consumer_in(timed, clock, 30)
    loop = iter(consumer)
    first, _second = next(loop), next(loop)
    clock.advance(31)
    stolen = other.get()
    assert stolen.number == first.number
    consumer.flush()
    assert (first.state, consumer.lost) == ("lost", 1)
    consumer.close()
    stolen.ack()
