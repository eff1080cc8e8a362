"""The litequeue package, as it comes, but without synchronous writes as everything here.

It has no batches for receivers, and keeps what is done until somebody prunes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from litequeue import LiteQueue

from bench.systems.interface import POLL_S, Client, System

BUSY_S = 60.0


class LitequeueClient(Client):
    def __init__(self, path: Path) -> None:
        self.queue = LiteQueue(path, timeout=BUSY_S)
        self.queue.conn.execute("PRAGMA synchronous = OFF")
        self.put = self.queue.put
        self.ack = self.queue.done

    def put_many(self, bodies: Sequence[bytes]) -> None:
        with self.queue.transaction(mode="IMMEDIATE"):
            for body in bodies:
                self.queue.put(body)

    def get(self) -> tuple[str, bytes]:
        while True:
            message = self.queue.pop()
            if message is not None:
                return message.message_id, message.data
            time.sleep(POLL_S)

    def left(self) -> int:
        return self.queue.qsize()

    def close(self) -> None:
        self.queue.close()


class Litequeue(System):
    name = "litequeue"
    scenarios = "abce"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.path = where / "litequeue.sqlite"
        LitequeueClient(self.path).close()

    def open(self, *, role: str = "both", index: int = 0) -> LitequeueClient:
        return LitequeueClient(self.path)
