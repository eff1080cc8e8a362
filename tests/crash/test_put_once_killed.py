"""Kill -9 at every store and effect of ``put_once``: the batch is there as a whole and remembered, or neither; and the
call again, with the same number, leaves it there once."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.timequeue import check_queue
from tests.columns import columns
from tests.crash.rig import contents, in_child, killed_at
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import KILLED_AT_EVERY, STEPS_MAX, some_of

NAME = "query"
STRIDE = 7  # of the steps of an attempt after which the next one is killed, too
MANY_STRIDE = 61  # a batch of many transactions

HERE = [b"here"]
THREE = [b"one", b"s" * 4000, b"three"]
MANY = [b"%d" % i for i in range(150)]


def fill(path: Path) -> None:
    with penstock.create(path, slots=200, data_bytes=128 << 10, spill_bytes=3000) as queue:
        queue.put(HERE[0])


def with_batches(path: Path) -> None:
    with penstock.open(path, busy_s=2) as queue:
        assert queue.put_once(NAME, 4, [b"before"])


@pytest.fixture(scope="module")
def saved() -> Iterator[Snapshot]:
    with tempfile.TemporaryDirectory(prefix="penstock-once-", dir=FAST) as folder:
        path = Path(folder) / "queue"
        fill(path)
        yield Snapshot(path)


def put(number: int, bodies: list[bytes], durability: str = "commit") -> Callable:
    def work(path: Path) -> None:
        queue = penstock.open(path, busy_s=2)
        queue.put_once(NAME, number, bodies, durability=durability)

    return work


def put_columns(number: int, bodies: list[bytes], durability: str = "commit") -> Callable:
    def work(path: Path) -> None:
        queue = penstock.open(path, busy_s=2)
        queue.put_entries_once(NAME, number, lambda: columns(bodies), None, durability)

    return work


def look(path: Path) -> tuple[list[bytes], int | None]:
    """What is there, and the last number that is remembered."""
    found = contents(path)
    with penstock.open(path, busy_s=2) as queue:
        last = {each.publisher: each.last for each in queue.publishers()}
    return found, last.get(NAME)


SMALL = [b"one", b"s" * 2000, b"three", b"four"]  # of which no body is a file

OPERATIONS: dict[str, tuple[Callable, int, list[bytes], str, int]] = {
    "the first batch": (lambda path: None, 0, THREE, "commit", 1),
    "the next batch": (with_batches, 5, THREE, "commit", 1),
    "one message": (with_batches, 5, [b"one"], "commit", 1),
    "relaxed": (with_batches, 5, THREE, "relaxed", 1),
    "no message": (with_batches, 5, [], "commit", 1),
    "many messages": (with_batches, 5, MANY, "commit", MANY_STRIDE),
    "columns": (with_batches, 5, SMALL, "commit", 1),
    "columns, relaxed": (with_batches, 5, SMALL, "relaxed", 1),
    "columns with a body of its own": (with_batches, 5, THREE, "relaxed", STRIDE),
    "many columns": (with_batches, 5, MANY, "commit", MANY_STRIDE),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_every_store_and_effect(name: str, saved: Snapshot) -> None:
    prepare, number, bodies, durability, stride = OPERATIONS[name]
    operate = (put_columns if "columns" in name else put)(number, bodies, durability)

    def prepared() -> Path:
        prepare(saved.path)
        return saved.path

    saved.put_back()
    assert in_child(prepared) == 0  # type: ignore[arg-type]
    before = look(saved.path)
    after = (before[0] + bodies, number)
    seen = set()
    for turn, step in enumerate(some_of(max(stride, KILLED_AT_EVERY))):
        saved.put_back()
        died = killed_at(step, operate, prepared)
        found = look(saved.path)
        assert found == after or (died and (found == before or found == (before[0], None))), step
        seen.add(found == after)
        if turn % 3 == 0:
            with penstock.open(saved.path, busy_s=2) as queue:
                ids = queue.put_once(NAME, number, bodies, durability=durability)
                assert (ids is None) == (found == after)
                assert queue.put_once(NAME, number, bodies) is None
            assert look(saved.path) == after, step
        if not died:
            assert step > 10 and seen == {True, False}
            return
    raise AssertionError("the operation has no end")


def test_the_next_attempt_may_be_killed_at_every_step_too(saved: Snapshot) -> None:
    operate = put(5, THREE)
    after = ([*HERE, b"before", *THREE], 5)
    attempts = 0
    for step in range(5, STEPS_MAX, 41):
        saved.put_back()
        with_batches(saved.path)
        if not killed_at(step, operate, lambda: saved.path):
            break
        left = Snapshot(saved.path)
        for next_step in range(1, STEPS_MAX, STRIDE * 3):
            left.put_back()
            died = killed_at(next_step, operate, lambda: saved.path)
            assert in_child(lambda: operate(saved.path)) == 0
            assert look(saved.path) == after, (step, next_step)
            attempts += 1
            if not died:
                break
    assert attempts > 50


def test_forgetting_may_be_killed_at_every_step(saved: Snapshot) -> None:
    def operate(path: Path) -> None:
        penstock.open(path, busy_s=2).forget_publisher(NAME)

    seen = set()
    for step in range(1, STEPS_MAX):
        saved.put_back()
        with_batches(saved.path)
        died = killed_at(step, operate, lambda: saved.path)
        assert check_queue(saved.path) == []
        with penstock.open(saved.path, busy_s=2) as queue:
            known = [each.last for each in queue.publishers()]
            assert known in ([4], []) and (died or known == [])
            seen.add(bool(known))
            ids = queue.put_once(NAME, 4, [b"again"])
            assert (ids is None) == (known == [4])
            assert queue.forget_publisher(NAME) and queue.publishers() == []
        if not died:
            assert seen == {True, False}
            return
