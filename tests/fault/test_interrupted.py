"""Signals, failing calls, threads and forks at the worst moment: nothing is held, leaked or doubled."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import layout as L
from penstock.store.rig import kill_at
from penstock.timequeue import check_queue, repair_queue
from penstock.timequeue.puts import plain
from tests.conftest import Queues
from tests.crash.rig import in_child
from tests.fault.processes import Child


def test_a_signal_handler_that_calls_the_queue_it_interrupted_is_refused(queue: Queues) -> None:
    """It would wait for ever for the turn that it interrupts, with the lock held: everybody would."""
    q = queue(busy_s=2)

    def handler() -> None:
        with pytest.raises(penstock.Misuse, match="signal handler"):
            q.put("x")

    q._mine().turn(handler)
    q.put("after")
    assert q.get(block=False).body == "after"


def _interrupted_again_and_again(q: penstock.TimeQueue) -> None:
    main = threading.get_ident()
    end = time.monotonic() + 1.5
    armed = False  # an interrupt disarms itself, so that none comes while the last one is handled
    interrupted = 0

    def interrupt() -> None:
        while time.monotonic() < end:
            time.sleep(0.002)
            signal.pthread_kill(main, signal.SIGUSR1)

    def handler(*_: object) -> None:
        nonlocal armed, interrupted
        if armed:
            armed = False
            interrupted += 1
            raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    while thread.is_alive():
        try:
            armed = True
            q.put_many([b"a", b"b"])
            q.ack_many(q.get_many(10))
            armed = False
        except (KeyboardInterrupt, penstock.QueueFull):
            armed = False
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert interrupted > 20
    q.close()  # gives back what was got when an interrupt came; it says so if puts were left half-done


def test_interrupts_at_any_moment_leave_the_lock_free_and_nothing_half_done(queue: Queues) -> None:
    q = queue(slots=64, busy_s=2)
    assert in_child(lambda: _interrupted_again_and_again(q)) == 0
    assert q.stats().filling == 0
    assert (q.stats().pending, len(q.stats().clients)) == (0, 1)
    q.purge()
    q.put(b"not wedged")
    assert q.get(block=False).data == b"not wedged"


def test_a_put_that_cannot_publish_gives_its_slots_back_later(queue: Queues) -> None:
    """Somebody takes the lock after the reserve and keeps it for longer than the put waits, twice."""
    q = queue(slots=4, busy_s=0.1)
    holder = queue.open(q)
    reserved = threading.Event()
    client, producer = q._mine(), q._producer
    items = [plain(b"a"), plain(b"b")]

    class Slow(list[Any]):
        """A batch whose copying gives the other its chance."""

        def __iter__(self) -> Any:
            if client.kernel.get(L.H_FILLING) == 2:
                reserved.set()
                time.sleep(0.05)
            return super().__iter__()

    def hold() -> None:
        reserved.wait(5)
        holder._mine().turn(time.sleep, 0.6)

    thread = threading.Thread(target=hold)
    thread.start()
    if penstock.compiled:  # the compiled core takes no other kind of list: reserve, and let the rest fail
        client.turn(producer._reserve, items)
        client.filling.clear()
        client.leftovers.append([(item.slot, item.number) for item in items])
        reserved.set()
        time.sleep(0.05)
        with pytest.raises(penstock.QueueBusy):
            client.turn(producer._publish, items, None)
    else:
        with pytest.raises(penstock.QueueBusy):
            producer.put(Slow(items), False, True)
    thread.join()
    q.put("z")
    assert (q.stats().filling, q.stats().waiting) == (0, 1)
    q.close()


def test_a_write_that_fails_gives_slots_and_room_back(queue: Queues) -> None:
    """A limit on the size of files stands for a disk that fails or is full: the tombstone cannot be written either."""
    q = queue(slots=4, data_bytes=64 << 10)
    q.put(b"first")  # so that the next record lies behind the limit
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for put in (lambda: q.put(b"fails"), lambda: q.put_many([b"fails", b"too"])):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            with pytest.raises(OSError):
                put()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    q.put(b"second")
    stats = q.stats()
    assert (stats.filling, stats.waiting, stats.vacant) == (0, 2, 2)
    assert [message.data for message in q.get_many(5)] == [b"first", b"second"]


def test_messages_that_could_not_be_copied_out_are_given_back(queue: Queues) -> None:
    q = queue(spill_bytes=10)
    q.put_many([b"a", b"b" * 100, b"c"])
    (body,) = (q.path / "bodies").iterdir()
    body.rename(q.path / "aside")
    body.symlink_to(body)
    with pytest.raises(OSError, match="symbolic links"):
        q.get_many(3)
    (q.path / "aside").rename(body)
    assert (q.stats().waiting, q.stats().pending) == (3, 0)
    assert [message.data for message in q.get_many(3)] == [b"a", b"b" * 100, b"c"]


@pytest.mark.damages
def test_a_damaged_message_is_not_in_everybody_s_way(queue: Queues) -> None:
    q = queue()
    q.put_many([b"bad one", b"good one"])
    data = bytearray((q.path / "data.0").read_bytes())
    data[data.index(b"bad one")] ^= 1
    with open(q.path / "data.0", "r+b") as file:
        file.write(data)
    with pytest.raises(penstock.Corrupt, match=r"data\.0: damaged at byte 0"):
        q.get_many(2)
    assert [message.data for message in q.get_many(2)] == [b"good one"]


def test_two_threads_that_use_an_inherited_queue_first_make_one_client(queue: Queues) -> None:
    q = queue()
    q.put("x")

    def child() -> None:
        threads = [threading.Thread(target=q.stats) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(q.stats().clients) == 2

    assert in_child(child) == 0


def test_forks_while_other_threads_open_and_close_leave_no_client_behind(queue: Queues) -> None:
    q = queue(busy_s=5)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            penstock.open(q.path, busy_s=5).close()

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            assert in_child(lambda: q.put(b"x", timeout=0)) in (0, 3 << 8)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(q.stats().clients) == 1


def test_a_repair_keeps_a_batch_that_was_published_and_not_yet_merged(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    count = L.JOURNAL_ENTRIES // 3
    penstock.create(path, slots=2 * count, data_bytes=4 << 20, durability="relaxed").close()

    def die() -> None:
        queue = penstock.open(path)
        client, producer = queue._mine(), queue._producer
        put = [b"%d" % i for i in range(count)]
        items = [plain(body) for body in put]
        producer._copy(items, client.turn(producer._reserve, items), False, True)
        kill_at(3000)
        client.turn(producer._publish, items, None)

    assert os.WIFSIGNALED(in_child(die))
    assert check_queue(path) == []
    with open(path / "kernel", "r+b") as file:
        file.seek(L.H_USED_UNITS * L.WORD_BYTES)
        file.write(b"\xff")
    assert repair_queue(path)
    with penstock.open(path) as queue:
        assert [message.data for message in queue.get_many(2 * count)] == [b"%d" % i for i in range(count)]


def test_an_interrupt_is_heard_while_other_threads_wait_for_a_stopped_holder(
    queue: Queues, start: Callable[..., Child]
) -> None:
    q = queue(busy_s=2)
    holder = start(lambda say: q._mine().turn(os.kill, os.getpid(), signal.SIGSTOP))
    holder.until_stopped()

    def wait() -> None:
        with contextlib.suppress(penstock.QueueBusy):
            q.stats()

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    started_s = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            q.stats()
        assert time.monotonic() - started_s < 2
    finally:
        signal.signal(signal.SIGALRM, before)
        holder.go_on()
        for thread in threads:
            thread.join()
