"""Owns what a macro queue is: which queues are its members, with which priority, and by which policies messages go in
and come out. What may be a member of what, with the reason where it may not. Reads entries by a function that it is
given; never opens a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Misuse
from penstock.manager.options import refuse_unknown
from penstock.timequeue.models import ACKNOWLEDGED, TWO_WAY

if TYPE_CHECKING:
    from penstock.manager.directory import Entry

MACRO = "macro"  # the kind of queue that is several others

PRODUCING = ("first-available", "copy-to-all", "fastest", "shortest", "round-robin")
CONSUMING = ("member-priority", "message-priority", "oldest", "round-robin")
POLICIES = {"producing": PRODUCING, "consuming": CONSUMING}
COPY_TO_ALL = "copy-to-all"
IN_ORDER = ("message-priority", "oldest")  # the policies that compare messages

MEMBERS_MAX = 1000  # each is an open queue of every process that has the macro queue open
DEPTH_MAX = 8  # macro queues in macro queues: more is a mistake, and a look goes through all of them
COPIES_MAX = 100  # of one message: room in all these queues is taken by calls inside each other
PRIORITY_MAX = 1_000_000


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of the same root, by its name. The higher its priority, the earlier its messages come."""

    name: str
    priority: int = 0


class MacroOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a macro queue is made of. In the order in which they were added, members take messages."""

    members: list[Member] = []
    producing: str = PRODUCING[0]
    consuming: str = CONSUMING[0]

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of its own at the end of a macro queue: by one membership, or through macro queues in it."""

    name: str
    uuid: str
    place: str
    priority: int  # of the membership in the macro queue that was asked for
    active: bool = True  # it and the macro queues on the way to it


Find = Callable[[str], "Entry | None"]


def macro_options(given: Mapping[str, Any]) -> MacroOptions:
    """As a caller or a file has them: members are names, or tables with ``name`` and ``priority``."""
    unknown = sorted(given.keys() - {"members", *POLICIES})
    if unknown:
        raise Misuse(f"{', '.join(unknown)}: no such option of a macro queue; there are members, {', '.join(POLICIES)}")
    for option, known in POLICIES.items():
        if option in given and given[option] not in known:
            raise Misuse(f"{option} must be one of {', '.join(known)}, not {given[option]!r}")
    members = given.get("members", [])
    if isinstance(members, str) or not isinstance(members, Iterable):
        raise Misuse(f"members must be several names of queues, not {members!r}")
    policies = {option: given[option] for option in POLICIES if option in given}
    return MacroOptions(members=[member_of(each) for each in members], **policies)


def member_of(given: Any) -> Member:
    if isinstance(given, Member):
        return Member(name=given.name, priority=check_priority(given.priority))
    if isinstance(given, str):
        return Member(name=given)
    if isinstance(given, tuple) and len(given) == 2:
        given = {"name": given[0], "priority": given[1]}
    if isinstance(given, Mapping):
        refuse_unknown("a member", given, Member)
    try:
        found = msgspec.convert(given, Member)
    except msgspec.ValidationError as error:
        raise Misuse(f"a member is a name, or a name and a priority, not {given!r}: {error}") from None
    return Member(name=found.name, priority=check_priority(found.priority))


def check_priority(priority: Any) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > PRIORITY_MAX:
        raise Misuse(f"the priority of a member must be a whole number up to {PRIORITY_MAX}, not {priority!r}")
    return priority


# ---------------------------------------------------------------- what may be a member


def check_members(macro: str, options: MacroOptions, own: Mapping[str, Any], find: Find) -> None:
    """``Misuse`` that says why these cannot be the members of this macro queue: one is not there, is there twice, also
    through others, is the macro queue itself, or does not allow what the macro queue does; or they cannot have copies
    of each message that are to. ``own`` are its model, relationship and remote_clients."""
    if len(options.members) > MEMBERS_MAX:
        raise Misuse(f"{macro}: a macro queue has {MEMBERS_MAX} members at most, not {len(options.members)}")
    ways: dict[str, str] = {}
    for member in options.members:
        entry = find(member.name)
        if entry is None:
            raise Misuse(f"{macro}: there is no queue {member.name} here that could be a member")
        check_compatible(macro, own, entry)
        for name, way in _below(macro, entry, find, member.name, 1):
            if name in ways:
                twice = f"as {ways[name]}, and as {way}" if ways[name] != way else f"as {way}, twice"
                raise Misuse(f"{macro}: {name} cannot be a member twice: {twice}")
            ways[name] = way
    if options.producing == COPY_TO_ALL:
        _check_copies(macro, options, own, find)


def _check_copies(macro: str, options: MacroOptions, own: Mapping[str, Any], find: Find) -> None:
    """A put into it that could never work is refused when the macro queue is made or changed."""
    if own["model"] in (ACKNOWLEDGED, TWO_WAY):
        raise Misuse(
            f"{macro}: {COPY_TO_ALL} is not possible with the model {own['model']}: each copy would have an answer of "
            f"its own, and a put waits for one"
        )
    copies = _copies(options, find)
    if copies > COPIES_MAX:
        raise Misuse(f"{macro}: copies go to {COPIES_MAX} queues at most, not {copies}: too many members")


def _copies(options: MacroOptions, find: Find) -> int:
    """Of each message: one for each member, and of a macro queue that copies as well as many as it makes."""
    inner = [entry.macro if entry is not None else None for entry in map(find, options.names)]
    return sum(1 if each is None or each.producing != COPY_TO_ALL else _copies(each, find) for each in inner)


def _below(macro: str, entry: Entry, find: Find, way: str, depth: int) -> Iterator[tuple[str, str]]:
    """All names from a member down, each with the way to it."""
    if entry.name == macro:
        raise Misuse(f"{macro}: a macro queue cannot be a member of itself: {macro} > {way}")
    if depth > DEPTH_MAX:
        raise Misuse(f"{macro}: macro queues nest {DEPTH_MAX} deep at most: {way}")
    yield entry.name, way
    for member in entry.macro.members if entry.macro is not None else []:
        found = find(member.name)
        if found is not None:
            yield from _below(macro, found, find, f"{way} > {found.name}", depth + 1)


ROLES_OF = {"producer": {"producer"}, "consumer": {"consumer"}, "both": {"producer", "consumer"}}


def check_compatible(macro: str, own: Mapping[str, Any], member: Entry) -> None:
    """What may be done with a macro queue may be done with each of its members."""
    theirs = member.options
    if not ROLES_OF[own["relationship"]] <= ROLES_OF[theirs.relationship]:
        raise Misuse(
            f"{macro}: {member.name} cannot be a member: its relationship is {theirs.relationship}, and that of the "
            f"macro queue {own['relationship']}; create the macro queue with relationship={theirs.relationship!r}"
        )
    if own["remote_clients"] and not theirs.remote_clients:
        raise Misuse(
            f"{macro}: {member.name} cannot be a member: its remote_clients is off, and that of the macro queue on"
        )
    if own["model"] != theirs.model:
        raise Misuse(
            f"{macro}: {member.name} cannot be a member: its model is {theirs.model}, and that of the macro queue "
            f"{own['model']}"
        )


# ---------------------------------------------------------------- the queues at the end


def leaves(entry: Entry, find: Find) -> list[Leaf]:
    """The queues that a macro queue is, through all macro queues in it; those that are not there are left out. Of a
    plain queue, itself."""
    if entry.macro is None:
        return [Leaf(name=entry.name, uuid=entry.uuid or "", place=entry.place, priority=0, active=entry.active)]
    found: dict[str, Leaf] = {}
    for member in entry.macro.members:
        below = find(member.name)
        if below is None:
            continue
        for leaf in leaves(below, find):
            active = leaf.active and below.active
            found.setdefault(leaf.name, msgspec.structs.replace(leaf, priority=member.priority, active=active))
    return list(found.values())
