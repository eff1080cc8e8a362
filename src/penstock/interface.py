"""Owns the protocol that every kind of queue satisfies (M3): a program cannot tell which kind it has."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, BinaryIO, Protocol, TypedDict, Unpack, runtime_checkable

from penstock.message import Message

Delay = float | timedelta
Moment = float | datetime
Names = str | Iterable[str]


class Special(TypedDict, total=False):
    """What few messages bring.

    ``expires_at`` or ``ttl``: from when on it is not delivered any more. ``dedup_id``: stored once within
    ``dedup_window`` seconds; a put of the same returns the id of the message that was stored. ``max_attempts``,
    ``backoff`` (seconds, or a ``Backoff``) and ``lease``: this message's own, instead of the queue's.
    """

    expires_at: Moment | None
    ttl: Delay | None
    dedup_id: str | None
    dedup_window: Delay | None
    max_attempts: int | None
    backoff: Any
    lease: float | None


class PutOptions(Special, total=False):
    """And what it waits for: ``model``, whether it waits at all, and how long an answer is kept."""

    model: str | None
    wait: bool
    reply_ttl: Delay | None


class MessageOptions(Special, total=False):
    """What a message brings beside its body; ``delay`` is seconds from now, ``deliver_at`` seconds since 1970."""

    deliver_at: Moment | None
    delay: Delay | None
    priority: int
    type: str | None
    key: str | None
    headers: dict[str, str] | None


class MessageConsumer(Protocol):
    """Messages handed out one by one: ``for`` or ``async for`` inside its block."""

    def __iter__(self) -> Iterator[Message]: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __enter__(self) -> MessageConsumer: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def __aenter__(self) -> MessageConsumer: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def flush(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class PutHandle(Protocol):
    """What a put returns that nobody waits for: a ``concurrent.futures.Future`` that can be awaited."""

    @property
    def id(self) -> str | None: ...
    @property
    def ids(self) -> Sequence[str]: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Any: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def add_done_callback(self, fn: Callable[[Any], object]) -> None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...


@runtime_checkable
class Queue(Protocol):
    """put, get, ack, reply, release, extend, the same for coroutines (a...), and a look inside."""

    @property
    def name(self) -> str: ...

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
    ) -> Any: ...

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
    ) -> Any: ...

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
    ) -> Any: ...

    def answer(self, message_id: str) -> PutHandle: ...

    def get(
        self,
        timeout: float | None = None,
        *,
        block: bool = True,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> Message: ...

    def get_many(
        self,
        most: int,
        *,
        wait: float = 0.0,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
        group: str | None = None,
    ) -> list[Message]: ...

    def groups(self, *, by: str | None = None, limit: int | None = None) -> Sequence[Any]: ...
    def ack(self, message: Message, *, durable: bool = False) -> None: ...
    def ack_many(self, messages: Iterable[Message], *, durable: bool = False) -> None: ...
    def reply(self, message: Message, body: Any) -> None: ...
    def release(self, message: Message, *, delay: Delay | None = None) -> None: ...
    def fail(
        self, message: Message, error: BaseException | str | None = None, *, delay: Delay | None = None
    ) -> None: ...
    def dead_letter(self, message: Message, reason: str, *, error: BaseException | str | None = None) -> None: ...
    def move(self, message: Message, *, to: Any) -> None: ...
    def extend(self, message: Message, seconds: float) -> None: ...
    def unget(self, messages: Iterable[Message]) -> None: ...
    async def aput(
        self,
        body: Any,
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any: ...

    async def aput_many(
        self,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        reply_ttl: Delay | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any: ...

    async def aget(
        self,
        timeout: float | None = None,
        *,
        block: bool = True,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> Message: ...

    async def aget_many(
        self,
        most: int,
        *,
        wait: float = 0.0,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> list[Message]: ...

    async def aack(self, message: Message, *, durable: bool = False) -> None: ...
    async def aack_many(self, messages: Iterable[Message], *, durable: bool = False) -> None: ...
    async def areply(self, message: Message, body: Any) -> None: ...
    async def arelease(self, message: Message, *, delay: Delay | None = None) -> None: ...
    async def aextend(self, message: Message, seconds: float) -> None: ...

    def consumer(
        self,
        prefetch: int = 100,
        *,
        wait: float | None = None,
        lease: float | None = None,
        type: Names | None = None,
        key: Names | None = None,
    ) -> MessageConsumer: ...

    def browse(self, *, state: str = "waiting", limit: int | None = None) -> Iterator[Message]: ...
    def cancel(self, message_id: str) -> bool: ...
    def purge(self) -> int: ...
    def qsize(self) -> int: ...
    def stats(self) -> Any: ...
    def close(self) -> None: ...
