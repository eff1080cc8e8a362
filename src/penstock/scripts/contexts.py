"""Owns looking at the contexts of an app: a mapping of keys to states. Never changes one, and holds no worker up."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from datetime import datetime
from pathlib import Path
from typing import Any, Generic

import msgspec

from penstock.message import to_datetime
from penstock.scripts.calling import Kept, States
from penstock.scripts.context import State
from penstock.scripts.folder import Folder
from penstock.scripts.store import Store
from penstock.timequeue.arguments import BUSY_S


class Contexts(Mapping[str, State], Generic[State]):
    """What is stored for each key, as of the moment of looking: each look is a new one."""

    def __init__(self, app: str, root: str | os.PathLike[str], states: States) -> None:
        self._states = states
        self._folder = Folder(Path(os.path.abspath(root)), app)

    def __getitem__(self, key: str) -> State:
        for store in opened(self._folder):
            kept = store.contexts([key]).get(key)
            if kept is not None:
                state: State = self._states.decode(key, kept.state)
                return state
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._all())

    def items(self) -> ItemsView[str, State]:
        """All of them, at one moment, read one by one."""
        return _Items(self)

    def values(self) -> ValuesView[State]:
        return _Values(self)

    def decoded(self) -> Iterator[tuple[str, State]]:
        return ((key, self._states.decode(key, kept.state)) for key, kept in self._all())

    def _all(self) -> Iterator[tuple[str, Kept]]:
        return merged(self._folder)

    def __len__(self) -> int:
        return sum(store.count() for store in opened(self._folder))

    def timers(self, key: str) -> dict[str, datetime]:
        """Those of a context that are set, and when."""
        return next(iter(shown(self._folder, key)), {"timers": {}})["timers"]


class _Items(ItemsView[str, State]):
    def __init__(self, contexts: Contexts[State]) -> None:
        super().__init__(contexts)
        self._contexts = contexts

    def __iter__(self) -> Iterator[tuple[str, State]]:
        return self._contexts.decoded()


class _Values(ValuesView[State]):
    def __init__(self, contexts: Contexts[State]) -> None:
        super().__init__(contexts)
        self._contexts = contexts

    def __iter__(self) -> Iterator[State]:
        return (state for _, state in self._contexts.decoded())


def opened(folder: Folder) -> Iterator[Store]:
    """Each file with contexts, open to be read."""
    for path in folder.stores():
        with contextlib.closing(Store(path, busy_s=BUSY_S, read_only=True)) as store:
            yield store


def read(path: str | Path) -> Iterator[tuple[str, Kept]]:
    """The contexts of a file, at one moment, by key."""
    with contextlib.closing(Store(Path(path), busy_s=BUSY_S, read_only=True)) as store:
        yield from store.all_contexts()


def shown(folder: Folder, key: str | None = None) -> Iterator[dict[str, Any]]:
    """Contexts as they are stored, whatever their type: key, state and timers; one of them, or all by key."""
    folder.require()
    found: Iterable[tuple[str, Kept]]
    if key is None:
        found = merged(folder)
    else:
        found = ((key, kept) for store in opened(folder) if (kept := store.contexts([key]).get(key)) is not None)
    for name, kept in found:
        timers = {type: to_datetime(timer.at_us) for type, timer in kept.timers.items()}
        yield {"key": name, "state": msgspec.json.decode(kept.state), "timers": timers}


def merged(folder: Folder) -> Iterator[tuple[str, Kept]]:
    """All contexts, by key."""
    return heapq.merge(*(read(path) for path in folder.stores()), key=lambda each: each[0])
