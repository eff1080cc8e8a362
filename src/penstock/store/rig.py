"""Owns the hook of the test rigs: who watches hears of every store into a mapping and every effect outside it.

Off, which is always but in tests, it costs one look at a flag. On, it counts and can end the process at any of them
(``kill_at``), or hands each to an observer before it happens (``observe``), which may note it or raise an ``OSError``
in its place. Knows nothing of queues.
"""

import os
import signal
from typing import Any, Protocol

OPEN = "open"
ALLOCATE = "allocate"
WRITE = "write"
SYNC = "sync"
LOCK = "lock"
RENAME = "rename"
UNLINK = "unlink"
WAKE = "wake"
SEND = "send"
RECEIVE = "receive"

# Where it makes a difference to be killed just before.
FATAL = frozenset({WRITE, SYNC, UNLINK, WAKE, RENAME, SEND, RECEIVE})

watching = False
_fatal_step = 0
_steps = 0
_observer: Any = None


class Observer(Protocol):
    def store(self, path: str, index: int, value: int) -> None:
        """A word of a mapped file is about to be stored. Must not raise."""

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        """A call is about to be made on a descriptor or path. What it raises comes instead of the call."""


def kill_at(step: int) -> None:
    """End this process with SIGKILL just before the ``step``-th effect from now; 0 only counts."""
    global watching, _fatal_step, _steps
    watching = True
    _fatal_step = step
    _steps = 0


def steps() -> int:
    """Effects since the last ``kill_at``."""
    return _steps


def observe(observer: Observer | None) -> None:
    """Tell ``observer`` of every effect from now on; nobody with None."""
    global watching, _observer
    watching = observer is not None
    _observer = observer


def _step() -> None:
    global _steps
    _steps += 1
    if _steps == _fatal_step:
        os.kill(os.getpid(), signal.SIGKILL)


def store(path: str, index: int, value: int) -> None:
    """``Words.raw`` is about to store. Called only when somebody watches."""
    _step()
    if _observer is not None:
        _observer.store(path, index, value)


def effect(kind: str, target: int | str, offset: int = 0, data: bytes = b"") -> None:
    """``files.py`` is about to make a call. Called always: most are rare."""
    if watching:
        if kind in FATAL:
            _step()
        if _observer is not None:
            _observer.effect(kind, target, offset, data)
