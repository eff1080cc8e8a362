"""Owns who may do what: the rights, which call needs which, and the one check for calls under a principal. Pure: where
permissions are kept is ``root.py``'s.

They guard what others are let do through a manager, such as remote clients. A process that can open the files of a
queue can do anything: that is what the rights of files are for (``create(mode=)``).
"""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from penstock.errors import Misuse, NotPermitted


class Right(StrEnum):
    PRODUCE = "produce"
    CONSUME = "consume"
    BROWSE = "browse"
    ADMINISTER = "administer"


class Call(NamedTuple):
    """What a call needs; and whether it begins something, which a deactivated queue refuses, or ends it."""

    right: Right
    begins: bool = True


PUT = Call(Right.PRODUCE)
COLLECT = Call(Right.PRODUCE, begins=False)  # of an answer: whoever may ask may
GET = Call(Right.CONSUME)
FINISH = Call(Right.CONSUME, begins=False)
LOOK = Call(Right.BROWSE, begins=False)
MANAGE = Call(Right.ADMINISTER, begins=False)

CALLS: dict[str, Call] = {
    **dict.fromkeys(("put", "put_file", "put_many", "put_once", "aput", "aput_file", "aput_many"), PUT),
    "answer": COLLECT,
    **dict.fromkeys(("get", "get_many", "aget", "aget_many", "consumer"), GET),
    **dict.fromkeys(("ack", "ack_many", "reply", "release", "fail", "dead_letter", "move", "extend", "unget"), FINISH),
    **dict.fromkeys(("aack", "aack_many", "areply", "arelease", "afail", "aextend", "sync_index"), FINISH),
    **dict.fromkeys(("browse", "groups", "qsize", "stats"), LOOK),
    **dict.fromkeys(("cancel", "purge", "redrive"), MANAGE),
    **dict.fromkeys(("create", "configure", "rename", "destroy", "activate", "deactivate"), MANAGE),
    **dict.fromkeys(("add_member", "remove_member"), MANAGE),
    **dict.fromkeys(("set_defaults", "grant", "revoke"), MANAGE),
}

Grants = dict[str, dict[str, list[Right]]]  # by principal, then by name or pattern of queues

ANY_QUEUE = "*"  # what calls about the whole root need the right for


def rights_of(grants: Grants, principal: str, queue: str) -> set[Right]:
    """
    >>> sorted(rights_of({"mail": {"out-*": [Right.PRODUCE], "*": [Right.BROWSE]}}, "mail", "out-1"))
    [<Right.BROWSE: 'browse'>, <Right.PRODUCE: 'produce'>]
    """
    patterns = grants.get(principal, {})
    return {right for pattern, rights in patterns.items() if fnmatchcase(queue, pattern) for right in rights}


def check(rights: Set[Right], principal: str, call: str, queue: str) -> None:
    """``NotPermitted`` unless the right that the call needs is among those that the principal has on this queue."""
    right = CALLS[call].right
    if right not in rights:
        raise NotPermitted(queue, call=call, who=repr(principal), why=f"it has no right to {right} here")


def check_visible(rights: Set[Right], principal: str, call: str, queue: str) -> None:
    """Likewise for calls that any right is enough for."""
    if not rights:
        raise NotPermitted(queue, call=call, who=repr(principal), why="it has no right here")


def check_rights(rights: object) -> list[Right]:
    """What somebody gave as rights: names of them, each once."""
    if isinstance(rights, str) or not isinstance(rights, list | tuple | set | frozenset) or not rights:
        raise Misuse(f"rights must be some of {', '.join(Right)}, not {rights!r}")
    try:
        return sorted({Right(right) for right in rights})
    except ValueError as error:
        raise Misuse(f"rights must be some of {', '.join(Right)}: {error}") from None


def check_who(what: str, name: object) -> str:
    """A principal, or a pattern of names of queues."""
    if not isinstance(name, str) or not name:
        raise Misuse(f"{what} must be a str that is not empty, not {name!r}")
    return name
