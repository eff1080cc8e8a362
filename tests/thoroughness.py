"""How much of long searches is made.

`make test` is for every change and has to be quick: it kills operations at some of their steps, and makes part of each
search. Where it begins to count is drawn anew in each run, so that in time every step has its turn; a run that fails
says where that was, and ``PENSTOCK_STEP`` has the same steps again. `.ci/run` sets ``PENSTOCK_THOROUGH``: then the
compiled core goes through all of it, or of long operations through several times as much; the interpreted one, which is
the same source and makes the same steps, through as much as in `make test`.
"""

import os
import random
from typing import TypeVar

import penstock

Place = TypeVar("Place")

STEP = "PENSTOCK_STEP"
STEPS_MAX = 20_000  # an operation that never ends would otherwise keep the rig busy for ever

_ASKED = bool(os.environ.get("PENSTOCK_THOROUGH"))
IN_FULL = penstock.compiled and _ASKED
# Each kill takes tens of milliseconds.
EACH = 1 if IN_FULL else 7
KILLED_AT_EVERY = 2 if IN_FULL else 23
# The first of the processes of a run draws it for all of them.
FIRST = int(os.environ.setdefault(STEP, str(random.randrange(100_000))))


def some_of(every: int, most: int = STEPS_MAX) -> list[int]:
    """Of all steps, which are counted from 1, the first one and each so-many-th."""
    return sorted({1, *range(1 + FIRST % every, most, every)})


def chosen(places: list[Place]) -> list[Place]:
    """Of many places where the power may be lost each fourth, and the last one; or all."""
    return places if IN_FULL else [*places[FIRST % 4 : -1 : 4], places[-1]]
