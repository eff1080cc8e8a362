"""Owns the small codec that turns values into bytes and back, and what a record says beside the fixed fields."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.errors import Misuse

CODEC_BYTES = 0
CODEC_STR = 1
CODEC_JSON = 2
CODEC_PICKLE = 3

META_BYTES_MAX = 0xFFFF  # a record counts them in 16 bits

_SCALARS = (str, int, float, bool, type(None))


class Meta(msgspec.Struct, omit_defaults=True):
    """What a record says about its message beside the fixed fields. Unknown names of later versions are ignored."""

    t: str | None = None  # type
    k: str | None = None  # key
    h: dict[str, str] | None = None  # headers
    # From here on only where FLAG_SPECIAL or FLAG_REMEMBERED says so.
    x: int | None = None  # expires, in microseconds
    a: int | None = None  # most attempts
    b: tuple[float, float, float, float] | None = None  # backoff: first, factor, most, jitter
    l: int | None = None  # lease, in microseconds  # noqa: E741
    d: str | None = None  # dedup id
    u: int | None = None  # until when it is remembered, in microseconds
    o: str | None = None  # id that it had where it was put
    s: str | None = None  # of one that was moved: the other queue's UUID, and its number there
    f: str | None = None  # and that queue's path
    n: int | None = None  # attempts that it had there
    r: str | None = None  # of a dead letter: why it is one
    e: str | None = None  # its last error
    y: list[tuple[int, str]] | None = None  # the last errors, with their times in microseconds
    q: tuple[str, str, int] | None = None  # of a question: what is wanted, the asker, how long to keep the answer (µs)
    w: str | None = None  # of one that was moved: the path of the queue where it was asked


class Pickled:
    """A body that is a pickle, as ``penstock.stdlib`` puts them. Only that unpickles it: a pickle can run anything."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"<Pickled {len(self.data)} bytes>"


_encode_meta = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(Meta).decode
decode_json = msgspec.json.Decoder().decode  # quick, and not for all: see ``decode_body``


def encode_meta(
    type: str | None, key: str | None, headers: dict[str, str] | None, more: dict[str, Any] | None = None
) -> bytes:
    """``more`` are further fields of ``Meta``, which have been checked.

    >>> meta = decode_meta(encode_meta("order", None, {"a": "b"}))
    >>> meta.t, meta.k, meta.h
    ('order', None, {'a': 'b'})
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
        meta = _encode_meta(Meta(type, key, headers or None, **more) if more else Meta(type, key, headers or None))
    except UnicodeEncodeError as error:
        raise Misuse(f"type, key and headers must be valid Unicode: {error}") from error
    except TypeError as error:  # a kind of str that is more than a str
        raise Misuse(f"type, key and headers must be plain str: {error}") from error
    if len(meta) > META_BYTES_MAX:
        raise Misuse(f"type, key and headers take {len(meta)} bytes; at most {META_BYTES_MAX} are possible")
    return meta


def encode_fields(fields: dict[str, Any]) -> bytes:
    """The same of a message without type, key and headers: fields of ``Meta``, which have been checked."""
    meta = _encode_meta(fields)
    if len(meta) > META_BYTES_MAX:
        raise Misuse(f"what the message says beside its body takes {len(meta)} bytes; {META_BYTES_MAX} are possible")
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
    if kind is Pickled:
        return CODEC_PICKLE, body.data
    try:
        _check_json(body, "the body")
        return CODEC_JSON, json.dumps(body, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    except Misuse:
        raise
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the body cannot be written as JSON: {error}") from error


def decode_body(codec: int, data: bytes) -> Any:
    if codec == CODEC_BYTES:
        return data
    if codec == CODEC_STR:
        return data.decode()
    if codec == CODEC_JSON:
        try:
            return decode_json(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # what only the other one reads, or says to be wrong
            return json.loads(data)
    if codec == CODEC_PICKLE:
        return Pickled(data)
    raise Misuse(f"the body was put with codec {codec}, which this version does not know")
