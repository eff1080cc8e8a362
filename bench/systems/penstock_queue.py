"""Penstock itself, through its public interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import penstock
from bench.systems.interface import Client, System

RECORD_EXTRA_BYTES = 256  # more than a record's header and rounding, so that the data never is what is full


class PenstockClient(Client):
    def __init__(self, queue: penstock.TimeQueue) -> None:
        self.queue = queue
        self.put = queue.put
        self.put_many = queue.put_many
        self.ack = queue.ack
        self.ack_many = queue.ack_many

    def get(self) -> tuple[penstock.Message, bytes]:
        message = self.queue.get()
        return message, message.body

    def get_many(self, most: int) -> tuple[list[penstock.Message], list[bytes]]:
        messages = self.queue.get_many(most, wait=3600)
        return messages, [message.body for message in messages]

    def put_at(self, body: bytes, deliver_us: int) -> object:
        return self.queue.put(body, deliver_at=deliver_us / 1e6)

    def put_many_at(self, bodies: Sequence[bytes], delivers_us: Sequence[int]) -> object:
        return self.queue.put_many(
            penstock.Draft(body=body, deliver_at=deliver_us / 1e6)
            for body, deliver_us in zip(bodies, delivers_us, strict=True)
        )

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        return ((message.deliver_us, message.body) for message in self.queue.browse())

    def left(self) -> int:
        stats = self.queue.stats()
        return stats.waiting + stats.pending

    def puts_a_sync(self) -> float:
        stats = self.queue.stats()
        return getattr(stats, "committed", 0) / max(getattr(stats, "syncs", 0), 1)

    def close(self) -> None:
        self.queue.close()


class Penstock(System):
    name = "Penstock"
    scenarios = "abcdefghijk"
    durability = "relaxed"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.path = where / "queue"
        data_bytes = messages * (body_bytes + RECORD_EXTRA_BYTES) + (1 << 20)
        penstock.create(self.path, slots=messages, data_bytes=data_bytes, durability=self.durability).close()

    def open(self, *, role: str = "both", index: int = 0) -> PenstockClient:
        return PenstockClient(penstock.open(self.path, busy_s=60))


class PenstockCommit(Penstock):
    """Confirmed means on disk."""

    scenarios = "lmn"
    durability = "commit"
