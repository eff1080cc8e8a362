"""The bound: the same bytes into a preallocated file. No queue: one process, no order but the file's, no leases.

An ack is one 8-byte write, so that get and ack are two system calls.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from bench.systems.interface import Client, System

ZEROS_BYTES = 1 << 20
CURSOR = struct.Struct("<Q")


class RawFileClient(Client):
    def __init__(self, path: Path, body_bytes: int) -> None:
        self.fd = os.open(path, os.O_RDWR)
        self.body_bytes = body_bytes
        self.put_at_byte = self.get_at_byte = self.acked_bytes = CURSOR.size

    def put(self, body: bytes) -> None:
        self.put_at_byte += os.pwrite(self.fd, body, self.put_at_byte)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        self.put_at_byte += os.pwrite(self.fd, b"".join(bodies), self.put_at_byte)

    def get(self) -> tuple[int, bytes]:
        body = os.pread(self.fd, self.body_bytes, self.get_at_byte)
        self.get_at_byte += self.body_bytes
        return self.get_at_byte, body

    def get_many(self, most: int) -> tuple[list[int], list[bytes]]:
        size = self.body_bytes
        data = os.pread(self.fd, size * most, self.get_at_byte)
        self.get_at_byte += len(data)
        return [self.get_at_byte], [data[at : at + size] for at in range(0, len(data), size)]

    def ack(self, token: int) -> None:
        self.acked_bytes = token
        os.pwrite(self.fd, CURSOR.pack(token), 0)

    def ack_many(self, tokens: list[int]) -> None:
        self.ack(tokens[-1])

    def left(self) -> int:
        return (self.put_at_byte - self.acked_bytes) // self.body_bytes

    def close(self) -> None:
        os.close(self.fd)


class RawFile(System):
    name = "raw file"
    scenarios = "abcd"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.path = where / "raw"
        self.body_bytes = body_bytes
        zeros = bytes(ZEROS_BYTES)
        with open(self.path, "wb") as file:
            for _ in range(0, CURSOR.size + messages * body_bytes, ZEROS_BYTES):
                file.write(zeros)

    def open(self, *, role: str = "both", index: int = 0) -> RawFileClient:
        return RawFileClient(self.path, self.body_bytes)
