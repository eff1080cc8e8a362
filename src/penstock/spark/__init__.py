"""Queues as tables for Spark. Needs the extra ``spark``; nothing here is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.outcomes import history
    from penstock.spark.pipelines.pipeline import Pipeline
    from penstock.spark.schema import json_body, text_body
    from penstock.spark.scripting.contexts import contexts, move_contexts
    from penstock.spark.scripting.query import run_scripts
    from penstock.spark.sessions import session
    from penstock.spark.source import PenstockDataSource

__all__ = [
    "PenstockDataSource",
    "Pipeline",
    "contexts",
    "history",
    "json_body",
    "move_contexts",
    "run_scripts",
    "session",
    "text_body",
]

_WHERE = {
    "PenstockDataSource": "source",
    "Pipeline": "pipelines.pipeline",
    "contexts": "scripting.contexts",
    "history": "outcomes",
    "json_body": "schema",
    "move_contexts": "scripting.contexts",
    "reason_of": "ending",  # for the command line, as is the next
    "running_java": "ending",
    "run_scripts": "scripting.query",
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
