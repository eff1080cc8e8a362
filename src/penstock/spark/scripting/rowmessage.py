"""Owns a message that came as a row of Spark's. Never reads a queue, nor needs Spark's libraries: processes that only
call functions have it, too.
"""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

from penstock.codec import decode_body
from penstock.message import to_datetime


class RowMessage:
    """A message, as ``penstock.scripts.context.Incoming`` wants it."""

    __slots__ = (
        "_codec",
        "_deliver_us",
        "_enqueued_us",
        "_headers",
        "attempts",
        "data",
        "id",
        "key",
        "number",
        "priority",
        "queue",
        "type",
        "wants_reply",
    )

    def __init__(
        self,
        id: str,
        number: int,
        queue: str,
        type: str | None,
        key: str | None,
        priority: int,
        attempts: int,
        enqueued_us: int,
        deliver_us: int,
        headers: Any,
        data: bytes,
        codec: int,
        wants_reply: bool,
    ) -> None:
        self.id = id
        self.number = number
        self.queue = queue
        self.type = type
        self.key = key
        self.priority = priority
        self.attempts = attempts
        self._enqueued_us = enqueued_us
        self._deliver_us = deliver_us
        self._headers = headers
        self.data = data
        self._codec = codec
        self.wants_reply = wants_reply

    @property
    def body(self) -> Any:
        return decode_body(self._codec, self.data)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._headers) if self._headers else {}

    @property
    def enqueued_at(self) -> datetime:
        return to_datetime(self._enqueued_us)

    @property
    def deliver_at(self) -> datetime:
        return to_datetime(self._deliver_us)

    @property
    def order(self) -> tuple[Any, ...]:
        """Those of a key, as a queue would deliver them."""
        return -self.priority, self._deliver_us, self.number, self.queue

    def open(self) -> io.BufferedIOBase:
        return io.BytesIO(self.data)
