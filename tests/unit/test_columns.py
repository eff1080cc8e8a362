"""Batches in columns: what is stored is what a batch of entries stores, and what columns cannot do entries do."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Draft
from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue.columns import RUN_BYTES_MAX, Columns
from tests.columns import columns
from tests.conftest import Queues, SimulatedClock
from tests.snapshot import Snapshot

NAME = "query"
FAR = 4_000_000_000.0

MIXED = [
    Draft(body=b""),
    Draft(body=b"x" * 200),
    Draft(body=b"y" * 201, priority=3),
    Draft(body="text", deliver_at=FAR),
    Draft(body=b"z" * 2500, headers={"h": "1"}),
    Draft(body=b"of a type", type="order", priority=15),
    Draft(body=b"of a key", key="k", deliver_at=FAR - 5),
    Draft(body=b"of both", type="order", key="k", headers={"h": "2"}),
    Draft(body=b"q" * 2999),
    Draft(body={"a": 1}, key="k"),
]


def random_batch(rng: random.Random, count: int, longest: int) -> list[Draft]:
    return [
        Draft(
            body=rng.randbytes(rng.randrange(longest)),
            priority=rng.randrange(L.PRIORITIES),
            deliver_at=rng.choice([None, None, FAR + rng.randrange(50)]),
            type=rng.choice([None, None, "a", "b" * 40]),
            key=rng.choice([None, None, None, "k", "l"]),
        )
        for _ in range(count)
    ]


def as_entries(batch: Sequence[Draft]) -> list[Any]:
    return columns(batch).entries()


def stored(
    saved: Snapshot, clock: SimulatedClock, put: Callable[[penstock.TimeQueue], object]
) -> tuple[list[bytes], bytes]:
    """The data files, and all words of the kernel but the journal's, after a put into the same queue."""
    saved.put_back()
    with penstock.open(saved.path, clock=clock) as queue:
        put(queue)
        get = queue._mine().kernel.get
        at = get(L.H_JOURNAL_AT) * L.WORD_BYTES
        behind = at + get(L.H_JOURNAL_ENTRIES) * L.JOURNAL_WORDS * L.WORD_BYTES
        kernel = (saved.path / "kernel").read_bytes()
        data = [file.read_bytes() for file in sorted(saved.path.glob("data*"))]
    assert data
    return data, kernel[:at] + kernel[behind:]


@pytest.mark.parametrize("durability", ["relaxed", "commit"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_stored_is_the_same_byte_for_byte(
    queue: Queues, clock: SimulatedClock, durability: str, seed: int
) -> None:
    rng = random.Random(seed)
    batch = MIXED if seed == 0 else random_batch(rng, 60, 900)
    with queue(slots=200, data_bytes=1 << 20, spill_bytes=3000, exclusive_keys=seed == 2) as q:
        q.put_many(random_batch(rng, 40, 700))
        q.ack_many(q.get_many(15))  # gaps, and slots in another order
        q.sync_index()
        path = Path(q.path)
    saved = Snapshot(path)
    expected = stored(saved, clock, lambda q: q.put_entries(as_entries(batch), None, durability))
    assert stored(saved, clock, lambda q: q.put_entries(columns(batch), None, durability)) == expected
    expected = stored(saved, clock, lambda q: q.put_entries_once(NAME, 1, lambda: as_entries(batch), None, durability))
    found = stored(saved, clock, lambda q: q.put_entries_once(NAME, 1, lambda: columns(batch), None, durability))
    assert found == expected


def test_messages_arrive_and_their_ids_are_known(queue: Queues) -> None:
    q = queue(data_bytes=1 << 20, spill_bytes=3000)
    ids = q.put_entries(columns(MIXED))
    assert len(ids) == len(MIXED) and list(ids[2:4]) == [ids[2], ids[3]]
    found = {message.id: message for message in q.browse(state="all")}
    assert len(found) == len(MIXED)
    for id_, draft in zip(ids, MIXED, strict=True):
        message = found[id_]
        assert (message.body, message.priority, message.type, message.key) == (
            draft.body,
            draft.priority,
            draft.type,
            draft.key,
        )
        assert (message.headers or None) == draft.headers
    assert {message.data for message in q.get_many(9, type="order")} == {b"of a type", b"of both"}
    assert [message.body for message in q.get_many(9, key="k")] == [{"a": 1}]


def test_runs_longer_than_one_write_are_whole(queue: Queues) -> None:
    count = 3 * RUN_BYTES_MAX // 1000
    q = queue(slots=2 * count, data_bytes=4 << 20)
    bodies = [bytes([i % 256]) * (800 + i % 400) for i in range(count)]
    q.put_entries(columns(bodies, piece=count // 2))
    assert [message.data for message in q.get_many(count)] == bodies


def test_no_message_is_no_batch(queue: Queues) -> None:
    q = queue()
    assert len(q.put_entries(Columns([]))) == 0
    assert q.put_entries_once(NAME, 3, lambda: Columns([])) is not None
    assert q.put_entries_once(NAME, 3, lambda: columns([b"late"])) is None
    assert q.qsize() == 0


def test_a_batch_is_put_once(queue: Queues) -> None:
    q = queue()
    assert q.put_entries_once(NAME, 3, lambda: columns([b"a", b"b"])) is not None
    assert q.put_entries_once(NAME, 3, lambda: columns([b"a", b"b"])) is None
    assert [message.data for message in q.browse()] == [b"a", b"b"]


def test_with_a_body_of_its_own_the_batch_is_put_as_entries(queue: Queues) -> None:
    q = queue(data_bytes=1 << 20, spill_bytes=3000)
    bodies = [b"a", b"b" * 3001, b"c"]
    ids = q.put_entries(columns(bodies))
    assert [message.data for message in q.browse()] == bodies and q.stats().spilled_bytes
    assert [message.id for message in q.browse()] == list(ids)


@pytest.mark.parametrize("durability", ["relaxed", "commit"])
def test_a_full_queue_takes_none_of_it(queue: Queues, durability: str) -> None:
    q = queue(slots=40, data_bytes=64 << 10)
    q.put_many([b"here"] * 20)
    for batch in ([b"n"] * 30, [b"n" * 5000] * 14):
        with pytest.raises(penstock.QueueFull):
            q.put_entries(columns(batch), None, durability)
        with pytest.raises(penstock.QueueFull):
            q.put_entries_once(NAME, 1, lambda batch=batch: columns(batch), 0.01, durability)  # type: ignore[misc]
        assert q.qsize() == 20 and q.stats().filling == 0
    with pytest.raises(penstock.BatchTooLarge):
        q.put_entries(columns([b"n"] * 50), None, durability)


def test_room_that_waits_for_an_index_sync_is_found(queue: Queues) -> None:
    q = queue(slots=40, index_sync_ms=0)
    q.put_many([b"%d" % i for i in range(30)])
    q.ack_many(q.get_many(30))
    q.put_entries(columns([b"n"] * 35))
    assert q.qsize() == 35


def test_room_that_is_in_pieces_is_given_back_and_found_again(queue: Queues) -> None:
    """There is enough of it, but not in one place: the last message becomes a file, and no slot is lost."""
    q = queue(slots=200, data_bytes=64 << 10, spill_bytes=3000, index_sync_ms=0)
    ids = q.put_many([b"f" * 200] * 190)
    for id_ in ids[::2]:
        q.cancel(id_)
    q.sync_index()
    before = q.stats()
    q.put_entries(columns([b"n" * 200] * 60 + [b"n" * 2900]))
    after = q.stats()
    assert q.qsize() == 95 + 61 and after.filling == 0
    assert before.vacant - after.vacant == 61


class Failing:
    """The disk refuses one write."""

    def __init__(self, code: int, left: int) -> None:
        self._code = code
        self._left = left

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.WRITE and len(data) > L.WORD_BYTES:
            self._left -= 1
            if self._left == 0:
                raise OSError(self._code, "the disk says no")


@pytest.mark.parametrize("durability", ["relaxed", "commit"])
@pytest.mark.parametrize("left", [1, 2])
def test_if_the_disk_refuses_a_write_nothing_of_it_is_there(queue: Queues, durability: str, left: int) -> None:
    q = queue(slots=40, data_bytes=64 << 10)
    rig.observe(Failing(errno.EIO, left))
    try:
        with pytest.raises(OSError, match="the disk says no"):
            q.put_entries(columns([b"a", b"b", b"c", b"d"]), None, durability)
    finally:
        rig.observe(None)
    assert q.qsize() == 0 and q.stats().filling == 0
    q.put_entries(columns([b"a", b"b", b"c", b"d"]), None, durability)
    assert q.qsize() == 4


def test_who_is_not_admitted_puts_nothing(queue: Queues) -> None:
    q = queue()

    def refuse() -> None:
        raise penstock.Misuse("no")

    q._producer.admit = refuse
    with pytest.raises(penstock.Misuse):
        q.put_entries(columns([b"a"]))
    q._producer.admit = None
    assert q.qsize() == 0 and q.stats().filling == 0
