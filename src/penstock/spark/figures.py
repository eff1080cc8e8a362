"""Owns what a report says, as plain values, and the choices of steps that are made for it. Pure: knows neither Spark
nor HTML.
"""

from __future__ import annotations

import math

import msgspec

STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 4 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400,
)  # fmt: skip
STEPS_MOST = 60  # bars of a plot over time
DECADE_STEPS = 3  # bars of a distribution for each power of ten

ENDED = {"acked": "acked", "failed": "failed"}  # all other results are "gone"
SERIES = ("acked", "failed", "gone")


class Distribution(msgspec.Struct, frozen=True):
    """How long something took: percentiles in seconds, and how often it took how long. None of it: ``count`` is 0."""

    count: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    steps: dict[int, int] = {}  # by ``step_of``


class Moment(msgspec.Struct, frozen=True):
    """How many outcomes of each of ``SERIES`` a step of time had."""

    start_s: float
    counts: dict[str, int]


class Group(msgspec.Struct, frozen=True):
    """Messages of a type, of a key or of a queue."""

    name: str | None
    done: int  # acknowledged
    failed: int  # attempts
    retries: int  # deliveries beyond the first, of messages that have come to an end
    gone: int  # given up, expired, cancelled, moved
    p50_s: float | None  # of the waiting time
    p99_s: float | None


class Slow(msgspec.Struct, frozen=True):
    """A message that took long from when it was due to its end."""

    id: str
    queue: str
    type: str | None
    key: str | None
    result: str
    attempts: int
    ended_s: float
    total_s: float
    late_s: float | None
    service_s: float | None


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, and how often."""

    text: str
    count: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All of a report."""

    title: str
    made_s: float
    since_s: float | None = None  # as it was asked for
    first_s: float = 0.0
    last_s: float = 0.0
    step_s: int = 1
    results: dict[str, int] = {}
    moments: list[Moment] = []
    waiting: Distribution = Distribution()
    lateness: Distribution = Distribution()
    service: Distribution = Distribution()
    types: list[Group] = []
    keys: list[Group] = []
    queues: list[Group] = []
    slowest: list[Slow] = []
    failures: list[Failure] = []

    @property
    def outcomes(self) -> int:
        return sum(self.results.values())

    @property
    def retries(self) -> int:
        return sum(each.retries for each in self.queues)


def time_step_s(span_s: float) -> int:
    """The width of a bar of a plot over so long a time.

    >>> time_step_s(0), time_step_s(59), time_step_s(3600), time_step_s(86_400), time_step_s(700 * 86_400)
    (1, 1, 60, 1800, 1209600)
    """
    for step_s in STEPS_S:
        if span_s / step_s <= STEPS_MOST:
            return step_s
    return math.ceil(span_s / STEPS_MOST / STEPS_S[-1]) * STEPS_S[-1]


def step_start_s(step: int) -> float:
    """From how many seconds on a step of a distribution is.

    >>> step_start_s(0), step_start_s(-3), round(step_start_s(1), 2)
    (1.0, 0.1, 2.15)
    """
    whole, part = divmod(step, DECADE_STEPS)
    return round(10.0**whole * 10.0 ** (part / DECADE_STEPS), 12)
