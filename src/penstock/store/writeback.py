# cython: boundscheck=False, wraparound=False
"""Owns making a mapped kernel that of an image, for a restore. Its stores are those of ``Words.raw``, which compiled
code has here again, without a call for each word. Never decides what is written."""

from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import layout as L
from penstock.store import rig
from penstock.store.words import Words


def write_published(words: Words, image: Any, slots_at: int, first: int, end: int) -> int:
    """Of slots ``first`` to ``end`` that the image says are waiting, the identity words alone; how many did not say so
    yet. Other threads run meanwhile, as with ``write_back``."""
    if cython.compiled and not rig.watching and slots_at + end * L.SLOT_WORDS <= words.size:
        with cython.nogil:
            return _store_published(words, image, slots_at, first, end)
    changed = 0
    for slot in range(first, end):
        at = slots_at + slot * L.SLOT_WORDS
        word = image[at]
        if (word >> L.STATE_SHIFT) & 0xF == L.STATE_WAITING and words.load(at) != word:
            words.raw(at, word)
            changed += 1
    return changed


def _store_published(words: Words, image: Any, slots_at: int, first: int, end: int) -> int:
    """Of the compiled core, like ``_store``."""
    changed = 0
    for slot in range(first, end):
        at = slots_at + slot * L.SLOT_WORDS
        word = image[at]
        if (word >> L.STATE_SHIFT) & 0xF == L.STATE_WAITING and words.start[at] != word:
            words.start[at] = word
            changed += 1
    return changed


def write_back(words: Words, image: Any, first: int, end: int) -> int:
    """Make words ``first`` to ``end`` of a mapped kernel those of the image; how many were not. What is right already
    is left alone: a page without a change need not be written again. Other threads run meanwhile, unless a rig looks.
    """
    if cython.compiled and not rig.watching and end <= words.size:
        with cython.nogil:
            return _store(words, image, first, end)
    changed = 0
    for index in range(first, end):
        if words.load(index) != image[index]:
            words.raw(index, image[index])
            changed += 1
    return changed


def _store(words: Words, image: Any, first: int, end: int) -> int:
    """Of the compiled core: what ``Words.raw`` does, without a call for each word."""
    changed = 0
    for index in range(first, end):
        if words.start[index] != image[index]:
            words.start[index] = image[index]
            changed += 1
    return changed
