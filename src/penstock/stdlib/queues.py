"""Owns Queue and JoinableQueue, a queue directory behind the calls of the standard library's queues.

Decides when a put may go in (room, shutdown), what a get waits for, and what a ``task_done`` means. All state that
processes share is the queue's own and its session's; nothing is counted here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from queue import Empty, Full
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from penstock.errors import Misuse, PenstockError, QueueClosed, QueueExists, QueueFull, QueueNotFound
from penstock.message import DONE, Message
from penstock.stdlib.hand import Hand
from penstock.stdlib.items import read_whole, to_entry, to_item
from penstock.store import layout as L
from penstock.store.kernel import Kernel
from penstock.store.sessions import Session
from penstock.timequeue.arguments import BUSY_S, check_durability
from penstock.timequeue.clients import Client
from penstock.timequeue.leases import Look
from penstock.timequeue.making import DATA_BYTES, SLOTS
from penstock.timequeue.opening import create, open_queue
from penstock.timequeue.puts import Entry
from penstock.timequeue.timequeue import TimeQueue

if sys.version_info >= (3, 13):
    from queue import ShutDown
else:

    class ShutDown(Exception):
        """Raised when put/get with shut-down queue."""


Item = TypeVar("Item")

log = logging.getLogger("penstock")

LEASE_US = 10**15  # thirty years: an item returns when its process ends, and not because the work takes long
DAMAGED_US = 60_000_000  # one whose record cannot be read is tried again after this
SLOTS_MAX = 1 << 20  # made for a maxsize, however large: 128 MiB of kernel; a put waits where that is not enough
SLEEP_S_MAX = 1.0  # every wake-up is a hint
FILLING_PAUSE_S = 0.001
JOIN_PAUSE_S = 0.00001  # for each item that is left: about what others need for it
JOIN_PAUSE_S_MAX = 0.01

NEGATIVE = "'timeout' must be a non-negative number"
TOO_OFTEN = "task_done() called too many times"


class Gate:
    """Whether one more item may go in. Asked under the queue's lock, so that no two are let in for one place, and none
    after a shutdown."""

    def __init__(self, kernel: Kernel, session: Session, maxsize: int) -> None:
        self._kernel = kernel
        self._session = session
        self._maxsize = maxsize

    def __call__(self) -> None:
        if self._session.is_shut_down():
            raise ShutDown
        # What is being filled has its place already.
        if 0 < self._maxsize <= self._kernel.get(L.H_WAITING) + self._kernel.get(L.H_FILLING):
            raise Full


class Queue(Generic[Item]):
    """``queue.Queue`` on a directory, which is made if there is none.

    >>> from penstock.stdlib import Queue
    >>> q = Queue(path, maxsize=2)
    >>> q.put({"order": 7}); q.put((1, 2)); q.full()
    True
    >>> q.get(), q.get()
    ({'order': 7}, (1, 2))
    >>> q.task_done(); q.task_done(); q.join()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        maxsize: int = 0,
        *,
        durability: str = "relaxed",
        done_by: Literal["task_done", "get"] = "task_done",
        allow_pickle: bool = True,
        make: bool = True,
        slots: int | None = None,
        data_bytes: int = DATA_BYTES,
        busy_s: float = BUSY_S,
    ) -> None:
        """``maxsize`` holds for the puts of this object. ``slots`` and ``data_bytes`` are the sizes of a queue that is
        made (``make``): how many items it holds at most, those in hand included, and how much room they have."""
        check_durability(durability)
        if done_by not in ("task_done", "get"):
            raise Misuse(f"done_by must be task_done or get, not {done_by!r}")
        self.maxsize = maxsize
        self._durability = durability
        self._done_by = done_by
        self._allow_pickle = allow_pickle
        self._busy_s = busy_s
        self._hand = Hand()
        self._removed = threading.Semaphore(0)  # with done_by="get": for these task_done may still be called
        self._warned = False
        if slots is None:
            slots = min(max(SLOTS, 2 * maxsize), SLOTS_MAX)
        self._queue = _open(path, make, busy_s, slots=slots, data_bytes=data_bytes, durability=durability)
        try:
            self._session = Session(self._queue.path, busy_s=busy_s)
        except BaseException:
            self._queue.close()
            raise
        _opened.add(self)

    # ------------------------------------------------------------ putting

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an item; if there is no room, wait for it, or raise ``Full``: at once, or after ``timeout`` seconds."""
        self._check_open()
        if block and timeout is not None and timeout < 0 and self.maxsize > 0:
            raise ShutDown if self.is_shutdown else ValueError(NEGATIVE)
        entry = to_entry(item, allow_pickle=self._allow_pickle)
        try:
            self._put(entry)
            return
        except Full as full:
            if not block:
                raise
            self._say_why(full)
        self._put_when_room(entry, None if timeout is None else time.monotonic() + timeout)

    def put_nowait(self, item: Item) -> None:
        self.put(item, block=False)

    def _put(self, entry: Entry) -> None:
        client = self._queue._mine()
        producer = self._queue._producer
        if producer.admit is None:  # a new one, also after a fork
            producer.admit = Gate(client.kernel, self._session, self.maxsize)
        producer.put([entry], self._durability == "commit", True)

    def _put_when_room(self, entry: Entry, deadline: float | None) -> None:
        while True:
            client = self._queue._mine()
            # Armed before it tries again: whoever makes room after this turn rings, whoever did before is seen.
            seen = client.turn(client.kernel.sleepers.arm, L.H_ROOM)
            try:
                self._put(entry)
                return
            except Full:
                left_s = SLEEP_S_MAX if deadline is None else deadline - time.monotonic()
                if left_s <= 0:
                    raise
            client.turn(client.return_from_dead)  # a dead producer's room comes back when somebody looks
            client.producers.sleep(seen, min(left_s, SLEEP_S_MAX))

    def _say_why(self, full: Full) -> None:
        """``maxsize`` is what the caller asked for; the end of the directory's room may come as a surprise."""
        if isinstance(full, QueueFull) and not self._warned:
            self._warned = True
            log.warning("%s; put waits; %d items were got and not marked with task_done()", full, len(self._hand))

    # ------------------------------------------------------------ getting

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """The next item; if there is none, wait for it, or raise ``Empty``: at once, or after ``timeout`` seconds.

        If it cannot be unpickled here, that error is raised, and the item counts as got: ``task_done`` drops it, else
        it is back when this process ends.
        """
        self._check_open()
        if block and timeout is not None and timeout < 0:
            raise ShutDown if self._is_over(self._queue._mine()) else ValueError(NEGATIVE)
        message = self._take(timeout if block else 0.0)
        read_whole(message)
        if self._done_by == "task_done":
            self._hand.add(message)
        self._tell_room()
        item: Item = to_item(message, allow_pickle=self._allow_pickle)
        if self._done_by == "get":
            self._queue.ack(message)
            self._removed.release()
        return item

    def get_nowait(self) -> Item:
        return self.get(block=False)

    def _take(self, left_s: float | None) -> Message:
        deadline = None if left_s is None else time.monotonic() + left_s
        timed_out: int | None = None
        while True:
            client = self._queue._mine()
            look = self._queue._consumer.look(1, LEASE_US, left_s, timed_out)
            timed_out = None
            if look.deliveries:
                found = self._queue._consumer.messages(_with_lease(look, DAMAGED_US))
                if found:
                    return found[0]
            elif not look.again:
                if self._is_over(client):  # looked at after arming: a shutdown from here on rings
                    raise ShutDown
                if left_s == 0:
                    raise Empty
                timed_out = None if client.receivers.sleep(look.seen, look.sleep_s) else look.seen
            if deadline is not None:
                left_s = max(deadline - time.monotonic(), 0.0)

    def _tell_room(self) -> None:
        """Who waits to put has armed before it looked, so that whoever we do not see here sees that we have taken."""
        client = self._queue._mine()
        if client.kernel.get(L.H_ROOM_SLEEPERS):
            with contextlib.suppress(PenstockError):  # a hint: they look by themselves within a second
                client.turn(client.kernel.tell, 0)

    def _is_over(self, client: Client) -> bool:
        """Shut down, with nothing left to get. A put that was let in before the shutdown may still be on its way."""
        return self._session.is_shut_down() and client.turn(_count, client.kernel, (L.H_WAITING, L.H_FILLING)) == 0

    # ------------------------------------------------------------ tasks

    def task_done(self) -> None:
        """An item that this process got is finished, and leaves the queue. ``ValueError`` if there is none."""
        if self._done_by == "get":
            if not self._removed.acquire(blocking=False):
                raise ValueError(TOO_OFTEN)
            return
        taken = self._hand.take()
        if taken is None:
            raise ValueError(TOO_OFTEN)
        try:
            self._queue.ack(taken[1])
        except BaseException:
            if taken[1].state != DONE:
                self._hand.put_back(taken)
            raise

    def join(self) -> None:
        """Wait until every item that was put has been marked done, in whichever process."""
        while True:
            client = self._queue._mine()
            left, seen = client.turn(_arm_unless_done, client.kernel)
            if not left:
                return
            client.producers.sleep(seen, SLEEP_S_MAX)
            time.sleep(min(left * JOIN_PAUSE_S, JOIN_PAUSE_S_MAX))  # every item that is done rings

    @property
    def unfinished_tasks(self) -> int:
        client = self._queue._mine()
        return client.turn(_count, client.kernel, UNFINISHED)

    # ------------------------------------------------------------ shutdown

    def shutdown(self, immediate: bool = False) -> None:
        """As in Python 3.13: no more puts, and gets only of what is left; with ``immediate`` that is removed, too."""
        client = self._queue._mine()
        client.turn(self._shut, client.kernel)
        if immediate:
            self._let_in(client)
            self._queue.purge()
            client.turn(client.kernel.tell, L.MASK32)

    def _shut(self, kernel: Kernel) -> None:
        self._session.shut_down()
        kernel.tell(L.MASK32)

    def _let_in(self, client: Client) -> None:
        """Puts that were let in before the shutdown get in, or are given up, soon: unless their process is stopped."""
        deadline = time.monotonic() + self._busy_s
        while client.kernel.get(L.H_FILLING) and time.monotonic() < deadline:
            client.turn(client.return_from_dead)
            time.sleep(FILLING_PAUSE_S)

    @property
    def is_shutdown(self) -> bool:
        self._queue._mine()
        return self._session.is_shut_down()

    # ------------------------------------------------------------ sizes

    def qsize(self) -> int:
        """Items that nobody has got yet, of all processes."""
        return self._queue.qsize()

    def empty(self) -> bool:
        return not self.qsize()

    def full(self) -> bool:
        """Whether ``maxsize`` is reached."""
        return 0 < self.maxsize <= self.qsize()

    # ------------------------------------------------------------ the end

    @property
    def path(self) -> Path:
        return self._queue.path

    def close(self) -> None:
        """Leave the queue. What was got and not marked done is back at once. Closing twice is fine."""
        self._queue.close()
        self._session.close()
        self._hand = Hand()

    def _check_open(self) -> None:
        """``QueueClosed`` comes from the queue itself."""

    def _after_fork(self) -> None:
        """In the child: what the parent has in hand is the parent's."""
        self._hand = Hand()
        self._removed = threading.Semaphore(0)

    def __enter__(self) -> Queue[Item]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as another one on the same queue: what multiprocessing needs."""
        if self._queue.closed:
            raise QueueClosed(f"{self._queue.name}: this queue object is closed")
        options = {
            "durability": self._durability,
            "done_by": self._done_by,
            "allow_pickle": self._allow_pickle,
            "busy_s": self._busy_s,
        }
        return _reopen, (type(self), self._queue.name, self.maxsize, options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._queue.name}{' (closed)' if self._queue.closed else ''}>"


class JoinableQueue(Queue[Item]):
    """``multiprocessing.JoinableQueue`` on a directory: give it to child processes, however they are started.

    There is no thread behind it: an item is in the queue when ``put`` returns, so that there is nothing to join.
    """

    _left = False

    def close(self) -> None:
        """No more puts and gets by this process. ``task_done`` and ``join`` go on."""
        self._left = True

    def join_thread(self) -> None:
        assert self._left, f"Queue {self!r} not closed"

    def cancel_join_thread(self) -> None:
        """Nothing is ever waited for at exit."""

    def _check_open(self) -> None:
        if self._left:
            raise ValueError(f"Queue {self!r} is closed")

    def _after_fork(self) -> None:
        super()._after_fork()
        self._left = False


def _with_lease(look: Look, lease_us: int) -> Look:
    return Look(look.deliveries, look.now_us, lease_us, look.seen, look.sleep_s, look.again)


# ---------------------------------------------------------------- under the lock

UNFINISHED = (L.H_WAITING, L.H_PENDING, L.H_CLAIMED)


def _count(kernel: Kernel, words: tuple[int, ...]) -> int:
    return sum(kernel.get(word) for word in words)


def _arm_unless_done(kernel: Kernel) -> tuple[int, int]:
    """How many are unfinished; and, if any are, the bell's value to sleep with: an acknowledgement rings it."""
    left = _count(kernel, UNFINISHED)
    return left, kernel.sleepers.arm(L.H_ROOM) if left else 0


# ---------------------------------------------------------------- opening, and forks


def _open(path: str | os.PathLike[str], make: bool, busy_s: float, **sizes: Any) -> TimeQueue:
    try:
        return open_queue(path, busy_s=busy_s)
    except QueueNotFound:
        if not make:
            raise
    try:
        return create(path, busy_s=busy_s, **sizes)
    except QueueExists:  # another one was quicker
        return open_queue(path, busy_s=busy_s)


def _reopen(kind: type[Queue[Any]], path: str, maxsize: int, options: dict[str, Any]) -> Queue[Any]:
    return kind(path, maxsize, make=False, **options)


_opened: weakref.WeakSet[Queue[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for queue in list(_opened):
        queue._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
