"""Many records into columns: what is copied is checked, and what is not the message's record is not taken for it."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

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


def gather_of(q: Any) -> G.Gather:
    client = q._mine()
    return G.Gather(client.files.mappings(), client.signature)


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


@pytest.mark.parametrize("field", [G.F_SLOT, G.F_NUMBER, G.F_PLACE])
def test_another_message_s_record_is_not_taken_for_it(queue: Any, field: int) -> None:
    q = queue()
    q.put_many([b"a", b"b"])
    refs = references(q)
    refs[field] = refs[G.REFERENCE_WORDS + field]
    gather = gather_of(q)
    found = gather.collect(refs, 0, 2, True)
    gather.close()
    assert list(found.faults) == [G.NOT_THERE, G.GATHERED]


@pytest.mark.parametrize("place", [0, 1 << 62, 1 << L.PLACE_SHIFT | L.PLACE_MASK, (1 << 40) - 1 << L.PLACE_SHIFT | 1])
def test_a_place_outside_of_the_files_is_not_read(queue: Any, place: int) -> None:
    q = queue()
    q.put(b"a")
    refs = references(q)
    refs[G.F_PLACE] = place
    gather = gather_of(q)
    found = gather.collect(refs, 0, 1, False)
    gather.close()
    assert list(found.faults) == [G.NOT_THERE]


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
