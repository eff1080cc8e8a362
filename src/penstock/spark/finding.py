"""Owns which queue the options name: by its path, or by its name below a manager's root; a queue of its own, or a macro
queue and its members. The one place of this package that asks what managers keep. Never opens a queue.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import PenstockError, QueueNotFound, ReceiverBusy
from penstock.manager import QueueManager
from penstock.manager.directory import ENTRY, FileDirectory, members_of, read_noted
from penstock.manager.managed import LOOK_S, Gate
from penstock.manager.membership import MACRO, Leaf, MacroOptions
from penstock.manager.root import CHANGES
from penstock.store.claimfiles import ClaimFiles
from penstock.store.counter import SharedCounter
from penstock.store.directory import read_options

FREE_LOOK_S = 0.1


def path_of(given: Mapping[str, Any]) -> str:
    """The directory that is meant, or the error that says that there is none. It has no queue if it is a macro's."""
    if given["path"] is not None:
        return require(given["path"])
    if not Path(given["root"]).is_dir():  # a manager would make it
        raise QueueNotFound(f"{given['root']}: there is no such folder")
    found = QueueManager(given["root"]).find(given["queue"])
    if "://" in found.place:
        raise PenstockError(f"{found.name}: it is at {found.place}; Spark opens only queues that are paths")
    return require(found.place)


def require(path: str) -> str:
    """The same path, if there is a queue or a macro queue."""
    if not is_macro(path):
        read_options(Path(path))
    return path


def is_macro(path: str) -> bool:
    place = Path(path)
    return (place / ENTRY).is_file() and read_noted(place).kind == MACRO


def queues_of(path: str) -> list[str]:
    """The directories of the queues behind this one: of a macro queue all its members, of which none may be missing."""
    if not is_macro(path):
        return [path]
    place = Path(path)
    leaves = members_of(place)
    missing = set((read_noted(place).macro or MacroOptions()).names) - {
        entry.name for entry in FileDirectory(place.parent).entries()
    }
    if missing:
        raise QueueNotFound(f"{path}: of this macro queue {', '.join(sorted(missing))} cannot be found")
    return [leaf.place for leaf in leaves]


def places_of(root: Path, names: Iterable[str], uuids: Iterable[str]) -> dict[str, str]:
    """The directories of queues by their UUIDs: of those behind these names; and of others that are asked for, which
    were among them once."""
    paths = [path_of({"path": None, "root": str(root), "queue": name}) for name in names]
    found = {leaf.uuid: leaf.place for path in paths for leaf in members_of(Path(path))}
    for uuid in uuids:
        if uuid not in found:
            entry = FileDirectory(root).find_uuid(uuid)
            if entry is None:
                raise QueueNotFound(f"{root}: there is no queue {uuid} here any more, which had messages of a batch")
            found[uuid] = entry.place
    return found


def require_free(paths: Iterable[str], receiver: str, wait_s: float) -> None:
    """Before a session is started, which takes its time: ``ReceiverBusy`` if another query is this receiver, and still
    is after so many seconds. A look, not a claim: whoever comes between is refused by the stream."""
    deadline = time.monotonic() + wait_s
    for path in (leaf for given in paths for leaf in queues_of(given)):
        files = ClaimFiles(Path(path), receiver, read_options(Path(path)).signature)
        while files.is_locked():
            if time.monotonic() >= deadline:
                raise ReceiverBusy(path, receiver)
            time.sleep(FREE_LOOK_S)


# ---------------------------------------------------------------- what managers say about it


class Check(Protocol):
    """Whether a call is allowed now; the error that says why not."""

    def check(self, call: str) -> None: ...


class Anything:
    """A queue that is named by its path: who can open its files may."""

    def check(self, call: str) -> None:
        pass


def gate(given: Mapping[str, Any], relationship: str) -> Check:
    """What the manager's word is for a producer or consumer of a queue that was named to it, or of a macro queue."""
    path = given["path"]
    if given.get("root") is None and not is_macro(path):
        return Anything()
    place = Path(path)
    return Gate(
        place.name,
        noted=functools.partial(read_noted, place),
        relationship=relationship,
        remote=False,
        principal=None,
        rights=frozenset,
        changes=SharedCounter(place.parent / CHANGES),
    )


class Members:
    """The queues behind a macro queue, and its policies, as they are written down now. A look costs no file as long as
    no manager of the root has changed anything, but for one a second."""

    def __init__(self, path: str) -> None:
        self._place = Path(path)
        self._changes = SharedCounter(self._place.parent / CHANGES)
        self._seen = -1
        self._look_at_s = 0.0
        self._look()

    def _look(self) -> None:
        seen, now_s = self._changes.value(), time.monotonic()
        if seen == self._seen and now_s < self._look_at_s:
            return
        noted = read_noted(self._place)
        if noted.kind != MACRO or noted.uuid is None:
            raise QueueNotFound(f"{self._place}: the macro queue is not here any more")
        self.uuid = noted.uuid
        self._options = noted.macro or MacroOptions()
        self._leaves = members_of(self._place)
        self._seen, self._look_at_s = seen, now_s + LOOK_S

    def leaves(self) -> list[Leaf]:
        """In the order of the macro queue; through the macro queues in it."""
        self._look()
        return self._leaves

    def options(self) -> MacroOptions:
        self._look()
        return self._options

    def place_of(self, uuid: str) -> str | None:
        """Where the queue with this UUID is, a member or not; None if it is nowhere in the root."""
        found = FileDirectory(self._place.parent).find_uuid(uuid)
        return None if found is None else found.place
