"""Owns the look at what a process that died in a transaction had begun. Never changes anything: the undoing is
``words.py``'s, and ``Kernel.recover`` asks for it.
"""

from penstock.store import layout as L
from penstock.store.kernel import Kernel


def taken_units(kernel: Kernel) -> list[int]:
    """Places that a process took in a transaction that it did not finish: it may have written a record there."""
    found = []
    journal_at = kernel.get(L.H_JOURNAL_AT)
    for entry in range(min(kernel.get(L.H_JOURNAL_COUNT), L.JOURNAL_ENTRIES)):
        at = journal_at + entry * L.JOURNAL_WORDS
        offset = kernel.get(at + L.J_INDEX) - kernel.slots_at
        old_state = (kernel.get(at + L.J_OLD) >> L.STATE_SHIFT) & 0xF
        if offset >= 0 and offset % L.SLOT_WORDS == 0 and old_state <= L.STATE_VACANT:
            slot = offset // L.SLOT_WORDS
            if slot < kernel.slots and kernel.state(slot) > L.STATE_VACANT:
                found.append(kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT)
    return found
