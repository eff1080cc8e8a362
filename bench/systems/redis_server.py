"""A list in Redis with ``appendfsync always``, the way Redis confirms what is on disk. Needs a redis-server to start.

A server of our own on a socket in the scratch directory, and the few lines of its protocol that a queue needs. What
this leaves out favours it: a list has no delivery times, no leases and no attempts, and the log is never rewritten.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.systems.interface import Client, System

if shutil.which("redis-server") is None:
    raise ImportError("redis-server is not installed")

SOCKET = "redis.sock"
KEY = b"queue"
START_S = 10.0
LOOK_S = 0.01
OPTIONS = {
    "port": "0",
    "unixsocket": SOCKET,
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "auto-aof-rewrite-percentage": "0",
}


class RedisClient(Client):
    def __init__(self, where: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        # Through the directory's descriptor: its own path can be too long for a socket.
        directory = os.open(where, os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            self.socket.close()
            raise
        finally:
            os.close(directory)
        self.replies = self.socket.makefile("rb")

    def call(self, *parts: bytes) -> Any:
        """Send one command, as an array of strings, and return its reply."""
        pieces = [b"*%d\r\n" % len(parts)]
        pieces += [b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]
        self.socket.sendall(b"".join(pieces))
        return self._reply()

    def _reply(self) -> Any:
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in (b"+", b":"):
            return rest if kind == b"+" else int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        raise RuntimeError(f"Redis: {line.decode(errors='replace').strip() or 'it is gone'}")

    def put(self, body: bytes) -> None:
        self.call(b"RPUSH", KEY, body)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        self.call(b"RPUSH", KEY, *bodies)

    def waiting(self) -> Iterator[tuple[int, bytes]]:
        return ((0, body) for body in self.call(b"LRANGE", KEY, b"0", b"-1"))

    def left(self) -> int:
        return self.call(b"LLEN", KEY)

    def close(self) -> None:
        self.replies.close()
        self.socket.close()


class Redis(System):
    name = "Redis"
    scenarios = "lmn"

    def create(self, where: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> None:
        self.where = where
        arguments = [part for name, value in OPTIONS.items() for part in (f"--{name}", value)]
        self.server = subprocess.Popen(
            ["redis-server", *arguments], cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.server.poll() is None:
            with contextlib.suppress(OSError):
                RedisClient(self.where).close()
                return
            time.sleep(LOOK_S)
        raise RuntimeError("Redis: the server did not start")

    def open(self, *, role: str = "both", index: int = 0) -> RedisClient:
        return RedisClient(self.where)

    def close(self) -> None:
        self.server.kill()
        self.server.wait()

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: the server stays the child of the one that started it."""
        return {"where": self.where}
