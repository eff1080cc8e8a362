"""What coroutines may expect of any kind of queue: the calls with an a do what those without it do."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import penstock
from penstock import LeaseLost, Misuse, QueueEmpty, QueueFull
from tests.conftest import Queues
from tests.contract.test_queue_contract import KINDS

LONG_S = 20.0


@pytest.fixture(params=KINDS)
def q(request: pytest.FixtureRequest, queue: Queues) -> penstock.TimeQueue:
    return KINDS[request.param](queue).make()


def test_what_goes_in_comes_out_in_order(q: penstock.TimeQueue) -> None:
    async def run() -> None:
        first = await q.aput("a", priority=3, key="k", headers={"x": "y"})
        ids = await q.aput_many(["b", penstock.Draft(body="c", priority=9)])
        found = [await q.aget() for _ in range(3)]
        assert [message.body for message in found] == ["c", "a", "b"]
        assert [message.id for message in found] == [ids[1], first, ids[0]]
        assert (found[1].key, found[1].headers) == ("k", {"x": "y"})
        await q.aack_many(found)

    asyncio.run(run())
    assert q.stats().acks == 3


def test_an_empty_queue_is_waited_for_and_then_is_empty(q: penstock.TimeQueue) -> None:
    async def run() -> float:
        with pytest.raises(QueueEmpty):
            await q.aget(block=False)
        with pytest.raises(QueueEmpty):
            await q.aget(timeout=0)
        assert await q.aget_many(5) == []
        before = time.monotonic()
        with pytest.raises(QueueEmpty):
            await q.aget(timeout=0.05)
        assert await q.aget_many(5, wait=0.05) == []
        return time.monotonic() - before

    assert 0.1 <= asyncio.run(run()) < LONG_S


def test_a_coroutine_that_waits_is_woken_when_a_message_is_due(q: penstock.TimeQueue) -> None:
    async def run() -> None:
        waiting = asyncio.create_task(q.aget_many(5, wait=LONG_S))
        await asyncio.sleep(0.01)
        await q.aput("a", delay=0.05)
        (message,) = await waiting
        assert message.deliver_us <= time.time_ns() // 1000
        assert message.last_attempt_us >= message.deliver_us
        await message.aack(durable=True)

    asyncio.run(run())
    assert q.stats().acks == 1


def test_coroutines_with_different_leases_and_numbers_share_a_line(q: penstock.TimeQueue) -> None:
    async def run() -> list[Any]:
        line = [
            asyncio.create_task(q.aget_many(2, wait=LONG_S, lease=100)),
            asyncio.create_task(q.aget_many(2, wait=LONG_S, lease=100)),
            asyncio.create_task(q.aget_many(3, wait=LONG_S, lease=200)),
        ]
        await asyncio.sleep(0.02)
        q.put_many(range(6))
        return await asyncio.gather(*line)

    found = asyncio.run(run())
    assert [[message.body for message in part] for part in found] == [[0, 1], [2, 3], [4, 5]]
    assert [round((part[0].lease_us - part[0].last_attempt_us) / 1e6) for part in found] == [100, 100, 200]


def test_a_block_acknowledges_at_its_end_and_releases_when_it_raises(q: penstock.TimeQueue) -> None:
    async def run() -> None:
        await q.aput("a")
        with pytest.raises(KeyError):
            async with await q.aget() as message:
                raise KeyError
        assert q.qsize() == 1
        async with await q.aget() as message:
            await message.aextend(100)
        async with message:
            pass  # it is acknowledged already
        assert (message.attempts, q.stats().acks) == (2, 1)

    asyncio.run(run())


def test_a_message_that_is_no_longer_ours_says_so(q: penstock.TimeQueue) -> None:
    async def run() -> None:
        await q.aput("a")
        message = await q.aget()
        await message.arelease(delay=100)
        for late in (message.aack(), message.arelease(), message.aextend(1)):
            with pytest.raises(LeaseLost):
                await late

    asyncio.run(run())
    assert q.qsize() == 1


def test_a_full_queue_refuses_coroutines_too(queue: Queues) -> None:
    q = queue(slots=2)

    async def run() -> None:
        await q.aput_many(["a", "b"])
        for late in (q.aput("c"), q.aput_many(["c"]), q.aput("c", timeout=0.01)):
            with pytest.raises(QueueFull):
                await late

    asyncio.run(run())
    assert q.qsize() == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.aget(timeout=-1),
        lambda q: q.aget(lease=0),
        lambda q: q.aget_many(0),
        lambda q: q.aget_many(1, wait=-1),
        lambda q: q.aput_many(b"abc"),
        lambda q: q.aput(b"a", priority=99),
        lambda q: q.aack("no message"),
        lambda q: q.arelease("no message"),
    ],
)
def test_what_cannot_work_is_refused(q: penstock.TimeQueue, call: Any) -> None:
    async def run() -> None:
        with pytest.raises(Misuse):
            await call(q)

    asyncio.run(run())
