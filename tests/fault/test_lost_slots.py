"""A slot of which a power loss left nothing, neither its word nor a record, between others that were used."""

from pathlib import Path

import penstock
from penstock.store import layout as L
from penstock.timequeue import check_queue, restore_queue


def test_a_slot_of_which_nothing_is_left_is_vacant_after_a_restore(path: Path) -> None:
    with penstock.create(path, slots=8, data_bytes=64 << 10) as queue:
        for text in (b"first", b"second", b"third"):
            queue.put(text)
        lost = list(queue.browse())[1]
        kernel = queue._mine().kernel
        at = kernel.get(L.H_SLOTS_AT) + lost.slot * L.SLOT_WORDS
        unit = kernel.field(lost.slot, L.S_PLACE) >> L.PLACE_SHIFT
    _zero(path / "kernel", at * L.WORD_BYTES, L.SLOT_WORDS * L.WORD_BYTES)
    _zero(path / "data.0", unit * L.UNIT_BYTES, L.UNIT_BYTES)

    assert restore_queue(path, after_power_loss=True) == []

    assert check_queue(path) == []
    with penstock.open(path) as queue:
        assert queue.stats().vacant == 6
        for _ in range(6):
            queue.put(b"more")  # the slot is among those that can be used
        assert [message.data for message in queue.get_many(10)] == [b"first", b"third", *[b"more"] * 6]


def _zero(path: Path, offset: int, count: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(bytes(count))
