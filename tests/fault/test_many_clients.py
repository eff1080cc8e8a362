"""Threads, processes and forks on one queue: each is a client of its own, and nobody is in charge."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import LeaseLost, QueueEmpty, QueueExists
from tests.conftest import SMALL, Queues
from tests.fault.processes import Child

Start = Callable[..., Child]

MESSAGES = 150


def _produce(queue: penstock.TimeQueue, name: str) -> None:
    for n in range(MESSAGES):
        queue.put([name, n], timeout=20)


def _consume(queue: penstock.TimeQueue, until: int, done: Any) -> list[tuple[str, int]]:
    found = []
    while done() < until:
        for message in queue.get_many(3, wait=0.2):
            found.append(tuple(message.body))
            message.ack()
            done(1)
    return found


def _assert_each_once_and_in_order(found: list[list[tuple[str, int]]], names: list[str]) -> None:
    counts = Counter(body for part in found for body in part)
    assert counts == {(name, n): 1 for name in names for n in range(MESSAGES)}
    for part in found:  # one producer's messages reach any one receiver in the order in which they were put
        for name in names:
            numbers = [n for who, n in part if who == name]
            assert numbers == sorted(numbers)


def test_two_threads_share_one_queue_object(queue: Queues) -> None:
    q = queue(slots=20)
    count = [0]
    guard = threading.Lock()

    def done(more: int = 0) -> int:
        with guard:
            count[0] += more
            return count[0]

    found: list[list[tuple[str, int]]] = []
    names = ["a", "b"]
    threads = [threading.Thread(target=_produce, args=(q, name)) for name in names]
    threads += [threading.Thread(target=lambda: found.append(_consume(q, MESSAGES * 2, done))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    _assert_each_once_and_in_order(found, names)
    assert q.stats().vacant == 20


def test_processes_share_a_queue(queue: Queues, start: Start) -> None:
    q = queue(slots=20)

    def produce(say: Any, name: str) -> None:
        with penstock.open(q.path) as mine:
            _produce(mine, name)

    def consume(say: Any) -> None:
        with penstock.open(q.path) as mine:
            found = []
            while (message := mine.get(timeout=20)).body != "end":
                found.append(tuple(message.body))
                message.ack()
            message.ack()
            say(found)

    names = ["a", "b"]
    receivers = [start(consume) for _ in range(2)]
    senders = [start(produce, name) for name in names]
    assert [sender.join() for sender in senders] == [0, 0]
    q.put_many(["end"] * len(receivers), timeout=20)
    _assert_each_once_and_in_order([receiver.hear() for receiver in receivers], names)


def test_a_forked_child_is_a_client_of_its_own(queue: Queues, start: Start) -> None:
    q = queue()
    q.put_many(["parent's", "child's"])
    held = q.get(block=False)

    def child(say: Any) -> None:
        try:
            held.ack()
        except LeaseLost:
            say("lost")
        message = q.get(block=False)
        say((message.body, message.owner, len(q.stats().clients)))
        message.ack()
        q.put("from the child")

    other = start(child)
    assert other.hear() == "lost"
    body, owner, clients = other.hear()
    assert (body, clients) == ("child's", 2) and owner != held.owner
    assert other.join() == 0
    # The child's end took neither its parent's place in the client table nor its message.
    assert len(q.stats().clients) == 1
    held.ack()
    assert q.get(block=False).body == "from the child"


def test_a_child_that_never_touches_the_queue_takes_nothing_with_it(queue: Queues, start: Start) -> None:
    q = queue()
    peer = queue.open(q)
    q.put(b"x")
    held = q.get(block=False)
    assert start(lambda say: None).join() == 0
    with pytest.raises(QueueEmpty):
        peer.get(block=False)
    held.ack()
    q.put(b"y")


def test_a_child_that_closes_its_inherited_queue_takes_nothing_with_it(queue: Queues, start: Start) -> None:
    q = queue()
    peer = queue.open(q)
    q.put(b"x")
    held = q.get(block=False)
    assert start(lambda say: q.close()).join() == 0
    with pytest.raises(QueueEmpty):
        peer.get(block=False)
    held.ack()


def test_a_child_keeps_working_when_its_parent_closes(queue: Queues, start: Start) -> None:
    q = queue()
    go_read, go_write = os.pipe()

    def child(say: Any) -> None:
        q.put("one")
        say("ready")
        os.read(go_read, 1)
        q.put("two")
        say(len(q.stats().clients))

    other = start(child)
    other.hear()
    reader = queue.open(q)
    q.close()
    os.write(go_write, b"x")
    assert other.hear() == 2
    assert [message.body for message in reader.get_many(5)] == ["one", "two"]


def test_a_fork_while_threads_are_at_work_harms_nobody(queue: Queues, start: Start) -> None:
    q = queue(slots=500, data_bytes=1 << 20)
    end = threading.Event()

    def work() -> None:
        while not end.is_set():
            q.put(b"x" * 300)
            with q.get(timeout=5):
                pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            other = start(lambda say: say((q.put("child", priority=15) is not None, len(q.stats().clients))))
            assert other.hear()[0]
            assert other.join() == 0
    finally:
        end.set()
        for thread in threads:
            thread.join(10)
    assert q.stats().filling == 0


def test_ten_opens_at_once_all_succeed(queue: Queues, start: Start) -> None:
    q = queue()
    q.put_many(range(10))

    def child(say: Any, at_s: float) -> None:
        time.sleep(max(at_s - time.time(), 0))
        with penstock.open(q.path) as mine, mine.get(timeout=5) as message:
            say((message.body, message.owner))
            time.sleep(max(at_s + 0.5 - time.time(), 0))  # so that all are there together

    at_s = time.time() + 0.2
    found = [child.hear() for child in [start(child, at_s) for _ in range(10)]]
    assert sorted(body for body, _ in found) == list(range(10))
    assert len({owner for _, owner in found}) == 10


def test_one_creator_wins_and_the_others_are_told(path: Path, start: Start) -> None:
    def child(say: Any, at_s: float) -> None:
        time.sleep(max(at_s - time.time(), 0))
        try:
            with penstock.create(path, **SMALL) as mine:
                mine.put(os.getpid())
            say("made")
        except QueueExists:
            say("exists")

    at_s = time.time() + 0.2
    children = [start(child, at_s) for _ in range(6)]
    answers = [child.hear() for child in children]
    assert sorted(answers) == ["exists"] * 5 + ["made"]
    with penstock.open(path) as q:
        assert q.get(block=False).body == children[answers.index("made")].pid
    assert [entry.name for entry in path.parent.iterdir()] == ["queue"]  # nothing half-made is left aside


def test_the_client_table_is_full_only_of_living_clients(queue: Queues) -> None:
    q = queue()
    for _ in range(30):  # dead and closed ones leave their entries to the next
        queue.die(queue.open(q))
        queue.open(q).close()
    assert len(q.stats().clients) == 1
    assert queue.open(q)._client.index == 1


def test_other_threads_run_while_one_waits_for_the_lock(queue: Queues) -> None:
    """Whoever waits for the lock does not keep the interpreter to itself."""
    q = queue(busy_s=0.5)
    holder = queue.open(q)
    held = threading.Event()
    done = threading.Event()

    def hold() -> None:
        holder._mine().turn(lambda: (held.set(), done.wait(5)))

    def wait() -> None:
        with pytest.raises(penstock.QueueBusy):
            q.put("x")
        done.set()

    threads = [threading.Thread(target=hold), threading.Thread(target=wait)]
    threads[0].start()
    held.wait(5)
    threads[1].start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert turns > 50


def _work_some(say: Any, path: Path, rounds: int) -> None:
    with penstock.open(path) as q:
        for n in range(rounds):
            q.put(b"x", delay=0 if n % 2 else 0.0001)
            q.get(timeout=20).ack()
    say("done")


def test_what_processes_count_adds_up(queue: Queues, start: Start) -> None:
    q = queue()
    children = [start(_work_some, q.path, MESSAGES) for _ in range(3)]
    for child in children:
        assert child.hear() == "done"
    stats = q.stats()
    assert stats.puts == stats.gets == stats.acks == 3 * MESSAGES
    for span in (stats.waiting_time, stats.lateness, stats.service_time):
        assert span.count == sum(count for _, count in span.buckets) == 3 * MESSAGES
        assert span.mean_s is not None and span.max_s is not None and 0 <= span.mean_s <= span.max_s < 60
    assert stats.lateness.mean_s < stats.waiting_time.mean_s  # type: ignore[operator]
    assert stats.rates["puts"]["15m"] == pytest.approx(3 * MESSAGES / 900, rel=0.1)
    assert (stats.producers, stats.consumers) == (0, 0), "they have gone"
