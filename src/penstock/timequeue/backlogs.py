"""Owns what waits for receivers, counted: how many messages are due, and since when. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.files import Clock
from penstock.timequeue.arguments import BUSY_S, queue_path
from penstock.timequeue.clients import Client

LOOKED_A_TURN_MAX = 4096
DUE_COUNTED_MOST = 100_000  # timed messages that are due are counted one by one, up to here


class Backlog(msgspec.Struct, frozen=True):
    """What waits for receivers: messages that are due, at least so many, and since when the oldest is (0: none)."""

    due: int
    waiting: int
    oldest_us: int


def look(path: str | os.PathLike[str], *, busy_s: float = BUSY_S) -> Backlog:
    """Open a queue for one look, which costs it nothing else."""
    client = Client(queue_path(path), clock=Clock(), busy_s=busy_s)
    try:
        return backlog(client, Claiming(client.kernel), client.turn)
    finally:
        client.close()


def backlog(client: Client, claiming: Claiming, turn: Callable[..., Any], enough: int = DUE_COUNTED_MOST) -> Backlog:
    """What is due. Those that were put for a time are counted until there are ``enough``."""
    now_us = client.clock.wall_us()
    due, oldest_us = turn(_ready, client, claiming, now_us)
    for which in range(L.LIST_TIMED, L.LIST_TIMED + L.PRIORITIES):
        after = (0, 0)
        while after is not None and due < enough:
            most = min(LOOKED_A_TURN_MAX, enough - due)
            count, after = turn(_count_due, claiming, which, after, now_us, most)
            due += count
    return Backlog(due, client.kernel.get(L.H_WAITING), oldest_us)


def _ready(client: Client, claiming: Claiming, now_us: int) -> tuple[int, int]:
    order = client.kernel.order
    ready = sum(order.count(L.LIST_READY + priority) for priority in range(L.PRIORITIES))
    return ready, claiming.oldest_due_us(now_us)


def _count_due(
    claiming: Claiming, which: int, after: tuple[int, int], now_us: int, most: int
) -> tuple[int, tuple[int, int] | None]:
    count = claiming.count_due(which, *after, now_us, most)
    return count, (claiming.last_us, claiming.last_number) if claiming.more else None
