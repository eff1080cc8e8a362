"""Owns what filters of a query mean for a queue: which messages cannot pass them. Pure.

A filter that is understood lets messages be left out early. All of them are given back to Spark, which looks again at
what is read: leaving out too few messages costs time, and nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from pyspark.sql import datasource as D

from penstock.codec import Meta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NUMBERS = ("number", "priority", "attempts")
TIMES = ("deliver_at", "enqueued_at")
TEXTS = ("type", "key")

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    D.EqualTo: operator.eq,
    D.EqualNullSafe: operator.eq,
    D.GreaterThan: operator.gt,
    D.GreaterThanOrEqual: operator.ge,
    D.LessThan: operator.lt,
    D.LessThanOrEqual: operator.le,
}
_NAMES = {operator.eq: "=", operator.gt: ">", operator.ge: ">=", operator.lt: "<", operator.le: "<="}
_BY_NAME = {name: compare for compare, name in _NAMES.items()}


class Condition(msgspec.Struct, frozen=True):
    """What must hold for a column: compared with a value (of times: microseconds), one of several, or null."""

    column: str
    how: str  # =, >, >=, <, <=, in, null, not null
    value: Any = None


def understood(filters: Iterable[Any]) -> list[Condition]:
    """The conditions among these filters that messages can be left out by."""
    found = (_condition(each) for each in filters)
    return [condition for condition in found if condition is not None]


def _condition(given: Any) -> Condition | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in (*NUMBERS, *TIMES, *TEXTS):
        return None
    (column,) = attribute
    if isinstance(given, D.IsNull | D.IsNotNull):
        return Condition(column, "null" if isinstance(given, D.IsNull) else "not null")
    if isinstance(given, D.In):
        values = [_value(column, value) for value in given.value]
        return None if None in values else Condition(column, "in", values)
    compare = _COMPARE.get(type(given))
    value = _value(column, getattr(given, "value", None))
    return None if compare is None or value is None else Condition(column, _NAMES[compare], value)


def _value(column: str, value: Any) -> Any:
    """As a message has it; None if it is not understood."""
    if column in NUMBERS:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if column in TEXTS:
        return value if isinstance(value, str) else None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return None


def by_slot(conditions: list[Condition], columns: dict[str, Any]) -> Any:
    """Which rows of these arrays (number, priority, attempts, deliver_at) pass what is said of them; None: all."""
    mask = None
    for condition in conditions:
        if condition.column in columns:
            passed = _passed(condition, columns[condition.column])
            mask = passed if mask is None else mask & passed
    return mask


def _passed(condition: Condition, values: Any) -> Any:
    if condition.how == "in":
        return np.isin(values, np.array(condition.value, dtype=np.int64))
    if condition.how in _BY_NAME:
        return _BY_NAME[condition.how](values, condition.value)
    return np.full(len(values), condition.how == "not null")  # of what a slot says nothing is null


def by_head(conditions: list[Condition]) -> list[Condition]:
    """Those that need a look at the record: type, key, enqueued_at."""
    return [condition for condition in conditions if condition.column in (*TEXTS, "enqueued_at")]


def passes(conditions: list[Condition], meta: Meta, enqueued_us: int) -> bool:
    for condition in conditions:
        value: Any = enqueued_us
        if condition.column in TEXTS:
            value = meta.t if condition.column == "type" else meta.k
        if not _holds(condition, value):
            return False
    return True


def _holds(condition: Condition, value: Any) -> bool:
    if condition.how == "null":
        return value is None
    if value is None:
        return False
    if condition.how == "not null":
        return True
    if condition.how == "in":
        return value in condition.value
    return bool(_BY_NAME[condition.how](value, condition.value))
