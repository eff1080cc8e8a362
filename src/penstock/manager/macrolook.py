"""Owns one look at a macro queue by somebody who only watches: a glance at each member, for no longer than that. Those
that cannot be looked at are told of, and the figures are those of the others.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import PenstockError, QueueNotFound
from penstock.manager.directory import members_of, read_noted
from penstock.manager.macrostats import together
from penstock.timequeue.administration import Glance, glance
from penstock.timequeue.clients import Progress


def glance_members(path: str | os.PathLike[str], *, busy_s: float, progress: Progress | None = None) -> Glance:
    """What its members are together, with ``MacroStats``. If none of them can be looked at, the error of the first."""
    place = Path(os.path.abspath(path))
    absent: list[str] = []
    leaves = members_of(place, absent=absent)
    errors: dict[str, Exception] = {name: not_there(place.parent / name) for name in absent}
    looks: dict[str, Glance] = {}
    for leaf in leaves:
        try:
            looks[leaf.name] = glance(leaf.place, busy_s=busy_s, progress=progress)
        except (PenstockError, OSError) as error:
            errors[leaf.name] = error
    if errors and not looks:
        raise next(iter(errors.values()))
    stats = together(
        str(place),
        read_noted(place).uuid or "",
        {name: look.stats for name, look in looks.items()},
        {name: str(error) for name, error in errors.items()},
    )
    return Glance(stats, sum(look.holders for look in looks.values()))


def not_there(member: Path) -> QueueNotFound:
    return QueueNotFound(f"{member}: there is no queue here, and it is a member of a macro queue")
