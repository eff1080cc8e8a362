"""Consumers that are forked, cancelled or closed: nothing is lost, forged or held for ever; unbegun is no attempt."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from tests.conftest import Queues

LONG_S = 20.0


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` says in the child of a fork."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, work().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    said = b""
    while part := os.read(reading, 4096):
        said += part
    os.close(reading)
    os.waitpid(pid, 0)
    return said.decode()


def test_the_child_of_a_fork_is_handed_nothing_that_its_parent_holds(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    q.put_many(range(10))
    with q.consumer(prefetch=5, wait=0) as consumer:
        loop = iter(consumer)
        assert next(loop).body == 0

        def go_on() -> str:
            more = [message.body for message in loop]
            with q.consumer(prefetch=2, wait=0) as own:
                mine = next(iter(own)).body
            q.close()
            return f"{more} {mine} {consumer.lost}"

        assert in_child(go_on) == "[] 5 0"
        assert [message.body for message in loop] == [*range(1, 10)]
    assert q.stats().acks == 10
    assert consumer.lost == 0


def test_the_child_of_a_fork_does_not_wait_for_threads_that_are_not_there(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    q.put_many(range(10))
    with q.consumer(prefetch=5, wait=0) as consumer:
        assert next(iter(consumer)).body == 0
        with consumer._answering:  # as the background has it while it extends

            def leave() -> str:
                watchdog = threading.Timer(LONG_S, os._exit, [1])
                watchdog.start()
                consumer.flush()
                consumer.close()
                watchdog.cancel()
                return "left"

            assert in_child(leave) == "left"


def test_what_a_loop_takes_while_its_block_ends_goes_back(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    for _ in range(10):
        with q.consumer(prefetch=5) as consumer:
            loop = threading.Thread(target=list, args=(consumer,))
            loop.start()
            time.sleep(0.02)  # it waits for messages
        q.put(b"a")
        loop.join()
        message = q.get(timeout=1)
        assert message.attempts == 1
        message.ack()


def test_what_was_never_handed_out_goes_back_without_an_attempt(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    q.put_many(range(6))
    for _ in range(3):
        with q.consumer(prefetch=6, wait=0) as consumer:
            assert next(iter(consumer)).body == 0
    found = q.get_many(10)
    assert [(message.body, message.attempts) for message in found] == [(0, 4), *((n, 1) for n in range(1, 6))]


def test_what_was_on_its_way_to_a_cancelled_coroutine_goes_back_without_an_attempt(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)

    async def cancelled_with_its_message_on_the_way() -> None:
        waiting = asyncio.create_task(q.aget())
        await asyncio.sleep(0.001)
        q.put(b"a")
        deadline = time.monotonic() + LONG_S
        while not q.stats().pending:  # the loop is not let go of: the watcher takes it, and its answer has to wait
            assert time.monotonic() < deadline
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled_with_its_message_on_the_way())
    assert q.get(timeout=LONG_S).attempts == 1


def test_a_handle_that_was_given_back_unbegun_cannot_answer_the_next_delivery(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    q.put(b"a")
    before = q.get()
    q.unget([before])
    after = q.get()
    assert after.attempts == 1
    for answer in (before.ack, before.release, lambda: before.extend(10)):
        with pytest.raises(penstock.LeaseLost):
            answer()
    q.unget([before])  # not ours: left out
    assert q.stats().pending == 1
    after.ack()
    assert q.stats().acks == 1


def test_a_handle_that_was_worked_on_stays_dead_whatever_is_given_back_after_it(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    q.put(b"a")
    worked_on = q.get()
    worked_on.release()
    for _ in range(3):
        q.unget(q.get_many(1))
    held = q.get()
    assert held.attempts == 2
    with pytest.raises(penstock.LeaseLost):
        worked_on.ack()
    held.ack()


def test_a_cancelled_block_of_a_consumer_has_acknowledged_what_is_done_when_the_queue_is_closed(queue: Queues) -> None:
    q = queue(slots=100, data_bytes=1 << 16)
    q.put_many(range(5))

    async def work() -> None:
        async with q.consumer(prefetch=5, wait=0) as consumer:
            async for message in consumer:
                if message.body == 3:
                    asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.2)  # what closes has to wait
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    return

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work())
        q.close()

    asyncio.run(run())
    with penstock.open(q.path) as other:
        assert (other.stats().acks, other.qsize()) == (3, 2)
