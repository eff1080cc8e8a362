"""Owns what the words of the statistics page mean to who reads them: distributions of times, rates. Pure: knows neither
kernel nor clock.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence

import msgspec

from penstock.store import layout as L
from penstock.store.measuring import COUNTED, ONE, after, steps_over

RATES = ("puts", "gets", "acks", "retries", "dead_letters", "syncs")
WINDOWS = ("1s", "1m", "15m")


def _bounds_us() -> list[int]:
    cut = [bound for power in range(1, L.BUCKETS // 2) for bound in (1 << power, 3 << (power - 1))]
    return [*cut, 1 << (L.BUCKETS // 2), 1 << 64]  # all that a word can have is below the last


BOUNDS_US = _bounds_us()  # bucket i has what is below number i, and not below the one before
BOUNDS_S = [bound_us / 1e6 for bound_us in BOUNDS_US]


class Distribution(msgspec.Struct, frozen=True):
    """How long something took, over the life of a queue. Count, mean and max are exact; percentiles are within 20 % of
    the true ones, or 1 microsecond. None: nothing was counted yet."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    max_s: float | None
    buckets: list[tuple[float, int]]  # those that have any: below so many seconds, and not below the one before


def distribution(words: Sequence[int]) -> Distribution:
    """Of the words of a span."""
    buckets = [(i, count) for i, count in enumerate(words[L.SPAN_BUCKETS : L.SPAN_WORDS]) if count]
    return _made(buckets, words[L.SPAN_SUM_US] / 1e6, words[L.SPAN_MAX_US] / 1e6)


def merged(distributions: Iterable[Distribution]) -> Distribution:
    """All of them as one."""
    buckets: dict[int, int] = {}
    sum_s = max_s = 0.0
    for each in distributions:
        sum_s += each.count * (each.mean_s or 0.0)
        max_s = max(max_s, each.max_s or 0.0)
        for bound_s, count in each.buckets:
            bucket = bisect.bisect_left(BOUNDS_S, bound_s)
            buckets[bucket] = buckets.get(bucket, 0) + count
    return _made(sorted(buckets.items()), sum_s, max_s)


def between(before: Distribution, now: Distribution) -> Distribution:
    """What came to a distribution since it was looked at before. Its max is that of the highest bucket, at most."""
    counts = dict(before.buckets)
    buckets = [(bisect.bisect_left(BOUNDS_S, bound), each - counts.get(bound, 0)) for bound, each in now.buckets]
    more = [(bucket, count) for bucket, count in buckets if count > 0]
    sum_s = now.count * (now.mean_s or 0.0) - before.count * (before.mean_s or 0.0)
    most_s = min(now.max_s or 0.0, BOUNDS_S[more[-1][0]]) if more else 0.0
    return _made(more, max(sum_s, 0.0), most_s)


def _made(buckets: list[tuple[int, int]], sum_s: float, max_s: float) -> Distribution:
    count = sum(each for _, each in buckets)
    if count == 0:
        return Distribution(0, None, None, None, None, None, [])
    p50_s, p90_s, p99_s = (_percentile(buckets, math.ceil(count * q / 100), max_s) for q in (50, 90, 99))
    return Distribution(
        count, sum_s / count, p50_s, p90_s, p99_s, max_s, [(BOUNDS_S[bucket], each) for bucket, each in buckets]
    )


def _percentile(buckets: list[tuple[int, int]], rank: int, max_s: float) -> float:
    """What stands for the bucket of the value of this rank: the one whose relative error is the least at both ends."""
    below = list(itertools.accumulate(count for _, count in buckets))
    bucket = buckets[bisect.bisect_left(below, rank)][0]
    if bucket == L.BUCKETS - 1:
        return max_s
    low, high = BOUNDS_US[bucket - 1 : bucket + 1] if bucket else (1, 1)
    return min(2 * low * high / (low + high) / 1e6, max_s)


def rates(page: Sequence[int], boot_us: int) -> dict[str, dict[str, float]]:
    """Events a second, of each kind over each window, at this boot time. Nothing is stored: looking changes nothing."""
    before_us = page[L.T_RATES_US]
    if not 0 < before_us <= boot_us:
        return {name: dict.fromkeys(WINDOWS, 0.0) for name in RATES}
    steps = steps_over(boot_us - before_us)
    found = {}
    for i, name in enumerate(RATES):
        at = L.T_RATES + i * L.RATE_WORDS
        count = max(sum(page[word] for word in COUNTED[i]) - page[at + L.RATE_COUNTED], 0)
        means = page[at + L.RATE_MEANS : at + L.RATE_WORDS]
        found[name] = {
            window: round(after(mean, count * ONE, step) / ONE, 6)
            for window, mean, step in zip(WINDOWS, means, steps, strict=True)
        }
    return found
