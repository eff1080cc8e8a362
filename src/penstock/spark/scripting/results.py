"""Owns what the scripts of a batch lead to, on its way from a task to the driver: follow-ups, replies, and messages
that failed. Never puts or acknowledges anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from penstock.scripts.store import Post
from penstock.spark.scripting.rowmessage import RowMessage
from penstock.store.directory import read_options


class Result(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Of one message; of one that changed its context and asked for nothing, there is none."""

    queue: str  # the UUID of the one it lies in: a path may be another tomorrow
    id: str
    posts: list[Post] = []
    answer: tuple[int, bytes] | None = None
    error: str | None = None
    reason: str | None = None  # why it is a dead letter at once


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """By what the messages of a batch that lie in one queue are known again: how many, the ends of their ids, and the
    sums of their numbers and attempts. Those that failed come again, with others."""

    count: int
    first: str
    last: str
    numbers: int
    attempts: int

    def joined(self, other: Mark) -> Mark:
        return Mark(
            self.count + other.count,
            min(self.first, other.first),
            max(self.last, other.last),
            self.numbers + other.numbers,
            self.attempts + other.attempts,
        )


class Worked(msgspec.Struct, frozen=True, array_like=True):
    """What a task says to the driver, as the columns of a row are where it is one."""

    part: int
    marks: bytes
    results: bytes


Marks = dict[str, Mark]  # by the UUIDs of queues


def uuid_of(path: str) -> str:
    """By which a queue is known, wherever its root is, and by whatever name it is reached."""
    return read_options(Path(path)).uuid


def marks_of(messages: Iterable[RowMessage], uuid: Callable[[str], str] = uuid_of) -> Marks:
    by_queue: dict[str, list[RowMessage]] = {}
    for message in messages:
        by_queue.setdefault(message.queue, []).append(message)
    return {
        uuid(queue): Mark(
            len(some),
            min(message.id for message in some),
            max(message.id for message in some),
            sum(message.number for message in some),
            sum(message.attempts for message in some),
        )
        for queue, some in by_queue.items()
    }


def joined(all_of_them: Iterable[Marks]) -> Marks:
    """
    >>> joined([{"q": Mark(1, "a", "a", 7, 1)}, {"q": Mark(2, "b", "c", 5, 4)}])
    {'q': Mark(count=3, first='a', last='c', numbers=12, attempts=5)}
    """
    found: Marks = {}
    for marks in all_of_them:
        for queue, mark in marks.items():
            found[queue] = found[queue].joined(mark) if queue in found else mark
    return found


encode_marks = msgspec.msgpack.Encoder().encode
decode_marks = msgspec.msgpack.Decoder(Marks).decode
encode_worked = msgspec.msgpack.Encoder().encode
decode_worked = msgspec.msgpack.Decoder(Worked).decode
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Result]).decode
