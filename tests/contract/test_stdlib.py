"""One suite for ``queue.Queue`` and ``penstock.stdlib.Queue``: whatever a program may rely on holds for both."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import stdlib
from tests.conftest import assert_whole

PATIENCE_S = 20.0  # far above anything a loaded machine needs
SHORT_S = 0.05
PROMPT_S = 0.6  # a sleeper that nobody wakes looks by itself after a second

Make = Callable[..., Any]


KINDS = ["queue.Queue", "penstock"]
EVERY_KIND = [*KINDS, "penstock, commit", "JoinableQueue"]
every_kind = pytest.mark.parametrize("make", EVERY_KIND, indirect=True)  # each test costs syncs: not all of them


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """``make(maxsize)`` gives a queue."""
    if request.param == "queue.Queue":
        yield queue.Queue
        return
    kind = stdlib.JoinableQueue if request.param == "JoinableQueue" else stdlib.Queue
    durability = "commit" if "commit" in request.param else "relaxed"
    made: list[stdlib.Queue[Any]] = []

    def new(maxsize: int = 0) -> stdlib.Queue[Any]:
        path = tmp_path / f"queue-{len(made)}"
        made.append(kind(path, maxsize, durability=durability, slots=2048, data_bytes=1 << 20))
        return made[-1]

    yield new
    for one in made:
        assert_whole(one.path)
        stdlib.Queue.close(one)
        assert_whole(one.path)


@pytest.fixture
def shut(make: Make) -> Make:
    """As ``make``, where there is a shutdown."""
    if make is queue.Queue and sys.version_info < (3, 13):
        pytest.skip("queue.Queue has no shutdown before Python 3.13")
    return make


class Call:
    """A call in a thread of its own."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(work, arguments), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self._outcome = [work(*arguments), None, time.monotonic()]
        except BaseException as error:
            self._outcome = [None, error, time.monotonic()]

    def is_blocked(self) -> bool:
        """Whether it still runs when it had time to end."""
        self._thread.join(SHORT_S)
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it did not return"
        if self._outcome[1] is not None:
            raise self._outcome[1]
        return self._outcome[0]

    def returned_at(self) -> float:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it did not return"
        return float(self._outcome[2])


# ---------------------------------------------------------------- items and sizes


@every_kind
def test_items_come_out_in_the_order_in_which_they_went_in(make: Make) -> None:
    q = make()
    for n in range(30):
        q.put(n)
    assert [q.get() for _ in range(30)] == list(range(30))


ITEMS = [
    None,
    True,
    0,
    -1.5,
    float("inf"),
    2**200,
    "",
    "naïve \N{SNOWMAN}",
    "\ud800",  # no valid Unicode
    b"",
    b"\0\xff",
    bytearray(b"a"),
    (),
    (1, 2),
    [1, [2, None]],
    [(1, 2)],
    {"a": [1, 2], "b": {"c": None}},
    {1: 2},
    {1, 2},
    {"when": complex(1, 2)},
    Path("/tmp"),
    queue.Empty,
    b"x" * 300_000,  # longer than what the records hold
]


@every_kind
def test_get_gives_the_item_itself(make: Make) -> None:
    q = make()
    for item in ITEMS:
        assert q.put(item) is None
    for item in ITEMS:
        found = q.get()
        assert found == item
        assert type(found) is type(item)


def test_sizes(make: Make) -> None:
    q = make(2)
    assert (q.maxsize, q.qsize(), q.empty(), q.full()) == (2, 0, True, False)
    q.put("a")
    assert (q.qsize(), q.empty(), q.full()) == (1, False, False)
    q.put("b")
    assert (q.qsize(), q.empty(), q.full()) == (2, False, True)
    q.get()
    assert (q.qsize(), q.empty(), q.full()) == (1, False, False)  # got, though not yet done: there is room


def test_without_a_maxsize_it_is_never_full(make: Make) -> None:
    for q in (make(), make(-1)):
        for n in range(1000):
            q.put_nowait(n)
        assert q.qsize() == 1000
        assert not q.full()


def test_the_arguments_may_be_named(make: Make) -> None:
    q = make(maxsize=1)
    q.put(item="a", block=True, timeout=None)
    with pytest.raises(queue.Full):
        q.put(item="b", block=False)
    assert q.get(block=True, timeout=1) == "a"


def test_the_kind_of_item_may_be_said(make: Make) -> None:
    assert type(make())[int] is not None


# ---------------------------------------------------------------- full and empty


def _said(error: pytest.ExceptionInfo[BaseException]) -> tuple[type[BaseException], tuple[Any, ...]]:
    return error.type, error.value.args


def test_a_full_queue_refuses_who_does_not_wait(make: Make) -> None:
    q = make(1)
    q.put("a")
    for call in (lambda: q.put("b", False), lambda: q.put_nowait("b"), lambda: q.put("b", False, -1)):
        with pytest.raises(queue.Full) as full:
            call()
        assert _said(full) == (queue.Full, ())
    assert q.qsize() == 1


def test_an_empty_queue_refuses_who_does_not_wait(make: Make) -> None:
    q = make()
    for call in (lambda: q.get(False), q.get_nowait, lambda: q.get(False, -1)):
        with pytest.raises(queue.Empty) as empty:
            call()
        assert _said(empty) == (queue.Empty, ())


@pytest.mark.parametrize("timeout", [0, SHORT_S])
def test_a_put_waits_as_long_as_it_was_told(make: Make, timeout: float) -> None:
    q = make(1)
    q.put("a")
    start = time.monotonic()
    with pytest.raises(queue.Full) as full:
        q.put("b", timeout=timeout)
    assert timeout <= time.monotonic() - start < timeout + PATIENCE_S / 2
    assert _said(full) == (queue.Full, ())


@pytest.mark.parametrize("timeout", [0, SHORT_S])
def test_a_get_waits_as_long_as_it_was_told(make: Make, timeout: float) -> None:
    q = make()
    start = time.monotonic()
    with pytest.raises(queue.Empty) as empty:
        q.get(timeout=timeout)
    assert timeout <= time.monotonic() - start < timeout + PATIENCE_S / 2
    assert _said(empty) == (queue.Empty, ())


def test_a_negative_timeout(make: Make) -> None:
    q = make(1)
    with pytest.raises(ValueError, match=r"^'timeout' must be a non-negative number$"):
        q.put("a", timeout=-1)
    q.put("a")
    with pytest.raises(ValueError, match=r"^'timeout' must be a non-negative number$"):
        q.get(timeout=-1)
    assert q.get(block=False, timeout=-1) == "a"
    unbounded = make()
    unbounded.put("a", timeout=-1)  # which never waits
    assert unbounded.get() == "a"


@every_kind
def test_a_put_that_waits_goes_on_when_an_item_is_got(make: Make) -> None:
    q = make(1)
    q.put("a")
    put = Call(q.put, "b")
    assert put.is_blocked()
    at = time.monotonic()
    assert q.get() == "a"
    assert put.returned_at() - at < PROMPT_S
    assert q.get() == "b"


def test_a_get_that_waits_goes_on_when_an_item_is_put(make: Make) -> None:
    q = make()
    get = Call(q.get)
    assert get.is_blocked()
    at = time.monotonic()
    q.put("a")
    assert get.result() == "a"
    assert get.returned_at() - at < PROMPT_S


def test_each_of_many_that_wait_gets_one(make: Make) -> None:
    q = make()
    gets = [Call(q.get) for _ in range(8)]
    assert gets[-1].is_blocked()
    for n in range(8):
        q.put(n)
    assert sorted(get.result() for get in gets) == list(range(8))


# ---------------------------------------------------------------- tasks


def test_task_done_more_often_than_got(make: Make) -> None:
    q = make()
    with pytest.raises(ValueError, match=r"^task_done\(\) called too many times$"):
        q.task_done()
    q.put("a")
    q.get()
    assert q.task_done() is None
    with pytest.raises(ValueError, match=r"^task_done\(\) called too many times$"):
        q.task_done()


def test_tasks_are_counted_from_put_to_task_done(make: Make) -> None:
    q = make()
    counted = [q.unfinished_tasks]
    q.put("a")
    q.put("b")
    counted.append(q.unfinished_tasks)
    q.get()
    counted.append(q.unfinished_tasks)
    q.task_done()
    counted.append(q.unfinished_tasks)
    q.get()
    q.task_done()
    counted.append(q.unfinished_tasks)
    assert counted == [0, 2, 2, 1, 0]


def test_join_returns_at_once_when_nothing_is_unfinished(make: Make) -> None:
    q = make()
    assert Call(q.join).result() is None
    q.put("a")
    q.get()
    q.task_done()
    Call(q.join).result()


@every_kind
def test_join_waits_for_the_last_task(make: Make) -> None:
    q = make()
    for n in range(3):
        q.put(n)
    joins = [Call(q.join), Call(q.join)]
    for _ in range(3):
        assert joins[0].is_blocked()
        q.get()
    assert joins[0].is_blocked()
    q.task_done()
    q.task_done()
    assert joins[1].is_blocked()
    at = time.monotonic()
    q.task_done()
    for join in joins:
        assert join.returned_at() - at < PROMPT_S
        join.result()


def test_a_thread_may_mark_what_another_has_got(make: Make) -> None:
    q = make()
    q.put("a")
    q.get()
    Call(q.task_done).result()
    Call(q.join).result()


@every_kind
def test_many_threads(make: Make) -> None:
    """Every item reaches one consumer, those of a producer in order, and never are there more than maxsize."""
    q = make(5)
    got: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    largest = 0

    def produce(producer: int) -> None:
        for n in range(25):
            q.put((producer, n), True, PATIENCE_S)

    def consume(mine: list[tuple[int, int]]) -> None:
        nonlocal largest
        while (item := q.get(timeout=PATIENCE_S)) != (-1, -1):
            largest = max(largest, q.qsize())
            mine.append(item)
            q.task_done()
        q.task_done()

    consumers = [Call(consume, mine) for mine in got]
    producers = [Call(produce, n) for n in range(4)]
    for call in producers:
        call.result()
    for _ in consumers:
        q.put((-1, -1))
    for call in consumers:
        call.result()
    Call(q.join).result()
    assert sorted(item for mine in got for item in mine) == [(p, n) for p in range(4) for n in range(25)]
    for mine in got:
        for producer in range(4):
            numbers = [n for p, n in mine if p == producer]
            assert numbers == sorted(numbers)
    assert largest <= 5


@every_kind
def test_of_many_puts_at_once_only_maxsize_get_in(make: Make) -> None:
    q = make(3)
    barrier = threading.Barrier(8)

    def put(n: int) -> bool:
        barrier.wait(PATIENCE_S)
        try:
            q.put_nowait(n)
        except queue.Full:
            return False
        return True

    for _ in range(5):
        calls = [Call(put, n) for n in range(8)]
        assert sum(call.result() for call in calls) == 3
        assert q.qsize() == 3
        for _ in range(3):
            q.get_nowait()


# ---------------------------------------------------------------- shutdown


@every_kind
def test_after_a_shutdown_what_is_there_can_be_got_and_nothing_put(shut: Make) -> None:
    q = shut()
    q.put("a")
    q.put("b")
    assert not q.is_shutdown
    assert q.shutdown() is None
    assert q.is_shutdown
    for call in (lambda: q.put("c"), lambda: q.put_nowait("c"), lambda: q.put("c", timeout=-1)):
        with pytest.raises(stdlib.ShutDown) as refused:
            call()
        assert _said(refused) == (stdlib.ShutDown, ())
    assert q.get() == "a"
    assert q.get_nowait() == "b"
    for call in (q.get, q.get_nowait, lambda: q.get(timeout=1), lambda: q.get(timeout=-1)):
        with pytest.raises(stdlib.ShutDown) as over:
            call()
        assert _said(over) == (stdlib.ShutDown, ())
    join = Call(q.join)
    assert join.is_blocked()
    q.task_done()
    q.task_done()
    join.result()


def test_a_full_queue_that_is_shut_down_says_that(shut: Make) -> None:
    q = shut(1)
    q.put("a")
    q.shutdown()
    for call in (lambda: q.put("b"), lambda: q.put_nowait("b"), lambda: q.put("b", timeout=-1)):
        with pytest.raises(stdlib.ShutDown):
            call()


@every_kind
def test_an_immediate_shutdown_removes_what_is_there(shut: Make) -> None:
    q = shut()
    for n in range(10):
        q.put(n)
    assert q.get() == 0
    join = Call(q.join)
    assert join.is_blocked()
    q.shutdown(immediate=True)
    assert (q.qsize(), q.empty(), q.unfinished_tasks) == (0, True, 1)
    with pytest.raises(stdlib.ShutDown):
        q.get()
    with pytest.raises(stdlib.ShutDown):
        q.put(1)
    assert join.is_blocked()  # for the one that is in hand
    q.task_done()
    join.result()
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()


def test_an_immediate_shutdown_ends_a_join(shut: Make) -> None:
    q = shut()
    q.put("a")
    join = Call(q.join)
    assert join.is_blocked()
    at = time.monotonic()
    q.shutdown(immediate=True)
    join.result()
    assert join.returned_at() - at < PROMPT_S


def test_a_second_shutdown_may_be_immediate(shut: Make) -> None:
    q = shut()
    q.put("a")
    q.shutdown()
    q.shutdown()
    assert q.qsize() == 1
    q.shutdown(True)
    assert q.qsize() == 0


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("timeout", [None, PATIENCE_S])
def test_who_waits_to_get_is_told_of_a_shutdown(shut: Make, immediate: bool, timeout: float | None) -> None:
    q = shut()
    gets = [Call(q.get, True, timeout) for _ in range(3)]
    assert gets[-1].is_blocked()
    at = time.monotonic()
    q.shutdown(immediate)
    for get in gets:
        with pytest.raises(stdlib.ShutDown):
            get.result()
        assert get.returned_at() - at < PROMPT_S


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("timeout", [None, PATIENCE_S])
def test_who_waits_to_put_is_told_of_a_shutdown(shut: Make, immediate: bool, timeout: float | None) -> None:
    q = shut(1)
    q.put("a")
    puts = [Call(q.put, "b", True, timeout) for _ in range(3)]
    assert puts[-1].is_blocked()
    at = time.monotonic()
    q.shutdown(immediate)
    for put in puts:
        with pytest.raises(stdlib.ShutDown):
            put.result()
        assert put.returned_at() - at < PROMPT_S
    assert q.qsize() == (0 if immediate else 1)


@every_kind
def test_a_shutdown_among_many_threads_loses_and_leaves_nothing(shut: Make) -> None:
    """What was put before is got; nobody who saw the end leaves an item behind."""
    q = shut(4)
    put: list[int] = []
    got: list[int] = []

    def produce(start: int) -> None:
        for n in range(start, start + 1000):
            try:
                q.put(n)
            except stdlib.ShutDown:
                return
            put.append(n)

    def consume() -> None:
        while True:
            try:
                got.append(q.get())
            except stdlib.ShutDown:
                return
            q.task_done()

    calls = [Call(consume), Call(consume), Call(produce, 0), Call(produce, 10_000)]
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < 30 and time.monotonic() < deadline:
        time.sleep(0.001)
    q.shutdown()
    for call in calls:
        call.result()
    assert sorted(got) == sorted(put)
    assert len(put) >= 30
    Call(q.join).result()
