"""What ``penstock.stdlib`` adds to the standard library's queues: items on disk, leases, sessions, other clients."""

from __future__ import annotations

import copy
import gc
import logging
import os
import pickle
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import stdlib
from penstock.codec import Pickled
from penstock.stdlib.hand import Hand
from penstock.stdlib.items import to_entry

SMALL = {"slots": 64, "data_bytes": 64 << 10}


class Opened:
    """Opens queues at one path, and closes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[Any] = []

    def __call__(self, maxsize: int = 0, **options: Any) -> stdlib.Queue[Any]:
        return self.keep(stdlib.Queue(self._path, maxsize, **{**SMALL, **options}))

    def plain(self) -> penstock.TimeQueue:
        return self.keep(penstock.open(self._path))  # type: ignore[no-any-return]

    def keep(self, one: Any) -> Any:
        self._opened.append(one)
        return one

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def opened(path: Path) -> Iterator[Opened]:
    queues = Opened(path)
    yield queues
    queues.close()


# ---------------------------------------------------------------- items


def test_what_needs_no_pickle_is_read_by_any_client(opened: Opened) -> None:
    q = opened()
    for item in (b"a", "b", {"c": [1, None]}):
        q.put(item)
    plain = opened.plain()
    assert [message.body for message in plain.get_many(9)] == [b"a", "b", {"c": [1, None]}]


def test_what_any_client_has_put_is_got(opened: Opened) -> None:
    q = opened()
    opened.plain().put_many([b"a", "b", {"c": 1}])
    assert [q.get(), q.get(), q.get()] == [b"a", "b", {"c": 1}]


sprung: list[int] = []


def _spring() -> str:
    sprung.append(os.getpid())
    return "sprung"


class Trap:
    """A pickle that leaves a trace when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _spring, ()


@pytest.fixture(autouse=True)
def fresh_trap() -> None:
    sprung.clear()


def test_only_this_queue_unpickles(opened: Opened) -> None:
    q = opened()
    q.put(Trap())
    assert sprung == []
    assert q.get() == "sprung"
    assert len(sprung) == 1


def test_a_plain_client_unpickles_nothing(opened: Opened) -> None:
    opened().put(Trap())
    message = opened.plain().get(timeout=1)
    assert isinstance(message.body, Pickled)
    assert message.body.data == message.data == pickle.dumps(Trap(), protocol=5)
    assert sprung == []


def test_a_plain_client_cannot_put_what_is_unpickled(opened: Opened) -> None:
    q = opened()
    data = pickle.dumps(Trap())
    opened.plain().put(data, type="pickle")
    assert q.get() == data
    assert sprung == []


def test_pickles_can_be_ruled_out(opened: Opened) -> None:
    opened().put(Trap())
    q = opened(allow_pickle=False)
    for item in ((1, 2), bytearray(b"a"), Pickled(b"a")):
        with pytest.raises(penstock.Misuse):
            q.put(item)
    with pytest.raises(penstock.Misuse, match="is a pickle"):
        q.get()
    assert sprung == []
    q.put([1, 2])
    assert q.get() == [1, 2]
    q.task_done()  # of what could not be unpickled
    q.task_done()
    q.join()


def test_what_cannot_be_pickled_is_refused_at_once(opened: Opened) -> None:
    q = opened()
    with pytest.raises(TypeError, match="pickle"):
        q.put(threading.Lock())
    assert q.unfinished_tasks == 0


def _fail() -> None:
    raise ImportError("not here")


class Foreign:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _fail, ()


def test_what_cannot_be_unpickled_is_not_in_the_way_and_not_lost(opened: Opened) -> None:
    q = opened()
    q.put(Foreign())
    q.put("next")
    with pytest.raises(ImportError, match="not here"):
        q.get()
    assert q.get() == "next"
    assert q.unfinished_tasks == 2
    q.close()
    assert opened.plain().qsize() == 2


def test_an_item_is_as_it_was_when_it_was_put(opened: Opened) -> None:
    q = opened()
    item = [1]
    q.put(item)
    item.append(2)
    assert q.get() == [1]


def test_pickles_are_exported_and_imported_as_they_are(opened: Opened, path: Path) -> None:
    opened().put((1, 2))
    lines = penstock.export_messages(opened.plain()).lines()
    copied = path.with_name("copy")
    with stdlib.Queue[Any](copied, **SMALL) as other:  # type: ignore[arg-type]
        with penstock.open(copied) as plain:
            penstock.import_messages(plain, lines)
        assert other.get() == (1, 2)


# ---------------------------------------------------------------- leases


def test_what_was_got_and_not_done_is_back_in_its_place_when_the_queue_is_closed(opened: Opened) -> None:
    q = opened()
    for n in range(4):
        q.put(n)
    assert [q.get(), q.get(), q.get()] == [0, 1, 2]
    q.task_done()
    q.close()
    again = opened()
    assert (again.qsize(), again.unfinished_tasks) == (3, 3)
    assert [again.get(), again.get(), again.get()] == [1, 2, 3]


def test_task_done_is_for_the_items_of_the_own_thread_first(opened: Opened) -> None:
    q = opened()
    q.put("main's")
    q.put("the other's")
    q.get()

    def work() -> None:
        q.get()
        q.task_done()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    q.close()
    assert opened().get() == "main's"


def test_who_has_nothing_in_hand_marks_the_oldest_of_another_thread() -> None:
    hand = Hand()
    for message in ("first", "second"):
        thread = threading.Thread(target=hand.add, args=(message,))
        thread.start()
        thread.join()
    assert len(hand) == 2
    taken = hand.take()
    assert taken is not None
    assert taken[1] == "first"
    hand.put_back(taken)
    assert [hand.take()[1], hand.take()[1], hand.take()] == ["first", "second", None]  # type: ignore[index]


def test_another_object_has_other_items_in_hand(opened: Opened) -> None:
    q, other = opened(), opened()
    q.put("a")
    q.get()
    assert other.unfinished_tasks == 1
    with pytest.raises(ValueError, match="too many times"):
        other.task_done()
    q.task_done()
    other.join()


def test_a_lease_does_not_end_while_the_process_lives(opened: Opened) -> None:
    q = opened()
    q.put("a")
    q.get()
    (held,) = opened.plain().browse(state="pending")
    assert held.lease_ends_at is not None
    assert held.lease_ends_at.year > held.enqueued_at.year + 25


def test_with_done_by_get_an_item_is_gone_when_it_was_got(opened: Opened) -> None:
    q = opened(done_by="get")
    q.put((1, 2))
    assert q.get() == (1, 2)
    assert q.unfinished_tasks == 0
    q.join()
    q.task_done()
    with pytest.raises(ValueError, match=r"^task_done\(\) called too many times$"):
        q.task_done()
    q.close()
    assert opened().qsize() == 0


def test_with_done_by_get_what_cannot_be_unpickled_stays(opened: Opened) -> None:
    q = opened(done_by="get")
    q.put(Foreign())
    with pytest.raises(ImportError):
        q.get()
    q.close()
    assert opened().qsize() == 1


# ---------------------------------------------------------------- room


def test_a_directory_that_is_full_is_waited_for_and_it_is_said_why(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    q = opened(slots=4)
    for n in range(4):
        q.put(n)
    with pytest.raises(queue.Full, match="slots"):
        q.put_nowait(4)
    q.get()
    assert not q.full()
    with caplog.at_level(logging.WARNING), pytest.raises(penstock.QueueFull):
        q.put(4, timeout=0.02)
    assert "1 items were got and not marked with task_done()" in caplog.text
    thread = threading.Thread(target=q.put, args=(4,))
    thread.start()
    q.task_done()
    thread.join(10)
    assert q.qsize() == 4


def test_a_maxsize_has_slots_for_it(path: Path) -> None:
    with stdlib.Queue[int](path, 100_000, data_bytes=4096) as q:
        assert penstock.open(q.path).stats().slots == 200_000


def test_options_that_cannot_be(path: Path) -> None:
    with pytest.raises(penstock.Misuse, match="durability"):
        stdlib.Queue(path, durability="some")
    with pytest.raises(penstock.Misuse, match="done_by"):
        stdlib.Queue(path, done_by="me")  # type: ignore[arg-type]
    with pytest.raises(penstock.QueueNotFound):
        stdlib.Queue(path, make=False)
    assert not path.exists()


@pytest.mark.parametrize("durability, commits", [("relaxed", 0), ("commit", 1)])
def test_a_put_is_synced_if_it_was_asked_for(opened: Opened, durability: str, commits: int) -> None:
    q = opened(durability=durability)
    q.put("a")
    assert opened.plain().stats().commits == commits


class SlowPut:
    """A put that is between its two turns at the lock, as one of a large or durable item is for a while."""

    def __init__(self, q: stdlib.Queue[Any], item: Any) -> None:
        self._items = [to_entry(item, allow_pickle=True)]
        self._client = q._queue._mine()
        self._producer = q._queue._producer
        self._now_us = self._client.turn(self._producer._reserve, self._items)

    def finish(self) -> None:
        self._producer._copy(self._items, self._now_us, False, True)
        self._client.turn(self._producer._publish, self._items, None)
        self._client.filling.clear()


def test_a_put_on_its_way_has_its_place(opened: Opened) -> None:
    q = opened(maxsize=1)
    put = SlowPut(opened(), "a")
    with pytest.raises(queue.Full):
        q.put_nowait("b")
    put.finish()
    assert q.get() == "a"


def test_a_put_that_a_shutdown_overtakes_is_got(opened: Opened) -> None:
    q = opened()
    put = SlowPut(opened(), "a")
    q.shutdown()
    with pytest.raises(queue.Empty):
        q.get(timeout=0.05)  # not the end yet
    put.finish()
    assert q.get() == "a"
    with pytest.raises(stdlib.ShutDown):
        q.get()


def test_a_put_that_an_immediate_shutdown_overtakes_is_removed(opened: Opened) -> None:
    q = opened()
    put = SlowPut(opened(), "a")
    thread = threading.Thread(target=q.shutdown, args=(True,))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    put.finish()
    thread.join(10)
    assert not thread.is_alive()
    assert (q.qsize(), q.unfinished_tasks) == (0, 0)


# ---------------------------------------------------------------- sessions


def test_a_shutdown_holds_for_all_that_have_the_queue_open(opened: Opened) -> None:
    q, other = opened(), opened()
    q.put("a")
    other.shutdown()
    with pytest.raises(stdlib.ShutDown):
        q.put("b")
    late = opened()
    assert late.is_shutdown
    assert late.get() == "a"
    with pytest.raises(stdlib.ShutDown):
        q.get()


def test_a_session_ends_with_the_last_that_has_the_queue_open(opened: Opened) -> None:
    q, other = opened(), opened()
    q.put("a")
    q.shutdown()
    q.close()
    assert other.is_shutdown
    other.close()
    again = opened()
    assert not again.is_shutdown
    again.put("b")
    assert [again.get(), again.get()] == ["a", "b"]


def test_plain_clients_are_not_part_of_a_session(opened: Opened) -> None:
    q = opened()
    q.shutdown()
    plain = opened.plain()
    plain.put("a")
    assert q.get() == "a"
    q.close()
    assert not opened().is_shutdown


def test_a_closed_queue(opened: Opened) -> None:
    q = opened()
    q.put("a")
    q.get()
    q.close()
    q.close()
    for call in (q.get, q.qsize, q.join, q.shutdown, lambda: q.put("a"), lambda: q.is_shutdown):
        with pytest.raises(penstock.QueueClosed):
            call()
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()
    with pytest.raises(penstock.QueueClosed):
        pickle.dumps(q)


def test_no_descriptor_is_left(path: Path) -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    with stdlib.Queue[str](path, **SMALL):  # type: ignore[arg-type]
        pass
    before = count()
    stdlib.Queue[str](path).put("a")  # and not closed
    with stdlib.Queue[str](path) as q:
        assert q.get() == "a"
    assert count() == before


# ---------------------------------------------------------------- in the manner of multiprocessing


def test_a_pickled_queue_is_another_one_of_the_same(opened: Opened) -> None:
    q = opened.keep(stdlib.JoinableQueue[Any](opened().path, 3, durability="commit", allow_pickle=False))
    for other in (pickle.loads(pickle.dumps(q)), copy.copy(q)):
        opened.keep(other)
        assert type(other) is stdlib.JoinableQueue
        assert (other.path, other.maxsize) == (q.path, 3)
        q.put("a")
        assert other.get() == "a"
        other.task_done()
        with pytest.raises(penstock.Misuse):
            other.put((1, 2))


def test_after_close_a_joinable_queue_neither_puts_nor_gets_and_may_be_joined(opened: Opened) -> None:
    q = opened.keep(stdlib.JoinableQueue[Any](opened().path))
    q.put("a")
    q.get()
    with pytest.raises(AssertionError, match="not closed"):
        q.join_thread()
    q.close()
    q.join_thread()
    q.cancel_join_thread()
    for call in (lambda: q.put("b"), q.get, q.get_nowait):
        with pytest.raises(ValueError, match=r"^Queue <JoinableQueue .*> is closed$"):
            call()
    q.task_done()
    q.join()
