"""Owns a queue as a manager hands it out: the calls of ``penstock.Queue``, each checked before it goes on to the queue
itself. What a call needs is said in ``permissions.py``; never does the work of one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Set
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.errors import Misuse, NotPermitted, QueueInactive, WrongRelationship
from penstock.interface import MessageConsumer, Names, Queue
from penstock.manager.directory import Noted
from penstock.manager.permissions import CALLS, Right, check
from penstock.message import Message
from penstock.store.counter import SharedCounter
from penstock.timequeue import QueueConsumer, TimeQueue
from penstock.timequeue.arguments import check_names, check_seconds
from penstock.timequeue.models import ACKNOWLEDGED, MODELS, TWO_WAY

LOOK_S = 1.0  # without any news

ROLES = {
    "producer": frozenset({Right.PRODUCE}),
    "consumer": frozenset({Right.CONSUME}),
    "both": frozenset({Right.PRODUCE, Right.CONSUME}),
}


class Gate:
    """The one place where calls on an opened queue are checked: by what its entry says now, by the relationship that it
    was opened with, and by the rights of the principal. A change by any manager of the root counts from when its call
    has returned; one by a manager that was killed before, or of another root, within ``LOOK_S``."""

    def __init__(
        self,
        queue: str,
        *,
        noted: Callable[[], Noted],
        relationship: str,
        remote: bool,
        principal: str | None,
        rights: Callable[[], Set[Right]],
        changes: SharedCounter,
    ) -> None:
        self.queue = queue
        self.principal = principal
        self._find_noted = noted
        self._relationship = relationship
        self._remote = remote
        self._find_rights = rights
        self._changes = changes
        self._look(changes.value(), time.monotonic())

    def _look(self, seen: int, now_s: float) -> None:
        self._noted = self._find_noted()
        self._rights = self._find_rights()
        self._roles = ROLES[self._relationship] & ROLES[self._noted.relationship]
        self._seen = seen
        self._look_at_s = now_s + LOOK_S

    @property
    def model(self) -> str:
        """What a put waits for, as the queue's entry says."""
        return self._noted.model

    def check(self, call: str) -> None:
        seen, now_s = self._changes.value(), time.monotonic()
        if seen != self._seen or now_s >= self._look_at_s:
            self._look(seen, now_s)
        needs = CALLS[call]
        if self._remote:
            self.check_client(call)
        if needs.right in ROLES["both"] and needs.right not in self._roles:
            named = self._relationship if needs.right not in ROLES[self._relationship] else self._noted.relationship
            raise WrongRelationship(self.queue, relationship=named, call=call)
        if needs.begins and not self._noted.active:
            raise QueueInactive(self.queue, call=call)
        if self.principal is not None:
            check(self._rights, self.principal, call, self.queue)

    def check_client(self, call: str) -> None:
        if self._remote and not self._noted.remote_clients:
            raise NotPermitted(self.queue, call=call, who="remote clients", why="the queue's remote_clients is off")


def _checked(call: str) -> Callable[..., Any]:
    """A method that is the queue's own, behind the gate."""

    @functools.wraps(getattr(TimeQueue, call), assigned=("__name__", "__doc__"), updated=())
    def method(self: ManagedQueue, *given: Any, **options: Any) -> Any:
        self._gate.check(call)
        return getattr(self._inner, call)(*given, **options)

    return method


def _putting(call: str) -> Callable[..., Any]:
    """Likewise of a put, which waits for what the queue's model says, unless it is told itself."""

    @functools.wraps(getattr(TimeQueue, call), assigned=("__name__", "__doc__"), updated=())
    def method(self: ManagedQueue, *given: Any, **options: Any) -> Any:
        self._gate.check(call)
        if self._gate.model != MODELS[0] and options.get("model") is None:
            options["model"] = self._gate.model
        return getattr(self._inner, call)(*given, **options)

    return method


class ManagedQueue:
    """A queue that a manager has opened. Closing it closes nothing else, and deletes nothing."""

    def __init__(self, inner: Queue, gate: Gate, place: Path, close: Callable[[ManagedQueue], None]) -> None:
        self._inner = inner
        self._gate = gate
        self._place = place
        self._close = close

    put = _putting("put")
    put_file = _putting("put_file")
    put_many = _putting("put_many")
    aput = _putting("aput")
    aput_file = _putting("aput_file")
    aput_many = _putting("aput_many")
    answer = _checked("answer")
    get = _checked("get")
    get_many = _checked("get_many")
    aget = _checked("aget")
    aget_many = _checked("aget_many")
    ack = _checked("ack")
    ack_many = _checked("ack_many")
    aack = _checked("aack")
    aack_many = _checked("aack_many")
    reply = _checked("reply")
    areply = _checked("areply")
    release = _checked("release")
    arelease = _checked("arelease")
    extend = _checked("extend")
    aextend = _checked("aextend")
    fail = _checked("fail")
    afail = _checked("afail")
    dead_letter = _checked("dead_letter")
    unget = _checked("unget")
    sync_index = _checked("sync_index")
    browse = _checked("browse")
    groups = _checked("groups")
    qsize = _checked("qsize")
    stats = _checked("stats")
    cancel = _checked("cancel")
    purge = _checked("purge")
    redrive = _checked("redrive")

    def put_once(self, *given: Any, **options: Any) -> Any:
        """As ``TimeQueue.put_once``, which is stored and no more."""
        self._gate.check("put_once")
        if self._gate.model in (ACKNOWLEDGED, TWO_WAY):
            raise Misuse(
                f"{self._gate.queue}: put_once waits for no answer, as the queue's model {self._gate.model} wants"
            )
        if not hasattr(self._inner, "put_once"):
            raise Misuse(f"{self._gate.queue}: a macro queue has no put_once: which member it were, nobody could say")
        return self._inner.put_once(*given, **options)

    def consumer(
        self,
        prefetch: int = 100,
        *,
        wait: float | None = None,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> MessageConsumer:
        """As ``TimeQueue.consumer``. What it takes goes through the gate too: it ends with an error when the queue is
        deactivated."""
        self._gate.check("consumer")
        wait_s = None if wait is None else check_seconds("wait", wait)
        lease_s = self._lease_s if lease is None else check_seconds("lease", lease, zero=False)
        types, keys = check_names("type", type), check_names("key", key)
        return QueueConsumer(self, prefetch=prefetch, wait_s=wait_s, lease_s=lease_s, types=types, keys=keys)

    def move(self, message: Message, *, to: Any) -> None:
        """Into another queue: one that this manager has opened; its path will do where there is no principal."""
        self._gate.check("move")
        if isinstance(to, ManagedQueue):
            to._gate.check("put")
            to = to._inner
        elif self._gate.principal is not None:
            raise Misuse(f"{self._gate.queue}: a principal moves messages only to queues that its manager has opened")
        self._inner.move(message, to=to)

    @property
    def _lease_s(self) -> float:
        return float(self._inner.lease_s)  # type: ignore[attr-defined]

    @property
    def name(self) -> str:
        """As the queue itself has it, and its errors. What the manager calls it is ``called``."""
        return self._inner.name

    @property
    def called(self) -> str:
        """Its name for the manager."""
        return self._gate.queue

    @property
    def path(self) -> Path:
        return self._place

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Give back what was got and not acknowledged, and leave the queue. Closing twice is fine."""
        if not self.closed:
            self._close(self)

    def leave(self) -> None:
        """What closing is for the queue itself. The manager's to call."""
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ManagedQueue {self._gate.queue}{' (closed)' if self.closed else ''}>"
