"""Owns what is wrong with a pipeline outside of its definition: queues that are not there, functions that cannot be
imported, an app that does not fit. Looks, and changes nothing. Never asks Spark: that is ``plan.py``'s.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import Misuse, PenstockError
from penstock.manager import QueueManager
from penstock.manager.managed import ManagedQueue
from penstock.scripts import App
from penstock.scripts.calling import error_text
from penstock.scripts.naming import named
from penstock.spark import finding
from penstock.spark import options as O
from penstock.spark.pipelines import definition as D
from penstock.spark.pipelines.place import PipelinePlace
from penstock.spark.scripting.place import PARTS, Place, receiver_of
from penstock.spark.scripting.whose import require

FORMATS = ("parquet", "orc", "json", "csv", "avro")  # of files: those in a folder of their own can be written again


def mistakes_of(definition: D.Definition) -> list[D.Mistake]:
    """All that can be seen without Spark; first what the definition alone shows."""
    own = D.mistakes_of(definition)
    if own:
        return own
    root = Path(definition.root)
    if not root.is_dir():
        return [D.Mistake(f"{root}: there is no such folder of queues", option="root")]
    return [*_sources(definition), *_options(definition), *_settled(definition), *_steps(definition)]


def _sources(definition: D.Definition) -> Iterator[D.Mistake]:
    homes: dict[str, str] = {}
    for source in definition.sources:
        try:
            path = finding.path_of({"path": None, "root": definition.root, "queue": source})
            for home in finding.queues_of(path):
                if home in homes:
                    yield D.Mistake(f"{source} and {homes[home]} have the queue {home} both", option="sources")
                homes[home] = source
        except (PenstockError, OSError) as error:
            yield D.Mistake(_line(error), option="sources")


def source_options(definition: D.Definition, source: str) -> dict[str, str]:
    """What the stream of a source is read with."""
    return {
        "root": definition.root,
        "queue": source,
        "receiver": receiver_of(definition.name),
        "maxRows": str(definition.max_rows),
        "maxBytes": str(D.MAX_BYTES),
        **definition.options,
    }


def require_free(definition: D.Definition) -> None:
    """``ReceiverBusy`` if it runs already. A driver that was killed is waited for, as by a stream."""
    given = [O.parse(source_options(definition, source), O.STREAM) for source in definition.sources]
    finding.require_free(
        (finding.path_of(each) for each in given), given[0]["receiver"], max(each["receiverWait"] for each in given)
    )


def _options(definition: D.Definition) -> Iterator[D.Mistake]:
    taken = {"path", "root", "queue", "receiver", "maxrows", "claimtimeout"}
    ours = [name for name in definition.options if name.lower() in taken]
    if ours:
        yield D.Mistake(f"{', '.join(ours)}: that is the pipeline's to say", option="options")
        return
    try:
        O.parse(source_options(definition, definition.sources[0]), O.STREAM)
    except Misuse as error:
        yield D.Mistake(_line(error), option="options")


def _settled(definition: D.Definition) -> Iterator[D.Mistake]:
    try:
        before = PipelinePlace(definition.root, definition.name).noted()
        if before is not None and before.sources != definition.sources:
            yield D.Mistake(
                f"the pipeline was begun with {', '.join(before.sources)}; see docs/pipelines.md#other-sources",
                option="sources",
            )
    except PenstockError as error:
        yield D.Mistake(_line(error))


def _steps(definition: D.Definition) -> Iterator[D.Mistake]:
    tables: dict[str, str] = {}
    writes: str | None = None
    with QueueManager(definition.root) as manager:
        for step, called in zip(definition.steps, definition.titles(), strict=True):
            if isinstance(step, D.Put):
                yield from _sink(manager, step.put, called, "put")
            elif isinstance(step, D.Route):
                for choice in step.route:
                    yield from _sink(manager, choice.to, called, "route")
                if step.otherwise is not None:
                    yield from _sink(manager, step.otherwise, called, "otherwise")
            elif isinstance(step, D.Table):
                yield from _table(step, called, tables)
            elif isinstance(step, D.Call):
                yield from _function(step.call, called, "call", "a message")
            elif isinstance(step, D.Group):
                yield from _function(step.group, called, "group", "a key", "its messages")
                if writes is not None:
                    yield D.Mistake(f"a group comes before what is written: {writes}", called)
            elif isinstance(step, D.Script):
                yield from _app(definition, step, called)
            if isinstance(step, D.Put | D.Route | D.Table):
                writes = called


def _sink(manager: QueueManager, name: str, called: str, option: str) -> Iterator[D.Mistake]:
    try:
        queue: ManagedQueue
        with manager.open(name, relationship="producer") as queue:
            queue._gate.check("put_once")
    except (PenstockError, OSError) as error:
        yield D.Mistake(_line(error), called, option)


def _table(step: D.Table, called: str, tables: dict[str, str]) -> Iterator[D.Mistake]:
    if step.format not in FORMATS:
        yield D.Mistake(f"must be one of {', '.join(FORMATS)}, not {step.format!r}", called, "format")
    place = step.table if "://" in step.table else os.path.abspath(step.table)
    if place in tables:
        yield D.Mistake(f"{tables[place]} writes there already: {place}", called, "table")
    tables[place] = called
    if "://" not in place and os.path.exists(place) and not os.path.isdir(place):
        yield D.Mistake(f"{place} is not a folder", called, "table")


def _function(function: D.Function, called: str, option: str, *given: str) -> Iterator[D.Mistake]:
    try:
        found = D.check_function(named(function) if isinstance(function, str) else function)
    except (Exception, SystemExit) as error:  # whatever an import does
        yield D.Mistake(_cannot(function, error), called, option)
        return
    try:
        inspect.signature(found).bind(*given)
    except TypeError as error:
        yield D.Mistake(f"{D.named(function)} is called with {' and '.join(given)}: {error}", called, option)
    except ValueError:  # one of C has no signature
        pass


def app_of(step: D.Script) -> App[Any]:
    found = named(step.script) if isinstance(step.script, str) else step.script
    if not isinstance(found, App):
        raise TypeError(f"it is of type {type(found).__name__}, not a penstock.scripts.App")
    return found


def _app(definition: D.Definition, step: D.Script, called: str) -> Iterator[D.Mistake]:
    try:
        app = app_of(step)
    except (Exception, SystemExit) as error:  # whatever an import does
        yield D.Mistake(_cannot(step.script, error), called, "script")
        return
    if app.input not in definition.sources:
        yield D.Mistake(
            f"the app's input is {app.input!r}, where its timers go; it must be one of the pipeline's sources",
            called,
            "script",
        )
    try:
        place = Place(definition.root, app.name)
        require(place, PARTS, step.partitions, receiver_of(definition.name), f", pipeline={definition.name!r}")
    except PenstockError as error:
        yield D.Mistake(_line(error), called, "script")


def _cannot(function: D.Function, error: BaseException) -> str:
    return f"{D.named(function)} cannot be had: {_line(error_text(error))}"


def _line(error: Exception | str) -> str:
    return " ".join(str(error).split())
