"""Choosing among due messages: what comes in front of the walk, or leaves behind it, is not overlooked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue.selection import Selection
from tests.conftest import Queues, SimulatedClock


class AtFirstSync:
    """Does something when a sync begins, once; an observer for ``rig.observe``."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work

    def store(self, path: str, index: int, value: int) -> None:
        """Nothing."""

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.SYNC and self._work is not None:
            work, self._work = self._work, None
            work()


def test_messages_that_are_published_after_higher_numbers_are_found(queue: Queues, clock: SimulatedClock) -> None:
    slow = queue(durability="commit")
    fast = queue.open(slow.path)
    selection = Selection(fast._mine(), types=("t",))
    found: list[int] = []

    def pass_by() -> None:
        fast.put(b"early", type="t", durability="relaxed")
        found.append(selection.look(10))

    rig.observe(AtFirstSync(pass_by))
    try:
        slow.put_many([b"late"] * 3, type="t")
    finally:
        rig.observe(None)
    assert found == [1]
    clock.advance(1)
    with fast.receiver("r") as receiver:
        claim = receiver.claim(10, selection=selection)
        assert claim is not None and claim.count == 4
        fast.put(b"next", type="t")
        claim = receiver.claim(10, selection=selection)
        assert claim is not None and claim.count == 1


def test_the_end_of_what_was_due_is_not_seen_before_all_of_it_is_taken(queue: Queues) -> None:
    q = queue()
    q.put_many([b"0", b"1", b"2"], type="t")
    client = q._mine()
    now_us, below = client.clock.wall_us(), client.kernel.get(L.H_NUMBER_NEXT)
    selection = Selection(client, types=("t",), below=below, due_us=now_us)
    held = q.get()
    with q.receiver("r") as receiver:
        claim = receiver.claim(10, selection=selection)
        assert claim is not None and claim.count == 2
        assert receiver.claim(10, selection=selection) is None
        q.release(held)
        q.put(b"new", type="t")
        claim = receiver.claim(10, selection=selection)
        assert claim is not None and claim.count == 1
        assert receiver.claim(10, selection=selection) is None
    assert q.qsize() == 1


def test_what_it_had_found_went_to_others_and_there_is_more_behind(
    queue: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.timequeue.selection.FOUND_A_TURN_MAX", 8)
    q = queue()
    q.put_many([b"%d" % i for i in range(20)], type="t")
    selection = Selection(q._mine(), types=("t",))
    with q.receiver("r") as receiver:
        claim = receiver.claim(2, selection=selection)
        assert claim is not None and claim.count == 2 and selection.count == 6
        q.ack_many(q.get_many(6))
        claim = receiver.claim(5, selection=selection)
        assert claim is not None and claim.count == 5
        q.ack_many(q.get_many(20))
        assert receiver.claim(5, selection=selection) is None


def test_the_next_of_an_exclusive_key_is_found_when_the_last_is_done(queue: Queues, clock: SimulatedClock) -> None:
    """It comes to a place that the walk has passed."""
    q = queue(exclusive_keys=True)
    q.put_many(["first", "second"], key="k", type="t")
    q.put("other", type="t")
    selection = Selection(q._mine(), types=("t",))
    assert selection.look(10) == 2
    with q.receiver("r") as receiver:
        claim = receiver.claim(10, selection=selection)
        assert claim is not None and claim.count == 2
        clock.advance(2)
        assert receiver.claim(10, selection=selection) is None
        receiver.commit(claim.number)
        clock.advance(2)
        claim = receiver.claim(10, selection=selection)
        assert claim is not None and claim.count == 1
        receiver.commit(claim.number)
    assert q.qsize() == 0
