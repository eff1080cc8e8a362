"""Owns the background of a process: one thread that brings the index of every open queue to disk now and then (S5),
releases claims whose receivers have been gone for longer than they said, and writes what was gathered of histories.

Nobody waits for it and nothing depends on it: any process that has the queue open does it, one at a time, and where no
process does, the room and the certainty it gives come with the next one. Knows a queue only by its client.
"""

from __future__ import annotations

import logging
import threading
import weakref

from penstock.errors import PenstockError, QueueClosed
from penstock.message import Message
from penstock.store import layout as L
from penstock.timequeue.clients import Client
from penstock.timequeue.holder import Holder
from penstock.timequeue.receivers import release_overdue

LOOKS_PER_INTERVAL = 4  # several processes look in turn; whoever comes first after the interval does it
LOOK_S_MIN = 0.01
HISTORY_S = 1.0  # so much of a history a killed process may take with it

log = logging.getLogger("penstock")


class Upkeep:
    """The clients of this process that want index syncs, and the thread that performs them."""

    def __init__(self) -> None:
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self._mutex = threading.Lock()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, client: Client) -> None:
        if client.options.index_sync_ms == 0 and client.history is None:
            return
        with self._mutex:
            self._clients.add(client)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock upkeep", daemon=True)
                self._thread.start()
        self._changed.set()

    def _open_clients(self) -> list[Client]:
        with self._mutex:
            return [client for client in self._clients if not client.closed]

    def _run(self) -> None:
        while True:
            self._changed.wait(self._look())
            self._changed.clear()

    def _look(self) -> float | None:
        """Do what is due; seconds until the next look, None for a queue to come."""
        clients = self._open_clients()
        for client in clients:
            if client.options.index_sync_ms:
                _sync_if_due(client)
                _release_overdue(client)
            if client.history is not None:
                _write_history(client)
        return min((_look_s(client) for client in clients), default=None)


def _look_s(client: Client) -> float:
    """How long after a look at it the next is to come."""
    sync_s = client.options.index_sync_ms / 1000
    look_s = max(sync_s / LOOKS_PER_INTERVAL, LOOK_S_MIN) if sync_s else HISTORY_S
    return look_s if client.history is None else min(look_s, HISTORY_S)


def _write_history(client: Client) -> None:
    with client.upkeep:
        if client.closed:
            return
        try:
            client.seal_history()
        except (PenstockError, OSError):  # busy, or just closed: the next look will do
            return
        assert client.history is not None
        client.history.tend()


def _sync_if_due(client: Client) -> None:
    with client.upkeep:
        if client.closed:
            return
        try:
            if client.syncs.index_due(client.options.index_sync_ms * 1000):
                client.syncs.index.lead_if_free()
        except QueueClosed:
            pass
        except (PenstockError, OSError) as error:
            log.warning("%s: the index was not synced: %s", client.name, error)


class _Only:
    """The client as the queue that a receiver works through, which releases and commits nothing. What it finds to be
    given up waits, for whoever can move it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def _mine(self) -> Client:
        return self._client

    def may_have_questions(self) -> bool:
        return False

    def tell_claimed(self, special: list[tuple[int, int]], replies: dict[tuple[int, int], tuple[int, bytes]]) -> None:
        """Nobody: nothing is acknowledged."""

    def read_claimed(self, slot: int, owner: int) -> Message | None:
        return None

    def give_up_claimed(self, message: Message, reason: str, error: str | None, holder: Holder) -> None:
        """Nothing: it has read none."""

    def note_claimed(self, message: Message, result: int, text: bytes) -> None:
        """Nothing, too."""


def _release_overdue(client: Client) -> None:
    """Claims of receivers that asked for it and have not been there for long."""
    with client.upkeep:
        if client.closed or client.kernel.get(L.H_CLAIMED) == 0:
            return
        try:
            released = release_overdue(_Only(client))
        except QueueClosed:
            pass
        except (PenstockError, OSError) as error:
            log.warning("%s: claims that nobody came for were not released: %s", client.name, error)
        else:
            if released:
                log.warning("%s: %d messages of claims that nobody came for wait again", client.name, released)


process = Upkeep()


def after_fork_in_child() -> None:
    """Threads do not follow: the child's first open starts one of its own."""
    global process
    process = Upkeep()
