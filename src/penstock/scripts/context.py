"""Owns what a script sees: its context and the message, and what it asks for while it runs. Nothing it asks for happens
here: who runs the script, in a process or on Spark, does all of it together afterwards, or none of it.
"""

from __future__ import annotations

import io
from collections.abc import Container
from datetime import datetime
from types import GenericAlias
from typing import Any, Protocol, TypeVar, Unpack

import msgspec

from penstock.codec import decode_body, encode_body
from penstock.errors import Misuse
from penstock.interface import Delay, MessageOptions, Moment
from penstock.message import to_datetime
from penstock.timequeue.puts import Draft, to_us

TIMER = "penstock-timer"  # the header of a timer's message: which timer it is. One that is not set any more is dropped

State = TypeVar("State")


class Timer(msgspec.Struct, frozen=True, array_like=True):
    """A timer of a context that is set: its type is its name."""

    id: str  # of this setting: what was set before under the same name has another
    at_us: int


class FollowUp(msgspec.Struct, frozen=True):
    """A message that a script puts. ``to`` is the name of a queue; None: the input."""

    to: str | None
    draft: Draft
    timer: str | None = None  # the id, if it is a timer


class Incoming(Protocol):
    """What a script's message is made of: a delivery, or a row of Spark's."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def body(self) -> Any: ...
    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def enqueued_at(self) -> datetime: ...
    @property
    def deliver_at(self) -> datetime: ...
    @property
    def wants_reply(self) -> bool: ...
    def open(self) -> io.BufferedIOBase: ...


def without_timer(headers: dict[str, str]) -> dict[str, str]:
    """Without what is ours, and as they are now."""
    if isinstance(headers, dict):
        return {name: value for name, value in headers.items() if name != TIMER}
    return headers


def _as_now(body: Any) -> Any:
    """A body that its script may change afterwards, for the next one, say. What cannot be put is told here."""
    said = encode_body(body)
    return body if type(body) in (str, bytes) else decode_body(*said)


class ScriptMessage:
    """The message that a script was called with. It is acknowledged when the script has returned."""

    __slots__ = ("_answer", "_incoming")

    # Made by ``given``.
    _incoming: Incoming
    _answer: tuple[int, bytes] | None

    @property
    def id(self) -> str:
        """The same at each attempt, and for the message's whole life."""
        return self._incoming.id

    @property
    def type(self) -> str | None:
        return self._incoming.type

    @property
    def key(self) -> str | None:
        return self._incoming.key

    @property
    def body(self) -> Any:
        """What was put: bytes, str, or a JSON value."""
        return self._incoming.body

    @property
    def data(self) -> bytes:
        """The bytes of the body as stored."""
        return self._incoming.data

    def open(self) -> io.BufferedIOBase:
        """The bytes of the body as a file to read."""
        return self._incoming.open()

    @property
    def headers(self) -> dict[str, str]:
        return without_timer(self._incoming.headers)

    @property
    def priority(self) -> int:
        return self._incoming.priority

    @property
    def attempts(self) -> int:
        """1 at first."""
        return self._incoming.attempts

    @property
    def enqueued_at(self) -> datetime:
        return self._incoming.enqueued_at

    @property
    def deliver_at(self) -> datetime:
        return self._incoming.deliver_at

    @property
    def wants_reply(self) -> bool:
        """Whether somebody waits for a reply."""
        return self._incoming.wants_reply

    def reply(self, body: Any) -> None:
        """Answer a message that was put with ``model="two-way"``. The last call counts."""
        if not self.wants_reply:
            raise Misuse(f"{self.id}: nobody waits for a reply to it")
        self._answer = encode_body(body)

    def __repr__(self) -> str:
        return f"<ScriptMessage {self.id} type={self.type!r} key={self.key!r}>"


class Context:
    """What is kept for a key: ``state``, an object of the app's type, which the script changes; and timers."""

    __slots__ = (
        "_ended",
        "_follow_ups",
        "_message",
        "_now_us",
        "_set",
        "_settings",
        "_timers",
        "_types",
        "key",
        "state",
    )

    # A class that is generic would not be compiled. Type checkers know it as one: see __init__.py.
    __class_getitem__: Any = classmethod(GenericAlias)

    # Made by ``begin``, without a constructor's arguments.
    key: str
    state: Any
    _timers: dict[str, Timer]  # as they are on the way: not changed but replaced
    _message: Incoming
    _now_us: int
    _types: Container[str]  # of the app's scripts
    _follow_ups: list[FollowUp] | None  # the first one makes the list: most scripts ask for nothing
    _set: dict[str, FollowUp] | None
    _settings: int
    _ended: bool

    def put(self, body: Any, *, to: str | None = None, **options: Unpack[MessageOptions]) -> None:
        """A follow-up message: into the queue of this name, or into the app's input. It has this context's key unless
        another one, or None, is given; ``type``, ``priority``, ``delay``, ``deliver_at``, ``headers`` and the like as
        in ``penstock.Queue.put``."""
        if to is not None and not isinstance(to, str):
            raise Misuse(f"to is the name of a queue, not {to!r}")
        options.setdefault("key", self.key)
        if headers := options.get("headers"):  # what a timer's script passes on is not that timer
            options["headers"] = without_timer(headers)
        body = _as_now(body)
        if self._follow_ups is None:
            self._follow_ups = []
        self._follow_ups.append(FollowUp(to, Draft(body=body, **options)))

    def after(
        self, delay: Delay, type: str, body: Any = None, *, priority: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        """Set a timer: the script for ``type`` is called with this context in so many seconds. A timer that is set
        already under this name is replaced."""
        self._set_timer(type, Draft(body=body, delay=delay, priority=priority, headers=headers))

    def at(
        self, moment: Moment, type: str, body: Any = None, *, priority: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        """``after``, with the time itself: seconds since 1970, or a ``datetime`` with its time zone."""
        self._set_timer(type, Draft(body=body, deliver_at=moment, priority=priority, headers=headers))

    def _set_timer(self, type: str, draft: Draft) -> None:
        if self._ended:
            raise Misuse(f"context {self.key!r} has ended: it can have no timer {type!r}")
        if type not in self._types:
            raise Misuse(f"timer {type!r}: the app has no script of this name that it could call")
        draft.body = _as_now(draft.body)
        at_us = to_us(draft.deliver_at, draft.delay, self._now_us) or self._now_us
        self._settings += 1
        timer = Timer(f"{self._message.id}.{self._settings}", at_us)
        draft.type, draft.key = type, self.key
        draft.deliver_at, draft.delay = at_us / 1e6, None
        draft.headers = {**(draft.headers or {}), TIMER: timer.id}
        self._timers = {**self._timers, type: timer}
        if self._set is None:
            self._set = {}
        self._set[type] = FollowUp(None, draft, timer.id)

    def cancel(self, type: str) -> bool:
        """Whether a timer of this name was set; it is no longer."""
        if self._set is not None:
            self._set.pop(type, None)
        if type not in self._timers:
            return False
        self._timers = {name: timer for name, timer in self._timers.items() if name != type}
        return True

    @property
    def timers(self) -> dict[str, datetime]:
        """Those that are set, and when."""
        return {name: to_datetime(timer.at_us) for name, timer in self._timers.items()}

    def end(self) -> None:
        """Forget this context, with all its timers, when the script has returned. The next message of its key begins a
        new one. What was put with ``put`` is put."""
        self._ended = True
        self._timers = {}
        self._set = None

    def _asked_for(self) -> list[FollowUp]:
        """Follow-ups, timers among them, as they are now: what is asked for later is nobody's."""
        return [*(self._follow_ups or ()), *(self._set or {}).values()]

    def __repr__(self) -> str:
        return f"<Context {self.key!r} {self.state!r}>"


def begin(
    key: str, state: Any, timers: dict[str, Timer], message: Incoming, now_us: int, types: Container[str]
) -> Context:
    """The context of a message's key, before its script is called."""
    context = Context.__new__(Context)
    context.key = key
    context.state = state
    context._timers = timers
    context._message = message
    context._now_us = now_us
    context._types = types
    context._follow_ups = None
    context._set = None
    context._settings = 0
    context._ended = False
    return context


def given(message: Incoming) -> ScriptMessage:
    """A message as its script sees it."""
    made = ScriptMessage.__new__(ScriptMessage)
    made._incoming = message
    made._answer = None
    return made
