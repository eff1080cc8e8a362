# cython: boundscheck=False, wraparound=False
"""Owns sorting a million entries of a few words, for a restore: digit by digit, without a Python object for each. Knows
nothing of what they mean."""

from array import array
from typing import Any

from penstock.store import layout as L
from penstock.store.files import private_memory

ENTRY = 3  # words of an entry to sort: key, number, slot (or what goes with them)
_DIGIT_BITS = 10  # sorted by so many at a time: more, and the places of the digits leave the fastest cache
_DIGITS = 1 << _DIGIT_BITS


def memory(words: int) -> Any:
    return memoryview(private_memory(L.WORD_BYTES * max(words, 1))).cast("Q")


def least_of(keys: Any, count: int) -> int:
    least: int = keys[0]
    for i in range(1, count):
        if keys[i] < least:
            least = keys[i]
    return least


def most_of(keys: Any, count: int) -> int:
    most: int = keys[0]
    for i in range(1, count):
        if keys[i] > most:
            most = keys[i]
    return most


def pack(keys: Any, count: int, least: int, bits: int) -> None:
    """A key and where it was, in one word: a third of what else is to be moved about."""
    for i in range(count):
        keys[i] = ((keys[i] - least) << bits) | i


def unpack(slots: Any, count: int, members: Any, bits: int) -> None:
    one = 1  # a full word in the compiled core
    mask = (one << bits) - 1
    for i in range(count):
        slots[i] = members[slots[i] & mask]


def narrow(slots: Any, count: int) -> None:
    for i in range(count):
        slots[i] = slots[i * ENTRY + 2]


def sort(entries: Any, count: int, width: int, sorted_bits: int) -> Any:
    """Entries of ``width`` words by their first, those of three by key and number: digit by digit from the lowest,
    keeping the order of equals. What is in order already, and digits that are the same in all entries, cost nothing;
    by the ``sorted_bits`` lowest bits of each word they are in order. Returns where the entries are then, here or
    elsewhere."""
    source = entries
    target = entries
    spare = None
    for back in range(1 if width == 1 else 2):
        word = 0 if width == 1 else 1 - back
        varied = _varied(source, count, width, word)
        if varied and spare is None:
            spare = memory(count * width)
            target = spare
        for shift in range(sorted_bits, 64, _DIGIT_BITS):
            if (varied >> shift) & (_DIGITS - 1):
                _move(source, target, count, width, word, shift)
                source, target = target, source
    return source


def _varied(entries: Any, count: int, width: int, word: int) -> int:
    """The bits in which a word of the entries is not always the same; 0 if they are in its order already."""
    varied = 0
    falls = 0
    for i in range(1, count):
        varied |= entries[i * width + word] ^ entries[word]
        if entries[i * width + word] < entries[(i - 1) * width + word]:
            falls = 1
    return varied if falls else 0


def _move(source: Any, target: Any, count: int, width: int, word: int, shift: int) -> None:
    """All entries from source to target, in the order of one digit."""
    places = array("Q", bytes(8 * (_DIGITS + 1)))
    _place(source, target, count, width, word, shift, places)


def _place(source: Any, target: Any, count: int, width: int, word: int, shift: int, places: Any) -> None:
    for i in range(count):
        places[((source[i * width + word] >> shift) & (_DIGITS - 1)) + 1] += 1
    for digit in range(_DIGITS):
        places[digit + 1] += places[digit]
    for i in range(count):
        digit = (source[i * width + word] >> shift) & (_DIGITS - 1)
        to = places[digit] * width
        places[digit] += 1
        for field in range(width):
            target[to + field] = source[i * width + field]
