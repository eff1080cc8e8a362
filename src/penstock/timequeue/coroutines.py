"""Owns the calls of TimeQueue for coroutines, which are its methods. The event loop waits for no lock and no disk: what
can be done in one turn is done at once, if the lock is free, and the rest by a thread. How those that wait share one
thread is ``asyncputs.py``'s and ``asyncgets.py``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from penstock.errors import QueueBusy, QueueEmpty, QueueFull
from penstock.interface import MessageOptions
from penstock.message import Message
from penstock.timequeue.arguments import check_most, check_seconds, check_several, delay_us
from penstock.timequeue.asyncgets import AsyncGets, in_thread
from penstock.timequeue.models import way_of
from penstock.timequeue.puts import Draft, drafted, plain

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue


async def aput(
    queue: TimeQueue,
    body: Any,
    *,
    timeout: float | None = None,
    durability: str | None = None,
    model: str | None = None,
    reply_ttl: float | timedelta | None = None,
    **options: Unpack[MessageOptions],
) -> Any:
    """``put`` for coroutines: the event loop never waits, and puts at the same time share a sync.

    Cancelled while it waits, the message may or may not be in the queue.

    >>> import asyncio, penstock
    >>> q = penstock.create(path)
    >>> async def many():
    ...     return await asyncio.gather(*(q.aput(n) for n in range(3)))
    >>> len(asyncio.run(many())), q.qsize()
    (3, 3)
    """
    queue._mine()
    way = None
    if model is not None or reply_ttl is not None:
        way = way_of(model, False, reply_ttl, durability)
        durability = way.durability
    if options or way is not None:
        draft, now_us = Draft(body=body, **options), queue._clock.wall_us()
        extra = queue._specials.of_draft(draft, now_us)
        if way is not None and way.asks:
            asked = way.extra(extra, queue._asks().asker(way))
            return await queue._asks().aput(drafted(draft, body, now_us, asked), way, timeout)
        item = drafted(draft, body, now_us, extra)
    else:
        item = plain(body)
    sync = queue._is_synced(durability)
    if not sync and await queue._async_puts.may_be_alone() and queue._producer.put_at_once(item):
        return item.id(queue._id_prefix)
    try:
        await queue._async_puts.put(item, sync, queue._put_together)
    except QueueFull:
        if timeout is None:
            raise
        seconds = check_seconds("timeout", timeout)
        await asyncio.get_running_loop().run_in_executor(None, queue._put_when_room, [item], seconds, sync)
    return item.id(queue._id_prefix)


async def aput_many(
    queue: TimeQueue,
    bodies: Iterable[Any],
    *,
    timeout: float | None = None,
    durability: str | None = None,
    model: str | None = None,
    reply_ttl: float | timedelta | None = None,
    **options: Unpack[MessageOptions],
) -> Any:
    """``put_many`` for coroutines, in a thread. Cancelled, all of them may be in the queue, or none."""
    check_several("aput_many", bodies, "; aput takes one")
    if model is not None or reply_ttl is not None:
        way = way_of(model, False, reply_ttl, durability)
        items = queue._entries(bodies, options, way)
        return await queue._asks().aput_many(items, way, timeout)
    return await in_thread(queue.put_many, list(bodies), timeout=timeout, durability=durability, **options)


async def aget(
    queue: TimeQueue,
    timeout: float | None = None,
    *,
    block: bool = True,
    lease: float | None = None,
    type: str | Iterable[str] | None = None,
    key: str | Iterable[str] | None = None,
) -> Message:
    """``get`` for coroutines: thousands may wait, one thread watches for all that want the same. First come, first
    served.

    Cancelled, it has taken nothing: a message that was on its way goes to another one, or back to the queue.

    >>> import asyncio, penstock
    >>> q = penstock.create(path)
    >>> async def echo():
    ...     waiting = asyncio.create_task(q.aget(timeout=10))
    ...     await q.aput("hello")
    ...     async with await waiting as message:  # acknowledged at its end; released when it raises
    ...         return message.body
    >>> asyncio.run(echo()), q.stats().acks
    ('hello', 1)
    """
    wait_s = 0.0 if not block else None if timeout is None else check_seconds("timeout", timeout)
    found = await _gets(queue, type, key).get(queue, 1, queue._lease_us(lease), wait_s)
    if not found:
        raise QueueEmpty(queue.name)
    return found[0]


async def aget_many(
    queue: TimeQueue,
    most: int,
    *,
    wait: float = 0.0,
    lease: float | None = None,
    type: str | Iterable[str] | None = None,
    key: str | Iterable[str] | None = None,
) -> list[Message]:
    """``get_many`` for coroutines."""
    most = check_most(most)
    wait_s = check_seconds("wait", wait)
    return await _gets(queue, type, key).get(queue, most, queue._lease_us(lease), wait_s)


def _gets(queue: TimeQueue, type: str | Iterable[str] | None, key: str | Iterable[str] | None) -> AsyncGets:
    if type is None and key is None:
        gets: AsyncGets = queue._async_gets
        return gets
    queue._mine()
    return queue._async_gets.choosing(queue._chosen(type, key))


# The same for coroutines: at once if the lock is free, else by a thread. Begun, it is done, also when cancelled.


async def aack(queue: TimeQueue, message: Message, *, durable: bool = False) -> None:
    await queue.aack_many((message,), durable=durable)


async def aack_many(queue: TimeQueue, messages: Iterable[Message], *, durable: bool = False) -> None:
    client = queue._mine()
    given = messages if messages.__class__ is tuple else list(messages)
    if queue._consumer.has_special(given):  # somebody may have to be told, which takes another queue's lock
        await in_thread(queue.ack_many, given)
    else:
        try:
            queue._consumer.ack_at_once(given)
        except QueueBusy:
            await in_thread(queue.ack_many, given)
    if durable:
        await in_thread(client.syncs.sync_index)


async def areply(queue: TimeQueue, message: Message, body: Any) -> None:
    await in_thread(queue.reply, message, body)


async def arelease(queue: TimeQueue, message: Message, *, delay: float | timedelta | None = None) -> None:
    queue._mine()
    try:
        queue._consumer.release_at_once(message, delay_us(delay))
    except QueueBusy:
        await in_thread(queue.release, message, delay=delay)


async def afail(
    queue: TimeQueue,
    message: Message,
    error: BaseException | str | None = None,
    *,
    delay: float | timedelta | None = None,
) -> None:
    await in_thread(queue.fail, message, error, delay=delay)


async def aextend(queue: TimeQueue, message: Message, seconds: float) -> None:
    queue._mine()
    try:
        queue._consumer.extend_at_once(message, int(check_seconds("seconds", seconds, zero=False) * 1_000_000))
    except QueueBusy:
        await in_thread(queue.extend, message, seconds)
