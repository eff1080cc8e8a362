"""Owns what happens at a fork: the child has no part in its parent's clients. Never opens one: each queue object does
that itself, when it is used next.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol

from penstock.timequeue import upkeep


class Opened(Protocol):
    """An object that has an open client."""

    def _after_fork_in_child(self) -> None:
        """Only close: threads that were in a turn are not here, and the locks they hold are the parent's."""


_opened: weakref.WeakSet[Opened] = weakref.WeakSet()
_opening = threading.RLock()


def note(queue: Opened) -> None:
    """It is to be told when this process is the child of a fork."""
    _opened.add(queue)


def opening() -> threading.RLock:
    """Held while descriptors come and go, and at a fork: no child gets one that is unknown to it."""
    return _opening


def _before_fork() -> None:
    _opening.acquire()


def _after_fork_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # an interrupt kept us from acquiring it; the fork went on all the same
        _opening.release()


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.RLock()
    upkeep.after_fork_in_child()
    for queue in list(_opened):
        queue._after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
