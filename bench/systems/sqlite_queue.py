"""A queue on SQLite, as one would write it by hand: one table, one index, WAL, one transaction for each operation.

Measured three times. With relaxed durability the targets are against ``synchronous = OFF``, which never syncs, the
quickest there is; the other is ``NORMAL``, what the manual of SQLite suggests for WAL: it syncs when the log is written
back, and not at the end of a transaction. ``FULL`` syncs there too, for durable puts. What all leave out favours them:
no headers, no checksums, nobody looks for ended leases, and a receiver polls.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.systems.interface import POLL_S, Client, System

LEASE_US = 60_000_000
BUSY_S = 60.0
CACHE_KIB = 64_000

WAITING = 0
PENDING = 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    deliver_at INTEGER NOT NULL,
    owner INTEGER,
    lease_end INTEGER,
    attempts INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS next_message ON messages (state, priority DESC, deliver_at, id);
"""
PUT = f"INSERT INTO messages (state, priority, deliver_at, attempts, body) VALUES ({WAITING}, 0, ?, 0, ?)"
GET = f"""
UPDATE messages SET state = {PENDING}, owner = ?, lease_end = ?, attempts = attempts + 1
WHERE id IN (
    SELECT id FROM messages WHERE state = {WAITING} AND deliver_at <= ?
    ORDER BY priority DESC, deliver_at, id LIMIT ?
) RETURNING id, priority, deliver_at, body
"""
GET_ONE = GET.replace(" IN ", " = ").replace("LIMIT ?", "LIMIT 1").replace("id, priority, deliver_at, body", "id, body")
ACK = f"DELETE FROM messages WHERE id = ? AND state = {PENDING} AND owner = ?"


class SqliteClient(Client):
    def __init__(self, path: Path, synchronous: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {synchronous}")
        self.db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self.owner = int.from_bytes(os.urandom(7), "big")

    def put(self, body: bytes) -> None:
        self.db.execute(PUT, (time.time_ns() // 1000, body))

    def put_at(self, body: bytes, deliver_us: int) -> None:
        self.db.execute(PUT, (deliver_us, body))

    def put_many(self, bodies: Sequence[bytes]) -> None:
        self.put_many_at(bodies, [time.time_ns() // 1000] * len(bodies))

    def put_many_at(self, bodies: Sequence[bytes], delivers_us: Sequence[int]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(PUT, zip(delivers_us, bodies, strict=True))
        self.db.execute("COMMIT")

    def get(self) -> tuple[int, bytes]:
        while True:
            now_us = time.time_ns() // 1000
            # The statement is its own write transaction, and ends when its last row was fetched.
            found = self.db.execute(GET_ONE, (self.owner, now_us + LEASE_US, now_us)).fetchall()
            if found:
                return found[0]
            time.sleep(POLL_S)

    def get_many(self, most: int) -> tuple[list[int], list[bytes]]:
        while True:
            now_us = time.time_ns() // 1000
            found = self.db.execute(GET, (self.owner, now_us + LEASE_US, now_us, most)).fetchall()
            if found:
                found.sort(key=lambda row: (-row[1], row[2], row[0]))  # RETURNING promises no order
                return [row[0] for row in found], [row[3] for row in found]
            time.sleep(POLL_S)

    def ack(self, token: int) -> None:
        if self.db.execute(ACK, (token, self.owner)).rowcount != 1:
            raise RuntimeError("SQLite: acknowledged what was not pending")

    def ack_many(self, tokens: list[int]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        done = self.db.executemany(ACK, [(token, self.owner) for token in tokens]).rowcount
        self.db.execute("COMMIT")
        if done != len(tokens):
            raise RuntimeError("SQLite: acknowledged what was not pending")

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        return self.db.execute(
            f"SELECT deliver_at, body FROM messages WHERE state = {WAITING} ORDER BY priority DESC, deliver_at, id"
        )

    def left(self) -> int:
        return self.db.execute("SELECT count(*) FROM messages").fetchone()[0]

    def close(self) -> None:
        self.db.close()


class Sqlite(System):
    name = "SQLite"
    scenarios = "abcdefg"
    synchronous = "OFF"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.path = where / "queue.sqlite"
        client = SqliteClient(self.path, self.synchronous)
        client.db.executescript(SCHEMA)
        client.close()

    def open(self, *, role: str = "both", index: int = 0) -> SqliteClient:
        return SqliteClient(self.path, self.synchronous)


class SqliteNormal(Sqlite):
    name = "SQLite NORMAL"
    synchronous = "NORMAL"


class SqliteFull(Sqlite):
    name = "SQLite FULL"
    scenarios = "lmn"
    synchronous = "FULL"
