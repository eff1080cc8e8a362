"""Owns snapshots: which messages a batch read is about, found in one moment, and how they are split into partitions.

The kernel is copied under the lock, in one turn, and looked through without it. Nothing is changed in the queue, and no
record is read here: a partition carries references, and whoever reads it looks in the data files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from pyspark.sql.datasource import InputPartition

from penstock.spark.filters import Condition, by_slot
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store.picture import Picture
from penstock.timequeue import open_queue
from penstock.timequeue.copying import take_picture

PARTITION_ROWS_LEAST = 1_000  # fewer are not worth a task
PARTITION_ROWS_MOST = 250_000  # their references are 10 MB, which travel with the task of a batch read
PARTITION_BYTES_MOST = 128 << 20


class Place(msgspec.Struct, frozen=True):
    """Which queue the references belong to: another one may be at the same path later."""

    path: str
    uuid: str
    id_prefix: str
    busy_s: float


NO_PLACE = Place("", "", "", 0.0)  # of no messages


class Snapshot(msgspec.Struct):
    """The references of messages at one moment, by number: rows of ``gather.REFERENCE_WORDS`` words."""

    place: Place
    references: Any


class Messages(InputPartition):
    """Some of the messages of a snapshot. A reference is 40 bytes."""

    def __init__(self, place: Place, references: bytes) -> None:
        super().__init__(None)
        self.place = place
        self.references = references


def take(path: str, *, state: str, conditions: list[Condition], busy_s: float) -> Snapshot:
    """The messages that are in this state now, without those that cannot pass the conditions."""
    with open_queue(path, busy_s=busy_s) as queue:
        client = queue._mine()
        picture = take_picture(client)
        now_us = client.clock.wall_us()
        place = Place(queue.name, client.options.uuid, client.id_prefix, busy_s)
    return Snapshot(place, references(picture, state=state, now_us=now_us, conditions=conditions))


def references(picture: Picture, *, state: str, now_us: int, conditions: list[Condition]) -> Any:
    slots = np.frombuffer(picture.slots, dtype=np.uint64).reshape(-1, L.SLOT_WORDS)
    words = slots[:, L.S_WORD]
    states = (words >> np.uint64(L.STATE_SHIFT)) & np.uint64(0xF)
    wanted: Any = np.zeros(len(slots), dtype=bool)
    if state in ("waiting", "scheduled", "all"):
        wanted |= states == L.STATE_WAITING
    if state in ("pending", "all"):
        wanted |= (states == L.STATE_PENDING) | (states == L.STATE_CLAIMED)
    if state == "scheduled":
        always_due = slots[:, L.S_INFO] >> np.uint64(L.FLAGS_SHIFT) & np.uint64(L.FLAG_READY)
        wanted &= (always_due == 0) & (slots[:, L.S_DELIVER_US] > now_us)
    wanted[: picture.first] = False
    found = np.flatnonzero(wanted)
    rows: Any = np.empty((len(found), G.REFERENCE_WORDS), dtype=np.uint64)
    rows[:, G.F_SLOT] = found
    rows[:, G.F_NUMBER] = words[found] >> np.uint64(L.NUMBER_SHIFT)
    for column, field in ((G.F_PLACE, L.S_PLACE), (G.F_DELIVER_US, L.S_DELIVER_US), (G.F_INFO, L.S_INFO)):
        rows[:, column] = slots[found, field]
    mask = by_slot(conditions, columns(rows))
    if mask is not None:
        rows = rows[mask]
    return rows[np.argsort(rows[:, G.F_NUMBER], kind="stable")]


# What references say about their messages.
SAID: dict[str, Callable[[Any], Any]] = {
    "number": lambda rows: rows[:, G.F_NUMBER].astype(np.int64),
    "priority": lambda rows: (rows[:, G.F_INFO] & np.uint64(0xF)).astype(np.int32),
    "attempts": lambda rows: (rows[:, G.F_INFO] >> np.uint64(L.ATTEMPTS_SHIFT)).astype(np.int32),
    "deliver_at": lambda rows: rows[:, G.F_DELIVER_US].astype(np.int64),
    "codec": lambda rows: (rows[:, G.F_INFO] >> np.uint64(L.CODEC_SHIFT) & np.uint64(0xF)).astype(np.int32),
}


def columns(rows: Any) -> dict[str, Any]:
    """All that references say, as arrays."""
    return {name: said(rows) for name, said in SAID.items()}


def split(snapshots: Sequence[Snapshot], wanted: int) -> list[Messages]:
    """Partitions of about equal size in bytes, each of one queue's messages; one without messages if there are none."""
    some = [snapshot for snapshot in snapshots if len(snapshot.references)]
    total = sum(len(snapshot.references) for snapshot in some)
    parts = []
    for snapshot in some:
        rows = snapshot.references
        for first, end in ranges(rows, share(wanted, len(rows), total)):
            parts.append(Messages(snapshot.place, rows[first:end].tobytes()))
    return parts or [Messages(NO_PLACE, b"")]


def share(wanted: int, rows: int, total: int) -> int:
    """Of so many partitions those for a queue that has some of the rows; 0 if nobody wants a number of them.

    >>> share(4, 30, 40), share(4, 1, 40), share(0, 1, 40)
    (3, 1, 0)
    """
    return max(wanted * rows // total, 1) if wanted else 0


def ranges(rows: Any, wanted: int) -> list[tuple[int, int]]:
    """Where to cut references, for partitions of about equal size in bytes. Each has some."""
    size_bytes = (rows[:, G.F_PLACE] & np.uint64(L.PLACE_MASK)).astype(np.int64) * L.UNIT_BYTES
    total = np.cumsum(size_bytes)
    count = max(min(wanted or _partitions(len(rows), int(total[-1]) if len(rows) else 0), len(rows)), 1)
    cuts: Any = np.searchsorted(total, [total[-1] * i // count for i in range(1, count)]) if count > 1 else []
    edges = [0, *(int(cut) for cut in cuts), len(rows)]
    return [(first, end) for first, end in pairwise(edges) if end > first]


def _partitions(rows: int, size_bytes: int) -> int:
    return max(
        min(rows // PARTITION_ROWS_LEAST, os.cpu_count() or 1),
        -(-rows // PARTITION_ROWS_MOST),
        -(-size_bytes // PARTITION_BYTES_MOST),
    )
