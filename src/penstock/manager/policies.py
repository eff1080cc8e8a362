"""Owns the policies of macro queues: in which order members are tried with a message, and in which their messages come.
Pure: what is known of the members comes as an argument, and what was chosen before with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.timequeue.administration import Gauge

# By how much less a service time counts for each message that went elsewhere: after 64 of them by half. So a member
# that was slow once is tried again, sooner or later, and what it is like then is known.
FADING = 0.5 ** (1 / 64)


class Head(NamedTuple):
    """The message that a member would deliver now."""

    priority: int
    due_us: int


Order = list[int]  # indices of members, the first choice first


# ---------------------------------------------------------------- producing


def rotated(count: int, first: int) -> Order:
    """
    >>> rotated(3, 1)
    [1, 2, 0]
    """
    return [(first + n) % count for n in range(count)] if count else []


def shortest(gauges: Sequence[Gauge]) -> Order:
    """By how many messages a member has, waiting or being worked on."""
    return sorted(range(len(gauges)), key=lambda n: gauges[n].waiting + gauges[n].pending)


def fastest(gauges: Sequence[Gauge], elsewhere: Sequence[int]) -> Order:
    """By how long a message would take to be dealt with: all that is there before it, and itself, at the pace that the
    member had lately. ``elsewhere`` are the messages that went to others since it had its last one. A member whose pace
    nobody knows comes first, the one that has the least to do before the others."""

    def expected(n: int) -> tuple[float, int]:
        load = gauges[n].waiting + gauges[n].pending
        return (load + 1) * gauges[n].service_us * FADING ** elsewhere[n], load

    return sorted(range(len(gauges)), key=expected)


def home_of(dedup_id: str, names: Sequence[str]) -> Order:
    """The members in an order that depends on the id alone: the same message meets the first one of its id. One member
    more or less changes the first choice of few ids."""

    def score(n: int) -> bytes:
        return hashlib.blake2b(f"{dedup_id}\0{names[n]}".encode(), digest_size=8).digest()

    return sorted(range(len(names)), key=score)


# ---------------------------------------------------------------- consuming


def by_message_priority(heads: Sequence[Head | None]) -> Order:
    """The highest priority of all members first; of the same one, what has been due for longest."""
    return _ordered(heads, lambda head: (-head.priority, head.due_us))


def by_age(heads: Sequence[Head | None]) -> Order:
    """What has been due for longest, whatever its priority: ``due_us`` is that of the oldest."""
    return _ordered(heads, lambda head: (head.due_us, -head.priority))


def _ordered(heads: Sequence[Head | None], key: Callable[[Head], tuple[int, int]]) -> Order:
    found = [(key(head), n) for n, head in enumerate(heads) if head is not None]
    return [n for _, n in sorted(found)]


def levels_of(priorities: Sequence[int]) -> list[Order]:
    """The members of each priority, the highest first.

    >>> levels_of([0, 5, 5, 0])
    [[1, 2], [0, 3]]
    """
    found: dict[int, Order] = {}
    for n, priority in enumerate(priorities):
        found.setdefault(priority, []).append(n)
    return [found[priority] for priority in sorted(found, reverse=True)]


def by_turns(levels: Sequence[Order], last: int) -> Order:
    """Members of a higher priority before all others; those of the same one in turn, from behind the one that was last.

    >>> by_turns([[1, 2], [0, 3]], 1)
    [2, 1, 3, 0]
    """
    order: Order = []
    for level in levels:
        order += [n for n in level if n > last]
        order += [n for n in level if n <= last]
    return order
