"""Owns the protocol that every kind of queue satisfies (M3): a program cannot tell which kind it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Protocol, runtime_checkable

from penstock.message import Message

Delay = float | timedelta
Moment = float | datetime


@runtime_checkable
class Queue(Protocol):
    """put, get, ack, release, extend, and a look inside."""

    @property
    def name(self) -> str: ...

    def put(
        self,
        body: Any,
        *,
        deliver_at: Moment | None = None,
        delay: Delay | None = None,
        priority: int = 0,
        type: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        durability: str | None = None,
    ) -> str: ...

    def put_file(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        deliver_at: Moment | None = None,
        delay: Delay | None = None,
        priority: int = 0,
        type: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        durability: str | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> str: ...

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        deliver_at: Moment | None = None,
        delay: Delay | None = None,
        priority: int = 0,
        type: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        durability: str | None = None,
    ) -> Sequence[str]: ...

    def get(self, timeout: float | None = None, *, block: bool = True, lease: float | None = None) -> Message: ...
    def get_many(self, most: int, *, wait: float = 0.0, lease: float | None = None) -> list[Message]: ...
    def ack(self, message: Message, *, durable: bool = False) -> None: ...
    def ack_many(self, messages: Iterable[Message], *, durable: bool = False) -> None: ...
    def release(self, message: Message, *, delay: Delay | None = None) -> None: ...
    def extend(self, message: Message, seconds: float) -> None: ...
    def browse(self, *, state: str = "waiting", limit: int | None = None) -> Iterator[Message]: ...
    def cancel(self, message_id: str) -> bool: ...
    def purge(self) -> int: ...
    def qsize(self) -> int: ...
    def stats(self) -> Any: ...
    def close(self) -> None: ...
