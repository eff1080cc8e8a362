"""Owns the puts of files, which are methods of TimeQueue: what is read from a file or a pipe becomes a message. How the
file is read is ``sources.py``'s, how the message is stored ``producer.py``'s.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

from penstock.interface import MessageOptions
from penstock.store.bodyfiles import PIECE_BYTES
from penstock.timequeue.models import way_of
from penstock.timequeue.puts import Draft, Entry, Extra, drafted, file_entry
from penstock.timequeue.sources import Progress, Source

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue

Readable = str | os.PathLike[str] | BinaryIO


def put_file(
    queue: TimeQueue,
    source: Readable,
    *,
    timeout: float | None = None,
    durability: str | None = None,
    progress: Progress | None = None,
    model: str | None = None,
    wait: bool = True,
    reply_ttl: float | timedelta | None = None,
    **options: Unpack[MessageOptions],
) -> Any:
    """``put`` of the bytes of a file: of a path, or of what can be read from an open binary file. Its id.

    It is copied piece by piece and never in memory as a whole; ``message.open()`` reads it likewise. It may be a
    pipe. ``SourceChanged`` if the file is changed meanwhile. ``progress`` is told the bytes that were read and,
    where that is known, how many there are. ``model``, ``wait`` and ``reply_ttl`` as in ``put``.

    >>> import io, penstock
    >>> q = penstock.create(path, data_bytes=8 << 20)
    >>> id = q.put_file(io.BytesIO(bytes(3 << 20)), type="image")
    >>> with q.get(timeout=1) as message, message.open() as file:
    ...     message.body_bytes, len(file.read(1000)), file.seek(-5, 2), file.read()
    (3145728, 1000, 3145723, b'\\x00\\x00\\x00\\x00\\x00')
    """
    way = way_of(model, wait, reply_ttl, durability)
    asks = queue._asks()
    draft, now_us = Draft(body=None, **options), queue._clock.wall_us()
    extra = way.extra(queue._specials.of_draft(draft, now_us), asks.asker(way))
    store = functools.partial(_put_source, queue, source, draft, extra, progress)
    if not wait:
        later = functools.partial(store, lambda item: queue._put([item], timeout, way.durability))
        return asks.start(way, [], None, store=lambda: [later()])
    deadline: list[float | None] = []
    item = store(lambda item: deadline.append(asks.store(way, [item], timeout)))
    return asks.answer(way, item, deadline[0])


def _put_source(
    queue: TimeQueue,
    source: Readable,
    draft: Draft,
    extra: Extra | None,
    progress: Progress | None,
    put: Callable[[Entry], object],
) -> Entry:
    # What is kept in memory is bounded, whatever spill_bytes is.
    kept_bytes = min(queue._mine().options.spill_bytes, PIECE_BYTES)
    now_us = queue._clock.wall_us()
    with Source(source, kept_bytes=kept_bytes, progress=progress) as opened:
        if opened.is_whole:
            opened.require_unchanged()
            item = drafted(draft, opened.head, now_us, extra)
        else:
            item = file_entry(draft, opened, now_us, extra)
        put(item)
    return item


async def aput_file(queue: TimeQueue, source: Readable, **options: Any) -> Any:
    """``put_file`` for coroutines, in a thread of the event loop's executor."""
    call = functools.partial(contextvars.copy_context().run, queue.put_file, source, **options)
    return await asyncio.get_running_loop().run_in_executor(None, call)
