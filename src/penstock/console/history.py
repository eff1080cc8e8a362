"""Owns what a queue was like over time, as far as this process has seen it: bounded, the recent past in full, what is
older a sample a minute. Never looks at a queue or at a clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

FINE_MAX = 1800  # an hour, a sample every two seconds
COARSE_MAX = 1440  # a day of minutes
COARSE_S = 60.0
SAMPLES_MAX = 2_000_000  # of all queues together: 72 MB
FINE_MIN = 60  # however many queues there are
SLACK = 64  # dropped together: moving what is left costs the same for one as for many


class Sample(NamedTuple):
    """One look. What is not known is NaN: JSON has null for it, and a plot a gap."""

    at: float
    waiting: float
    pending: float
    puts: float  # a second
    acks: float
    retries: float
    oldest_s: float  # for how long the oldest that is due has been
    late_s: float  # of what was delivered since the look before, all but 1 %


FIELDS = Sample._fields


class _Samples:
    """Columns, the oldest first. Times need all digits, the others seven."""

    def __init__(self) -> None:
        self.columns: list[array[float]] = [array("d"), *(array("f") for _ in FIELDS[1:])]

    def add(self, sample: Sequence[float], most: int) -> None:
        for column, value in zip(self.columns, sample, strict=True):
            column.append(value)
        over = len(self.columns[0]) - most
        if over > SLACK:
            for column in self.columns:
                del column[:over]

    def since(self, at: float, until: float) -> list[Sample]:
        times = self.columns[0]
        first = next((i for i in range(len(times)) if times[i] >= at), len(times))
        rows = zip(*(column[first:] for column in self.columns), strict=True)
        return [Sample(*row) for row in rows if row[0] < until]

    @property
    def first_at(self) -> float | None:
        return self.columns[0][0] if self.columns[0] else None


class History:
    """The samples of one queue."""

    def __init__(self) -> None:
        self._fine = _Samples()
        self._coarse = _Samples()
        self._coarse_at = 0.0

    def add(self, sample: Sample, *, queues: int) -> None:
        """``queues``: so many share the memory."""
        self._fine.add(sample, max(FINE_MIN, min(FINE_MAX, SAMPLES_MAX // max(queues, 1))))
        if sample.at - self._coarse_at >= COARSE_S:
            self._coarse_at = sample.at
            self._coarse.add(sample, COARSE_MAX)

    def between(self, start: float, end: float, *, most: int) -> list[Sample]:
        """About ``most`` samples: where there are more, each stands for several, and is the highest of them."""
        fine_at = self._fine.first_at
        old = self._coarse.since(start, end if fine_at is None else min(end, fine_at))
        return thinned([*old, *self._fine.since(start, end)], start, end, most)


def thinned(samples: Sequence[Sample], start: float, end: float, most: int) -> list[Sample]:
    """At most one sample for each part of the span. A peak is what one looks for: it is kept, at its own time's part.

    >>> quiet, peak = Sample(1.0, 2, 0, 0, 0, 0, 0, 0), Sample(1.5, 9, 0, 0, 0, 0, 0, 0)
    >>> [each.waiting for each in thinned([quiet, peak], 0, 10, 1)]
    [9]
    """
    if len(samples) <= most:
        return list(samples)
    span = (end - start) / most
    parts: dict[int, list[Sample]] = {}
    for sample in samples:
        parts.setdefault(int((sample.at - start) / span), []).append(sample)
    return [
        Sample(part[-1].at, *(_highest(column) for column in list(zip(*part, strict=True))[1:]))
        for part in parts.values()
    ]


def _highest(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]  # NaN is not equal to itself
    return max(known, default=float("nan"))
