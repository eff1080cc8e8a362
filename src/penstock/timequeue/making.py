"""Owns making a queue's directory: its options checked, its files of their sizes. Never opens a queue."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from penstock.errors import Misuse
from penstock.store import layout as L
from penstock.store import options
from penstock.store.backoff import Backoff, checked
from penstock.store.blank import initialise
from penstock.store.directory import create_directory
from penstock.store.options import Options
from penstock.store.words import Words
from penstock.timequeue.arguments import check_durability, check_seconds, queue_path
from penstock.timequeue.history import check_age, check_bytes
from penstock.timequeue.specials import check_attempts, check_window

SLOTS = 65_536
DATA_BYTES = 64 << 20
DATA_BYTES_MAX = 1 << 46
SPILL_BYTES = options.SPILL_BYTES
LEASE_S = options.LEASE_S
INDEX_SYNC_MS = options.INDEX_SYNC_MS
DEDUP_WINDOW_S = options.DEDUP_WINDOW_S
HISTORY_AGE_S = options.HISTORY_AGE_S


def check_whole(name: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misuse(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def check_mode(mode: int | None) -> None:
    """The rights of a queue's files: their owner must be able to use them, and nobody can execute them."""
    if mode is None:
        return
    if mode.__class__ is not int or mode & ~0o666 or mode & 0o600 != 0o600:
        raise Misuse(f"mode must be the rights of files, such as 0o600 or 0o660, not {mode!r}")


def _dead_letter_of(given: str | os.PathLike[str]) -> str:
    """Where dead letters go, as ``queue.json`` has it: a path is there as an absolute one."""
    if given in (options.BESIDE, options.DELETE):
        return str(given)
    return str(queue_path(given))


def refuse_itself(dead_letter: str, path: Path) -> None:
    """No queue is its own dead-letter queue."""
    if dead_letter not in (options.BESIDE, options.DELETE) and os.path.realpath(dead_letter) == os.path.realpath(path):
        raise Misuse(f"{path}: a queue cannot be its own dead-letter queue; {options.DELETE!r} deletes dead letters")


def _expired_of(given: str) -> str:
    if given not in ("drop", "dead_letter"):
        raise Misuse(f"expired must be drop or dead_letter, not {given!r}")
    return given


def _attempts_of(given: int | None) -> int | None:
    if given is not None:
        check_attempts(given)
    return given


# Options that say nothing about the files of a queue: what they are called in queue.json, and what they may be.
HABITS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "spill_bytes": (
        "spill_bytes",
        lambda given: check_whole("spill_bytes", given, 0, (L.UNITS_MAX - 1024) * L.UNIT_BYTES),
    ),
    "lease": ("lease_s", lambda given: check_seconds("lease", given, zero=False)),
    "durability": ("durability", check_durability),
    "index_sync_ms": ("index_sync_ms", lambda given: check_whole("index_sync_ms", given, 0, 86_400_000)),
    "max_attempts": ("max_attempts", _attempts_of),
    "backoff": ("backoff", lambda given: None if given is None else checked(given)),
    "dead_letter": ("dead_letter", _dead_letter_of),
    "expired": ("expired", _expired_of),
    "dedup_window": ("dedup_window_s", check_window),
    "history_bytes": ("history_bytes", check_bytes),
    "history_age": ("history_age_s", check_age),
}


def habits(given: Mapping[str, Any]) -> dict[str, Any]:
    """Habits as they are given to ``create``, checked, as ``queue.json`` has them.

    >>> habits({"lease": 5, "backoff": None})
    {'lease_s': 5, 'backoff': None}
    """
    return {HABITS[name][0]: HABITS[name][1](value) for name, value in given.items()}


def make(
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
    history_bytes: int = 0,
    history_age: float = HISTORY_AGE_S,
    dedup_entries: int | None = None,
    exclusive_keys: bool = False,
    data_dirs: Sequence[str | os.PathLike[str]] = (),
    kernel_dir: str | os.PathLike[str] | None = None,
    mode: int | None = None,
    progress: Callable[[int], None] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Make a queue; where it is. The options are those of ``create``; ``beside`` are files of who looks after it, which
    are in its directory from the start."""
    if isinstance(data_dirs, str | bytes):
        raise Misuse("data_dirs is a list of directories")
    files = max(len(data_dirs), 1)
    check_whole("slots", slots, 1, L.SLOTS_MAX)
    check_whole("data_bytes", data_bytes, files * L.PAGE_BYTES, DATA_BYTES_MAX)
    kept = habits(
        {
            "spill_bytes": spill_bytes,
            "lease": lease,
            "durability": durability,
            "index_sync_ms": index_sync_ms,
            "max_attempts": max_attempts,
            "backoff": backoff,
            "dead_letter": dead_letter,
            "expired": expired,
            "dedup_window": dedup_window,
            "history_bytes": history_bytes,
            "history_age": history_age,
        }
    )
    refuse_itself(kept["dead_letter"], queue_path(path))
    if dedup_entries is None:
        dedup_entries = L.remembered_entries(slots)
    elif dedup_entries != 0:
        check_whole("dedup_entries", dedup_entries, 1, L.REMEMBERED_MAX)
        dedup_entries = max(L.REMEMBERED_BUCKET, 1 << (dedup_entries - 1).bit_length())
    if notify not in ("futex", "file"):
        raise Misuse(f"notify must be futex or file, not {notify!r}")
    check_mode(mode)
    if files > L.FILES_MAX:
        raise Misuse(f"at most {L.FILES_MAX} data_dirs are possible, not {files}")
    where = queue_path(path)
    share = -(-data_bytes // files // L.PAGE_BYTES) * L.PAGE_BYTES
    file_bytes = [share] * files
    identity = uuid.uuid4()
    if exclusive_keys.__class__ is not bool:
        raise Misuse(f"exclusive_keys must be True or False, not {exclusive_keys!r}")
    header = L.regions(slots + 1 + files, dedup_entries, exclusive=exclusive_keys)
    fixed = Options(
        penstock=L.FORMAT,
        uuid=str(identity),
        secret=secrets.token_hex(8),
        slots=slots,
        data_bytes=share * files,
        notify=notify,
        dedup_entries=dedup_entries,
        exclusive_keys=exclusive_keys,
        kernel_bytes=header[L.H_KERNEL_BYTES],
        kernel_dir=os.fspath(kernel_dir) if kernel_dir is not None else None,
        **kept,
    )

    header[L.H_UUID], header[L.H_UUID + 1] = fixed.uuid_words

    def fill(mapping: Any, storage: tuple[int, ...]) -> None:
        words = Words(mapping, str(where))
        initialise(words, header, [size // L.UNIT_BYTES for size in file_bytes])
        for i, word in enumerate(storage):
            words.raw(L.H_BOOT_ID + i, word)
        words.close()

    create_directory(
        where,
        fixed,
        fill,
        data_dirs=[Path(d) for d in data_dirs],
        file_bytes=file_bytes,
        progress=progress,
        mode=mode,
        beside=beside,
    )
    return where
