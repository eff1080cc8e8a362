"""Owns how the threads of one macro queue object sleep together: one of them waits for news of the notification files,
all are told. Never decides what the news means: a listener does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.store.watching import Watches

SLEEP_MAX_S = 1.0  # clocks are set and owners die without a word
Listener = Callable[[set[Path] | None], None]


class Alarm:
    """Counts news. Who finds nothing to do sleeps with the count that it saw before it looked: it does not sleep if
    there was news since. The watches are made at the first sleep: a user has few instances of inotify."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._told = threading.Condition()
        self._watches: Watches | None = None
        self._polling = False
        self._closed = False
        self.is_watching = False  # somebody has slept, and there may be news
        self.count = 0

    def watch(self, paths: Iterable[Path]) -> None:
        with self._told:
            if self._watches is None:
                self._watches = Watches()
                self.is_watching = True
            for path in paths:
                self._watches.add(path)

    def watches(self, count: int) -> bool:
        """Whether so many are watched: one whose file was replaced is not any more."""
        with self._told:
            return self._watches is not None and len(self._watches) == count

    def unwatch(self, paths: Iterable[Path]) -> None:
        with self._told:
            if self._watches is not None:
                for path in paths:
                    self._watches.remove(path)

    def hear(self) -> None:
        """What has come until now, without waiting."""
        if self._watches is not None:  # somebody has slept
            with self._told:
                self._hear()

    def _hear(self) -> None:
        news = set() if self._watches is None else self._watches.news()
        if news is None or news:
            self._listener(news)
            self.count += 1
            self._told.notify_all()

    def unless_told(self, seen: int, work: Callable[[], None]) -> None:
        """Do this if there was no news since: with some that others have heard it would be wrong."""
        with self._told:
            if self.count == seen:
                work()

    def sleep(self, seen: int, seconds: float) -> bool:
        """Until there is news, or so long. False when the time ran out."""
        end_s = time.monotonic() + min(seconds, SLEEP_MAX_S)
        with self._told:
            while self.count == seen:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                if self._polling or self._watches is None:
                    self._told.wait(left_s)
                else:
                    self._poll(left_s)
        return True

    def _poll(self, left_s: float) -> None:
        """One thread at a time, for all; the others go on when it leaves."""
        assert self._watches is not None
        watches, self._polling = self._watches, True
        self._told.release()
        try:
            watches.wait(left_s)
        finally:
            self._told.acquire()
            self._polling = False
            self._told.notify_all()
            if self._closed:
                self._close()
        self._hear()

    def close(self) -> None:
        with self._told:
            self.count += 1
            self._told.notify_all()
            self._closed = True
            if not self._polling:  # else whoever does closes them
                self._close()

    def _close(self) -> None:
        if self._watches is not None:
            self._watches.close()
            self._watches = None

    def after_fork_in_child(self) -> None:
        """The parent's instance is not ours to read."""
        if self._watches is not None:
            self._watches.close()
        self._told = threading.Condition()
        self._watches = None
        self._polling = False
        self.count += 1
