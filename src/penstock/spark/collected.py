"""Owns rows of a DataFrame on their way to the driver: all of them, or an error. Never looks into one."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from penstock.errors import PenstockError


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """Spark's own ``collect`` takes the end of the line for the end of the rows: if Java fails while it sends them, for
    want of memory, what is missing is missing in silence. Arrow's says where it ends, and asks Java how it went."""
    try:
        found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    except EOFError as error:
        raise PenstockError("Java has ended in the middle of what tasks came to") from error
    return found
