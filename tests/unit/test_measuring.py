"""Spans and rates: the arithmetic, how exact it is, and what it leaves in the statistics page."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store import layout as L
from penstock.store.measuring import ONE, WINDOWS_US, after, bucket_of, steps_over, stored
from penstock.timequeue.measures import BOUNDS_S, BOUNDS_US, WINDOWS, between, distribution, merged, rates

from .kernels import set_slot, small_kernel

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
BOOT_US = 1_000 * SECOND_US

times_us = st.one_of(
    st.integers(0, 100), st.integers(0, 10**9), st.integers(0, 1 << 63), st.sampled_from([1 << 40, (1 << 40) - 1])
)


# ---------------------------------------------------------------- buckets


def test_buckets_are_those_of_the_format() -> None:
    assert len(BOUNDS_US) == L.BUCKETS == len(set(BOUNDS_US)) and sorted(BOUNDS_US) == BOUNDS_US
    assert BOUNDS_US[:9] == [2, 3, 4, 6, 8, 12, 16, 24, 32]
    for k in range(1, 40):
        assert bucket_of(1 << k) == 2 * k - 1 == bucket_of((3 << k - 1) - 1) or k == 1
        assert bucket_of(3 << k - 1) == 2 * k == bucket_of((2 << k) - 1)
    assert bucket_of(1 << 40) == bucket_of(L.MASK64) == 79


@given(times_us)
def test_a_time_is_below_the_bound_of_its_bucket_and_not_below_the_one_before(took_us: int) -> None:
    bucket = bucket_of(took_us)
    assert took_us < BOUNDS_US[bucket]
    assert bucket == 0 or took_us >= BOUNDS_US[bucket - 1]


def span(times: list[int]) -> list[int]:
    words = [0] * L.SPAN_WORDS
    for took_us in times:
        words[L.SPAN_BUCKETS + bucket_of(took_us)] += 1
    words[L.SPAN_SUM_US], words[L.SPAN_MAX_US] = sum(times), max(times, default=0)
    return words


@given(st.lists(st.integers(0, (1 << 40) - 1), min_size=1, max_size=300))
def test_percentiles_are_within_a_fifth_or_a_microsecond(times: list[int]) -> None:
    found = distribution(span(times))
    ordered = sorted(times)
    assert (found.count, found.max_s) == (len(times), max(times) / 1e6)
    assert found.mean_s == pytest.approx(sum(times) / len(times) / 1e6)
    for share, value_s in ((50, found.p50_s), (90, found.p90_s), (99, found.p99_s)):
        true_us = ordered[math.ceil(len(times) * share / 100) - 1]
        assert value_s is not None
        assert abs(value_s * 1e6 - true_us) <= max(0.2 * true_us, 1) + 1e-6


def test_nothing_counted_is_nothing_known() -> None:
    found = distribution([0] * L.SPAN_WORDS)
    assert (found.count, found.mean_s, found.p99_s, found.max_s, found.buckets) == (0, None, None, None, [])
    assert merged([]) == merged([found, found]) == found == between(found, found)


@given(st.lists(st.lists(times_us, max_size=40), max_size=5))
def test_distributions_merged_are_that_of_all_times(parts: list[list[int]]) -> None:
    whole = distribution(span([min(each, 1 << 50) for part in parts for each in part]))
    found = merged(distribution(span([min(each, 1 << 50) for each in part])) for part in parts)
    assert (found.count, found.buckets, found.max_s) == (whole.count, whole.buckets, whole.max_s)
    assert (found.p50_s, found.p90_s, found.p99_s) == (whole.p50_s, whole.p90_s, whole.p99_s)
    assert found.mean_s == pytest.approx(whole.mean_s)


@given(st.lists(st.integers(0, 10**12), max_size=40), st.lists(st.integers(0, 10**12), max_size=40))
def test_what_came_between_two_looks(before: list[int], more: list[int]) -> None:
    found = between(distribution(span(before)), distribution(span(before + more)))
    true = distribution(span(more))
    assert (found.count, found.buckets) == (true.count, true.buckets)
    for one, other in ((found.p50_s, true.p50_s), (found.p99_s, true.p99_s)):
        assert one == pytest.approx(other, rel=0.2, abs=2e-6) if other is not None else one is None


def test_bounds_in_seconds_are_told_apart() -> None:
    assert len(set(BOUNDS_S)) == L.BUCKETS


# ---------------------------------------------------------------- what a delivery and an acknowledgement count


class Slot:
    """A message in a kernel in memory, and what is measured of it."""

    def __init__(self) -> None:
        self.kernel = small_kernel()
        self.at = self.kernel.slots_at + 5 * L.SLOT_WORDS

    def describe(self, *, enqueued_us: int, deliver_us: int, attempt_us: int = 0, attempts: int = 0) -> None:
        set_slot(self.kernel, 5, L.S_ENQUEUED_US, enqueued_us)
        set_slot(self.kernel, 5, L.S_DELIVER_US, deliver_us)
        set_slot(self.kernel, 5, L.S_ATTEMPT_US, attempt_us)
        set_slot(self.kernel, 5, L.S_INFO, attempts << L.ATTEMPTS_SHIFT)

    def page(self) -> list[int]:
        at = self.kernel.get(L.H_STATS_AT)
        return self.kernel.words.view[at : at + L.STATS_WORDS].tolist()

    def sums_us(self) -> tuple[list[int], list[int], list[int]]:
        """Count and sum of waiting time, lateness, service time."""
        found = self.page()
        spans = [found[at : at + L.SPAN_WORDS] for at in (L.T_WAITING, L.T_LATENESS, L.T_SERVICE)]
        waiting, lateness, service = ([sum(words[L.SPAN_BUCKETS :]), words[L.SPAN_SUM_US]] for words in spans)
        return waiting, lateness, service


class Case(NamedTuple):
    """A message in its slot and when it is delivered; then count and sum of waiting time and of lateness."""

    now_us: int
    waiting: list[int]
    lateness: list[int]
    enqueued_us: int
    deliver_us: int
    attempt_us: int = 0
    attempts: int = 0


DELIVERIES = {
    "ready": Case(150, [1, 50], [1, 50], enqueued_us=100, deliver_us=100),
    "timed": Case(150, [1, 50], [1, 20], enqueued_us=100, deliver_us=130),
    "put for a time that had passed": Case(150, [1, 50], [1, 50], enqueued_us=100, deliver_us=1),
    "before the clock was set back": Case(90, [1, 0], [1, 0], enqueued_us=100, deliver_us=100),
    "of an earlier version": Case(150, [0, 0], [0, 0], enqueued_us=0, deliver_us=100),
    "after a delay": Case(150, [0, 0], [1, 10], enqueued_us=9, deliver_us=140, attempt_us=120, attempts=1),
    "again as it was": Case(150, [0, 0], [0, 0], enqueued_us=9, deliver_us=9, attempt_us=120, attempts=3),
}


@pytest.mark.parametrize("case", DELIVERIES)
def test_a_delivery_counts_what_is_known_of_it_once(case: str) -> None:
    given_ = DELIVERIES[case]
    slot = Slot()
    slot.describe(
        enqueued_us=given_.enqueued_us,
        deliver_us=given_.deliver_us,
        attempt_us=given_.attempt_us,
        attempts=given_.attempts,
    )
    slot.kernel.measuring.delivered(slot.at, given_.now_us)
    assert slot.sums_us() == (given_.waiting, given_.lateness, [0, 0])


def test_recent_service_times_are_a_mean_in_which_the_latest_count_most() -> None:
    slot = Slot()
    seen = []
    for took_us in (800, 1600, 1600, 0):
        slot.describe(enqueued_us=1, deliver_us=1, attempt_us=5_000, attempts=1)
        slot.kernel.measuring.acknowledged(slot.at, 5_000 + took_us)
        seen.append(slot.page()[L.T_SERVICE_RECENT_US])
    assert seen == [800, 900, 988, 865]
    assert slot.sums_us()[2] == [4, 4000]
    for _ in range(200):
        slot.kernel.measuring.acknowledged(slot.at, 5_000)
    assert 1 <= slot.page()[L.T_SERVICE_RECENT_US] <= 4, "never 0, which would mean that nothing is known"


@pytest.mark.parametrize("count", [1, 2, 7, 300])
@pytest.mark.parametrize("took_us", [0, 3, 900, 5_000_000])
@pytest.mark.parametrize("recent_us", [0, 1, 1_000])
def test_messages_that_are_alike_are_measured_together_as_one_by_one(recent_us: int, took_us: int, count: int) -> None:
    pages = []
    for together in (True, False):
        slot = Slot()
        slot.kernel.words.raw(slot.kernel.get(L.H_STATS_AT) + L.T_SERVICE_RECENT_US, recent_us)
        slot.describe(enqueued_us=1, deliver_us=1, attempt_us=5_000, attempts=1)
        if together:
            slot.kernel.measuring.done(5_000, 5_000 + took_us, count)
        else:
            for _ in range(count):
                slot.kernel.measuring.acknowledged(slot.at, 5_000 + took_us)
        pages.append(slot.page())
    assert pages[0] == pages[1]


def test_nothing_is_kept_where_that_is_turned_off() -> None:
    slot = Slot()
    slot.kernel.measuring.keeping = False
    slot.describe(enqueued_us=100, deliver_us=100, attempt_us=100)
    slot.kernel.measuring.delivered(slot.at, 150)
    slot.kernel.measuring.acknowledged(slot.at, 150)
    assert not slot.kernel.measuring.is_tick(START_US)
    assert not any(slot.page())


# ---------------------------------------------------------------- rates


class Counting:
    """Puts that are counted in a kernel in memory, at times that the test says."""

    def __init__(self) -> None:
        self.kernel = small_kernel()
        self.stats_at = self.kernel.get(L.H_STATS_AT)
        self.boot_us = BOOT_US
        self.wall_us = START_US

    def put(self, count: int = 1) -> None:
        measuring = self.kernel.measuring
        if measuring.is_tick(self.wall_us):
            measuring.advance(self.wall_us, self.boot_us)
        self.kernel.words.raw(self.stats_at + L.T_PUTS, self.kernel.get(self.stats_at + L.T_PUTS) + count)

    def wait(self, span_us: int) -> None:
        self.boot_us += span_us
        self.wall_us += span_us

    def steady(self, *, a_second: int, seconds: int) -> None:
        for _ in range(a_second * seconds):
            self.put()
            self.wait(SECOND_US // a_second)

    def rates(self) -> dict[str, float]:
        words = self.kernel.words.view[self.stats_at : self.stats_at + L.STATS_WORDS].tolist()
        return rates(words, self.boot_us)["puts"]


def test_a_steady_rate_is_found_in_every_window_that_it_fills() -> None:
    counting = Counting()
    counting.steady(a_second=20, seconds=300)
    found = counting.rates()
    assert found["1s"] == pytest.approx(20, rel=0.05)
    assert found["1m"] == pytest.approx(20 * -math.expm1(-300 / 60), rel=0.01)
    assert found["15m"] == pytest.approx(20 * -math.expm1(-300 / 900), rel=0.01)


@pytest.mark.parametrize("idle_s", [0.1, 1, 10, 60, 3600, 30 * 86_400])
def test_a_rate_fades_while_nobody_does_anything(idle_s: float) -> None:
    counting = Counting()
    counting.steady(a_second=10, seconds=60)
    before = counting.rates()
    counting.wait(round(idle_s * SECOND_US))
    read = counting.rates()
    for window, window_us in zip(WINDOWS, WINDOWS_US, strict=True):
        expected = before[window] * math.exp(-idle_s * SECOND_US / window_us)
        assert read[window] == pytest.approx(expected, rel=0.25, abs=1e-6)
    counting.put()  # whoever does something next finds the same
    counting.boot_us += 1
    after_it = counting.rates()
    for window, window_us in zip(WINDOWS, WINDOWS_US, strict=True):
        assert after_it[window] == pytest.approx(read[window] + SECOND_US / window_us, rel=0.01, abs=1e-5)


def test_one_event_is_one_event_in_every_window() -> None:
    counting = Counting()
    counting.put(0)
    counting.put()
    assert counting.rates() == {"1s": 1.0, "1m": round(1 / 60, 6), "15m": round(1 / 900, 6)}


def test_a_rate_reaches_zero_in_the_end() -> None:
    counting = Counting()
    counting.put(5)
    for _ in range(2000):
        counting.wait(20 * SECOND_US)
        counting.put(0)
    assert counting.rates() == dict.fromkeys(WINDOWS, 0.0)


@pytest.mark.parametrize("jump_s", [-86_400 * 365, -3600, -1, 1, 3600, 86_400 * 365])
def test_setting_the_wall_clock_changes_no_rate(jump_s: int) -> None:
    steady, jumping = Counting(), Counting()
    for i in range(200):
        if i == 100:
            jumping.wall_us += jump_s * SECOND_US
        for each in (steady, jumping):
            each.put()
            each.wait(50_000)
    for window, mean in steady.rates().items():
        assert jumping.rates()[window] == pytest.approx(mean, rel=0.02)


def test_a_boot_time_that_goes_back_begins_anew() -> None:
    counting = Counting()
    counting.steady(a_second=10, seconds=10)
    counting.boot_us = SECOND_US
    assert counting.rates() == dict.fromkeys(WINDOWS, 0.0)
    counting.put()
    counting.steady(a_second=4, seconds=60)
    assert counting.rates()["1s"] == pytest.approx(4, rel=0.3)


def test_counts_that_went_back_are_no_events() -> None:
    """As after a transaction that was undone."""
    counting = Counting()
    counting.put(10)
    counting.wait(SECOND_US)
    counting.put(0)
    counting.kernel.words.raw(counting.stats_at + L.T_PUTS, 3)
    before = counting.rates()
    counting.wait(SECOND_US)
    counting.put(0)
    assert all(counting.rates()[window] <= before[window] for window in WINDOWS)


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**10), max_size=10))
def test_time_in_steps_fades_as_much_as_time_at_once(count: int, spans_us: list[int]) -> None:
    for window in range(L.RATE_WINDOWS):
        mean = after(0.0, count * ONE, steps_over(L.TICK_US)[window])
        at_once = after(mean, 0, steps_over(sum(spans_us))[window])
        for span_us in spans_us:
            mean = after(mean, 0, steps_over(span_us)[window])
        assert mean == pytest.approx(at_once, rel=1e-9, abs=1.0)
        assert 0 <= stored(mean) <= L.MASK64


@given(st.integers(0, 10**6), st.integers(1, L.TICK_US), st.integers(0, 10**8))
def test_events_weigh_what_their_age_leaves_of_them(count: int, busy_us: int, idle_us: int) -> None:
    """However they are spread over the time in which they were counted, within what that time can change."""
    if busy_us < L.TICK_US:
        idle_us = 0
    for window, window_us in enumerate(WINDOWS_US):
        found = after(0.0, count, steps_over(busy_us + idle_us)[window]) * window_us / 1e6
        youngest = count * math.exp(-idle_us / window_us)
        oldest = count * math.exp(-(idle_us + busy_us) / window_us)
        assert oldest * 0.999999 <= found <= youngest * 1.000001
