"""Owns what can be said of a queue that a manager looks after, and the defaults of it, for all in this one place. Which
options can be changed later, and which are fixed when a queue is made. Pure: it touches no file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.errors import Misuse
from penstock.store import layout as L
from penstock.store import options as stored
from penstock.store.backoff import Backoff
from penstock.timequeue import making
from penstock.timequeue.models import MODELS, check_model

RELATIONSHIPS = ("producer", "consumer", "both")


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a queue. ``depth`` is how many messages it holds at most; a put to a full one is ``QueueFull``.

    ``model`` is what a put waits for that does not say so itself. ``relationship`` is what programs may do with it
    through managers, ``remote_clients`` whether those on other machines may use it. All others are as in
    ``penstock.create``.
    """

    model: str = MODELS[0]
    relationship: str = "both"
    remote_clients: bool = True
    depth: int = 1000
    data_bytes: int = making.DATA_BYTES
    spill_bytes: int = making.SPILL_BYTES
    lease: float = making.LEASE_S
    durability: str = stored.DURABILITY
    index_sync_ms: int = making.INDEX_SYNC_MS
    max_attempts: int | None = None
    backoff: float | Backoff | None = None
    dead_letter: str = stored.BESIDE
    expired: Literal["drop", "dead_letter"] = "drop"
    dedup_window: float = making.DEDUP_WINDOW_S
    dedup_entries: int | None = None
    history_bytes: int = 0
    history_age: float = making.HISTORY_AGE_S
    exclusive_keys: bool = False
    notify: Literal["futex", "file"] = "futex"
    data_dirs: list[str] = []
    kernel_dir: str | None = None
    mode: int | None = None


NAMES = QueueOptions.__struct_fields__
OWN = ("model", "relationship", "remote_clients")  # the manager's, not the queue's
SIZES = ("depth", "data_bytes")
CHANGEABLE = (*OWN, *SIZES, *making.HABITS)
FIXED = tuple(name for name in NAMES if name not in CHANGEABLE)


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a caller gave them: known ones, of the right types, and such as can be."""
    if isinstance(given.get("backoff"), Mapping):
        refuse_unknown("backoff", given["backoff"], Backoff)
    found = read_back(given)
    check_values(found)
    return found


def read_back(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a manager has written them down: known ones, of the right types."""
    unknown = sorted(given.keys() - set(NAMES))
    if unknown:
        raise Misuse(f"{', '.join(unknown)}: no such option of a queue; there are {', '.join(NAMES)}")
    try:
        made = msgspec.convert(dict(given), QueueOptions)
    except msgspec.ValidationError as error:
        raise Misuse(f"options of a queue: {error}") from None
    check_model(made.model)
    check_relationship(made.relationship)
    return {name: getattr(made, name) for name in given}


def refuse_unknown(what: str, given: Mapping[str, Any], kind: type[msgspec.Struct]) -> None:
    """A caller's table says nothing that would be passed over. What is read back may: a later version wrote it."""
    known = kind.__struct_fields__
    unknown = sorted(map(str, given.keys() - set(known)))
    if unknown:
        raise Misuse(f"{what}: {', '.join(unknown)}: no such field; there are {', '.join(known)}")


def check_values(given: Mapping[str, Any]) -> None:
    """What ``create`` would refuse, before it is asked to."""
    making.habits({name: value for name, value in given.items() if name in making.HABITS})
    files = len(given.get("data_dirs", ())) or 1
    if files > L.FILES_MAX:
        raise Misuse(f"at most {L.FILES_MAX} data_dirs are possible, not {files}")
    if "depth" in given:
        making.check_whole("depth", given["depth"], 1, L.SLOTS_MAX)
    if "data_bytes" in given:
        making.check_whole("data_bytes", given["data_bytes"], files * L.PAGE_BYTES, making.DATA_BYTES_MAX)
    if given.get("dedup_entries") is not None:
        making.check_whole("dedup_entries", given["dedup_entries"], 0, L.REMEMBERED_MAX)
    making.check_mode(given.get("mode"))
    letters = given.get("dead_letter", "")
    if os.sep in letters and not os.path.isabs(letters):
        raise Misuse(f"dead_letter must be the name of a queue of the same root, or a whole path, not {letters!r}")


def check_relationship(relationship: str) -> str:
    if relationship not in RELATIONSHIPS:
        raise Misuse(f"relationship must be one of {', '.join(RELATIONSHIPS)}, not {relationship!r}")
    return relationship


def refuse_fixed(queue: str, changes: Mapping[str, Any]) -> None:
    fixed = sorted(changes.keys() & set(FIXED))
    if fixed:
        raise Misuse(f"{queue}: {', '.join(fixed)}: fixed when a queue is made; make another one and move the messages")


def of_stored(found: stored.Options, mode: int, own: Mapping[str, Any]) -> QueueOptions:
    """What ``queue.json`` says, and what the manager keeps beside it, in the words of this module."""
    habits = {name: getattr(found, field) for name, (field, _) in making.HABITS.items()}
    return QueueOptions(
        **own,
        **habits,
        depth=found.slots,
        data_bytes=found.data_bytes,
        dedup_entries=found.dedup_entries,
        exclusive_keys=found.exclusive_keys,
        notify=found.notify,
        data_dirs=[name for name, _ in found.data_files if name.startswith("/")],
        kernel_dir=found.kernel_dir,
        mode=mode,
    )


def differences(queue: str, now: QueueOptions, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is wanted, that which is not so. Fixed ones where that can be told: ``Misuse`` if they differ."""
    found = {name: value for name, value in wanted.items() if not _same(now, name, value)}
    refuse_fixed(queue, found)
    return found


def _same(now: QueueOptions, name: str, value: Any) -> bool:
    is_now = getattr(now, name)
    if name == "data_bytes":  # in whole pages, of each file
        return bool(value <= is_now < value + L.PAGE_BYTES * max(len(now.data_dirs), 1))
    if name in making.HABITS:
        return bool(making.HABITS[name][1](value) == is_now)
    if name in ("data_dirs", "kernel_dir"):  # the folders in there have names of their own
        return bool(value) == bool(is_now)
    if value is None:  # left to Penstock
        return True
    if name == "dedup_entries":
        return bool(value <= is_now < 2 * max(value, L.REMEMBERED_BUCKET))
    return bool(value == is_now)
