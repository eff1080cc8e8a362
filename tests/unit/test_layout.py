"""The numbers of layout.py fit together: regions, sizes, places beyond 4 GiB, and their copy for the compiled core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import record
from penstock.store.blank import initialise
from penstock.store.kernel import NO_ROOM, NO_SLOT, Kernel
from penstock.store.words import Words

ROOT = Path(__file__).resolve().parents[2]

SLOTS = (2, 3, 31, 32, 1000, 65_538, 1_000_002, L.SLOTS_MAX)


def sizes(slots: int) -> dict[int, int]:
    return {
        L.H_JOURNAL_AT: L.JOURNAL_ENTRIES * L.JOURNAL_WORDS * L.WORD_BYTES,
        L.H_STATS_AT: L.STATS_WORDS * L.WORD_BYTES,
        L.H_LISTS_AT: L.LISTS * L.LIST_WORDS * L.WORD_BYTES,
        L.H_CLIENTS_AT: L.CLIENTS * L.CLIENT_WORDS * L.WORD_BYTES,
        L.H_CLASSES_AT: L.class_entries(slots) * L.CLASS_WORDS * L.WORD_BYTES,
        L.H_NAMES_AT: L.NAMES_BYTES,
        L.H_SLOTS_AT: slots * L.SLOT_BYTES,
        L.H_TREES_AT: slots * L.TREE_WORDS * L.WORD_BYTES,
    }


@pytest.mark.parametrize("slots", SLOTS)
def test_regions_are_page_aligned_and_do_not_overlap(slots: int) -> None:
    header = L.regions(slots)
    end = L.HEADER_WORDS * L.WORD_BYTES
    for word, size_bytes in sizes(slots).items():
        start = header[word] * L.WORD_BYTES
        assert start % L.PAGE_BYTES == 0
        assert start == end
        end = start + -(-size_bytes // L.PAGE_BYTES) * L.PAGE_BYTES
    assert header[L.H_KERNEL_BYTES] == end


@pytest.mark.parametrize("slots", SLOTS)
def test_a_kernel_without_trees_is_as_it_was(slots: int) -> None:
    header, before = L.regions(slots), L.regions(slots, trees=False)
    assert before[L.H_FEATURES] == before[L.H_TREES_AT] == 0
    assert before[L.H_KERNEL_BYTES] == header[L.H_TREES_AT] * L.WORD_BYTES
    differ = {word for word in header if header[word] != before[word]}
    assert differ == {L.H_FEATURES, L.H_TREES_AT, L.H_KERNEL_BYTES}


@pytest.mark.parametrize("slots", SLOTS)
def test_every_word_of_a_kernel_has_an_index_of_32_bits(slots: int) -> None:
    assert L.regions(slots)[L.H_KERNEL_BYTES] // L.WORD_BYTES <= 1 << 32


@pytest.mark.parametrize("slots", SLOTS)
def test_a_kernel_is_little_more_than_its_slots(slots: int) -> None:
    assert L.regions(slots)[L.H_KERNEL_BYTES] <= slots * 168 + 225_000


def test_regions_describe_themselves() -> None:
    header = L.regions(500)
    assert header[L.H_MAGIC] == L.MAGIC
    assert header[L.H_FORMAT] == L.FORMAT
    assert header[L.H_SLOTS] == 500
    assert header[L.H_JOURNAL_ENTRIES] == L.JOURNAL_ENTRIES
    assert header[L.H_CLIENTS] == L.CLIENTS
    assert header[L.H_CLASSES] == L.class_entries(500)
    assert header[L.H_NAMES_BYTES] == L.NAMES_BYTES


def test_a_slot_never_spans_a_block() -> None:
    """S4. Regions start on pages, so it is enough that slots divide the smallest block that disks have."""
    assert 512 % L.SLOT_BYTES == 0
    assert L.regions(1000)[L.H_SLOTS_AT] * L.WORD_BYTES % L.PAGE_BYTES == 0
    assert L.S_LANES * L.WORD_BYTES + 3 * L.WORD_BYTES <= 64  # what a search reads is one cache line


def test_sizes_agree() -> None:
    assert L.RECORD.size == L.RECORD_BYTES == L.RECORD_WORDS * L.WORD_BYTES
    assert L.RECORD_HEAD.size == L.RECORD_BYTES - 4
    assert L.SLOT_WORDS * L.WORD_BYTES == L.SLOT_BYTES
    assert L.UNIT_WORDS * L.WORD_BYTES == L.UNIT_BYTES
    assert L.HEADER_WORDS * L.WORD_BYTES == L.STATS_WORDS * L.WORD_BYTES == L.PAGE_BYTES
    assert L.PAGE_BYTES % L.UNIT_BYTES == 0
    assert L.RECORD_BYTES + L.SPILL.size <= L.UNIT_BYTES
    assert L.META_BYTES_MAX == penstock.codec.META_BYTES_MAX
    assert L.CLIENTS - 1 <= L.CLIENT_MASK
    assert L.JOURNAL_ROOM < L.JOURNAL_ENTRIES


def test_the_futex_words_have_cache_lines_of_their_own() -> None:
    assert {word * L.WORD_BYTES % 64 for word in (L.H_WAKE, L.H_ROOM, L.H_SYNC_BEGUN)} == {0}
    assert L.H_SLEEPERS == L.H_WAKE + 1 and L.H_ROOM_SLEEPERS == L.H_ROOM + 1  # as arm() expects


@pytest.mark.parametrize("payload_bytes", [0, 1, 199, 200, 201, 455, 456, 457, 10_000, 1 << 32])
def test_units_are_as_many_as_header_and_payload_need(payload_bytes: int) -> None:
    units = L.units(payload_bytes)
    assert (units - 1) * L.UNIT_BYTES < L.RECORD_BYTES + payload_bytes <= units * L.UNIT_BYTES


def test_the_copy_for_the_compiled_core_is_up_to_date() -> None:
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, str(ROOT / "tools/layout_pxd.py"), "--check"]
    assert subprocess.run(command, env=environment, check=False).returncode == 0, "run tools/layout_pxd.py"


# ---------------------------------------------------------------- S3: past 4 GiB


class Sparse:
    """A kernel in memory over data files that exist only as numbers."""

    def __init__(self, slots: int, file_units: list[int]) -> None:
        header = L.regions(slots + 1 + len(file_units))
        self.words = Words(bytearray(header[L.H_KERNEL_BYTES]), "none")
        initialise(self.words, header, file_units)
        self.kernel = Kernel(self.words)

    def take(self, units: int) -> tuple[int, int]:
        """First unit and units of a new message's place."""
        slot = self.kernel.take(units)
        assert slot not in (NO_SLOT, NO_ROOM)
        self.kernel.commit()
        place = self.kernel.field(slot, L.S_PLACE)
        return place >> L.PLACE_SHIFT, place & L.PLACE_MASK


@pytest.mark.parametrize("total_bytes", [9 << 30, 1 << 42, 1 << 46])
def test_records_find_their_places_beyond_four_gib(total_bytes: int) -> None:
    total_units = total_bytes // L.UNIT_BYTES
    sparse = Sparse(slots=1 << 16, file_units=[total_units])
    end = 0
    while total_units - end > L.UNITS_MAX:
        assert sparse.take(L.UNITS_MAX) == (end, L.UNITS_MAX)
        end += L.UNITS_MAX
    assert end * L.UNIT_BYTES > 1 << 32
    assert sparse.take(1) == (end, 1)
    assert sparse.kernel.get(L.H_USED_UNITS) == end + 1


def test_each_of_several_large_files_is_filled_to_its_end() -> None:
    file_units = [(6 << 30) // L.UNIT_BYTES] * 3
    sparse = Sparse(slots=100, file_units=file_units)
    half = file_units[0] // 2  # 3 GiB
    assert [sparse.take(half)[0] for _ in range(6)] == [half * i for i in range(6)]
    assert sparse.kernel.take(1) == NO_ROOM


def test_a_record_knows_its_place_beyond_four_gib() -> None:
    low, high = 7, 7 + (1 << 32)  # alike in their lower 32 bits
    data = record.build(1, 2, 3, 4, 5, 1, 0, 0, b"", b"body", record.crc32(b"body"), high)
    assert record.fault(data, 1, 2, 5, high) is None
    assert record.fault(data, 1, 2, 5, low) is not None


def test_the_largest_place_fits_its_word() -> None:
    largest_unit = (1 << 46) // L.UNIT_BYTES - 1  # create() allows no more data
    assert (largest_unit << L.PLACE_SHIFT | L.UNITS_MAX) <= L.MASK64
    assert L.SLOTS_MAX + 1 + L.FILES_MAX <= L.MASK32
