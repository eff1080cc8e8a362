"""Receivers and their claims: what is taken, what is found again, who is kept out, and what a restore makes of it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.errors import ReceiverLost
from penstock.store import layout as L
from penstock.store import namedfiles
from penstock.store.claimfiles import CHECK, EARLIER, ClaimFiles
from penstock.store.gather import F_INFO, F_NUMBER, F_SLOT, REFERENCE_WORDS
from penstock.store.record import crc32
from penstock.timequeue import check_queue, restore_queue
from penstock.timequeue.claims import Receiver
from penstock.timequeue.receivers import release_overdue
from tests.conftest import Queues, SimulatedClock
from tests.crash.rig import in_child
from tests.snapshot import overwrite
from tests.unit.test_restore import Disk


@pytest.fixture
def queues(queue: Queues) -> Queues:
    """Under a name that leaves the other to the queue."""
    return queue


def bodies(queue: penstock.TimeQueue, rows: array) -> list[bytes]:
    there = {(m.slot, m.number): m.data for m in queue.browse(state="pending")}
    return [there[rows[at + F_SLOT], rows[at + F_NUMBER]] for at in range(0, len(rows), REFERENCE_WORDS)]


def filled(queues: Queues, count: int = 10, **options: object) -> penstock.TimeQueue:
    queue = queues(**options)
    queue.put_many([b"%d" % i for i in range(count)])
    return queue


def after_power_loss(path: Path) -> None:
    restore_queue(path, after_power_loss=True)


# ---------------------------------------------------------------- claiming


def test_a_claim_has_what_is_due_in_the_order_of_delivery(queues: Queues, clock: SimulatedClock) -> None:
    queue = queues()
    queue.put(b"late", delay=100)
    queue.put(b"a")
    queue.put(b"soon", delay=5)
    queue.put(b"first", priority=7)
    clock.advance(10)
    with queue.receiver("r") as receiver:
        claim = receiver.claim(10)
        assert claim is not None and claim.number == 1
        assert bodies(queue, claim.references) == [b"first", b"a", b"soon"]
        assert receiver.claim(10) is None
        clock.advance(100)
        later = receiver.claim(10)
        assert later is not None and later.number == 2 and bodies(queue, later.references) == [b"late"]


def test_claims_are_bounded_by_rows_and_by_bytes(queues: Queues) -> None:
    queue = queues(spill_bytes=1000)
    for size in (10, 500, 300, 2000, 10, 9000):
        queue.put(b"x" * size)
    with queue.receiver("r") as receiver:
        counts = []
        while claim := receiver.claim(3, 3 * L.UNIT_BYTES):
            counts.append(claim.count)
        # 256 bytes; 768; 512 and a file of 2000, which is only known once it is taken; 256; one that is too large
        assert counts == [1, 1, 2, 2]
        assert receiver.claims() == [1, 2, 3, 4]


def test_a_claim_of_many_turns_is_one_claim(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.timequeue.claims.CLAIMED_A_TURN_MAX", 3)
    monkeypatch.setattr("penstock.timequeue.claimtaking.CLAIMED_A_TURN_MAX", 3)
    monkeypatch.setattr("penstock.timequeue.claims.LOOKED_A_TURN_MAX", 2)
    queue = filled(queues, 20)
    with queue.receiver("r") as receiver:
        claim = receiver.claim(11)
        assert claim is not None and bodies(queue, claim.references) == [b"%d" % i for i in range(11)]
        assert receiver._marked(1) == claim.references
        assert receiver.claim(4).count == 4  # type: ignore[union-attr]
        assert receiver.release(1) == 11
        receiver.commit(2)
    assert [m.data for m in queue.browse()] == [b"%d" % i for i in (*range(11), *range(15, 20))]
    assert queue.stats().claimed == 0


@pytest.mark.parametrize("arguments", [(0,), (-1,), (1.5,), (True,), (5, 0), (5, "x")])
def test_what_is_no_limit_is_refused(arguments: tuple[object, ...], queues: Queues) -> None:
    with filled(queues).receiver("r") as receiver, pytest.raises(penstock.Misuse):
        receiver.claim(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "-x", "a/b", "ä", "x" * 65, "a b", "a\n", None])
def test_what_is_no_name_is_refused(name: str, queues: Queues) -> None:
    with pytest.raises(penstock.Misuse):
        filled(queues).receiver(name)


# ---------------------------------------------------------------- what becomes of a claim


def test_the_same_rows_every_time_also_for_the_next_process(queues: Queues) -> None:
    queue = filled(queues)
    with queue.receiver("r") as receiver:
        first, second = receiver.claim(3), receiver.claim(4)
        assert first is not None and second is not None
    queue.close()
    again = queues.open(queue.path)
    with again.receiver("r") as receiver:
        assert receiver.claims() == [1, 2]
        assert receiver.references(1) == first.references and receiver.references(2) == second.references
        assert again.stats().claimed == 7 and again.qsize() == 3
        third = receiver.claim(5)
        assert third is not None and third.number == 3


def test_commit_acknowledges_all_up_to_it_and_again_does_nothing(queues: Queues) -> None:
    queue = filled(queues)
    queue.put(b"x" * 20_000, priority=1)
    queue.put_many([b"p", b"q"], priority=1, durability="commit")
    with queue.receiver("r") as receiver:
        for _ in range(3):
            receiver.claim(3)
        receiver.commit(2)
        receiver.commit(2)
        receiver.commit(1)
        assert receiver.claims() == [3]
        for gone in (1, 2, 4, 99):
            with pytest.raises(penstock.NoSuchClaim):
                receiver.references(gone)
        with pytest.raises(penstock.NoSuchClaim):
            receiver.commit(4)
        assert {"1", "2"} <= set(os.listdir(queue.path / "claims" / "r"))  # a restore would need them
        queue.sync_index()
        assert receiver.is_due() and not {"1", "2"} & set(os.listdir(queue.path / "claims" / "r"))
        stats = queue.stats()
        assert (stats.acks, stats.claimed, stats.waiting, stats.kept, stats.spilled_bytes) == (6, 3, 4, 0, 0)
        receiver.commit(3)
    assert queue.stats().claimed == 0
    with queue.receiver("r") as receiver:
        assert receiver.claims() == []
        fourth = receiver.claim(1)
        assert fourth is not None and fourth.number == 4


def test_a_release_returns_messages_to_their_places_with_their_attempts(queues: Queues) -> None:
    queue = filled(queues, 6)
    with queue.receiver("r") as receiver:
        receiver.claim(2)
        receiver.claim(2)
        assert receiver.release(1) == 2
        assert receiver.claims() == [2]
        for call in (receiver.references, receiver.release):
            with pytest.raises(penstock.NoSuchClaim):
                call(1)
        got = queue.get_many(10)
        assert [(m.data, m.attempts) for m in got] == [(b"0", 2), (b"1", 2), (b"4", 1), (b"5", 1)]
        assert receiver.release(2) == 2
    with queue.receiver("r") as receiver:  # the numbers go on, although no claim is left
        assert receiver.claims() == []
        claim = receiver.claim(10)
        assert claim is not None and claim.number == 3 and bodies(queue, claim.references) == [b"2", b"3"]
        assert [info >> L.ATTEMPTS_SHIFT for info in claim.references[F_INFO::REFERENCE_WORDS]] == [2, 2]


# ---------------------------------------------------------------- beside others


def test_two_receivers_and_a_consumer_share_a_queue(queues: Queues) -> None:
    queue = filled(queues, 30)
    with queue.receiver("a") as a, queue.receiver("b") as b:
        taken: list[bytes] = []
        for _ in range(3):
            for receiver in (a, b):
                claim = receiver.claim(3)
                assert claim is not None
                taken += bodies(queue, claim.references)
            taken += [m.data for m in queue.get_many(2)]
        assert taken == [b"%d" % i for i in range(24)]
        a.commit(2)
        assert a.claims() == [3] and b.claims() == [1, 2, 3]
        stats = queue.stats()
        assert (stats.claimed, stats.pending, stats.waiting, stats.acks) == (12, 6, 6, 6)
        assert [(c.receiver, c.claim, c.messages, c.in_use) for c in queue.claims()] == [
            ("a", 3, 3, True), ("b", 1, 3, True), ("b", 2, 3, True), ("b", 3, 3, True),
        ]  # fmt: skip
        assert check_queue(queue.path) == []
    assert not any(claim.in_use for claim in queue.claims())


def test_leases_deaths_purge_and_cancel_leave_claims_alone(queues: Queues, clock: SimulatedClock) -> None:
    queue = filled(queues, 5)
    other = queues.open(queue)
    receiver = other.receiver("r")
    claim = receiver.claim(3)
    assert claim is not None
    clock.advance(100_000)
    claimed = list(queue.browse(state="pending"))
    assert [m.data for m in claimed] == [b"0", b"1", b"2"] == [m.data for m in queue.browse(state="pending", limit=3)]
    assert len(list(queue.browse(state="pending", limit=2))) == 2
    assert not any(queue.cancel(message.id) for message in claimed)
    receiver.close()
    queues.die(other)
    assert [m.data for m in queue.get_many(10)] == [b"3", b"4"]
    queue.purge()
    with queue.receiver("r") as again:
        assert again.references(1) == claim.references


def test_what_a_dead_consumer_held_is_claimed_in_its_order(queues: Queues) -> None:
    queue = filled(queues, 6)
    other = queues.open(queue)
    other.get_many(3)
    queues.die(other)
    with queue.receiver("r") as receiver:
        claim = receiver.claim(4)
        assert claim is not None and bodies(queue, claim.references) == [b"0", b"1", b"2", b"3"]


def test_a_full_queue_counts_claimed_messages_and_a_commit_makes_room(queues: Queues) -> None:
    queue = queues(slots=4)
    queue.put_many([b"a"] * 4)
    with queue.receiver("r") as receiver:
        receiver.claim(4)
        with pytest.raises(penstock.QueueFull):
            queue.put(b"b")
        assert queue.stats().vacant == 0
        receiver.commit(1)
        queue.put_many([b"b"] * 4)


def test_copies_have_claimed_messages_waiting(queues: Queues, tmp_path: Path) -> None:
    queue = filled(queues, 4)
    with queue.receiver("r") as receiver:
        receiver.claim(2)
        copy = penstock.backup(queue.path, tmp_path / "copy")
        assert (copy.messages, copy.pending) == (4, 2)
        assert [message["attempts"] for message in penstock.export_messages(queue, state="pending")] == [1, 1]
        assert len(list(penstock.export_messages(queue, state="waiting"))) == 2
    with queues.open(tmp_path / "copy") as other:
        assert [m.data for m in other.browse()] == [b"0", b"1", b"2", b"3"] and other.claims() == []


# ---------------------------------------------------------------- one at a time


def test_a_second_receiver_of_a_name_is_refused(queues: Queues) -> None:
    queue = filled(queues)
    other = queues.open(queue)
    with queue.receiver("r") as receiver:
        for one in (queue, other):
            with pytest.raises(penstock.ReceiverBusy, match="'r' is in use"):
                one.receiver("r", wait=0.05)
        receiver.claim(1)
    with pytest.raises(penstock.Misuse, match="closed"):
        receiver.claim(1)
    other.receiver("r").close()


def test_the_name_is_free_when_its_process_is_killed(queues: Queues) -> None:
    queue = filled(queues)
    queue.close()

    def die() -> None:
        receiver = penstock.open(queue.path).receiver("r")
        receiver.claim(4)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WIFSIGNALED(in_child(die))
    again = queues.open(queue.path)
    with again.receiver("r") as receiver:
        assert bodies(again, receiver.references(1)) == [b"0", b"1", b"2", b"3"]


CALLS: dict[str, Callable[[Receiver], object]] = {
    "claim": lambda r: r.claim(1),
    "claims": lambda r: r.claims(),
    "references": lambda r: r.references(1),
    "commit": lambda r: r.commit(1),
    "release": lambda r: r.release(1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_stale_receiver_is_fenced(call: Callable[[Receiver], object], queues: Queues) -> None:
    """Somebody removed its lock, so that another one could take the name."""
    queue = filled(queues)
    stale = queue.receiver("r")
    stale.claim(2)
    (queue.path / "claims" / "r" / "lock").unlink()
    with queues.open(queue).receiver("r") as receiver:
        with pytest.raises(penstock.ReceiverLost):
            call(stale)
        assert receiver.claims() == [1] and queue.stats().claimed == 2
    stale.close()


def test_a_forked_child_is_not_its_parents_receiver(queues: Queues) -> None:
    queue = filled(queues)
    receiver = queue.receiver("r")
    receiver.claim(1)

    def child() -> None:
        with pytest.raises(penstock.ReceiverLost):
            receiver.claims()
        with pytest.raises(penstock.ReceiverBusy):
            penstock.open(queue.path).receiver("r")

    assert in_child(child) == 0
    assert receiver.claims() == [1]
    receiver.close()
    queue.receiver("r").close()


def test_there_are_so_many_names_and_no_more(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = filled(queues)
    for i in range(L.RECEIVERS):
        queue.receiver(f"r{i}").close()
    with pytest.raises(penstock.TooManyReceivers):
        queue.receiver("one-more")
    queue.receiver("r7").close()


# ---------------------------------------------------------------- a claim that fails on the way


def test_a_forgotten_receiver_makes_room_and_begins_anew(queues: Queues) -> None:
    queue = filled(queues)
    with queue.receiver("r") as receiver:
        receiver.claim(1)
        receiver.claim(1)
        with pytest.raises(penstock.ReceiverBusy):
            queue.forget_receiver("r")
        receiver.commit(1)
    with pytest.raises(penstock.Misuse, match=r"has open claims \(2\): commit or release"):
        queue.forget_receiver("r")
    with queue.receiver("r", timeout=7) as receiver:
        receiver.release(2)
    for i in range(L.RECEIVERS - 1):
        queue.receiver(f"r{i}").close()
    with pytest.raises(penstock.TooManyReceivers, match="penstock claims forget"):
        queue.receiver("s")
    queue.forget_receiver("r")
    assert not (queue.path / "claims" / "r").exists()
    with pytest.raises(penstock.NoSuchReceiver):
        queue.forget_receiver("r")
    with queue.receiver("s") as receiver:
        claim = receiver.claim(1)
        assert claim is not None and claim.number == 1
        receiver.commit(1)
    found = {one.name: (one.claims, one.timeout_s) for one in queue.receivers()}
    assert len(found) == L.RECEIVERS and found["s"] == (0, None)


def test_a_receiver_is_forgotten_for_good_also_where_its_files_stayed(queues: Queues) -> None:
    """Whoever forgot it was killed half-way: kernel first, then the files."""
    queue = filled(queues)
    with queue.receiver("r") as receiver:
        receiver.claim(1)
        receiver.commit(1)
        receiver._turn(receiver._claiming.forget, receiver._entry)
        with pytest.raises(penstock.ReceiverLost):
            receiver.claim(1)
    with queue.receiver("r") as receiver:
        claim = receiver.claim(1)
        assert claim is not None and claim.number == 2  # numbers are not given again while there are files
        receiver.commit(2)
    queue.forget_receiver("r")
    assert queue.receivers() == []


def test_a_lock_that_went_with_its_receiver_is_no_lock(queues: Queues) -> None:
    queue = filled(queues)
    with queue.receiver("r"):
        pass
    path = queue.path / "claims" / "r" / "lock"
    old = path.open("r+")
    path.unlink()
    with queue.receiver("r") as receiver:
        assert not receiver._files._is_lock(old.fileno()) and receiver._files._is_lock(receiver._fd)
    old.close()


def test_a_receiver_that_is_forgotten_while_others_come_or_look(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder goes between two steps of theirs."""
    queue = filled(queues)
    folder = queue.path / "claims" / "r"
    real = namedfiles.open_file

    def open_late(path: Path, flags: int) -> int:
        if path == folder / "lock" and not forgotten:
            forgotten.append(path)
            shutil.rmtree(folder)
        return real(path, flags)

    forgotten: list[Path] = []
    monkeypatch.setattr(namedfiles, "open_file", open_late)
    with queue.receiver("r") as receiver:
        assert receiver._files.is_locked() and len(forgotten) == 1
    forgotten.clear()
    assert not receiver._files.is_locked() and not folder.exists() and len(forgotten) == 1


def test_a_lock_that_is_removed_while_it_is_taken_is_taken_anew(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(queues)
    path = queue.path / "claims" / "r" / "lock"
    real = namedfiles.open_file
    removed: list[Path] = []

    def open_then_remove(file: Path, flags: int) -> int:
        fd = real(file, flags)
        if file == path and not removed:
            removed.append(file)
            path.unlink()
        return fd

    monkeypatch.setattr(namedfiles, "open_file", open_then_remove)
    with queue.receiver("r") as receiver:
        assert removed and receiver._files._is_lock(receiver._fd)


def test_claims_of_a_receiver_that_is_gone_for_long_wait_again(queues: Queues, clock: SimulatedClock) -> None:
    queue = filled(queues, index_sync_ms=0)  # nobody looks but us
    with queue.receiver("r", timeout=60) as receiver:
        receiver.claim(2)
        clock.advance(100)
        assert release_overdue(queue) == 0  # it is there
    with queue.receiver("r") as receiver:  # which is seen, and keeps what was said
        receiver.claim(1)
    clock.advance(59)
    assert release_overdue(queue) == 0
    clock.advance(2)
    assert release_overdue(queue) == 3
    assert queue.stats().claimed == 0 and queue.claims() == []
    with queue.receiver("r", timeout=0) as receiver, pytest.raises(penstock.NoSuchClaim, match="was released"):
        receiver.references(2)
    with queue.receiver("r") as receiver:
        receiver.claim(1)
    clock.advance(1e6)
    assert release_overdue(queue) == 0


def test_the_time_begins_when_a_receiver_is_no_longer_there(queues: Queues, clock: SimulatedClock) -> None:
    queue = filled(queues, index_sync_ms=0)
    with queue.receiver("r", timeout=60) as receiver:
        receiver.claim(2)
        clock.advance(100)  # with one batch
        assert release_overdue(queue) == 0
    clock.advance(30)
    assert release_overdue(queue) == 0
    clock.advance(31)
    assert release_overdue(queue) == 2


@pytest.mark.damages
def test_a_damaged_receiver_does_not_keep_the_claims_of_others(queues: Queues, clock: SimulatedClock) -> None:
    queue = filled(queues, index_sync_ms=0)
    for name in ("a", "b"):
        with queue.receiver(name, timeout=60) as receiver:
            receiver.claim(1)
            receiver.claim(2)
            receiver.commit(1)
    path = queue.path / "claims" / "a" / "committed"
    overwrite(path, path.read_bytes()[:-1])
    clock.advance(100)
    with pytest.raises(penstock.Corrupt, match="claims/a/committed"):
        release_overdue(queue)
    assert queue.qsize() == 6 and queue.stats().claimed == 2


def test_a_restore_keeps_the_timeout_and_its_time_begins_anew(queues: Queues, clock: SimulatedClock) -> None:
    queue = filled(queues, index_sync_ms=0)
    with queue.receiver("r", timeout=60) as receiver:
        receiver.claim(2)
    queue.receiver("s", timeout=70).close()
    queue.close()
    after_power_loss(queue.path)
    clock.advance(1e6)
    again = queues.open(queue.path)
    assert release_overdue(again) == 0
    clock.advance(59)
    assert release_overdue(again) == 0
    again.receiver("s").close()
    assert {one.name: one.timeout_s for one in again.receivers()} == {"r": 60, "s": 70}
    clock.advance(2)
    assert release_overdue(again) == 2
    assert again.qsize() == 10
    again.receiver("s", timeout=0).close()
    again.close()
    after_power_loss(queue.path)
    last = queues.open(queue.path)
    last.receiver("s").close()
    assert {one.name: one.timeout_s for one in last.receivers()} == {"r": None, "s": None}


@pytest.mark.parametrize("fails", ["write", "rename", "sync_directory"])
def test_a_claim_that_could_not_be_written_is_returned_by_the_next_call(
    fails: str, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(queues)
    with queue.receiver("r") as receiver:

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        where = {"write": "write_all", "rename": "os.rename", "sync_directory": "sync_directory"}[fails]
        with monkeypatch.context() as patch:
            patch.setattr(f"penstock.store.namedfiles.{where}", refuse)
            with pytest.raises(OSError):
                receiver.claim(4)
        assert queue.stats().claimed == 4
        claim = receiver.claim(2)
        assert claim is not None and claim.number == 1 and receiver.claims() == [1]
        assert bodies(queue, claim.references) == [b"0", b"1", b"2", b"3"]
        after = receiver.claim(2)
        assert after is not None and after.number == 2 and bodies(queue, after.references) == [b"4", b"5"]


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_next_receiver_brings_a_name_to_disk_that_was_only_just_given(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(queues)
    receiver = queue.receiver("r")
    with monkeypatch.context() as patch:
        patch.setattr(namedfiles, "sync_directory", refuse)
        with pytest.raises(OSError):
            receiver.claim(4)
    receiver.close()
    synced: list[list[str]] = []
    monkeypatch.setattr(namedfiles, "sync_directory", lambda path: synced.append(os.listdir(path)))
    with queue.receiver("r") as receiver:
        assert receiver.claims() == [1] and any("1" in names for names in synced)


def test_a_release_that_failed_is_finished_by_the_same_call(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = filled(queues)
    with queue.receiver("r") as receiver:
        receiver.claim(3)
        receiver.claim(2)
        with monkeypatch.context() as patch:
            patch.setattr("penstock.store.namedfiles.sync_directory", refuse)
            with pytest.raises(OSError):
                receiver.release(1)
        assert queue.qsize() == 5
        assert receiver.release(1) == 3
        assert receiver.claims() == [2] and queue.qsize() == 8
        with pytest.raises(penstock.NoSuchClaim):
            receiver.release(1)


def test_a_commit_that_failed_behind_its_file_is_finished_by_the_same_call(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(queues)
    with queue.receiver("r") as receiver:
        receiver.claim(3)
        with monkeypatch.context() as patch:
            patch.setattr(receiver, "_ack", refuse)
            with pytest.raises(OSError):
                receiver.commit(1)
        assert queue.stats().claimed == 3
        receiver.commit(1)
        assert queue.stats().claimed == 0 and receiver.claims() == []


# ---------------------------------------------------------------- restore


def test_claims_with_a_file_are_claimed_again_after_a_power_loss(queues: Queues) -> None:
    queue = filled(queues)
    with queue.receiver("a") as a, queue.receiver("b") as b:
        claims = [a.claim(2), b.claim(3), a.claim(1)]
    queue.close()
    with Disk(queue.path) as disk:  # nothing of the slots but their words, and of those some are older
        names = disk.words[L.H_NAMES_AT]
        for word in range(L.NAMES_BYTES // 8):
            disk.words[names + word] = 0
        row = claims[0].references  # type: ignore[union-attr]
        disk.say(row[F_SLOT], row[F_NUMBER], L.STATE_WAITING)
        disk.put(row[F_SLOT], L.S_INFO, 0)
    after_power_loss(queue.path)
    assert check_queue(queue.path) == []
    again = queues.open(queue.path)
    assert again.stats().claimed == 6 and [m.data for m in again.browse()] == [b"6", b"7", b"8", b"9"]
    assert {m.attempts for m in again.browse(state="pending")} == {1}
    with again.receiver("a") as a, again.receiver("b") as b:
        assert [a.references(1), b.references(1), a.references(2)] == [claim.references for claim in claims]  # type: ignore[union-attr]
        a.commit(2)
        assert b.release(1) == 3
    assert [m.data for m in again.browse()] == [b"%d" % i for i in (2, 3, 4, 6, 7, 8, 9)]


def test_twice_gives_the_same(queues: Queues) -> None:
    queue = filled(queues)
    with queue.receiver("r") as receiver:
        receiver.claim(4)
    queue.close()
    kernels = []
    for _ in range(2):
        after_power_loss(queue.path)
        with Disk(queue.path) as disk:
            names, slots = disk.words[L.H_NAMES_AT], disk.words[L.H_SLOTS_AT]
            kernels.append(disk.words[names : slots + disk.words[L.H_SLOTS] * L.SLOT_WORDS].tolist())
    assert kernels[0] == kernels[1]


def test_claimed_messages_without_a_file_wait_again(queues: Queues) -> None:
    queue = filled(queues, 5)
    with queue.receiver("r") as receiver:
        receiver.claim(2)
        receiver.claim(1)
    queue.close()
    (queue.path / "claims" / "r" / "2").unlink()
    after_power_loss(queue.path)
    again = queues.open(queue.path)
    assert [m.data for m in again.browse()] == [b"2", b"3", b"4"]
    with again.receiver("r") as receiver:
        assert receiver.claims() == [1]


@pytest.mark.damages
def test_of_an_earlier_claim_file_only_its_references_are_refused(queues: Queues) -> None:
    queue = filled(queues, 4)
    with queue.receiver("r") as receiver:
        receiver.claim(1)
        receiver.claim(2)
        receiver.commit(1)
    for name in ("2", "committed"):
        file = queue.path / "claims" / "r" / name
        data = EARLIER.to_bytes(8, "little") + file.read_bytes()[8:-8]
        overwrite(file, data + CHECK.pack(crc32(data)))
    with queue.receiver("r") as receiver:
        assert (receiver.committed, receiver.claims()) == (1, [2])
        with pytest.raises(penstock.Corrupt, match=r"claims/r/2.*: release it"):
            receiver.references(2)
        assert receiver.release(2) == 2
    assert [m.data for m in queue.browse()] == [b"1", b"2", b"3"]


@pytest.mark.damages
def test_a_damaged_claim_is_reported_by_a_restore_and_its_messages_wait(queues: Queues) -> None:
    queue = filled(queues, 3)
    with queue.receiver("r") as receiver:
        receiver.claim(2)
        file = queue.path / "claims" / "r" / "1"
        data = bytearray(file.read_bytes())
        data[40] ^= 1
        overwrite(file, data)
        with pytest.raises(penstock.Corrupt, match="claims/r/1"):
            receiver.references(1)
    queue.close()
    assert [finding.path for finding in check_queue(queue.path)] == [str(file)]
    findings = restore_queue(queue.path, after_power_loss=True)
    assert [finding.path for finding in findings] == [str(file)]
    assert [m.data for m in queues.open(queue.path).browse()] == [b"0", b"1", b"2"]


def test_a_commit_that_was_on_disk_is_finished_after_a_power_loss(queues: Queues) -> None:
    queue = filled(queues, 6)
    with queue.receiver("r") as receiver:
        receiver.claim(2)
        receiver.claim(2)
        receiver._files.commit(1)  # and then the power went
    queue.close()
    after_power_loss(queue.path)
    again = queues.open(queue.path)
    assert again.stats().claimed == 4
    with again.receiver("r") as receiver:
        assert receiver.claims() == [2] and again.stats().claimed == 2


def test_a_release_that_was_on_disk_holds_after_a_power_loss(queues: Queues) -> None:
    queue = filled(queues, 4)
    with queue.receiver("r") as receiver:
        receiver.claim(2)
        receiver._files.write(1, array("Q"))  # and then the power went
    queue.close()
    after_power_loss(queue.path)
    again = queues.open(queue.path)
    assert again.stats().claimed == 0 and [m.data for m in again.browse()] == [b"0", b"1", b"2", b"3"]
    with again.receiver("r") as receiver:
        claim = receiver.claim(1)
        assert claim is not None and claim.number == 2


def test_messages_of_an_old_claim_file_that_are_gone_stay_gone(queues: Queues) -> None:
    queue = filled(queues, 4)
    with queue.receiver("r") as receiver:
        receiver.claim(3)
        file = queue.path / "claims" / "r" / "1"
        kept = file.read_bytes()
        receiver.commit(1)
    queue.put_many([b"a", b"b", b"c"])  # in the same slots
    queue.close()
    file.write_bytes(kept)  # its removal was not on disk yet
    after_power_loss(queue.path)
    again = queues.open(queue.path)
    assert again.stats().claimed == 0 and sorted(m.data for m in again.browse()) == [b"3", b"a", b"b", b"c"]
    with again.receiver("r") as receiver:
        again.sync_index()
        assert receiver.claims() == [] and receiver.is_due() and not file.exists()


# ---------------------------------------------------------------- check


@pytest.mark.damages
@pytest.mark.parametrize("word", [L.S_OWNER, L.S_LEASE_US, L.S_CHAIN, L.S_WORD])
def test_damage_of_a_claimed_slot_is_found(word: int, queues: Queues) -> None:
    queue = filled(queues, 5)
    with queue.receiver("r") as receiver:
        claim = receiver.claim(3)
        assert claim is not None
    queue.close()
    assert check_queue(queue.path) == []
    slot = claim.references[REFERENCE_WORDS + F_SLOT]
    with Disk(queue.path) as disk:
        disk.put(slot, word, disk.get(slot, word) ^ 1 << 33)
    assert check_queue(queue.path)


@pytest.mark.damages
@pytest.mark.parametrize("word", [L.N_CHAIN, L.N_COUNT, L.N_CLAIM, L.N_LENGTH])
def test_damage_of_a_receiver_is_found(word: int, queues: Queues) -> None:
    queue = filled(queues, 5)
    with queue.receiver("r") as receiver:
        receiver.claim(3)
    queue.close()
    with Disk(queue.path) as disk:
        at = disk.words[L.H_NAMES_AT] + word
        disk.words[at] = 0 if word == L.N_CLAIM else disk.words[at] ^ 1 << 40
    assert check_queue(queue.path)


def test_what_is_committed_leaves_the_kernel_later(queue: Queues) -> None:
    """Behind the caller's back, or when the next receiver of the name is there; gone for good it is at once."""
    q = queue()
    q.put_many([b"%d" % i for i in range(6)])
    with q.receiver("r") as receiver:
        for number in (1, 2, 3):
            assert receiver.claim(2).number == number
        receiver.commit(1, later=True)
        assert receiver.claims() == [2, 3] and q.stats().claimed == 6
        receiver.settle(behind=True)
        assert receiver.release(3) == 2  # waits for it
        assert q.stats().claimed == 2 and q.stats().acks == 2
        receiver.commit(2, later=True)
    assert q.stats().claimed == 2
    with q.receiver("r") as receiver:
        assert receiver.claims() == [] and receiver.committed == 2
    assert q.stats().claimed == 0 and q.qsize() == 2


def test_a_receiver_that_is_dropped_while_it_settles_lets_go_of_its_name(queue: Queues) -> None:
    """The thread that takes the messages out is then the last to have it."""
    q = queue(slots=3000, data_bytes=1 << 20)
    q.put_many([b"%d" % i for i in range(3000)])
    receiver = q.receiver("r")
    receiver.commit(receiver.claim(3000).number, later=True)
    receiver.settle(behind=True)
    del receiver
    with q.receiver("r", wait=10) as receiver:
        assert receiver.claims() == []
    assert q.stats().claimed == 0


def test_a_claim_is_made_ahead_while_the_caller_goes_on(queue: Queues) -> None:
    q = queue()
    q.put_many([b"%d" % i for i in range(5)])
    with q.receiver("r") as receiver:
        first = receiver.claim(2)
        receiver.commit(first.number, later=True)
        receiver.settle(behind=True)
        receiver.claim_ahead(2)
        ahead = receiver.claim(1)  # it was made, with two
        assert (ahead.number, ahead.count) == (2, 2) and receiver.claims() == [2]
        receiver.claim_ahead(2)
        assert receiver.claimed_ahead().count == 1 and receiver.claimed_ahead() is None
        receiver.claim_ahead(2)
        assert receiver.claimed_ahead() is None and receiver.claim(2) is None
        receiver.commit(3)
    assert q.stats().claimed == 0 and q.qsize() == 0


def test_a_claim_ahead_that_failed_raises_in_the_next_call_and_is_finished_by_the_one_after(
    queue: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = queue()
    q.put_many([b"%d" % i for i in range(4)])
    with q.receiver("r") as receiver:
        first = receiver.claim(2)
        with monkeypatch.context() as patched:
            patched.setattr(ClaimFiles, "write", failing)
            receiver.claim_ahead(2)
            with pytest.raises(OSError, match="no room"):
                receiver.commit(first.number)
        receiver.commit(first.number)
        assert receiver.claim(1).count == 2
        receiver.commit(2)
    assert q.stats().claimed == 0 and q.qsize() == 0


def failing(*_given: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_a_receiver_that_is_closed_while_it_claims_ahead_keeps_the_claim(queue: Queues) -> None:
    q = queue()
    q.put_many([b"%d" % i for i in range(4)])
    with q.receiver("r") as receiver:
        receiver.claim_ahead(3)
    with q.receiver("r") as receiver:
        assert receiver.claims() == [1] and receiver.count(1) == 3
        receiver.commit(1)


def test_what_was_claimed_ahead_twice_is_returned_before_more_is_claimed(queue: Queues) -> None:
    q = queue()
    q.put_many([b"%d" % i for i in range(6)])
    seen = 0
    with q.receiver("r") as receiver:
        receiver.claim_ahead(2)
        receiver.claim_ahead(2)
        while (claim := receiver.claim(2)) is not None:
            seen += claim.count
            receiver.commit(claim.number)
    assert seen == 6 and q.qsize() == 0


@pytest.mark.parametrize("end", ["release", "commit"])
def test_what_was_claimed_ahead_and_is_no_claim_any_more_is_not_returned(queue: Queues, end: str) -> None:
    q = queue()
    q.put_many([b"a", b"b"])
    with q.receiver("r") as receiver:
        receiver.claim_ahead(2)
        receiver.is_due()  # waits for it
        getattr(receiver, end)(1)
        assert len(q.get_many(2)) == (2 if end == "release" else 0)
        assert receiver.claim(2) is None


def test_interrupted_as_it_begins_to_claim_ahead_no_claim_is_made_twice(
    queue: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind where the work is handed over, the thread has it, and nobody knows of it."""
    submit = ThreadPoolExecutor.submit

    def interrupted(self: ThreadPoolExecutor, *given: object) -> None:
        submit(self, *given)
        raise KeyboardInterrupt

    q = queue(slots=20_000, data_bytes=16 << 20, durability="relaxed")
    q.put_many([b"m"] * 9000)
    with q.receiver("r") as receiver:
        with monkeypatch.context() as patched:
            patched.setattr(ThreadPoolExecutor, "submit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                receiver.claim_ahead(8000)
        claims = [receiver.claim(8000), receiver.claim(8000)]
        assert sorted(claim.count for claim in claims) == [1000, 8000]
        assert [claim.count for claim in claims] == [receiver.count(claim.number) for claim in claims]
        receiver.commit(2)
    assert q.qsize() == 0 and q.stats().claimed == 0


def test_the_child_of_a_fork_does_not_wait_for_what_its_parent_claims_ahead(queue: Queues) -> None:
    q = queue()
    q.put(b"a")
    with q.receiver("r") as receiver:
        go_on = threading.Event()
        receiver._go_on(go_on.wait, 30)
        child = os.fork()
        if child == 0:
            try:
                receiver.claim(1)
            except ReceiverLost:
                os._exit(7)
            os._exit(1)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        go_on.set()
        assert os.waitstatus_to_exitcode(ended[1]) == 7
