"""Restore: what each slot's word and records say, as a power loss can leave them, and what becomes of it."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import record, restore, rig, searching
from penstock.store.directory import read_options
from penstock.store.files import LocalFiles, body_name
from penstock.store.findings import FINDINGS_MAX
from penstock.store.kernel import NUMBERS_AHEAD
from penstock.timequeue import check_queue, restore_queue
from tests.crash.rig import killed_at
from tests.snapshot import overwrite

SIZES = {"slots": 40, "data_bytes": 64 << 10, "spill_bytes": 3000, "durability": "relaxed"}

FILLING, WAITING, PENDING, VACANT = L.STATE_FILLING, L.STATE_WAITING, L.STATE_PENDING, L.STATE_VACANT
GOES_ON = (L.H_NUMBER_NEXT, L.H_NUMBER_LIMIT, L.H_NUMBER_SAFE, L.H_SETTLED)  # with each restore


def word_of(slot: int, number: int, state: int) -> int:
    mixed = (number * L.MIX_NUMBER) ^ (slot * L.MIX_SLOT) ^ (state * L.MIX_STATE)
    return number << 16 | state << 12 | (mixed & L.MASK64) >> 52


class Disk:
    """The kernel of a closed queue as bytes that a test alters."""

    def __init__(self, path: Path) -> None:
        self.file = Path(read_options(path).kernel_dir or path) / "kernel"
        self.data = bytearray(self.file.read_bytes())
        self.words = memoryview(self.data).cast("Q")

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            overwrite(self.file, self.data)

    def at(self, slot: int, field: int = L.S_WORD) -> int:
        return self.words[L.H_SLOTS_AT] + slot * L.SLOT_WORDS + field

    def get(self, slot: int, field: int = L.S_WORD) -> int:
        return self.words[self.at(slot, field)]

    def put(self, slot: int, field: int, value: int) -> None:
        self.words[self.at(slot, field)] = value

    def number(self, slot: int) -> int:
        return self.get(slot) >> L.NUMBER_SHIFT

    def state(self, slot: int) -> int:
        return self.get(slot) >> L.STATE_SHIFT & 0xF

    def say(self, slot: int, number: int, state: int) -> None:
        self.put(slot, L.S_WORD, word_of(slot, number, state))

    def offset(self, slot: int) -> int:
        """Of its record in the first data file."""
        return (self.get(slot, L.S_PLACE) >> L.PLACE_SHIFT) * L.UNIT_BYTES


def slot_of(message_id: str) -> int:
    return int(message_id.split("-")[1], 16)


def number_of(message_id: str) -> int:
    return int(message_id.split("-")[2], 16)


def contents(path: Path) -> list[bytes]:
    assert check_queue(path) == []
    with penstock.open(path) as queue:
        return [message.data for message in queue.browse()]


def everything(path: Path) -> list[tuple[Any, ...]]:
    with penstock.open(path) as queue:
        return [
            (m.id, m.data, m.priority, m.attempts, m.type, m.key, m.headers, m.enqueued_at, m.deliver_at)
            for m in queue.browse(state="all")
        ]


def write(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue"


def made(path: Path, bodies: list[bytes], **options: Any) -> list[str]:
    with penstock.create(path, **{**SIZES, **options}) as queue:
        return [queue.put(body) for body in bodies]


# ---------------------------------------------------------------- one slot, its word and its records


def test_messages_come_back_whole_when_every_slot_was_lost(path: Path) -> None:
    with penstock.create(path, **SIZES) as queue:
        for i in range(30):
            queue.put(
                b"body %d" % i, priority=i % 4, delay=1000 - i if i % 3 == 0 else None, type="t", key=f"k{i}",
                headers={"n": str(i)},
            )  # fmt: skip
        queue.put(b"x" * 5000)
    before = everything(path)
    with Disk(path) as disk:
        for word in range(disk.at(2), len(disk.words)):
            disk.words[word] = 0
    assert restore_queue(path) == []
    assert check_queue(path) == []
    assert everything(path) == before, "order included"


@pytest.mark.parametrize(
    ("number", "state", "lives"),
    [
        (0, WAITING, True),  # the word of an earlier message: its successor was confirmed, and acknowledged by nobody
        (0, VACANT, True),
        (0, FILLING, True),
        (0, PENDING, True),
        (1, FILLING, True),
        (1, WAITING, True),
        (1, PENDING, True),
        (1, VACANT, False),
        (2, VACANT, False),  # the word of a later message, which was acknowledged in turn
        (2, FILLING, False),
    ],
)
def test_word_and_record_decide_together(number: int, state: int, lives: bool, path: Path) -> None:
    """``number`` is relative to the record's: 0 before it, 1 the same, 2 after it."""
    ids = made(path, [b"one", b"two", b"three"])
    slot = slot_of(ids[1])
    with Disk(path) as disk:
        disk.say(slot, disk.number(slot) - 1 + number, state)
    assert restore_queue(path) == []
    assert contents(path) == ([b"one", b"two", b"three"] if lives else [b"one", b"three"])
    disk = Disk(path)
    assert disk.state(slot) == (WAITING if lives else VACANT)
    assert disk.number(slot) == number_of(ids[1]) + (number == 2)


def test_a_live_word_without_its_record_is_reported(path: Path) -> None:
    """The slot's last record is that of an earlier message: the word is right that there was a later one."""
    ids = made(path, [b"one", b"two"])
    slot = slot_of(ids[1])
    with Disk(path) as disk:
        disk.say(slot, 9, WAITING)
    (finding,) = restore_queue(path)
    assert "message 9" in finding.what
    assert contents(path) == [b"one"]
    assert (Disk(path).number(slot), Disk(path).state(slot)) == (9, VACANT)


def test_acknowledged_messages_stay_gone_although_their_records_are_there(path: Path) -> None:
    with penstock.create(path, **SIZES) as queue:
        for i in range(20):
            queue.put(b"gone %d" % i)
        queue.ack_many(queue.get_many(20))
        queue.put_many([b"a", b"b", b"c"])
    assert b"gone 19" in (path / "data.0").read_bytes()
    assert restore_queue(path) == []
    assert contents(path) == [b"a", b"b", b"c"]


def test_the_newest_record_of_a_slot_counts(path: Path) -> None:
    """One slot, used again and again at other places: every earlier record is still whole."""
    with penstock.create(path, **{**SIZES, "slots": 2}) as queue:
        queue.put(b"stays")
        for i in range(30):
            queue.put(b"lap %d" % i + bytes(300 * (i % 3)))
            if i < 29:
                kept, message = queue.get(), queue.get()
                message.ack()
                kept.release()
    with Disk(path) as disk:
        for slot in range(2, disk.words[L.H_SLOTS]):
            disk.put(slot, L.S_WORD, 0)
    assert restore_queue(path) == []
    assert [body[:6] for body in contents(path)] == [b"stays", b"lap 29"]


def test_a_tombstone_is_no_record(path: Path) -> None:
    ids = made(path, [b"one", b"two", b"three"])
    with Disk(path) as disk:
        slot = slot_of(ids[1])
        disk.say(slot, disk.number(slot), FILLING)
        write(path / "data.0", disk.offset(slot), bytes(8))
    assert restore_queue(path) == []
    assert contents(path) == [b"one", b"three"]


def test_a_damaged_word_is_reported_and_the_record_decides(path: Path) -> None:
    ids = made(path, [b"one", b"two", b"three"])
    slot = slot_of(ids[1])
    with Disk(path) as disk:
        disk.put(slot, L.S_WORD, disk.get(slot) ^ 1 << 20)
    (finding,) = restore_queue(path)
    assert finding.path == str(path / "kernel")
    assert finding.offset == Disk(path).at(slot) * L.WORD_BYTES
    assert "identity word" in finding.what
    assert contents(path) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("wrecked", [False, True])
def test_a_damaged_record_is_reported_and_set_aside(wrecked: bool, path: Path) -> None:
    """``wrecked``: its place is not known either."""
    ids = made(path, [b"one", b"two", b"three"])
    slot = slot_of(ids[1])
    with Disk(path) as disk:
        offset = disk.offset(slot)
        if wrecked:
            disk.put(slot, L.S_PLACE, L.MASK64)
    write(path / "data.0", offset + L.RECORD_BYTES, b"T")
    (would,) = restore_queue(path, dry_run=True)
    assert not (path / "damaged").exists()
    (finding,) = restore_queue(path)
    assert finding == would
    assert f"message {number_of(ids[1])}" in finding.what
    assert contents(path) == [b"one", b"three"]
    if wrecked:
        assert (finding.path, finding.offset) == (str(path / "kernel"), Disk(path).at(slot) * L.WORD_BYTES)
        assert not (path / "damaged").exists()
        return
    assert (finding.path, finding.offset) == (str(path / "data.0"), offset)
    name = body_name(number_of(ids[1]), slot)
    assert b"Two" in (path / "damaged" / name).read_bytes()
    known = json.loads((path / "damaged" / f"{name}.json").read_text())
    assert known["slot"] == slot
    assert known["number"] == number_of(ids[1])
    assert (known["path"], known["offset"]) == (str(path / "data.0"), offset)
    assert "checksum" in known["fault"]


def test_a_put_that_was_under_way_without_its_record_is_no_finding(path: Path) -> None:
    ids = made(path, [b"one", b"two"])
    with Disk(path) as disk:
        slot = slot_of(ids[1])
        disk.say(slot, disk.number(slot), FILLING)
        write(path / "data.0", disk.offset(slot) + L.RECORD_BYTES, b"T")
    assert restore_queue(path) == []
    assert contents(path) == [b"one"]


def test_a_record_of_a_slot_that_cannot_be_is_no_record(path: Path) -> None:
    made(path, [b"one"], slots=3)
    options = read_options(path)
    for unit, slot in ((10, 0), (12, 1), (14, 5), (16, 1 << 31)):
        data = record.build(options.signature, 50 + unit, 1, 1, slot, 1, 0, 0, b"", b"no", record.crc32(b"no"), unit)
        write(path / "data.0", unit * L.UNIT_BYTES, data)
    assert restore_queue(path) == []
    assert contents(path) == [b"one"]
    good = record.build(options.signature, 99, 1, 1, 4, 1, 0, 0, b"", b"yes", record.crc32(b"yes"), 20)
    write(path / "data.0", 20 * L.UNIT_BYTES, good)
    assert restore_queue(path) == []
    assert sorted(contents(path)) == [b"one", b"yes"]


# ---------------------------------------------------------------- batches


@pytest.fixture
def batch(path: Path) -> list[str]:
    with penstock.create(path, **SIZES) as queue:
        queue.put(b"before")
        ids = queue.put_many([b"member %d" % i for i in range(5)])
        queue.put(b"after")
    with Disk(path) as disk:
        for message_id in ids:
            disk.say(slot_of(message_id), number_of(message_id), FILLING)
    return list(ids)


MEMBERS = [b"member %d" % i for i in range(5)]


def test_a_batch_whose_records_are_all_there_is_there(path: Path, batch: list[str]) -> None:
    assert restore_queue(path) == []
    assert contents(path) == [b"before", *MEMBERS, b"after"]


@pytest.mark.parametrize("torn", range(5))
def test_a_torn_batch_is_not_there_at_all(torn: int, path: Path, batch: list[str]) -> None:
    write(path / "data.0", Disk(path).offset(slot_of(batch[torn])) + L.RECORD_BYTES, b"?")
    assert restore_queue(path) == []
    assert contents(path) == [b"before", b"after"]
    disk = Disk(path)
    assert all(
        (disk.number(slot_of(one)), disk.state(slot_of(one))) == (number_of(one), VACANT)
        for one in batch
        if one != batch[torn]
    )
    assert restore_queue(path) == []
    assert contents(path) == [b"before", b"after"]


def test_a_published_member_of_a_torn_batch_lives_by_its_word(path: Path, batch: list[str]) -> None:
    with Disk(path) as disk:
        disk.say(slot_of(batch[3]), number_of(batch[3]), WAITING)
        write(path / "data.0", disk.offset(slot_of(batch[0])) + L.RECORD_BYTES, b"?")
    assert restore_queue(path) == []
    assert contents(path) == [b"before", b"member 3", b"after"]


def test_members_that_are_gone_count_as_found(path: Path, batch: list[str]) -> None:
    """One by its word, one by a later message in its slot at another place."""
    options = read_options(path)
    with Disk(path) as disk:
        disk.say(slot_of(batch[1]), number_of(batch[1]), VACANT)
        slot, number = slot_of(batch[2]), 50
        data = record.build(options.signature, number, 1, 1, slot, 1, 0, 1 << 16, b"", b"new", record.crc32(b"new"), 99)
        write(path / "data.0", 99 * L.UNIT_BYTES, data)
    assert restore_queue(path) == []
    assert contents(path) == [b"before", b"member 0", b"member 3", b"member 4", b"after", b"new"]


def test_two_torn_batches_do_not_make_a_whole_one(path: Path) -> None:
    with penstock.create(path, **SIZES) as queue:
        first = queue.put_many([b"a0", b"a1"])
        second = queue.put_many([b"b0", b"b1"])
    with Disk(path) as disk:
        for one in (*first, *second):
            disk.say(slot_of(one), number_of(one), FILLING)
        write(path / "data.0", disk.offset(slot_of(first[1])) + L.RECORD_BYTES, b"?")
        write(path / "data.0", disk.offset(slot_of(second[0])) + L.RECORD_BYTES, b"?")
    assert restore_queue(path) == []
    assert contents(path) == []


def test_members_far_apart_are_one_batch(path: Path) -> None:
    """Their places interleave with those of another batch, in gaps that acknowledged messages left."""
    with penstock.create(path, **{**SIZES, "slots": 300}) as queue:
        queue.put_many([b"x%d" % i for i in range(255)])
        odd = [message for i, message in enumerate(queue.get_many(255)) if i % 2]
        queue.ack_many(odd)
        queue.put_many([b"m%d" % i for i in range(100)])
        last = [message.id for message in queue.browse()]
    with Disk(path) as disk:
        for one in last:
            disk.say(slot_of(one), number_of(one), FILLING)
    assert restore_queue(path) == []
    assert sorted(contents(path)) == sorted([b"x%d" % i for i in range(0, 255, 2)] + [b"m%d" % i for i in range(100)])


# ---------------------------------------------------------------- bodies that look like records


@pytest.mark.parametrize("lap", [False, True])
def test_a_body_that_is_the_data_file_itself_makes_no_messages(lap: bool, path: Path) -> None:
    """Whole, and overwritten in part by the next lap, so that the copied records lie bare."""
    sizes = {**SIZES, "slots": 200, "spill_bytes": 60_000}
    with penstock.create(path, **sizes) as queue:
        queue.put_many([b"inner %d" % i for i in range(60)])
        queue.ack_many(queue.get_many(60))
        copy = (path / "data.0").read_bytes()[: 60 * L.UNIT_BYTES]
        queue.put(copy[:1] + copy)  # not at its own unit
        queue.put(copy)  # at a unit's start, after the header: 56 bytes off
        queue.put(bytes(L.UNIT_BYTES - L.RECORD_BYTES) + copy)  # every copied record on a unit of its own
        if lap:
            queue.ack_many(queue.get_many(3))
            expected = [queue.put(b"next lap %d" % i) for i in range(30)]
        else:
            expected = [message.id for message in queue.browse()]
    with Disk(path) as disk:
        for slot in range(2, disk.words[L.H_SLOTS]):
            if lap and disk.state(slot) == VACANT:
                continue  # what is gone is gone by its word
            disk.put(slot, L.S_WORD, 0)
    assert restore_queue(path) == []
    assert check_queue(path) == []
    with penstock.open(path) as queue:
        assert {message.id for message in queue.browse()} == set(expected)


# ---------------------------------------------------------------- what a slot keeps


def test_attempts_are_kept_where_the_tag_is_the_message_s(path: Path) -> None:
    ids = made(path, [b"one", b"two", b"three", b"four"])
    with Disk(path) as disk:
        for i, one in enumerate(ids):
            slot, number = slot_of(one), number_of(one)
            tag = number + (i == 1)
            disk.put(slot, L.S_INFO, disk.get(slot, L.S_INFO) & 0xFFFFFF | (tag & 0xFF) << L.TAG_SHIFT | 7 << 32)
            disk.put(slot, L.S_ATTEMPT_US, 123_456_789)
        disk.say(slot_of(ids[2]), number_of(ids[2]), FILLING)
        disk.say(slot_of(ids[3]), number_of(ids[3]) - 1, WAITING)
    assert restore_queue(path) == []
    with penstock.open(path) as queue:
        found = {message.data: (message.attempts, message.last_attempt_at is not None) for message in queue.browse()}
    assert found == {b"one": (7, True), b"two": (0, False), b"three": (0, False), b"four": (0, False)}
    for one in ids:
        assert Disk(path).get(slot_of(one), L.S_INFO) >> L.TAG_SHIFT & L.TAG_MASK == number_of(one) & L.TAG_MASK


def test_pending_messages_wait_again_with_their_attempts(path: Path) -> None:
    made(path, [b"one", b"two"])
    with penstock.open(path) as queue:
        taken = queue.get()
        slot = slot_of(taken.id)
        data = (path / "kernel").read_bytes()
        client = queue._client
        assert client is not None
        client.forget()
        queue._client = None
        queue._closed = True
    (path / "kernel").write_bytes(data)
    with Disk(path) as disk:
        assert disk.state(slot) == PENDING
        tag = (disk.number(slot) & L.TAG_MASK) << L.TAG_SHIFT
        disk.put(slot, L.S_INFO, disk.get(slot, L.S_INFO) & ~(L.TAG_MASK << L.TAG_SHIFT) | tag)
    assert restore_queue(path) == []
    with penstock.open(path) as queue:
        assert [(message.data, message.attempts) for message in queue.browse()] == [(b"one", 1), (b"two", 0)]
        assert queue.stats().pending == 0


def test_noise_in_every_word_that_is_not_believed_changes_nothing(path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    with penstock.create(path, **{**SIZES, "slots": 100}) as queue:
        for _ in range(150):
            queue.put(rng.randbytes(rng.choice((10, 300, 900))), priority=rng.randrange(3),
                      delay=rng.choice((None, rng.random() * 1e5)))  # fmt: skip
            if rng.random() < 0.5:
                for message in queue.get_many(1):
                    message.ack()
    before = everything(path)
    whole = (path / "kernel").read_bytes()
    for _ in range(8):
        (path / "kernel").write_bytes(whole)
        with Disk(path) as disk:
            slots_at = disk.words[L.H_SLOTS_AT]
            fixed = L.regions(100 + 2)
            # The statistics are numbers that nothing depends on; their page is kept.
            stats = range(fixed[L.H_STATS_AT], fixed[L.H_STATS_AT] + L.STATS_WORDS)
            identity = range(L.H_BOOT_ID, L.H_MOUNT + 1)
            for word in range(len(disk.words)):
                if word == L.H_NUMBER_LIMIT or word in stats or word in identity or word == L.H_SYNC_FAILED:
                    continue
                if word >= slots_at and (word - slots_at) % L.SLOT_WORDS in (L.S_WORD, L.S_INFO):
                    continue
                disk.words[word] = rng.choice((0, rng.randrange(200), rng.getrandbits(64)))
        assert restore_queue(path) == []
        assert check_queue(path) == []
        assert everything(path) == before


# ---------------------------------------------------------------- spilled bodies


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_body_file_is_reported_and_set_aside(damage: str, path: Path) -> None:
    made(path, [b"one", b"x" * 5000, b"y" * 6000])
    first, second = sorted((path / "bodies").iterdir())
    if damage == "missing":
        first.unlink()
    else:
        first.write_bytes(b"x" * 4999 + (b"" if damage == "short" else b"z"))
    (finding,) = restore_queue(path)
    assert "its body" in finding.what
    assert finding.path == str(path / "data.0")
    assert contents(path) == [b"one", b"y" * 6000]
    kept = {file.name for file in (path / "damaged").iterdir()}
    assert kept == {first.name, f"{first.name}.json"} | ({f"{first.name}.body"} if damage != "missing" else set())
    assert [file.name for file in (path / "bodies").iterdir()] == [second.name]
    assert Disk(path).words[L.H_SPILLED_BYTES] == 6000


# ---------------------------------------------------------------- numbers


def test_no_number_is_given_twice_although_messages_were_lost(path: Path) -> None:
    ids = made(path, [b"one"])
    early = (path / "kernel").read_bytes()
    given = {number_of(ids[0])}
    for _ in range(4):
        with penstock.open(path) as queue:
            given |= (new := {number_of(queue.put(b"relaxed %d" % i)) for i in range(3)})
        assert len(new) == 3
        # The power is lost, and with it the records; of the kernel only the limit, which is synced before it counts.
        limit = Disk(path).words[L.H_NUMBER_LIMIT]
        (path / "kernel").write_bytes(early)
        (path / "data.0").write_bytes((path / "data.0").read_bytes()[: L.UNIT_BYTES].ljust(64 << 10, b"\0"))
        with Disk(path) as disk:
            disk.words[L.H_NUMBER_LIMIT] = limit
        assert restore_queue(path) == []
        with penstock.open(path) as queue:
            number = number_of(queue.put(b"another"))
            assert number not in given
            given.add(number)
            queue.cancel(next(message.id for message in queue.browse() if message.data == b"another"))


@pytest.mark.parametrize("limit", [0, 2, 1 << 60])
def test_a_number_limit_that_cannot_be_is_reported(limit: int, path: Path) -> None:
    ids = made(path, [b"one", b"two", b"three"])
    with Disk(path) as disk:
        disk.words[L.H_NUMBER_LIMIT] = limit
    (finding,) = restore_queue(path)
    assert finding.offset == L.H_NUMBER_LIMIT * L.WORD_BYTES
    words = Disk(path).words
    assert words[L.H_NUMBER_NEXT] == number_of(ids[-1]) + NUMBERS_AHEAD
    assert words[L.H_NUMBER_LIMIT] == words[L.H_NUMBER_SAFE] == words[L.H_NUMBER_NEXT] + NUMBERS_AHEAD


def test_restores_are_counted_and_statistics_kept(path: Path) -> None:
    made(path, [b"one", b"two"])
    assert restore_queue(path) == []
    assert restore_queue(path) == []
    disk = Disk(path)
    at = disk.words[L.H_STATS_AT]
    assert disk.words[at + L.T_RESTORES] == 2
    assert disk.words[at + L.T_PUTS] == 2


# ---------------------------------------------------------------- places


def test_data_and_kernel_elsewhere(path: Path, tmp_path: Path) -> None:
    dirs = [tmp_path / f"disk{i}" for i in range(3)]
    with penstock.create(
        path, **{**SIZES, "data_bytes": 48 << 10, "slots": 200}, data_dirs=dirs, kernel_dir=tmp_path / "fast"
    ) as queue:
        queue.put_many([b"m%d" % i + bytes(150) for i in range(170)])
        for message in queue.get_many(40):
            message.ack()
    before = everything(path)
    with Disk(path) as disk:
        for slot in range(4, disk.words[L.H_SLOTS]):
            if disk.state(slot) == WAITING:
                disk.put(slot, L.S_WORD, 0)
            disk.put(slot, L.S_PLACE, 0)
        for word in range(L.H_VACANT, L.H_OWED):
            disk.words[word] = 0
    assert restore_queue(path) == []
    assert check_queue(path) == []
    assert everything(path) == before
    with penstock.open(path) as queue:
        queue.put_many([b"more"] * 20)


def test_a_full_data_file_has_no_gap(path: Path) -> None:
    made(path, [bytes(200)] * 64, slots=70, data_bytes=16 << 10)
    assert restore_queue(path) == []
    assert len(contents(path)) == 64
    with penstock.open(path) as queue:
        queue.get().ack()
        queue.put(b"in its place")
    assert check_queue(path) == []


def test_files_that_were_cut_off_get_their_size_back(path: Path) -> None:
    made(path, [b"m%d" % i for i in range(30)])
    with open(path / "data.0", "r+b") as file:
        file.truncate(20 * L.UNIT_BYTES)
    findings = restore_queue(path)
    assert (findings[0].path, findings[0].offset) == (str(path / "data.0"), 20 * L.UNIT_BYTES)
    assert len(findings) == 1 + 10
    assert contents(path) == [b"m%d" % i for i in range(20)]
    with open(path / "kernel", "r+b") as file:
        file.truncate(5000)
    assert restore_queue(path)
    assert contents(path) == [b"m%d" % i for i in range(20)]


def test_findings_are_bounded(path: Path) -> None:
    made(path, [b"x"] * 40, slots=3000)
    with Disk(path) as disk:
        for slot in range(2, 3000):
            disk.put(slot, L.S_WORD, 12345 + slot << 16 | 3 << 12)
    findings = restore_queue(path)
    assert len(findings) == FINDINGS_MAX + 1
    assert "more findings" in findings[-1].what


# ---------------------------------------------------------------- whose kernel it is


def reason(path: Path) -> str | None:
    files = LocalFiles(path, read_options(path), busy_s=1)
    try:
        return restore.needed(files, Disk(path).words)
    finally:
        files.close()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (L.H_BOOT_ID, "another boot"),
        (L.H_BOOT_ID + 1, "another boot"),
        (L.H_DEVICE, "another disk"),
        (L.H_INODE, "copied"),
        (L.H_BIRTH_US, "copied"),
        (L.H_MOUNT, "mounted anew"),
        (L.H_REPAIRING, "a repair was cut short"),
        (L.H_SYNC_FAILED, "a sync has failed"),
    ],
)
def test_it_is_said_why_a_restore_is_needed(word: int, said: str, path: Path) -> None:
    made(path, [b"one"])
    restore_queue(path)
    assert reason(path) is None
    with Disk(path) as disk:
        disk.words[word] += 12345
    assert reason(path) == said
    restore_queue(path)
    assert reason(path) is None
    assert contents(path) == [b"one"]


def test_a_kernel_that_nobody_has_noted_is_not_trusted(path: Path) -> None:
    made(path, [b"one"])
    with Disk(path) as disk:
        for word in range(L.H_BOOT_ID, L.H_MOUNT + 1):
            disk.words[word] = 0
    assert reason(path)


def test_a_copy_gets_a_uuid_of_its_own_and_the_original_keeps_its(path: Path, tmp_path: Path) -> None:
    ids = made(path, [b"one", b"two"])
    restore_queue(path)
    uuid = read_options(path).uuid
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    assert reason(copy) == "copied"
    (note,) = restore_queue(copy)
    assert uuid in note.what
    assert read_options(copy).uuid != uuid
    assert contents(copy) == [b"one", b"two"]
    with penstock.open(copy) as queue:
        assert [message.id[16:] for message in queue.browse()] == [one[16:] for one in ids]
        assert all(message.id[:16] != ids[0][:16] for message in queue.browse())
    assert restore_queue(copy) == []
    assert restore_queue(path) == []
    assert read_options(path).uuid == uuid


def test_another_boot_keeps_the_uuid(path: Path) -> None:
    made(path, [b"one"])
    restore_queue(path)
    uuid = read_options(path).uuid
    with Disk(path) as disk:
        for word in (L.H_BOOT_ID, L.H_DEVICE, L.H_MOUNT):
            disk.words[word] ^= 5
    assert restore_queue(path) == []
    assert read_options(path).uuid == uuid


# ---------------------------------------------------------------- again, and cut short


def settled(path: Path) -> bytes:
    """The kernel without what goes on from restore to restore."""
    disk = Disk(path)
    stats_at = disk.words[L.H_STATS_AT]
    for word in (*GOES_ON, stats_at + L.T_RESTORES, stats_at + L.T_INDEX_SYNCS):
        disk.words[word] = 0
    return bytes(disk.data)


@pytest.fixture
def wrecked(path: Path) -> Path:
    """A queue with something of everything that a restore decides about."""
    with penstock.create(path, **SIZES) as queue:
        ids = [queue.put(b"single %d" % i, priority=i % 2, delay=9000 if i % 3 == 0 else None) for i in range(8)]
        torn = queue.put_many([b"torn %d" % i for i in range(3)])
        whole = queue.put_many([b"whole %d" % i for i in range(3)])
        spilled = queue.put(b"s" * 4000)
        queue.put(b"t" * 4000)
    (path / "bodies" / body_name(number_of(spilled), slot_of(spilled))).write_bytes(b"short")
    with Disk(path) as disk:
        for one in (*torn, *whole):
            disk.say(slot_of(one), number_of(one), FILLING)
        for i, one in enumerate(ids):
            tag = (number_of(one) & L.TAG_MASK) << L.TAG_SHIFT
            disk.put(slot_of(one), L.S_INFO, disk.get(slot_of(one), L.S_INFO) & 0xFFFFFF | tag | (i + 1) << 32)
        write(path / "data.0", disk.offset(slot_of(torn[1])) + L.RECORD_BYTES, b"?")
        write(path / "data.0", disk.offset(slot_of(ids[2])) + L.RECORD_BYTES, b"?")
        disk.say(slot_of(ids[3]), number_of(ids[3]), VACANT)
        disk.say(slot_of(ids[4]), number_of(ids[4]) - 1, WAITING)  # whose attempts are there is not known: tag of ours
        disk.put(slot_of(ids[5]), L.S_WORD, 77)
        disk.words[L.H_INCOMING] = disk.words[L.H_JOURNAL_COUNT] = 5
    return path


def test_twice_gives_the_same(wrecked: Path) -> None:
    assert len(restore_queue(wrecked)) == 3
    first = settled(wrecked)
    messages = everything(wrecked)
    assert restore_queue(wrecked) == []
    assert settled(wrecked) == first
    assert everything(wrecked) == messages
    bodies = {message[1] for message in messages}
    assert bodies == {b"single %d" % i for i in (0, 1, 4, 5, 6, 7)} | {b"whole %d" % i for i in range(3)} | {
        b"t" * 4000
    }
    attempts = {message[1]: message[3] for message in messages}
    assert attempts[b"single 1"] == 2
    assert attempts[b"single 4"] == attempts[b"single 5"] == 0


def test_a_dry_run_changes_nothing(wrecked: Path) -> None:
    before = {file: file.read_bytes() for file in wrecked.rglob("*") if file.is_file()}
    findings = restore_queue(wrecked, dry_run=True)
    assert {file: file.read_bytes() for file in wrecked.rglob("*") if file.is_file()} == before
    assert restore_queue(wrecked) == findings


def test_a_restore_that_is_killed_anywhere_and_done_again_ends_the_same(wrecked: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(wrecked, again)
    restore_queue(wrecked)
    expected = settled(wrecked)
    identity = slice(L.H_UUID * 8, (L.H_MOUNT + 1) * 8)
    step = 1
    while True:
        trial = tmp_path / f"trial{step}"
        shutil.copytree(again, trial)
        died = killed_at(step, restore_queue, partial(Path, trial))
        restore_queue(trial)
        found = settled(trial)
        assert found[: identity.start] == expected[: identity.start]
        assert found[identity.stop :] == expected[identity.stop :], step
        assert check_queue(trial) == []
        shutil.rmtree(trial)
        if not died:
            break
        step += 1 if step < 40 else 17
    assert step > 100


class Loss:
    """Notes stores into a kernel since its last sync; at a crash any subset of them is on disk."""

    def __init__(self, path: Path) -> None:
        self.kernel = str(path / "kernel")
        self.base = bytearray((path / "kernel").read_bytes())
        self.phases: list[list[tuple[int, int]]] = [[]]

    def store(self, path: str, index: int, value: int) -> None:
        if path == self.kernel:
            self.phases[-1].append((index, value))

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.SYNC:
            self.phases.append([])

    def images(self, rng: random.Random) -> list[bytes]:
        """A kernel as a power loss in each phase leaves it."""
        image = bytearray(self.base)
        words = memoryview(image).cast("Q")
        images = []
        for phase in self.phases:
            for share in (0.1, 0.5, 0.9):
                torn = bytearray(image)
                view = memoryview(torn).cast("Q")
                for index, value in phase:
                    if rng.random() < share:
                        view[index] = value
                images.append(bytes(torn))
            for index, value in phase:
                words[index] = value
        return images


def test_a_restore_that_loses_power_anywhere_and_is_done_again_ends_the_same(wrecked: Path) -> None:
    # With the first four, before the mark had a sync of its own, a kernel was believed whose attempts were gone.
    seeds = [1, 34, 46, 53, random.randrange(2**32)]
    print("seeds", seeds)
    loss = Loss(wrecked)
    rig.observe(loss)
    try:
        restore_queue(wrecked)
    finally:
        rig.observe(None)
    expected = settled(wrecked)
    assert sum(len(phase) for phase in loss.phases) > 100
    for seed in seeds:
        for image in loss.images(random.Random(seed)):
            if image == bytes(loss.base):
                continue
            (wrecked / "kernel").write_bytes(image)
            assert reason(wrecked) is not None or settled(wrecked) == expected, seed
            restore_queue(wrecked)
            assert settled(wrecked) == expected, seed


# ---------------------------------------------------------------- a kernel whose pages are current


def test_a_current_kernel_is_settled_first(path: Path) -> None:
    """The journal is rolled back, an incoming batch is published, and a put that nobody published is not there."""
    with penstock.create(path, **SIZES) as queue:
        one, two = queue.put(b"one"), queue.put(b"two")
        batch = queue.put_many([b"b0", b"b1"])
        lonely = queue.put(b"never published")
    restore_queue(path)  # notes whose kernel it is
    with Disk(path) as disk:
        for message_id, ahead in ((batch[0], slot_of(batch[1])), (batch[1], 0)):
            disk.say(slot_of(message_id), number_of(message_id), FILLING)
            disk.put(slot_of(message_id), L.S_CHAIN, ahead)
        disk.words[L.H_INCOMING] = slot_of(batch[0])
        disk.say(slot_of(lonely), number_of(lonely), FILLING)
        # A dead process was acknowledging the second message.
        journal = disk.words[L.H_JOURNAL_AT]
        disk.words[journal] = disk.at(slot_of(two))
        disk.words[journal + 1] = disk.get(slot_of(two))
        disk.words[L.H_JOURNAL_COUNT] = 1
        disk.say(slot_of(two), number_of(two), VACANT)
        disk.put(slot_of(one), L.S_INFO, disk.get(slot_of(one), L.S_INFO) | 3 << 32)
        data = bytes(disk.data)
    assert restore_queue(path, after_power_loss=False) == []
    assert contents(path) == [b"one", b"two", b"b0", b"b1"]
    assert everything(path)[0][3] == 3
    (path / "kernel").write_bytes(data)
    assert restore_queue(path, after_power_loss=True) == []
    assert contents(path) == [b"one", b"b0", b"b1", b"never published"]


def test_a_kernel_of_another_boot_is_not_current_whatever_the_caller_says(path: Path) -> None:
    with penstock.create(path, **SIZES) as queue:
        one = queue.put(b"one")
    restore_queue(path)
    with Disk(path) as disk:
        disk.say(slot_of(one), number_of(one), FILLING)
        disk.words[L.H_BOOT_ID] ^= 1
    assert restore_queue(path, after_power_loss=False) == []
    assert contents(path) == [b"one"]


# ---------------------------------------------------------------- after a sync that failed


class Watch:
    """Writes and syncs, in order, by descriptor or path."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int | str, int, int]] = []

    def store(self, path: str, index: int, value: int) -> None:
        if index == L.H_SYNC_FAILED and "(" not in path:
            self.calls.append(("failed word", path, index, value))

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        self.calls.append((kind, target, offset, len(data)))


def test_after_a_failed_sync_every_live_record_is_written_again_and_synced_first(path: Path) -> None:
    ids = made(path, [b"one", b"two", b"three"])
    restore_queue(path)
    with Disk(path) as disk:
        disk.words[L.H_SYNC_FAILED] = 5
        disk.say(slot_of(ids[1]), number_of(ids[1]), VACANT)
    before = (path / "data.0").read_bytes()
    watch = Watch()
    rig.observe(watch)
    try:
        assert restore_queue(path, after_power_loss=False) == []
    finally:
        rig.observe(None)
    kinds = [call[0] for call in watch.calls]
    written = [call for call in watch.calls if call[0] == rig.WRITE]
    assert sorted(call[2] for call in written) == [0, 512], "the record of what is gone is left alone"
    last_write = max(i for i, kind in enumerate(kinds) if kind == rig.WRITE)
    assert rig.SYNC in kinds[last_write : kinds.index("failed word")]
    assert (path / "data.0").read_bytes() == before
    assert Disk(path).words[L.H_SYNC_FAILED] == 0
    assert reason(path) is None


# ---------------------------------------------------------------- who may


def test_a_restore_needs_the_queue_alone(path: Path) -> None:
    made(path, [b"one"])
    with penstock.open(path), pytest.raises(penstock.Misuse, match="1 clients have the queue open"):
        restore_queue(path)


def test_progress_is_told_in_bytes(path: Path) -> None:
    made(path, [b"one"], data_bytes=20 << 20)
    told: list[tuple[int, int]] = []
    restore_queue(path, progress=lambda done, total: told.append((done, total)))
    assert len(told) >= 2
    assert told == sorted(told)
    assert told[-1] == (20 << 20, 20 << 20)


# ---------------------------------------------------------------- files of more than a chunk


def test_records_across_the_chunks_of_a_scan(path: Path) -> None:
    rng = random.Random(5)
    with penstock.create(path, **{**SIZES, "slots": 1000, "data_bytes": 40 << 20, "spill_bytes": 1 << 24}) as queue:
        for _ in range(500):
            queue.put(rng.randbytes(rng.randrange(120_000)))
        queue.put(bytes(9 << 20))
        queue.ack_many(queue.get_many(50))
    before = everything(path)
    with Disk(path) as disk:
        for slot in range(2, disk.words[L.H_SLOTS]):
            if disk.state(slot) == WAITING:
                disk.put(slot, L.S_WORD, 0)
    assert restore_queue(path) == []
    assert check_queue(path) == []
    assert everything(path) == before


@pytest.mark.parametrize(
    "delays_s",
    [(None,), (9000.0, 9001.0, 9002.0), (9000.0, 1e11), tuple(9000.0 + i * 7919 % 1009 for i in range(1009))],
    ids=["ready", "many at a time", "near and far", "each at another time"],
)
@pytest.mark.parametrize("laps", [0, 1])
def test_lists_are_in_order_whatever_the_order_of_the_records(
    delays_s: tuple[float | None, ...], laps: int, path: Path
) -> None:
    """After a lap of the data file records with higher numbers are in front of those with lower ones."""
    start = time.time()
    with penstock.create(path, **{**SIZES, "slots": 1200, "data_bytes": 1200 * L.UNIT_BYTES}) as queue:
        if laps:
            queue.put_many([b"gone"] * 700)
            queue.ack_many(queue.get_many(700))
        for i in range(1000):
            delay_s = delays_s[i % len(delays_s)]
            queue.put(b"%d" % i, priority=i % 3, deliver_at=None if delay_s is None else start + delay_s)
    before = everything(path)
    with Disk(path) as disk:
        for slot in range(2, disk.words[L.H_SLOTS]):
            if disk.state(slot) == WAITING:
                disk.put(slot, L.S_WORD, 0)
    assert restore_queue(path) == []
    assert check_queue(path) == []
    assert len(before) == 1000
    assert everything(path) == before


def test_a_record_inside_one_that_spans_two_chunks_is_none(path: Path) -> None:
    """At its own place, with the right checksum, and long enough to hide the record behind the one that it is in."""
    made(path, [], data_bytes=searching.CHUNK_UNITS * L.UNIT_BYTES * 3)
    border = searching.CHUNK_UNITS

    def built(unit: int, slot: int, body: bytes) -> bytes:
        signature = read_options(path).signature
        flags = L.FLAG_READY << L.FLAGS_SHIFT
        return record.build(signature, slot, 1, 1, slot, 1, 0, flags, b"", body, record.crc32(body), unit)

    def at(unit: int) -> int:
        return unit * L.UNIT_BYTES

    behind = built(border + 50, 3, b"behind")
    room = bytearray(at(70))  # from unit border + 10 on
    room[at(40) : at(40) + len(behind)] = behind
    inner = built(border + 10, 4, bytes(room[L.RECORD_BYTES :]))
    body = bytes(at(20) - L.RECORD_BYTES) + inner[: at(40)]  # the outer one starts 10 units before the border
    outer = built(border - 10, 2, body)
    with open(path / "data.0", "r+b") as file:
        file.seek(at(border - 10))
        file.write(outer)
        file.seek(at(border + 10))
        file.write(inner)
        file.seek(at(border + 50))
        file.write(behind)
    assert record.fault(inner, read_options(path).signature, 4, 4, border + 10) is None
    assert restore_queue(path) == []
    assert contents(path) == [body, b"behind"]


@pytest.mark.parametrize("failing", range(1, 5))
def test_after_a_sync_that_failed_in_a_restore_the_next_one_writes_every_page(wrecked: Path, failing: int) -> None:
    """The system leaves the pages of a failed sync clean: what looks right in memory may not be on the disk."""

    class Fails(Loss):
        syncs = 0

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.SYNC and Path(os.readlink(f"/proc/self/fd/{target}")).name in ("kernel", "data.0"):
                self.syncs += 1
                if self.syncs == failing:
                    raise OSError(errno.EIO, "it failed")

    rig.observe(Fails(wrecked))
    try:
        with pytest.raises(OSError, match="it failed"):
            restore_queue(wrecked)
    finally:
        rig.observe(None)
    loss = Loss(wrecked)
    rig.observe(loss)
    try:
        restore_queue(wrecked)
    finally:
        rig.observe(None)
    page_words = L.PAGE_BYTES // L.WORD_BYTES
    pages = {index // page_words for phase in loss.phases for index, _ in phase}
    assert pages == set(range(len(loss.base) // L.PAGE_BYTES))
    with penstock.open(wrecked) as queue:
        assert queue.stats().sync_failed is None
