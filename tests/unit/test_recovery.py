"""Check finds damage of every kind, with file and offset; repair brings back what the records confirm."""

import json
import random
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.timequeue import check_queue, repair_queue


@pytest.fixture
def full(tmp_path: Path) -> Path:
    path = tmp_path / "queue"
    with penstock.create(path, slots=50, data_bytes=64 << 10, spill_bytes=3000, durability="relaxed") as queue:
        for i in range(30):
            queue.put(b"message %d" % i, priority=i % 4, delay=1000 + i if i % 3 == 0 else None)
        queue.put(b"x" * 5000)
        queue.ack_many(queue.get_many(6))
    return path


def contents(path: Path) -> list[bytes]:
    with penstock.open(path) as queue:
        return [message.data for message in queue.browse()]


def words_of(path: Path) -> tuple[bytearray, memoryview]:
    data = bytearray((path / "kernel").read_bytes())
    return data, memoryview(data).cast("Q")


def test_a_whole_queue_has_no_findings(full: Path) -> None:
    assert check_queue(full) == []
    assert repair_queue(full) == []


def test_checking_works_while_others_use_the_queue(full: Path) -> None:
    with penstock.open(full) as queue:
        messages = queue.get_many(3)
        assert check_queue(full) == []
        queue.ack_many(messages)


HEADER = [
    L.H_MAGIC, L.H_FORMAT, L.H_SLOTS_AT, L.H_SLOTS, L.H_FILES, L.H_DATA_UNITS, L.H_NUMBER_NEXT, L.H_VACANT, L.H_FRESH,
    L.H_WAITING, L.H_PENDING, L.H_FILLING, L.H_PRESENT, L.H_CURSOR, L.H_GAPS, L.H_USED_UNITS,
]  # fmt: skip


@pytest.mark.parametrize("word", HEADER)
def test_a_damaged_header_word_is_found_and_repaired(word: int, full: Path) -> None:
    before = contents(full)
    data, view = words_of(full)
    view[word] = view[word] // 2 + 1 if view[word] != 1 else 7
    (full / "kernel").write_bytes(data)
    findings = check_queue(full)
    assert findings
    assert all(finding.path and finding.offset >= 0 and finding.what for finding in findings)
    assert repair_queue(full, dry_run=True) == findings
    assert check_queue(full) == findings, "a dry run changes nothing"
    assert repair_queue(full)
    assert check_queue(full) == []
    assert sorted(contents(full)) == sorted(before)


def test_random_damage_in_links_and_lists_is_found_and_repaired(full: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    before = contents(full)
    whole = (full / "kernel").read_bytes()
    fields = [L.S_LINKS, L.S_RING, L.S_GAP, L.S_CHAIN, L.S_LANES, L.S_OWNER, L.S_LEASE_US]
    for _ in range(60):
        data = bytearray(whole)
        view = memoryview(data).cast("Q")
        at = view[L.H_SLOTS_AT]
        for _ in range(3):
            slot = rng.randrange(2, view[L.H_FRESH])
            view[at + slot * L.SLOT_WORDS + rng.choice(fields)] = rng.choice(
                (0, rng.randrange(60), rng.getrandbits(64))
            )
        (full / "kernel").write_bytes(data)
        if check_queue(full):
            assert repair_queue(full)
        assert check_queue(full) == []
        assert contents(full) == before, "order included"


def test_a_damaged_record_is_reported_with_its_offset_and_set_aside(full: Path) -> None:
    before = contents(full)
    data = bytearray((full / "data.0").read_bytes())
    victim = data.index(b"message 13")
    data[victim] ^= 1
    (full / "data.0").write_bytes(data)
    (finding,) = check_queue(full)
    assert finding.path.endswith("data.0")
    assert finding.offset == victim // L.UNIT_BYTES * L.UNIT_BYTES
    repair_queue(full)
    assert check_queue(full) == []
    assert contents(full) == [body for body in before if body != b"message 13"]
    kept, known = sorted((full / "damaged").iterdir())
    assert b"essage 13" in kept.read_bytes()
    assert json.loads(known.read_text())["offset"] == finding.offset


def test_a_missing_body_file_is_reported(full: Path) -> None:
    (body,) = (full / "bodies").iterdir()
    body.unlink()
    (finding,) = check_queue(full)
    assert "its body" in finding.what


def test_a_repair_needs_the_queue_alone(full: Path) -> None:
    with penstock.open(full) as queue:
        queue._mine().words.raw(L.H_USED_UNITS, 3)
        with pytest.raises(penstock.Misuse, match="1 clients have the queue open"):
            repair_queue(full)
        queue._mine().words.raw(L.H_USED_UNITS, queue._mine().kernel.get(L.H_USED_UNITS))


def test_a_repair_that_was_cut_short_is_not_mistaken_for_a_queue(full: Path) -> None:
    before = contents(full)
    data, view = words_of(full)
    view[L.H_REPAIRING] = 1
    (full / "kernel").write_bytes(data)
    assert check_queue(full)
    with penstock.open(full) as queue:  # which does it again
        assert queue.stats().restores == 1
    assert contents(full) == before


def test_slots_whose_room_must_stay_are_vacant_and_in_the_ring(full: Path) -> None:
    """As after an ack whose index sync is still to come: off the lists, on no stack, the room still taken."""
    data, view = words_of(full)
    at = view[L.H_SLOTS_AT]

    def field(slot: int, name: int) -> int:
        return at + slot * L.SLOT_WORDS + name

    first, second = view[L.H_VACANT], view[field(view[L.H_VACANT], L.S_CHAIN)]
    view[L.H_VACANT] = view[field(second, L.S_CHAIN)]
    cursor = view[L.H_CURSOR]
    last_unit = view[field(cursor, L.S_PLACE)] >> L.PLACE_SHIFT, view[field(cursor, L.S_PLACE)] & L.PLACE_MASK
    place = sum(last_unit)
    following = view[field(cursor, L.S_RING)] & L.MASK32
    before = cursor
    for slot, unit in ((first, place), (second, place + 1)):
        view[field(slot, L.S_PLACE)] = unit << L.PLACE_SHIFT | 1
        view[field(before, L.S_RING)] = view[field(before, L.S_RING)] >> 32 << 32 | slot
        view[field(slot, L.S_RING)] = following | before << 32
        view[field(slot, L.S_CHAIN)] = 0
        before = slot
    view[field(following, L.S_RING)] = view[field(following, L.S_RING)] & L.MASK32 | second << 32
    view[L.H_CURSOR] = second
    view[L.H_USED_UNITS] += 2
    view[L.H_RETAINED], view[L.H_RETIRING], view[L.H_KEPT] = first, second, 2
    (full / "kernel").write_bytes(data)
    assert check_queue(full) == []
    view[L.H_KEPT] = 1
    (full / "kernel").write_bytes(data)
    (finding,) = check_queue(full)
    assert finding.offset == L.H_KEPT * L.WORD_BYTES
    view[L.H_KEPT], view[L.H_RETIRING] = 1, 0
    (full / "kernel").write_bytes(data)
    assert any(f"slot {second}" in finding.what for finding in check_queue(full))


def test_a_limit_below_safe_numbers_is_found(full: Path) -> None:
    data, view = words_of(full)
    view[L.H_NUMBER_SAFE] = view[L.H_NUMBER_LIMIT] + 1
    (full / "kernel").write_bytes(data)
    (finding,) = check_queue(full)
    assert finding.offset == L.H_NUMBER_SAFE * L.WORD_BYTES


@pytest.mark.parametrize("name", ["kernel", "data.0"])
def test_what_is_behind_the_end_of_a_file_is_cut_off_by_a_repair(full: Path, name: str) -> None:
    before = contents(full)
    size_bytes = (full / name).stat().st_size
    with open(full / name, "ab") as file:
        file.write(b"more")
    with pytest.raises(penstock.Corrupt, match=name):
        penstock.open(full)
    dry = repair_queue(full, dry_run=True)
    assert [(Path(finding.path).name, finding.offset) for finding in dry] == [(name, size_bytes + 4)]
    assert repair_queue(full) == dry
    assert (full / name).stat().st_size == size_bytes
    assert contents(full) == before
