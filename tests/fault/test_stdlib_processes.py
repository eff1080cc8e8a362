"""``penstock.stdlib`` between processes that come, go and are killed."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import stdlib
from tests.fault.processes import PATIENCE_S, Child
from tests.fault.stdlib_workers import double

SMALL: dict[str, Any] = {"slots": 256, "data_bytes": 256 << 10}
PROMPT_S = 0.6  # a sleeper that nobody wakes looks by itself after a second

Say = Callable[[Any], None]
Start = Callable[..., Child]


@pytest.fixture
def q(path: Path) -> Iterator[stdlib.Queue[Any]]:
    with stdlib.Queue[Any](path, **SMALL) as q:
        yield q


# ---------------------------------------------------------------- sharing


def _work_off(say: Say, path: Path, count: int) -> None:
    with stdlib.Queue[Any](path) as q:
        for _ in range(count):
            say(q.get())
            q.task_done()


def test_processes_share_items_and_the_count_of_tasks(q: stdlib.Queue[Any], path: Path, start: Start) -> None:
    workers = [start(_work_off, path, 20), start(_work_off, path, 20)]
    for n in range(40):
        q.put((n, "item"))
    q.join()
    assert (q.qsize(), q.unfinished_tasks) == (0, 0)
    got = [worker.hear() for worker in workers for _ in range(20)]
    assert sorted(got) == [(n, "item") for n in range(40)]
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()


def _put(say: Say, path: Path, maxsize: int, item: Any) -> None:
    with stdlib.Queue[Any](path, maxsize) as q:
        say("ready")
        try:
            q.put(item)
        except stdlib.ShutDown:
            say("shut down")
            return
        say(time.monotonic())


def test_a_put_that_waits_is_woken_by_a_get_of_another_process(q: stdlib.Queue[Any], path: Path, start: Start) -> None:
    q.put("a")
    producer = start(_put, path, 1, "b")
    assert producer.hear() == "ready"
    time.sleep(0.1)
    assert q.qsize() == 1
    at = time.monotonic()
    assert q.get() == "a"
    assert producer.hear() - at < PROMPT_S
    assert q.get() == "b"


def _fill(say: Say, path: Path, maxsize: int, go_at: float) -> None:
    with stdlib.Queue[Any](path, maxsize) as q:
        say("ready")
        time.sleep(max(go_at - time.monotonic(), 0))
        done = 0
        try:
            while True:
                q.put_nowait(done)
                done += 1
        except queue.Full:
            say(done)


def test_maxsize_holds_for_puts_of_all_processes_together(q: stdlib.Queue[Any], path: Path, start: Start) -> None:
    go_at = time.monotonic() + 0.3
    producers = [start(_fill, path, 50, go_at) for _ in range(3)]
    assert [producer.hear() for producer in producers] == ["ready"] * 3
    assert sum(producer.hear() for producer in producers) == 50 == q.qsize()


def _get(say: Say, path: Path) -> None:
    with stdlib.Queue[Any](path) as q:
        say("ready")
        try:
            say(q.get())
        except stdlib.ShutDown:
            say(time.monotonic())
        say(q.is_shutdown)


@pytest.mark.parametrize("immediate", [False, True])
def test_a_shutdown_reaches_those_that_wait_in_other_processes(
    q: stdlib.Queue[Any], path: Path, start: Start, immediate: bool
) -> None:
    getter = start(_get, path)
    assert getter.hear() == "ready"
    time.sleep(0.1)
    at = time.monotonic()
    q.shutdown(immediate)
    assert getter.hear() - at < PROMPT_S
    assert getter.hear() is True


def test_a_shutdown_reaches_a_put_that_waits_in_another_process(q: stdlib.Queue[Any], path: Path, start: Start) -> None:
    q.put("a")
    producer = start(_put, path, 1, "b")
    assert producer.hear() == "ready"
    time.sleep(0.1)
    q.shutdown(immediate=True)
    assert producer.hear(PROMPT_S) == "shut down"
    assert q.unfinished_tasks == 0


def _shut_down_and_wait(say: Say, path: Path) -> None:
    q = stdlib.Queue[Any](path)
    q.shutdown()
    say("shut down")
    signal.pause()


def test_a_shutdown_outlives_the_killed_process_that_asked_for_it_and_ends_with_the_session(
    path: Path, start: Start
) -> None:
    q = stdlib.Queue[Any](path, **SMALL)
    q.put("a")
    child = start(_shut_down_and_wait, path)
    assert child.hear() == "shut down"
    child.kill()
    assert q.is_shutdown
    with pytest.raises(stdlib.ShutDown):
        q.put("b")
    q.close()
    with stdlib.Queue[Any](path) as again:
        assert not again.is_shutdown
        again.put("b")
        assert [again.get(), again.get()] == ["a", "b"]


# ---------------------------------------------------------------- kill -9


def _get_and_wait(say: Say, path: Path, done: int, more: int) -> None:
    q = stdlib.Queue[Any](path)
    for _ in range(done):
        q.get()
        q.task_done()
    say([q.get() for _ in range(more)])
    signal.pause()


def test_what_a_killed_consumer_had_in_hand_comes_back_and_the_count_is_right(
    q: stdlib.Queue[Any], path: Path, start: Start
) -> None:
    for n in range(6):
        q.put(n)
    consumer = start(_get_and_wait, path, 2, 2)
    assert consumer.hear() == [2, 3]
    assert (q.qsize(), q.unfinished_tasks) == (2, 4)
    join = threading.Thread(target=q.join, daemon=True)
    join.start()
    consumer.kill()
    assert q.unfinished_tasks == 4
    assert [q.get(timeout=PATIENCE_S) for _ in range(4)] == [2, 3, 4, 5]
    assert join.is_alive()
    for left in (3, 2, 1, 0):
        q.task_done()
        assert q.unfinished_tasks == left
    join.join(PATIENCE_S)
    assert not join.is_alive()


def test_one_that_waits_gets_what_a_killed_consumer_had_in_hand(q: stdlib.Queue[Any], path: Path, start: Start) -> None:
    q.put("a")
    consumer = start(_get_and_wait, path, 0, 1)
    assert consumer.hear() == ["a"]
    with pytest.raises(queue.Empty):
        q.get(timeout=0.05)
    other = start(_get, path)
    assert other.hear() == "ready"
    consumer.kill()
    assert other.hear() == "a"


def test_a_stopped_consumer_keeps_what_it_has_in_hand(q: stdlib.Queue[Any], path: Path, start: Start) -> None:
    q.put("a")
    consumer = start(_get_and_wait, path, 0, 1)
    assert consumer.hear() == ["a"]
    consumer.stop()
    with pytest.raises(queue.Empty):
        q.get(timeout=0.3)
    consumer.go_on()
    assert q.unfinished_tasks == 1


def _churn(say: Say, path: Path, name: int) -> None:
    """Put, get and mark done without end; what was put is said before, what is done after."""
    q = stdlib.Queue[Any](path, 20)
    n = 0
    while True:
        say(("puts", (name, n)))
        q.put((name, n))
        say(("put", (name, n)))
        n += 1
        item = q.get()
        say(("got", item))
        q.task_done()
        say(("done", item))


def test_processes_killed_at_random_lose_nothing_and_the_count_is_right(
    q: stdlib.Queue[Any], path: Path, start: Start
) -> None:
    """An item that was put is got in the end, unless its ``task_done`` may have come through."""
    begun, put, finishing, done = set(), set(), set(), set()
    for name in range(4):
        child = start(_churn, path, name)
        deadline = time.monotonic() + 0.15
        heard = []
        while time.monotonic() < deadline:
            heard.append(child.hear())
        child.send_signal(signal.SIGKILL)
        try:
            while True:
                heard.append(child.hear())
        except EOFError:
            pass
        for what, item in heard:
            {"puts": begun, "put": put, "got": finishing, "done": done}[what].add(item)
    assert len(put) > 4
    left = []
    while q.unfinished_tasks:
        left.append(q.get(timeout=PATIENCE_S))
        q.task_done()
    q.join()
    assert put - finishing <= set(left) <= begun - done
    assert len(left) == len(set(left))


# ---------------------------------------------------------------- how children are started


def test_a_forked_child_has_nothing_in_hand_and_shares_the_queue(q: stdlib.Queue[Any], start: Start) -> None:
    q.put("parent's")
    q.put("child's")
    assert q.get() == "parent's"

    def work(say: Say) -> None:
        try:
            q.task_done()
        except ValueError as error:
            say(str(error))
        say(q.get())
        q.task_done()
        q.shutdown()

    child = start(work)
    assert child.hear() == "task_done() called too many times"
    assert child.hear() == "child's"
    assert child.join() == 0
    assert q.is_shutdown
    assert q.unfinished_tasks == 1
    q.task_done()
    q.join()


def test_a_forked_child_keeps_the_session_of_its_parent(path: Path, start: Start) -> None:
    q = stdlib.Queue[Any](path, **SMALL)
    reader, writer = os.pipe()

    def work(say: Say) -> None:
        os.read(reader, 1)
        say(q.is_shutdown)

    child = start(work)
    q.shutdown()
    q.close()
    os.write(writer, b"!")
    assert child.hear() is True
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_joinable_queue_is_given_to_child_processes(path: Path, method: str) -> None:
    context = multiprocessing.get_context(method)
    tasks = stdlib.JoinableQueue[Any](path, 10, **SMALL)
    results = stdlib.JoinableQueue[Any](path.with_name("results"), **SMALL)
    workers = [context.Process(target=double, args=(tasks, results), daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for n in range(30):
            tasks.put(n, timeout=PATIENCE_S)
        tasks.join()
        assert sorted(results.get(timeout=1) for _ in range(30)) == [(n, 2 * n) for n in range(30)]
        tasks.shutdown()
        for worker in workers:
            worker.join(PATIENCE_S)
        assert [worker.exitcode for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
        stdlib.Queue.close(tasks)
        stdlib.Queue.close(results)
