"""Owns the console as a server: its socket, its thread that looks at queues, its end."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from penstock.console.watching import Watch
from penstock.console.web import LOOPBACK_NAMES, make

ANSWERED_MAX = 128  # requests at a time; more are told to come back
STOP_S = 2  # for what is being answered when it is to end


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can come here.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family)


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class _Announced(uvicorn.Server):
    """Says where it is when it listens, and when a signal would end it in good order."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()


def serve(root: Path, bound: socket.socket, *, interval_s: float, ready: Callable[[str], None]) -> None:
    """Until a signal ends it, which is then raised. ``ready`` is told the address."""
    loopback = is_loopback(bound.getsockname()[0])
    watch = Watch(root, interval_s=interval_s)
    watch.start()
    try:
        app = make(watch, names=LOOPBACK_NAMES if loopback else None)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=ANSWERED_MAX,
            timeout_graceful_shutdown=STOP_S,
        )
        _Announced(config, lambda: ready(address_of(bound))).run(sockets=[bound])
    finally:
        watch.stop()
