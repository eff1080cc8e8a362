"""Kill -9 at every step of ``penstock.stdlib``: an item is lost only where that was said, none is there twice, its
place of ``maxsize`` is free again, and no put, get or join of others waits for the dead."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import stdlib
from penstock.store import layout as L
from penstock.timequeue import check_queue
from tests.crash.rig import killed_at
from tests.fault.processes import Child
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, some_of

# What a call does in the kernel is killed at every store elsewhere (test_kill_at_every_store.py): some steps will do.
STRIDE = 1 if IN_FULL else 13
LONG_STRIDE = 3 * STRIDE  # of calls one after the other, and of those with three processes
MAXSIZE = 5
LARGE = b"n" * 5000  # a file of its own
ITEMS: list[Any] = ["first", ("a", "pickle"), LARGE]
NEW = "new"
JOINED_S = 20.0

Tasks = stdlib.Queue[Any]


def made(path: Path) -> Tasks:
    return stdlib.Queue(path, MAXSIZE, slots=24, data_bytes=32 << 10, busy_s=2)


@pytest.fixture(scope="module")
def saved() -> Iterator[Snapshot]:
    with tempfile.TemporaryDirectory(prefix="penstock-stdlib-", dir=FAST) as folder:
        path = Path(folder) / "queue"
        with made(path) as queue:
            for item in ITEMS:
                queue.put(item)
        yield Snapshot(path)


def opened(path: Path, maxsize: int = MAXSIZE, **options: Any) -> Tasks:
    return stdlib.Queue(path, maxsize, make=False, busy_s=2, **options)


def got(count: int, **options: Any) -> Callable[[Path], Tasks]:
    def prepare(path: Path) -> Tasks:
        queue = opened(path, **options)
        for _ in range(count):
            queue.get_nowait()
        return queue

    return prepare


def full(path: Path) -> Tasks:
    return opened(path, maxsize=len(ITEMS))


def durable(path: Path) -> Tasks:
    return opened(path, durability="commit")


def removing(path: Path) -> Tasks:
    return opened(path, done_by="get")


def finds_no_room(queue: Tasks) -> None:
    with contextlib.suppress(stdlib.Full):
        queue.put(NEW, timeout=0.001)


def finds_nothing(queue: Tasks) -> None:
    with contextlib.suppress(stdlib.Empty):
        queue.get(timeout=0.001)


def works_off(queue: Tasks) -> None:
    for _ in ITEMS:
        queue.get()
        queue.task_done()
    queue.join()


def does(queue: Tasks, times: int) -> None:
    for _ in range(times):
        queue.task_done()


# ---------------------------------------------------------------- what is left, as the next one finds it


def left_behind(path: Path) -> list[Any]:
    """All items, got and done by one that comes when all others are gone; its own join and puts come through."""
    assert not check_queue(path)
    with opened(path) as queue:
        assert not queue.is_shutdown
        found = take_all(queue)
        within(queue.join)
        fill_up(queue, MAXSIZE)
        assert queue._queue.stats().restores == 0
    assert not check_queue(path)
    return found


def take_all(queue: Tasks) -> list[Any]:
    count, found = queue.qsize(), []
    assert queue.unfinished_tasks == count, "somebody who is dead has some in hand"
    with contextlib.suppress(stdlib.Empty, stdlib.ShutDown):
        while True:
            found.append(queue.get_nowait())
    assert len(found) == count
    does(queue, count)
    assert queue.unfinished_tasks == 0
    return found


def settled(queue: Tasks) -> Tasks:
    """What the dead held is given back by whoever comes by."""
    client = queue._queue._mine()
    client.turn(client.return_from_dead)
    return queue


def fill_up(queue: Tasks, places: int) -> None:
    """There is room for exactly so many more."""
    for place in range(places):
        queue.put_nowait(place)
    with pytest.raises(stdlib.Full):
        queue.put_nowait("one too many")


def within(wait: Callable[[], object]) -> None:
    """It returns, and soon."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(JOINED_S)
    assert not thread.is_alive(), "it waits for the dead"


# prepare, operation, what may be left: of one that was killed, and of one that was not
Way = tuple[Callable[[Path], Tasks], Callable[[Tasks], object], list[list[Any]]]
REST = [ITEMS[i:] for i in range(len(ITEMS) + 1)]

OPERATIONS: dict[str, Way] = {
    "put": (opened, lambda q: q.put(NEW), [ITEMS, [*ITEMS, NEW]]),
    "put, durable": (durable, lambda q: q.put(NEW), [ITEMS, [*ITEMS, NEW]]),
    "put of a pickle": (opened, lambda q: q.put({1, 2}), [ITEMS, [*ITEMS, {1, 2}]]),
    "put of a large item": (opened, lambda q: q.put(2 * LARGE), [ITEMS, [*ITEMS, 2 * LARGE]]),
    "put that finds no room": (full, finds_no_room, [ITEMS]),
    "get": (opened, lambda q: q.get(), [ITEMS]),
    "get of a large item": (got(2), lambda q: q.get(), [ITEMS]),
    "get that removes": (removing, lambda q: q.get(), [ITEMS, ITEMS[1:]]),
    "get of a large item that removes": (got(2, done_by="get"), lambda q: q.get(), [ITEMS[2:], []]),
    "get that finds nothing": (got(3), finds_nothing, [ITEMS]),
    "task_done": (got(2), lambda q: q.task_done(), [ITEMS, ITEMS[1:]]),
    "task_done of all": (got(3), lambda q: does(q, 3), REST),
    "get, task_done, join": (opened, works_off, REST),
    "shutdown": (opened, lambda q: q.shutdown(), [ITEMS]),
    "shutdown with one in hand": (got(1), lambda q: q.shutdown(), [ITEMS]),
    "close with items in hand": (got(2), lambda q: q.close(), [ITEMS]),
    "open": (lambda path: path, lambda path: opened(path), [ITEMS]),  # type: ignore[dict-item, return-value, arg-type]
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_every_step_a_call_is_done_or_not_done(name: str, saved: Snapshot) -> None:
    prepare, operate, allowed = OPERATIONS[name]
    for step in some_of(LONG_STRIDE if allowed is REST else STRIDE):
        saved.put_back()
        died = killed_at(step, operate, lambda: prepare(saved.path))
        found = left_behind(saved.path)
        assert found in allowed if died else found == allowed[-1]
        if not died:
            return
    raise AssertionError("the call has no end")


def test_a_queue_whose_maker_was_killed_is_made_by_the_next_one() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-stdlib-", dir=FAST) as folder:
        for step in some_of(STRIDE):
            path = Path(folder) / f"queue {step}"
            died = killed_at(step, lambda path: made(path).put(NEW), lambda: path)  # noqa: B023
            with made(path) as queue:
                assert take_all(settled(queue)) in ([], [NEW])
                fill_up(queue, MAXSIZE)
            assert not check_queue(path)
            if not died:
                return
    raise AssertionError("it has no end")


# ---------------------------------------------------------------- beside one that has it open all the time


SHUTDOWNS: dict[str, tuple[Callable[[Path], Tasks], Callable[[Tasks], object], bool]] = {
    "all may be got": (opened, lambda q: q.shutdown(), False),
    "immediate": (opened, lambda q: q.shutdown(immediate=True), True),
    "immediate, with one in hand": (got(1), lambda q: q.shutdown(immediate=True), True),
}


@pytest.mark.parametrize("name", SHUTDOWNS)
def test_killed_at_every_step_a_shutdown_holds_for_the_others_or_was_none(name: str, saved: Snapshot) -> None:
    prepare, operate, immediate = SHUTDOWNS[name]
    in_hand = ITEMS[:1] if prepare is not opened else []
    for step in some_of(STRIDE):
        saved.put_back()
        with opened(saved.path) as survivor:
            died = killed_at(step, operate, lambda: prepare(saved.path))
            shut = survivor.is_shutdown
            assert shut or died
            found = take_all(settled(survivor))
            assert found == [item for item in ITEMS if item in found], "in another order, or twice"
            if not died:
                assert found == (in_hand if immediate else ITEMS)
            elif not shut or not immediate:
                assert found == ITEMS
            else:
                assert in_hand == found[: len(in_hand)], "what was in hand has not been removed"
            within(survivor.join)
            if shut:
                with pytest.raises(stdlib.ShutDown):
                    survivor.put(NEW, timeout=1)
                with pytest.raises(stdlib.ShutDown):
                    survivor.get(timeout=1)
            else:
                fill_up(survivor, MAXSIZE)
        assert not check_queue(saved.path)
        if not died:
            return
    raise AssertionError("the shutdown has no end")


# ---------------------------------------------------------------- beside those that wait


def waits(say: Callable[[object], None], path: Path) -> None:
    """One thread waits for a place, another one until all is done."""
    queue = full(path)
    threads = [threading.Thread(target=queue.put, args=(NEW,)), threading.Thread(target=queue.join)]
    for thread in threads:
        thread.start()
    sleepers = queue._queue._mine().kernel
    while sleepers.get(L.H_ROOM_SLEEPERS) < len(threads):
        time.sleep(0.0005)
    say("they sleep")
    for thread in threads:
        thread.join()
    say("all returned")


BESIDE: dict[str, tuple[Callable[[Path], Tasks], Callable[[Tasks], object]]] = {
    "get": (opened, lambda q: q.get()),
    "get that removes": (removing, lambda q: q.get()),
    "put": (opened, lambda q: q.put(NEW)),
    "get, task_done": (opened, lambda q: (q.get(), q.task_done())),
    "put that waits, too": (full, finds_no_room),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_put_and_a_join_that_wait_return_whoever_is_killed_beside_them(name: str, saved: Snapshot) -> None:
    prepare, operate = BESIDE[name]
    for step in some_of(LONG_STRIDE):
        saved.put_back()
        waiting = Child(waits, saved.path)
        try:
            assert waiting.hear() == "they sleep"
            died = killed_at(step, operate, lambda: prepare(saved.path))
            with opened(saved.path, 0) as queue:
                found = done_until(queue, waiting.has_spoken)
                assert waiting.hear() == "all returned"
                found += take_all(settled(queue))
            assert waiting.join() == 0
            assert sorted(map(repr, found)) in outcomes(name)
            assert not check_queue(saved.path)
        finally:
            waiting.end()
        if not died:
            return
    raise AssertionError("the call has no end")


def done_until(queue: Tasks, is_over: Callable[[], bool]) -> list[Any]:
    """Get and do what there is."""
    found = []
    deadline = time.monotonic() + JOINED_S
    while not is_over():
        assert time.monotonic() < deadline, "somebody waits for the dead"
        with contextlib.suppress(stdlib.Empty):
            found.append(queue.get(timeout=0.005))
            queue.task_done()
    return found


def outcomes(name: str) -> list[list[str]]:
    """What the others may get in all, in whichever order."""
    ways = {"get that removes": [ITEMS[1:]], "get, task_done": [ITEMS[1:]], "put": [[*ITEMS, NEW]]}
    return [sorted(map(repr, [*items, NEW])) for items in [ITEMS, *ways.get(name, [])]]


def waits_for_an_item(say: Callable[[object], None], path: Path) -> None:
    queue = opened(path)
    for _ in ITEMS:
        queue.get_nowait()
        queue.task_done()
    say("it is empty")
    item = queue.get()
    queue.task_done()
    say(item)


@pytest.mark.parametrize("name", ["put", "put, durable", "put of a large item"])
def test_a_get_that_waits_has_the_next_item_whoever_is_killed_beside_it(name: str, saved: Snapshot) -> None:
    prepare, operate, (_, (*_, new)) = OPERATIONS[name]
    for step in some_of(LONG_STRIDE):
        saved.put_back()
        waiting = Child(waits_for_an_item, saved.path)
        try:
            assert waiting.hear() == "it is empty"
            died = killed_at(step, operate, lambda: prepare(saved.path))
            with opened(saved.path) as queue:
                queue.put("later")
                found = [waiting.hear()]
                assert waiting.join() == 0
                found += take_all(settled(queue))
            assert found == [new, "later"] or (found == ["later"] and died)
            assert not check_queue(saved.path)
        finally:
            waiting.end()
        if not died:
            return
    raise AssertionError("the put has no end")
