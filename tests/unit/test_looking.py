"""Look: messages seen by somebody who only watches. It takes nothing, and leaves no trace in the queue."""

from __future__ import annotations

import threading

import pytest

import penstock
from penstock.timequeue.looking import Look
from tests.conftest import Queues


def bodies(look: Look, **options: object) -> list[object]:
    return [message.body for message in look.browse(**options)]  # type: ignore[arg-type]


def test_messages_are_seen_in_order_of_delivery_from_any_place_on(queue: Queues) -> None:
    q = queue()
    q.put_many([f"{n}" for n in range(10)])
    q.put("first", priority=9)
    q.put("later", delay=1000)
    with Look(q.path, busy_s=1) as look:
        every = bodies(look, state="waiting", limit=100)
        assert every == ["first", *(f"{n}" for n in range(10)), "later"]
        for skip in range(13):
            assert bodies(look, state="waiting", limit=3, skip=skip) == every[skip : skip + 3]


def test_pending_and_claimed_messages_are_passed_over_alike(queue: Queues) -> None:
    q = queue()
    q.put_many([f"{n}" for n in range(8)])
    held = q.get_many(3)
    with q.receiver("spark") as receiver:
        claim = receiver.claim(3)
        with Look(q.path, busy_s=1) as look:
            every = bodies(look, state="pending", limit=100)
            assert sorted(map(str, every)) == [f"{n}" for n in range(6)]
            for skip in range(7):
                assert bodies(look, state="pending", limit=2, skip=skip) == every[skip : skip + 2]
                assert len(bodies(look, state="all", limit=100, skip=skip)) == 8 - skip
        receiver.commit(claim.number)
    q.ack_many(held)


def test_held_messages_are_passed_over_alike(queue: Queues) -> None:
    q = queue(exclusive_keys=True)
    q.put_many([f"{n}" for n in range(6)], key="one")
    with Look(q.path, busy_s=1) as look:
        every = bodies(look, state="waiting", limit=100)
        assert every == [f"{n}" for n in range(6)]
        assert [bodies(look, state="waiting", limit=2, skip=skip) for skip in (0, 1, 4, 6)] == [
            ["0", "1"], ["1", "2"], ["4", "5"], [],
        ]  # fmt: skip


def test_a_message_is_found_in_every_state_until_it_is_gone(queue: Queues) -> None:
    q = queue()
    id = q.put("hello", type="greeting")
    states = []
    with Look(q.path, busy_s=1) as look:
        for step in ("waiting", "pending", "gone"):
            found = look.find(id, among=10)
            states.append(None if found is None else (found.state, found.body, found.id == id, found.lease_us > 0))
            if step == "waiting":
                message = q.get()
            elif step == "pending":
                message.ack()
        with pytest.raises(penstock.Misuse, match="not a message id"):
            look.find("what", among=10)
    assert states == [("waiting", "hello", True, False), ("pending", "hello", True, True), None]


def test_a_message_that_was_moved_is_found_by_both_its_ids(queue: Queues) -> None:
    q, target = queue("here"), queue("there")
    target.put("another")
    id = q.put("hello")
    q.get().move(to=target)
    with Look(target.path, busy_s=1) as look:
        found = look.find(id, among=10)
        assert found is not None and found.body == "hello"
        again = look.find(look.message_id(found.slot, found.number), among=0)
        assert again is not None and again.id == id
        assert look.find(id, among=1) is None


def test_looking_takes_nothing_starts_nothing_and_syncs_nothing(queue: Queues) -> None:
    q = queue(index_sync_ms=0)
    q.put_many([b"x"] * 5)
    before, threads = q.stats(), threading.active_count()
    with Look(q.path, busy_s=1) as look:
        assert len(bodies(look, state="all", limit=10)) == 5
        assert threading.active_count() == threads
        assert look.name == str(q.path)
    after = q.stats()
    for figure in ("waiting", "gets", "acks", "releases", "returned", "syncs", "index_syncs"):
        assert getattr(after, figure) == getattr(before, figure)
    assert len(after.clients) == 1
