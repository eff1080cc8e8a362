"""Moves that are refused, cut short, overtaken or left alone: nothing is lost, doubled, or stuck by them."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Draft, LeaseLost, Misuse, PenstockError, QueueFull
from penstock.store.begun import BegunMove
from penstock.timequeue import moving
from tests.conftest import Queues, SimulatedClock
from tests.contract.test_retries import fail, is_empty, take


def test_a_move_that_finds_no_room_is_no_attempt(queue: Queues, clock: SimulatedClock) -> None:
    q, full = queue("one", max_attempts=1), queue("two", slots=1)
    full.put(b"full")
    q.put_many([b"m", b"n"])
    for _ in range(2):
        with pytest.raises(QueueFull):
            q.move_all(to=full)
    assert [(m.data, m.attempts) for m in q.get_many(2)] == [(b"m", 1), (b"n", 1)]


def test_a_move_that_is_interrupted_gives_back_what_it_took(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one", max_attempts=1), queue("two")
    q.put_many([b"m", b"n", b"o"])

    def interrupted(message: penstock.Message) -> bool:
        if message.data == b"o":
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        q._moves.move_many(other, interrupted, limit=None, progress=None, revive=False)
    assert q.stats().pending == 0
    assert [m.attempts for m in q.get_many(3)] == [1, 1, 1]


def test_what_was_moved_by_many_was_not_delivered(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two")
    q.put_many([b"new", b"tried"])
    q.unget([take(q)])
    held = q.get_many(2)
    q.unget(held[:1])
    held[1].release()
    q.move_all(to=other)
    assert {m.data: m.attempts_before for m in other.browse()} == {b"new": 0, b"tried": 1}


def test_more_than_a_small_queue_has_slots_are_brought_back_bit_by_bit(queue: Queues, clock: SimulatedClock) -> None:
    letters = queue("letters", slots=40)
    q = queue("orders", slots=4, dead_letter=letters.path)
    for n in range(10):
        q.put(b"%d" % n)
        take(q).dead_letter("bad")
    with pytest.raises(QueueFull):
        q.redrive()
    assert (q.qsize(), letters.qsize(), letters.stats().pending) == (4, 6, 0)


def test_a_dead_letter_queue_that_was_deleted_is_made_again(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1)
    q.put_many([b"m", b"n"])
    fail(q)
    shutil.rmtree(q.dead_letters().path)
    fail(q)
    letters = queue.open(q.path.with_name("queue.dead"))
    assert [m.data for m in letters.browse()] == [b"n"]
    assert [m.data for m in q.dead_letters().browse()] == [b"n"]


def test_a_dead_letter_queue_that_was_replaced_is_found(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(max_attempts=1)
    q.put_many([b"m", b"n"])
    fail(q)
    where = q.dead_letters().path
    where.rename(where.with_name("kept"))
    penstock.create(where, slots=5, data_bytes=8192).close()
    fail(q)
    assert [m.data for m in queue.open(where).browse()] == [b"n"]
    assert [m.data for m in queue.open(where.with_name("kept")).browse()] == [b"m"]


def test_a_move_does_not_shorten_a_lease(queue: Queues, clock: SimulatedClock) -> None:
    q, full = queue("one"), queue("two", slots=1)
    full.put(b"full")
    q.put(b"m")
    message = q.get(block=False, lease=3600)
    with pytest.raises(QueueFull):
        message.move(to=full)
    clock.advance(1000)
    assert is_empty(q)
    message.ack()


def test_who_was_overtaken_does_not_store_it_again(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before it was put there, until somebody else has moved it, and the key of that is forgotten."""
    q, other = queue("one"), queue("two")
    q.put(b"m")
    stopped = take(q)
    entry_of = q._moves._entry

    def stalls(*arguments: Any) -> Any:
        item = entry_of(*arguments)
        clock.advance(1000)
        second = queue.open(q)
        assert second.get_many(1) == []  # it finishes the move
        second.close()
        return item

    monkeypatch.setattr(q._moves, "_entry", stalls)
    with pytest.raises(LeaseLost):
        stopped.move(to=other)
    assert [m.data for m in other.browse()] == [b"m"]


def test_keys_that_nobody_came_to_forget_are_in_nobodys_way(queue: Queues, clock: SimulatedClock) -> None:
    """Of movers that died: they are kept for a month, and there may be as many as the table has entries."""
    letters = queue("letters", dedup_entries=32)
    q = queue("orders", slots=200, max_attempts=1, dead_letter=letters.path)
    for n in range(40):
        worker = queue.open(q)
        worker.put(b"%d" % n)
        fail(worker)
        queue.die(worker)
        take(letters).ack()
    assert q.stats().parked == 0 and letters.stats().acks == 40


def test_with_a_full_table_it_is_stored_once_too(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two", dedup_entries=32)
    q.put_many([b"m", b"n"])
    for n in range(31):
        other.put(b"", dedup_id=f"{n}")
    other.purge()
    held = q.get_many(2)
    for message, remembered in zip(held, (True, False), strict=True):
        other.put_entries([q._moves._entry(other, message, lambda fields: fields, True, 1, remembered)])  # and died
    for message in held:
        message.move(to=other)
    assert [m.data for m in other.browse()] == [b"m", b"n"] and q.stats().pending == 0


def test_a_sync_that_fails_after_a_move_does_not_undo_it(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, other = queue("one"), queue("two")
    q.put(b"m")

    def fails() -> None:
        raise PenstockError("no sync now")

    monkeypatch.setattr(moving, "SETTLED_AT_ONCE", 1)
    monkeypatch.setattr(q._moves, "settle", fails)
    take(q).move(to=other)
    assert (q.qsize(), other.qsize()) == (0, 1)


def test_a_lease_that_ends_while_another_is_given_up_fails_no_receive(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = queue(expired="dead_letter")
    q.put(b"old", ttl=0)
    q.put(b"m", lease=30)
    give_up = q._moves.give_up

    def takes_long(*arguments: Any) -> None:
        give_up(*arguments)
        clock.advance(2)
        assert take(queue.open(q)).data == b"m"

    monkeypatch.setattr(q._moves, "give_up", takes_long)
    assert q.get_many(2, lease=1) == []


def test_a_consumer_keeps_messages_with_short_leases_of_their_own(queue: Queues) -> None:
    q = queue()
    q.put_many([b"m", b"n", b"o"], lease=0.3)
    with q.consumer(wait=0) as consumer:
        for _ in consumer:
            time.sleep(0.6)
            assert q.get_many(3) == []
    assert q.stats().acks == 3 and consumer.lost == 0


class Killed(BaseException): ...


@pytest.mark.parametrize("by_hand", ["move", "dead_letter"])
def test_who_gets_a_message_whose_mover_died_finishes_the_move(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch, by_hand: str
) -> None:
    """Killed between the two queues: it is in both, and whoever comes next gets it from one of them."""
    q, other = queue("one"), queue("two")
    worker = queue.open(q)
    q.put(b"m")
    message = take(worker)
    put = worker._moves._put

    def dies(*arguments: Any) -> Any:
        put(*arguments)
        raise Killed

    monkeypatch.setattr(worker._moves, "_put", dies)
    with pytest.raises(Killed):
        message.move(to=other) if by_hand == "move" else message.dead_letter("by hand")
    queue.die(worker)
    target = other if by_hand == "move" else q.dead_letters()
    assert target is not None and target.qsize() == 1
    assert target.move_all(to=q) == 1  # before anybody has looked
    assert [m.data for m in q.get_many(9)] == [b"m"] and target.qsize() == 0
    assert not q._mine().begun.any()


def test_a_move_that_was_refused_is_not_begun(queue: Queues, clock: SimulatedClock) -> None:
    q, full = queue("one"), queue("two", slots=1)
    full.put(b"full")
    q.put(b"m")
    message = take(q)
    with pytest.raises(QueueFull):
        message.move(to=full)
    assert not q._mine().begun.any()
    message.release()
    assert take(q).data == b"m"


def test_of_a_move_whose_target_is_gone_the_message_is_delivered(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, other = queue("one"), queue("two")
    q.put(b"m")
    worker = queue.open(q)
    message = take(worker)
    monkeypatch.setattr(worker._moves, "_put", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        message.move(to=other.path)
    queue.die(worker)
    gone = other.path
    other.close()
    shutil.move(gone, gone.with_name("elsewhere"))
    assert take(q).data == b"m"
    shutil.move(gone.with_name("elsewhere"), gone)  # for the check at the end


def test_notes_of_moves_that_are_over_are_swept_up(queue: Queues, clock: SimulatedClock) -> None:
    q = queue("one")
    q.put(b"m")
    message = take(q)
    q._mine().begun.begin(BegunMove("two", [(message.number, message.slot)]))
    message.ack()
    queue.open(q)
    assert not q._mine().begun.any()


def test_a_message_of_a_backup_that_was_copied_is_not_taken_for_one_of_another_copy(queue: Queues) -> None:
    """Both have the UUID of the original, and their next messages must not have the same number."""
    original, target = queue(), queue("target")
    backup = original.path.with_name("backup")
    penstock.backup(original.path, backup)
    for name in ("first", "second"):
        shutil.copytree(backup, original.path.with_name(name))
    for name in ("first", "second"):
        copy = queue.open(original.path.with_name(name))
        copy.put(name)
        take(copy).move(to=target)
        queue.die(copy)  # the target still knows where it came from
    assert [take(target).body for _ in range(2)] == ["first", "second"]


def test_what_to_move_is_named_once_or_several_times_or_it_is_misuse(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue("one"), queue("two")
    q.put_many([Draft(body=name, type=name, key=name) for name in "abcd"])
    assert q.move_all(to=other, type=["a", "b"], key=("b", "c")) == 1
    for nonsense in ({"type": 5}, {"key": [5]}, {"reason": [None]}, {"limit": -1}, {"limit": 1.5}, {"limit": "1"}):
        with pytest.raises(Misuse):
            q.move_all(to=other, **nonsense)  # type: ignore[arg-type]
        take(q).dead_letter("bad")
        with pytest.raises(Misuse):
            q.redrive(**nonsense)  # type: ignore[arg-type]
        assert q.redrive(reason=["bad", "worse"]) == 1
    with pytest.raises(Misuse):
        q.move_all(to=None)  # type: ignore[arg-type]


def test_a_queue_is_not_its_own_dead_letter_queue(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for itself in (tmp_path / "q", tmp_path / "x" / ".." / "q", tmp_path / "link" / "q"):
        with pytest.raises(Misuse, match="its own dead-letter queue"):
            penstock.create(tmp_path / "q", dead_letter=itself)
    with pytest.raises(Misuse, match="path"):
        penstock.create(tmp_path / "q", dead_letter=None)  # type: ignore[arg-type]
    assert not (tmp_path / "q").exists()


def begun(queue: Queues, q: penstock.TimeQueue, to: Path, **how: Any) -> penstock.Message:
    """A message whose mover is killed when it has noted the move, and nothing else."""
    worker = queue.open(q)
    message = take(worker)
    worker._mine().begun.begin(BegunMove(str(to), [(message.number, message.slot)], **how))
    queue.die(worker)
    return message


def test_what_an_interrupted_move_has_put_is_not_delivered_from_both(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the two queues. What was not put yet was no attempt."""
    q, other = queue("one"), queue("two")
    q.put_many([b"m", b"n"])
    put = q._moves._put

    def interrupted(*arguments: Any) -> Any:
        put(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(q._moves, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        q.move_all(to=other, limit=1)
    monkeypatch.undo()
    assert [(m.data, m.attempts) for m in q.get_many(9)] == [(b"n", 1)]
    assert [m.data for m in other.get_many(9)] == [b"m"]


@pytest.mark.parametrize("why", ["too large", "full", "itself", "gone"])
def test_a_move_that_was_begun_and_is_refused_keeps_its_message_here(
    queue: Queues, clock: SimulatedClock, why: str
) -> None:
    q = queue("one")
    small = queue("two", slots=1, data_bytes=4096)
    small.put(b"")
    q.put(bytes(5000) if why == "too large" else b"m")
    begun(queue, q, {"itself": q.path, "gone": q.path / "nowhere"}.get(why, small.path))
    message = take(q)
    assert message.attempts == 2 and not q._mine().begun.any()


def test_a_move_that_fails_on_the_disk_leaves_no_note(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, other = queue("one"), queue("two")
    q.put(b"m")

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(q._moves, "_put", full)
    message = take(q)
    with pytest.raises(OSError, match="full"):
        message.move(to=other)
    assert not q._mine().begun.any()
    queue.die(q)
    second = queue.open(q.path)
    begun(queue, second, other.path)
    monkeypatch.setattr(second._moves, "_put", full)
    for _ in range(3):
        assert is_empty(second)  # it waits
        clock.advance(61)
    assert len(second._mine().begun.names()) == 1
    monkeypatch.undo()
    assert is_empty(second)
    assert take(other).data == b"m"


def test_a_message_that_is_due_late_is_moved_once_however_late_that_is(
    queue: Queues, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mover dies, and nobody gets it before it is due."""
    q, other = queue("one"), queue("two")
    q.put(b"m", delay=40 * 86_400)
    worker = queue.open(q)
    put = worker._moves._put

    def dies(*arguments: Any) -> Any:
        put(*arguments)
        raise Killed

    monkeypatch.setattr(worker._moves, "_put", dies)
    monkeypatch.setattr(worker._moves, "_give_back", lambda messages: None)
    with pytest.raises(Killed):
        worker.move_all(to=other)
    queue.die(worker)
    clock.advance(41 * 86_400)
    assert is_empty(q) and [m.data for m in other.get_many(9)] == [b"m"]


def test_a_dead_letter_goes_to_where_it_was_going(queue: Queues, clock: SimulatedClock) -> None:
    """Whatever the queue's options say by now."""
    q, other = queue("one"), queue("two")
    q.put(b"m")
    begun(queue, q, other.path, dead=True, reason="bad")
    assert is_empty(q)
    letter = take(other)
    assert (letter.data, letter.reason) == (b"m", "bad")


def test_notes_that_were_cut_short_are_swept_up_after_a_while(queue: Queues, clock: SimulatedClock) -> None:
    q = queue("one")
    folder = q.path / "moves"
    folder.mkdir()
    for name, age_s in (("old", 120), ("new", 0)):
        (folder / name).write_bytes(b"{")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    queue.open(q)
    assert q._mine().begun.names() == ["new"]
