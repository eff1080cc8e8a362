"""Owns the figures of several queues as those of one. Pure: anything that has ``Stats`` will do, of whatever kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.timequeue.administration import Stats
from penstock.timequeue.measures import RATES, WINDOWS, Distribution, merged

EARLIEST = ("next_due_at", "oldest_due_at", "late_at", "index_synced_at")  # of several times, the earliest
SUMMED = tuple(field.name for field in msgspec.structs.fields(Stats) if field.type is int and field.name != "depth_max")
MERGED = ("waiting_time", "lateness", "service_time")


def combined(stats: Sequence[Stats], *, path: str, uuid: str = "") -> Stats:
    """Sums; of times the earliest; distributions over all messages. ``depth_max`` is that of the queue that was ever
    fullest: when all together were is not known. A client of several queues is counted in each."""
    figures: dict[str, Any] = {name: sum(getattr(each, name) for each in stats) for name in SUMMED}
    for name in EARLIEST:
        figures[name] = min(_known(getattr(each, name) for each in stats), default=None)
    for name in MERGED:
        figures[name] = merged(getattr(each, name) for each in stats)
    service: Distribution = figures["service_time"]
    return Stats(
        **figures,
        path=path,
        uuid=uuid,
        depth_max=max((each.depth_max for each in stats), default=0),
        puts_per_sync=figures["commits"] / figures["syncs"] if figures["syncs"] else None,
        sync_failed="; ".join(f"{each.path}: {each.sync_failed}" for each in stats if each.sync_failed) or None,
        service_recent_s=_mean_recent(stats) if service.count else None,
        rates={name: {each: _rate(stats, name, each) for each in WINDOWS} for name in RATES},
        clients=[client for each in stats for client in each.clients],
    )


def _known(times: Iterable[float | None]) -> list[float]:
    return [at for at in times if at is not None]


def _rate(stats: Sequence[Stats], name: str, window: str) -> float:
    return round(sum(each.rates[name][window] for each in stats), 6)


def _mean_recent(stats: Sequence[Stats]) -> float | None:
    """By how much was acknowledged in the last minute, or ever where nothing was."""
    known = [each for each in stats if each.service_recent_s is not None]
    weights = [each.rates["acks"]["1m"] for each in known]
    if not any(weights):
        weights = [float(each.acks) for each in known]
    if not any(weights):
        return None
    return sum(w * (each.service_recent_s or 0.0) for w, each in zip(weights, known, strict=True)) / sum(weights)
