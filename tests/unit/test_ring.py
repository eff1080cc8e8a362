import itertools
import random

import pytest

from penstock.store import layout as L
from penstock.store.kernel import Kernel
from penstock.store.ring import GAPS_TRIED_MAX
from tests.unit.kernels import small_kernel


class Model:
    """The ring as a plain map of units to slots."""

    def __init__(self, file_units: tuple[int, ...]) -> None:
        self.total = sum(file_units)
        self.borders = [sum(file_units[:i]) for i in range(1, len(file_units))]
        self.used: dict[int, tuple[int, int]] = {}

    def take(self, slot: int, start: int, units: int) -> None:
        span = range(start, start + units)
        assert start + units <= self.total
        assert not any(start < border < start + units for border in self.borders), "a record spans two files"
        for other_start, other_units in self.used.values():
            assert span.stop <= other_start or other_start + other_units <= span.start, "two records overlap"
        self.used[slot] = (start, units)

    def gaps(self) -> list[int]:
        edges = sorted([(0, 0), *self.used.values(), *((border, 0) for border in self.borders), (self.total, 0)])
        return [b[0] - a[0] - a[1] for a, b in itertools.pairwise(edges)]


def run(kernel: Kernel, slot: int, most: int, model: Model) -> list[int]:
    """Slots that follow each other in the ring, none behind the cursor."""
    found = [slot]
    while len(found) < most and found[-1] != kernel.get(L.H_CURSOR) and kernel.ring.after(found[-1]) in model.used:
        found.append(kernel.ring.after(found[-1]))
    return found


def ring_of(kernel: Kernel) -> list[int]:
    found = [1]
    while (slot := kernel.ring.after(found[-1])) != 1:
        found.append(slot)
    assert [kernel.ring.before(slot) for slot in found] == [found[-1], *found[:-1]]
    return found


def listed_gaps(kernel: Kernel) -> set[int]:
    found: list[int] = []
    slot = kernel.get(L.H_GAPS) & L.MASK32
    while slot:
        assert slot not in found
        found.append(slot)
        slot = kernel.field(slot, L.S_GAP) & L.MASK32
    assert kernel.get(L.H_GAPS) >> 32 == (found[-1] if found else 0)
    return set(found)


@pytest.mark.parametrize("file_units", [(64,), (20, 20, 20), (7, 50)])
def test_records_never_overlap_and_a_gap_that_fits_is_found(file_units: tuple[int, ...]) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    kernel = small_kernel(slots=60, file_units=file_units)
    model = Model(file_units)
    free = list(range(len(file_units) + 1, len(file_units) + 61))
    for _ in range(4000):
        if free and rng.random() < 0.55:
            units = rng.choice((1, 1, 2, 3, 8))
            fits = kernel.ring.fits(units)
            assert fits == (max(model.gaps()) >= units)
            if fits:
                slot = free.pop(rng.randrange(len(free)))
                kernel.ring.take(slot, units)
                model.take(slot, kernel.ring.start(slot), units)
        elif model.used:
            slots = run(kernel, rng.choice(list(model.used)), rng.choice((1, 1, 2, 5)), model)
            if len(slots) == 1:
                kernel.ring.free(slots[0])
            else:
                for slot in slots:
                    kernel.ring.part(slot)
                kernel.ring.free_run(slots[0], slots[-1], sum(model.used[slot][1] for slot in slots))
            for slot in slots:
                del model.used[slot]
                free.append(slot)
        kernel.commit()
        assert listed_gaps(kernel) == {slot for slot in ring_of(kernel) if kernel.ring.gap(slot)} - {
            kernel.get(L.H_CURSOR)
        }
        assert kernel.get(L.H_USED_UNITS) == sum(units for _, units in model.used.values())


def test_the_write_position_wraps_around_and_skips_an_old_record() -> None:
    """S10: ahead of the reader up to the end, then behind it from the start, then past an old message in the way."""
    kernel = small_kernel(slots=40, file_units=(10,))
    ring = kernel.ring

    def put(slot: int, units: int) -> int:
        assert ring.fits(units)
        ring.take(slot, units)
        kernel.commit()
        return ring.start(slot)

    assert [put(2, 3), put(3, 3), put(4, 3)] == [0, 3, 6]
    assert not ring.fits(2), "one unit is left at the end, nothing at the start"
    ring.free(2)
    kernel.commit()
    assert put(5, 2) == 0, "wrapped around to the start"
    ring.free(4)  # the old message in slot 3 stays in the way
    kernel.commit()
    assert not ring.fits(5)
    assert put(6, 4) == 6, "skipped it"
    assert put(7, 1) == 2


def test_a_million_old_records_would_be_passed_in_one_step() -> None:
    """What lies without gaps is not walked over: the cost of finding room does not depend on it."""
    kernel = small_kernel(slots=1000, file_units=(1100,))
    for slot in range(2, 1002):
        assert kernel.ring.fits(1)
        kernel.ring.take(slot, 1)
        kernel.commit()
    kernel.ring.free(2)
    kernel.commit()
    for _ in range(98):
        kernel.ring.fits(1)
    assert kernel.ring.gap(kernel.get(L.H_CURSOR)) == 100
    assert kernel.ring.gap(kernel.get(L.H_GAPS) & L.MASK32) == 1


def test_a_search_tries_a_bounded_number_of_gaps_and_goes_on_behind_them_next_time() -> None:
    count = 3 * GAPS_TRIED_MAX
    kernel = small_kernel(slots=2 * count + 10, file_units=(2 * count,))
    for slot in range(2, 2 * count + 2):
        assert kernel.ring.fits(1)
        kernel.ring.take(slot, 1)
        kernel.commit()
    for slot in range(3, 2 * count, 2):
        kernel.ring.free(slot)
        kernel.commit()
    kernel.ring.free(2 * count)
    kernel.commit()  # two neighbours, at the far end of the list of gaps
    tries = 0
    while not kernel.ring.fits(2):
        kernel.commit()
        tries += 1
        assert tries < 6
    assert tries >= 1
