"""Owns the words of a few errors for users of Spark, whose own words name what only a program can give.

Never handles an error: it goes on with the same class and fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import BatchTooLarge, QueueFull

NEVER_FITS = (
    "a micro-batch keeps its size however often it is run: if it can never fit, see "
    "docs/spark.md#a-batch-that-never-fits"
)


@contextmanager
def for_spark(*, stream: bool) -> Iterator[None]:
    """Around a write into a queue, by a job or by a micro-batch of a stream."""
    try:
        yield
    except QueueFull as error:
        error.args = (full(error, stream=stream),)
        raise
    except BatchTooLarge as error:
        error.args = (too_large(error, stream=stream),)
        raise


def full(error: QueueFull, *, stream: bool) -> str:
    """
    >>> full(QueueFull("/q", which="slots", size=7), stream=False)[-98:]
    'receive or cancel messages, wait longer with the option timeout, or create a larger queue (slots=)'
    """
    remedy = "receive or cancel messages, wait longer with the option timeout, or create a larger queue"
    option = "slots=" if error.which == "slots" else "data_bytes="
    said = f"{error.queue}: full ({error.which}): {error.what}; {remedy} ({option})"
    return f"{said}. Nothing was put; {NEVER_FITS}" if stream else said


def too_large(error: BatchTooLarge, *, stream: bool) -> str:
    if stream:
        return f"{error}: take fewer with the source's option maxRows, or create a larger queue; {NEVER_FITS}"
    return f"{error}: write fewer rows at once, or create a larger queue (slots=)"
