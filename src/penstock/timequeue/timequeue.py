"""Owns TimeQueue, the queue as a program sees it: put, get, ack, and a look inside. Each call is one client's own act."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import msgspec

from penstock.errors import Misuse, QueueEmpty, QueueFull
from penstock.message import Message
from penstock.store import layout as L
from penstock.store.files import Clock, create_directory
from penstock.store.kernel import initialise
from penstock.store.words import Words
from penstock.timequeue.browsing import browse
from penstock.timequeue.clients import Client, body_name
from penstock.timequeue.leases import Consumer
from penstock.timequeue.puts import Draft, Entry, Producer, entry

DURABILITIES = ("commit", "relaxed")
PURGED_A_TURN_MAX = 256

SLOTS = 65_536
DATA_BYTES = 64 << 20
SPILL_BYTES = 256 << 10
LEASE_S = 60.0
BUSY_S = 10.0

__all__ = ["Draft", "MessageIds", "Stats", "TimeQueue", "create", "open_queue"]


class Stats(msgspec.Struct, frozen=True):
    """What a queue holds and has done. Counts are exact at the moment they were taken."""

    path: str
    uuid: str
    waiting: int
    ready: int
    timed: int
    pending: int
    filling: int
    vacant: int
    slots: int
    data_bytes: int
    used_bytes: int
    spilled_bytes: int
    depth_max: int
    puts: int
    gets: int
    acks: int
    releases: int
    expired: int
    returned: int
    cancels: int
    abandoned: int
    spills: int
    repairs: int
    next_due_at: float | None
    clients: list[dict[str, int]]


class MessageIds(Sequence[str]):
    """The ids of a batch, in order. Made when looked at: a batch of a thousand seldom needs a thousand strings."""

    def __init__(self, prefix: str, slots_and_numbers: list[tuple[int, int]]) -> None:
        self._prefix = prefix
        self._pairs = slots_and_numbers

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> MessageIds: ...
    def __getitem__(self, index: int | slice) -> str | MessageIds:
        if isinstance(index, slice):
            return MessageIds(self._prefix, self._pairs[index])
        slot, number = self._pairs[index]
        return f"{self._prefix}{slot:x}-{number:x}"

    def __repr__(self) -> str:
        return f"<MessageIds of {len(self)}>"


def _seconds(name: str, value: float, *, zero: bool = True) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise Misuse(f"{name} must be a number of seconds, not {value!r}")
    if not zero and value == 0:
        raise Misuse(f"{name} must be more than 0 seconds")
    return min(value, 1e9)


class TimeQueue:
    """A queue in a directory, shared by any number of threads and processes.

    >>> q = create(path)
    >>> q.put("hello")  # doctest: +ELLIPSIS
    '...'
    >>> with q.get(timeout=1) as message:
    ...     print(message.body)
    hello
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_s: float = BUSY_S, clock: Clock | None = None) -> None:
        self._path = Path(os.path.abspath(path))
        self._busy_s = _seconds("busy_s", busy_s)
        self._clock = clock or Clock()
        self._closed = False
        self._open()
        _opened.add(self)

    def _open(self) -> None:
        client = Client(self._path, clock=self._clock, busy_s=self._busy_s)
        self._client: Client | None = client
        self._producer = Producer(client)
        self._consumer = Consumer(client, self)
        self._lease_s = float(client.options["lease_s"])
        self._sync = client.options["durability"] == "commit"
        client.turn(_sweep_bodies, client)

    def _mine(self) -> Client:
        """Our client; after a fork, a new one."""
        if self._client is None:
            if self._closed:
                raise Misuse(f"{self.name}: this queue object is closed")
            self._open()
        assert self._client is not None
        return self._client

    # ------------------------------------------------------------ putting

    def put(
        self,
        body: Any,
        *,
        deliver_at: float | datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int = 0,
        type: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        durability: str | None = None,
    ) -> str:
        """Put a message; when this returns it is confirmed. Its id.

        ``QueueFull`` at once if there is no room, or when there was none for ``timeout`` seconds.

        >>> q = create(path)
        >>> id = q.put({"order": 7}, delay=0.01, priority=3, type="order", key="example.com", headers={"a": "b"})
        >>> message = q.get(timeout=1)
        >>> message.body, message.priority, message.key, message.id == id
        ({'order': 7}, 3, 'example.com', True)
        """
        now_us = self._clock.wall_us()
        item = entry(body, now_us, deliver_at, delay, priority, type, key, headers)
        self._put([item], timeout, durability)
        return f"{self._mine().id_prefix}{item.slot:x}-{item.number:x}"

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        deliver_at: float | datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int = 0,
        type: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        durability: str | None = None,
    ) -> MessageIds:
        """Put all of them or none. A ``Draft`` among the bodies brings its own options.

        >>> q = create(path)
        >>> ids = q.put_many([b"a", Draft(body=b"b", priority=9)])
        >>> [m.body for m in q.get_many(10)]
        [b'b', b'a']
        """
        now_us = self._clock.wall_us()
        items = []
        for body in bodies:
            if body.__class__ is Draft:
                items.append(
                    entry(
                        body.body, now_us, body.deliver_at, body.delay, body.priority, body.type, body.key, body.headers
                    )
                )
            else:
                items.append(entry(body, now_us, deliver_at, delay, priority, type, key, headers))
        if items:
            self._put(items, timeout, durability)
        return MessageIds(self._mine().id_prefix, [(item.slot, item.number) for item in items])

    def _put(self, items: list[Entry], timeout: float | None, durability: str | None) -> None:
        self._mine()
        sync = self._sync
        if durability is not None:
            if durability not in DURABILITIES:
                raise Misuse(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
            sync = durability == "commit"
        try:
            self._producer.put(items, sync=sync)
        except QueueFull:
            if timeout is None:
                raise
            self._put_when_room(items, _seconds("timeout", timeout), sync)

    def _put_when_room(self, items: list[Entry], timeout: float, sync: bool) -> None:
        client = self._mine()
        deadline = time.monotonic() + timeout
        while True:
            # Armed before it tries again: whoever makes room after this turn rings, whoever did before is seen.
            seen = client.turn(client.kernel.arm, L.H_ROOM)
            try:
                self._producer.put(items, sync=sync)
                return
            except QueueFull:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise
            # A dead producer's room comes back when somebody looks.
            client.turn(client.return_from_dead)
            client.producers.sleep(seen, min(left_s, 1.0))

    # ------------------------------------------------------------ getting

    def get(self, timeout: float | None = None, *, block: bool = True, lease: float | None = None) -> Message:
        """The next message that is due; waits for one, up to ``timeout`` seconds, then raises ``QueueEmpty``.

        It is ours for ``lease`` seconds; then, or when this process dies, somebody else gets it.
        """
        found = self._receive(1, (0.0 if not block else None if timeout is None else _seconds("timeout", timeout)), lease)
        if not found:
            raise QueueEmpty(self.name)
        return found[0]

    def get_many(self, most: int, *, wait: float = 0.0, lease: float | None = None) -> list[Message]:
        """Up to ``most`` messages that are due, as soon as there is one; none after ``wait`` seconds: an empty list."""
        if most.__class__ is not int or most < 1:
            raise Misuse(f"the number of messages must be a whole number above 0, not {most!r}")
        return self._receive(most, _seconds("wait", wait), lease)

    def _receive(self, most: int, wait_s: float | None, lease: float | None) -> list[Message]:
        client = self._mine()
        lease_us = int((self._lease_s if lease is None else _seconds("lease", lease, zero=False)) * 1_000_000)
        deadline = None if wait_s is None or wait_s == 0 else time.monotonic() + wait_s
        timed_out: int | None = None
        left_s = wait_s
        while True:
            look = client.turn(self._consumer.look, most, lease_us, left_s, timed_out)
            if look.deliveries:
                found = self._consumer.messages(look)
                if found:
                    return found
            elif left_s == 0:
                return []
            else:
                timed_out = None if client.receivers.sleep(look.seen, look.sleep_s) else look.seen
            if deadline is not None:
                left_s = max(deadline - time.monotonic(), 0.0)

    # ------------------------------------------------------------ what becomes of a delivery

    def ack(self, message: Message) -> None:
        """Done with it: it leaves the queue. ``LeaseLost`` if it is not ours any more."""
        self._mine().turn(self._consumer.ack, (message,))

    def ack_many(self, messages: Iterable[Message]) -> None:
        """All that are still ours; then ``LeaseLost`` if one was not."""
        self._mine().turn(self._consumer.ack, list(messages))

    def release(self, message: Message, *, delay: float | timedelta | None = None) -> None:
        """Give it back: to its old place, or after ``delay``."""
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0.0
        self._mine().turn(self._consumer.release, message, int(_seconds("delay", seconds) * 1_000_000))

    def extend(self, message: Message, seconds: float) -> None:
        """Keep it for ``seconds`` from now."""
        self._mine().turn(self._consumer.extend, message, int(_seconds("seconds", seconds, zero=False) * 1_000_000))

    # ------------------------------------------------------------ a look inside

    def browse(self, *, state: str = "waiting", limit: int | None = None) -> Iterator[Message]:
        """Messages without taking them, in the order of delivery: "waiting", "pending" or "all".

        What is put, taken or removed meanwhile may or may not be seen; nothing is seen twice.
        """
        if state not in ("waiting", "pending", "all"):
            raise Misuse(f"state must be waiting, pending or all, not {state!r}")
        return browse(self._mine(), self._consumer, state=state, limit=limit)

    def cancel(self, message_id: str) -> bool:
        """Remove a waiting message. False if it is not waiting: unknown, gone, or with a receiver."""
        slot, number = self.parse_id(message_id)
        client = self._mine()
        return client.turn(_cancel, client, slot, number)

    def purge(self) -> int:
        """Remove every waiting message that was there when this was called; how many."""
        client = self._mine()
        limit = client.kernel.get(L.H_NUMBER_NEXT)
        removed = 0
        while True:
            more, last = client.turn(_purge, client, limit)
            removed += more
            if last:
                return removed

    def qsize(self) -> int:
        """Waiting messages, due or not."""
        return self._mine().kernel.get(L.H_WAITING)

    def stats(self) -> Stats:
        client = self._mine()
        return client.turn(_stats, client)

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def closed(self) -> bool:
        return self._closed

    def message_id(self, slot: int, number: int) -> str:
        return f"{self._mine().id_prefix}{slot:x}-{number:x}"

    def parse_id(self, message_id: str) -> tuple[int, int]:
        try:
            tag, slot, number = message_id.split("-")
            found = int(slot, 16), int(number, 16)
        except (ValueError, AttributeError):
            raise Misuse(f"{message_id!r} is not a message id") from None
        if tag + "-" != self._mine().id_prefix:
            raise Misuse(f"{message_id} is a message of another queue than {self.name}")
        return found

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give back what was got and not acknowledged, and leave the queue. Closing twice is fine."""
        if self._closed:
            return
        client = self._client
        if client is not None:
            client.close()
        self._closed = True
        self._client = None

    def __enter__(self) -> TimeQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TimeQueue {self.name}{' (closed)' if self._closed else ''}>"

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None and not client.closed:
            with contextlib.suppress(Exception):  # a half-made object at interpreter exit; the system frees the rest
                client.forget()


# ---------------------------------------------------------------- turns


def _cancel(client: Client, slot: int, number: int) -> bool:
    kernel = client.kernel
    if slot >= kernel.slots or kernel.number(slot) != number or kernel.state(slot) != L.STATE_WAITING:
        return False
    _remove(client, [slot])
    return True


def _purge(client: Client, limit: int) -> tuple[int, bool]:
    """One turn's worth of waiting messages below number ``limit``; how many, and whether that was all."""
    order = client.kernel.order
    found: list[int] = []
    for which in range(L.LIST_LEASES):
        slot = order.head(which)
        while slot and len(found) < PURGED_A_TURN_MAX:
            if client.kernel.number(slot) < limit:
                found.append(slot)
            slot = order.follower(which, 0, slot)
    _remove(client, found)
    return len(found), len(found) < PURGED_A_TURN_MAX


def _remove(client: Client, slots: list[int]) -> None:
    kernel = client.kernel
    bodies = []
    for slot in slots:
        if kernel.field(slot, L.S_INFO) >> L.FLAGS_SHIFT & L.FLAG_SPILLED:
            place = kernel.field(slot, L.S_PLACE)
            data = client.files.read(place >> L.PLACE_SHIFT, place & L.PLACE_MASK)
            kernel.spill(-L.SPILL.unpack_from(data, L.RECORD_BYTES + L.RECORD.unpack_from(data)[8])[0])
            bodies.append(body_name(kernel.number(slot), slot))
        kernel.cancel(slot)
    kernel.commit()
    for name in bodies:
        client.files.remove_body(name)


def _sweep_bodies(client: Client) -> None:
    """Bodies whose message is gone: whoever removed it died before the file was."""
    for name in client.files.body_names():
        number, _, slot = name.partition("-")
        at = int(slot, 16)
        kernel = client.kernel
        if at >= kernel.slots or kernel.number(at) != int(number, 16) or kernel.state(at) <= L.STATE_VACANT:
            client.files.remove_body(name)


def _stats(client: Client) -> Stats:
    get = client.kernel.get
    stats_at = get(L.H_STATS_AT)
    order = client.kernel.order
    waiting, pending, filling = get(L.H_WAITING), get(L.H_PENDING), get(L.H_FILLING)
    slots = get(L.H_SLOTS) - 1 - get(L.H_FILES)
    due_us = client.kernel.next_due_us()
    return Stats(
        path=client.name,
        uuid=client.options["uuid"],
        waiting=waiting,
        ready=sum(order.count(L.LIST_READY + p) for p in range(L.PRIORITIES)),
        timed=sum(order.count(L.LIST_TIMED + p) for p in range(L.PRIORITIES)),
        pending=pending,
        filling=filling,
        vacant=slots - waiting - pending - filling,
        slots=slots,
        data_bytes=get(L.H_DATA_UNITS) * L.UNIT_BYTES,
        used_bytes=get(L.H_USED_UNITS) * L.UNIT_BYTES,
        spilled_bytes=get(L.H_SPILLED_BYTES),
        depth_max=get(stats_at + L.T_DEPTH_MAX),
        puts=get(stats_at + L.T_PUTS),
        gets=get(stats_at + L.T_GETS),
        acks=get(stats_at + L.T_ACKS),
        releases=get(stats_at + L.T_RELEASES),
        expired=get(stats_at + L.T_EXPIRED),
        returned=get(stats_at + L.T_RETURNED),
        cancels=get(stats_at + L.T_CANCELS),
        abandoned=get(stats_at + L.T_ABANDONED),
        spills=get(stats_at + L.T_SPILLS),
        repairs=get(stats_at + L.T_REPAIRS),
        next_due_at=due_us / 1e6 if due_us else None,
        clients=client.living(),
    )


# ---------------------------------------------------------------- making and opening


def _whole(name: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misuse(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def create(
    path: str | os.PathLike[str],
    *,
    slots: int = SLOTS,
    data_bytes: int = DATA_BYTES,
    spill_bytes: int = SPILL_BYTES,
    lease: float = LEASE_S,
    durability: str = "commit",
    data_dirs: Sequence[str | os.PathLike[str]] = (),
    kernel_dir: str | os.PathLike[str] | None = None,
    busy_s: float = BUSY_S,
    clock: Clock | None = None,
    progress: Callable[[int], None] | None = None,
) -> TimeQueue:
    """Make a queue and open it. Its sizes are its bounds: a full queue rejects, it never grows.

    ``slots`` is how many messages it holds at most, ``data_bytes`` how much room their records have together. With
    ``data_dirs`` the data is spread over a file in each of these directories, as on disks of their own.
    """
    files = max(len(data_dirs), 1)
    _whole("slots", slots, 1, L.SLOTS_MAX)
    _whole("spill_bytes", spill_bytes, 0, (L.UNITS_MAX - 1024) * L.UNIT_BYTES)
    _whole("data_bytes", data_bytes, files * L.PAGE_BYTES, 1 << 46)
    _seconds("lease", lease, zero=False)
    if durability not in DURABILITIES:
        raise Misuse(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    if files > L.FILES_MAX:
        raise Misuse(f"at most {L.FILES_MAX} data_dirs are possible, not {files}")
    where = Path(os.path.abspath(path))
    share = -(-data_bytes // files // L.PAGE_BYTES) * L.PAGE_BYTES
    file_bytes = [share] * files
    identity = uuid.uuid4()
    header = L.regions(slots + 1 + files)
    header[L.H_UUID] = identity.int & L.MASK64
    header[L.H_UUID + 1] = identity.int >> 64
    options: dict[str, Any] = {
        "penstock": L.FORMAT,
        "uuid": str(identity),
        "secret": secrets.token_hex(8),
        "slots": slots,
        "data_bytes": share * files,
        "spill_bytes": spill_bytes,
        "lease_s": lease,
        "durability": durability,
        "kernel_bytes": header[L.H_KERNEL_BYTES],
        "kernel_dir": os.fspath(kernel_dir) if kernel_dir is not None else None,
    }

    def fill(mapping: Any) -> None:
        words = Words(mapping, str(where))
        initialise(words, header, [size // L.UNIT_BYTES for size in file_bytes])
        words.close()

    create_directory(
        where, options, fill, data_dirs=[Path(d) for d in data_dirs], file_bytes=file_bytes, progress=progress
    )
    return TimeQueue(where, busy_s=busy_s, clock=clock)


def open_queue(path: str | os.PathLike[str], *, busy_s: float = BUSY_S, clock: Clock | None = None) -> TimeQueue:
    """Open a queue that exists. ``busy_s`` is how long a call may wait for the queue's lock before ``QueueBusy``."""
    return TimeQueue(path, busy_s=busy_s, clock=clock)


# ---------------------------------------------------------------- fork: the child has no part in its parent's clients

_opened: weakref.WeakSet[TimeQueue] = weakref.WeakSet()
_forking: list[tuple[TimeQueue, Client]] = []


def _before_fork() -> None:
    for queue in list(_opened):
        client = queue._client
        if client is not None:
            client.mutex.acquire()  # so that no thread is in a turn when the memory is copied
            _forking.append((queue, client))


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop()[1].mutex.release()


def _after_fork_in_child() -> None:
    while _forking:
        queue, client = _forking.pop()
        client.forget()
        queue._client = None


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
