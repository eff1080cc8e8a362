"""Owns what a manager does to the files of a queue, for each kind of queue: made, opened, changed, renamed, removed.
One more kind is one more class and its line in ``KINDS``. Never decides whether it may be done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.interface import Queue
from penstock.manager.copies import DECISION
from penstock.manager.directory import ENTRY, QUEUE
from penstock.manager.macro import MacroQueue
from penstock.manager.macrolook import glance_members
from penstock.manager.membership import MACRO
from penstock.manager.options import OWN, SIZES
from penstock.store.alone import change_habits, move_queue, remove_queue
from penstock.store.files import Clock
from penstock.timequeue import Stats, TimeQueue, resize_queue
from penstock.timequeue.administration import glance
from penstock.timequeue.making import HABITS, habits, make, refuse_itself
from penstock.timequeue.sizes import check_sizes

Progress = Callable[[int, int], None]


class Kind(Protocol):
    def make(self, place: Path, options: Mapping[str, Any], entry: bytes) -> None:
        """There whole, with its entry, or not at all."""

    def open(self, place: Path, *, busy_s: float, clock: Clock | None, progress: Progress | None) -> Queue: ...

    def stats(self, place: Path, *, busy_s: float) -> Stats:
        """A look at it, which opens it for no longer than that and leaves nothing behind."""

    def check(self, place: Path, changes: Mapping[str, Any]) -> None:
        """``Misuse`` if these options can never be, before anything is begun."""

    def check_sizes(self, place: Path, changes: Mapping[str, Any], *, busy_s: float) -> None:
        """``Misuse`` if what is in it does not fit into these sizes, as far as that can be told."""

    def change(self, place: Path, changes: Mapping[str, Any], *, busy_s: float) -> None:
        """Called again after a kill, it completes what it had begun."""

    def rename(self, place: Path, *, to: Path, busy_s: float) -> None: ...
    def remove(self, place: Path, *, aside: Path, busy_s: float) -> None: ...


class PlainQueue:
    """A directory of its own."""

    def make(self, place: Path, options: Mapping[str, Any], entry: bytes) -> None:
        given = {name: value for name, value in options.items() if name not in OWN}
        make(place, slots=given.pop("depth"), **given, beside={ENTRY: entry})

    def open(self, place: Path, *, busy_s: float, clock: Clock | None, progress: Progress | None) -> Queue:
        return TimeQueue(place, busy_s=busy_s, clock=clock, progress=progress)

    def stats(self, place: Path, *, busy_s: float) -> Stats:
        return glance(place, busy_s=busy_s).stats

    def check(self, place: Path, changes: Mapping[str, Any]) -> None:
        kept = habits({name: value for name, value in changes.items() if name in HABITS})
        if "dead_letter" in kept:
            refuse_itself(kept["dead_letter"], place)

    def check_sizes(self, place: Path, changes: Mapping[str, Any], *, busy_s: float) -> None:
        if changes.keys() & set(SIZES):
            check_sizes(place, slots=changes.get("depth"), data_bytes=changes.get("data_bytes"), busy_s=busy_s)

    def change(self, place: Path, changes: Mapping[str, Any], *, busy_s: float) -> None:
        if changes.keys() & set(SIZES):
            resize_queue(
                place, slots=changes.get("depth"), data_bytes=changes.get("data_bytes"), busy_s=busy_s
            )  # first: it may be refused, and then nothing was changed
        others = {name: value for name, value in changes.items() if name in HABITS}
        if others:
            change_habits(place, habits(others), busy_s=busy_s)

    def rename(self, place: Path, *, to: Path, busy_s: float) -> None:
        move_queue(place, to=to, busy_s=busy_s)

    def remove(self, place: Path, *, aside: Path, busy_s: float) -> None:
        remove_queue(place, aside=aside, busy_s=busy_s)


class SeveralQueues:
    """A macro queue: a directory without messages of its own. It is made and changed by ``macros.py``."""

    def make(self, place: Path, options: Mapping[str, Any], entry: bytes) -> None:
        raise AssertionError("a macro queue is made from its members")

    def open(self, place: Path, *, busy_s: float, clock: Clock | None, progress: Progress | None) -> Queue:
        return MacroQueue(place, busy_s=busy_s, clock=clock, progress=progress)

    def stats(self, place: Path, *, busy_s: float) -> Stats:
        return glance_members(place, busy_s=busy_s).stats

    def check(self, place: Path, changes: Mapping[str, Any]) -> None:
        raise AssertionError("a macro queue is checked with its members")

    def check_sizes(self, place: Path, changes: Mapping[str, Any], *, busy_s: float) -> None:
        raise AssertionError("a macro queue has no sizes")

    def change(self, place: Path, changes: Mapping[str, Any], *, busy_s: float) -> None:
        raise AssertionError("a macro queue is changed by one write")

    def rename(self, place: Path, *, to: Path, busy_s: float) -> None:
        move_queue(place, to=to, busy_s=busy_s)

    def remove(self, place: Path, *, aside: Path, busy_s: float) -> None:
        """What a killed producer has decided to copy to all members goes to them first, if they take it now."""
        if (place / DECISION).exists():
            with contextlib.suppress(PenstockError, OSError):
                MacroQueue(place, busy_s=busy_s).close()
        remove_queue(place, aside=aside, busy_s=busy_s)


KINDS: dict[str, Kind] = {QUEUE: PlainQueue(), MACRO: SeveralQueues()}
