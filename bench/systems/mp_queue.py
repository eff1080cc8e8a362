"""A bound without a disk: the standard library's multiprocessing.Queue."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from bench.systems.interface import Client, System


class MpQueueClient(Client):
    def __init__(self, queue: multiprocessing.Queue[bytes]) -> None:
        self.queue = queue
        self.put = queue.put
        self.put_many = queue.put  # a batch is one item, as pickle is then called once

    def get(self) -> tuple[None, bytes]:
        return None, self.queue.get()

    def get_many(self, most: int) -> tuple[list[None], list[bytes]]:
        return [], self.queue.get()

    def ack(self, token: None) -> None:
        pass

    def ack_many(self, tokens: list[None]) -> None:
        pass

    def close(self) -> None:
        self.queue.close()
        self.queue.join_thread()  # waits until everything is sent


class MpQueue(System):
    name = "mp.Queue"
    durable = False
    scenarios = "efi"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.queue = multiprocessing.get_context("forkserver").Queue()

    def open(self, *, role: str = "both", index: int = 0) -> MpQueueClient:
        return MpQueueClient(self.queue)
