"""Owns how many messages of a batch come from each member of a macro queue, by its consuming policy. Pure.

A batch is a set: it has those messages that the policy would have given one after the other, as far as that can be
told before they are taken, and no order between members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.store import gather as G
from penstock.store import layout as L

Keys = Callable[[Any, int, int], Any]  # of references in the order of a member, which it is of how many: lowest first


def _by_age(rows: Any, _place: int, _members: int) -> Any:
    return rows[:, G.F_DELIVER_US]


def _by_priority(rows: Any, _place: int, _members: int) -> Any:
    lower = np.uint64(L.PRIORITIES - 1) - (rows[:, G.F_INFO] & np.uint64(L.PRIORITIES - 1))
    return (lower << np.uint64(_PRIORITY_SHIFT)) | rows[:, G.F_DELIVER_US]


def _in_turn(rows: Any, place: int, members: int) -> Any:
    return np.arange(len(rows), dtype=np.uint64) * np.uint64(members) + np.uint64(place)


_PRIORITY_SHIFT = (L.DELIVER_US_MAX - 1).bit_length()
assert _PRIORITY_SHIFT + (L.PRIORITIES - 1).bit_length() <= L.WORD_BYTES * 8

KEYS: dict[str, Keys] = {"oldest": _by_age, "message-priority": _by_priority, "round-robin": _in_turn}


def by_member_priority(priorities: Sequence[int], room: int) -> list[tuple[int, int]]:
    """
    >>> by_member_priority([1, 7, 1], 10)
    [(1, 10), (0, 10), (2, 10)]
    """
    order = sorted(range(len(priorities)), key=lambda member: -priorities[member])
    return [(member, room) for member in order]


def shares(consuming: str, found: Sequence[Any], room: int, first: int = 0) -> list[tuple[int, int]]:
    """Which members to claim from, in this order, and the most messages of each. ``found`` are references of what each
    has that is due, in its order, up to ``room``; ``first`` is whose turn it is."""
    count = len(found)
    keys = [KEYS[consuming](rows, (member - first) % count, count) for member, rows in enumerate(found)]
    some = [member for member in range(count) if len(keys[member])]
    order = sorted(some, key=lambda member: int(keys[member][0]))
    every = np.concatenate([keys[member] for member in some]) if some else np.empty(0, dtype=np.uint64)
    if len(every) <= room:
        return [(member, room) for member in order]  # more may have come since
    edge = np.partition(every, room - 1)[room - 1]
    below = {member: int(np.count_nonzero(keys[member] < edge)) for member in some}
    left = room - sum(below.values())
    for member in order:  # those that are even
        more = min(left, int(np.count_nonzero(keys[member] == edge)))
        below[member] += more
        left -= more
    return [(member, below[member]) for member in order if below[member]]
