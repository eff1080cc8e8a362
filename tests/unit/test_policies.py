"""Which member gets a message, and of which one it comes: the policies as tables."""

from __future__ import annotations

import pytest

from penstock.manager.policies import (
    Head,
    by_age,
    by_message_priority,
    by_turns,
    fastest,
    home_of,
    levels_of,
    rotated,
    shortest,
)
from penstock.timequeue.administration import Gauge

IDLE = Gauge(0, 0, 0)


@pytest.mark.parametrize(
    "gauges, order",
    [
        ([], []),
        ([IDLE, IDLE], [0, 1]),
        ([Gauge(5, 0, 0), Gauge(4, 0, 0)], [1, 0]),
        ([Gauge(1, 9, 0), Gauge(4, 0, 0), Gauge(0, 5, 0)], [1, 2, 0]),  # what is being worked on counts
    ],
)
def test_the_shortest_has_the_fewest_messages(gauges: list[Gauge], order: list[int]) -> None:
    assert shortest(gauges) == order


@pytest.mark.parametrize(
    "gauges, elsewhere, order",
    [
        ([Gauge(0, 0, 100), Gauge(0, 0, 50)], [0, 0], [1, 0]),
        ([Gauge(9, 0, 10), Gauge(0, 0, 50)], [0, 0], [1, 0]),  # a fast one with a long line is slow
        ([Gauge(3, 0, 10), Gauge(0, 0, 50)], [0, 0], [0, 1]),
        ([Gauge(0, 0, 10), IDLE], [0, 0], [1, 0]),  # nobody knows it: it is tried
        ([Gauge(9, 0, 0), IDLE], [0, 0], [1, 0]),
        ([Gauge(0, 0, 10), Gauge(0, 0, 100)], [0, 63], [0, 1]),
        ([Gauge(0, 0, 10), Gauge(0, 0, 100)], [0, 256], [1, 0]),  # it was slow long ago
    ],
)
def test_the_fastest_has_the_shortest_way_to_the_end(
    gauges: list[Gauge], elsewhere: list[int], order: list[int]
) -> None:
    assert fastest(gauges, elsewhere) == order


def test_a_slow_member_is_tried_again_now_and_then() -> None:
    gauges = [Gauge(0, 0, 100), Gauge(0, 0, 1000)]
    elsewhere = [0, 0]
    chosen = []
    for _ in range(1000):
        first = fastest(gauges, elsewhere)[0]
        chosen.append(first)
        elsewhere = [0 if n == first else count + 1 for n, count in enumerate(elsewhere)]
    assert 2 <= chosen.count(1) <= 10


def test_an_id_has_one_home_and_few_move_when_a_member_comes() -> None:
    ids = [f"order {n}" for n in range(1000)]
    names = ["a", "b", "c"]
    homes = [names[home_of(each, names)[0]] for each in ids]
    assert homes == [names[home_of(each, names)[0]] for each in ids]
    assert all(250 < homes.count(name) < 420 for name in names)
    more = [*names, "d"]
    moved = [each for each, home in zip(ids, homes, strict=True) if more[home_of(each, more)[0]] != home]
    assert 180 < len(moved) < 330
    assert all(more[home_of(each, more)[0]] == "d" for each in moved)


@pytest.mark.parametrize(
    "heads, by_priority, oldest",
    [
        ([None, None], [], []),
        ([None, Head(0, 5)], [1], [1]),
        ([Head(0, 1), Head(3, 9)], [1, 0], [0, 1]),
        ([Head(3, 9), Head(3, 2), Head(4, 100)], [2, 1, 0], [1, 0, 2]),
        ([Head(1, 5), Head(1, 5)], [0, 1], [0, 1]),
    ],
)
def test_messages_decide_where_they_shall(heads: list[Head | None], by_priority: list[int], oldest: list[int]) -> None:
    assert by_message_priority(heads) == by_priority
    assert by_age(heads) == oldest


@pytest.mark.parametrize(
    "priorities, last, order",
    [
        ([], -1, []),
        ([0, 0, 0], -1, [0, 1, 2]),
        ([0, 0, 0], 0, [1, 2, 0]),
        ([0, 0, 0], 2, [0, 1, 2]),
        ([1, 5, 3], 1, [1, 2, 0]),
        ([0, 5, 5, 0], 1, [2, 1, 3, 0]),
        ([0, 5, 5, 0], 2, [1, 2, 3, 0]),
    ],
)
def test_members_of_the_same_priority_take_turns(priorities: list[int], last: int, order: list[int]) -> None:
    assert by_turns(levels_of(priorities), last) == order


def test_all_take_turns_where_they_shall() -> None:
    assert [rotated(3, n)[0] for n in range(5)] == [0, 1, 2, 0, 1]
    assert rotated(0, 4) == []
