"""Owns what is put: messages as a caller gives them, checked and encoded. Never locks, never touches the queue."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.codec import CODEC_BYTES, encode_body, encode_fields, encode_meta
from penstock.errors import Misuse
from penstock.store import layout as L
from penstock.store import record
from penstock.store.hashes import Hashes

if TYPE_CHECKING:
    from penstock.timequeue.sources import Source

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TRACING = "opentelemetry.trace"
_imported = sys.modules


class Draft(msgspec.Struct, kw_only=True):
    """A message to put, for ``put_many`` with different options for each."""

    body: Any
    deliver_at: float | datetime | None = None
    delay: float | timedelta | None = None
    priority: int = 0
    type: str | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    expires_at: float | datetime | None = None
    ttl: float | timedelta | None = None
    dedup_id: str | None = None
    dedup_window: float | timedelta | None = None
    max_attempts: int | None = None
    backoff: Any = None
    lease: float | None = None


class Extra:
    """What an entry brings beside the usual: further fields of its meta, and what it is to be remembered by."""

    __slots__ = ("fields", "flags", "key", "until_us")

    fields: dict[str, Any]
    flags: int
    key: int  # 0: it is not remembered
    until_us: int

    def __init__(self, fields: dict[str, Any], flags: int, key: int = 0, until_us: int = 0) -> None:
        self.fields = fields
        self.flags = flags
        self.key = key
        self.until_us = until_us


if not cython.compiled:  # where it is compiled, puts.pxd has it: it is made for every single put

    def message_id(prefix: str, slot: int, number: int) -> str:
        return f"{prefix}{slot:x}-{number:x}"


@cython.no_gc  # what it has knows nothing of it: there is no circle to collect. In puts.pxd it would be ignored
@cython.cclass
class Entry:
    """A message on its way in: encoded, then with a slot, then with a place."""

    __slots__ = (
        "body",
        "check",
        "deliver_us",
        "info",
        "key",
        "key_hash",
        "known",
        "memory",
        "meta",
        "moved",
        "number",
        "slot",
        "source",
        "spilled",
        "spilled_bytes",
        "type_hash",
        "unit",
        "until_us",
    )

    body: bytes
    meta: bytes
    deliver_us: int  # 0: at once
    info: int
    check: int
    spilled: bytes | None
    spilled_bytes: int  # of a body that is, or is to be, a file
    source: Source | None  # where such a body is copied from, if it is not in memory
    slot: int
    number: int
    unit: int
    key: int  # what it is remembered by; 0: nothing
    until_us: int
    known: int  # not 0: a message was stored under this key before, and slot and number are that one's
    memory: int  # flags of what remembers it
    moved: Callable[[], None] | None  # it comes from another queue: asked before it gets a slot; raises to refuse
    type_hash: int  # of type and key as the queue has them; 0: none
    key_hash: int

    def classify(self, hashes: Hashes) -> None:
        """If it has a type or a key, it is one for the queue's trees."""
        if hashes.read(self.meta):
            self.type_hash = hashes.type_hash
            self.key_hash = hashes.key_hash
            self.info |= L.FLAG_CLASSED << L.FLAGS_SHIFT

    def spill(self) -> None:
        """The body becomes a file of its own; the record only says how long it is."""
        self.spilled = self.body
        self.spilled_bytes = len(self.spilled)
        self.refer(record.crc32(self.spilled))
        self.info |= L.FLAG_SPILLED << L.FLAGS_SHIFT

    def refer(self, check: int) -> None:
        """What the record says of a file with this checksum."""
        self.body = L.SPILL.pack(self.spilled_bytes, check)
        self.check = record.crc32(self.body, record.crc32(self.meta))

    def keep(self) -> None:
        """Undo ``spill``."""
        assert self.spilled is not None
        self.body = self.spilled
        self.spilled = None
        self.spilled_bytes = 0
        self.check = record.crc32(self.body, record.crc32(self.meta))
        self.info &= ~(L.FLAG_SPILLED << L.FLAGS_SHIFT)

    def forget(self) -> None:
        """As before it was given a slot: it can be tried again."""
        if self.spilled is not None:
            self.keep()
        if self.source is not None:
            self.spilled_bytes = self.source.known_bytes
        if self.info >> L.FLAGS_SHIFT & L.FLAG_READY:
            self.deliver_us = 0
        self.slot = 0
        self.known = 0

    def id(self, prefix: str) -> str:
        return message_id(prefix, self.slot, self.number)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def to_us(moment: float | datetime | None, delay: float | timedelta | None, now_us: int) -> int:
    """Delivery time in microseconds; 0 for at once.

    >>> to_us(None, 1.5, 1_000_000)
    2500000
    """
    if moment is not None and delay is not None:
        raise Misuse("give deliver_at or delay, not both")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not _is_number(seconds):
            raise Misuse(f"delay must be a number of seconds or a timedelta, not {delay!r}")
        if seconds < 0:
            raise Misuse(f"delay must not be negative: {delay!r}")
        return _bounded(now_us + round(seconds * 1_000_000), delay) if seconds else 0
    if moment is None:
        return 0
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise Misuse(f"deliver_at must be an aware datetime: {moment!r} has no time zone")
        try:
            span = moment.astimezone(UTC) - _EPOCH  # in UTC: a subtraction within one zone ignores its summer time
        except OverflowError:
            raise Misuse(f"a delivery time of {moment!r} is too far away") from None
        return _bounded((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds, moment)
    if not _is_number(moment):
        raise Misuse(f"deliver_at must be an aware datetime or epoch seconds, not {moment!r}")
    return _bounded(round(moment * 1_000_000), moment)


def _bounded(us: int, given: object) -> int:
    if abs(us) >= L.DELIVER_US_MAX:
        raise Misuse(f"a delivery time of {given!r} is too far away")
    return max(us, 1)  # before 1970 is long due; 0 means "at once"


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes  # where ``type`` is not an argument


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_draft(value: Any) -> bool:
    return type(value) is Draft


def is_traced() -> bool:
    """Whether a span may be active: only in a program that has imported OpenTelemetry. So nobody else pays for it."""
    return _TRACING in _imported


def _traced(headers: dict[str, str] | None) -> dict[str, str] | None:
    try:
        from penstock.tracing import carried  # not before: it is optional, and slow to import
    except ImportError:  # some part of it is not there: a put does not depend on it
        return headers
    return carried(headers)


def entry(
    body: Any,
    now_us: int,
    deliver_at: float | datetime | None,
    delay: float | timedelta | None,
    priority: int,
    type: str | None,
    key: str | None,
    headers: dict[str, str] | None,
    extra: Extra | None = None,
) -> Entry:
    if _is_bytes(body):
        codec, data = CODEC_BYTES, body
    else:
        codec, data = encode_body(body)
    if _TRACING in _imported:
        headers = _traced(headers)
    level = priority if _is_int(priority) and 0 <= priority < L.PRIORITIES else L.PRIORITIES
    if level == L.PRIORITIES:
        raise Misuse(f"priority must be a whole number from 0 to {L.PRIORITIES - 1}, not {priority!r}")
    if extra is not None:
        if type is None and key is None and headers is None:
            meta = encode_fields(extra.fields)
        else:
            meta = encode_meta(type, key, headers, extra.fields)
    else:
        meta = b"" if type is None and key is None and headers is None else encode_meta(type, key, headers)
    deliver_us = 0 if deliver_at is None and delay is None else to_us(deliver_at, delay, now_us)
    return made(data, codec, meta, deliver_us, level, extra)


def plain(body: Any) -> Entry:
    """A message without options."""
    return entry(body, 0, None, None, 0, None, None, None)


def made(data: bytes, codec: int, meta: bytes, deliver_us: int, level: int, extra: Extra | None) -> Entry:
    """An entry of what is checked and encoded."""
    flags = 0 if deliver_us else L.FLAG_READY
    if extra is not None:
        flags |= extra.flags
    item = _fresh(data, meta, deliver_us, level | codec << L.CODEC_SHIFT | flags << L.FLAGS_SHIFT)
    if extra is not None:
        item.key = extra.key
        item.until_us = extra.until_us
    return item


def _fresh(data: bytes, meta: bytes, deliver_us: int, info: int) -> Entry:
    """Of which nothing is known yet but what it says."""
    item = Entry.__new__(Entry)
    item.body = data
    item.meta = meta
    item.deliver_us = deliver_us
    item.info = info
    item.check = record.crc32(data, record.crc32(meta)) if meta else record.crc32(data)
    item.spilled = item.source = None
    item.spilled_bytes = 0
    item.slot = item.number = item.unit = 0
    item.key = item.until_us = 0
    item.type_hash = item.key_hash = 0
    item.known = item.memory = 0
    item.moved = None
    return item


def drafted(draft: Draft, body: Any, now_us: int, extra: Extra | None) -> Entry:
    """A message with these options."""
    return entry(
        body, now_us, draft.deliver_at, draft.delay, draft.priority, draft.type, draft.key, draft.headers, extra
    )


def file_entry(draft: Draft, source: Source, now_us: int, extra: Extra | None) -> Entry:
    """An entry whose body is copied out of ``source`` into a file, when it has a slot."""
    item = drafted(draft, L.SPILL.pack(0, 0), now_us, extra)
    item.source = source
    item.spilled_bytes = source.known_bytes
    item.info |= L.FLAG_SPILLED << L.FLAGS_SHIFT
    return item


def entries(
    common: Draft, bodies: Iterable[Any], now_us: int, extra_of: Callable[[Draft, int], Extra | None]
) -> list[Entry]:
    """Entries of a batch with these options, but that a ``Draft`` brings its own; ``extra_of`` makes what is not
    usual."""
    deliver_at, delay, priority = common.deliver_at, common.delay, common.priority
    type, key, headers = common.type, common.key, common.headers
    extra = extra_of(common, now_us)
    items = []
    for body in bodies:
        if _is_draft(body):
            items.append(drafted(body, body.body, now_us, extra_of(body, now_us)))
        else:
            items.append(entry(body, now_us, deliver_at, delay, priority, type, key, headers, extra))
    return items


def ready_entries(bodies: Any, body_ends: Any, metas: Any, meta_ends: Any, infos: Any, delivers: Any) -> list[Entry]:
    """Entries of messages that were encoded before, in columns: bytes of all bodies one after the other, and where each
    begins and the last ends; the same of meta; ``info`` and delivery time (0: at once) of each."""
    items = []
    if cython.compiled and len(bodies):  # a pointer: a view of a view would cost more than the message
        body_bytes = cython.cast("const char*", cython.address(bodies[0]))
    else:
        body_bytes = b"" if cython.compiled else bytes(bodies)
    if cython.compiled and len(metas):
        meta_bytes = cython.cast("const char*", cython.address(metas[0]))
    else:
        meta_bytes = b"" if cython.compiled else bytes(metas)
    for i in range(len(infos)):
        body = body_bytes[body_ends[i] : body_ends[i + 1]]
        meta = meta_bytes[meta_ends[i] : meta_ends[i + 1]]
        items.append(_fresh(body, meta, delivers[i], infos[i]))
    return items
