"""A bound without a disk: ZeroMQ PUSH and PULL over a local socket. What is in flight dies with its process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import zmq

from bench.systems.interface import Client, System


class PushClient(Client):
    def __init__(self, addresses: list[str]) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUSH)
        for address in addresses:
            self.socket.connect(address)
        self.put = self.socket.send
        self.put_many = self.socket.send_multipart

    def close(self) -> None:
        self.socket.close()
        self.context.term()  # waits until everything is sent


class PullClient(Client):
    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PULL)
        self.socket.bind(address)

    def get(self) -> tuple[None, bytes]:
        return None, self.socket.recv()

    def get_many(self, most: int) -> tuple[list[None], list[bytes]]:
        return [], self.socket.recv_multipart()

    def ack(self, token: None) -> None:
        pass

    def ack_many(self, tokens: Sequence[None]) -> None:
        pass

    def close(self) -> None:
        self.socket.close()
        self.context.term()


class ZeroMq(System):
    """Each consumer has an address of its own, each producer pushes to all of them in turn."""

    name = "pyzmq"
    durable = False
    scenarios = "efi"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        # Names without a file: a path below a deep directory can be too long for a socket.
        name = f"ipc://@penstock-bench-{os.getpid()}-{secrets.token_hex(4)}"
        self.addresses = [f"{name}-{index}" for index in range(consumers)]

    def open(self, *, role: str = "both", index: int = 0) -> Client:
        return PullClient(self.addresses[index]) if role == "consumer" else PushClient(self.addresses)
