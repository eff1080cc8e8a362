"""Owns rows as messages for the functions of a pipeline, and what their results make of them. Never calls a
function."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.codec import encode_body
from penstock.errors import Misuse
from penstock.scripts.calling import error_text
from penstock.spark.pipelines.messages import PipelineMessage
from penstock.spark.scripting.rows import COLUMNS, values
from penstock.store.layout import PRIORITIES
from penstock.timequeue.puts import Draft, to_us
from penstock.timequeue.retries import text_of

# What a result may change, as columns of a row; a delivery time is that of what is put, and not the message's own.
DELIVER = "_deliver_us"
CHANGED = ("codec", "body", "type", "key", "priority", "headers", DELIVER)
TAKEN = ("type", "key", "headers", "priority", "delay", "deliver_at")
_NOT_TAKEN = [name for name in Draft.__struct_fields__ if name not in (*TAKEN, "body")]


def items(batch: pa.RecordBatch, parsed: list[str]) -> tuple[list[PipelineMessage], dict[int, str]]:
    """Messages; and by rows, why what was parsed of some cannot be had."""
    columns = [values(batch.column(field.name)) for field in COLUMNS]
    found = [PipelineMessage(*row) for row in zip(*columns, strict=True)]
    for message in found:
        message.parsed = {}
    errors: dict[int, str] = {}
    for name in parsed:
        for n, value in enumerate(_objects(name, batch.column(name), errors)):
            found[n].parsed[name] = value
    return found, errors


def _objects(name: str, column: pa.Array, errors: dict[int, str]) -> list[Any]:
    """Of a column that was parsed. Spark has times that Python has not: one of them is the fault of its row alone."""
    column = column.cast(_in_utc(column.type))  # elsewhere the first and last hours of the calendar are beyond it
    try:
        values: list[Any] = column.to_pylist()
    except Exception:
        values = [_object(name, column, n, errors) for n in range(len(column))]
    return values


def _object(name: str, column: pa.Array, n: int, errors: dict[int, str]) -> Any:
    try:
        return column[n].as_py()
    except Exception as error:
        errors.setdefault(n, text_of(f"what was parsed as {name} cannot be had in Python: {error_text(error)}"))
        return None


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The same, with all times in UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_field_in_utc(kind.field(n)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_field_in_utc(kind.key_field), _field_in_utc(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_field_in_utc(kind.value_field))
    return kind


def _field_in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_in_utc(field.type))


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
