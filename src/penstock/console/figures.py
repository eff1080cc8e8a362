"""Owns the figures of a queue that the page shows: those of one look, and those of several queues as one. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from penstock.timequeue import Stats


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue, or several as one, holds and has done. Who looked is not among its clients."""

    waiting: int
    pending: int
    slots: int
    stored_bytes: int
    data_bytes: int
    oldest_due_at: float | None
    late_at: float | None
    next_due_at: float | None
    holders: int
    clients: list[dict[str, int]]
    sync_failed: str | None
    counts: dict[str, int]


def figures_of(stats: Stats, holders: int) -> Figures:
    return Figures(
        waiting=stats.waiting,
        pending=stats.pending + stats.claimed,
        slots=stats.slots,
        stored_bytes=stats.used_bytes + stats.spilled_bytes,
        data_bytes=stats.data_bytes,
        oldest_due_at=stats.oldest_due_at,
        late_at=stats.late_at,
        next_due_at=stats.next_due_at,
        holders=holders,
        clients=[client for client in stats.clients if client["pid"] != os.getpid()],
        sync_failed=stats.sync_failed,
        counts={
            "puts": stats.puts,
            "gets": stats.gets,
            "acks": stats.acks,
            "retries": stats.releases + stats.expired + stats.returned,
            "syncs": stats.syncs,
        },
    )


def together(several: Sequence[Figures]) -> Figures:
    """Of several queues as one: sums, and of times the earliest."""
    counts: dict[str, int] = {}
    for each in several:
        for name, count in each.counts.items():
            counts[name] = counts.get(name, 0) + count
    return Figures(
        waiting=sum(each.waiting for each in several),
        pending=sum(each.pending for each in several),
        slots=sum(each.slots for each in several),
        stored_bytes=sum(each.stored_bytes for each in several),
        data_bytes=sum(each.data_bytes for each in several),
        oldest_due_at=_earliest([each.oldest_due_at for each in several]),
        late_at=_earliest([each.late_at for each in several]),
        next_due_at=_earliest([each.next_due_at for each in several]),
        holders=sum(each.holders for each in several),
        clients=_people([client for each in several for client in each.clients]),
        sync_failed=next((each.sync_failed for each in several if each.sync_failed), None),
        counts=counts,
    )


def _earliest(times: Sequence[float | None]) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _people(clients: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """One that has several of the queues open is one."""
    found: dict[int, dict[str, int]] = {}
    for client in clients:
        known = found.setdefault(client["pid"], {**client, "holds": 0})
        known["holds"] += client["holds"]
        known["since_us"] = min(known["since_us"], client["since_us"])
    return list(found.values())


def rates_between(before: dict[str, int], now: dict[str, int], span_s: float) -> dict[str, float]:
    """What happened a second. Nothing is known of a counter that went back: it is another queue by now.

    >>> rates_between({"puts": 10}, {"puts": 30}, 2.0)
    {'puts': 10.0}
    """
    if span_s <= 0 or any(now[name] < count for name, count in before.items()):
        return {}
    return {name: (now[name] - count) / span_s for name, count in before.items()}
