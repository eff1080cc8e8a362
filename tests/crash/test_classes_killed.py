"""Kill -9 at every store of operations on types, keys and exclusive keys: done or not done, and the trees are whole."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from tests.crash.rig import contents, every_step, in_child, killed_at
from tests.crash.test_kill_at_every_store import opened, outcome
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import KILLED_AT_EVERY, some_of

FAR = 4_000_000_000.0  # epoch seconds, long after any run


def fill(path: Path, exclusive: bool) -> None:
    """Messages of two types and two keys, some of neither, some for much later; few enough to try every store."""
    with penstock.create(
        path, slots=40, data_bytes=64 << 10, spill_bytes=3000, durability="relaxed", exclusive_keys=exclusive
    ) as queue:
        for i in range(10):
            queue.put(b"ready %02d" % i, type=(None, "a", "b")[i % 3], key=(None, "x", "y")[i // 4], priority=i % 2)
        for i in range(5):
            queue.put(b"later %02d" % i, type="a", key=("x", "y")[i % 2], deliver_at=FAR + (i * 3) % 5)


@pytest.fixture(scope="module", params=[False, True], ids=["keys", "exclusive keys"])
def saved(request: pytest.FixtureRequest) -> Iterator[Snapshot]:
    with tempfile.TemporaryDirectory(prefix="penstock-kill-", dir=FAST) as folder:
        path = Path(folder) / "queue"
        fill(path, request.param)
        yield Snapshot(path)


def taken(**wanted: object) -> Callable[[Path], tuple[penstock.TimeQueue, list[penstock.Message]]]:
    def prepare(path: Path) -> tuple[penstock.TimeQueue, list[penstock.Message]]:
        queue = opened(path)
        return queue, queue.get_many(4, **wanted)  # type: ignore[arg-type]

    return prepare


def holds_expired(path: Path) -> penstock.TimeQueue:
    queue = opened(path)
    queue.get_many(2, lease=0.000001, key=["x", "y"])
    return queue


def after_a_death(path: Path) -> penstock.TimeQueue:
    in_child(lambda: opened(path).get_many(3, key=["x", "y"]))  # type: ignore[func-returns-value]
    return opened(path)


def first_of(queue: penstock.TimeQueue, key: str) -> str:
    return min((message.number, message.id) for message in queue.browse() if message.key == key)[1]


def last_of(queue: penstock.TimeQueue, key: str) -> str:
    return max((message.number, message.id) for message in queue.browse() if message.key == key)[1]


BATCH = [
    penstock.Draft(body=b"batch a", type="a", key="x"),
    penstock.Draft(body=b"batch b", key="new", priority=2),
    penstock.Draft(body=b"batch c", key="y", deliver_at=FAR - 5),
    penstock.Draft(body=b"batch d" * 600, type="b"),
]

ATOMIC = {
    "put with a type": (opened, lambda q: q.put(b"new", type="a")),
    "put with a key": (opened, lambda q: q.put(b"new", key="x", type="b")),
    "put with a new key": (opened, lambda q: q.put(b"new", key="z")),
    "put of a key for a time before its others": (opened, lambda q: q.put(b"new", key="y", deliver_at=FAR - 1)),
    "put with commit": (opened, lambda q: q.put(b"new", type="a", key="y", durability="commit")),
    "put_many": (opened, lambda q: q.put_many(BATCH)),
    "get by type": (opened, lambda q: q.get(type="a")),
    "get by key": (opened, lambda q: q.get(key="y")),
    "get by several": (opened, lambda q: q.get_many(3, type=["a", "b"], key=["x", "y"])),
    "get of a group": (opened, lambda q: q.get_many(3, group="largest")),
    "get of anything": (opened, lambda q: q.get_many(5)),
    "ack": (taken(key="x"), lambda p: p[1][0].ack()),
    "ack of one among many": (taken(), lambda p: p[1][2].ack()),
    "release": (taken(key=["x", "y"]), lambda p: p[1][0].release()),
    "release for later": (taken(key="y"), lambda p: p[1][0].release(delay=1e9)),
    "cancel of the first of a key": (opened, lambda q: q.cancel(first_of(q, "x"))),
    "cancel of the last of a key": (opened, lambda q: q.cancel(last_of(q, "y"))),
    "return of expired leases": (holds_expired, lambda q: q.get_many(1)),
    "reap of a dead client": (after_a_death, lambda q: q.get_many(1)),
    "close with messages": (taken(type="a"), lambda p: p[0].close()),
}


@pytest.mark.parametrize("name", ATOMIC)
def test_killed_at_every_store_an_operation_on_classes_is_done_or_not_done(name: str, saved: Snapshot) -> None:
    prepare, operate = ATOMIC[name]
    before, after = outcome(saved, prepare, operate)

    def judge(bodies: list[bytes], finished: bool) -> None:
        assert bodies == after or (bodies == before and not finished)

    assert every_step(saved, prepare, operate, judge, stride=KILLED_AT_EVERY) > 5


def test_killed_at_every_store_a_purge_is_done_for_some(saved: Snapshot) -> None:
    saved.put_back()
    before = set(contents(saved.path))

    def judge(bodies: list[bytes], finished: bool) -> None:
        assert set(bodies) <= before and (not bodies or not finished)

    assert every_step(saved, opened, lambda q: q.purge(), judge, stride=KILLED_AT_EVERY) > 100


def claim(path: Path) -> tuple[penstock.TimeQueue, object]:
    queue = opened(path)
    return queue, queue.receiver("r")


CLAIMS = {
    "claim": (claim, lambda p: p[1].claim(4)),
    "claim, then commit": (claim, lambda p: p[1].commit(p[1].claim(4).number)),
    "claim, then release": (claim, lambda p: p[1].release(p[1].claim(4).number)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_receiver_killed_at_every_store_leaves_whole_trees(name: str, saved: Snapshot) -> None:
    """What it has claimed, or has done with, is for ``test_claims_killed.py``; here the rest must still be found."""
    prepare, operate = CLAIMS[name]
    saved.put_back()
    everything = set(contents(saved.path))
    seen = []

    def judge(path: Path) -> None:
        assert not penstock.timequeue.check_queue(path)
        with opened(path) as queue:
            there = {message.data for message in queue.browse(state="all")}
            assert there <= everything
            counted = sum(group.waiting for group in queue.groups())
            assert counted == sum(message.key is not None for message in queue.browse())
            seen.append(len(there))

    for step in some_of(3 * KILLED_AT_EVERY):
        saved.put_back()
        died = killed_at(step, operate, lambda: prepare(saved.path))
        judge(saved.path)
        if not died:
            break
    assert len(seen) > 20 // KILLED_AT_EVERY
