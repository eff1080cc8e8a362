"""Owns whether a plan can be carried out: its steps are done one after the other to a picture of a root, with the
checks that a manager makes. Never changes a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.manager.directory import QUEUE, Entry, FileDirectory
from penstock.manager.letters import check_letters, placed
from penstock.manager.macros import changed, check_fits, check_new, new_macro, split
from penstock.manager.membership import MACRO
from penstock.manager.options import QueueOptions, checked
from penstock.timequeue.making import refuse_itself


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
        place = self._files.place(name)
        wanted = QueueOptions(**checked(placed({**self._defaults, **options}, self._files.place)))
        refuse_itself(wanted.dead_letter, place)
        made = Entry(name=name, uuid=None, kind=QUEUE, place=str(place), options=wanted)
        check_letters(made, self)
        self._entries[name] = made

    def create_macro(self, name: str, options: Mapping[str, Any]) -> None:
        made = new_macro(name, self._files.place(name), *split(options))
        check_new(made, self)
        self._entries[name] = made

    def configure(self, name: str, options: Mapping[str, Any]) -> None:
        entry = self._entries[name]
        if entry.kind == MACRO:
            entry = changed(entry, options)
        else:
            entry = msgspec.structs.replace(entry, options=msgspec.structs.replace(entry.options, **options))
        check_fits(entry, self)
        if "dead_letter" in options:
            check_letters(entry, self)
        self._entries[name] = entry
