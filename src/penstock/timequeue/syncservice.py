"""Owns the synchronization component as a process: one thread for each queue that it serves, so that a slow disk, or a
failed one, is the affair of its own queues. Decides which queues are served; what that means is ``syncer.py``'s.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from penstock.errors import PenstockError
from penstock.timequeue.syncbatches import Limits
from penstock.timequeue.syncer import QueueSyncer

LOOK_S = 2.0  # how often it looks for queues that have come, gone or been repaired
JOIN_S = 10.0  # threads that are in a sync of a disk that does not answer: the end of the process ends them


class Listener(Protocol):
    """Told what happens to which queue, by any thread."""

    def __call__(self, event: str, path: Path, said: str | Exception, /) -> None: ...


class _Served:
    """One queue and its thread."""

    def __init__(self, path: Path, limits: Limits, tell: Listener) -> None:
        self._path = path
        self._syncer = QueueSyncer(path, limits)
        self._tell = tell
        self._thread = threading.Thread(target=self._run, name=f"syncer of {path}", daemon=True)
        tell("serving", path, "serving")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._syncer.run()
        except (PenstockError, OSError) as error:
            self._tell("failed", self._path, error)
        finally:
            self._syncer.close()
            self._tell("ended", self._path, f"served {self._syncer.served} requests by {self._syncer.syncs} syncs")

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def is_current(self) -> bool:
        try:
            return self._syncer.is_current()
        except OSError:  # it has just ended, or its place cannot be looked at
            return False

    def stop(self) -> None:
        self._syncer.stop()

    def join(self, end_s: float) -> None:
        self._thread.join(max(end_s - time.monotonic(), 0))


def _end(served: list[_Served]) -> None:
    """All at once: each may be in a sync, and have an index sync before it."""
    end_s = time.monotonic() + JOIN_S
    for one in served:
        one.stop()
    for one in served:
        one.join(end_s)


class SyncService:
    """Serves the queues that ``find`` finds, from one look to the next, until it is stopped."""

    def __init__(self, find: Callable[[], Iterable[Path]], limits: Limits, tell: Listener) -> None:
        self._find = find
        self._limits = limits
        self._tell = tell
        self._served: dict[Path, _Served] = {}
        self._refused: dict[Path, str] = {}  # what was said of those that could not be served
        self._stopping: queue.SimpleQueue[None] = queue.SimpleQueue()  # a signal handler would wait for an event's lock

    def run(self, *, insist: bool) -> None:
        """Until ``stop``. With ``insist`` it is an error if one of the first cannot be served."""
        try:
            self._look(insist)
            while not self._is_stopping():
                self._look(False)
        finally:
            _end(list(self._served.values()))

    def stop(self) -> None:
        """From another thread, or a signal handler."""
        self._stopping.put(None)

    def _is_stopping(self) -> bool:
        """Waits until the next look is due; True as soon as ``stop`` was called."""
        try:
            self._stopping.get(timeout=LOOK_S)
        except queue.Empty:
            return False
        return True

    def _is_served(self, path: Path) -> bool:
        return self._served[path].is_running() and self._served[path].is_current()

    def _look(self, insist: bool) -> None:
        found = list(self._find())
        gone = [path for path in self._served if path not in found or not self._is_served(path)]
        _end([self._served.pop(path) for path in gone])
        for path in found:
            if path in self._served:
                continue
            try:
                self._served[path] = _Served(path, self._limits, self._tell)
                self._refused.pop(path, None)
            except (PenstockError, OSError) as error:
                if insist:
                    raise
                if self._refused.get(path) != str(error):
                    self._refused[path] = str(error)
                    self._tell("refused", path, error)
