"""Owns changes of a queue's options, which are whole whoever is killed: what is wanted is noted beside the queue, done,
and noted as done; who comes next does what is still wanted. Called with the root's lock. What is done to a queue's
files is ``kinds.py``'s; never decides whether a change may be made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError, QueueBusy, QueueInUse
from penstock.manager.directory import Entry, note, read_noted
from penstock.manager.kinds import Kind
from penstock.manager.options import OWN, read_back
from penstock.manager.states import TRANSITIONS, State
from penstock.store.directory import read_options

log = logging.getLogger("penstock")


def engage(place: Path, kind: Kind, wanted: dict[str, Any], *, busy_s: float) -> None:
    """Make these changes. If others have the queue open, nothing is changed, and nothing wanted any more."""
    before, sizes = read_noted(place), _sizes_of(place)
    note(place, msgspec.structs.replace(before, wanted=msgspec.to_builtins(wanted)))
    try:
        _complete(place, kind, busy_s)
    except (QueueInUse, QueueBusy):
        if _sizes_of(place) == sizes:  # else it is half done, and somebody will do the rest
            note(place, before)
        raise


def settle(entry: Entry, kind_of: Callable[[Entry], Kind], call: str, *, busy_s: float) -> None:
    """Complete what a killed manager was changing, or leave it as it was. While others have the queue open it stays
    wanted, which holds up only those who change it too."""
    place = Path(entry.place)
    if read_noted(place).wanted is None:  # another one was first
        return
    try:
        _complete(place, kind_of(entry), busy_s)
    except (QueueInUse, QueueBusy):
        if call not in TRANSITIONS[State.CONFIGURING]:
            raise
    except (PenstockError, OSError) as error:
        log.warning("%s: a change of its options was cut short, and cannot be completed: %s", entry.name, error)


def _complete(place: Path, kind: Kind, busy_s: float) -> None:
    """Do what is noted as wanted; what cannot be done is not wanted any more. Only while others have the queue open
    it stays as it is."""
    noted = read_noted(place)
    wanted = read_back(noted.wanted or {})
    own = {name: value for name, value in wanted.items() if name in OWN}
    try:
        kind.change(place, {name: wanted[name] for name in wanted.keys() - own.keys()}, busy_s=busy_s)
    except (QueueInUse, QueueBusy):
        raise
    except (PenstockError, OSError):
        note(place, msgspec.structs.replace(noted, wanted=None))
        raise
    note(place, msgspec.structs.replace(noted, wanted=None, **own))


def _sizes_of(place: Path) -> tuple[int, int]:
    options = read_options(place)
    return options.slots, options.data_bytes
