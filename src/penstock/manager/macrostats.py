"""Owns the figures of a macro queue: those of its members, added up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.timequeue import Stats, combined
from penstock.timequeue.groups import Group


class MacroStats(Stats, frozen=True, kw_only=True):
    """What a macro queue holds and has done: sums over its members, whose own figures are in ``members``. Times are the
    earliest of any; ``depth_max`` is the largest. ``failed`` says why members are passed over."""

    members: dict[str, Stats]
    failed: dict[str, str]


def together(path: str, uuid: str, members: Mapping[str, Stats], failed: Mapping[str, str]) -> MacroStats:
    total = combined(list(members.values()), path=path, uuid=uuid)
    figures = {name: getattr(total, name) for name in Stats.__struct_fields__}
    return MacroStats(**figures, members=dict(members), failed=dict(failed))


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
