"""Owns the pages of a new kernel: header, sentinels of the data files, the gaps behind them. Never makes a file."""

from penstock.store import layout as L
from penstock.store.kernel import NUMBERS_AHEAD
from penstock.store.words import Words


def initialise(words: Words, header: dict[int, int], file_units: list[int]) -> None:
    """Fill the zeroed pages of a new kernel."""
    for index, value in header.items():
        words.raw(index, value)
    files = len(file_units)
    slots_at = header[L.H_SLOTS_AT]
    start = 0
    for i, units in enumerate(file_units):
        at = slots_at + (i + 1) * L.SLOT_WORDS
        words.raw(at + L.S_PLACE, start << L.PLACE_SHIFT)
        following = i + 2 if i + 1 < files else 1
        before = i if i else files
        words.raw(at + L.S_RING, following | (before << 32))
        if i:  # the first file's gap is the cursor's own; the others queue up behind it
            words.raw(at + L.S_GAP, (i + 2 if i + 1 < files else 0) | ((i if i > 1 else 0) << 32))
        start += units
    words.raw(L.H_DATA_UNITS, start)
    words.raw(L.H_FILES, files)
    words.raw(L.H_CURSOR, 1)
    words.raw(L.H_GAPS, (2 | (files << 32)) if files > 1 else 0)
    words.raw(L.H_FRESH, files + 1)
    words.raw(L.H_NUMBER_NEXT, 1)
    words.raw(L.H_NUMBER_LIMIT, NUMBERS_AHEAD)
    words.raw(L.H_NUMBER_SAFE, NUMBERS_AHEAD)
