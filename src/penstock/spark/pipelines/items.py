"""Owns rows as messages for the functions of a pipeline, and what their results make of them. Never calls a
function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec import encode_body
from penstock.errors import Misuse
from penstock.spark.pipelines.messages import PipelineMessage
from penstock.spark.scripting.rows import COLUMNS, values
from penstock.store.layout import PRIORITIES
from penstock.timequeue.puts import Draft, to_us

# What a result may change, as columns of a row; a delivery time is that of what is put, and not the message's own.
DELIVER = "_deliver_us"
CHANGED = ("codec", "body", "type", "key", "priority", "headers", DELIVER)
TAKEN = ("type", "key", "headers", "priority", "delay", "deliver_at")
_NOT_TAKEN = [name for name in Draft.__struct_fields__ if name not in (*TAKEN, "body")]


def items(batch: pa.RecordBatch, parsed: list[str]) -> Iterator[PipelineMessage]:
    columns = [values(batch.column(field.name)) for field in COLUMNS]
    more = [batch.column(name).to_pylist() for name in parsed]
    for n, row in enumerate(zip(*columns, strict=True)):
        message = PipelineMessage(*row)
        message.parsed = {name: column[n] for name, column in zip(parsed, more, strict=True)}
        yield message


class Changed(msgspec.Struct, frozen=True):
    """The columns of ``CHANGED``, in their order."""

    codec: int
    body: bytes
    type: str | None
    key: str | None
    priority: int
    headers: list[tuple[str, str]] | None
    deliver_us: int | None


def changed(result: Any, message: PipelineMessage, now_us: int) -> Changed:
    """A message after a call. What a ``Draft`` does not say is the message's own."""
    draft = result if isinstance(result, Draft) else Draft(body=result)
    other = [name for name in _NOT_TAKEN if getattr(draft, name) is not None]
    if other:
        raise Misuse(f"a message of a pipeline takes {', '.join(TAKEN)}; not {', '.join(other)}")
    codec, body = encode_body(draft.body)
    headers = message.headers if draft.headers is None else draft.headers
    if not isinstance(headers, dict):
        raise Misuse(f"headers are a dict of str, not {headers!r}")
    priority = draft.priority or message.priority
    if priority.__class__ is not int or not 0 <= priority < PRIORITIES:
        raise Misuse(f"priority must be a whole number from 0 to {PRIORITIES - 1}, not {priority!r}")
    return Changed(
        codec,
        body,
        _text("type", message.type if draft.type is None else draft.type),
        _text("key", message.key if draft.key is None else draft.key),
        priority,
        [(_required("a header", name), _required("a header", value)) for name, value in headers.items()] or None,
        to_us(draft.deliver_at, draft.delay, now_us) or None,
    )


def _text(what: str, value: Any) -> str | None:
    return None if value is None else _required(what, value)


def _required(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Misuse(f"{what} is a str, not {value!r}")
    value.encode()  # a column has no half characters
    return value
