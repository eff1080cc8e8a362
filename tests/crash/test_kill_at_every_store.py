"""Kill -9 at every store of every operation (issue of S6, T10): nothing confirmed is lost, nothing is invented, nobody
is wedged, and order, lists and counts are right, whoever opens the queue next."""

import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.timequeue.producer import Offered
from penstock.timequeue.puts import entry
from tests.columns import columns
from tests.crash.rig import CHECKED_AGAIN, contents, every_step, in_child, killed_at
from tests.pipes import Pipe
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import EACH, KILLED_AT_EVERY, some_of

FAR = 4_000_000_000.0  # epoch seconds, long after any run


def fill(path: Path) -> None:
    """Ready messages of three priorities, some scheduled for much later, and gaps in the ring."""
    with penstock.create(path, slots=60, data_bytes=64 << 10, spill_bytes=3000, durability="relaxed") as queue:
        for i in range(24):
            queue.put(b"ready %02d" % i, priority=i % 3)
        for i in range(12):
            queue.put(b"later %02d" % i, deliver_at=FAR + (i * 7) % 12)
        with queue.get() as message:
            assert message.data == b"ready 02"
        gone = [message.id for message in queue.browse() if message.data in (b"ready 09", b"ready 16", b"later 05")]
        for message_id in gone:
            assert queue.cancel(message_id)


@pytest.fixture(scope="module")
def saved() -> Iterator[Snapshot]:
    """In memory where possible: the queue is opened and synced thousands of times, and no power is cut here."""
    with tempfile.TemporaryDirectory(prefix="penstock-kill-", dir=FAST) as folder:
        path = Path(folder) / "queue"
        fill(path)
        yield Snapshot(path)


def opened(path: Path) -> penstock.TimeQueue:
    return penstock.open(path, busy_s=2)


def taken(count: int) -> Callable[[Path], tuple[penstock.TimeQueue, list[penstock.Message]]]:
    def prepare(path: Path) -> tuple[penstock.TimeQueue, list[penstock.Message]]:
        queue = opened(path)
        return queue, queue.get_many(count)

    return prepare


def holds_expired(path: Path) -> penstock.TimeQueue:
    queue = opened(path)
    queue.get_many(3, lease=0.000001)
    return queue


def after_a_death(path: Path) -> penstock.TimeQueue:
    """A client died holding five messages, and another with a batch half put."""

    def die() -> None:
        other = opened(path)
        other.get_many(5)
        client = other._mine()
        items = [
            entry(b"half", 1, None, None, 0, None, None, None),
            entry(b"x" * 4000, 1, None, None, 0, None, None, None),
        ]
        client.turn(other._producer._reserve, items)
        other._producer._copy(items, 1, sync=False, batch=True)

    in_child(die)
    return opened(path)


def beside_an_offer(path: Path) -> penstock.TimeQueue:
    """A client died after it had offered its message to the leader of the next sync."""

    def offer() -> None:
        other = opened(path)
        client = other._mine()
        item = entry(b"offered", 1, None, None, 0, None, None, None)
        client.turn(other._producer._reserve, [item])
        other._producer._copy([item], 1, sync=False, batch=True)
        assert Offered(client, item).make(client.syncs.commits.ticket())

    in_child(offer)
    return opened(path)


def ids_of(queue: penstock.TimeQueue, *bodies: bytes) -> list[str]:
    return [message.id for message in queue.browse() if message.data in bodies]


BATCH = [
    penstock.Draft(body=b"batch a"),
    penstock.Draft(body=b"batch b", priority=2),
    penstock.Draft(body=b"batch c", deliver_at=FAR + 5),
    penstock.Draft(body=b"batch d" * 600),
    penstock.Draft(body=b"batch e", priority=15),
]

# Without the body that is a file: columns have none.
COLUMNS = [draft for draft in BATCH if len(draft.body) < 3000]
COLUMNS.append(penstock.Draft(body=b"batch f" * 90, type="t", key="k"))

# name, prepare, operation; what may differ from the state before is worked out from a run that is not killed
ATOMIC = {
    "put": (opened, lambda q: q.put(b"new")),
    "put with the highest priority": (opened, lambda q: q.put(b"new", priority=15)),
    "put between scheduled ones": (opened, lambda q: q.put(b"new", deliver_at=FAR + 6)),
    "put before all scheduled ones": (opened, lambda q: q.put(b"new", deliver_at=FAR - 1)),
    "put with commit": (opened, lambda q: q.put(b"new", durability="commit")),
    "put with commit beside an offer": (beside_an_offer, lambda q: q.put(b"new", durability="commit")),
    "put of a body of its own": (opened, lambda q: q.put(b"n" * 5000)),
    "put_file": (opened, lambda q: q.put_file(io.BytesIO(b"n" * 5000), priority=1)),
    "put_file of a pipe": (opened, lambda q: q.put_file(Pipe(b"n" * 7000), deliver_at=FAR + 6)),
    "put_file of a pipe with commit": (opened, lambda q: q.put_file(Pipe(b"n" * 7000), durability="commit")),
    "put_many": (opened, lambda q: q.put_many(BATCH)),
    "put of columns": (opened, lambda q: q.put_entries(columns(COLUMNS))),
    "put of columns with commit": (opened, lambda q: q.put_entries(columns(COLUMNS), None, "commit")),
    "get": (opened, lambda q: q.get()),
    "get_many": (opened, lambda q: q.get_many(4)),
    "ack": (taken(1), lambda p: p[1][0].ack()),
    "ack of one among many": (taken(9), lambda p: p[1][4].ack()),
    "release": (taken(3), lambda p: p[1][1].release()),
    "release for later": (taken(3), lambda p: p[1][1].release(delay=1e9)),
    "extend": (taken(4), lambda p: p[1][0].extend(1000)),
    "unget": (taken(3), lambda p: p[0].unget(p[1][1:2])),
    "cancel of a ready one": (opened, lambda q: q.cancel(ids_of(q, b"ready 10")[0])),
    "cancel of a scheduled one": (opened, lambda q: q.cancel(ids_of(q, b"later 07")[0])),
    "return of expired leases": (holds_expired, lambda q: q.get_many(1)),
    "reap of a dead client": (after_a_death, lambda q: q.get_many(1)),
    "open": (lambda path: path, lambda path: penstock.open(path, busy_s=2)),
    "close with messages": (taken(3), lambda p: p[0].close()),
}

BASIC = {"put", "put with commit", "put between scheduled ones", "get", "ack", "release"}


def few(path: Path) -> penstock.TimeQueue:
    """Five messages only, one of them with a body of its own, so that every store can be tried."""
    queue = opened(path)
    queue.put(b"n" * 5000, priority=1)
    queue.ack_many(queue.get_many(12))
    waiting = list(queue.browse())
    for message in waiting[5:]:
        queue.cancel(message.id)
    assert b"n" * 5000 in [message.data for message in waiting[:5]]
    return queue


# Work on many messages may stop after some of them; each is still either done or not done.
PARTIAL = {
    "ack_many": (taken(4), lambda p: p[0].ack_many(p[1])),
    "purge": (few, lambda q: q.purge()),
}

# Killing the repairer too squares the number of runs: every so-many-th store of the operation, all of the repair.
REPAIRED = {
    "put": (ATOMIC["put"], 17),
    "put_many": (ATOMIC["put_many"], 149),
    "put of columns": (ATOMIC["put of columns"], 149),
    "ack of one of two": ((taken(2), lambda p: p[1][1].ack()), 58),
    "reap of a dead client": (ATOMIC["reap of a dead client"], 61),
}


def outcome(saved: Snapshot, prepare: Callable, operate: Callable) -> tuple[list[bytes], list[bytes]]:
    """The contents before (the preparing process is gone) and after an undisturbed operation."""
    results = []
    for disturb in (False, True):
        saved.put_back()
        in_child(lambda: operate(prepare(saved.path)) if disturb else prepare(saved.path))  # noqa: B023
        results.append(contents(saved.path))
    return results[0], results[1]


@pytest.mark.parametrize("name", ATOMIC)
def test_killed_at_every_store_an_operation_is_done_or_not_done(name: str, saved: Snapshot) -> None:
    prepare, operate = ATOMIC[name]
    before, after = outcome(saved, prepare, operate)

    def judge(bodies: list[bytes], finished: bool) -> None:
        assert bodies == after or (bodies == before and not finished)

    stride = 1 if penstock.compiled and name in BASIC else EACH
    assert every_step(saved, prepare, operate, judge, stride=stride) > 5


@pytest.mark.parametrize("name", PARTIAL)
def test_killed_at_every_store_work_on_many_is_done_for_some_of_them(name: str, saved: Snapshot) -> None:
    prepare, operate = PARTIAL[name]
    before, after = outcome(saved, prepare, operate)

    def judge(bodies: list[bytes], finished: bool) -> None:
        assert set(after) <= set(bodies) <= set(before)
        assert len(set(bodies)) == len(bodies)
        assert bodies == [body for body in before if body in set(bodies)]
        assert bodies == after or not finished

    assert every_step(saved, prepare, operate, judge, stride=EACH) > 20


@pytest.mark.parametrize("name", REPAIRED)
def test_the_process_that_repairs_may_be_killed_at_every_store_too(name: str, saved: Snapshot) -> None:
    (prepare, operate), stride = REPAIRED[name]
    before, after = outcome(saved, prepare, operate)
    for step in some_of(stride, 2000):
        saved.put_back()
        if not killed_at(step, operate, lambda: prepare(saved.path)):
            return
        left = Snapshot(saved.path)
        for turn, repair_step in enumerate(some_of(KILLED_AT_EVERY, 2000)):
            left.put_back()
            died = killed_at(repair_step, lambda path: penstock.open(path, busy_s=2).get_many(1), lambda: saved.path)
            again = not died or turn % CHECKED_AGAIN == 0
            assert contents(left.path, check_again=again) in (before, after)
            if not died:
                break
        else:
            raise AssertionError("the repair has no end")
    raise AssertionError("the operation has no end")


LARGE = {
    "entries": lambda queue, bodies: queue.put_many(bodies),
    "columns": lambda queue, bodies: queue.put_entries(columns(bodies, piece=len(bodies) // 2)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_batch_larger_than_the_journal_is_all_or_nothing(name: str) -> None:
    """Its merge takes several transactions; killed between and inside them, the next client finishes it."""
    with tempfile.TemporaryDirectory(prefix="penstock-kill-", dir=FAST) as folder:
        kill_in_a_large_batch(Path(folder) / "queue", LARGE[name])


def kill_in_a_large_batch(path: Path, operate: Callable) -> None:
    count = L.JOURNAL_ENTRIES // 3
    penstock.create(path, slots=2 * count, data_bytes=4 << 20, durability="relaxed").close()
    saved = Snapshot(path)
    bodies = [b"%d" % i for i in range(count)]

    def put(path: Path) -> None:
        operate(penstock.open(path, busy_s=5), bodies)

    steps = 0
    for step in (*range(1, 400, 97), *range(20_000, 400_000, 7919)):
        saved.put_back()
        died = killed_at(step, put, lambda: path)
        assert contents(path) in ([], bodies)
        steps += 1
        if not died:
            break
    assert contents(path) == bodies
    assert steps > 8
