"""Owns the members of a macro queue as one process has them open: which there are now, by what the root says, which of
them work, and the tree of macro queues above them. What is put and got is others' to decide. A member that fails is
left alone for a while and then tried again.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import Misuse, PenstockError, QueueClosed, QueueNotFound
from penstock.manager.directory import Entry, FileDirectory
from penstock.manager.membership import IN_ORDER, MacroOptions
from penstock.manager.policies import Head, levels_of
from penstock.manager.root import CHANGES
from penstock.message import Message
from penstock.store.counter import SharedCounter
from penstock.store.files import NOTIFY, WAKEUP
from penstock.timequeue.administration import Gauge

RETRY_S = 1.0  # a member that failed is tried again after so long
LOOK_S = 10.0  # without any news: what was changed by a manager that was killed before it said so

log = logging.getLogger("penstock")


class Asked:
    """What a receiver asks for: types and keys, or the messages of one group."""

    def __init__(self, types: tuple[str, ...], keys: tuple[str, ...], group: str | None = None) -> None:
        self.types = types
        self.keys = keys
        self.group = group
        self.names = types, keys, group

    def is_met(self, message: Message) -> bool:
        return True  # members have looked


class MemberQueue(Protocol):
    """What a macro queue must know of a member beside ``penstock.Queue``: what routing looks at, cheaply; taking
    without waiting; and how to be told of news. A queue elsewhere can be a member when its proxy has this."""

    @property
    def queue(self) -> Any:
        """The queue itself."""

    @property
    def notice(self) -> Path:
        """The file that changes when there is news, once it was asked for."""

    @property
    def lease_us(self) -> int: ...
    def gauge(self) -> Gauge: ...
    def is_due(self, now_us: int) -> bool:
        """A hint, for the price of a few loads."""

    def quick(self) -> tuple[Callable[[int], int], Callable[[int, float, int], list[Message]]]:
        """``is_due`` and ``take`` at their quickest: with the time, not 0 if something is due; with how many, 0.0 and
        the lease. Good until it is closed, or a fork."""

    def stirs(self) -> bool:
        """Whether something may come back by itself: somebody has messages, or died with them."""

    def head(self, now_us: int, asked: Asked | None, *, oldest: bool) -> Head | None:
        """The message that it would deliver now, or with ``oldest`` the time of the one that is due for longest."""

    def take(self, most: int, lease_us: int, asked: Asked | None) -> list[Message]: ...
    def take_oldest(self, lease_us: int) -> list[Message]:
        """The one that has been due for longest, whatever its priority."""

    def look_at_once(self, most: int, lease_us: int, asked: Asked | None) -> Any:
        """``take`` for an event loop: ``QueueBusy`` if it would have to wait. What is found is read later."""

    def ask(self, asked: Asked | None) -> float:
        """Be told of the next news by ``notice``; how long until there may be some without any."""

    def ask_for_room(self) -> None: ...
    def soon_s(self, now_us: int) -> float:
        """How long until something falls due, or a lease ends: a hint."""

    def is_there(self) -> bool:
        """Whether its files are still those that we have open."""

    def holds(self) -> int:
        """Messages that were got here and not finished."""

    def close(self) -> None: ...


class Outage:
    """That a member does not work in one direction, and until when it is left alone."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._until_s = 0.0

    def begin(self, member: str, call: str, error: Exception) -> None:
        if self.error is None:
            log.warning("%s: a member does not work, and is passed over in %s: %s", member, call, error)
        self.error = error
        self._until_s = time.monotonic() + RETRY_S

    def is_over(self) -> bool:
        """Or to be tried."""
        return self.error is None or time.monotonic() >= self._until_s

    def end(self, member: str) -> None:
        if self.error is not None:
            log.warning("%s: the member works again", member)
            self.error = None


class Node:
    """A member at its place: a queue, or a macro queue."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.priority = 0
        self.active = True
        self.place = 0  # among the members of the macro queue that it is in


class Leaf(Node):
    """A queue that is a member."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.member: MemberQueue | None = None
        self.takes = Outage()
        self.gives = Outage()
        self.opening = Outage()

    @property
    def may_give(self) -> bool:
        return self.member is not None and self.active and (self.gives.error is None or self.gives.is_over())

    @property
    def may_take(self) -> bool:
        return self.member is not None and self.active and (self.takes.error is None or self.takes.is_over())

    @property
    def error(self) -> Exception | None:
        return self.opening.error or self.gives.error or self.takes.error


class Group(Node):
    """A macro queue: the one that was opened, or one that is a member."""

    def __init__(self, name: str, path: Path, uuid: str, options: MacroOptions) -> None:
        super().__init__(name, path)
        self.uuid = uuid
        self.options = options
        self.nodes: list[Leaf | Group] = []
        self.levels: list[list[int]] = []  # places of members by priority, for those policies that look at it
        self.is_flat = True  # no macro queues in it
        self.last = -1  # the member that a message came from last
        self.next = 0  # the member that a message goes to next, in turn
        self.elsewhere: list[int] = []  # of each member, messages that went to others since it had one
        self.quick: list[Quick] | None = None  # of each member, where a look at each is all that it takes
        self.first: Leaf | None = None  # the member that takes a message, where there is nothing to decide
        self.turns: dict[int, list[int]] = {}  # by the member that was last: the order in which they are looked at

    def leaves(self) -> list[Leaf]:
        return [leaf for node in self.nodes for leaf in ([node] if isinstance(node, Leaf) else node.leaves())]

    def groups(self) -> list[Group]:
        """Itself and all macro queues in it."""
        return [self, *(each for node in self.nodes if isinstance(node, Group) for each in node.groups())]


class Quick(NamedTuple):
    """A member for those who have nothing to decide."""

    due: Callable[[int], int]
    receive: Callable[[int, float, int], list[Message]]
    lease_us: int
    leaf: Leaf


Open = Callable[[Path], MemberQueue]


class Members:
    """The members of one macro queue object."""

    def __init__(self, path: Path, open_member: Open) -> None:
        self._path = path
        self._files = FileDirectory(path.parent)
        self._open = open_member
        self._mutex = threading.RLock()
        self._leaves: dict[str, Leaf] = {}
        self._retired: list[Leaf] = []
        self._changes = SharedCounter(path.parent / CHANGES)
        self.words = self._changes.words  # for those who look at every call
        self._closed = False
        self.seen = -1
        self._fresh_until_s = 0.0
        self.version = 0  # grows when members come or go
        self.root = Group(path.name, path, "", MacroOptions())
        self.leaves: list[Leaf] = []

    def is_told(self) -> bool:
        """Whether somebody has changed something since."""
        return self._changes.value() != self.seen

    def is_stale(self) -> bool:
        return self.is_told() or time.monotonic() >= self._fresh_until_s

    def current(self) -> Group:
        """The tree as the root has it now."""
        if self._closed:
            raise QueueClosed(f"{self._path}: this queue object is closed")
        if self.is_stale():
            with self._mutex:
                if self.is_stale():
                    self._refresh()
        return self.root

    def _refresh(self) -> None:
        seen = self._changes.value()
        entry = self._files.find(self._path.name)
        if entry is None or entry.macro is None:
            raise QueueNotFound(f"{self._path}: there is no macro queue here any more")
        groups = {group.name: group for group in self.root.groups()}
        known: dict[str, Leaf] = {}
        root = self._group(entry, groups, known)
        for leaf in known.values():
            self._open_leaf(leaf)
        gone = [leaf for name, leaf in self._leaves.items() if name not in known]
        self._leaves = known
        if gone or {leaf.name for leaf in self.leaves} != known.keys():
            self.version += 1
        root.quick = _quick(root)
        self.root, self.leaves = root, root.leaves()
        self._retired += gone
        self._close_retired()
        self.seen = seen
        closed = any(leaf.member is None for leaf in known.values())
        self._fresh_until_s = time.monotonic() + (RETRY_S if closed or self._retired else LOOK_S)

    def _group(self, entry: Entry, before: dict[str, Group], known: dict[str, Leaf]) -> Group:
        assert entry.macro is not None
        group = Group(entry.name, Path(entry.place), entry.uuid or "", entry.macro)
        group.active = entry.active
        for membership in entry.macro.members:
            found = self._files.find(membership.name)
            if membership.name in known or (found is not None and found.name == self._path.name):
                continue  # written by hand: managers refuse it
            node: Leaf | Group
            if found is not None and found.macro is not None:
                node = self._group(found, before, known)
            else:
                node = self._leaf(membership.name, found)
                known[node.name] = node
            node.priority = membership.priority
            node.place = len(group.nodes)
            group.nodes.append(node)
        by_priority = group.options.consuming == "member-priority"
        group.levels = levels_of([node.priority if by_priority else 0 for node in group.nodes])
        group.is_flat = all(isinstance(node, Leaf) for node in group.nodes)
        if group.options.producing == "first-available" and group.active and group.nodes:
            group.first = group.nodes[0] if isinstance(group.nodes[0], Leaf) else None
        group.elsewhere = [0] * len(group.nodes)
        old = before.get(group.name)
        if old is not None and [node.name for node in old.nodes] == [node.name for node in group.nodes]:
            group.last, group.next, group.elsewhere = old.last, old.next, old.elsewhere
        return group

    def _leaf(self, name: str, found: Entry | None) -> Leaf:
        leaf = self._leaves.get(name) or Leaf(name, self._path.parent / name)
        leaf.active = found is None or found.active
        return leaf

    def _open_leaf(self, leaf: Leaf) -> None:
        if leaf.member is not None and not leaf.member.is_there():
            self._lose(leaf)
        if leaf.member is None and leaf.opening.is_over():
            try:
                leaf.member = self._open(leaf.path)
            except (PenstockError, OSError) as error:
                _raise_if_ours(error)
                leaf.opening.begin(leaf.name, "all calls", error)
            else:
                leaf.opening.end(leaf.name)
                self.version += 1

    def lose_gone(self) -> None:
        """Members whose files are not those that we have open any more: nobody else would see what is put there."""
        for leaf in self.leaves:
            if leaf.member is not None and not leaf.member.is_there():
                self._lose(leaf)

    def _lose(self, leaf: Leaf) -> None:
        error = QueueNotFound(f"{leaf.path}: its files are gone, or others are there")
        with self._mutex:
            member, leaf.member = leaf.member, None
            self.root.quick = None
            self._fresh_until_s = min(self._fresh_until_s, time.monotonic() + RETRY_S)
            self.version += 1
        leaf.opening.begin(leaf.name, "all calls", error)
        if member is not None:
            _close(leaf.name, member)

    def _close_retired(self) -> None:
        """Members that were removed stay open while messages of theirs are worked on."""
        for leaf in list(self._retired):
            member = leaf.member
            if member is None or not member.holds():
                self._retired.remove(leaf)
                leaf.member = None
                if member is not None:
                    _close(leaf.name, member)

    def opened(self) -> list[MemberQueue]:
        """All that are open, also those that are members no longer."""
        return [leaf.member for leaf in (*self.leaves, *self._retired) if leaf.member is not None]

    def close(self) -> None:
        with self._mutex:
            first: Exception | None = None
            for leaf in (*self.leaves, *self._retired):
                member = leaf.member
                if member is None:
                    continue
                try:
                    member.close()
                except Misuse:  # it cannot be closed now
                    raise
                except (PenstockError, OSError) as error:
                    first = first or error
                leaf.member = None
            self._closed = True
            self._fresh_until_s = 0.0
            if first is not None:
                raise first

    def after_fork_in_child(self) -> None:
        self._mutex = threading.RLock()
        self._fresh_until_s = 0.0  # what was made for the parent's members is made anew


def _quick(group: Group) -> list[Quick] | None:
    """None where more than a look at each member is needed: the policy compares messages, or macro queues are in it."""
    if not group.active or group.options.consuming in IN_ORDER:
        return None
    leaves = [node for node in group.nodes if isinstance(node, Leaf) and node.member is not None and node.active]
    if len(leaves) < len(group.nodes):
        return None
    return [Quick(*leaf.member.quick(), leaf.member.lease_us, leaf) for leaf in leaves if leaf.member is not None]


def _raise_if_ours(error: BaseException | None) -> None:
    """Too many open files: it is this process that cannot, not the member."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise error
        error = error.__cause__


def notice_of(path: Path) -> Path:
    return path / NOTIFY / WAKEUP


def _close(name: str, member: MemberQueue) -> None:
    try:
        member.close()
    except (PenstockError, OSError) as error:
        log.warning("%s: the member was not closed as it should: %s", name, error)
