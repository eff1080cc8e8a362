"""The codec, and what a message knows about itself without any file."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Corrupt, Misuse
from penstock.codec import (
    CODEC_BYTES,
    CODEC_JSON,
    CODEC_STR,
    META_BYTES_MAX,
    decode_body,
    decode_meta,
    encode_body,
    encode_meta,
)
from penstock.message import DONE, PENDING, WAITING, Message, new_message, to_datetime

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_every_json_value_comes_back_the_same(value: Any) -> None:
    codec, data = encode_body(value)
    assert codec == (CODEC_STR if isinstance(value, str) else CODEC_JSON)
    assert repr(decode_body(codec, data)) == repr(value)


@given(st.binary())
def test_bytes_are_stored_as_they_are(value: bytes) -> None:
    assert encode_body(value) == encode_body(bytearray(value)) == (CODEC_BYTES, value)
    assert decode_body(CODEC_BYTES, value) == value


@given(st.text(alphabet=st.characters()))  # with halves of characters, which UTF-8 has no room for
def test_a_text_comes_back_or_is_refused(value: str) -> None:
    for body in (value, [value], {value: value}):
        try:
            codec, data = encode_body(body)
        except Misuse:
            assert any(0xD800 <= ord(c) < 0xE000 for c in value)
        else:
            assert decode_body(codec, data) == body


def test_json_is_readable_by_others() -> None:
    assert json.loads(encode_body({"a": [1, "ž"]})[1]) == {"a": [1, "ž"]}


@pytest.mark.parametrize("text", ["Infinity", "1e400", '"\\ud800"', "[NaN]", "12" * 30, "-0", "1E2", '{"a":1,"a":2}'])
def test_json_of_others_is_what_pythons_own_reader_says(text: str) -> None:
    assert repr(decode_body(CODEC_JSON, text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("data", [b"", b"{", b"[1,]", b'"\xff"', b"nul", b"01"])
def test_what_is_not_json_is_an_error_of_pythons_own_reader(data: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        decode_body(CODEC_JSON, data)
    assert type(caught.value) in (json.JSONDecodeError, UnicodeDecodeError)


class Text(str):
    pass


class Dict(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("value", [Text("a"), [Text("a")], Dict(a=1), {Text("a"): 1}, (), [()], math.nan, [math.inf]])
def test_what_would_come_back_as_another_type_is_refused(value: Any) -> None:
    with pytest.raises(Misuse):
        encode_body(value)


@pytest.mark.parametrize("depth", [5_000, 200_000])
def test_nesting_without_end_is_refused(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    with pytest.raises(Misuse):
        encode_body(value)


def test_a_number_too_long_to_be_read_back_is_refused() -> None:
    with pytest.raises(Misuse):
        encode_body([10**10_000])


def test_the_refusal_says_what_is_wrong_and_what_can_be_put() -> None:
    with pytest.raises(Misuse, match=r"set.*bytes, str and JSON"):
        encode_body({"a": {1, 2}})
    with pytest.raises(Misuse, match="the key 1"):
        encode_body({"a": {1: 2}})


def test_a_codec_of_a_later_version_is_named() -> None:
    with pytest.raises(Misuse, match="codec 9"):
        decode_body(9, b"")


@pytest.mark.parametrize(
    "given_",
    [(None, None, None), ("t", None, None), (None, "k", None), ("", "", {}), ("t", "k", {"a": "b", "": "\N{SNOWMAN}"})],
)
def test_type_key_and_headers_come_back(given_: tuple[Any, Any, Any]) -> None:
    meta = decode_meta(encode_meta(*given_))
    assert (meta.t, meta.k, meta.h or {}) == (given_[0], given_[1], given_[2] or {})


def test_no_meta_is_no_bytes() -> None:
    meta = decode_meta(b"")
    assert (meta.t, meta.k, meta.h) == (None, None, None)


def test_meta_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    later = msgspec.msgpack.encode({"t": "order", "later": [1, 2], "k": "key"})
    assert (decode_meta(later).t, decode_meta(later).k) == ("order", "key")


def test_meta_must_fit_its_count() -> None:
    room = META_BYTES_MAX - len(encode_meta("", None, None)) - 2  # a long string's length takes two more bytes
    assert len(encode_meta("x" * room, None, None)) <= META_BYTES_MAX
    with pytest.raises(Misuse, match=str(META_BYTES_MAX)):
        encode_meta("x" * (META_BYTES_MAX + 1), None, None)


class Recorder:
    """A queue that notes what its messages ask of it."""

    name = "recorder"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def message_id(self, slot: int, number: int) -> str:
        return f"id-{slot:x}-{number:x}"

    def ack(self, message: Message, *, durable: bool = False) -> None:
        self.calls.append("ack durably" if durable else "ack")
        message.state = DONE

    def release(self, message: Message, *, delay: float | timedelta | None = None) -> None:
        self.calls.append(("release", delay))
        message.state = DONE

    def extend(self, message: Message, seconds: float) -> None:
        self.calls.append(("extend", seconds))


def make(
    receiver: Any, *, state: str = PENDING, codec: int = CODEC_BYTES, meta: bytes = b"", data: bytes = b"x"
) -> Message:
    return new_message(receiver, 3, 31, 1, 2_000_001, 1_000_000, 5, codec, meta, data, 0, 0, 7, state)


def test_a_message_passes_its_decisions_to_its_queue() -> None:
    queue = Recorder()
    message = make(queue)
    message.extend(5)
    message.release(delay=3)
    make(queue).ack()
    make(queue).ack(durable=True)
    assert queue.calls == [("extend", 5), ("release", 3), "ack", "ack durably"]
    assert message.id == "id-3-1f" and "id-3-1f" in repr(message)


def test_the_block_decides_once() -> None:
    queue = Recorder()
    with make(queue):
        pass
    with pytest.raises(KeyboardInterrupt), make(queue):
        raise KeyboardInterrupt
    with make(queue) as message:
        message.release()
    with make(queue, state=WAITING):
        pass
    assert queue.calls == ["ack", ("release", None), ("release", None)]


def test_times_are_aware_and_exact_to_the_microsecond() -> None:
    message = make(Recorder())
    assert message.deliver_at == datetime(1970, 1, 1, 0, 0, 2, 1, tzinfo=UTC)
    assert message.enqueued_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert message.last_attempt_at is None and message.lease_ends_at is None
    assert to_datetime(4_102_444_800_123_457).isoformat() == "2100-01-01T00:00:00.123457+00:00"


def test_a_null_body_is_null() -> None:
    message = make(Recorder(), codec=CODEC_JSON, data=b"null")
    assert message.body is None and message.body is None and message.data == b"null"


def test_damaged_meta_is_reported_as_damage() -> None:
    with pytest.raises(Corrupt, match="id-3-1f"):
        _ = make(Recorder(), meta=b"\xff\xff").type
