"""Owns that a queue object is open: its client, made anew after a fork, and its end. What is done with a queue is
``timequeue.py``'s and ``inside.py``'s.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.errors import Misuse, PenstockError, QueueClosed, QueueNotFound, SyncFailed
from penstock.store.files import Clock
from penstock.store.regions import REGIONS
from penstock.timequeue import administration, forking, upkeep
from penstock.timequeue.arguments import BUSY_S, check_seconds, queue_path
from penstock.timequeue.asyncgets import AsyncGets
from penstock.timequeue.asyncputs import AsyncPuts
from penstock.timequeue.clients import Client, Progress
from penstock.timequeue.ids import taken_apart


class OpenQueue:
    """A queue of this process, until it is closed."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_s: float = BUSY_S,
        clock: Clock | None = None,
        progress: Progress | None = None,
        map_bytes: int | None = None,
        map_regions: int = REGIONS,
    ) -> None:
        self._path = queue_path(path)
        self._mapped = None if map_bytes is None else (map_bytes, map_regions)
        self._busy_s = check_seconds("busy_s", busy_s)
        self._clock = clock or Clock()
        self._closed = False
        self._async_puts = AsyncPuts(self.name, self._busy_s)
        self._async_gets = AsyncGets()
        self._id_prefix = ""
        self._client: Client | None = None
        self._open(progress)
        forking.note(self)

    def _open(self, progress: Progress | None = None) -> None:
        with forking.opening():
            if self._client is None:  # else another thread was first, after a fork
                self._open_alone(progress)

    def _open_alone(self, progress: Progress | None) -> None:
        client = Client(self._path, clock=self._clock, busy_s=self._busy_s, progress=progress, mapped=self._mapped)
        if self._id_prefix not in ("", client.id_prefix):  # after a fork
            client.close()
            raise QueueNotFound(f"{self.name}: another queue is here now")
        self._id_prefix = client.id_prefix
        self._equip(client)
        try:
            client.turn(administration.sweep_bodies, client)
            client.turn(administration.sweep_failures, client)
            client.turn(administration.sweep_moves, client)
        except BaseException:
            client.forget()  # else it would live on as long as somebody keeps the traceback
            raise
        self._client = client  # last: who sees it finds the others in place
        upkeep.process.add(client)

    def _equip(self, client: Client) -> None:
        """What a kind of queue keeps beside its client, made for a new one."""

    def _unequip(self) -> None:
        """And how it is given up, while the client is still open."""

    def _mine(self) -> Client:
        """Our client; after a fork, a new one."""
        client = self._client
        if client is None:
            if self._closed:
                raise QueueClosed(f"{self.name}: this queue object is closed")
            self._open()
            client = self._client
        assert client is not None
        return client

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def closed(self) -> bool:
        return self._closed

    def message_id(self, slot: int, number: int) -> str:
        return f"{self._id_prefix}{slot:x}-{number:x}"

    def parse_id(self, message_id: str) -> tuple[int, int]:
        return taken_apart(message_id, self._id_prefix, self.name)

    def close(self) -> None:
        """Give back what was got and not acknowledged, and leave the queue. Closing twice is fine.

        ``Misuse`` while another thread is in a put: end your threads first. Any other error leaves it closed as well:
        what was got returns as if this process had died.
        """
        if self._closed:
            return
        client = self._client
        try:
            if client is not None:
                self._unequip()
                self._leave(client)
        finally:
            if client is None or client.closed:
                self._closed = True
                self._client = None
                self._async_gets.close(QueueClosed(f"{self.name}: this queue object is closed"))

    def _leave(self, client: Client) -> None:
        try:
            with contextlib.suppress(SyncFailed):  # which is on record
                client.syncs.before_closing()
            with forking.opening():
                client.close()
        except Misuse:  # it cannot be closed now
            raise
        except (OSError, PenstockError):
            with forking.opening():
                client.give_up()
            raise

    def _after_fork_in_child(self) -> None:
        """Our client is the parent's; the next call opens one of our own."""
        self._async_puts = AsyncPuts(self.name, self._busy_s)  # no worker is here
        self._async_gets.disown()
        self._async_gets = AsyncGets()
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # one that could not be closed must not keep the others open
                client.disown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as another client of the same queue: what multiprocessing needs."""
        if self._closed:
            raise QueueClosed(f"{self.name}: this queue object is closed")
        return _reopen, (type(self), self.name, self._busy_s, *(self._mapped or ()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{' (closed)' if self._closed else ''}>"

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None and not client.closed and not sys.is_finalizing():  # threads are frozen by then
            with contextlib.suppress(Exception):  # a half-made object at interpreter exit; the system frees the rest
                client.end_history()
            with contextlib.suppress(Exception):
                client.forget()


def _reopen(
    kind: type[OpenQueue], path: str, busy_s: float, map_bytes: int | None = None, map_regions: int = REGIONS
) -> OpenQueue:
    return kind(path, busy_s=busy_s, map_bytes=map_bytes, map_regions=map_regions)
