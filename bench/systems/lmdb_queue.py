"""A queue on LMDB, as one would write it by hand: two trees, one write transaction for each operation.

``waiting`` is keyed by (15 - priority, delivery time, number), so that its first due key is the next message;
``pending`` by (owner, number), so that the ack of an owner that lost its lease finds nothing. The number is the
client's own count below its client number: cheaper than a counter in the database, and only breaks ties. What this
leaves out favours it: no ids, no attempts, no headers, no checksums, nobody looks for ended leases, and a receiver
polls.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb

from bench.systems.interface import POLL_S, Client, System

WAITING_KEY = struct.Struct(">BQQ")  # 15 - priority, delivery time, number
PENDING_KEY = struct.Struct(">QQ")  # owner, number
LEASE_END = struct.Struct(">Q")  # before the waiting key and the body, in the value of a pending one
NUMBER_BITS = 44
LEASE_US = 60_000_000
NO_PRIORITY = 15  # what the first byte of a key is for priority 0


class LmdbClient(Client):
    def __init__(self, path: Path, map_bytes: int, sync: bool) -> None:
        self.env = lmdb.open(str(path), map_size=map_bytes, max_dbs=2, sync=sync)
        self.waiting_db = self.env.open_db(b"waiting")
        self.pending_db = self.env.open_db(b"pending")
        self.owner = int.from_bytes(os.urandom(8), "big")
        self.number = self.owner >> (64 - 19) << NUMBER_BITS

    def put(self, body: bytes) -> None:
        self.put_at(body, time.time_ns() // 1000)

    def put_at(self, body: bytes, deliver_us: int) -> None:
        self.number += 1
        with self.env.begin(write=True, db=self.waiting_db) as txn:
            txn.put(WAITING_KEY.pack(NO_PRIORITY, deliver_us, self.number), body)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        self.put_many_at(bodies, [time.time_ns() // 1000] * len(bodies))

    def put_many_at(self, bodies: Sequence[bytes], delivers_us: Sequence[int]) -> None:
        number = self.number
        pack = WAITING_KEY.pack
        with self.env.begin(write=True, db=self.waiting_db) as txn:
            put = txn.put
            for body, deliver_us in zip(bodies, delivers_us, strict=True):
                number += 1
                put(pack(NO_PRIORITY, deliver_us, number), body)
        self.number = number

    def get(self) -> tuple[bytes, bytes]:
        while True:
            now_us = time.time_ns() // 1000
            with self.env.begin(write=True, db=self.waiting_db) as txn:
                cursor = txn.cursor()
                key = self.next_due(cursor, now_us)
                if key:
                    body = cursor.value()
                    cursor.delete()
                    token = PENDING_KEY.pack(self.owner, WAITING_KEY.unpack(key)[2])
                    txn.put(token, LEASE_END.pack(now_us + LEASE_US) + key + body, db=self.pending_db)
                    return token, body
            time.sleep(POLL_S)

    def get_many(self, most: int) -> tuple[list[bytes], list[bytes]]:
        tokens: list[bytes] = []
        bodies: list[bytes] = []
        while True:
            now_us = time.time_ns() // 1000
            lease_end = LEASE_END.pack(now_us + LEASE_US)
            with self.env.begin(write=True, db=self.waiting_db) as txn:
                cursor = txn.cursor()
                while len(tokens) < most and (key := self.next_due(cursor, now_us)):
                    body = cursor.value()
                    cursor.delete()
                    token = PENDING_KEY.pack(self.owner, WAITING_KEY.unpack(key)[2])
                    txn.put(token, lease_end + key + body, db=self.pending_db)
                    tokens.append(token)
                    bodies.append(body)
            if tokens:
                return tokens, bodies
            time.sleep(POLL_S)

    @staticmethod
    def next_due(cursor: lmdb.Cursor, now_us: int) -> bytes | None:
        """The first key of the highest priority that has one due; the cursor stands on it."""
        found = cursor.first()
        while found:
            key = cursor.key()
            if WAITING_KEY.unpack(key)[1] <= now_us:
                return key
            found = cursor.set_range(bytes([key[0] + 1]))
        return None

    def ack(self, token: bytes) -> None:
        with self.env.begin(write=True, db=self.pending_db) as txn:
            if not txn.delete(token):
                raise RuntimeError("LMDB: acknowledged what was not pending")

    def ack_many(self, tokens: list[bytes]) -> None:
        with self.env.begin(write=True, db=self.pending_db) as txn:
            for token in tokens:
                if not txn.delete(token):
                    raise RuntimeError("LMDB: acknowledged what was not pending")

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        with self.env.begin(db=self.waiting_db) as txn:
            for key, body in txn.cursor():
                yield WAITING_KEY.unpack(key)[1], body

    def left(self) -> int:
        with self.env.begin() as txn:
            return txn.stat(self.waiting_db)["entries"] + txn.stat(self.pending_db)["entries"]

    def close(self) -> None:
        self.env.close()


class Lmdb(System):
    name = "LMDB"
    scenarios = "abcdefg"
    sync = False

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.path = where / "lmdb"
        # A body above half a page takes pages of its own; old pages stay until no transaction reads them.
        self.map_bytes = messages * (2 * body_bytes + 512) * 2 + (64 << 20)
        LmdbClient(self.path, self.map_bytes, self.sync).close()

    def open(self, *, role: str = "both", index: int = 0) -> LmdbClient:
        return LmdbClient(self.path, self.map_bytes, self.sync)


class LmdbSync(Lmdb):
    """Every transaction ends with a sync, as is LMDB's default."""

    scenarios = "lmn"
    sync = True
