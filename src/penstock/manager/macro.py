"""Owns MacroQueue, several queues as one, as a program sees it: the calls of ``penstock.Queue``. Which member a message
goes to is ``sending.py``'s, which one it comes from ``receiving.py``'s. Messages are those of the members: what
becomes of one is a matter of the queue that it is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, Unpack

from penstock.errors import (
    BodyTooLarge,
    Misuse,
    NotAQueue,
    PenstockError,
    QueueClosed,
    QueueEmpty,
    QueueFull,
    QueueNotFound,
    TooManyClients,
)
from penstock.interface import Delay, MessageOptions, Names
from penstock.manager.copies import Copies
from penstock.manager.directory import read_noted
from penstock.manager.finishing import Finishing
from penstock.manager.inside import Inside
from penstock.manager.localmember import LocalMember
from penstock.manager.members import Asked, Group, Leaf, Members
from penstock.manager.membership import MACRO
from penstock.manager.questions import Questions
from penstock.manager.receiving import TEND_S, Receiving
from penstock.manager.sending import Route, Sending
from penstock.message import Message
from penstock.store import layout as L
from penstock.store.files import CLIENTS, ClientBytes, Clock
from penstock.timequeue import QueueConsumer, TimeQueue, coroutines, forking
from penstock.timequeue import groups as known_groups
from penstock.timequeue.arguments import BUSY_S, check_most, check_names, check_seconds, check_several, queue_path
from penstock.timequeue.asyncgets import AsyncGets, in_thread
from penstock.timequeue.clients import Progress
from penstock.timequeue.consumers import PREFETCH
from penstock.timequeue.handles import Handle
from penstock.timequeue.ids import MessageIds
from penstock.timequeue.models import way_of
from penstock.timequeue.puts import Draft

LEASE_US = 60_000_000  # where there are no members to say


class MacroQueue(Finishing, Inside):
    """A macro queue of this process, until it is closed; it can be used by any number of threads and coroutines.

    A manager opens one by its name; ``MacroQueue(path)`` opens the one in a directory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_s: float = BUSY_S,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._path = Path(os.path.abspath(queue_path(path)))
        self._busy_s = check_seconds("busy_s", busy_s)
        self._clock = clock or Clock()
        self._progress = progress
        if not self._path.exists():
            raise QueueNotFound(f"{self._path}: there is no macro queue here")
        if read_noted(self._path).kind != MACRO:
            raise NotAQueue(f"{self._path}: not a macro queue; penstock.open opens a queue of its own")
        self._closed = False
        self._async_gets = AsyncGets()
        self._here: ClientBytes | None = None
        self._enter()
        try:
            self._members = Members(self._path, self._open_member)
            self._consumer = Receiving(self.name, self._members, self._clock, self._finish_copies)
            self._sending = Sending(self.name, self._members, self._consumer.alarm, self._consumer.watch)
            self._questions = Questions(
                self.name,
                self._sending,
                queue_of=lambda route: _queue(route.leaves[0]),
                copy=self._copy,
                mine=self._mine,
                now_us=self._clock.wall_us,
            )
            self._copies: dict[tuple[str, str], Copies] = {}
            self._look_at_s = 0.0
            self._mine()
        except BaseException:
            self._leave()
            raise
        forking.note(self)

    # ------------------------------------------------------------ open and closed

    def _open_member(self, path: Path) -> LocalMember:
        return LocalMember(TimeQueue(path, busy_s=self._busy_s, clock=self._clock, progress=self._progress))

    def _enter(self) -> None:
        """One byte for each that has it open: nobody renames or destroys it meanwhile."""
        here = ClientBytes(self._path / CLIENTS)
        for client in range(L.CLIENTS):
            if here.take(client):
                self._here = here
                return
        here.close()
        raise TooManyClients(self.name, limit=L.CLIENTS)

    def _leave(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            here.close()

    def _mine(self) -> Group:
        """The members as they are now; after a fork, ours."""
        members, now_s = self._members, time.monotonic()
        if now_s < self._look_at_s and members.words[0] == members.seen and self._here is not None:
            return members.root
        if self._closed:
            raise QueueClosed(f"{self.name}: this queue object is closed")
        if self._here is None:  # in the child of a fork
            self._enter()
        group = self._members.current()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + TEND_S
            self._consumer.tend(now_s)
        return group

    def _finish_copies(self, group: Group) -> None:
        """What one that was killed has decided and not done."""
        for each in group.groups():
            copies = self._copies_of(each)
            if copies.is_unfinished():
                copies.finish([leaf.member.queue for leaf in self._members.leaves if leaf.member is not None])

    def _copies_of(self, group: Group) -> Copies:
        """By its UUID too: one that was destroyed and made anew is another publisher."""
        key = group.name, group.uuid
        return self._copies.setdefault(key, Copies(group.path, group.uuid, busy_s=self._busy_s))

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def members(self) -> list[str]:
        """The names of its members, as it has them now; those of macro queues among them by their own members."""
        self._mine()
        return [leaf.name for leaf in self._members.leaves]

    def close(self) -> None:
        """Give back what was got and not acknowledged, and leave all members. Closing twice is fine."""
        if self._closed:
            return
        self._questions.close()
        with contextlib.suppress(PenstockError, OSError):
            self._finish_copies(self._members.root)
        closing = True
        try:
            self._members.close()
        except Misuse:  # a put is under way: it cannot be closed now
            closing = False
            raise
        finally:
            if closing:
                self._closed = True
                self._leave()
                self._consumer.alarm.close()
                self._async_gets.close(QueueClosed(f"{self.name}: this queue object is closed"))

    def _after_fork_in_child(self) -> None:
        """Its members take care of themselves."""
        self._leave()
        self._async_gets.disown()
        self._async_gets = AsyncGets()
        self._members.after_fork_in_child()
        self._consumer.after_fork_in_child()
        self._questions.after_fork_in_child()
        for copies in self._copies.values():
            copies.after_fork_in_child()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as another one of the same macro queue: what multiprocessing needs."""
        if self._closed:
            raise QueueClosed(f"{self.name}: this queue object is closed")
        return _reopen, (self.name, self._busy_s)

    def __repr__(self) -> str:
        return f"<MacroQueue {self.name}{' (closed)' if self._closed else ''}>"

    # ------------------------------------------------------------ putting

    def put(
        self,
        body: Any,
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        wait: bool = True,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """Put a message into the member, or the members, that ``producing`` says; its id, of the first copy.

        ``QueueFull`` if all of them are full, at once or for ``timeout`` seconds. Members that are full, that do not
        work or that are deactivated are passed over, unless it goes to all. ``model``, ``wait`` and ``reply_ttl`` as in
        ``TimeQueue.put``; what goes to all can have no answer.
        """
        if model is not None or wait is not True or reply_ttl is not None:
            way = way_of(model, wait, reply_ttl, durability)
            self._mine()
            return self._questions.put([Draft(body=body, **options)], way, timeout, several=False)

        group = self._mine()
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        first = group.first
        if first is not None and first.takes.error is None and first.active and "dedup_id" not in options:
            try:
                if durability is None and not options:
                    return _queue(first).put(body)
                return _queue(first).put(body, durability=durability, **options)
            except (PenstockError, OSError):
                pass  # what there is to say of it is found out below

        def into(route: Route) -> Any:
            if route.copies is None:
                return _queue(route.leaves[0]).put(body, durability=durability, **options)
            return self._copy(route, [Draft(body=body, **options)], durability)[0]

        return self._sending.put(into, seconds, options.get("dedup_id"))

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        wait: bool = True,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """Put all of them or none, all into the same member or members."""
        check_several("put_many", bodies, "; put takes one")
        items = list(bodies)
        if options.get("dedup_id") is not None:
            raise Misuse("a dedup_id is that of one message: give each a penstock.Draft with its own")
        if model is not None or wait is not True or reply_ttl is not None:
            way = way_of(model, wait, reply_ttl, durability)
            self._mine()
            if not items and wait:
                return []
            return self._questions.put(drafts_of(items, options), way, timeout, several=True)

        def into(route: Route) -> Any:
            if route.copies is None:
                return _queue(route.leaves[0]).put_many(items, durability=durability, **options)
            return self._copy(route, drafts_of(items, options), durability)

        self._mine()
        if not items:
            return MessageIds("", [])
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        first = next((item.dedup_id for item in items if isinstance(item, Draft) and item.dedup_id), None)
        return self._sending.put(into, seconds, first)

    def put_file(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        timeout: float | None = None,
        durability: str | None = None,
        progress: Callable[[int, int | None], None] | None = None,
        model: str | None = None,
        wait: bool = True,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """``put`` of the bytes of a file. What can be read once only, such as a pipe, goes to one member or nowhere; so
        does one that waits for an answer, or that nobody waits for."""
        start = _place_of(source)
        way = way_of(model, wait, reply_ttl, durability)
        asked: dict[str, Any] = {}
        if way.asks or not wait:
            asked = {"model": model, "wait": wait, "reply_ttl": reply_ttl, "timeout": timeout}

        def into(route: Route) -> Any:
            if route.copies is not None:
                raise Misuse(f"{self.name}: it copies to all its members, which put_file cannot; put the bytes")
            return _queue(route.leaves[0]).put_file(
                source, durability=way.durability, progress=progress, **asked, **options
            )

        self._mine()
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        return self._sending.put(into, seconds, options.get("dedup_id"), lambda: _rewound(source, start))

    def _copy(self, route: Route, drafts: list[Draft], durability: str | None) -> MessageIds:
        assert route.copies is not None
        queues = [(leaf.name, _queue(leaf)) for leaf in route.leaves]
        copies = self._copies_of(route.copies)
        entries = copies.put(queues, drafts, durability, self._clock.wall_us())
        return MessageIds(queues[0][1]._id_prefix, entries[0])

    async def aput(
        self,
        body: Any,
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """``put`` for coroutines. Cancelled while it waits, the message may or may not be in."""
        self._mine()
        if timeout is not None:
            check_seconds("timeout", timeout)
        if model is not None or reply_ttl is not None:
            way = way_of(model, False, reply_ttl, durability)
            return await self._questions.aput([Draft(body=body, **options)], way, timeout, several=False)
        dedup_id = options.get("dedup_id")
        route = next(iter(self._sending.routes(self._members.root, dedup_id)), None)
        if route is not None and route.copies is None:
            with contextlib.suppress(QueueFull, BodyTooLarge, OSError):  # what there is to say of it is found out below
                return await _queue(route.leaves[0]).aput(body, durability=durability, **options)
        return await in_thread(self.put, body, timeout=timeout, durability=durability, **options)

    async def aput_many(
        self,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """``put_many`` for coroutines, in a thread."""
        check_several("aput_many", bodies, "; aput takes one")
        if model is not None or reply_ttl is not None:
            way = way_of(model, False, reply_ttl, durability)
            self._mine()
            return await self._questions.aput(drafts_of(bodies, options), way, timeout, several=True)
        return await in_thread(self.put_many, list(bodies), timeout=timeout, durability=durability, **options)

    async def aput_file(self, source: str | os.PathLike[str] | BinaryIO, **options: Any) -> Any:
        """``put_file`` for coroutines, in a thread."""
        call = functools.partial(contextvars.copy_context().run, self.put_file, source, **options)
        return await asyncio.get_running_loop().run_in_executor(None, call)

    def answer(self, message_id: str) -> Handle:
        """A handle on the answer to a question that was put before: of the member that has it."""
        queue, _ = self._member_of(message_id)
        if queue is None:
            raise Misuse(f"{self.name}: it has no members that could have an answer")
        return queue.answer(message_id)

    # ------------------------------------------------------------ getting

    def get(
        self,
        timeout: float | None = None,
        *,
        block: bool = True,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> Message:
        """The next message that is due, of the member that ``consuming`` says; waits for one in any of them, up to
        ``timeout`` seconds, then raises ``QueueEmpty``."""
        group = self._mine()
        lease_us = None if lease is None else self._lease_us(lease)
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        asked = None
        if type is not None or key is not None:
            asked = self._chosen(type, key)
        elif group.quick is not None:
            message = self._consumer.one(group, group.quick, lease_us)
            if message is not None:
                return message
        found = self._consumer.receive(1, seconds if block else 0.0, lease_us, asked)
        if not found:
            raise QueueEmpty(self.name)
        return found[0]

    def get_many(
        self,
        most: int,
        *,
        wait: float = 0.0,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
        group: str | None = None,
    ) -> list[Message]:
        """Up to ``most`` messages that are due, of as many members as it takes, as soon as there is one. Those of a
        ``group`` are of one member: a key in two members is two groups."""
        self._mine()
        most = check_most(most)
        wait_s = check_seconds("wait", wait)
        asked = None if type is None and key is None else self._chosen(type, key)
        if group is not None:
            known_groups.check_order(group, type, key)
            asked = Asked((), (), group)
        return self._consumer.receive(most, wait_s, self._lease_us(lease), asked)

    def _chosen(self, type: Any, key: Any) -> Asked:
        return Asked(check_names("type", type), check_names("key", key))

    def _lease_us(self, lease: float | None) -> int | None:
        """None: each member's own."""
        return None if lease is None else int(check_seconds("lease", lease, zero=False) * 1_000_000)

    @property
    def lease_s(self) -> float:
        """The shortest that a member has by default: for those who hold messages of any of them."""
        leases = [leaf.member.lease_us for leaf in self._members.leaves if leaf.member is not None]
        return min(leases, default=LEASE_US) / 1e6

    def consumer(
        self,
        prefetch: int = PREFETCH,
        *,
        wait: float | None = None,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> QueueConsumer:
        """A loop over messages of all members: see ``TimeQueue.consumer``. Without ``lease`` it is the shortest that a
        member has by default."""
        self._mine()
        wait_s = None if wait is None else check_seconds("wait", wait)
        lease_s = self.lease_s if lease is None else check_seconds("lease", lease, zero=False)
        types, keys = check_names("type", type), check_names("key", key)
        return QueueConsumer(self, prefetch=prefetch, wait_s=wait_s, lease_s=lease_s, types=types, keys=keys)

    aget: Any = coroutines.aget
    aget_many: Any = coroutines.aget_many


def drafts_of(items: Iterable[Any], options: MessageOptions) -> list[Draft]:
    """Messages of a batch, each with its options."""
    return [item if isinstance(item, Draft) else Draft(body=item, **options) for item in items]


def _queue(leaf: Leaf) -> TimeQueue:
    member = leaf.member
    if member is None:  # it was lost just now
        raise leaf.opening.error or QueueClosed(f"{leaf.name}: closed")
    queue: TimeQueue = member.queue
    return queue


def _place_of(source: Any) -> int | None:
    """Where reading of an open file begins; None if it can be read once only, or is a path."""
    try:
        return int(source.tell())
    except (AttributeError, OSError, ValueError):
        return None


def _rewound(source: Any, start: int | None) -> bool:
    """Whether it can be read once more."""
    if isinstance(source, str | os.PathLike):
        return True
    if start is None:
        return False
    source.seek(start)
    return True


def _reopen(path: str, busy_s: float) -> MacroQueue:
    return MacroQueue(path, busy_s=busy_s)
