"""The bound: the same bytes into a preallocated file. No queue: one process, no order but the file's, no leases.

An ack is one 8-byte write, so that get and ack are two system calls. Of durable puts each has a sync of its own, and
each producer a file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.systems.interface import Client, System

ZEROS_BYTES = 1 << 20
CURSOR = struct.Struct("<Q")
SHARES = {"both": 1, "producer": 4}  # one of many producers has room for a quarter of all messages


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
        _fill(self.path, CURSOR.size + messages * body_bytes)

    def open(self, *, role: str = "both", index: int = 0) -> RawFileClient:
        return RawFileClient(self.path, self.body_bytes)


class RawFileSyncClient(Client):
    """Its file is full of zeros that are on disk: a sync writes data, and has no size or place to write down."""

    def __init__(self, path: Path, file_bytes: int, body_bytes: int) -> None:
        self.directory = path.parent
        self.body_bytes = body_bytes
        self.at_byte = 0
        _fill(path, file_bytes)
        self.fd = os.open(path, os.O_RDWR)
        os.fsync(self.fd)

    def put(self, data: bytes) -> None:
        self.at_byte += os.pwrite(self.fd, data, self.at_byte)
        os.fdatasync(self.fd)

    put_many = put  # type: ignore[assignment]

    def packed(self, bodies: Sequence[bytes]) -> bytes:
        return b"".join(bodies)

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        """Of all producers. The end of a file's messages is where its zeros begin: no body is all zeros."""
        for path in sorted(self.directory.glob("raw-*")):
            with open(path, "rb") as file:
                while any(body := file.read(self.body_bytes)):
                    yield 0, body

    def close(self) -> None:
        os.close(self.fd)


class RawFileSync(RawFile):
    scenarios = "lmn"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.directory = where
        self.body_bytes = body_bytes
        self.file_bytes = messages * body_bytes

    def open(self, *, role: str = "both", index: int = 0) -> RawFileSyncClient:  # type: ignore[override]
        return RawFileSyncClient(self.directory / f"raw-{index}", self.file_bytes // SHARES[role], self.body_bytes)


def _fill(path: Path, size: int) -> None:
    zeros = bytes(ZEROS_BYTES)
    with open(path, "wb") as file:
        for _ in range(0, size, ZEROS_BYTES):
            file.write(zeros)
