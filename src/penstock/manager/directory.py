"""Owns where queues are found: each has a UUID, a name, options and a place. The embedded directory is the folders in a
manager's root, each with an ``entry.json`` of what the manager keeps beside a queue. Never opens a queue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.errors import Misuse, NotAQueue, PenstockError, QueueNotFound
from penstock.manager.membership import MACRO, Leaf, MacroOptions, leaves
from penstock.manager.options import OWN, QueueOptions, of_stored
from penstock.manager.root import read
from penstock.store.directory import mode_of, read_options, replace_file

ENTRY = "entry.json"
QUEUE = "queue"  # the kind of queue that is a directory of its own

NAME_MAX = 200  # that of a folder is up to 255 bytes, and what is made beside a queue has its name and an ending
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{NAME_MAX - 1}}}")
# Files in a root, and those that replace them.
TAKEN = frozenset(
    file + end for file in ("manager.json", "manager.lock", "manager.changes", "penstock.toml") for end in ("", ".new")
)


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """``entry.json``. A queue that has none, since ``penstock.create`` made it, is as this is by default."""

    penstock: int = 1
    kind: str = QUEUE
    model: str = QueueOptions().model
    relationship: str = QueueOptions().relationship
    remote_clients: bool = True
    active: bool = True
    wanted: dict[str, Any] | None = None  # while its options are being changed: what they will be
    uuid: str | None = None  # of a macro queue, which has no queue.json
    macro: MacroOptions | None = None  # what a macro queue is made of


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in a directory. ``place`` is a path, or a URL. ``error``: why no more is known of it."""

    name: str
    uuid: str | None
    kind: str
    place: str
    options: QueueOptions
    active: bool = True
    configuring: bool = False
    error: str | None = None
    macro: MacroOptions | None = None  # of a macro queue


class Entries(Protocol):
    """Queues that are looked up by name: those of a root, or as they would be."""

    def entries(self) -> Sequence[Entry]: ...
    def find(self, name: str) -> Entry | None: ...


class Directory(Protocol):
    """Where queues are looked up. The embedded one is ``FileDirectory``; others may ask a service of the site."""

    def entries(self) -> Sequence[Entry]:
        """All of them, by name."""

    def find(self, name: str) -> Entry | None:
        """The one of this name."""

    def find_uuid(self, uuid: str) -> Entry | None:
        """The one with this UUID."""


class FileDirectory:
    """The queues in a folder: each folder in it that is one. Its name is the queue's name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self) -> list[Entry]:
        found = [self.find(path.name) for path in sorted(self._root.iterdir()) if is_name(path.name)]
        return [entry for entry in found if entry is not None]

    def find(self, name: str) -> Entry | None:
        path = self.place(name)
        return describe(path) if is_entry(path) else None

    def find_uuid(self, uuid: str) -> Entry | None:
        found = [entry for entry in self.entries() if entry.uuid == uuid.lower()]
        if len(found) > 1:  # a copy that was never opened
            raise Misuse(f"{uuid}: {' and '.join(entry.name for entry in found)} have this UUID; name the one you mean")
        return found[0] if found else None

    def place(self, name: str) -> Path:
        return self._root / check_name(name)


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Of a queue: also that of a folder."""
    if not isinstance(name, str) or not is_name(name):
        raise Misuse(
            f"the name of a queue is up to {NAME_MAX} letters, digits, '.', '_' and '-', with none of '.' and '-' in "
            f"front, not {name!r}"
        )
    return name


def check_new_name(name: str) -> str:
    if check_name(name) in TAKEN:
        raise Misuse(f"{name} is the name of a file of the manager, and cannot be that of a queue")
    return name


def is_entry(path: Path) -> bool:
    """A queue, also one that is damaged or that this version cannot open; not any folder."""
    if (path / ENTRY).is_file():
        return True
    try:
        read_options(path)
    except (NotAQueue, QueueNotFound):
        return False
    except (PenstockError, OSError):
        return True
    return True


def describe(path: Path) -> Entry:
    """What is known of the queue at a path, damaged or not."""
    noted, error = Noted(), None
    try:
        noted = read_noted(path)
        if noted.kind == MACRO:
            return _describe_macro(path, noted)
        options = of_stored(read_options(path), mode_of(path), own_of(noted))
        uuid: str | None = read_options(path).uuid
    except (PenstockError, OSError) as found:
        options, uuid, error = QueueOptions(**own_of(noted)), None, str(found)
    return Entry(
        name=path.name,
        uuid=uuid,
        kind=noted.kind,
        place=str(path),
        options=options,
        active=noted.active,
        configuring=noted.wanted is not None,
        error=error,
    )


def _describe_macro(path: Path, noted: Noted) -> Entry:
    return Entry(
        name=path.name,
        uuid=noted.uuid,
        kind=noted.kind,
        place=str(path),
        options=QueueOptions(**own_of(noted)),
        active=noted.active,
        macro=noted.macro or MacroOptions(),
    )


def members_of(path: Path, *, absent: list[str] | None = None) -> list[Leaf]:
    """The queues behind the one at a path, as it is written down now: of a macro queue all of its members, through the
    macro queues among them; of a plain queue itself. ``absent`` gets the names of members that are not there.
    ``QueueNotFound`` if there is nothing."""
    files = FileDirectory(path.parent)
    entry = files.find(path.name)
    if entry is None:
        raise QueueNotFound(f"{path}: there is no queue here")

    def find(name: str) -> Entry | None:
        found = files.find(name)
        if found is None and absent is not None:
            absent.append(name)
        return found

    return leaves(entry, find)


def own_of(noted: Noted) -> dict[str, Any]:
    return {name: getattr(noted, name) for name in OWN}


def read_noted(path: Path) -> Noted:
    return read(path / ENTRY, Noted)


def encode(noted: Noted) -> bytes:
    return msgspec.json.format(msgspec.json.encode(noted), indent=1)


def note(path: Path, noted: Noted) -> None:
    replace_file(path / ENTRY, encode(noted))
