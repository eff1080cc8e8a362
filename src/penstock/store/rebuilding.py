"""Owns making a ``queue.json`` anew that is damaged or gone, from what the kernel and the data files say (S6).

Believes only what two of them agree on. Only reads; ``repair.py`` writes it down.
"""

from __future__ import annotations

import mmap
import secrets
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Corrupt, PenstockError, WrongFormat
from penstock.store import layout as L
from penstock.store import options as defaults
from penstock.store import record
from penstock.store.files import KERNEL
from penstock.store.options import Options

RECORDS_LOOKED_MAX = 100_000  # their signatures are all the same, but for what was copied into bodies
LOST = (  # nothing but queue.json has them
    "spill_bytes",
    "lease_s",
    "durability",
    "notify",
    "index_sync_ms",
    "max_attempts",
    "backoff",
    "dead_letter",
    "expired",
    "dedup_window_s",
    "history_bytes",
    "history_age_s",
)


class Rebuilt(NamedTuple):
    """Options that were made anew, and in words what of them is known and what is not."""

    options: Options
    said: str


def rebuild(path: Path, damage: PenstockError) -> Rebuilt:
    """The options of a queue whose ``queue.json`` cannot be read. ``damage`` is why; it is raised again if kernel and
    data files do not say enough either."""
    try:
        with open(path / KERNEL, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        if not isinstance(damage, Corrupt):
            raise damage from None  # nothing here looks like a queue
        raise _unknown(damage.path, 0, damage.expected, f"{damage.found}, and no kernel beside it") from None
    with memoryview(data[: len(data) // L.WORD_BYTES * L.WORD_BYTES]).cast("Q") as words:
        sizes = _data_sizes(path, words, str(path / KERNEL))
        secret, found = _secret(path, words, sizes)
        identity = str(uuid.UUID(int=words[L.H_UUID] | words[L.H_UUID + 1] << 64))
        options = Options(
            penstock=L.FORMAT,
            uuid=identity,
            secret=secret,
            slots=words[L.H_SLOTS] - 1 - words[L.H_FILES],
            data_bytes=sum(size_bytes for _, size_bytes in sizes),
            spill_bytes=defaults.SPILL_BYTES,
            lease_s=defaults.LEASE_S,
            durability=defaults.DURABILITY,
            kernel_bytes=words[L.H_KERNEL_BYTES],
            dedup_entries=words[L.H_REMEMBERED],
            exclusive_keys=bool(words[L.H_FEATURES] & L.FEATURE_EXCLUSIVE),
            data_files=sizes,
            slots_most=L.SLOTS_MAX,  # nobody knows: a table that grows is taken for one that was larger before
        )
    lost = ", ".join(f"{name} is now {getattr(options, name)}" for name in LOST)
    known = "uuid, slots and data_bytes are the kernel's, the secret is "
    known += f"that of {found} records" if found else "a new one, since there are no records"
    return Rebuilt(options, f"made anew: {known}; lost, and as for a new queue: {lost}")


def _data_sizes(path: Path, words: memoryview, kernel: str) -> list[tuple[str, int]]:
    """Names and sizes of the data files, if all that the kernel says of its sizes agrees with the files."""
    if len(words) < L.HEADER_WORDS:
        raise _unknown(kernel, 0, "a kernel", f"{len(words) * L.WORD_BYTES} bytes")
    if words[L.H_FEATURES] & ~L.FEATURES:
        raise WrongFormat(f"{path}: a newer Penstock keeps things in this queue that this one does not know")
    slots, files = words[L.H_SLOTS], words[L.H_FILES]
    if not (0 < files <= L.FILES_MAX and files + 1 < slots <= L.SLOTS_MAX + files + 1):
        raise _unknown(kernel, L.H_SLOTS, "a number of slots and files", f"{slots} and {files}")
    remembered = words[L.H_REMEMBERED]
    if remembered > L.REMEMBERED_MAX or remembered.bit_count() > 1 or remembered % L.REMEMBERED_BUCKET:
        raise _unknown(kernel, L.H_REMEMBERED, "a number of entries", f"{remembered}")
    trees = bool(words[L.H_FEATURES] & L.FEATURE_CLASSES)
    exclusive = bool(words[L.H_FEATURES] & L.FEATURE_EXCLUSIVE)
    for word, value in L.regions(slots, remembered, trees=trees, exclusive=exclusive).items():
        if words[word] != value:
            raise _unknown(kernel, word, f"{value:#x}", f"{words[word]:#x}")
    if words[L.H_KERNEL_BYTES] != len(words) * L.WORD_BYTES:
        raise _unknown(kernel, L.H_KERNEL_BYTES, f"{len(words) * L.WORD_BYTES}", f"{words[L.H_KERNEL_BYTES]}")
    if not (words[L.H_UUID] and words[L.H_UUID + 1]):
        raise _unknown(kernel, L.H_UUID, "a UUID", "none")
    share, rest = divmod(words[L.H_DATA_UNITS] * L.UNIT_BYTES, files)  # they are all of one size
    if rest or share == 0 or share % L.PAGE_BYTES:
        raise _unknown(kernel, L.H_DATA_UNITS, f"{files} data files of whole pages", f"{words[L.H_DATA_UNITS]} units")
    names = [f"data.{i}" for i in range(files)]
    for name in names:
        size_bytes = (path / name).stat().st_size if (path / name).exists() else -1
        if not 0 <= size_bytes <= share:  # one that was cut off is another matter
            found = f"{size_bytes} bytes" if size_bytes >= 0 else "none: only queue.json knows where it is"
            raise _unknown(str(path / name), 0, f"a data file of {share} bytes", found)
    return [(name, share) for name in names]


def _unknown(path: str, word: int, expected: str, found: str) -> Corrupt:
    return Corrupt(
        path,
        offset=word * L.WORD_BYTES,
        expected=expected,
        found=f"{found}; so a queue.json cannot be made anew: take it from a backup",
    )


def _secret(path: Path, words: memoryview, sizes: list[tuple[str, int]]) -> tuple[str, int]:
    """The signature of the records, and how many have it. Those that the kernel knows as messages count first."""
    votes: Counter[int] = Counter()
    known: Counter[int] = Counter()
    first = 0
    for name, size_bytes in sizes:
        for unit, head in _records(path / name, first, words):
            votes[head[0]] += 1
            known[head[0]] += _is_message(words, unit, head[1], head[4])
            if votes.total() >= RECORDS_LOOKED_MAX:
                break
        first += size_bytes // L.UNIT_BYTES
    if not votes:
        return secrets.token_hex(8), 0
    best = max(votes, key=lambda signature: (known[signature], votes[signature]))
    return f"{best:016x}", votes[best]


def _is_message(words: memoryview, unit: int, number: int, slot: int) -> bool:
    at = words[L.H_SLOTS_AT] + slot * L.SLOT_WORDS
    state = words[at + L.S_WORD] >> L.STATE_SHIFT & 0xF
    return (
        words[at + L.S_WORD] >> L.NUMBER_SHIFT == number
        and state in (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)
        and words[at + L.S_PLACE] >> L.PLACE_SHIFT == unit
    )


def _records(file: Path, first: int, words: memoryview) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What would be a valid record in a data file that begins at unit ``first``, whatever its signature: its unit and
    header. A valid one is skipped as a whole."""
    units = file.stat().st_size // L.UNIT_BYTES
    if units == 0:
        return
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        unit = 0
        while unit < units:
            at = unit * L.UNIT_BYTES
            head = L.RECORD.unpack_from(data, at)
            wanted = L.units(head[7] + head[8])
            if (
                head[0]
                and 0 < head[1] <= L.MASK48
                and words[L.H_FILES] < head[4] < words[L.H_SLOTS]
                and unit + wanted <= units
                and record.fault(data[at : at + wanted * L.UNIT_BYTES], head[0], head[1], head[4], first + unit) is None
            ):
                yield first + unit, head
                unit += wanted
            else:
                unit += 1
