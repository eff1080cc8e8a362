"""Owns QueueManager: the queues below a folder, by name. What may be done when is ``states.py``'s, who may do it
``permissions.py``'s, and what is done to files ``kinds.py``'s; nothing here knows how a queue works inside.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import uuid as uuids
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from penstock.errors import Misuse, NameTaken, NoSuchQueue, PenstockError, WrongRelationship
from penstock.manager.changing import engage, settle
from penstock.manager.directory import (
    Directory,
    Entry,
    FileDirectory,
    Noted,
    check_new_name,
    encode,
    note,
    read_noted,
)
from penstock.manager.figures import LOOK_BUSY_S, ManagerStats, QueueFigures, manager_stats
from penstock.manager.handed import HandedOut
from penstock.manager.kinds import KINDS, Kind, Progress
from penstock.manager.letters import check_letters, placed, refuse_loose
from penstock.manager.macros import Macros
from penstock.manager.managed import ROLES, Gate, ManagedQueue
from penstock.manager.membership import MACRO, MacroOptions, Member
from penstock.manager.options import (
    NAMES,
    OWN,
    QueueOptions,
    check_relationship,
    checked,
    differences,
    read_back,
    refuse_fixed,
)
from penstock.manager.permissions import (
    ANY_QUEUE,
    CALLS,
    Grants,
    Right,
    check,
    check_rights,
    check_visible,
    check_who,
    rights_of,
)
from penstock.manager.root import Root
from penstock.manager.states import State, after
from penstock.store.files import Clock
from penstock.timequeue.arguments import BUSY_S, check_seconds, queue_path

log = logging.getLogger("penstock")

Name = str | uuids.UUID  # of a queue: where it is asked for, its UUID will do


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager knows of a queue."""

    name: str
    uuid: str | None
    kind: str
    place: str
    state: State
    active: bool
    options: QueueOptions
    error: str | None = None
    macro: MacroOptions | None = None  # of a macro queue: its members and policies


class QueueManager:
    """Looks after the queues below a folder, together with any number of other managers of it, in any processes.

    >>> import penstock
    >>> manager = penstock.QueueManager(path)
    >>> info = manager.create("orders", depth=100)
    >>> with manager.open("orders", relationship="producer") as q:
    ...     id = q.put("hello")
    >>> [(each.name, str(each.state), each.options.depth) for each in manager.list()]
    [('orders', 'closed', 100)]
    """

    def __init__(
        self, root: str | os.PathLike[str], *, directories: Sequence[Directory] = (), busy_s: float = BUSY_S
    ) -> None:
        """``directories`` are where names are looked up that the root does not have; what is found there can be opened,
        and nothing else. ``busy_s`` is how long a call may wait for another manager, or for a queue's lock."""
        self._busy_s = check_seconds("busy_s", busy_s)
        self._root = Root(queue_path(root), busy_s=self._busy_s)
        self._files = FileDirectory(self._root.path)
        self._macros = Macros(self._files, lambda: self._root.changes.advance())
        self._directories: tuple[Directory, ...] = (self._files, *directories)
        self._principal: str | None = None
        self._handed = HandedOut()
        self._views: dict[str, QueueManager] = {}

    @property
    def root(self) -> Path:
        return self._root.path

    # ------------------------------------------------------------ looking

    def list(self) -> list[QueueInfo]:
        """All queues, by name; under a principal those that it has some right on."""
        return [self._info(entry) for entry in self._entries() if self._principal is None or self._rights(entry.name)]

    def _entries(self) -> Sequence[Entry]:
        """By name. What the root has comes before what is found elsewhere."""
        entries = {entry.name: entry for each in reversed(self._directories) for entry in each.entries()}
        return [entries[name] for name in sorted(entries)]

    def find(self, name: Name) -> QueueInfo:
        """The queue of this name, or with this UUID; ``NoSuchQueue`` if there is none."""
        name = _text(name)
        entry = self._entry(name)
        if entry is None:
            self._permit_any("find", name)
            raise NoSuchQueue(name, state=State.UNKNOWN, call="find", allowed=["create"])
        self._permit_any("find", entry.name)
        return self._info(entry)

    def state(self, name: Name) -> State:
        """Its state; ``unknown`` if there is no such queue."""
        name = _text(name)
        entry = self._entry(name)
        self._permit_any("state", name if entry is None else entry.name)
        return State.UNKNOWN if entry is None else self._state(entry)

    def stats(self) -> ManagerStats:
        """The figures of all queues, and of all together; under a principal of those that it may browse. A queue that
        cannot be looked at has its error there."""
        right, anybody = CALLS["stats"].right, self._principal is None
        seen = [entry for entry in self._entries() if anybody or right in self._rights(entry.name)]
        return manager_stats(str(self.root), map(self._figures, seen))

    def _figures(self, entry: Entry) -> QueueFigures:
        figures = QueueFigures(name=entry.name, kind=entry.kind, state=self._state(entry), active=entry.active)
        try:
            found = self._kind(entry).stats(_path_of(entry), busy_s=min(self._busy_s, LOOK_BUSY_S))
        except (PenstockError, OSError) as error:
            return msgspec.structs.replace(figures, state=State.FAILED, error=str(error))
        return msgspec.structs.replace(figures, stats=found)

    def _entry(self, name: str) -> Entry | None:
        return self._find_in(self._directories, name)

    def _find_in(self, directories: Sequence[Directory], name: str) -> Entry | None:
        for directory in directories:
            found = directory.find(name) or (directory.find_uuid(name) if _is_uuid(name) else None)
            if found is not None:
                return found
        return None

    def _state(self, entry: Entry) -> State:
        return self._handed.state(entry.name, _at_rest(entry))

    def _info(self, entry: Entry) -> QueueInfo:
        return QueueInfo(
            name=entry.name,
            uuid=entry.uuid,
            kind=entry.kind,
            place=entry.place,
            state=self._state(entry),
            active=entry.active,
            options=entry.options,
            error=entry.error,
            macro=entry.macro,
        )

    # ------------------------------------------------------------ making and changing

    def create(self, name: str, **options: Any) -> QueueInfo:
        """Make a queue, with the root's defaults for all that is not given: see ``QueueOptions``. It is there whole,
        and configured, or not at all."""
        check_new_name(name)
        self._permit("create", name)
        given = checked(options)
        self._refuse_taken(name)
        wanted = QueueOptions(**read_back(placed({**self._root.settings().defaults, **given}, self._files.place)))
        noted = Noted(**{option: getattr(wanted, option) for option in OWN})
        place = self._files.place(name)
        check_letters(Entry(name=name, uuid=None, kind=noted.kind, place=str(place), options=wanted), self._files)
        made = {option: getattr(wanted, option) for option in NAMES}
        # Without the root's lock: a large queue takes long to make, and of those who make one of a name one wins.
        KINDS[noted.kind].make(place, made, encode(noted))
        self._handed.forget(name)
        return self.find(name)

    def _refuse_taken(self, name: str) -> None:
        entry = self._files.find(name)
        after(name, State.UNKNOWN if entry is None else self._state(entry), "create")

    def create_macro(
        self, name: str, members: Iterable[str | Member | tuple[str, int]] = (), **options: Any
    ) -> QueueInfo:
        """Make a macro queue: several queues of this root as one. ``members`` are names, or names with priorities.

        ``producing`` says which of them gets a message: "first-available", "copy-to-all", "fastest", "shortest" or
        "round-robin"; ``consuming`` of which one is got: "member-priority", "message-priority", "oldest" or
        "round-robin". ``relationship`` and ``remote_clients`` are as of a queue.

        >>> import penstock
        >>> manager = penstock.QueueManager(path)
        >>> infos = [manager.create(name) for name in ("urgent", "normal")]
        >>> info = manager.create_macro("work", [("urgent", 2), ("normal", 1)])
        >>> with manager.open("normal") as normal, manager.open("urgent") as urgent, manager.open("work") as work:
        ...     ids = normal.put("later"), urgent.put("now")
        ...     [work.get().body, work.get().body]
        ['now', 'later']
        """
        check_new_name(name)
        self._permit("create", name)
        self._refuse_taken(name)
        with self._root.locked():  # no member is destroyed or renamed meanwhile
            self._macros.make(name, {**options, "members": members})
        self._handed.forget(name)
        return self.find(name)

    def add_member(self, macro: Name, member: Name, *, priority: int = 0) -> QueueInfo:
        """One more member for a macro queue, open or not. Who is blocked in a call on it counts on it from now on."""
        with self._changing(macro, "add_member") as entry:
            self._macros.add(entry, self._called(member), priority)
        return self.find(entry.name)

    def remove_member(self, macro: Name, member: Name) -> QueueInfo:
        """It is a member no longer; its messages stay in it. What was got of it through the macro queue can be
        finished."""
        with self._changing(macro, "remove_member") as entry:
            self._macros.remove(entry, self._called(member))
        return self.find(entry.name)

    def _called(self, name: Name) -> str:
        """The name of a queue of this root that is given by its name or UUID."""
        name = _text(name)
        entry = self._find_in((self._files,), name)
        return name if entry is None else entry.name

    def configure(self, name: Name, **changes: Any) -> QueueInfo:
        """Other options for a queue that is not open: all of these changes are made, or none. ``Misuse`` for those that
        are fixed when a queue is made; ``QueueInUse`` while somebody has it open, unless they are the manager's own.
        Those of a macro queue can be changed while others have it open, and count for them at once."""
        with self._changing(name, "configure") as entry:
            if entry.kind == MACRO:
                self._macros.change(entry, changes)
                self._handed.forget(entry.name)
                return self.find(entry.name)
            given = checked(changes)
            refuse_fixed(entry.name, given)
            self._macros.check_member(entry, {name: value for name, value in given.items() if name in OWN})
            wanted = placed(given, self._files.place)
            self._check_letters(entry, wanted)
            self._kind(entry).check(Path(entry.place), wanted)
            if differences(entry.name, entry.options, wanted):
                engage(Path(entry.place), self._kind(entry), wanted, busy_s=self._busy_s)
            self._handed.forget(entry.name)
        return self.find(entry.name)

    def changes(self, name: Name, **options: Any) -> dict[str, tuple[Any, Any]]:
        """What ``configure`` would change: each option as it is, and as it would be. ``Misuse`` if it would refuse
        that, as far as can be told."""
        found = self.find(name)
        entry = self._files.find(found.name)
        if entry is not None and entry.kind == MACRO:
            return self._macros.differences(entry, options)
        new = differences(found.name, found.options, placed(checked(options), self._files.place))
        if entry is not None and new:
            self._check_letters(entry, new)
            self._kind(entry).check(Path(entry.place), new)
            self._kind(entry).check_sizes(Path(entry.place), new, busy_s=self._busy_s)
        return {option: (getattr(found.options, option), value) for option, value in new.items()}

    def _check_letters(self, entry: Entry, wanted: dict[str, Any]) -> None:
        if "dead_letter" in wanted:
            options = msgspec.structs.replace(entry.options, dead_letter=wanted["dead_letter"])
            check_letters(msgspec.structs.replace(entry, options=options), self._files)

    def rename(self, name: Name, to: str) -> QueueInfo:
        """Another name for a queue that nobody has open. One step: it has the old name or the new one."""
        check_new_name(to)
        self._permit("rename", to)
        with self._changing(name, "rename") as entry:
            taken = self._files.find(to)
            if taken is not None:
                raise NameTaken(to, state=self._state(taken), call="rename", allowed=[], renamed=entry.name)
            self._macros.refuse_member(entry.name, "rename")
            refuse_loose(entry, self._files)
            check_letters(msgspec.structs.replace(entry, name=to, place=str(self._files.place(to))), self._files)
            self._kind(entry).rename(Path(entry.place), to=self._files.place(to), busy_s=self._busy_s)
            self._handed.forget(entry.name)
        return self.find(to)

    def activate(self, name: Name) -> QueueInfo:
        """Let messages in and out again."""
        return self._set_active(name, "activate", True)

    def deactivate(self, name: Name) -> QueueInfo:
        """From now on managers, of all processes, let nothing in or out; what was got can be finished. A get that waits
        already may still bring a message."""
        return self._set_active(name, "deactivate", False)

    def _set_active(self, name: Name, call: str, active: bool) -> QueueInfo:
        with self._changing(name, call) as entry:
            place = Path(entry.place)
            note(place, msgspec.structs.replace(read_noted(place), active=active))
        return self.find(entry.name)

    def destroy(self, name: Name) -> None:
        """Delete a queue that nobody has open, with all its messages. Nothing else deletes anything. Of a macro queue
        the members stay as they are."""
        with self._changing(name, "destroy") as entry:
            self._macros.refuse_member(entry.name, "destroy")
            aside = self._root.place_of_destroyed()
            self._kind(entry).remove(Path(entry.place), aside=aside, busy_s=self._busy_s)
            self._handed.forget(entry.name)

    @contextlib.contextmanager
    def _changing(self, name: Name, call: str) -> Iterator[Entry]:
        """The entry of a queue of this root that is to be changed; nobody else changes anything meanwhile."""
        name = _text(name)
        with self._root.locked():
            entry = self._find_in((self._files,), name)
            if entry is None:
                elsewhere = self._find_in(self._directories[1:], name)  # it may have been made here just now
                self._permit(call, name)
                if elsewhere is not None:
                    raise Misuse(f"{name}: not in {self.root}, but at {elsewhere.place}: {call} it where it is")
                after(name, State.UNKNOWN, call)
                raise AssertionError(f"{call} of a queue that is unknown")
            self._permit(call, entry.name)
            if entry.configuring:
                settle(entry, self._kind, call, busy_s=self._busy_s)
                entry = self._files.find(entry.name) or entry
            after(entry.name, self._state(entry), call)
            yield entry

    def _kind(self, entry: Entry) -> Kind:
        if entry.kind not in KINDS:
            raise Misuse(f"{entry.name}: this version of Penstock knows no queues of the kind {entry.kind!r}")
        return KINDS[entry.kind]

    # ------------------------------------------------------------ opening and closing

    def open(
        self,
        name: Name,
        *,
        relationship: str = "both",
        remote: bool = False,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> ManagedQueue:
        """A queue of this name, or with this UUID, for a producer, a consumer or both. It can be opened several times.

        ``remote``: for a client on another machine, which the queue's ``remote_clients`` allows or not.
        """
        check_relationship(relationship)
        if remote.__class__ is not bool:
            raise Misuse(f"remote must be True or False, not {remote!r}")
        name = _text(name)
        entry = self._entry(name)
        self._permit_any("open", name if entry is None else entry.name)
        if entry is not None and entry.configuring:
            with self._root.locked():
                settle(entry, self._kind, "open", busy_s=self._busy_s)
            entry = self._entry(name)
        if entry is None:
            after(name, State.UNKNOWN, "open")
            raise AssertionError("a queue that is unknown was opened")
        place = _path_of(entry)
        gate = self._gate(entry, relationship, remote)
        self._handed.begin(entry.name, _at_rest(entry))
        try:
            inner = self._kind(entry).open(place, busy_s=self._busy_s, clock=clock, progress=progress)
        except BaseException:
            self._handed.end(entry.name, None)
            raise
        managed = ManagedQueue(inner, gate, place, self._handed.close)
        self._handed.end(entry.name, managed)
        return managed

    def _gate(self, entry: Entry, relationship: str, remote: bool) -> Gate:
        if not ROLES[relationship] & ROLES[entry.options.relationship]:
            raise WrongRelationship(entry.name, relationship=relationship, call="open")
        gate = Gate(
            entry.name,
            noted=functools.partial(read_noted, Path(entry.place)),
            relationship=relationship,
            remote=remote,
            principal=self._principal,
            rights=lambda: self._rights(entry.name),
            changes=self._root.changes,
        )
        gate.check_client("open")
        return gate

    def close(self, name: Name | None = None) -> None:
        """Close a queue, wherever this manager has handed it out; all of them without a name. Deletes nothing."""
        if name is None:
            for view in self._views.values():
                view.close()
            opened = self._handed.opened()
        else:
            name = _text(name)
            entry = self._entry(name)
            called = name if entry is None else entry.name
            self._permit_any("close", called)
            opened = self._handed.opened(called)
            if not opened:
                self._handed.close_none(called, State.UNKNOWN if entry is None else _at_rest(entry))
        for managed in opened:
            managed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<QueueManager {self.root}{f' as {self._principal}' if self._principal else ''}>"

    # ------------------------------------------------------------ defaults and permissions

    @property
    def defaults(self) -> QueueOptions:
        """What a new queue gets for what ``create`` is not given."""
        return QueueOptions(**self.own_defaults)

    @property
    def own_defaults(self) -> dict[str, Any]:
        """Those of them that were set for this root."""
        return read_back(self._root.settings().defaults)

    def set_defaults(self, **options: Any) -> QueueOptions:
        """Other defaults for queues that are made in this root from now on, by any manager. What is not given is as
        Penstock has it."""
        self._permit("set_defaults", ANY_QUEUE)
        given = msgspec.to_builtins(checked(options))
        with self._root.locked():
            self._root.change(defaults=given)
        return self.defaults

    def permissions(self) -> Grants:
        """By principal, then by name or pattern of queues."""
        self._permit_any("permissions", ANY_QUEUE)
        return self._root.settings().permissions

    def grant(self, principal: str, queues: str, rights: Iterable[str]) -> None:
        """Let a principal do this on the queues of a name or pattern (``mail-*``), instead of what it may there
        so far."""
        several = isinstance(rights, Iterable) and not isinstance(rights, str)
        granted = check_rights(list(rights) if several else rights)
        self._set_rights("grant", principal, queues, granted)

    def revoke(self, principal: str, queues: str) -> None:
        """Take back what was granted on exactly this name or pattern."""
        self._set_rights("revoke", principal, queues, [])

    def _set_rights(self, call: str, principal: str, queues: str, rights: Sequence[Right]) -> None:
        self._permit(call, ANY_QUEUE)
        check_who("a principal", principal)
        check_who("a pattern", queues)
        with self._root.locked():
            before = self._root.settings().permissions
            after_it = {**before.get(principal, {}), queues: rights}
            every = {**before, principal: {each: some for each, some in after_it.items() if some}}
            self._root.change(permissions={each: some for each, some in every.items() if some})

    def as_principal(self, name: str) -> QueueManager:
        """This manager for a principal: every call on it, and on the queues that it opens, needs the right for it."""
        check_who("a principal", name)
        if self._principal is not None:
            raise Misuse(f"this is the manager of {self._principal!r} already")
        view = QueueManager(self.root, directories=self._directories[1:], busy_s=self._busy_s)
        view._principal = name
        return self._views.setdefault(name, view)  # of two threads one wins

    def _permit(self, call: str, queue: str) -> None:
        if self._principal is not None:
            check(self._rights(queue), self._principal, call, queue)

    def _permit_any(self, call: str, queue: str) -> None:
        if self._principal is not None:
            check_visible(self._rights(queue), self._principal, call, queue)

    def _rights(self, queue: str) -> set[Right]:
        """Of the principal. Without one nothing is checked."""
        return (
            set() if self._principal is None else rights_of(self._root.settings().permissions, self._principal, queue)
        )


def _at_rest(entry: Entry) -> State:
    """The state of a queue that this manager has not opened."""
    if entry.configuring:
        return State.CONFIGURING
    return State.CONFIGURED if entry.error is None else State.FAILED


def _text(name: Name) -> str:
    if not isinstance(name, str | uuids.UUID):
        raise Misuse(f"a queue is named by a str or a UUID, not {name!r}")
    return str(name)


def _is_uuid(name: str) -> bool:
    try:
        return str(uuids.UUID(name)) == name.lower()
    except ValueError:
        return False


def _path_of(entry: Entry) -> Path:
    if "://" in entry.place:
        raise Misuse(f"{entry.name}: it is at {entry.place}, and this version of Penstock opens only paths")
    return Path(entry.place)
