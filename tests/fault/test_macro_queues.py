"""Macro queues among real processes: woken by any of many members, some of which come, go and fail; and kills."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import MacroQueue, QueueBusy, QueueFull, QueueManager
from penstock.store.watching import Watches
from tests.fault.processes import Child, hold_and_fork
from tests.thoroughness import IN_FULL

Start = Callable[..., Child]
PROMPT_S = 0.9  # who is not woken looks after a second
SMALL: dict[str, Any] = {"depth": 4, "data_bytes": 8 << 10, "durability": "relaxed"}


def make(root: Path, count: int, **options: Any) -> list[str]:
    names = [f"m{n:03}" for n in range(count)]
    with QueueManager(root) as manager:
        for name in names:
            manager.create(name, **SMALL)
        manager.create_macro("all", names, **options)
    return names


def receive(say: Any, root: Path, count: int) -> None:
    """Say each message, and how late it came: they are times."""
    with MacroQueue(root / "all") as q:
        assert q.get_many(1) == []
        say("ready")
        for _ in range(count):
            with q.get(timeout=30) as message:
                say(time.monotonic() - message.body)


def put(root: Path, name: str, **options: Any) -> None:
    with QueueManager(root) as manager, manager.open(name) as member:
        member.put(time.monotonic() + options.get("delay", 0), **options)


@pytest.mark.parametrize("count", [1, 10, 100 if IN_FULL else 30])
def test_a_blocked_consumer_is_woken_by_any_of_many_members(tmp_path: Path, start: Start, count: int) -> None:
    names = make(tmp_path, count)
    chosen = [names[0], names[-1], names[count // 2], names[0]]
    child = start(receive, tmp_path, len(chosen) + 1)
    child.hear()
    for name in chosen:
        time.sleep(0.3)  # so that it sleeps; if it does not yet, the test is weaker and still right
        put(tmp_path, name)
        assert child.hear() < PROMPT_S
    put(tmp_path, names[-1], delay=0.2)
    assert 0 <= child.hear() < PROMPT_S


def test_waiting_for_many_members_costs_no_measurable_processor_time(tmp_path: Path, start: Start) -> None:
    make(tmp_path, 30)

    def wait(say: Any) -> None:
        with MacroQueue(tmp_path / "all") as q:
            assert q.get_many(1, wait=0.1) == []
            before = resource.getrusage(resource.RUSAGE_SELF)
            assert q.get_many(1, wait=3) == []
            after = resource.getrusage(resource.RUSAGE_SELF)
            say(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert start(wait).hear() < 0.02 * 3


def test_members_come_and_go_under_those_who_wait(tmp_path: Path, start: Start) -> None:
    make(tmp_path, 2)
    with QueueManager(tmp_path) as manager:
        manager.create("new", **SMALL)
        consumer = start(receive, tmp_path, 2)
        consumer.hear()
        time.sleep(0.3)
        manager.add_member("all", "new")
        put(tmp_path, "new")
        assert consumer.hear() < PROMPT_S
        time.sleep(0.2)
        manager.remove_member("all", "m000")
        time.sleep(0.2)
        put(tmp_path, "m000")  # not a member's any more
        put(tmp_path, "m001")
        assert consumer.hear() < PROMPT_S
        consumer.join()
        with manager.open("m000") as m000, manager.open("m001") as m001:
            assert (m000.qsize(), m001.qsize()) == (1, 0)


def test_a_blocked_producer_goes_on_when_any_member_has_room_or_comes(tmp_path: Path, start: Start) -> None:
    names = make(tmp_path, 3)

    def fill(say: Any) -> None:
        with MacroQueue(tmp_path / "all") as q:
            with pytest.raises(QueueFull):
                q.put("x")
            for _ in range(2):
                say("waiting")
                q.put("x", timeout=30)
                say(time.monotonic())

    with QueueManager(tmp_path) as manager:
        for name in names:
            with manager.open(name) as member:
                member.put_many(range(4))
        producer = start(fill)
        producer.hear()
        time.sleep(0.3)
        with manager.open(names[2]) as member:
            begun = time.monotonic()
            member.get().ack()
            assert producer.hear() - begun < PROMPT_S
        producer.hear()
        time.sleep(0.3)
        manager.create("new", **SMALL)
        begun = time.monotonic()
        manager.add_member("all", "new")
        assert producer.hear() - begun < PROMPT_S
        producer.join()


def test_what_a_killed_consumer_held_comes_back_through_the_macro_queue(tmp_path: Path, start: Start) -> None:
    names = make(tmp_path, 3)
    for name in names:
        put(tmp_path, name)

    def hold(say: Any) -> None:
        q = MacroQueue(tmp_path / "all")
        say(len(q.get_many(3)))
        time.sleep(60)

    holder = start(hold)
    assert holder.hear() == 3
    waiter = start(receive, tmp_path, 3)
    waiter.hear()
    time.sleep(0.2)
    os.kill(holder.pid, signal.SIGKILL)
    for _ in range(3):
        waiter.hear(timeout_s=10)


def test_a_member_that_fails_under_a_blocked_consumer_comes_back(tmp_path: Path, start: Start) -> None:
    names = make(tmp_path, 3)
    consumer = start(receive, tmp_path, 2)
    consumer.hear()
    time.sleep(0.2)
    (tmp_path / names[0]).rename(tmp_path / ".aside")
    time.sleep(1.2)
    put(tmp_path, names[1])
    assert consumer.hear() < PROMPT_S
    (tmp_path / ".aside").rename(tmp_path / names[0])
    put(tmp_path, names[0])
    consumer.hear(timeout_s=15)


def copy_in_step(say: Any, root: Path, name: str, barrier: Any) -> None:
    with MacroQueue(root / name, busy_s=2) as q:
        for n in range(40):
            barrier.wait(20)
            q.put(n, dedup_id=f"{n}", durability="commit")
    say("done")


def test_copies_of_the_same_dedup_ids_by_members_in_other_orders_do_not_wait_for_each_other(
    tmp_path: Path, start: Start
) -> None:
    with QueueManager(tmp_path) as manager:
        for name in "ab":
            manager.create(name, depth=100, data_bytes=64 << 10)
        for macro, members in (("one", ["a", "b"]), ("other", ["b", "a"])):
            manager.create_macro(macro, members, producing="copy-to-all")
        barrier = multiprocessing.get_context("fork").Barrier(2)
        children = [start(copy_in_step, tmp_path, macro, barrier) for macro in ("one", "other")]
        assert [child.hear(60) for child in children] == ["done", "done"]
        for name, macro in (("a", "one"), ("b", "other")):
            with manager.open(name) as member, manager.open(macro) as q:
                assert {message.body for message in member.browse()} >= set(range(40))
                assert q.put(40, dedup_id="40") == member.put(40, dedup_id="40")  # the id is that of its first member
                assert member.qsize() == 41


def copying(root: Path) -> contextlib.AbstractContextManager[Any]:
    q = MacroQueue(root / "all", busy_s=1)
    return q._copies_of(q._mine())._alone()


def managing(root: Path) -> contextlib.AbstractContextManager[Any]:
    return QueueManager(root, busy_s=1)._root.locked()


@pytest.mark.parametrize("lock", [copying, managing])
def test_a_child_has_no_part_in_a_lock_that_its_parent_held(
    tmp_path: Path, start: Start, lock: Callable[[Path], contextlib.AbstractContextManager[Any]]
) -> None:
    make(tmp_path, 2, producing="copy-to-all")
    holder = start(hold_and_fork, functools.partial(lock, tmp_path))
    child = holder.hear()
    try:
        with pytest.raises(QueueBusy), lock(tmp_path):
            pass
        holder.kill()
        with lock(tmp_path):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_without_inotify_it_looks_now_and_then(tmp_path: Path) -> None:
    watches = Watches()
    watches.close()
    watches.add(tmp_path)
    begun = time.monotonic()
    watches.wait(5)
    assert not watches.complete and watches.news() is None
    assert time.monotonic() - begun < 4
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_watches_say_which_file_was_changed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    watches = Watches()
    for file in files:
        file.touch()
        watches.add(file)
    assert watches.complete and watches.news() == set()
    os.utime(files[1])
    watches.wait(5)
    assert watches.news() == {files[1]}
    watches.remove(files[1])
    os.utime(files[1])
    assert watches.news() == set()
    watches.close()


def test_a_consumer_that_chooses_is_in_time_though_others_are_due(tmp_path: Path, start: Start) -> None:
    names = make(tmp_path, 2)

    def choose(say: Any) -> None:
        with MacroQueue(tmp_path / "all") as q:
            say("ready")
            with q.get(timeout=30, type="wanted") as message:
                say(time.monotonic() - message.body)

    put(tmp_path, names[0], type="other", delay=0.01)
    child = start(choose)
    child.hear()
    time.sleep(0.1)
    put(tmp_path, names[0], type="wanted", delay=0.3)
    assert 0 <= child.hear() < PROMPT_S


def test_a_member_whose_files_were_replaced_wakes_its_consumers(tmp_path: Path, start: Start) -> None:
    names = make(tmp_path, 2)

    def replaced(say: Any) -> None:
        with MacroQueue(tmp_path / "all") as q:
            assert q.get_many(1, wait=0.05) == []
            shutil.copytree(tmp_path / names[0], tmp_path / "aside")
            shutil.rmtree(tmp_path / names[0])
            os.rename(tmp_path / "aside", tmp_path / names[0])
            deadline = time.monotonic() + 20
            while q.stats().failed or not q._members.leaves[0].member.is_there():  # type: ignore[union-attr]
                assert time.monotonic() < deadline
                q.get_many(1, wait=0.05)
            assert q.get_many(1, wait=1.5) == []
            for _ in range(3):
                say("waiting")
                with q.get(timeout=30) as message:
                    say(time.monotonic() - message.body)

    child = start(replaced)
    late = []
    for _ in range(3):
        child.hear()
        time.sleep(0.2)
        put(tmp_path, names[0])
        late.append(child.hear())
    assert sorted(late)[1] < PROMPT_S / 3, late
