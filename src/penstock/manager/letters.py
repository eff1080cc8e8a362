"""Owns where the dead letters of a root's queues go: to queues that are known by their names, which nothing may take
away from them. Never touches a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.errors import Misuse
from penstock.manager.directory import Entries, Entry, describe, is_entry, is_name
from penstock.manager.membership import MACRO
from penstock.store.options import BESIDE, DELETE
from penstock.timequeue.moving import DEAD


def placed(options: dict[str, Any], place: Callable[[str], Path]) -> dict[str, Any]:
    """A dead-letter queue that is given by its name is the one in this root."""
    letters = options.get("dead_letter", BESIDE)
    if letters in (BESIDE, DELETE) or not isinstance(letters, str) or os.path.isabs(letters):
        return options
    return {**options, "dead_letter": str(place(letters))}


def letters_of(entry: Entry) -> Path | None:
    """Where its dead letters go."""
    if entry.options.dead_letter == DELETE or entry.kind == MACRO:
        return None
    if entry.options.dead_letter == BESIDE:
        return Path(entry.place + DEAD)
    return Path(entry.options.dead_letter)


def check_letters(new: Entry, known: Entries) -> None:
    """``Misuse`` if dead letters would go to a macro queue, which can keep none: those of a queue as it would be, or
    those of others to a macro queue as it would be."""
    if new.kind == MACRO:
        senders = _senders(new, known.entries())
        if senders:
            raise Misuse(
                f"{new.name}: the dead letters of {', '.join(senders)} go to the queue of this name, and a macro queue "
                f"can keep none; choose another name"
            )
        return
    letters = letters_of(new)
    if letters is not None and _is_macro(letters, Path(new.place).parent, known):
        raise Misuse(
            f"{new.name}: its dead letters cannot go to {letters.name}: that is a macro queue, which can keep none; "
            f"name another queue as dead_letter, or {DELETE!r}"
        )


def _is_macro(place: Path, root: Path, known: Entries) -> bool:
    if place.parent != root:
        return is_entry(place) and describe(place).kind == MACRO
    found = known.find(place.name) if is_name(place.name) else None
    return found is not None and found.kind == MACRO


def _senders(entry: Entry, entries: Iterable[Entry]) -> list[str]:
    """Those whose dead letters go to this queue."""
    return [each.name for each in entries if letters_of(each) == Path(entry.place)]


def refuse_loose(entry: Entry, known: Entries) -> None:
    """Dead letters are found by the names of queues: none may be left behind by a new one."""
    letters = letters_of(entry)
    if entry.kind == MACRO:
        return
    if entry.options.dead_letter == BESIDE and letters is not None and letters.exists():
        raise Misuse(
            f"{entry.name}: its dead letters are in {letters.name}, and would be left behind by another name; "
            f"redrive them and destroy {letters.name}, or configure dead_letter={letters.name!r} first"
        )
    senders = _senders(entry, known.entries())
    if senders:
        raise Misuse(f"{entry.name}: the dead letters of {', '.join(senders)} go here by its name; rename it not")
