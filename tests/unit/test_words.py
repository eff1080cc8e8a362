import pytest

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.words import Words
from tests.unit.kernels import small_kernel


def image(words: Words) -> bytes:
    return bytes(words.view)


def test_a_committed_transaction_stays() -> None:
    words = small_kernel().words
    words.begin()
    words.put(L.H_WAITING, 7)
    words.add(L.H_WAITING, -2)
    words.commit()
    assert words.view[L.H_WAITING] == 5
    assert words.view[L.H_JOURNAL_COUNT] == 0
    assert not words.begin()


def test_an_open_transaction_is_undone_newest_first() -> None:
    words = small_kernel().words
    before = image(words)
    words.begin()
    for value in (1, 2, 3):
        words.put(L.H_WAITING, value)
        words.put(L.H_PENDING, value * 10)
    assert words.begin(), "the next holder finds it and rolls back"
    after = bytearray(image(words))
    journal_at = words.view[L.H_JOURNAL_AT] * L.WORD_BYTES
    after[journal_at : journal_at + 6 * 16] = before[journal_at : journal_at + 6 * 16]
    assert after == before


def test_a_store_of_the_same_value_needs_no_journal_entry() -> None:
    words = small_kernel().words
    words.begin()
    words.put(L.H_FRESH, words.view[L.H_FRESH])
    assert words.count == 0


def test_a_word_outside_the_mapping_is_refused_and_nothing_is_changed() -> None:
    words = small_kernel().words
    words.begin()
    words.put(L.H_WAITING, 9)
    words.put(10**9, 1)
    with pytest.raises(Corrupt, match="damaged at byte 8000000000"):
        words.commit()
    assert words.view[L.H_WAITING] == 0


def test_a_journal_that_overflows_is_refused_and_nothing_is_changed() -> None:
    words = small_kernel().words
    words.begin()
    words.put(L.H_WAITING, 7)
    first = L.H_JOURNAL_COUNT + 1
    for index in range(first, first + L.JOURNAL_ENTRIES + 5):
        words.put(index, 2**40 + index)
    with pytest.raises(Corrupt):
        words.commit()
    assert words.view[L.H_WAITING] == 0


def test_a_word_is_noted_once_in_a_transaction_and_again_in_the_next() -> None:
    words = small_kernel().words
    words.begin()
    for value in (1, 2, 3):
        words.put(L.H_WAITING, value)
    assert words.count == 1
    words.commit()
    words.put(L.H_WAITING, 4)
    assert words.count == 1
    assert words.begin()
    assert words.view[L.H_WAITING] == 3


def test_words_that_share_an_entry_of_the_notes_do_not_hide_each_other() -> None:
    words = small_kernel().words
    index = words.view[L.H_SLOTS_AT]
    before = image(words)
    words.begin()
    for value in (1, 2, 3):
        words.put(index, value)
        words.put(index + 256, value)
    words.rollback()
    assert image(words)[index * L.WORD_BYTES :] == before[index * L.WORD_BYTES :]


def test_a_journal_count_that_cannot_be_is_reported_with_its_place() -> None:
    words = small_kernel().words
    words.raw(L.H_JOURNAL_COUNT, L.JOURNAL_ENTRIES + 1)
    with pytest.raises(Corrupt) as caught:
        words.begin()
    assert caught.value.offset == L.H_JOURNAL_COUNT * L.WORD_BYTES


def test_a_store_keeps_all_64_bits() -> None:
    words = small_kernel().words
    for value in (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1):
        words.raw(L.H_EPOCH, value)
        assert words.view[L.H_EPOCH] == value


def test_every_store_counts_as_a_step_of_the_kill_rig() -> None:
    words = small_kernel().words
    rig.kill_at(0)
    words.raw(L.H_EPOCH, 1)
    assert rig.steps() == 1
    words.begin()
    words.put(L.H_EPOCH, 2)  # index, old value, count, and the store itself
    words.commit()
    assert rig.steps() == 6


def test_after_closing_nothing_can_be_loaded() -> None:
    kernel = small_kernel()
    kernel.words.close()
    assert kernel.get(L.H_MAGIC) == 0
