"""Owns Message, what travels, and the small codec that turns values into bytes and back. Never touches a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.errors import Corrupt, Misuse

if TYPE_CHECKING:
    from types import TracebackType

CODEC_BYTES = 0
CODEC_STR = 1
CODEC_JSON = 2

META_BYTES_MAX = 0xFFFF  # a record counts them in 16 bits

WAITING = "waiting"
PENDING = "pending"
DONE = "done"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCALARS = (str, int, float, bool, type(None))


class Meta(msgspec.Struct, omit_defaults=True):
    """What a record says about its message beside the fixed fields. Unknown names of later versions are ignored."""

    t: str | None = None  # type
    k: str | None = None  # key
    h: dict[str, str] | None = None  # headers


_encode_meta = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(Meta).decode


def encode_meta(type: str | None, key: str | None, headers: dict[str, str] | None) -> bytes:
    """
    >>> decode_meta(encode_meta("order", None, {"a": "b"}))
    Meta(t='order', k=None, h={'a': 'b'})
    """
    for name, value in (("type", type), ("key", key)):
        if value is not None and not isinstance(value, str):
            raise Misuse(f"{name} must be a str, not {value.__class__.__name__}")
    if headers is not None and not (
        isinstance(headers, dict)
        and all(isinstance(name, str) and isinstance(value, str) for name, value in headers.items())
    ):
        raise Misuse("headers must be a dict of str to str")
    try:
        meta = _encode_meta(Meta(type, key, headers or None))
    except UnicodeEncodeError as error:
        raise Misuse(f"type, key and headers must be valid Unicode: {error}") from error
    if len(meta) > META_BYTES_MAX:
        raise Misuse(f"type, key and headers take {len(meta)} bytes; at most {META_BYTES_MAX} are possible")
    return meta


def decode_meta(meta: bytes) -> Meta:
    return _decode_meta(meta) if meta else Meta()


def _check_json(value: Any, where: str) -> None:
    """Only what comes back equal and of the same type: a tuple would return as a list, a key 1 as "1"."""
    kind = type(value)
    if kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise Misuse(f"{where} has the key {name!r}: keys of JSON objects are str")
            _check_json(item, where)
    elif kind is list:
        for item in value:
            _check_json(item, where)
    elif kind not in _SCALARS:
        raise Misuse(
            f"{where} contains a {kind.__name__}: bytes, str and JSON values "
            f"(dict, list, str, int, float, bool, None) can be put; encode others to bytes"
        )


def encode_body(body: Any) -> tuple[int, bytes]:
    """Codec and bytes of a body.

    >>> encode_body({"order": 7})
    (2, b'{"order":7}')
    """
    kind = type(body)
    if kind is bytes:
        return CODEC_BYTES, body
    if kind is str:
        try:
            return CODEC_STR, body.encode()
        except UnicodeEncodeError as error:
            raise Misuse(f"the body is not valid Unicode: {error}") from error
    if isinstance(body, bytes | bytearray | memoryview):
        return CODEC_BYTES, bytes(body)
    _check_json(body, "the body")
    try:
        return CODEC_JSON, json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the body cannot be written as JSON: {error}") from error


def decode_body(codec: int, data: bytes) -> Any:
    if codec == CODEC_BYTES:
        return data
    if codec == CODEC_STR:
        return data.decode()
    if codec == CODEC_JSON:
        return json.loads(data)
    raise Misuse(f"the body was put with codec {codec}, which this version does not know")


def to_datetime(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


class Receiver(Protocol):
    """What a message needs of the queue that delivered it."""

    @property
    def name(self) -> str: ...
    def message_id(self, slot: int, number: int) -> str: ...
    def ack(self, message: Message) -> None: ...
    def release(self, message: Message, *, delay: float | timedelta | None = None) -> None: ...
    def extend(self, message: Message, seconds: float) -> None: ...


class Message:
    """One delivery of a message (from ``get``), or a look at one (from ``browse``).

    As a context manager it is acknowledged when the block ends, and released when the block raises.
    """

    __slots__ = (
        "_body",
        "_codec",
        "_meta",
        "_meta_bytes",
        "_receiver",
        "attempts",
        "data",
        "deliver_us",
        "enqueued_us",
        "last_attempt_us",
        "lease_us",
        "number",
        "owner",
        "priority",
        "slot",
        "state",
    )

    def __init__(
        self,
        receiver: Receiver,
        slot: int,
        number: int,
        attempts: int,
        deliver_us: int,
        enqueued_us: int,
        priority: int,
        codec: int,
        meta: bytes,
        data: bytes,
        last_attempt_us: int,
        lease_us: int,
        owner: int,
        state: str,
    ) -> None:
        self._receiver = receiver
        self._codec = codec
        self._meta_bytes = meta
        self._meta: Meta | None = None
        self._body: Any = None
        self.slot = slot
        self.number = number
        self.attempts = attempts
        self.deliver_us = deliver_us
        self.enqueued_us = enqueued_us
        self.priority = priority
        self.data = data
        self.last_attempt_us = last_attempt_us
        self.lease_us = lease_us
        self.owner = owner
        self.state = state

    @property
    def id(self) -> str:
        """Unique across queues, and the same for the message's whole life."""
        return self._receiver.message_id(self.slot, self.number)

    @property
    def body(self) -> Any:
        """What was put: bytes, str, or a JSON value. ``data`` has the bytes as they are stored."""
        if self._codec == CODEC_BYTES:
            return self.data
        if self._body is None:
            self._body = decode_body(self._codec, self.data)
        return self._body

    @property
    def meta(self) -> Meta:
        if self._meta is None:
            try:
                self._meta = decode_meta(self._meta_bytes)
            except msgspec.DecodeError as error:
                raise Corrupt(self.id, offset=0, expected="type, key and headers", found=str(error)) from error
        return self._meta

    @property
    def type(self) -> str | None:
        return self.meta.t

    @property
    def key(self) -> str | None:
        return self.meta.k

    @property
    def headers(self) -> dict[str, str]:
        return self.meta.h or {}

    @property
    def enqueued_at(self) -> datetime:
        return to_datetime(self.enqueued_us)

    @property
    def deliver_at(self) -> datetime:
        return to_datetime(self.deliver_us)

    @property
    def last_attempt_at(self) -> datetime | None:
        return to_datetime(self.last_attempt_us) if self.last_attempt_us else None

    @property
    def lease_ends_at(self) -> datetime | None:
        """When this delivery's lease ends, by the wall clock at the time it was taken or extended."""
        return to_datetime(self.lease_us) if self.lease_us else None

    def ack(self) -> None:
        """Done with it: it leaves the queue."""
        self._receiver.ack(self)

    def release(self, *, delay: float | timedelta | None = None) -> None:
        """Give it back, now or after ``delay`` seconds."""
        self._receiver.release(self, delay=delay)

    def extend(self, seconds: float) -> None:
        """Ask for ``seconds`` more from now."""
        self._receiver.extend(self, seconds)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state != PENDING:  # acked or released inside the block
            return
        if kind is None:
            self.ack()
        else:
            self.release()

    def __repr__(self) -> str:
        return f"<Message {self.id} priority={self.priority} attempts={self.attempts}>"
