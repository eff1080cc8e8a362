"""Owns what a process has in hand: the items it got and did not mark done, and which of them a ``task_done`` means.

Never touches the queue.
"""

from __future__ import annotations

import threading
from collections import deque

from penstock.message import Message


class Hand:
    """The messages in hand, by the thread that got them. A thread marks its own first: if the process is killed, what
    comes back is what others still work on. One that has none marks for another: a thread may get for its workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._held: dict[int, deque[tuple[int, Message]]] = {}  # those of all threads that have some
        self._count = 0

    def add(self, message: Message) -> None:
        with self._lock:
            self._count += 1
            own = self._own()
            own.append((self._count, message))
            self._held[id(own)] = own

    def take(self) -> tuple[int, Message] | None:
        """The message to mark done, and what ``put_back`` needs; None if there is none."""
        with self._lock:
            own = self._own()
            if not own and self._held:
                own = min(self._held.values(), key=lambda held: held[0][0])
            if not own:
                return None
            taken = own.popleft()
            if not own:
                del self._held[id(own)]
            return taken

    def put_back(self, taken: tuple[int, Message]) -> None:
        """It could not be marked: it is in hand again, before all that this thread got later."""
        with self._lock:
            own = self._own()
            own.appendleft(taken)
            self._held[id(own)] = own

    def __len__(self) -> int:
        with self._lock:
            return sum(len(held) for held in self._held.values())

    def _own(self) -> deque[tuple[int, Message]]:
        own: deque[tuple[int, Message]] | None = getattr(self._mine, "held", None)
        if own is None:
            own = self._mine.held = deque()
        return own
