"""The decisions of the synchronization component: what a batch takes, when it is synced, who is told, what is next."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.timequeue.syncbatches import AFTER, CONFIRM_US, SAVED_MAX, Batches, Limits, Ranges, State
from penstock.timequeue.syncframes import Request

DATA_BYTES = 1 << 20
FIXED = Limits(gather_us=1000, idle_us=300, gap_bytes=4096, automatic=False)


def batches(limits: Limits = FIXED) -> Batches:
    return Batches(limits, data_bytes=DATA_BYTES)


def ask(number: int, offset: int = 0, length: int = 256, *more: tuple[int, int]) -> Request:
    return Request(client=number, channel=0, serial=number, ranges=((offset, length), *more))


def who(request: Request) -> tuple[int, int, int]:
    return request.client, request.channel, request.serial


def go_round(machine: Batches, now_us: int) -> list[Request]:
    """Sync, tell, and have all of them confirm it."""
    assert machine.sync_due(now_us)
    machine.begin(now_us)
    told = machine.synced(now_us)
    for request in told:
        machine.confirmed(who(request))
    machine.look(now_us)
    return told


def test_requests_gather_until_the_longest_gathering_time() -> None:
    machine = batches()
    for number, now_us in enumerate((0, 250, 500, 750, 990)):
        assert machine.request(ask(number, number * 256), now_us)
        assert not machine.sync_due(now_us)
    assert machine.next_look_us() == 1000
    assert not machine.sync_due(999)
    assert machine.sync_due(1000)


def test_a_batch_closes_after_the_longest_time_without_a_new_request() -> None:
    machine = batches()
    machine.request(ask(1), 100)
    assert machine.next_look_us() == 400
    assert not machine.sync_due(399)
    assert machine.sync_due(400)


def test_a_batch_closes_when_it_has_the_most_requests_or_bytes() -> None:
    machine = batches(Limits(gather_us=10**9, idle_us=10**9, batch_requests_max=3, automatic=False))
    for number in range(3):
        assert not machine.sync_due(0)
        machine.request(ask(number, number * 256), 0)
    assert machine.sync_due(0)
    machine = batches(Limits(gather_us=10**9, idle_us=10**9, batch_bytes_max=1024, automatic=False))
    machine.request(ask(1, 0, 768), 0)
    assert not machine.sync_due(0)
    machine.request(ask(2, 768, 256), 0)
    assert machine.sync_due(0)


def test_ranges_are_sorted_and_those_side_by_side_or_nearly_are_one() -> None:
    machine = batches()
    for number, offset in enumerate((4608, 8192, 512, 0, 256)):
        machine.request(ask(number, offset), 0)
    assert machine.begin(0) == [(0, 8448)]


def test_what_does_not_fit_waits_for_the_next_batch() -> None:
    machine = batches()
    near, far, near_too = ask(1, 0), ask(2, 512 << 10), ask(3, 256)
    for request in (near, far, near_too):
        assert machine.request(request, 0), "it gets its receipt all the same"
    assert go_round(machine, 300) == [near, near_too]
    assert go_round(machine, 600) == [far]


def test_a_request_that_is_larger_than_a_batch_has_one_for_itself() -> None:
    machine = batches(Limits(batch_bytes_max=1024, gather_us=0, idle_us=0, automatic=False))
    machine.request(ask(1, 0, 256), 0)
    machine.request(ask(2, 256, 4096), 0)
    assert [len(go_round(machine, 0)), len(go_round(machine, 0))] == [1, 1]


def test_limits_that_nothing_reaches_are_none() -> None:
    huge = 1 << 70
    machine = batches(
        Limits(batch_bytes_max=huge, batch_requests_max=huge, gap_bytes=huge, gather_us=0, idle_us=0, automatic=False)
    )
    asked = [ask(1, DATA_BYTES - 256), ask(2, 0), ask(3, 4096)]
    for request in asked:
        assert machine.request(request, 0)
    assert go_round(machine, 0) == asked


def test_what_lies_outside_the_data_is_skipped() -> None:
    machine = batches()
    for offset, length in ((DATA_BYTES, 256), (DATA_BYTES - 255, 256), (0, 0), (0, DATA_BYTES + 1), (1 << 63, 1 << 63)):
        assert not machine.request(ask(1, offset, length), 0)
    assert not machine.request(ask(1, 0, 256, (DATA_BYTES, 1)), 0)
    assert machine.request(ask(1, DATA_BYTES - 256, 256), 0)


def test_what_comes_during_a_sync_belongs_to_the_next_one() -> None:
    """Its copy may have been under way when the sync began."""
    machine = batches()
    machine.request(ask(1), 0)
    machine.begin(300)
    machine.request(ask(2, 256), 301)
    assert machine.synced(400) == [ask(1)]
    machine.request(ask(3, 512), 401)
    machine.confirmed(who(ask(1)))
    machine.look(402)
    assert go_round(machine, 702) == [ask(2, 256), ask(3, 512)]


def test_no_sync_begins_before_all_have_confirmed_their_confirmation() -> None:
    machine = batches()
    machine.request(ask(1), 0)
    machine.request(ask(2, 256), 0)
    machine.begin(300)
    machine.synced(400)
    machine.request(ask(3), 400)
    machine.confirmed(who(ask(1)))
    machine.confirmed((2, 0, 7))  # of another time
    machine.look(5000)
    assert machine.state is State.CONFIRMING and not machine.sync_due(5000)
    machine.confirmed(who(ask(2)))
    machine.look(5001)
    assert machine.state is State.GATHERING and machine.sync_due(5301)


def test_one_that_died_before_it_confirmed_holds_nobody_up_for_long() -> None:
    machine = batches()
    machine.request(ask(1), 0)
    machine.begin(300)
    machine.synced(400)
    assert machine.next_look_us() == 400 + CONFIRM_US
    machine.look(400 + CONFIRM_US - 1)
    assert machine.state is State.CONFIRMING
    machine.look(400 + CONFIRM_US)
    assert machine.state is State.GATHERING and machine.next_look_us() is None


def test_one_that_cannot_be_told_is_not_waited_for() -> None:
    machine = batches()
    machine.request(ask(1), 0)
    machine.begin(300)
    machine.synced(400)
    machine.gone(who(ask(1)))
    machine.look(400)
    assert machine.state is State.GATHERING


def test_when_a_sync_fails_all_that_wait_are_told() -> None:
    machine = batches()
    machine.request(ask(1), 0)
    machine.request(ask(2, 512 << 10), 0)
    machine.begin(300)
    machine.request(ask(3), 301)
    assert sorted(request.client for request in machine.give_up()) == [1, 2, 3]
    assert machine.give_up() == [] and not machine.sync_due(10**9)


def test_whoever_was_confirmed_is_not_told_of_a_later_failure() -> None:
    machine = batches()
    machine.request(ask(1), 0)
    machine.begin(300)
    machine.synced(400)
    assert machine.give_up() == []


def test_no_more_is_saved_than_there_is_room_for() -> None:
    machine = batches()
    machine.request(ask(0), 0)
    machine.begin(300)
    assert sum(machine.request(ask(number), 300) for number in range(SAVED_MAX + 10)) == SAVED_MAX


AUTOMATIC = Limits(gather_us=2000, idle_us=10_000)


def served(machine: Batches, clients: int, now_us: int, sync_us: int) -> int:
    """So many ask; when the sync began."""
    for number in range(clients):
        machine.request(ask(number, number * 256), now_us)
    began_us = now_us if machine.sync_due(now_us) else machine.next_look_us()
    assert began_us is not None and machine.sync_due(began_us)
    machine.begin(began_us)
    for request in machine.synced(began_us + sync_us):
        machine.confirmed(who(request))
    machine.look(began_us + sync_us)
    return began_us


def test_automatic_one_alone_never_waits() -> None:
    machine = batches(AUTOMATIC)
    for start_us in range(0, 10**6, 10_000):
        assert served(machine, 1, start_us, 1000) == start_us


def test_automatic_it_waits_for_those_that_it_served_before_and_no_longer_than_a_sync() -> None:
    machine = batches(AUTOMATIC)
    now_us = 0
    for _ in range(20):
        now_us += 10_000
        served(machine, 8, now_us, 1000)
    assert 900 < machine.idle_us() <= 1000
    assert served(machine, 8, now_us + 10_000, 1000) == now_us + 10_000, "all are there"
    late_us = served(machine, 5, now_us + 20_000, 1000) - (now_us + 20_000)
    assert 900 < late_us <= 1000, "three of them may still come"
    assert served(machine, 5, now_us + 30_000, 1000) == now_us + 30_000, "they did not: the load is lower now"


def test_automatic_the_gathering_time_has_a_bound() -> None:
    machine = batches(AUTOMATIC)
    for start_us in range(0, 10**8, 10**6):
        served(machine, 2, start_us, 500_000)
    assert machine.idle_us() == 2000


def used(machine: Batches, clients: int, spread_us: int, sync_us: int = 200, rounds: int = 30) -> int:
    """So many clients that ask one after the other, again and again, in ``spread_us``; when they were told last."""
    now_us = 10_000
    for _ in range(rounds):
        for number in range(clients):
            now_us += spread_us // clients
            machine.confirmed(who(ask(number)))
            machine.look(now_us)
            machine.request(ask(number, number * 256), now_us)
        assert machine.sync_due(now_us), "all of them are there"
        machine.begin(now_us)
        now_us += sync_us
        assert len(machine.synced(now_us)) == clients
    return now_us


def test_automatic_it_does_not_look_while_many_are_missing() -> None:
    machine = batches(AUTOMATIC)
    told_us = used(machine, 64, 1600)
    assert machine.nap_us(told_us) == machine.idle_us() == 199, "not beyond the time when something is due"
    now_us = told_us
    for number in range(32):
        now_us += 25
        machine.confirmed(who(ask(number)))
        machine.request(ask(number, number * 256), now_us)
    machine.look(now_us)
    assert machine.state is State.GATHERING
    assert machine.nap_us(now_us) == 199, "half of those that are missing take 400 us"
    for number in range(32, 56):
        now_us += 25
        machine.request(ask(number, number * 256), now_us)
    assert 90 < machine.nap_us(now_us) <= 100, "8 of 64 are missing, half of which come in 100 us"
    machine.request(ask(56, 56 * 256), now_us)
    assert machine.nap_us(now_us) == 0, "the last few may wake it"


def test_it_looks_all_the_time_while_few_are_missing_or_come_quickly() -> None:
    for clients, spread_us in ((1, 100), (7, 1400), (64, 64)):
        machine = batches(AUTOMATIC)
        assert machine.nap_us(used(machine, clients, spread_us)) == 0


def test_with_nothing_under_way_it_waits_for_a_request_alone() -> None:
    machine = batches(AUTOMATIC)
    now_us = used(machine, 64, 1600)
    for number in range(64):
        machine.confirmed(who(ask(number)))
    machine.look(now_us)
    assert machine.state is State.GATHERING and machine.nap_us(now_us) == 0 and machine.next_look_us() is None


def test_it_does_not_nap_when_a_sync_is_due() -> None:
    """Many are missing, but those that came during the last one are more than a batch takes."""
    machine = batches(Limits(batch_requests_max=16))
    now_us = used(machine, 16, 1600)
    for number in range(16):
        machine.confirmed(who(ask(number)))
        machine.look(now_us)
        machine.request(ask(number, number * 256), now_us)
    machine.begin(now_us)
    now_us += 200
    for number in range(16, 60):
        machine.request(ask(number, number * 256), now_us)
    for request in machine.synced(now_us):
        assert machine.nap_us(now_us) > 0
        machine.confirmed(who(request))
    machine.look(now_us)
    assert machine.sync_due(now_us) and machine.nap_us(now_us) == 0


def test_with_options_of_its_own_it_looks_all_the_time() -> None:
    """So that the longest time without a new request is what was asked for."""
    machine = batches(Limits(gather_us=400_000, idle_us=10_000, batch_requests_max=64, automatic=False))
    assert machine.nap_us(used(machine, 64, 1600)) == 0


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), min_size=1, max_size=40),
    st.integers(0, 500),
)
def test_merged_ranges_cover_what_was_asked_for_and_little_else(asked: list[tuple[int, int]], gap: int) -> None:
    ranges = Ranges(gap)
    wanted: set[int] = set()
    for start, length in asked:
        ranges.add(start, length)
        wanted.update(range(start, start + length))
    merged = ranges.merged()
    covered = {byte for start, length in merged for byte in range(start, start + length)}
    assert wanted <= covered
    for (start, length), (following, _) in pairwise(merged):
        assert following - (start + length) > gap, "else they would be one"
    unasked = sorted(covered - wanted)
    runs = [end - start for start, end in _runs(unasked)]
    assert all(run <= gap for run in runs)
    assert ranges.total_bytes == sum(length for _, length in asked)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


class Component(RuleBasedStateMachine):
    """Whatever comes in which order: nobody is confirmed by a sync that began before he asked, everybody gets an
    answer, none twice, and it never gets stuck."""

    @initialize(
        automatic=st.booleans(), requests=st.integers(1, 40), size=st.integers(256, 8192), gap=st.integers(0, 9000)
    )
    def begin_with(self, automatic: bool, requests: int, size: int, gap: int) -> None:
        limits = Limits(size, requests, gather_us=1000, idle_us=300, gap_bytes=gap, automatic=automatic)
        self.machine = batches(limits)
        self.now_us = 0
        self.serial = 0
        self.asked: dict[int, Request] = {}  # with a receipt, and not told yet
        self.before_sync: set[int] = set()
        self.told: set[int] = set()
        self.unconfirmed: list[Request] = []

    @rule(places=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), min_size=1, max_size=3))
    def a_request_comes(self, places: list[tuple[int, int]]) -> None:
        self.serial += 1
        ranges = tuple((unit * 256, units * 256) for unit, units in places)
        request = Request(client=self.serial % 5, channel=0, serial=self.serial, ranges=ranges)
        if self.machine.request(request, self.now_us):
            self.asked[self.serial] = request

    @rule(many=st.integers(8, 30))
    def many_come_one_after_the_other(self, many: int) -> None:
        for unit in range(many):
            self.now_us += 30
            self.a_request_comes([(unit, 1)])

    @precondition(lambda self: self.machine.state is State.GATHERING)
    @rule(many=st.integers(8, 30))
    def many_come_again_and_again(self, many: int) -> None:
        """As they do under load, so that it knows them."""
        for _ in range(3):
            self.many_come_one_after_the_other(many)
            if self.machine.sync_due(self.now_us):
                self.a_sync_begins()
                self.time_passes(300)
                self.a_sync_ends()
                while self.machine.state is State.CONFIRMING:
                    self.one_confirms_or_dies(False)

    @rule(some_us=st.integers(1, 2000))
    def time_passes(self, some_us: int) -> None:
        self.now_us += some_us
        self.machine.look(self.now_us)

    @precondition(lambda self: self.machine.sync_due(self.now_us))
    @rule()
    def a_sync_begins(self) -> None:
        ranges = self.machine.begin(self.now_us)
        assert ranges == sorted(ranges)
        self.before_sync = set(self.asked)

    @precondition(lambda self: self.machine.state is State.SYNCING)
    @rule()
    def a_sync_ends(self) -> None:
        told = self.machine.synced(self.now_us)
        assert told
        for request in told:
            assert request.serial in self.before_sync and request.serial not in self.told
            self.told.add(request.serial)
            del self.asked[request.serial]
        self.unconfirmed = list(told)

    @precondition(lambda self: self.machine.state is State.CONFIRMING and self.unconfirmed)
    @rule(gone=st.booleans())
    def one_confirms_or_dies(self, gone: bool) -> None:
        request = self.unconfirmed.pop()
        (self.machine.gone if gone else self.machine.confirmed)(who(request))
        self.machine.look(self.now_us)
        assert self.unconfirmed or self.machine.state is State.GATHERING, "all have: the next batch may begin"

    @precondition(lambda self: self.machine.state is State.SYNCING)
    @rule()
    def a_sync_fails(self) -> None:
        assert {request.serial for request in self.machine.give_up()} == set(self.asked)
        self.asked.clear()

    @invariant()
    def whoever_waits_will_be_looked_after(self) -> None:
        if self.asked and self.machine.state is State.GATHERING:
            assert self.machine.next_look_us() is not None

    @invariant()
    def it_never_naps_beyond_what_is_due(self) -> None:
        nap_us = self.machine.nap_us(self.now_us)
        look_us = self.machine.next_look_us()
        assert nap_us == 0 or (look_us is not None and self.now_us + nap_us <= look_us)
        assert nap_us == 0 or not self.machine.sync_due(self.now_us)

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        for _ in range(2 * len(self.asked) + 3):  # nobody waits for ever, whatever the others do
            if self.machine.state is State.SYNCING:
                self.a_sync_ends()
            self.now_us += CONFIRM_US
            self.machine.look(self.now_us)
            if self.machine.sync_due(self.now_us):
                self.a_sync_begins()
        assert not self.asked


Component.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestComponent = Component.TestCase


def test_the_states_follow_each_other_in_a_circle() -> None:
    seen, state = [], State.GATHERING
    for _ in State:
        seen.append(state)
        state = AFTER[state]
    assert state is State.GATHERING and set(seen) == set(State)
