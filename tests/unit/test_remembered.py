"""The table of what was put, in a small kernel; what a check finds wrong with it; what a restore believes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.store.blank import initialise
from penstock.store.kernel import Kernel
from penstock.store.keys import dedup_key
from penstock.store.words import Words
from penstock.timequeue import check_queue, resize_queue, restore_queue

ENTRIES = 64


def kernel(entries: int = ENTRIES) -> Kernel:
    header = L.regions(42, entries)
    words = Words(bytearray(header[L.H_KERNEL_BYTES]), "kernel in memory")
    initialise(words, header, [64])
    return Kernel(words)


def test_what_is_added_is_found_until_its_time_is_over() -> None:
    made = kernel()
    table = made.remembered
    entry = table.add(7, 100, 5, 3, L.PUT_SYNCED, 0)
    made.commit()
    assert table.find(7, 99) == entry != 0
    assert (table.number(entry), table.slot(entry), table.until_us(entry)) == (5, 3, 100)
    assert table.is_whole(entry) and table.is_settled(entry)
    assert table.find(7, 100) == 0 and table.find(9, 0) == 0
    assert table.add(7, 200, 6, 4, 0, 100) == entry  # the same key never has two entries
    table.forget(entry)
    made.commit()
    assert table.find(7, 0) == 0


def test_a_bucket_takes_so_many_and_reuses_those_whose_time_is_over() -> None:
    made = kernel()
    table = made.remembered
    even = [2 * n for n in range(1, 40)]  # all of one bucket
    found = [table.add(key, 100 + key, key, 3, 0, 0) for key in even]
    assert len({entry for entry in found if entry}) == L.REMEMBERED_BUCKET
    assert found[L.REMEMBERED_BUCKET :] == [0] * 7
    assert table.add(3, 100, 1, 3, 0, 0) != 0  # the other bucket has room
    assert table.add(1000, 500, 9, 3, 0, 102) == found[0]
    assert table.find(2, 0) == 0 and table.find(4, 0) == found[1]


def test_an_entry_of_a_put_that_is_under_way_is_not_over() -> None:
    made = kernel()
    table = made.remembered
    slot = made.take(1)
    entry = table.add(7, 100, made.number(slot), slot, L.BEING_PUT, 0)
    made.describe(slot, 1, 0, 0, entry)
    made.fill(slot, 0, 0, L.OWNER_CLIENT)
    made.commit()
    assert table.is_being_put(entry) and table.find(7, 10_000) == entry
    made.abandon(slot, 0, False)
    assert table.find(7, 0) == 0


def test_published_without_having_settled_it_is_not_being_put() -> None:
    """Whoever dies between the two leaves it so."""
    made = kernel()
    slot = made.take(1)
    entry = made.remembered.add(7, 100, made.number(slot), slot, L.BEING_PUT, 0)
    made.describe(slot, 1, L.FLAG_READY << L.FLAGS_SHIFT, 0)
    made.publish_taken(slot, 1)
    assert not made.remembered.is_settled(entry) and not made.remembered.is_being_put(entry)
    assert made.remembered.find(7, 99) == entry and made.remembered.find(7, 100) == 0


def test_every_word_of_an_entry_counts() -> None:
    made = kernel()
    table = made.remembered
    entry = table.add(7, 100, 5, 3, L.PUT_SYNCED, 0)
    for column in range(L.REMEMBERED_WORDS):
        at = entry + column * L.REMEMBERED_BUCKET
        for bit in range(62):
            made.note(at, made.get(at) ^ 1 << bit)
            assert not table.is_whole(entry), (column, bit)
            made.note(at, made.get(at) ^ 1 << bit)
    assert table.is_whole(entry)


# ---------------------------------------------------------------- checked


def damaged(path: Path, change: Callable[[memoryview, int], None]) -> list[str]:
    """A queue that remembers one put, changed while nobody has it open; what a check says."""
    with penstock.create(path, slots=10, data_bytes=8192, durability="relaxed", dedup_entries=ENTRIES) as q:
        q.put(b"m", dedup_id="a")
        signature = q._mine().signature
    data = bytearray((path / "kernel").read_bytes())
    entry = Kernel(Words(data, "copy")).remembered.find(dedup_key("a", signature), 0)
    change(memoryview(data).cast("Q"), entry)
    (path / "kernel").write_bytes(data)
    return [finding.what for finding in check_queue(path)]


def _twice(words: memoryview, entry: int) -> None:
    other = entry + 1
    for column in range(L.REMEMBERED_WORDS):
        words[other + column * L.REMEMBERED_BUCKET] = words[entry + column * L.REMEMBERED_BUCKET]


def _never_put(words: memoryview, entry: int) -> None:
    table = Kernel(Words(words, "copy")).remembered
    words[entry + L.D_NUMBER * L.REMEMBERED_BUCKET] = 1 << 40
    last = table.last_word(words[entry], table.until_us(entry), 1 << 40, table.slot(entry), 0)
    words[entry + L.D_SLOT * L.REMEMBERED_BUCKET] = last


def _torn(words: memoryview, entry: int) -> None:
    words[entry + L.D_UNTIL_US * L.REMEMBERED_BUCKET] ^= 1


@pytest.mark.damages
@pytest.mark.parametrize(
    "change, said", [(_twice, "twice"), (_never_put, "never put"), (_torn, "damaged")], ids=["twice", "never", "torn"]
)
def test_a_check_finds_it(tmp_path: Path, change: Callable[[memoryview, int], None], said: str) -> None:
    (finding,) = damaged(tmp_path / "queue", change)
    assert said in finding


def test_a_check_finds_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert damaged(tmp_path / "queue", lambda words, entry: None) == []


# ---------------------------------------------------------------- restored


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_a_repair_keeps_what_is_known(path: Path, durability: str) -> None:
    with penstock.create(path, slots=10, data_bytes=8192, durability=durability) as q:
        gone = q.put(b"gone", dedup_id="gone")
        q.get().ack()
        here = q.put(b"here", dedup_id="here")
    assert penstock.timequeue.restore_queue(path) is not None
    with penstock.open(path) as q:
        assert (q.put(b"", dedup_id="gone"), q.put(b"", dedup_id="here")) == (gone, here)
        assert q.qsize() == 1


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_a_repair_keeps_what_is_known_of_claimed_messages(path: Path, durability: str) -> None:
    with penstock.create(path, slots=10, data_bytes=8192, durability=durability) as q:
        claimed = q.put(b"claimed", dedup_id="claimed")
        with q.receiver("r") as receiver:
            receiver.claim(1)
    assert penstock.timequeue.restore_queue(path) is not None
    with penstock.open(path) as q:
        assert q.put(b"", dedup_id="claimed") == claimed
        assert q.stats().claimed == 1 and q.qsize() == 0


def test_without_a_kernel_what_is_there_is_known(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=8192) as q:
        here = q.put(b"here", dedup_id="here")
    (path / "kernel").unlink()
    penstock.timequeue.repair_queue(path)
    with penstock.open(path) as q:
        assert q.put(b"", dedup_id="here") == here
        assert q.put(b"", dedup_id="other") != here


@pytest.mark.parametrize("slots", [5, 40])
def test_other_sizes_keep_what_is_known_and_who_is_putting(path: Path, slots: int) -> None:
    with penstock.create(path, slots=10, data_bytes=1 << 16, dedup_entries=ENTRIES) as q:
        gone = q.put(b"gone", dedup_id="gone")
        q.get().ack()
        here = q.put(b"here", dedup_id="here")
    penstock.timequeue.resize_queue(path, slots=slots)
    assert check_queue(path) == []
    with penstock.open(path) as q:
        assert (q.put(b"", dedup_id="gone"), q.put(b"", dedup_id="here")) == (gone, here)
        assert q.put(b"", dedup_id="new") not in (gone, here)


def test_an_upgrade_gives_a_queue_of_before_a_table(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=8192, dedup_entries=0) as q:
        q.put(b"m")
        with pytest.raises(penstock.Misuse, match="penstock upgrade"):
            q.put(b"n", dedup_id="a")
    assert penstock.timequeue.upgrade_queue(path).changed
    assert not penstock.timequeue.upgrade_queue(path).changed
    with penstock.open(path) as q:
        assert q.put(b"n", dedup_id="a") == q.put(b"n", dedup_id="a")
        assert [m.data for m in q.get_many(5)] == [b"m", b"n"]


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_what_was_put_into_slots_that_were_cut_off_is_known(path: Path, durability: str) -> None:
    """One of them was published by a process that died before it could say so in the entry."""
    with penstock.create(path, slots=2000, data_bytes=1 << 20, durability=durability) as q:
        q.put_many([b""] * 1990)
        gone = [q.put(b"m", dedup_id=f"{n}") for n in range(10)]
        q.purge()
        client = q._mine()
        entry = client.kernel.remembered.find(dedup_key("9", client.signature), 0)
        last = entry + L.D_SLOT * L.REMEMBERED_BUCKET
        client.turn(client.kernel.note, last, client.kernel.get(last) | L.BEING_PUT)
    resize_queue(path, slots=10)
    assert check_queue(path) == []
    for _ in range(2):
        with penstock.open(path) as q:
            assert [q.put(b"", dedup_id=f"{n}") for n in range(10)] == gone
        assert check_queue(path) == []
        assert penstock.timequeue.restore_queue(path) is not None


def test_more_slots_bring_room_for_more_ids_and_those_that_are_there_stay_known(path: Path) -> None:
    with penstock.create(path, slots=200, data_bytes=1 << 16, dedup_entries=ENTRIES) as q:
        ids = {f"{n}": q.put(b"m", dedup_id=f"{n}") for n in range(ENTRIES // 2)}
        q.ack_many(q.get_many(10))
    resize_queue(path, slots=3000, data_bytes=1 << 20)
    assert check_queue(path) == []
    with penstock.open(path) as q:
        assert {name: q.put(b"m", dedup_id=name) for name in ids} == ids
        for n in range(ENTRIES // 2, 1500):
            q.put(b"", dedup_id=f"{n}", durability="relaxed")
    restore_queue(path)
    with penstock.open(path) as q:
        assert {name: q.put(b"m", dedup_id=name) for name in ids} == ids
