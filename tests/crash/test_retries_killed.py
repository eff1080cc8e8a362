"""Kill -9 at every store and effect of puts with a dedup id, of moves between two queues and of dead letters: the next
one who tries finishes it, and the message is there once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Draft
from penstock.timequeue import check_queue
from tests.crash.rig import contents, in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, KILLED_AT_EVERY, STEPS_MAX, some_of

STRIDE = 5  # of the steps after which the next one is killed, too
# Three messages are moved one after the other: what is passed over in one is hit in another.
MOVE_STRIDE = 7 if IN_FULL else 29
BETWEEN_STRIDE = 28 if IN_FULL else 64  # of steps at which a message is in both queues for a while
OPTIONS = {"slots": 24, "data_bytes": 32 << 10, "spill_bytes": 3000, "dedup_entries": 64}


def opened(path: Path) -> penstock.TimeQueue:
    return penstock.open(path, busy_s=2)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-retries-", dir=FAST) as name:
        yield Path(name)


# ---------------------------------------------------------------- dedup ids

BATCH = [Draft(body=b"one", dedup_id="1"), Draft(body=b"n" * 4000, dedup_id="2"), Draft(body=b"again", dedup_id="1")]

PUTS: dict[str, tuple[Callable[[penstock.TimeQueue], object], list[bytes]]] = {
    "relaxed": (lambda q: q.put(b"new", dedup_id="a", durability="relaxed"), [b"new"]),
    "commit": (lambda q: q.put(b"new", dedup_id="a", durability="commit"), [b"new"]),
    "a body of its own": (lambda q: q.put(b"n" * 4000, dedup_id="a", durability="relaxed"), [b"n" * 4000]),
    "put_many": (lambda q: q.put_many(BATCH), [b"one", b"n" * 4000]),
    "put_many, relaxed": (lambda q: q.put_many(BATCH, durability="relaxed"), [b"one", b"n" * 4000]),
    "put_once": (lambda q: q.put_once("p", 1, BATCH), [b"one", b"n" * 4000]),
    "of what is there": (lambda q: q.put(b"other", dedup_id="here", durability="commit"), []),
}


def made(path: Path) -> Snapshot:
    with penstock.create(path, **OPTIONS) as queue:
        queue.put(b"here", dedup_id="here")
    return Snapshot(path)


@pytest.mark.parametrize("name", PUTS)
def test_a_put_that_was_killed_and_is_repeated_is_there_once(name: str, folder: Path) -> None:
    put, new = PUTS[name]
    saved = made(folder / "queue")
    for turn, step in enumerate(some_of(KILLED_AT_EVERY)):
        saved.put_back()
        died = killed_at(step, put, lambda: opened(saved.path))
        assert contents(saved.path) in ([b"here"], [b"here", *new])
        if turn % STRIDE == 0:
            for again in range(step % 13, STEPS_MAX, 13):
                if not killed_at(again or 1, put, lambda: opened(saved.path)):
                    break
        with opened(saved.path) as queue:
            put(queue)
            put(queue)
        assert contents(saved.path) == [b"here", *new]
        if not died:
            assert step > 5
            return
    raise AssertionError("the put has no end")


def test_taken_and_acknowledged_it_is_still_known(folder: Path) -> None:
    """Killed anywhere in put, get and ack: what was confirmed as put is never put again."""
    saved = made(folder / "queue")

    def work(queue: penstock.TimeQueue) -> None:
        queue.put(b"new", dedup_id="a", durability="relaxed")
        queue.ack_many(queue.get_many(5))

    for step in some_of(KILLED_AT_EVERY):
        saved.put_back()
        died = killed_at(step, work, lambda: opened(saved.path))
        before = contents(saved.path)
        with opened(saved.path) as queue:
            taken = queue.stats().puts == 2
            queue.put(b"new", dedup_id="a")
            assert queue.stats().puts == 2
        assert contents(saved.path) == (before if taken else [*before, b"new"])
        if not died:
            return
    raise AssertionError("it has no end")


# ---------------------------------------------------------------- moves


class Pair:
    """A queue with messages, and another one beside it."""

    def __init__(self, folder: Path, *, target: str, **options: object) -> None:
        self.source = folder / "queue"
        self.target = folder / target
        with penstock.create(self.source, **OPTIONS, **options) as queue:  # type: ignore[arg-type]
            queue.put_many([b"a", b"s" * 4000, b"c"])
        penstock.create(self.target, **OPTIONS).close()
        self.saved = [Snapshot(self.source), Snapshot(self.target)]

    def put_back(self) -> None:
        for snapshot in self.saved:
            snapshot.put_back()

    def bodies(self) -> tuple[list[bytes], list[bytes]]:
        """What is in both. They are only looked at: a receive would finish what was begun."""
        return looked(self.source), looked(self.target)


def looked(path: Path) -> list[bytes]:
    findings = check_queue(path)
    assert not findings, findings
    with opened(path) as queue:
        found = [message.data for message in queue.browse(state="all")]
        stats = queue.stats()
        assert stats.filling == 0 and stats.waiting + stats.pending == len(found)
    return found


def judge(source: list[bytes], target: list[bytes], everything: list[bytes]) -> None:
    """Nothing is lost, nothing invented, and nothing twice in one queue. In both it may be until somebody goes on."""
    assert set(source) | set(target) == set(everything)
    assert len(source) == len(set(source)) and len(target) == len(set(target))


EVERYTHING = [b"a", b"s" * 4000, b"c"]


def moves(path: Path) -> penstock.TimeQueue:
    queue = opened(path)
    for message in queue.get_many(9):
        message.move(to=path.with_name("other"))
    queue._moves.settle()
    return queue


def bulk(path: Path) -> None:
    opened(path).move_all(to=path.with_name("other"))


@pytest.mark.parametrize("work", [moves, bulk])
def test_a_move_that_was_killed_and_is_repeated_stores_once(work: Callable[[Path], object], folder: Path) -> None:
    pair = Pair(folder, target="other")
    for step in range(1, STEPS_MAX, MOVE_STRIDE):
        pair.put_back()
        died = killed_at(step, work, lambda: pair.source)  # type: ignore[arg-type]
        judge(*pair.bodies(), EVERYTHING)
        if step % (STRIDE * MOVE_STRIDE) == 1:
            killed_at(1 + step * 7 % 400, work, lambda: pair.source)  # type: ignore[arg-type]
            judge(*pair.bodies(), EVERYTHING)
        assert in_child(lambda: work(pair.source)) == 0  # type: ignore[arg-type, return-value]
        source, target = pair.bodies()
        assert source == [] and sorted(target) == sorted(EVERYTHING)
        if not died:
            assert step > 100
            return
    raise AssertionError("the move has no end")


def drained(path: Path) -> list[bytes]:
    with opened(path) as queue:
        messages = queue.get_many(9)
        bodies = [message.data for message in messages]
        queue.ack_many(messages)
        return bodies


@pytest.mark.parametrize("work", [moves, bulk])
def test_a_move_that_was_killed_and_is_left_alone_delivers_once(work: Callable[[Path], object], folder: Path) -> None:
    """Whichever of the two queues somebody receives from first."""
    pair = Pair(folder, target="other")
    for turn, step in enumerate(some_of(MOVE_STRIDE)):
        pair.put_back()
        died = killed_at(step, work, lambda: pair.source)  # type: ignore[arg-type]
        order = [pair.source, pair.target] if turn % 2 else [pair.target, pair.source, pair.target]
        assert sorted(body for path in order for body in drained(path)) == sorted(EVERYTHING)
        if not died:
            return
    raise AssertionError("the move has no end")


def fails(path: Path) -> None:
    """A receiver whose every message was delivered too often: it gets none."""
    queue = opened(path)
    assert queue.get_many(9) == []
    queue._moves.settle()


def redrives(path: Path) -> None:
    assert opened(path).redrive() in range(4)


def delivered(path: Path) -> None:
    queue = opened(path)
    assert len(queue.get_many(9)) == 3


def test_dead_letters_are_stored_once_and_redriven_once(folder: Path) -> None:
    pair = Pair(folder, target="queue.dead", max_attempts=1)
    assert in_child(lambda: delivered(pair.source)) == 0
    pair.saved[0] = Snapshot(pair.source)
    for step in range(1, STEPS_MAX, MOVE_STRIDE):
        pair.put_back()
        died = killed_at(step, fails, lambda: pair.source)  # type: ignore[arg-type]
        judge(*pair.bodies(), EVERYTHING)
        assert in_child(lambda: fails(pair.source)) == 0
        source, target = pair.bodies()
        assert source == [] and sorted(target) == sorted(EVERYTHING)
        if not died:
            break
    dead = [Snapshot(pair.source), Snapshot(pair.target)]
    for step in range(1, STEPS_MAX, MOVE_STRIDE):
        for snapshot in dead:
            snapshot.put_back()
        died = killed_at(step, redrives, lambda: pair.source)  # type: ignore[arg-type]
        judge(*pair.bodies(), EVERYTHING)
        assert in_child(lambda: redrives(pair.source)) == 0
        source, target = pair.bodies()
        assert target == [] and sorted(source) == sorted(EVERYTHING)
        if not died:
            return
    raise AssertionError("the redrive has no end")


def test_what_was_killed_on_its_way_to_the_dead_letters_is_there_once_when_it_is_brought_back(folder: Path) -> None:
    """It may be in both queues, and nobody has received since."""
    pair = Pair(folder, target="queue.dead", max_attempts=1)
    assert in_child(lambda: delivered(pair.source)) == 0
    pair.saved[0] = Snapshot(pair.source)
    in_both = 0
    for step in range(1, STEPS_MAX, BETWEEN_STRIDE):
        pair.put_back()
        died = killed_at(step, fails, lambda: pair.source)  # type: ignore[arg-type]
        source, target = pair.bodies()
        in_both += len(source) + len(target) > len(EVERYTHING)
        assert in_child(lambda: redrives(pair.source)) == 0
        bodies = [body for path in (pair.source, pair.target) for body in drained(path)]
        assert sorted(bodies) == sorted(EVERYTHING), step
        if not died:
            assert in_both
            return
    raise AssertionError("it has no end")


def test_the_dead_letter_queue_is_made_by_whoever_comes_through(folder: Path) -> None:
    """Killed while it makes the queue, too."""
    pair = Pair(folder, target="queue.dead", max_attempts=1)
    assert in_child(lambda: delivered(pair.source)) == 0
    saved = Snapshot(pair.source)
    for step in range(1, STEPS_MAX, 2 * MOVE_STRIDE):
        saved.put_back()
        shutil.rmtree(pair.target, ignore_errors=True)
        died = killed_at(step, fails, lambda: pair.source)  # type: ignore[arg-type]
        assert in_child(lambda: fails(pair.source)) == 0
        assert looked(pair.source) == [] and sorted(contents(pair.target)) == sorted(EVERYTHING)
        if not died:
            return
    raise AssertionError("it has no end")
