"""Many records into columns: what is copied is checked, and what is not the message's record is not taken for it."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

import penstock
from penstock.codec import decode_meta
from penstock.store import gather as G
from penstock.store import layout as L

BODIES = [random.Random(size).randbytes(size) for size in (0, 1, 199, 200, 201, 255, 256, 257, 1000, 5000)]


def references(q: Any) -> array[int]:
    kernel = q._mine().kernel
    found = array("Q")
    for message in sorted(q.browse(state="all"), key=lambda m: m.number):
        slot = message.slot
        fields = [kernel.field(slot, field) for field in (L.S_PLACE, L.S_DELIVER_US, L.S_INFO)]
        found.extend([slot, message.number, *fields])
    return found


def gather_of(q: Any, *, copies: bool = False) -> G.Gather:
    client = q._mine()
    return G.Gather(client.files.mappings(), client.signature, client.files.descriptors() if copies else ())


def bodies_of(found: G.Collected) -> list[bytes]:
    ends = found.body_ends
    return [bytes(found.bodies[ends[i] : ends[i + 1]]) for i in range(len(ends) - 1)]


@pytest.fixture(params=[1, 3])
def filled(request: pytest.FixtureRequest, queue: Any, tmp_path: Any) -> Any:
    """A queue with one data file, or with several."""
    folders = [tmp_path / f"disk{i}" for i in range(request.param)] if request.param > 1 else []
    q = queue(data_bytes=96 << 10, data_dirs=folders)
    for i, body in enumerate(BODIES):
        q.put(body, type="t" * i if i % 2 else None, headers={"ä": "b"} if i % 3 == 0 else None, priority=i)
    return q


def test_bodies_and_meta_come_out_as_they_were_put(filled: Any) -> None:
    messages = sorted(filled.browse(), key=lambda m: m.number)
    gather = gather_of(filled)
    found = gather.collect(references(filled), 0, len(BODIES), True)
    gather.close()
    assert bodies_of(found) == BODIES
    assert [decode_meta(meta) for meta in found.metas] == [m.meta for m in messages]
    assert list(found.enqueued_us) == [m.enqueued_us for m in messages]
    assert set(found.faults) == {G.GATHERED}


def test_equal_metas_are_one_object(queue: Any) -> None:
    """So that whoever decodes them need not compare them all."""
    q = queue()
    q.put_many([penstock.Draft(body=b"a", type=name) for name in ["some"] * 3 + ["other"]])
    refs = references(q)
    gather = gather_of(q)
    one, two = gather.collect(refs, 0, 3, True), gather.collect(refs, 0, 4, True)
    gather.close()
    assert (one.one_meta, two.one_meta) == (True, False)
    assert two.metas[0] is two.metas[2] and len({id(meta) for meta in one.metas}) == 1


@pytest.mark.parametrize("disks", [1, 3])
@pytest.mark.parametrize("shuffled", [False, True])
def test_records_are_the_same_whether_they_are_copied_or_mapped(
    queue: Any, tmp_path: Any, disks: int, shuffled: bool
) -> None:
    """In runs of their places, beside gaps, over the end of a file, and one by one where they lie anywhere."""
    rng = random.Random(3)
    folders = [tmp_path / f"disk{i}" for i in range(disks)] if disks > 1 else []
    q = queue(slots=2000, data_bytes=6 << 20, data_dirs=folders)
    for size in [rng.choice((0, 10, 199, 200, 3000, 40_000)) for _ in range(600)]:
        q.put(rng.randbytes(size), type="t" if size % 3 else None)
    for message in [q.get(block=False) for _ in range(50)][::2]:
        message.ack()
    refs = references(q)
    rows = [refs[at : at + G.REFERENCE_WORDS] for at in range(0, len(refs), G.REFERENCE_WORDS)]
    if shuffled:
        rng.shuffle(rows)
        refs = array("Q", [word for row in rows for word in row])
    found = []
    for copies in (False, True):
        gather = gather_of(q, copies=copies)
        found.append([gather.collect(refs, first, 100, True) for first in range(0, len(rows) - 100, 100)])
        gather.close()
    for mapped, copied in zip(*found, strict=True):
        assert set(copied.faults) == {G.GATHERED}
        assert bodies_of(mapped) == bodies_of(copied)
        assert (mapped.metas, mapped.enqueued_us, mapped.flags) == (copied.metas, copied.enqueued_us, copied.flags)


def test_what_lies_in_a_row_is_read_without_the_mapping(queue: Any) -> None:
    q = queue(data_bytes=256 << 10)
    q.put_many([b"a" * 1000] * 50)
    client = q._mine()
    nothing = [(first, end, bytes((end - first) * L.UNIT_BYTES)) for first, end, _ in client.files.mappings()]
    gather = G.Gather(nothing, client.signature, client.files.descriptors())
    found = gather.collect(references(q), 0, 50, True)
    gather.close()
    assert bodies_of(found) == [b"a" * 1000] * 50


def test_a_part_of_the_references(filled: Any) -> None:
    gather = gather_of(filled)
    found = gather.collect(references(filled), 3, 4, True)
    gather.close()
    assert bodies_of(found) == BODIES[3:7]


def test_without_bodies_only_heads_are_read(filled: Any) -> None:
    gather = gather_of(filled)
    found = gather.collect(references(filled), 0, len(BODIES), False)
    gather.close()
    assert len(found.bodies) == 0
    assert set(found.body_ends) == {0}
    assert [decode_meta(meta).t for meta in found.metas] == ["t" * i if i % 2 else None for i in range(len(BODIES))]


@pytest.mark.damages
@pytest.mark.parametrize("offset", [0, 8, 16, 32, 44, 48, 53, 60, 90])
def test_a_flipped_bit_is_noticed(queue: Any, offset: int) -> None:
    q = queue()
    q.put_many([b"a" * 50, b"b" * 50, b"c" * 50], type="some")
    refs = references(q)
    unit = refs[G.REFERENCE_WORDS + G.F_PLACE] >> L.PLACE_SHIFT
    files = q._mine().files
    data = bytearray(files.read(unit, 1))
    data[offset] ^= 4
    files.write(unit, bytes(data))
    gather = gather_of(q)
    found = gather.collect(refs, 0, 3, True)
    gather.close()
    assert list(found.faults) == [G.GATHERED, G.NOT_THERE, G.GATHERED]
    assert bodies_of(found) == [b"a" * 50, b"", b"c" * 50]


@pytest.mark.damages
@pytest.mark.parametrize("offset", [0, 8, 32, 44, 53, 60, 90, 900])
def test_a_flipped_bit_is_noticed_among_many(queue: Any, offset: int) -> None:
    q = queue(data_bytes=128 << 10)
    bodies = [bytes([i]) * 1000 for i in range(60)]
    q.put_many(bodies, type="some")
    refs = references(q)
    unit = refs[30 * G.REFERENCE_WORDS + G.F_PLACE] >> L.PLACE_SHIFT
    files = q._mine().files
    data = bytearray(files.read(unit, 4))
    data[offset] ^= 4
    files.write(unit, bytes(data))
    gather = gather_of(q, copies=True)
    found = gather.collect(refs, 0, 60, True)
    gather.close()
    assert [i for i, fault in enumerate(found.faults) if fault != G.GATHERED] == [30]
    assert bodies_of(found) == [b"" if i == 30 else body for i, body in enumerate(bodies)]


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("field", [G.F_SLOT, G.F_NUMBER, G.F_PLACE])
def test_another_message_s_record_is_not_taken_for_it(queue: Any, field: int, copies: bool) -> None:
    q = queue(data_bytes=128 << 10)
    q.put_many([b"a" * 5000] * 9)
    refs = references(q)
    refs[field] = refs[G.REFERENCE_WORDS + field]
    gather = gather_of(q, copies=copies)
    found = gather.collect(refs, 0, 9, True)
    gather.close()
    assert list(found.faults) == [G.NOT_THERE, *[G.GATHERED] * 8]


@pytest.mark.parametrize("place", [0, 1 << 62, 1 << L.PLACE_SHIFT | L.PLACE_MASK, (1 << 40) - 1 << L.PLACE_SHIFT | 1])
def test_a_place_outside_of_the_files_is_not_read(queue: Any, place: int) -> None:
    q = queue(data_bytes=128 << 10)
    q.put_many([b"a" * 5000] * 9)
    refs = references(q)
    refs[8 * G.REFERENCE_WORDS + G.F_PLACE] = place
    for copies, bodies in ((False, False), (True, True)):
        if bodies and place & L.PLACE_MASK == L.PLACE_MASK:
            continue  # so much room nobody has
        gather = gather_of(q, copies=copies)
        found = gather.collect(refs, 0, 9, bodies)
        gather.close()
        assert list(found.faults) == [*[G.GATHERED] * 8, G.NOT_THERE]


def test_a_message_that_has_left_is_not_there_any_more(queue: Any) -> None:
    q = queue()
    q.put_many([b"a", b"b", b"c"])
    refs = references(q)
    q.get(block=False).ack()
    q.get(block=False)
    faults = array("B", bytes(3))
    client = q._mine()
    with memoryview(client.files.kernel) as data, data.cast("Q") as words:
        G.still_there(words, words[L.H_SLOTS_AT], refs, 0, 3, faults)
    assert list(faults) == [G.NOT_THERE, G.GATHERED, G.GATHERED]


def test_ids_are_those_of_the_queue(queue: Any) -> None:
    q = queue()
    ids = list(q.put_many([b"a", b"b", b"c"]))
    prefix = q._mine().id_prefix.encode()
    data, ends = G.identify(prefix, references(q), 0, 3)
    assert [bytes(data[ends[i] : ends[i + 1]]).decode() for i in range(3)] == ids
    large = array("Q", [0xFFFFFFFF, (1 << 48) - 1, 0, 0, 0, 16, 0, 0, 0, 0])
    data, ends = G.identify(b"p-", large, 0, 2)
    assert list(ends) == [0, 23, 29]
    assert bytes(data[: ends[2]]) == b"p-ffffffff-ffffffffffffp-10-0"


def test_metas_are_told_apart_and_those_that_are_not_there_say_nothing() -> None:
    known = {b"b": 0}
    which = array("i", [9] * 6)
    faults = array("B", [G.GATHERED, G.GATHERED, G.GATHERED, G.NOT_THERE, G.GATHERED, G.NOT_THERE])
    G.tell_apart([b"a", b"b", b"a", b"c", b"", b"a"], faults, known, which)
    assert list(known) == [b"b", b"a", b""] and list(which) == [1, 0, 1, 2, 2, 2]
