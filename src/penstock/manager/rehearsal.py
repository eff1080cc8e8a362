"""Owns whether a plan can be carried out: its steps are done one after the other to a picture of a root, with the
checks that a manager makes. Never changes a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.manager.directory import QUEUE, Entry, FileDirectory
from penstock.manager.macros import changed, check_fits, split
from penstock.manager.membership import MACRO, check_members
from penstock.manager.options import QueueOptions, checked


class Rehearsal:
    """The queues of a root as they will be. Each call is ``Misuse`` where that of a manager would be."""

    def __init__(self, root: Path, defaults: Mapping[str, Any]) -> None:
        self._files = FileDirectory(root)
        self._defaults = defaults
        self._entries = {entry.name: entry for entry in self._files.entries()}

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def find(self, name: str) -> Entry | None:
        self._files.place(name)  # a name that can be none
        return self._entries.get(name)

    def create(self, name: str, options: Mapping[str, Any]) -> None:
        wanted = QueueOptions(**checked({**self._defaults, **options}))
        self._entries[name] = Entry(
            name=name, uuid=None, kind=QUEUE, place=str(self._files.place(name)), options=wanted
        )

    def create_macro(self, name: str, options: Mapping[str, Any]) -> None:
        own, macro = split(options)
        check_members(name, macro, own, self.find)
        place = str(self._files.place(name))
        self._entries[name] = Entry(
            name=name, uuid=None, kind=MACRO, place=place, options=QueueOptions(**own), macro=macro
        )

    def configure(self, name: str, options: Mapping[str, Any]) -> None:
        entry = self._entries[name]
        if entry.kind == MACRO:
            entry = changed(entry, options)
        else:
            entry = msgspec.structs.replace(entry, options=msgspec.structs.replace(entry.options, **options))
        check_fits(entry, self)
        self._entries[name] = entry
