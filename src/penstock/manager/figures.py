"""Owns the statistics of a manager: those of each of its queues, and of all together. Pure: how a queue is looked at
is ``kinds.py``'s, and who may look ``permissions.py``'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from penstock.manager.directory import QUEUE
from penstock.manager.states import State
from penstock.timequeue import Stats, combined

LOOK_BUSY_S = 1.0  # one queue that is stuck shall not hold up the figures of all others for long


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of a manager: its figures, or why there are none."""

    name: str
    kind: str
    state: State
    active: bool
    stats: Stats | None = None
    error: str | None = None


class ManagerStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager's queues hold and have done. Each was looked at on its own: they are not of one moment."""

    root: str
    kinds: dict[str, int]  # how many queues of each kind
    states: dict[str, int]  # and in each state
    total: Stats  # of all that could be looked at
    queues: dict[str, QueueFigures]


def manager_stats(root: str, figures: Iterable[QueueFigures]) -> ManagerStats:
    """Messages of a macro queue are those of its members: the total is of the queues that hold messages themselves."""
    queues = {each.name: each for each in figures}
    holding = [each.stats for each in queues.values() if each.stats is not None and each.kind == QUEUE]
    return ManagerStats(
        root=root,
        kinds=dict(Counter(each.kind for each in queues.values())),
        states=dict(Counter(str(each.state) for each in queues.values())),
        total=combined(holding, path=root),
        queues=queues,
    )
