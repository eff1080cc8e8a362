"""Owns a look at the messages of a queue by somebody who only watches. Like ``glance`` it starts nothing in the
background and syncs nothing; it takes, changes and acknowledges nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from penstock.errors import Misuse
from penstock.message import Message
from penstock.store.files import Clock
from penstock.timequeue.arguments import queue_path
from penstock.timequeue.browsing import browse, seen
from penstock.timequeue.clients import Client
from penstock.timequeue.ids import taken_apart
from penstock.timequeue.leases import Consumer


class Look:
    """A queue, open for a moment. Messages that it shows can be read inside its block, and nothing else."""

    def __init__(self, path: str | os.PathLike[str], *, busy_s: float) -> None:
        self._client = Client(queue_path(path), clock=Clock(), busy_s=busy_s)
        receiver: Any = self  # of a message that was only looked at, nothing but its name is asked
        self._consumer = Consumer(self._client, receiver)

    @property
    def name(self) -> str:
        return self._client.name

    def message_id(self, slot: int, number: int) -> str:
        """The id by which ``find`` has it. One that was moved here has kept another."""
        return f"{self._client.id_prefix}{slot:x}-{number:x}"

    def browse(self, *, state: str, limit: int, skip: int = 0) -> Iterator[Message]:
        """As ``TimeQueue.browse``; ``skip`` are passed over, unread."""
        return browse(self._client, self._consumer, state=state, limit=limit, skip=skip)

    def find(self, message_id: str, *, among: int) -> Message | None:
        """The message with this id: one that was put here at once, one that was moved here if it is one of the first
        ``among`` that wait. ``Misuse`` if it is no id at all."""
        try:
            place = taken_apart(message_id, self._client.id_prefix, self.name)
        except Misuse:
            taken_apart(message_id, message_id.partition("-")[0] + "-", self.name)
            found = (message for message in self.browse(state="all", limit=among) if message.id == message_id)
            return next(found, None)
        return seen(self._client, self._consumer, *place)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
