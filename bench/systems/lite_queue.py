"""The litequeue package, as it comes, but for when it syncs.

As it comes it has ``synchronous = NORMAL``, with which SQLite syncs now and then, and not when a put is confirmed. So
it is measured with ``OFF`` where nothing is synced, and with ``FULL`` among the durable ones.

It has no batches for receivers, and keeps what is done until somebody prunes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from litequeue import LiteQueue

from bench.systems.interface import POLL_S, Client, System

BUSY_S = 60.0


class LitequeueClient(Client):
    def __init__(self, path: Path, synchronous: str) -> None:
        self.queue = LiteQueue(path, timeout=BUSY_S)
        self.queue.conn.execute(f"PRAGMA synchronous = {synchronous}")
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

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        rows = self.queue.conn.execute("SELECT data FROM Queue WHERE status = 0 ORDER BY rowid")
        return ((0, row["data"]) for row in rows)

    def left(self) -> int:
        return self.queue.qsize()

    def close(self) -> None:
        self.queue.close()


class Litequeue(System):
    name = "litequeue"
    scenarios = "abce"
    synchronous = "OFF"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.path = where / "litequeue.sqlite"
        LitequeueClient(self.path, self.synchronous).close()

    def open(self, *, role: str = "both", index: int = 0) -> LitequeueClient:
        return LitequeueClient(self.path, self.synchronous)


class LitequeueFull(Litequeue):
    name = "litequeue FULL"
    scenarios = "lmn"
    synchronous = "FULL"
