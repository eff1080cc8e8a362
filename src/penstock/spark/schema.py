"""Owns the columns of a queue as Spark sees it, and which of them a reader or a writer may be given.

Never opens a queue.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import Misuse

# Spark spares itself a question a row and column where it is told that there is no null.
COLUMNS = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("number", LongType(), nullable=False),
        StructField("queue", StringType(), nullable=False),
        StructField("type", StringType()),
        StructField("key", StringType()),
        StructField("priority", IntegerType(), nullable=False),
        StructField("attempts", IntegerType(), nullable=False),
        StructField("enqueued_at", TimestampType(), nullable=False),
        StructField("deliver_at", TimestampType(), nullable=False),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("body", BinaryType(), nullable=False),
    ]
)

# Only for those who ask for them, in a schema: how the body was put, and whether somebody waits for a reply.
MORE = StructType(
    [
        StructField("codec", IntegerType(), nullable=False),
        StructField("wants_reply", BooleanType(), nullable=False),
    ]
)

# Only for scripts on Spark, this and no other: a row for each message, of which the first of a task says what the
# messages of its part of the keys came to, and the others nothing. Spark counts rows.
SAID = "said"
BY_KEYS = StructType([StructField(SAID, BinaryType())])
PART = "part"  # which part of the keys a message is of, where the messages themselves are rows

# What a slot says, without a look at the record.
FROM_SLOT = frozenset({"id", "number", "queue", "priority", "attempts", "deliver_at", "codec"})

_TYPES = {field.name: field.dataType for field in [*COLUMNS, *MORE]}
_MAY_BE_NULL = frozenset(field.name for field in COLUMNS if field.nullable)

WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "type": (StringType,),
    "key": (StringType,),
    "priority": (ByteType, ShortType, IntegerType, LongType),
    "deliver_at": (TimestampType,),
    "headers": (MapType,),
}


def _plain(kind: DataType) -> str:
    """A type in words, without what is said about nulls."""
    return kind.simpleString()


def check_read(schema: StructType) -> None:
    """A schema that was given to ``read.schema(...)``: some of the columns, in any order, with their own types."""
    if schema.fieldNames() == BY_KEYS.fieldNames():
        return
    if not schema.fields:
        raise Misuse(f"the schema is empty; the columns are {COLUMNS.simpleString()}")
    for field in schema:
        if field.name not in _TYPES:
            raise Misuse(f"there is no column {field.name}; the columns are {COLUMNS.simpleString()}")
        if _plain(field.dataType) != _plain(_TYPES[field.name]):
            raise Misuse(f"column {field.name} is {_plain(_TYPES[field.name])}, not {_plain(field.dataType)}")
        if not field.nullable and field.name in _MAY_BE_NULL:
            raise Misuse(f"column {field.name} can be null; the schema says that it cannot")
    _refuse_twice(schema)


def check_write(schema: StructType) -> None:
    """The columns of a DataFrame that is to be put into a queue."""
    for field in schema:
        allowed = WRITABLE.get(field.name)
        if allowed is None:
            raise Misuse(
                f"column {field.name} cannot be written to a queue; the columns are {', '.join(WRITABLE)}: "
                f"select these, and put the rest into the body"
            )
        if not isinstance(field.dataType, allowed):
            wanted = " or ".join(kind.typeName() for kind in allowed)
            raise Misuse(f"column {field.name} must be {wanted}, not {_plain(field.dataType)}")
        if field.name == "headers" and _plain(field.dataType) != _plain(_TYPES["headers"]):
            raise Misuse(f"column headers must be {_plain(_TYPES['headers'])}, not {_plain(field.dataType)}")
    names = schema.fieldNames()
    if "body" not in names:
        raise Misuse(f"there is no column body; the columns of a message are {', '.join(WRITABLE)}")
    _refuse_twice(schema)


def _refuse_twice(schema: StructType) -> None:
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Misuse(f"column {', '.join(twice)} is there twice")


# ---------------------------------------------------------------- bodies as text and as JSON


def text_body(column: str | Column = "body") -> Column:
    """The body as a string, named ``text``; null where it is not UTF-8, as what ``put("text")`` and ``put({"a": 1})``
    store is."""
    return _text(column).alias("text")


def json_body(schema: str | DataType, column: str | Column = "body", **options: Any) -> Column:
    """The body as a struct of this schema, as by ``from_json``, named ``json``; null where it is not JSON, as where it
    is not UTF-8."""
    parsed = F.from_json(_text(column), schema, {name: str(value) for name, value in options.items()})
    return parsed.alias("json")


def _text(column: str | Column) -> Column:
    """``decode`` would fail the query at the first body that is not UTF-8, again and again."""
    return F.try_validate_utf8((F.col(column) if isinstance(column, str) else column).cast("string"))
