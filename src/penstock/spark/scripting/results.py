"""Owns what the scripts of a batch lead to, on its way from a task to the driver: follow-ups, replies, and messages
that failed. Never puts or acknowledges anything.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.scripts.store import Post


class Result(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Of one message; of one that changed its context and asked for nothing, there is none."""

    queue: str  # the path of the one it lies in
    id: str
    posts: list[Post] = []
    answer: tuple[int, bytes] | None = None
    error: str | None = None
    reason: str | None = None  # why it is a dead letter at once


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """By what a batch is known again: how many messages, and the ends of their ids."""

    count: int = 0
    first: str = ""
    last: str = ""

    def joined(self, other: Mark) -> Mark:
        if not self.count or not other.count:
            return self if self.count else other
        return Mark(self.count + other.count, min(self.first, other.first), max(self.last, other.last))


def mark_of(ids: Iterable[str]) -> Mark:
    """
    >>> mark_of(["b", "a", "c"])
    Mark(count=3, first='a', last='c')
    """
    found = list(ids)
    return Mark(len(found), min(found), max(found)) if found else Mark()


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Result]).decode
