"""Owns what a manager does with macro queues: made, given other members and policies, and told to those who have them
open. What may be a member of what is ``membership.py``'s; a macro queue at work is ``macro.py``'s. Never touches a
message, nor a member's files.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import Misuse
from penstock.manager.directory import ENTRY, Entries, Entry, FileDirectory, Noted, encode, note, read_noted
from penstock.manager.letters import check_letters
from penstock.manager.membership import (
    MACRO,
    POLICIES,
    MacroOptions,
    Member,
    check_members,
    check_priority,
    macro_options,
)
from penstock.manager.options import OWN, QueueOptions, checked
from penstock.store.directory import create_folder
from penstock.store.files import NOTIFY, WAKEUP
from penstock.store.waking import touch

OPTIONS = (*OWN, *POLICIES, "members")  # all that can be said of a macro queue; any of it can be changed later


class Macros:
    """The macro queues of one root. Whoever changes one has the root's lock, but for making one."""

    def __init__(self, files: FileDirectory, tell: Callable[[], None]) -> None:
        """``tell`` says to all that something has changed."""
        self._files = files
        self._tell = tell

    def make(self, name: str, given: Mapping[str, Any]) -> None:
        """There whole, or not at all; two who make one of a name at the same time are told apart by the folder."""
        own, options = split(given)
        place = self._files.place(name)
        check_new(new_macro(name, place, own, options), self._files)
        noted = Noted(kind=MACRO, uuid=str(uuids.uuid4()), macro=options, **own)
        create_folder(place, {ENTRY: encode(noted)})

    def change(self, entry: Entry, given: Mapping[str, Any]) -> None:
        """Other options: all of them, or none. Those who are blocked in calls on it are woken."""
        new = changed(entry, given)
        check_fits(new, self._files)
        place = Path(entry.place)
        note(place, msgspec.structs.replace(read_noted(place), macro=new.macro, **own_of(new)))
        self._tell()  # before anybody is woken, who else would find all as it was
        touch(place / NOTIFY / WAKEUP)

    def check_member(self, entry: Entry, own: Mapping[str, Any]) -> None:
        """``Misuse`` if other options of its own would make a queue unfit for a macro queue that it is in."""
        check_fits(msgspec.structs.replace(entry, options=msgspec.structs.replace(entry.options, **own)), self._files)

    def add(self, entry: Entry, member: str, priority: int) -> None:
        known = require_macro(entry, "add_member")
        if member in known.names:
            raise Misuse(f"{entry.name}: {member} cannot be a member twice: it is one already")
        self.change(entry, {"members": [*known.members, Member(name=member, priority=check_priority(priority))]})

    def remove(self, entry: Entry, member: str) -> None:
        known = require_macro(entry, "remove_member")
        if member not in known.names:
            raise Misuse(f"{entry.name}: {member} is not a member; there are {', '.join(known.names) or 'none'}")
        self.change(entry, {"members": [each for each in known.members if each.name != member]})

    def differences(self, entry: Entry, wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Of what is wanted, that which is not so: as it is, and as it would be."""
        own, options = split(wanted)
        new = {**own, **{name: getattr(options, name) for name in (*POLICIES, "members")}}
        now = {**own_of(entry), **msgspec.structs.asdict(require_macro(entry, "changes"))}
        return {name: (now[name], new[name]) for name in OPTIONS if name in wanted and now[name] != new[name]}

    def refuse_member(self, name: str, call: str) -> None:
        """A queue keeps its name, and its messages, as long as a macro queue counts on it."""
        holders = [each.name for each in holders_of(name, self._files.entries())]
        if holders:
            raise Misuse(
                f"{name}: {call} is not possible while it is a member of {', '.join(holders)}; "
                f"remove_member({holders[0]!r}, {name!r}) first"
            )


def new_macro(name: str, place: Path, own: Mapping[str, Any], options: MacroOptions) -> Entry:
    """A macro queue as it would be when it is made."""
    return Entry(name=name, uuid=None, kind=MACRO, place=str(place), options=QueueOptions(**own), macro=options)


def check_new(macro: Entry, known: Entries) -> None:
    check_members(macro.name, require_macro(macro, "create_macro"), own_of(macro), known.find)
    check_letters(macro, known)


def changed(entry: Entry, given: Mapping[str, Any]) -> Entry:
    """A macro queue as it would be with other options."""
    said = {**own_of(entry), **msgspec.structs.asdict(require_macro(entry, "configure"))}
    own, options = split({**said, **given})
    return msgspec.structs.replace(entry, macro=options, options=QueueOptions(**own))


def check_fits(changed: Entry, known: Entries) -> None:
    """``Misuse`` unless a queue as it would be has members that it may have, and is one that those macro queues may
    have that it is in, also through others."""

    def find(name: str) -> Entry | None:
        return changed if name == changed.name else known.find(name)

    for macro in (changed, *_above(changed.name, known.entries())):
        if macro.macro is not None:
            check_members(macro.name, macro.macro, own_of(macro), find)


def holders_of(name: str, entries: Iterable[Entry]) -> list[Entry]:
    """The macro queues that a queue is a member of."""
    return [each for each in entries if each.macro is not None and name in each.macro.names]


def _above(name: str, entries: Sequence[Entry]) -> list[Entry]:
    """The macro queues that a queue is in, also through others; the nearest first."""
    found: dict[str, Entry] = {}
    left = [name]
    while left:
        for each in holders_of(left.pop(0), entries):
            if each.name not in found and each.name != name:
                found[each.name] = each
                left.append(each.name)
    return list(found.values())


def require_macro(entry: Entry, call: str) -> MacroOptions:
    if entry.macro is None:
        raise Misuse(f"{entry.name}: {call} is for macro queues, and this is a queue of its own")
    return entry.macro


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], MacroOptions]:
    """What a macro queue has in common with all queues, and what it is made of; checked."""
    unknown = sorted(given.keys() - set(OPTIONS))
    if unknown:
        raise Misuse(f"{', '.join(unknown)}: no such option of a macro queue; there are {', '.join(OPTIONS)}")
    own = checked({name: value for name, value in given.items() if name in OWN})
    defaults = {name: getattr(QueueOptions(), name) for name in OWN}
    return {**defaults, **own}, macro_options({name: value for name, value in given.items() if name not in OWN})


def own_of(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry.options, name) for name in OWN}
