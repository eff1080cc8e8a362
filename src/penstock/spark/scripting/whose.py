"""Owns the question whose the contexts of an app are: its workers', a query's or a pipeline's. Changes nothing."""

from __future__ import annotations

import contextlib

from penstock.errors import Misuse
from penstock.scripts.folder import Folder
from penstock.scripts.store import Store
from penstock.spark.scripting.place import Place
from penstock.timequeue.arguments import BUSY_S


def refuse_those_of_workers(folder: Folder, more: str = "") -> None:
    """Two places with contexts of one app would each have half of the truth."""
    if folder.store.exists() and not folder.is_on_spark:
        with contextlib.closing(Store(folder.store, busy_s=BUSY_S, read_only=True)) as store:
            count = store.count() + len(store.slots())
        if count:
            raise Misuse(
                f"{folder.store}: workers have stored contexts here; move them to Spark first: "
                f"penstock.spark.move_contexts(app, root{more})"
            )


def require(place: Place, engine: str, partitions: int | None, input: str, more: str = "") -> None:
    """That they can be what a query wants that has not begun."""
    settings = place.settings()
    if settings is None:
        refuse_those_of_workers(place.folder, more)
    else:
        settings.require(place.path, engine, partitions, input)
