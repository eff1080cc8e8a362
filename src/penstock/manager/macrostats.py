"""Owns the figures of a macro queue: those of its members, added up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.timequeue.administration import Stats
from penstock.timequeue.groups import Group

FIRST = ("next_due_at", "oldest_due_at", "late_at", "index_synced_at")  # of times, the earliest
LARGEST = ("depth_max",)  # not of one moment, so that a sum would say nothing


class MacroStats(Stats, frozen=True, kw_only=True):
    """What a macro queue holds and has done: sums over its members, whose own figures are in ``members``. Times are the
    earliest of any; ``depth_max`` is the largest. ``failed`` says why members are passed over."""

    members: dict[str, Stats]
    failed: dict[str, str]


def combined(path: str, uuid: str, members: Mapping[str, Stats], failed: Mapping[str, str]) -> MacroStats:
    several = list(members.values())
    found: dict[str, Any] = {field: _one(field, several) for field in Stats.__struct_fields__}
    found |= {"path": path, "uuid": uuid}
    found["puts_per_sync"] = found["commits"] / found["syncs"] if found["syncs"] else None
    found["sync_failed"] = next((one.sync_failed for one in several if one.sync_failed), None)
    return MacroStats(**found, members=dict(members), failed=dict(failed))


def merged(groups: Iterable[Group]) -> list[Group]:
    """Of each key one, with the messages of all members.

    >>> [(g.key, g.waiting, g.oldest_at) for g in merged([Group("a", 2, 1, 9.0, 0), Group("a", 1, 1, 5.0, 0)])]
    [('a', 3, 5.0)]
    """
    found: dict[str, Group] = {}
    for group in groups:
        one = found.get(group.key)
        if one is not None:
            oldest_at = min(one.oldest_at, group.oldest_at)
            group = Group(
                group.key, one.waiting + group.waiting, one.due + group.due, oldest_at, one.busy or group.busy
            )
        found[group.key] = group
    return list(found.values())


def _one(field: str, several: list[Stats]) -> Any:
    values = [value for one in several if (value := getattr(one, field)) is not None]
    if field in FIRST:
        return min(values, default=None)
    if field in LARGEST:
        return max(values, default=0)
    if field == "clients":
        return [client for value in values for client in value]
    return sum(values) if all(isinstance(value, int) for value in values) else None
