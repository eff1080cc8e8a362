"""References come back from the disk as they were, whatever they are, and in part."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store import layout as L
from penstock.store import packing
from penstock.store.gather import REFERENCE_WORDS

WORDS = st.one_of(
    st.integers(0, L.MASK64), st.integers(0, 300), st.sampled_from([0, 1, L.MASK64, 1 << 63, (1 << 63) - 1])
)


def _lined_up(count: int) -> array[int]:
    """References of messages that were put one after another."""
    return array(
        "Q", [word for i in range(count) for word in (i + 1, i + 100, (i * 4) << 24 | 4, 5_000 + i // 1000, 9)]
    )


@given(st.lists(st.tuples(*[WORDS] * REFERENCE_WORDS), max_size=40))
def test_any_words_come_back(rows: list[tuple[int, ...]]) -> None:
    flat = array("Q", [word for row in rows for word in row])
    assert packing.unpack(packing.pack(flat), len(rows), 0, len(rows)) == flat


@pytest.mark.parametrize("count", [0, 1, 2, 4095, 4096, 4097, 10_000])
def test_a_part_is_what_it_is_of_the_whole(count: int) -> None:
    rows = _lined_up(count)
    data = packing.pack(rows)
    for first, end in ((0, count), (0, 1), (1, 3), (4000, 4096), (4096, 8192), (4095, 4097), (count - 1, count)):
        first, end = max(first, 0), min(end, count)
        part = rows[first * REFERENCE_WORDS : max(end, first) * REFERENCE_WORDS]
        assert packing.unpack(data, count, first, end) == part, (first, end)


def block(data: bytes) -> bytes:
    return packing.BLOCK_HEAD.pack(len(data)) + data


def test_what_is_written_is_what_the_format_says() -> None:
    rows = array("Q", [7, 1, 64, 5, 0, 8, 2, 128, 5, 0, 9, 3, 192, 5, 0, 10, 4, 255, 5, 0])
    said = b"\x00\x0f\x0e\x02\x80\x01\x0a", b"\x00\x07\x02\x02\x80\x01", b"\x01\x04\x01"
    assert packing.pack(rows) == block(b"".join(said))
    assert packing.unpack(block(b"".join(said)), 4, 0, 4) == rows


def test_messages_that_were_put_in_a_row_take_few_bytes() -> None:
    assert len(packing.pack(_lined_up(10_000))) < 200


@pytest.mark.parametrize("count", [1, 4096, 5000])
def test_bytes_that_are_no_references_are_refused(count: int) -> None:
    data = packing.pack(_lined_up(count))
    head = packing.BLOCK_HEAD.size
    wrong = [
        (data[:-1], count),
        (data + b"\0", count),
        (data, count + 1),
        (data, count - 1),
        (b"", count),
        (data[: head - 1], count),
        (packing.BLOCK_HEAD.pack(1 << 60) + data[head:], count),
        (data[:head] + b"\x80" * (len(data) - head), count),
        (block(b"\x81\x80\x04"), 1),  # more than there are
        (block(b"\x00\x00"), 1),  # which words? None
        (block(b"\x00\x20\x02"), 1),  # a sixth one
        (block(b"\x00\x01"), 1),
        (block(b"\x00"), 1),
        (block(b"\x00\x01" + 10 * b"\xff" + b"\x01"), 1),
        (block(b"\x00\x01\x02\x00"), 1),  # something behind them
    ]
    for each, number in wrong:
        with pytest.raises(packing.Unreadable):
            packing.unpack(each, number, 0, number)
