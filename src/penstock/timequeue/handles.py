"""Owns Handle: a put that goes on while its caller does something else. Never touches a queue: what is to be done is
given to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from penstock.errors import NoAnswer


class Handle(Future[Any]):
    """A ``concurrent.futures.Future`` of what a put returns: ``result``, ``exception``, ``done``,
    ``add_done_callback``, ``cancel``; ``await handle`` too. ``concurrent.futures.wait`` and ``asyncio.wrap_future``
    take it as they take any.
    """

    def __init__(self, queue: str, take_back: Callable[[Handle], bool]) -> None:
        super().__init__()
        self._queue = queue
        self._take_back = take_back
        self._ids: Sequence[str] = ()
        self._begun = False
        self.abandoned = False
        self.known = False  # somebody had put it before, by its dedup id: it is not ours to take back
        self.shared = False  # others may wait for its answer, too
        self._taking_back = False
        self._came: tuple[Any, BaseException | None] | None = None
        self._mutex = threading.Lock()

    @property
    def id(self) -> str | None:
        """The id of the message, once it is stored; of several, that of the first."""
        return self._ids[0] if self._ids else None

    @property
    def ids(self) -> Sequence[str]:
        """Of ``put_many``: the ids of all, once they are stored."""
        return self._ids

    def result(self, timeout: float | None = None) -> Any:
        """What the put returns, or raises. ``NoAnswer``, which is a ``TimeoutError``, if it takes longer."""
        started_s = time.monotonic()
        try:
            return super().result(timeout)
        except TimeoutError:
            if self.done():  # it is what the put has raised
                raise
            raise self._late(started_s) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        started_s = time.monotonic()
        try:
            return super().exception(timeout)
        except TimeoutError:
            raise self._late(started_s) from None

    def _late(self, started_s: float) -> NoAnswer:
        return NoAnswer(self._queue, self.id, waited_s=time.monotonic() - started_s)

    def cancel(self) -> bool:
        """Take it back: True if the message was not stored yet, or is a question that no receiver has got. Several that
        are stored stay, and one that somebody had put before, by its ``dedup_id``."""
        if self.done():
            return self.cancelled()
        with self._mutex:
            unbegun = not self._begun
            self._begun = True
        if not unbegun and (len(self._ids) != 1 or not self._taken_back()):
            return False
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()  # those in concurrent.futures.wait are told
        return True

    def _taken_back(self) -> bool:
        """What comes meanwhile counts only if it is not: that it was taken back may be told to this one, too."""
        with self._mutex:
            self._taking_back = True
        taken = False
        try:
            taken = self._take_back(self)
        finally:
            with self._mutex:
                self._taking_back = False
                came, self._came = self._came, None
            if came is not None and not taken:
                self.finish(*came)
        return taken

    def abandon(self) -> None:
        """Whoever waited for it has gone: it is not stored, if there is time, and no answer is collected for it."""
        self.abandoned = True
        if self.begin():
            super().cancel()
            self.set_running_or_notify_cancel()

    def begin(self) -> bool:
        """From now on it is being stored. False if it was cancelled before."""
        with self._mutex:
            if self._begun:
                return False
            self._begun = True
            return True

    def stored(self, ids: Sequence[str], *, known: bool = False, shared: bool = False) -> None:
        self._begun = True
        self.known = known
        self.shared = shared
        self._ids = ids

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        with self._mutex:
            if self._taking_back:
                self._came = (result, error)
                return
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)

    def __await__(self) -> Generator[Any, None, Any]:
        """A task that is cancelled while it waits cancels nothing else."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def tell(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(_wake, told)

        self.add_done_callback(tell)
        yield from told.__await__()
        return self.result(0)


def _wake(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
