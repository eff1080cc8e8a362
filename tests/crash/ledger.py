"""What was put, delivered and removed, and when; and whether the messages after a power loss can be true.

Times are places in the log of the ``Disk``: an operation has a place where it began and one where it had returned.
At a power loss, an operation that had returned counts, one that had not begun does not, one between may.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

NEVER = 1 << 62

TOKEN = re.compile(rb"<(\d+):")


@dataclass
class Span:
    begun: int
    done: int = NEVER
    final: bool = False  # when it has returned, it is on disk by itself


@dataclass
class Sent:
    """A message that somebody tried to put."""

    token: int
    body: bytes
    options: dict[str, Any]
    durable: bool
    put: Span
    batch: list[Sent] = field(default_factory=list)
    ok: bool = False
    spilled: bool = False  # its body is a file of its own, which only a put with commit syncs
    id: str = ""
    deliver_us: tuple[int, int] = (0, NEVER)  # between these
    later_us: list[int] = field(default_factory=list)  # times that releases gave it
    delivered: list[int] = field(default_factory=list)  # when each delivery was begun
    removed: list[Span] = field(default_factory=list)

    def is_gone(self, synced: int, at: int) -> bool:
        """Whether a removal had returned and was on disk."""
        return any(span.done <= (at if span.final else synced) for span in self.removed)

    def may_be_gone(self, place: int) -> bool:
        return any(span.begun < place for span in self.removed)


@dataclass(frozen=True)
class Found:
    """A message as a client sees it after a restore."""

    token: int
    id: str
    number: int
    body: bytes
    type: str | None
    key: str | None
    headers: tuple[tuple[str, str], ...]
    priority: int
    deliver_us: int
    attempts: int


def make_body(token: int, filling: bytes) -> bytes:
    text = b"<%d:%s" % (token, filling)
    return text + zlib.crc32(text).to_bytes(4, "little")


def found(message: Any) -> Found:
    match = TOKEN.match(message.data)
    return Found(
        token=int(match[1]) if match else -1,
        id=message.id,
        number=message.number,
        body=message.data,
        type=message.type,
        key=message.key,
        headers=tuple(sorted(message.headers.items())),
        priority=message.priority,
        deliver_us=message.deliver_us,
        attempts=message.attempts,
    )


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.syncs: list[Span] = []  # of the index

    def synced(self, at: int) -> int:
        """What had returned at this place is on disk, by the last index sync that was complete at ``at``; or 0."""
        return max((span.begun for span in self.syncs if span.done <= at), default=0)

    def settled(self, at: int) -> tuple[int, ...]:
        """What had begun and what had returned: with the same, the same is judged in the same way."""
        spans = [*self.syncs, *(s.put for s in self.sent.values()), *(r for s in self.sent.values() for r in s.removed)]
        begun = sum(span.begun < at for span in spans)
        return begun, sum(span.done <= at for span in spans), self.synced(at)

    def judge(self, here: Iterable[Found], at: int) -> list[str]:
        """What is wrong with these messages after a power loss at ``at``; nothing if the list is empty."""
        here = list(here)
        synced = self.synced(at)
        wrong: list[str] = []
        tokens = [one.token for one in here]
        if len(set(tokens)) != len(tokens):
            wrong.append(f"a message is there twice: {sorted(tokens)}")
        for one in here:
            wrong += self._judge_one(one, at, synced)
        there = set(tokens)
        for sent in self.sent.values():
            if sent.token not in there and self._must(sent, at, synced):
                wrong.append(f"lost: {_name(sent)}")
        for batch in {id(sent.batch): sent.batch for sent in self.sent.values() if sent.durable}.values():
            if any(sent.token in there for sent in batch):
                wrong += [
                    f"a batch is not whole: {_name(sent)} is missing"
                    for sent in batch
                    if sent.token not in there and not sent.may_be_gone(at)
                ]
        return wrong + self._judge_order(here)

    def _judge_order(self, here: list[Found]) -> list[str]:
        order = [(-one.priority, one.deliver_us, one.number) for one in here]
        return [] if order == sorted(order) else [f"not in the order of delivery: {order}"]

    def _must(self, sent: Sent, at: int, synced: int) -> bool:
        if not sent.ok or sent.may_be_gone(at):
            return False
        return sent.put.done <= at and (sent.durable or (sent.put.done <= synced and not sent.spilled))

    def _judge_one(self, one: Found, at: int, synced: int) -> list[str]:
        sent = self.sent.get(one.token)
        if sent is None or sent.put.begun >= at:
            return [f"invented: {one}"]
        wrong = []
        if sent.is_gone(synced, at):
            wrong.append(f"was removed before the last index sync ({synced})")
        if sent.put.done <= synced and not sent.ok:
            wrong.append("is of a put that failed before the last index sync")
        if one.body != sent.body:
            wrong.append("has another body")
        options = sent.options
        told = (options["type"], options["key"], tuple(sorted((options["headers"] or {}).items())), options["priority"])
        if told != (one.type, one.key, one.headers, one.priority):
            wrong.append("has other options")
        if sent.ok and sent.put.done <= at and one.id != sent.id:
            wrong.append(f"has the id {one.id}")
        first, last = sent.deliver_us
        if not first <= one.deliver_us <= last and one.deliver_us not in sent.later_us:
            wrong.append(f"has the delivery time {one.deliver_us}")
        if one.attempts > sum(place < at for place in sent.delivered):
            wrong.append(f"has {one.attempts} attempts")
        return [f"{_name(sent)} {what}" for what in wrong]


def _name(sent: Sent) -> str:
    kind = "commit" if sent.durable else "relaxed"
    return (
        f"message {sent.token} ({kind}, batch of {len(sent.batch)}, {len(sent.body)} bytes, id {sent.id or 'none'}, "
        f"put {sent.put}, removed {sent.removed})"
    )
