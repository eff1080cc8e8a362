"""Owns changing the sizes of a queue, or its layout, as an operator asks for it: settles what the dead left, then hands
over to ``store/resizing.py``. Never decides what fits."""

from __future__ import annotations

import contextlib
import os
import time

import msgspec

from penstock.errors import Misuse, QueueInUse
from penstock.store import layout as L
from penstock.store import resizing
from penstock.store.alone import in_use
from penstock.store.options import Options
from penstock.timequeue.arguments import BUSY_S, queue_path
from penstock.timequeue.clients import RETURNED_A_TURN_MAX, Progress
from penstock.timequeue.making import DATA_BYTES_MAX, check_whole
from penstock.timequeue.timequeue import TimeQueue

GRACE_S = 0.5  # who has it open only for a look, such as `penstock top`, is gone by then
PAUSE_S = 0.02


class Sizes(msgspec.Struct, frozen=True):
    """The sizes of a queue now, and whether they, or its layout, were changed."""

    path: str
    slots: int
    data_bytes: int
    kernel_bytes: int
    changed: bool


def resize_queue(
    path: str | os.PathLike[str],
    *,
    slots: int | None = None,
    data_bytes: int | None = None,
    busy_s: float = BUSY_S,
    progress: Progress | None = None,
) -> Sizes:
    """Give a queue that nobody has open other sizes; None leaves one as it is.

    Messages keep id, order, attempts, delivery time, and receivers their claims. Killed at any time, the queue has the
    old sizes or the new ones. ``Misuse`` if something is in what would be cut off, ``QueueInUse`` while others have it
    open.

    >>> import penstock
    >>> with penstock.create(path, slots=10) as q:
    ...     id = q.put("hello")
    >>> resize_queue(path, slots=1000).slots
    1000
    >>> with penstock.open(path) as q:
    ...     q.get(block=False).id == id
    True
    """
    if slots is None and data_bytes is None:
        raise Misuse("slots or data_bytes must be given")
    if slots is not None:
        check_whole("slots", slots, 1, L.SLOTS_MAX)
    if data_bytes is not None:
        check_whole("data_bytes", data_bytes, L.PAGE_BYTES, DATA_BYTES_MAX)
    return _change(path, slots=slots, data_bytes=data_bytes, busy_s=busy_s, progress=progress)


def check_sizes(
    path: str | os.PathLike[str], *, slots: int | None = None, data_bytes: int | None = None, busy_s: float = BUSY_S
) -> None:
    """``Misuse`` if ``resize_queue`` would refuse these sizes, since something is in what would be cut off. While
    others have the queue open that cannot be told, and is not."""
    where = queue_path(path)
    with contextlib.suppress(QueueInUse):
        with TimeQueue(where, busy_s=busy_s) as queue:
            _settle(queue)
            name = queue.message_id
        resizing.check(where, slots=slots, data_bytes=data_bytes, name=name, busy_s=busy_s)


def upgrade_queue(path: str | os.PathLike[str], *, busy_s: float = BUSY_S, progress: Progress | None = None) -> Sizes:
    """Bring a queue that nobody has open, and that an older version made, to the layout of this one. Nothing is changed
    if it has that already.

    >>> import penstock
    >>> penstock.create(path).close()
    >>> upgrade_queue(path).changed
    False
    """
    return _change(path, slots=None, data_bytes=None, busy_s=busy_s, progress=progress)


def _change(
    path: str | os.PathLike[str],
    *,
    slots: int | None,
    data_bytes: int | None,
    busy_s: float,
    progress: Progress | None,
) -> Sizes:
    where = queue_path(path)
    end_s = time.monotonic() + GRACE_S
    while True:
        try:
            with TimeQueue(where, busy_s=busy_s, progress=progress) as queue:
                _settle(queue)
                before, name = queue._mine().options, queue.message_id
            new = resizing.change(
                where, slots=slots, data_bytes=data_bytes, name=name, busy_s=busy_s, progress=progress
            )
            return _sizes(str(where), new or before, changed=new is not None)
        except QueueInUse:
            if time.monotonic() >= end_s:
                raise
            time.sleep(PAUSE_S)


def _settle(queue: TimeQueue) -> None:
    """Refuse if others are here; give back what the dead held, and the room that waits for a sync of the index."""
    client = queue._mine()
    others = [each["pid"] for each in client.living() if each["client"] != client.index]
    if others:
        raise in_use(queue.name, others)
    while client.turn(client.return_from_dead) == RETURNED_A_TURN_MAX:
        pass
    client.syncs.sync_index()
    client.retire_kept()


def _sizes(path: str, options: Options, *, changed: bool) -> Sizes:
    return Sizes(path, options.slots, options.data_bytes, options.kernel_bytes, changed)
