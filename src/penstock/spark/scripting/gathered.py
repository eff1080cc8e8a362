"""Owns messages as a task has gathered them from their queue: made of what references and records say, with no row in
between. Never reads anything.
"""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

import msgspec

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.codec import CODEC_JSON, Meta, decode_body, decode_json, decode_meta
from penstock.message import to_datetime
from penstock.scripts.context import TIMER
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.timequeue.models import WANTS_REPLY

HEADS_MAX = 50_000  # that are known: with headers of their own, those of messages are all different

# The same for the compiled loop, where they are C's and not the module's.
_WORDS = G.REFERENCE_WORDS
_SLOT = G.F_SLOT
_NUMBER = G.F_NUMBER
_DELIVER_US = G.F_DELIVER_US
_INFO = G.F_INFO
_GATHERED = G.GATHERED


@cython.no_gc
@cython.cclass
class Head:
    """What the records of many messages say alike."""

    __slots__ = ("headers", "key", "timer", "type", "wants_reply")

    def __init__(self, meta: Meta) -> None:
        self.type = meta.t
        self.key = meta.k
        self.headers = meta.h or None
        self.timer = meta.h.get(TIMER) if meta.h else None
        self.wants_reply = meta.q is not None and meta.q[0] == WANTS_REPLY


@cython.no_gc
@cython.cclass
class Home:
    """The queue that they lie in."""

    __slots__ = ("id_prefix", "path")

    def __init__(self, path: str, id_prefix: str) -> None:
        self.path = path
        self.id_prefix = id_prefix


@cython.no_gc
@cython.cclass
class Gathered:
    """A message, as ``penstock.scripts.context.Incoming`` wants it."""

    __slots__ = (
        "_body",
        "_deliver_us",
        "_enqueued_us",
        "_home",
        "_info",
        "_is_decoded",
        "_slot",
        "data",
        "head",
        "number",
    )

    # Made by ``gathered``.
    number: int
    data: bytes
    head: Head
    _home: Home
    _slot: int
    _info: int
    _deliver_us: int
    _enqueued_us: int
    _body: Any
    _is_decoded: bool

    @property
    def id(self) -> str:
        return f"{self._home.id_prefix}{self._slot:x}-{self.number:x}"

    @property
    def queue(self) -> str:
        return self._home.path

    @property
    def type(self) -> str | None:
        return self.head.type

    @property
    def key(self) -> str | None:
        return self.head.key

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.head.headers) if self.head.headers is not None else {}

    @property
    def wants_reply(self) -> bool:
        return self.head.wants_reply

    @property
    def body(self) -> Any:
        """Decoded once, as that of a delivery is."""
        if not self._is_decoded:
            self._body = self._decoded()
            self._is_decoded = True
        return self._body

    def _decoded(self) -> Any:
        codec = (self._info >> L.CODEC_SHIFT) & 0xF
        if codec == CODEC_JSON:
            try:
                return decode_json(self.data)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass  # what the slower one may read all the same
        return decode_body(codec, self.data)

    @property
    def priority(self) -> int:
        return self._info & 0xF

    @property
    def attempts(self) -> int:
        return self._info >> L.ATTEMPTS_SHIFT

    @property
    def enqueued_at(self) -> datetime:
        return to_datetime(self._enqueued_us)

    @property
    def deliver_at(self) -> datetime:
        return to_datetime(self._deliver_us)

    @property
    def order(self) -> tuple[Any, ...]:
        """Those of a key, as a queue would deliver them."""
        return -self.priority, self._deliver_us, self.number, self.queue

    def open(self) -> io.BufferedIOBase:
        return io.BytesIO(self.data)


def gathered(
    home: Home, heads: dict[bytes, Head], references: Any, found: G.Collected, first: int, end: int
) -> list[Gathered]:
    """The messages of these references, but for those that were not there. ``heads`` are those that are known."""
    return _gathered(
        home,
        heads,
        references,
        found.metas,
        found.bodies,
        found.body_ends,
        found.enqueued_us,
        found.faults,
        first,
        end,
    )


def _gathered(
    home: Home,
    heads: dict[bytes, Head],
    references: Any,
    metas: list[bytes],
    bodies: Any,
    body_ends: Any,
    enqueued_us: Any,
    faults: Any,
    first: int,
    end: int,
) -> list[Gathered]:
    made: list[Gathered] = []
    if len(bodies) == 0:  # there was no room for a record: they are damaged, all of them
        return made
    if cython.compiled:
        start = cython.address(bodies[0])
    for i in range(first, end):
        if faults[i] != _GATHERED:
            continue
        meta = metas[i]
        head = heads.get(meta)
        if head is None:
            if len(heads) >= HEADS_MAX:
                heads.clear()
            head = heads[meta] = Head(decode_meta(meta))
        at = i * _WORDS
        message = Gathered.__new__(Gathered)
        message._home = home
        message.head = head
        message._slot = references[at + _SLOT]
        message.number = references[at + _NUMBER]
        message._deliver_us = references[at + _DELIVER_US]
        message._info = references[at + _INFO]
        message._enqueued_us = enqueued_us[i]
        if cython.compiled:
            message.data = start[body_ends[i] : body_ends[i + 1]]
        else:
            message.data = bytes(bodies[body_ends[i] : body_ends[i + 1]])
        message._body = None
        message._is_decoded = False
        made.append(message)
    return made
