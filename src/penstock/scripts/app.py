"""Owns App: the scripts of an application by the types of their messages, and the type of its contexts. Never runs one:
that is a worker's, or Spark's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args, get_type_hints, overload

from penstock.errors import Misuse
from penstock.scripts.calling import Script, States
from penstock.scripts.context import State
from penstock.scripts.contexts import Contexts
from penstock.scripts.folder import check_name
from penstock.scripts.worker import Counts, Worker

Function = TypeVar("Function", bound=Callable[..., Any])


class App(Generic[State]):
    """Small functions over messages and contexts.

    ``input`` is the name of the queue, or macro queue, that its messages come from; the app's own name if not given.
    ``context`` is the type of what is kept for each key: a dataclass or ``msgspec.Struct`` all of whose fields have
    defaults, or anything else that msgspec writes as JSON and that can be made without arguments.
    """

    @overload
    def __init__(self: App[dict[str, Any]], name: str, *, input: str | None = None) -> None: ...
    @overload
    def __init__(self, name: str, *, input: str | None = None, context: Callable[[], State]) -> None: ...
    def __init__(self, name: str, *, input: str | None = None, context: Any = dict) -> None:
        self.name = check_name(name)
        self.input = name if input is None else input
        self.context = context
        self.scripts: dict[str, Script] = {}
        try:
            self.states = States(name, context)
            self.states.decode_json(self.states.encode(context()))
        except (TypeError, ValueError) as error:
            raise Misuse(
                f"{name}: contexts of type {getattr(context, '__name__', context)!r} are not possible: {error}; "
                f"what is needed is a type that msgspec knows, made without arguments: give all fields defaults"
            ) from error

    def script(self, *types: str) -> Callable[[Function], Function]:
        """Messages of these types are for this function, which is called with ``(context, message)``."""
        if not types or not all(isinstance(type, str) for type in types):
            raise Misuse(f'{self.name}: a script says for which types it is: @app.script("sms.received")')

        def register(function: Function) -> Function:
            if inspect.iscoroutinefunction(function):
                raise Misuse(
                    f"{self.name}: the script {function.__name__} is a coroutine function; scripts are plain ones"
                )
            for type in types:
                if type in self.scripts:
                    raise Misuse(f"{self.name}: there are two scripts for {type!r}")
                self.scripts[type] = function
            return function

        return register

    def worker(self, root: str | os.PathLike[str], **options: Any) -> Worker:
        """A worker in this process, for the queues of this root: ``with app.worker(root) as worker: worker.run()``."""
        return Worker(self, root, **options)

    def run(self, root: str | os.PathLike[str], *, until_empty: bool = False, **options: Any) -> Counts:
        """Be a worker, until interrupted or until nothing is due."""
        with self.worker(root, **options) as worker:
            return worker.run(until_empty=until_empty)

    def contexts(self, root: str | os.PathLike[str]) -> Contexts[State]:
        """The contexts that are stored now, by key."""
        return Contexts(self.name, root, self.states)

    def __reduce__(self) -> tuple[Any, ...]:
        """For Spark, whose tasks are given the app."""
        _drop_caches(self.context, set())
        return _remade, (self.name, self.input, self.context, self.scripts)

    def __repr__(self) -> str:
        return f"<App {self.name} of {len(self.scripts)} scripts>"


def _remade(name: str, input: str, context: Any, scripts: dict[str, Script]) -> App[Any]:
    app: App[Any] = App(name, input=input, context=context)
    app.scripts.update(scripts)
    return app


def _drop_caches(kind: Any, seen: set[Any]) -> None:
    """Of a dataclass that is pickled as a whole, as those of ``__main__`` are: what msgspec has noted in it cannot be,
    and is noted again."""
    for each in get_args(kind):
        _drop_caches(each, seen)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in seen:
        seen.add(kind)
        if "__msgspec_cache__" in vars(kind):
            delattr(kind, "__msgspec_cache__")
        with contextlib.suppress(NameError):
            for hint in get_type_hints(kind).values():
                _drop_caches(hint, seen)
