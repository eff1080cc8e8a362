"""Owns Image, a private copy of a kernel with the questions that checking asks of it, and what was found wrong there.
Never changes a kernel that others use; what must hold is ``imagecheck.py``'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.store import layout as L
from penstock.store.findings import FINDINGS_MAX, Finding
from penstock.store.kernel import Kernel
from penstock.store.words import Words

LIVE = (L.STATE_FILLING, L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)


class Image:
    """A private copy of a kernel."""

    def __init__(self, data: bytearray, path: str) -> None:
        self.path = path
        self.words = Words(data, f"{path} (a copy)")  # nobody shall take its stores for those of the mapping
        self.view = self.words.view
        self.kernel = Kernel(self.words)
        self.slots_at = self.view[L.H_SLOTS_AT]
        self.slots = self.view[L.H_SLOTS]
        self.files = self.view[L.H_FILES]
        self.findings: list[Finding] = []

    def slot(self, slot: int, field: int) -> int:
        return self.view[self.slots_at + slot * L.SLOT_WORDS + field]

    def number(self, slot: int) -> int:
        return self.slot(slot, L.S_WORD) >> L.NUMBER_SHIFT

    def state(self, slot: int) -> int:
        return (self.slot(slot, L.S_WORD) >> L.STATE_SHIFT) & 0xF

    def place(self, slot: int) -> tuple[int, int]:
        place = self.slot(slot, L.S_PLACE)
        return place >> L.PLACE_SHIFT, place & L.PLACE_MASK

    def say(self, word: int, what: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(self.path, word * L.WORD_BYTES, what))

    def say_slot(self, slot: int, field: int, what: str) -> None:
        self.say(self.slots_at + slot * L.SLOT_WORDS + field, f"slot {slot}: {what}")

    def expect(self, word: int, what: str, expected: int) -> None:
        if self.view[word] != expected:
            self.say(word, f"{what} is {self.view[word]}, expected {expected}")

    def walk(self, first: int, field: int, what: str) -> Iterator[int]:
        """Follow the next half of a pair of links, until 0, a loop or an impossible slot."""
        seen = set()
        slot = first
        while slot:
            if slot >= self.slots or slot in seen:
                self.say_slot(
                    min(slot, self.slots - 1), field, f"{what} leads to slot {slot} again or out of the table"
                )
                return
            seen.add(slot)
            yield slot
            slot = self.slot(slot, field) & L.MASK32
