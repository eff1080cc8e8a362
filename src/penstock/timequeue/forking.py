"""Owns what happens at a fork: the child has no part in its parent's clients. Never opens one: each queue object does
that itself, when it is used next.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from penstock.store.files import Lock
from penstock.timequeue import upkeep

Kept = TypeVar("Kept")


class Opened(Protocol):
    """An object that has an open client."""

    def _after_fork_in_child(self) -> None:
        """Only close: threads that were in a turn are not here, and the locks they hold are the parent's."""


_opened: weakref.WeakSet[Opened] = weakref.WeakSet()
_opening = threading.RLock()
_kept: dict[object, Callable[[], None]] = {}  # how a child drops what its parent keeps open for a while


def note(queue: Opened) -> None:
    """It is to be told when this process is the child of a fork."""
    _opened.add(queue)


def opening() -> threading.RLock:
    """Held while descriptors come and go, and at a fork: no child gets one that is unknown to it."""
    return _opening


# ---------------------------------------------------------------- locks that are opened for a while


@contextlib.contextmanager
def kept(take: Callable[[], Kept], drop: Callable[[Kept], None]) -> Iterator[Kept]:
    """Something with descriptors of its own, for a block of the process that took it: the child of a fork drops it. It
    only closes, since a lock belongs to the description, which the parent has as well."""
    with opening():
        taken = take()
        key = object()
        _kept[key] = lambda: drop(taken)
    try:
        yield taken
    finally:
        with opening():
            if _kept.pop(key, None) is not None:  # else this is the child
                drop(taken)


@contextlib.contextmanager
def locked(make: Callable[[], Lock]) -> Iterator[None]:
    """A lock that is opened, and held, for a block."""
    with kept(make, Lock.close) as lock:
        pid = os.getpid()
        try:
            lock.acquire()
            yield
        finally:
            if os.getpid() == pid:
                lock.release()  # though a child may have the description for a moment yet


# ---------------------------------------------------------------- at a fork


def _before_fork() -> None:
    _opening.acquire()


def _after_fork_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # an interrupt kept us from acquiring it; the fork went on all the same
        _opening.release()


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.RLock()
    while _kept:
        with contextlib.suppress(OSError):
            _kept.popitem()[1]()
    upkeep.after_fork_in_child()
    for queue in list(_opened):
        queue._after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
