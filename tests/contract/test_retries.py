"""What every kind of queue promises of messages that fail, that were put before, that have expired or are moved."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Backoff, Draft, LeaseLost, Misuse, QueueBusy, QueueEmpty, QueueFull
from penstock.store import layout as L
from penstock.store import rig
from tests.conftest import Queues, SimulatedClock


def take(queue: penstock.TimeQueue) -> penstock.Message:
    return queue.get(block=False)


def fail(queue: penstock.TimeQueue, text: str = "no") -> None:
    with pytest.raises(ValueError, match=text), take(queue):
        raise ValueError(text)


def is_empty(queue: penstock.TimeQueue) -> bool:
    """For a receiver, who may find something to give up on the way."""
    return not queue.get_many(10)


# ---------------------------------------------------------------- attempts


def test_a_message_that_fails_too_often_becomes_a_dead_letter(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=3)
    id = q.put({"order": 7}, type="order", key="example.com", headers={"a": "b"}, priority=4)
    for attempt in range(3):
        fail(q, f"number {attempt}")
        clock.advance(1)
    assert is_empty(q) and q.stats().dead_lettered == 1
    dead = q.dead_letters()
    assert dead is not None and dead.path.name == "queue.dead"
    letter = take(dead)
    assert (letter.body, letter.type, letter.key, letter.headers) == ({"order": 7}, "order", "example.com", {"a": "b"})
    assert (letter.id, letter.priority, letter.attempts, letter.attempts_before) == (id, 4, 1, 3)
    assert (letter.reason, letter.error) == ("max_attempts", "ValueError: number 2")
    assert [text for _, text in letter.history] == [f"ValueError: number {n}" for n in range(3)]
    assert (letter.history[2][0] - letter.history[0][0]) == timedelta(seconds=2)
    assert letter.came_from == q.name


def test_without_a_limit_a_message_is_delivered_for_ever(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put(b"again")
    for _ in range(50):
        fail(q)
    assert take(q).attempts == 51 and q.dead_letters() is None


def test_leases_that_end_and_owners_that_die_count(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=2)
    q.put(b"m")
    other = queue.open(q)
    assert take(other).attempts == 1
    queue.die(other)
    clock.advance(1)
    assert q.get_many(1, lease=5)[0].attempts == 2
    clock.advance(6)
    assert is_empty(q) and q.stats().dead_lettered == 1
    letter = take(q.dead_letters())
    assert letter.reason == "max_attempts" and letter.error is None and letter.attempts_before == 3


def test_a_clock_that_jumps_dead_letters_nothing(queue: Queues, clock: SimulatedClock) -> None:
    """Leases run on a clock that nobody can set; the work of a living owner goes on."""
    q = queue(max_attempts=1)
    q.put(b"m")
    message = q.get(block=False, lease=60)
    clock.set_wall(clock.now_s + 10 * 365 * 86_400)
    assert is_empty(q) and q.stats().dead_lettered == 0
    message.ack()


def test_a_message_has_its_own_limit(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=5)
    q.put(b"once", max_attempts=1)
    q.put(b"usual")
    fail(q)
    assert q.stats().dead_lettered == 1
    assert [m.data for m in q.get_many(5)] == [b"usual"]


def test_dead_letters_may_be_deleted(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1, dead_letter="delete")
    q.put(b"m")
    q.put(b"n")
    fail(q)
    with take(q) as message:
        message.dead_letter("bad")
    assert q.stats().dropped == 2 and q.stats().pending == q.stats().waiting == 0
    assert q.dead_letters() is None and not q.path.with_name("queue.dead").exists()


def test_dead_letters_may_go_to_a_queue_of_ones_choice(queue: Queues, clock: SimulatedClock) -> None:
    letters = queue("letters")
    q = queue("orders", max_attempts=1, dead_letter=letters.path)
    q.put(b"m")
    fail(q)
    assert take(letters).reason == "max_attempts"
    assert q.dead_letters().path == letters.path


def test_a_dead_letter_is_never_given_up_again(queue: Queues, clock: SimulatedClock) -> None:
    """Its limits were those of another queue."""
    q = queue()
    q.put(b"m", max_attempts=1, ttl=10, lease=1, backoff=100)
    with take(q) as message:
        message.dead_letter("bad")
    clock.advance(20)
    dead = q.dead_letters()
    for _ in range(5):
        fail(dead)
    assert take(dead).attempts == 6


def test_who_lost_the_lease_is_told_so(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1)
    q.put(b"m")
    message = q.get(block=False, lease=1)
    clock.advance(2)
    assert is_empty(q) and q.stats().dead_lettered == 1
    with pytest.raises(LeaseLost):
        message.fail("late")
    assert q.dead_letters().qsize() == 1


def test_by_hand_with_reason_and_error(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    id = q.put("text")
    with take(q) as message:
        message.dead_letter("no such customer", error=KeyError("c17"))
        assert message.state == "done"
    letter = take(q.dead_letters())
    assert (letter.reason, letter.error, letter.body, letter.id) == ("no such customer", "KeyError: 'c17'", "text", id)
    with pytest.raises(LeaseLost):
        message.dead_letter("again")
    assert q.dead_letters().stats().puts == 1
    with pytest.raises(Misuse):
        q.dead_letter(letter, 7)  # type: ignore[arg-type]


def test_a_full_dead_letter_queue_parks_and_loses_nothing(queue: Queues, clock: SimulatedClock) -> None:
    letters = queue("letters", slots=1)
    letters.put(b"full")
    q = queue("orders", max_attempts=1, dead_letter=letters.path)
    q.put(b"m")
    fail(q)
    assert (q.stats().parked, q.stats().dead_lettered, q.qsize()) == (1, 0, 1)
    assert is_empty(q)  # for now
    clock.advance(61)
    assert is_empty(q) and q.stats().parked == 2
    q.put(b"by hand")
    with take(q) as message:
        with pytest.raises(QueueFull):
            message.dead_letter("bad")
        assert message.state == "pending"
    take(letters).ack()
    clock.advance(61)
    assert is_empty(q) and q.stats().dead_lettered == 1
    assert take(letters).data == b"m"


def test_a_dead_letter_queue_that_cannot_be_made_stops_nobody(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1, dead_letter="/proc/nowhere")
    q.put_many([b"m", b"n"])
    fail(q)
    assert q.stats().parked == 1
    assert take(q).data == b"n"


def test_what_was_interrupted_did_not_fail(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1)
    q.put(b"m")
    with pytest.raises(KeyboardInterrupt), take(q):
        raise KeyboardInterrupt
    assert (q.stats().dead_lettered, q.qsize()) == (0, 1)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3", 10**9])
def test_limits_that_are_none(wrong: Any, path: Path, queue: Queues, clock: SimulatedClock) -> None:
    with pytest.raises(Misuse):
        penstock.create(path, max_attempts=wrong)
    q = queue()
    with pytest.raises(Misuse):
        q.put(b"m", max_attempts=wrong)
    assert q.qsize() == 0


# ---------------------------------------------------------------- backoff


def test_after_a_failure_a_message_waits(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=Backoff.exponential(10, factor=3, most=60))
    q.put(b"m")
    for wait_s in (10, 30, 60, 60):
        fail(q)
        clock.advance(wait_s - 0.001)
        assert is_empty(q)
        clock.advance(0.001)
    assert take(q).attempts == 5


def test_others_are_not_held_up_meanwhile(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=10)
    q.put_many([b"bad", b"good"])
    fail(q)
    assert take(q).data == b"good"
    clock.advance(10)
    assert take(q).data == b"bad"


def test_a_message_has_its_own_backoff(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=10)
    q.put(b"m", backoff=Backoff.constant(100))
    fail(q)
    clock.advance(99)
    assert is_empty(q)
    clock.advance(1)
    assert take(q).attempts == 2


def test_fail_may_be_told_how_long(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=10)
    q.put(b"m")
    take(q).fail("busy", delay=timedelta(seconds=2))
    clock.advance(2)
    take(q).fail("busy", delay=0)
    assert take(q).attempts == 3


def test_a_release_is_no_failure(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=10, max_attempts=1)
    q.put(b"m")
    take(q).release()
    assert q.qsize() == 1 and q.stats().dead_lettered == 0


def test_a_dead_owner_and_an_ended_lease_back_off_and_a_close_does_not(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=10)
    q.put(b"m")
    other = queue.open(q)
    take(other)
    other.close()
    other = queue.open(q)
    assert take(other).attempts == 2
    queue.die(other)
    clock.advance(1)
    assert is_empty(q)
    clock.advance(10)
    assert q.get(block=False, lease=5).attempts == 3
    clock.advance(6)
    assert is_empty(q)
    clock.advance(10)
    assert take(q).attempts == 4


def test_jitter_leaves_out_a_share_by_chance() -> None:
    backoff = Backoff.constant(10, jitter=0.5)
    delays = {backoff.delay_us(1, number) for number in range(1000)}
    assert 5_000_000 <= min(delays) < 5_200_000 and 9_800_000 < max(delays) <= 10_000_000
    assert len(delays) > 900
    assert backoff.delay_us(1, 5) == backoff.delay_us(1, 5) != backoff.delay_us(2, 5)


@pytest.mark.parametrize(
    "wrong", [-1, "1", True, [1], Backoff(-1), Backoff(1, 0.5), Backoff(1, jitter=2), float("nan")]
)
def test_backoffs_that_are_none(wrong: Any, path: Path, queue: Queues, clock: SimulatedClock) -> None:
    with pytest.raises(Misuse):
        penstock.create(path, backoff=wrong)
    with pytest.raises(Misuse):
        queue().put(b"m", backoff=wrong)


def test_a_message_has_its_own_lease(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(lease=10)
    q.put(b"slow", lease=100)
    message = take(q)
    clock.advance(99)
    assert is_empty(q)
    clock.advance(2)
    assert take(q).attempts == 2
    with pytest.raises(LeaseLost):
        message.ack()


# ---------------------------------------------------------------- dedup ids


@pytest.mark.parametrize("durability", ["relaxed", "commit"])
@pytest.mark.parametrize("size", [10, 20_000, 40_000])
def test_a_dedup_id_is_stored_once(queue: Queues, clock: SimulatedClock, durability: str, size: int) -> None:
    q = queue(spill_bytes=30_000)
    first = q.put(b"1" * size, dedup_id="a", durability=durability)
    assert q.put(b"2" * size, dedup_id="a", durability=durability) == first
    assert q.put(b"3", dedup_id="b", durability=durability) != first
    assert q.qsize() == 2 and q.stats().deduplicated == 1
    take(q).ack()
    assert q.put(b"4", dedup_id="a", durability=durability) == first, "also when it is gone"
    assert q.qsize() == 1


def test_another_client_knows_it_too(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    assert queue.open(q).put(b"m", dedup_id="a") == q.put(b"n", dedup_id="a")
    q.close()
    assert queue.open(q.path).put(b"o", dedup_id="a").endswith("-1")


def test_a_window_ends(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(dedup_window=60)
    first = q.put(b"m", dedup_id="a")
    other = q.put(b"m", dedup_id="b", dedup_window=timedelta(seconds=5))
    clock.advance(4.9)
    assert q.put(b"m", dedup_id="b") == other
    clock.advance(0.1)
    assert q.put(b"m", dedup_id="b") != other
    clock.advance(54)
    assert q.put(b"m", dedup_id="a") == first
    clock.advance(1)
    assert q.put(b"m", dedup_id="a") != first


def test_in_a_batch_each_has_its_place_in_the_ids(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    before = q.put(b"before", dedup_id="x")
    ids = q.put_many(
        [Draft(body=b"0", dedup_id="a"), b"1", Draft(body=b"2", dedup_id="x"), Draft(body=b"3", dedup_id="a"), b"4"]
    )
    assert len(ids) == 5 and ids[2] == before and ids[3] == ids[0]
    assert len(set(ids)) == 4
    assert [m.data for m in q.get_many(10)] == [b"before", b"0", b"1", b"4"]
    assert list(q.put_many([Draft(body=b"5", dedup_id="a"), Draft(body=b"6", dedup_id="x")])) == [ids[0], before]
    with pytest.raises(Misuse, match="Draft"):
        q.put_many([b"a", b"b"], dedup_id="c")


def test_a_batch_that_does_not_fit_leaves_no_dedup_id(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(slots=4)
    with pytest.raises(penstock.PenstockError):
        q.put_many([Draft(body=b"m", dedup_id=f"{n}") for n in range(5)])
    q.put_many([b"1", b"2"])
    with pytest.raises(QueueFull):
        q.put_many([Draft(body=b"m", dedup_id=f"{n}") for n in range(3)])
    assert len(set(q.put_many([Draft(body=b"m", dedup_id=f"{n}") for n in range(2)]))) == 2
    assert q.qsize() == 4 and q.stats().deduplicated == 0


def test_put_once_and_aput_know_dedup_ids(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    first = q.put(b"m", dedup_id="a")
    ids = q.put_once("p", 1, [Draft(body=b"n", dedup_id="a"), b"o"])
    assert ids is not None and ids[0] == first and q.qsize() == 2
    assert list(q.put_once("p", 2, [Draft(body=b"n", dedup_id="a")]) or ()) == [first]
    assert q.put_once("p", 2, [b"new"]) is None

    async def many() -> list[str]:
        return list(await asyncio.gather(*(q.aput(b"%d" % n, dedup_id=f"{n % 3}") for n in range(30))))

    assert len(set(asyncio.run(many()))) == 3
    assert q.qsize() == 5


def test_of_many_threads_with_one_id_one_puts(queue: Queues) -> None:
    q = queue(durability="commit")
    peers = [q, queue.open(q), queue.open(q)]
    found: list[str] = []
    barrier = threading.Barrier(9)

    def put(n: int) -> None:
        barrier.wait()
        for round in range(10):
            found.append(peers[n % 3].put(b"%d" % n, dedup_id=f"round {round}"))

    threads = [threading.Thread(target=put, args=(n,)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 90 and len(set(found)) == 10 and q.qsize() == 10


def test_who_finds_its_id_being_put_waits_for_the_outcome(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(durability="commit")
    other = queue.open(q, busy_s=0.05)
    item = penstock.timequeue.puts.entry(b"m", 1, None, None, 0, None, None, None, q._specials.of({"dedup_id": "a"}, 1))
    item.memory = L.BEING_PUT
    q._mine().turn(q._producer._reserve, [item])
    with pytest.raises(QueueBusy, match="dedup"):
        other.put(b"n", dedup_id="a")
    assert q.qsize() == 0
    queue.die(q)  # its put is given up, and the id with it
    assert other.put(b"n", dedup_id="a") and other.qsize() == 1


def test_a_duplicate_is_as_durable_as_it_is_asked_to_be(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put(b"m", dedup_id="a", durability="relaxed")
    before = q.stats().index_syncs
    q.put(b"m", dedup_id="a", durability="commit")
    assert q.stats().index_syncs > before  # the background may have made another


def test_a_duplicate_brings_a_body_of_its_own_to_disk(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(spill_bytes=1000)
    q.put(b"m" * 2000, dedup_id="a", durability="relaxed")
    (body,) = (q.path / "bodies").iterdir()
    synced: list[str] = []
    caller = threading.get_ident()  # the background syncs the kernel too, when it will

    class Syncs:
        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.SYNC and threading.get_ident() == caller:
                synced.append(os.readlink(f"/proc/self/fd/{target}"))

    rig.observe(Syncs())
    try:
        q.put(b"m" * 2000, dedup_id="a", durability="commit")
    finally:
        rig.observe(None)
    assert synced.index(str(body)) < synced.index(str(q.path / "kernel"))


def test_a_full_table_refuses_and_goes_on_when_there_is_room(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(dedup_entries=32, slots=40)
    for n in range(32):
        q.put(b"m", dedup_id=f"{n}", dedup_window=10)
    with pytest.raises(QueueFull, match="dedup_entries"):
        q.put(b"m", dedup_id="one more")
    with pytest.raises(QueueFull, match="dedup_entries"):
        q.put(b"m", dedup_id="one more", durability="commit")
    assert q.put(b"without")
    assert q.qsize() == 33
    clock.advance(10)
    assert q.put(b"m", dedup_id="one more") != q.put(b"m", dedup_id="0")


@pytest.mark.parametrize("wrong", ["", 7, b"bytes", "x" * 2000, "\ud800"])
def test_dedup_ids_that_are_none(wrong: Any, queue: Queues, clock: SimulatedClock) -> None:
    with pytest.raises(Misuse):
        queue().put(b"m", dedup_id=wrong)


def test_a_queue_that_remembers_nothing_says_so(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(dedup_entries=0)
    with pytest.raises(Misuse, match="penstock upgrade"):
        q.put(b"m", dedup_id="a")
    assert q.put(b"m") and q.stats().waiting == 1
    with pytest.raises(Misuse, match="dedup_window"):
        q.put(b"m", dedup_window=5)
    with pytest.raises(TypeError, match="colour"):
        q.put(b"m", colour="red")  # type: ignore[call-arg]


# ---------------------------------------------------------------- expiry


def test_an_expired_message_is_not_delivered(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put(b"short", ttl=10)
    q.put(b"long", expires_at=clock.now_s + 100)
    q.put(b"usual")
    clock.advance(9.9)
    assert [m.data for m in q.browse()] == [b"short", b"long", b"usual"]
    clock.advance(0.1)
    assert [m.data for m in q.browse()] == [b"short", b"long", b"usual"], "a look shows what is still stored"
    assert [m.data for m in q.get_many(10)] == [b"long", b"usual"]
    assert q.stats().dropped == 1
    with pytest.raises(QueueEmpty):
        take(q)


def test_a_receiver_that_waits_is_not_woken_up_for_nothing(queue: Queues) -> None:
    q = queue()
    q.put(b"expired", ttl=0)
    with pytest.raises(QueueEmpty):
        q.get(timeout=0.1)
    assert (q.stats().dropped, q.qsize()) == (1, 0)


def test_what_has_expired_may_become_a_dead_letter(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(expired="dead_letter")
    id = q.put(b"m", ttl=1)
    clock.advance(2)
    assert is_empty(q)
    letter = take(q.dead_letters())
    assert (letter.reason, letter.id) == ("expired", id)
    letter.release()
    assert q.redrive() == 1
    assert take(q).expires_at is None


def test_it_expires_between_two_attempts_too(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(backoff=5)
    q.put(b"m", ttl=10)
    fail(q)
    clock.advance(5)
    message = take(q)
    clock.advance(5)
    message.fail("late")
    clock.advance(5)
    assert is_empty(q) and q.stats().dropped == 1


@pytest.mark.parametrize("wrong", [{"ttl": -1}, {"ttl": 1, "expires_at": 5.0}, {"expires_at": "now"}])
def test_expiries_that_are_none(wrong: Any, queue: Queues, clock: SimulatedClock) -> None:
    with pytest.raises(Misuse, match=r"ttl|expires_at"):
        queue().put(b"m", **wrong)


# ---------------------------------------------------------------- moves


def test_a_message_moves_with_all_that_it_has(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one", spill_bytes=1000), queue("two", spill_bytes=2000)
    id = q.put("x" * 1500, type="t", key="k", headers={"a": "b"}, priority=3, ttl=100, max_attempts=4, dedup_id="d")
    with take(q) as message:
        message.move(to=other)
    moved = take(other)
    assert (moved.body, moved.type, moved.key, moved.headers, moved.priority) == ("x" * 1500, "t", "k", {"a": "b"}, 3)
    assert (moved.id, moved.max_attempts, moved.dedup_id, moved.came_from) == (id, 4, "d", q.name)
    assert moved.expires_at is not None and moved.reason is None and moved.attempts == 1
    assert (q.stats().moved_out, other.stats().moved_in) == (1, 1)
    assert q.qsize() == q.stats().pending == 0
    moved.move(to=q.path)
    assert take(q).id == id


def test_a_move_to_itself_or_to_nowhere_is_refused(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put(b"m")
    message = take(q)
    with pytest.raises(Misuse):
        message.move(to=q)
    with pytest.raises(penstock.QueueNotFound):
        message.move(to=q.path.with_name("none"))
    with pytest.raises(Misuse):
        message.move(to="")
    message.ack()


def test_a_moved_message_is_cancelled_by_its_id(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two")
    ids = q.put_many([b"m", b"n", b"o"])
    with pytest.raises(Misuse):
        other.cancel(ids[0])
    for message in q.get_many(3):
        message.move(to=other)
    assert not q.cancel(ids[0])
    assert other.cancel(ids[0]) and not other.cancel(ids[0])
    with pytest.raises(Misuse):
        other.cancel("nonsense")
    take(other).move(to=q)
    assert q.cancel(ids[1])
    assert [m.id for m in other.browse()] == [ids[2]] and q.qsize() == 0


def test_keys_of_moves_are_forgotten_when_they_are_over(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one", slots=200), queue("two", slots=200, dedup_entries=32)
    for n in range(150):
        q.put(b"%d" % n)
        take(q).move(to=other)
        if n % 20 == 19:
            q._moves.settle()
    assert other.qsize() == 150


def test_a_lost_lease_is_not_moved(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two")
    q.put(b"m")
    message = q.get(block=False, lease=1)
    clock.advance(2)
    assert take(q).attempts == 2
    with pytest.raises(LeaseLost):
        message.move(to=other)
    assert other.qsize() == 0


def test_a_queue_that_remembers_nothing_gets_a_message_once_too(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two", dedup_entries=0)
    q.put_many([b"m", b"n"])
    message = take(q)
    item = q._moves._entry(other, message, lambda fields: fields, True, 1, False)
    other.put_entries([item])  # and died
    message.move(to=other)
    take(q).move(to=other)
    assert [m.data for m in other.browse()] == [b"m", b"n"]


def test_redrive_brings_all_back(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1, slots=700, data_bytes=1 << 20)
    ids = q.put_many([Draft(body=b"%d" % n, max_attempts=2 if n == 0 else None) for n in range(600)])
    for message in q.get_many(600):
        message.dead_letter("bad")
    assert q.dead_letters().qsize() == 600
    told: list[int] = []
    assert q.redrive(progress=told.append) == 600
    assert told == [256, 512, 600]
    back = q.get_many(600)
    assert [m.id for m in back] == list(ids)
    assert {(m.attempts, m.reason, m.error, m.history == []) for m in back} == {(1, None, None, True)}
    assert (back[0].max_attempts, back[1].max_attempts) == (2, None)
    assert q.redrive() == 0


def test_redrive_by_filter(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    for n in range(8):
        q.put(b"%d" % n, type="ab"[n % 2], key="cd"[n // 2 % 2])
    for n, message in enumerate(q.get_many(8)):
        message.dead_letter("early" if n < 4 else "late")
    assert q.redrive(type="a", key="d", reason="late") == 1
    assert take(q).data == b"6"
    assert q.redrive(type="b", limit=2) == 2
    assert [m.data for m in q.get_many(9)] == [b"1", b"3"]
    assert q.redrive(reason="never") == 0
    assert q.redrive() == 5


def test_redrive_into_a_full_queue_leaves_the_rest_where_it_was(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(slots=3)
    q.put_many([b"a", b"b", b"c"])
    for message in q.get_many(3):
        message.dead_letter("bad")
    q.put(b"new")
    with pytest.raises(QueueFull):
        q.redrive()
    assert q.qsize() + q.dead_letters().qsize() == 4 and q.dead_letters().stats().pending == 0
    q.ack_many(q.get_many(9))
    assert q.redrive() >= 1
    assert q.dead_letters().qsize() == 0


def test_redrive_does_not_run_after_what_fails_again(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1)
    q.put(b"m")
    fail(q)

    def again(_: int) -> None:
        fail(q)

    assert q.redrive(progress=again) == 1
    assert q.dead_letters().qsize() == 1


def test_all_that_waits_may_be_moved(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two")
    q.put(b"later", delay=1000, type="a")
    q.put_many([b"0", b"1"], type="a")
    q.put(b"stays", type="b")
    held = take(q)
    assert q.move_all(to=other, type="a") == 2
    with take(other) as moved:
        assert moved.data == b"1"
    assert is_empty(other)
    held.ack()
    clock.advance(1000)
    assert take(other).data == b"later"
    assert [m.data for m in q.browse()] == [b"stays"]


# ---------------------------------------------------------------- errors that are kept


def test_errors_survive_their_process_and_leave_with_their_message(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    folder = q.path / "failures"
    q.put(b"m")
    fail(q, "first")
    q.close()
    q = queue.open(q.path)
    take(q).fail("second " + "x" * 5000)
    assert len(list(folder.iterdir())) == 1
    message = take(q)
    message.dead_letter("bad")
    assert not list(folder.iterdir())
    letter = take(q.dead_letters())
    assert [text[:6] for _, text in letter.history] == ["ValueE", "second"]
    assert len(letter.error or "") == 500


def test_only_the_last_errors_are_kept(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    q.put(b"m")
    for n in range(40):
        take(q).fail(f"error {n}")
    message = take(q)
    message.dead_letter("bad")
    assert [text for _, text in take(q.dead_letters()).history] == [f"error {n}" for n in range(24, 40)]


def test_what_is_kept_of_messages_that_are_gone_is_swept_up(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    ids = q.put_many([b"m", b"n"])
    for message in q.get_many(2):
        message.fail("no")
    assert q.cancel(ids[0])
    q.close()
    q = queue.open(q.path)
    assert len(list((q.path / "failures").iterdir())) == 1
    take(q).ack()
    assert not list((q.path / "failures").iterdir())


def test_errors_that_find_no_room_are_cut(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(data_bytes=1 << 20)
    q.put(b"m", headers={"a": "b" * 60_000})
    for _ in range(20):
        take(q).fail("\N{SNOWMAN}" * 500)
    take(q).dead_letter("r" * 400)
    letter = take(q.dead_letters())
    assert letter.headers == {"a": "b" * 60_000} and letter.reason and letter.history == []
