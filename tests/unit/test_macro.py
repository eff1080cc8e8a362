"""A macro queue at work: what goes where, what comes first, members that come, go and fail."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Draft, LeaseLost, Misuse, QueueEmpty, QueueFull, QueueInactive, QueueManager
from penstock.store import layout as L
from tests.conftest import SimulatedClock

SMALL: dict[str, Any] = {"depth": 20, "data_bytes": 32 << 10, "durability": "relaxed"}


class Macros:
    """A root with queues a, b and c, and macro queues of them."""

    def __init__(self, root: Path, clock: SimulatedClock) -> None:
        self.manager = QueueManager(root)
        self.clock = clock
        for name in "abc":
            self.manager.create(name, **SMALL)

    def __call__(self, members: Any = ("a", "b", "c"), name: str = "all", **options: Any) -> Any:
        self.manager.create_macro(name, members, **options)
        return self.manager.open(name, clock=self.clock)

    def open(self, name: str) -> Any:
        return self.manager.open(name, clock=self.clock)

    def sizes(self, names: str = "abc") -> list[int]:
        return [penstock.TimeQueue(self.manager.root / name).qsize() for name in names]


@pytest.fixture
def macros(tmp_path: Path, clock: SimulatedClock) -> Iterator[Macros]:
    made = Macros(tmp_path, clock)
    yield made
    made.manager.close()


def bodies(messages: Any) -> list[Any]:
    return [message.body for message in messages]


# ---------------------------------------------------------------- producing


def test_the_first_that_has_room_takes_a_message(macros: Macros) -> None:
    q = macros()
    for n in range(45):
        q.put(n)
    assert macros.sizes() == [20, 20, 5]
    for _ in range(15):
        q.put("x")
    with pytest.raises(QueueFull) as caught:
        q.put("too much")
    assert caught.value.queue == q.name


def test_in_turn_each_member_takes_one(macros: Macros) -> None:
    q = macros(producing="round-robin")
    for n in range(7):
        q.put(n)
    assert macros.sizes() == [3, 2, 2]


def test_the_shortest_takes_it(macros: Macros) -> None:
    macros.open("a").put_many(range(5))
    macros.open("c").put_many(range(2))
    q = macros(producing="shortest")
    for n in range(5):
        q.put(n)
    assert macros.sizes() == [5, 4, 3]


def test_the_fastest_takes_most_and_the_others_some(macros: Macros) -> None:
    q = macros(("a", "b"), producing="fastest")
    members = [macros.open(name)._inner for name in "ab"]
    for member, service_us in zip(members, (50_000, 1_000), strict=True):
        kernel = member._mine().kernel
        kernel.note(kernel.get(L.H_STATS_AT) + L.T_SERVICE_RECENT_US, service_us)
    took = [0, 0]
    for _ in range(800):
        q.put("x")
        taken = [member.get_many(1) for member in members]
        took = [count + len(found) for count, found in zip(took, taken, strict=True)]
        for message in taken[0] + taken[1]:
            message.ack()
        for member, service_us in zip(members, (50_000, 1_000), strict=True):
            kernel = member._mine().kernel
            kernel.note(kernel.get(L.H_STATS_AT) + L.T_SERVICE_RECENT_US, service_us)
    assert sum(took) == 800 and 0 < took[0] < 20


def test_a_copy_goes_to_all_or_to_none(macros: Macros) -> None:
    q = macros(producing="copy-to-all")
    message_id = q.put({"news": 1}, priority=3, type="t", key="k", headers={"h": "v"}, delay=5, ttl=60)
    assert len(q.put_many([1, Draft(body=2, delay=1)])) == 2
    assert macros.sizes() == [3, 3, 3]
    macros.clock.advance(10)
    for name in "abc":
        first = macros.open(name).get_many(1)[0]
        assert (first.body, first.priority, first.type, first.key) == ({"news": 1}, 3, "t", "k")
        assert first.headers["h"] == "v" and first.expires_at is not None
        assert (first.id == message_id) == (name == "a")
    macros.open("b").put_many(range(17))
    with pytest.raises(QueueFull):
        q.put("one too many")
    assert macros.sizes("ac") == [2, 2]
    macros.manager.deactivate("c")
    with pytest.raises(QueueInactive, match="c"):
        q.put("x")


@pytest.mark.parametrize("small", ["a", "b"])
def test_a_copy_that_a_member_has_no_room_for_goes_nowhere_though_another_could_make_room(
    tmp_path: Path, small: str
) -> None:
    with QueueManager(tmp_path) as manager:
        for name in "ab":
            manager.create(name, depth=6 if name == small else 20, data_bytes=64 << 10)
        manager.create_macro("all", ["a", "b"], producing="copy-to-all")
        large = "b" if small == "a" else "a"
        with manager.open("all") as q, manager.open(small) as full, manager.open(large) as other:
            for n in range(6):
                q.put(n)
                other.get().ack()  # its room is kept until an index sync, which a put makes that finds none
            assert other.stats().kept > 0
            for _ in range(3):
                with pytest.raises(QueueFull) as caught:
                    q.put("too much")
                assert caught.value.queue == q.name
            assert (other.stats().acks, other.qsize(), full.qsize()) == (6, 0, 6)
            full.get().ack()
            q.put("last")
            assert (other.qsize(), full.qsize()) == (1, 6)


def test_a_duplicate_meets_the_first_one_whatever_the_policy(macros: Macros) -> None:
    q = macros(producing="round-robin")
    first = [q.put(n, dedup_id=f"order {n}") for n in range(12)]
    assert [q.put(n, dedup_id=f"order {n}") for n in range(12)] == first
    assert sum(macros.sizes()) == 12 and min(macros.sizes()) > 0
    batch = [Draft(body=n, dedup_id=f"line {n}") for n in range(3)]
    assert list(q.put_many(batch)) == list(q.put_many(batch))


def test_a_batch_stays_together(macros: Macros) -> None:
    q = macros(producing="round-robin")
    q.put_many(range(5))
    q.put_many(range(4))
    assert macros.sizes() == [5, 4, 0]


def test_what_is_too_large_for_one_goes_to_another(macros: Macros) -> None:
    macros.manager.create("large", depth=20, data_bytes=1 << 20, durability="relaxed")
    q = macros(("a", "large"))
    q.put(b"x" * 100_000)
    assert macros.sizes("a") == [0] and macros.open("large").qsize() == 1
    with pytest.raises(Misuse, match="priority"):
        q.put("x", priority=77)


def test_a_file_goes_to_one_member(macros: Macros, tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(b"hello")
    q = macros()
    macros.open("a").put_many(range(20))
    q.put_file(source)
    with source.open("rb") as file:
        q.put_file(file)
    assert macros.sizes("ab") == [20, 2]
    assert bodies(macros.open("b").get_many(2)) == [b"hello"] * 2


# ---------------------------------------------------------------- consuming


def test_members_of_a_higher_priority_come_first(macros: Macros) -> None:
    q = macros((("a", 1), ("b", 3), ("c", 2)))
    for name in "abc":
        macros.open(name).put_many([f"{name}1", f"{name}2"])
    assert bodies(q.get_many(3)) == ["b1", "b2", "c1"]
    assert [q.get(block=False).body for _ in range(3)] == ["c2", "a1", "a2"]


def test_the_priority_of_messages_counts_over_all_members(macros: Macros) -> None:
    q = macros(consuming="message-priority")
    macros.open("a").put_many([Draft(body="a1", priority=1), Draft(body="a9", priority=9)])
    macros.open("b").put_many([Draft(body="b5", priority=5), Draft(body="b9 later", priority=9, delay=5)])
    macros.open("c").put_many([Draft(body="c0"), Draft(body="c7", priority=7)])
    assert bodies(q.get_many(10)) == ["a9", "c7", "b5", "a1", "c0"]
    macros.clock.advance(6)
    assert q.get(block=False).body == "b9 later"


def test_the_oldest_comes_first_over_all_members(macros: Macros) -> None:
    q = macros(consuming="oldest")
    for n, name in enumerate("cabbca"):
        macros.open(name).put(n, priority=n)
        macros.clock.advance(1)
    macros.open("a").put("first", deliver_at=1.0)
    assert bodies(q.get_many(10)) == ["first", 0, 1, 2, 3, 4, 5]


def test_members_take_turns_in_giving(macros: Macros) -> None:
    q = macros((("a", 9), "b", "c"), consuming="round-robin")
    for name in "abc":
        macros.open(name).put_many([name] * 3)
    assert [q.get(block=False).body for _ in range(9)] == ["a", "b", "c"] * 3


@pytest.mark.parametrize("consuming", penstock.manager.membership.CONSUMING)
def test_types_and_keys_are_found_in_any_member(macros: Macros, consuming: str) -> None:
    q = macros(consuming=consuming)
    for name in "abc":
        macros.open(name).put_many([Draft(body=f"{name}{n}", type="xy"[n % 2], key=name) for n in range(4)])
    assert sorted(bodies(q.get_many(10, type="x"))) == ["a0", "a2", "b0", "b2", "c0", "c2"]
    assert bodies(q.get_many(10, key="b")) == ["b1", "b3"]
    with pytest.raises(QueueEmpty):
        q.get(block=False, type="z")
    assert [(g.key, g.waiting) for g in q.groups(by="size")] == [("a", 2), ("c", 2)]
    macros.open("c").put("more", key="c")
    assert set(bodies(q.get_many(10, group="largest"))) == {"c1", "c3", "more"}


# ---------------------------------------------------------------- what becomes of messages


def test_messages_are_finished_in_their_own_members(macros: Macros) -> None:
    q = macros(producing="round-robin")
    ids = [q.put(n) for n in range(9)]
    got = q.get_many(9)
    q.ack(got[0])
    got[1].ack()
    q.ack_many(got[2:5])
    q.release(got[5])
    q.unget([got[6]])
    q.extend(got[7], 99)
    q.dead_letter(got[8], "why")
    assert q.qsize() == 2 and q.stats().acks == 5
    assert q.redrive() == 1 and q.qsize() == 3
    waiting = {message.id for message in q.browse()}
    assert q.cancel(waiting.pop()) and not q.cancel(ids[0])
    assert q.purge() == 2
    with pytest.raises(LeaseLost):
        q.ack_many(got[:1])
    with pytest.raises(Misuse):
        q.cancel("no id")
    other = macros.open("a")
    other.put("theirs")
    with pytest.raises(LeaseLost):
        q.ack(other.get())


def test_the_figures_are_those_of_all_members(macros: Macros) -> None:
    q = macros(producing="round-robin")
    q.put_many([1, 2, 3])
    q.put(4, delay=60)
    q.get().ack()
    stats = q.stats()
    assert (stats.waiting, stats.ready, stats.timed, stats.puts, stats.gets, stats.acks) == (3, 2, 1, 4, 1, 1)
    assert (stats.slots, stats.vacant, stats.depth_max) == (60, 57, 3)
    assert {name: one.waiting for name, one in stats.members.items()} == {"a": 2, "b": 1, "c": 0}
    assert stats.next_due_at == macros.clock.now_s + 60 and stats.failed == {}
    assert stats.uuid == macros.manager.find("all").uuid


# ---------------------------------------------------------------- members that come, go and fail


def test_members_come_and_go_while_it_is_open(macros: Macros) -> None:
    q = macros(("a",))
    q.put("in a")
    held = q.get()
    macros.manager.add_member("all", "b", priority=5)
    macros.manager.remove_member("all", "a")
    q.put("in b")
    assert macros.sizes("ab") == [0, 1]
    held.ack()  # of one that is a member no longer
    assert q.get(block=False).body == "in b"
    assert macros.open("a").stats().acks == 1


def test_a_member_that_is_deactivated_is_passed_over(macros: Macros) -> None:
    q = macros()
    q.put("in a")
    macros.manager.deactivate("a")
    q.put("in b")
    assert q.get(block=False).body == "in b"
    with pytest.raises(QueueEmpty):
        q.get(block=False)
    macros.manager.activate("a")
    assert q.get(block=False).body == "in a"


def test_a_member_whose_files_are_gone_is_passed_over_and_comes_back(macros: Macros) -> None:
    q = macros(("a", "b"))
    home, aside = macros.manager.root / "a", macros.manager.root / ".aside"
    q.put("kept")
    home.rename(aside)
    wait_until(lambda: "a" in q.stats().failed)
    q.put("in b")
    assert q.get(timeout=5).body == "in b"
    aside.rename(home)
    assert q.get(timeout=10).body == "kept"
    q.put("in a again")
    assert macros.sizes("a") == [1]


def test_where_no_member_works_the_error_is_told(macros: Macros) -> None:
    q = macros(("a",))
    shutil.rmtree(macros.manager.root / "a")
    wait_until(lambda: "a" in q.stats().failed)
    with pytest.raises(FileNotFoundError):
        q.get(block=False)
    with pytest.raises((FileNotFoundError, QueueInactive)):
        q.put("x")


def wait_until(condition: Callable[[], bool]) -> None:
    """Members are looked at once a second of real time, as nobody tells of files that are gone."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_without_members_nothing_goes_in_and_nothing_comes(macros: Macros) -> None:
    q = macros(())
    with pytest.raises(Misuse, match="without members"):
        q.put("x")
    with pytest.raises(QueueEmpty):
        q.get(timeout=0.01)
    assert q.qsize() == 0 and list(q.browse()) == [] and q.stats().waiting == 0


# ---------------------------------------------------------------- macro queues in macro queues


def test_a_macro_queue_is_a_member_with_its_own_policies(macros: Macros) -> None:
    macros.manager.create_macro("inner", [("a", 1), ("b", 2)], producing="shortest")
    q = macros((("c", 5), ("inner", 7)), producing="round-robin")
    for n in range(6):
        q.put(n)
    assert macros.sizes() == [2, 1, 3]
    got = q.get_many(10)
    assert bodies(got) == [3, 1, 5, 0, 2, 4]  # of inner first, there of b; then of c
    q.ack_many(got)
    assert sorted(q.stats().members) == ["a", "b", "c"]
    macros.manager.deactivate("inner")
    q.put("in c")
    q.put("in c too")
    assert macros.sizes() == [0, 0, 2]


def test_copies_go_through_macro_queues(macros: Macros) -> None:
    macros.manager.create_macro("inner", ["a", "b"])
    q = macros(("c", "inner"), producing="copy-to-all")
    q.put("x")
    assert macros.sizes() == [1, 0, 1]
    macros.manager.configure("inner", producing="copy-to-all")
    q.put("y")
    assert macros.sizes() == [2, 1, 2]


def test_a_macro_queue_that_was_made_anew_copies_under_a_name_of_its_own(macros: Macros) -> None:
    macros.manager.create_macro("inner", ["a", "b"], producing="copy-to-all")
    q = macros(("inner",), producing="round-robin")
    q.put("before")
    uuids = [macros.manager.find("inner").uuid]
    macros.manager.remove_member("all", "inner")
    macros.manager.destroy("inner")
    macros.manager.create_macro("inner", ["a", "b"], producing="copy-to-all")
    macros.manager.add_member("all", "inner")
    uuids.append(macros.manager.find("inner").uuid)
    q.put("after")
    for name in "ab":
        with penstock.TimeQueue(macros.manager.root / name) as member:
            assert {each.publisher for each in member.publishers()} == {f"macro-{uuid}" for uuid in uuids}


# ---------------------------------------------------------------- the manager's gate


def test_a_macro_queue_is_checked_as_any_queue(macros: Macros) -> None:
    q = macros()
    macros.manager.grant("mail", "all", ["produce"])
    mail = macros.manager.as_principal("mail")
    with mail.open("all") as producer:
        producer.put("x")
        with pytest.raises(penstock.NotPermitted):
            producer.get()
    with pytest.raises(penstock.WrongRelationship):
        macros.manager.open("all", relationship="producer").get()
    macros.manager.deactivate("all")
    with pytest.raises(QueueInactive):
        q.put("x")
    macros.manager.activate("all")
    with pytest.raises(penstock.WrongState, match="its state is open"):
        macros.manager.destroy("all")
    with pytest.raises(penstock.QueueInUse):
        QueueManager(macros.manager.root).destroy("all")


def test_threads_share_a_macro_queue(tmp_path: Path) -> None:
    manager = QueueManager(tmp_path)
    for name in "abc":
        manager.create(name, **SMALL)
    manager.create_macro("all", ["a", "b", "c"], producing="round-robin")
    q = manager.open("all")
    got: list[Any] = []

    def work() -> None:
        while (message := q.get(timeout=20)).body != "end":
            got.append(message.body)
            message.ack()
        message.ack()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(200):
        q.put(n, timeout=20)
    for _ in threads:
        q.put("end", timeout=20)
    for thread in threads:
        thread.join(30)
    assert sorted(got) == list(range(200))
    manager.close()


# ---------------------------------------------------------------- handles, and members that refuse or leave


def test_what_is_put_without_waiting_is_as_it_was_then(macros: Macros) -> None:
    q = macros()
    body = {"n": 0}
    handles = []
    for body["n"] in range(10):
        handles.append(q.put(body, wait=False, delay=5))
    assert all(handle.result(10) for handle in handles)
    found = list(q.browse())
    assert [message.body["n"] for message in found] == list(range(10))
    assert {message.deliver_us for message in found} == {macros.clock.wall_us() + 5_000_000}


def test_a_queue_is_closed_in_a_callback_of_its_own(macros: Macros) -> None:
    q = macros()
    closed = threading.Event()

    def close(_: object) -> None:
        q.close()
        closed.set()

    q.put("x", wait=False).add_done_callback(close)
    assert closed.wait(10) and q.closed


def test_a_put_says_why_no_member_takes_it(macros: Macros, tmp_path: Path) -> None:
    q = macros(("a",))
    shutil.rmtree(tmp_path / "a")
    macros.manager.deactivate("b")  # so that all look
    with pytest.raises(penstock.QueueNotFound):
        q.put("x")


def test_a_put_that_waits_goes_on_when_a_member_is_activated(macros: Macros) -> None:
    q = macros(("a",))
    macros.manager.deactivate("a")
    with pytest.raises(QueueInactive):
        q.put("x", timeout=0.01)
    timer = threading.Timer(0.2, macros.manager.activate, ("a",))
    timer.start()
    assert q.put("x", timeout=30)
    timer.join()


def test_a_member_that_was_closed_by_another_thread_is_no_end_of_the_macro_queue(macros: Macros) -> None:
    q = macros(producing="shortest")
    q.put("x")
    (leaf, *_), inner = q._inner._members.leaves, q._inner
    assert leaf.member is not None
    leaf.member.queue.close()
    with pytest.raises(QueueEmpty):
        q.get(block=False)
    with pytest.raises(QueueEmpty):
        q.get(timeout=0.01, type="none")
    assert q.put("y") and not inner.closed


def test_coroutines_pass_over_a_member_that_a_body_is_too_large_for(macros: Macros) -> None:
    macros.manager.create("large", **{**SMALL, "data_bytes": 1 << 20})
    q = macros(("a", "large"))
    asyncio.run(q.aput(bytes(100_000)))
    assert macros.sizes(["a", "large"]) == [0, 1]  # type: ignore[arg-type]


LIMITED = """
import os, resource, sys
import penstock
lowest = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 12, lowest + 12))
try:
    penstock.MacroQueue(sys.argv[1])
except OSError as error:
    print(error.errno)
"""


def test_too_many_open_files_are_an_error_of_the_process_and_not_of_members(macros: Macros, tmp_path: Path) -> None:
    macros.manager.create_macro("all", ("a", "b", "c"))
    told = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "all")], capture_output=True, text=True)
    assert told.stdout.strip() == str(errno.EMFILE), told.stderr
