"""Owns the leases of what a worker has in hand: they are extended in the background while scripts run. Never decides
whether a message is still the worker's: one that was lost is found out when its outcome is stored.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable

from penstock.errors import LeaseLost, PenstockError, QueueClosed
from penstock.message import PENDING, Message

EXTENSIONS_A_LEASE = 3  # so that one may fail, or come late

log = logging.getLogger("penstock")


class LeaseKeeper:
    """A thread that wakes up a few times in a lease's time."""

    def __init__(self, lease_s: float, in_hand: Callable[[], Iterable[Message]]) -> None:
        self._lease_s = lease_s
        self._shortest_s = lease_s
        self._in_hand = in_hand
        self._ended = False
        self._sooner = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock scripts", daemon=True)
        self._thread.start()

    def mind(self, message: Message) -> None:
        """It may have a lease of its own."""
        own_s = message.own_lease_s
        if own_s is not None and own_s < self._shortest_s:
            self._shortest_s = own_s
            self._sooner.set()

    def _run(self) -> None:
        while not self._ended:
            if self._sooner.wait(self._shortest_s / EXTENSIONS_A_LEASE):
                self._sooner.clear()
                continue
            for message in list(self._in_hand()):
                if message.state == PENDING:
                    self._extend(message)

    def _extend(self, message: Message) -> None:
        try:
            with contextlib.suppress(LeaseLost, QueueClosed):
                message.extend(message.own_lease_s or self._lease_s)
        except (PenstockError, OSError) as error:
            log.warning("%s: its lease was not extended: %s", message.id, error)

    def close(self) -> None:
        self._ended = True
        self._sooner.set()
        if self._thread.is_alive():
            self._thread.join()
