import random

import pytest

from penstock.store import layout as L
from tests.unit.kernels import set_number, set_slot, small_kernel


def members(kernel, which: int, lane: int = 0) -> list[int]:
    found = []
    slot = kernel.order.follower(which, lane, 0)
    while slot:
        found.append(slot)
        slot = kernel.order.follower(which, lane, slot)
    return found


@pytest.mark.parametrize("which", [L.LIST_READY + 3, L.LIST_TIMED, L.LIST_TIMED + 15, L.LIST_LEASES])
def test_a_list_is_ordered_whatever_is_inserted_and_removed(which: int) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    kernel = small_kernel(slots=300)
    numbers = rng.sample(range(1, 5000), 300)
    keys: dict[int, tuple[int, int]] = {}
    free = list(range(2, 302))
    for _ in range(3000):
        if free and (not keys or rng.random() < 0.55):
            slot = free.pop(rng.randrange(len(free)))
            key = rng.randrange(40)
            set_number(kernel, slot, numbers[slot - 2])
            set_slot(kernel, slot, L.S_DELIVER_US, key)
            set_slot(kernel, slot, L.S_LEASE_US, key)
            keys[slot] = (0 if which < L.LIST_TIMED else key, numbers[slot - 2])
            kernel.order.insert(which, slot)
        else:
            slot = rng.choice(list(keys))
            del keys[slot]
            free.append(slot)
            kernel.order.remove(which, slot)
        kernel.commit()
        expected = sorted(keys, key=keys.__getitem__)
        assert members(kernel, which) == expected
        assert kernel.order.count(which) == len(expected)
    for lane in range(1, L.LANES + 1):
        risen = [slot for slot in expected if kernel.order.level(keys[slot][1]) >= lane]
        assert members(kernel, which, lane) == risen
    if which < L.LIST_LEASES:
        assert kernel.get(L.H_PRESENT) == (1 << which if expected else 0)


def test_the_search_continues_behind_a_place_that_is_gone() -> None:
    kernel = small_kernel()
    for slot, number in ((2, 10), (3, 20), (4, 30)):
        set_number(kernel, slot, number)
        kernel.order.insert(L.LIST_READY, slot)
    assert kernel.order.after(L.LIST_READY, 0, 0) == 2
    assert kernel.order.after(L.LIST_READY, 0, 10) == 3
    assert kernel.order.after(L.LIST_READY, 0, 15) == 3
    assert kernel.order.after(L.LIST_READY, 0, 30) == 0


def test_one_number_in_eight_rises_to_the_next_lane() -> None:
    kernel = small_kernel()
    levels = [kernel.order.level(number) for number in range(1, 100_001)]
    for lane, share in ((1, 1 / 8), (2, 1 / 64), (3, 1 / 512)):
        assert sum(level >= lane for level in levels) / 100_000 == pytest.approx(share, rel=0.2)
    assert max(levels) <= L.LANES


def test_a_loop_in_a_damaged_list_ends_the_search() -> None:
    kernel = small_kernel()
    for slot, number in ((2, 10), (3, 20), (4, 30)):
        set_number(kernel, slot, number)
        kernel.order.insert(L.LIST_READY, slot)
    kernel.commit()
    set_slot(kernel, 3, L.S_LINKS, 2 | 2 << 32)  # 2 -> 3 -> 2
    set_number(kernel, 5, 25)
    kernel.order.insert(L.LIST_READY, 5)
    with pytest.raises(Exception, match="damaged"):
        kernel.commit()
