"""Kill -9 at every store and effect of a receiver's calls: no message is lost, none is in two claims, a claim that was
returned has the same messages again, and a commit or release that was begun is done or not done as a whole."""

import tempfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock
from penstock.store.gather import F_NUMBER, REFERENCE_WORDS
from penstock.timequeue import check_queue
from penstock.timequeue.claims import Receiver
from tests.crash.rig import in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import KILLED_AT_EVERY, STEPS_MAX, some_of

NAME = "report"
STRIDE = 7  # of the steps of an operation after which the repair is killed, too


class Found(NamedTuple):
    """What the next receiver finds, by message numbers."""

    waiting: list[int]
    claims: dict[int, list[int]]
    committed: bool


def numbers(rows: array) -> list[int]:
    return list(rows[F_NUMBER::REFERENCE_WORDS])


def fill(path: Path) -> None:
    with penstock.create(path, slots=30, data_bytes=64 << 10, spill_bytes=3000, durability="relaxed") as queue:
        for i in range(8):
            queue.put(b"s" * 4000 if i == 2 else b"%d" % i, priority=int(i == 5))
        queue.put_many([b"a", b"b", b"c"], durability="commit")


@pytest.fixture(scope="module")
def saved() -> Iterator[Snapshot]:
    with tempfile.TemporaryDirectory(prefix="penstock-claims-", dir=FAST) as folder:
        path = Path(folder) / "queue"
        fill(path)
        yield Snapshot(path)


def received(path: Path) -> Receiver:
    queue = penstock.open(path, busy_s=2)
    return queue.receiver(NAME)


def with_claims(*sizes: int) -> Callable[[Path], Receiver]:
    def prepare(path: Path) -> Receiver:
        receiver = received(path)
        for size in sizes:
            assert receiver.claim(size)
        return receiver

    return prepare


def look(path: Path) -> Found:
    """Checks before and after; the references of each claim are those of messages that are there, the same twice."""
    assert check_queue(path) == []
    with penstock.open(path, busy_s=2) as queue:
        with queue.receiver(NAME) as receiver:
            claims = {number: receiver.references(number) for number in receiver.claims()}
            assert claims == {number: receiver.references(number) for number in receiver.claims()}
            committed = receiver._committed > 0
        pending = [message.number for message in queue.browse(state="pending")]
        waiting = [message.number for message in queue.browse()]
        stats = queue.stats()
        assert stats.restores == 0 and stats.pending == 0
        found = {number: numbers(rows) for number, rows in claims.items()}
        claimed = [number for rows in found.values() for number in rows]
        assert stats.claimed == len(claimed) and pending == claimed
        together = waiting + claimed
        assert len(set(together)) == len(together)
        queue.sync_index()
    assert check_queue(path) == []
    return Found(waiting, found, committed)


def outcome(saved: Snapshot, prepare: Callable, operate: Callable) -> tuple[Found, Found]:
    results = []
    for disturb in (False, True):
        saved.put_back()
        assert in_child(lambda: operate(prepare(saved.path)) if disturb else prepare(saved.path)) == 0  # noqa: B023
        results.append(look(saved.path))
    return results[0], results[1]


OPERATIONS = {
    "claim": (received, lambda r: r.claim(6)),
    "second claim": (with_claims(2), lambda r: r.claim(3)),
    "ahead, second claim": (with_claims(2), lambda r: (r.claim_ahead(3), r.claim(3))),
    "commit": (with_claims(4, 3), lambda r: r.commit(1)),
    "commit of two": (with_claims(2, 3, 1), lambda r: r.commit(2)),
    "release": (with_claims(3, 2), lambda r: r.release(1)),
    "release of the last": (with_claims(2, 3), lambda r: r.release(2)),
    "open": (lambda path: path, received),
}


def is_claimed_in_part(found: Found, before: Found, after: Found) -> bool:
    """A claim that its receiver did not live to hear of has the first so many messages of it."""
    last = max(after.claims)
    rows = found.claims.get(last, [])
    return (
        {number: rows for number, rows in found.claims.items() if number != last} == before.claims
        and rows == after.claims[last][: len(rows)]
        and sorted(found.waiting + rows) == sorted(before.waiting)
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_every_store_and_effect(name: str, saved: Snapshot) -> None:
    prepare, operate = OPERATIONS[name]
    before, after = outcome(saved, prepare, operate)
    for step in some_of(KILLED_AT_EVERY):
        saved.put_back()
        died = killed_at(step, operate, lambda: prepare(saved.path))
        found = look(saved.path)
        if died and name.endswith("claim"):
            assert is_claimed_in_part(found, before, after), step
        else:
            assert found == after or (died and found == before), step
        if not died:
            assert step > 10
            return
    raise AssertionError("the operation has no end")


def test_a_receiver_is_forgotten_and_its_committed_claims_never_come_back(saved: Snapshot) -> None:
    def prepare() -> penstock.TimeQueue:
        receiver = with_claims(2, 2, 2)(saved.path)
        receiver.commit(3)
        receiver.close()
        return receiver._queue  # type: ignore[return-value]

    for step in range(1, STEPS_MAX):
        saved.put_back()
        died = killed_at(step, lambda queue: queue.forget_receiver(NAME), prepare)
        left = {file.name for file in (saved.path / "claims" / NAME).glob("*")}
        assert "committed" in left or not any(name.isdigit() for name in left)
        found = look(saved.path)
        assert found.claims == {} and len(found.waiting) == 5, step
        if not died:
            return
    raise AssertionError("the operation has no end")


@pytest.mark.parametrize("name", ["claim", "commit", "release"])
def test_the_next_receiver_may_be_killed_at_every_step_too(name: str, saved: Snapshot) -> None:
    prepare, operate = OPERATIONS[name]
    before, after = outcome(saved, prepare, operate)
    repairs = 0
    for step in range(5, STEPS_MAX, STRIDE * 11):
        saved.put_back()
        if not killed_at(step, operate, lambda: prepare(saved.path)):
            break
        left = Snapshot(saved.path)
        for repair_step in range(1, STEPS_MAX, STRIDE):
            left.put_back()
            died = killed_at(repair_step, received, lambda: saved.path)
            found = look(saved.path)
            assert is_claimed_in_part(found, before, after) if name == "claim" else found in (before, after)
            repairs += 1
            if not died:
                break
    assert repairs > 20
