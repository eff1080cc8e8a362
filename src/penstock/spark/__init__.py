"""Queues as tables for Spark. Needs the extra ``spark``; nothing here is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.outcomes import history
    from penstock.spark.schema import json_body, text_body
    from penstock.spark.sessions import session
    from penstock.spark.source import PenstockDataSource

__all__ = ["PenstockDataSource", "history", "json_body", "session", "text_body"]

_WHERE = {
    "PenstockDataSource": "source",
    "history": "outcomes",
    "json_body": "schema",
    "session": "sessions",
    "text_body": "schema",
}


def __getattr__(name: str) -> Any:
    """The public names, each from its module: whoever only asks for Java (``penstock doctor``) needs no Spark."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"penstock.spark.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        package = error.name.partition(".")[0]
        raise PenstockError(f"{package} is not installed; pip install 'penstock[spark]'") from error
