"""Owns making and opening queues, with their options."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from penstock.errors import Misuse
from penstock.store import layout as L
from penstock.store import options
from penstock.store.blank import initialise
from penstock.store.directory import create_directory
from penstock.store.files import Clock
from penstock.store.options import Options
from penstock.store.words import Words
from penstock.timequeue.arguments import BUSY_S, check_durability, check_seconds, queue_path
from penstock.timequeue.clients import Progress
from penstock.timequeue.timequeue import TimeQueue

SLOTS = 65_536
DATA_BYTES = 64 << 20
SPILL_BYTES = options.SPILL_BYTES
LEASE_S = options.LEASE_S
INDEX_SYNC_MS = options.INDEX_SYNC_MS


def check_whole(name: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misuse(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


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
    data_dirs: Sequence[str | os.PathLike[str]] = (),
    kernel_dir: str | os.PathLike[str] | None = None,
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
    """
    if isinstance(data_dirs, str | bytes):
        raise Misuse("data_dirs is a list of directories")
    files = max(len(data_dirs), 1)
    check_whole("slots", slots, 1, L.SLOTS_MAX)
    check_whole("spill_bytes", spill_bytes, 0, (L.UNITS_MAX - 1024) * L.UNIT_BYTES)
    check_whole("data_bytes", data_bytes, files * L.PAGE_BYTES, 1 << 46)
    check_whole("index_sync_ms", index_sync_ms, 0, 86_400_000)
    lease = check_seconds("lease", lease, zero=False)
    check_durability(durability)
    if notify not in ("futex", "file"):
        raise Misuse(f"notify must be futex or file, not {notify!r}")
    if files > L.FILES_MAX:
        raise Misuse(f"at most {L.FILES_MAX} data_dirs are possible, not {files}")
    where = queue_path(path)
    share = -(-data_bytes // files // L.PAGE_BYTES) * L.PAGE_BYTES
    file_bytes = [share] * files
    identity = uuid.uuid4()
    header = L.regions(slots + 1 + files)
    fixed = Options(
        penstock=L.FORMAT,
        uuid=str(identity),
        secret=secrets.token_hex(8),
        slots=slots,
        data_bytes=share * files,
        spill_bytes=spill_bytes,
        lease_s=lease,
        durability=durability,
        notify=notify,
        index_sync_ms=index_sync_ms,
        kernel_bytes=header[L.H_KERNEL_BYTES],
        kernel_dir=os.fspath(kernel_dir) if kernel_dir is not None else None,
    )

    header[L.H_UUID], header[L.H_UUID + 1] = fixed.uuid_words

    def fill(mapping: Any, storage: tuple[int, ...]) -> None:
        words = Words(mapping, str(where))
        initialise(words, header, [size // L.UNIT_BYTES for size in file_bytes])
        for i, word in enumerate(storage):
            words.raw(L.H_BOOT_ID + i, word)
        words.close()

    create_directory(
        where, fixed, fill, data_dirs=[Path(d) for d in data_dirs], file_bytes=file_bytes, progress=progress
    )
    return TimeQueue(where, busy_s=busy_s, clock=clock)


def open_queue(
    path: str | os.PathLike[str],
    *,
    busy_s: float = BUSY_S,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> TimeQueue:
    """Open a queue that exists. ``busy_s`` is how long a call may wait for the queue's lock before ``QueueBusy``.

    The first to open it after a power loss restores it; ``progress(done_bytes, total_bytes)`` is told on the way, and
    what was found wrong is logged.
    """
    return TimeQueue(path, busy_s=busy_s, clock=clock, progress=progress)
