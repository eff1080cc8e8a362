"""Owns making and opening queues, with their options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from penstock.store import options
from penstock.store.backoff import Backoff
from penstock.store.files import Clock
from penstock.store.regions import REGIONS
from penstock.timequeue.arguments import BUSY_S
from penstock.timequeue.clients import Progress
from penstock.timequeue.making import (
    DATA_BYTES,
    DEDUP_WINDOW_S,
    HISTORY_AGE_S,
    INDEX_SYNC_MS,
    LEASE_S,
    SLOTS,
    SPILL_BYTES,
    make,
)
from penstock.timequeue.timequeue import TimeQueue


def create(
    path: str | os.PathLike[str],
    *,
    slots: int = SLOTS,
    data_bytes: int = DATA_BYTES,
    spill_bytes: int = SPILL_BYTES,
    lease: float = LEASE_S,
    durability: str = options.DURABILITY,
    notify: Literal["futex", "file"] = "futex",
    index_sync_ms: int = INDEX_SYNC_MS,
    max_attempts: int | None = None,
    backoff: float | Backoff | None = None,
    dead_letter: str | os.PathLike[str] = options.BESIDE,
    expired: Literal["drop", "dead_letter"] = "drop",
    dedup_window: float = DEDUP_WINDOW_S,
    dedup_entries: int | None = None,
    history_bytes: int = 0,
    history_age: float = HISTORY_AGE_S,
    exclusive_keys: bool = False,
    data_dirs: Sequence[str | os.PathLike[str]] = (),
    kernel_dir: str | os.PathLike[str] | None = None,
    mode: int | None = None,
    busy_s: float = BUSY_S,
    clock: Clock | None = None,
    progress: Callable[[int], None] | None = None,
) -> TimeQueue:
    """Make a queue and open it. Its sizes are its bounds: a full queue rejects, it never grows.

    ``slots`` is how many messages it holds at most, ``data_bytes`` how much room their records have together. With
    ``data_dirs`` the data is spread over a file in each of these directories, as on disks of their own. ``notify`` is
    how sleepers are woken: a shared futex word, or changes of the notification file, which inotify reports.
    ``durability`` is what a put's return means: "commit", the message is on disk; "relaxed", it will be soon. What was
    acknowledged is on disk after the next index sync, every ``index_sync_ms``; 0 leaves that to ``sync_index()``.
    With ``exclusive_keys`` one message of a key is delivered at a time, in order: the next when it is acknowledged.

    A message is delivered at most ``max_attempts`` times (None: any number of times), with ``backoff`` between them,
    seconds or a ``penstock.Backoff``. After that it goes to ``dead_letter``: "beside", the queue of this name with
    ``.dead`` behind it, which is made when it is needed; the path of another; or "delete". What has ``expired`` is
    dropped, or goes there too. A ``dedup_id`` is remembered for ``dedup_window`` seconds, up to ``dedup_entries`` of
    them (None: about as many as there are slots; when about half of them are in use, some ids find no place).

    With ``history_bytes`` what became of messages is kept in files of so many bytes together, for ``history_age``
    seconds: see ``penstock.outcomes``, and ``penstock.spark.history``.

    ``mode`` is who may use the queue: the rights of all its files, such as 0o600 or 0o660, also of those that are made
    later, whatever the umask of who makes them. None: as the umask has it now.
    """
    where = make(
        path,
        slots=slots,
        data_bytes=data_bytes,
        spill_bytes=spill_bytes,
        lease=lease,
        durability=durability,
        notify=notify,
        index_sync_ms=index_sync_ms,
        max_attempts=max_attempts,
        backoff=backoff,
        dead_letter=dead_letter,
        expired=expired,
        dedup_window=dedup_window,
        dedup_entries=dedup_entries,
        history_bytes=history_bytes,
        history_age=history_age,
        exclusive_keys=exclusive_keys,
        data_dirs=data_dirs,
        kernel_dir=kernel_dir,
        mode=mode,
        progress=progress,
    )
    return TimeQueue(where, busy_s=busy_s, clock=clock)


def open_queue(
    path: str | os.PathLike[str],
    *,
    busy_s: float = BUSY_S,
    clock: Clock | None = None,
    progress: Progress | None = None,
    map_bytes: int | None = None,
    map_regions: int = REGIONS,
) -> TimeQueue:
    """Open a queue that exists. ``busy_s`` is how long a call may wait for the queue's lock before ``QueueBusy``.

    With ``map_bytes`` no more than that of its data is mapped at once, in ``map_regions`` regions, instead of all of
    it: for queues that are larger than the address space or a limit of memory allows. What goes through all of the
    data, as a restore does, maps it for as long as that takes.

    The first to open it after a power loss restores it; ``progress(done_bytes, total_bytes)`` is told on the way, and
    what was found wrong is logged.
    """
    return TimeQueue(path, busy_s=busy_s, clock=clock, progress=progress, map_bytes=map_bytes, map_regions=map_regions)
