"""Small kernels in memory, for tests of the parts that need no files."""

from penstock.store import layout as L
from penstock.store.blank import initialise
from penstock.store.kernel import Kernel
from penstock.store.words import Words


def small_kernel(slots: int = 40, file_units: tuple[int, ...] = (64,)) -> Kernel:
    header = L.regions(slots + 1 + len(file_units))
    words = Words(bytearray(header[L.H_KERNEL_BYTES]), "kernel in memory")
    initialise(words, header, list(file_units))
    return Kernel(words)


def set_slot(kernel: Kernel, slot: int, field: int, value: int) -> None:
    kernel.words.raw(kernel.slots_at + slot * L.SLOT_WORDS + field, value)


def set_number(kernel: Kernel, slot: int, number: int, state: int = L.STATE_WAITING) -> None:
    set_slot(kernel, slot, L.S_WORD, kernel.word_of(slot, number, state))
