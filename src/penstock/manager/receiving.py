"""Owns getting messages of a macro queue: which member is asked first, and sleeping until any of them has something.

A look goes over hints that cost a few loads, and takes what it chose with one turn at that member alone. Who finds
nothing asks each member to be told of news, looks once more, and sleeps. A member that was asked and has told nothing
since has nothing: it is *quiet*, and neither looked at nor asked again. So idle members cost nothing, however many.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.errors import Misuse, PenstockError, QueueBusy, QueueClosed
from penstock.manager.alarm import SLEEP_MAX_S, Alarm
from penstock.manager.members import Asked, Group, Leaf, Members, Quick, notice_of
from penstock.manager.membership import IN_ORDER
from penstock.manager.policies import by_age, by_message_priority, by_turns
from penstock.message import Message
from penstock.store.files import Clock
from penstock.timequeue.groups import ORDERS
from penstock.timequeue.leases import Look

TEND_S = 1.0  # so often, at most, members are looked at for what comes back by itself
VIGILS_MAX = 64  # of receivers that choose: others are forgotten, and ask anew
TURNS_KEPT_MAX = 64  # members: of so many it is known in which order they come after each
FEW = 8  # members that are awake: with more, or where macro queues nest, all are gone over


class Found:
    """What one look brought: messages, or how to sleep until there may be some."""

    __slots__ = ("again", "deliveries", "leaf", "look", "seen", "sleep_s")

    def __init__(self, deliveries: list[Any], seen: int = 0, sleep_s: float = 0.0) -> None:
        self.deliveries = deliveries
        self.seen = seen
        self.sleep_s = sleep_s
        self.again = False
        self.leaf: Leaf | None = None
        self.look: Look | None = None  # what was taken by an event loop, and is not read yet


class Vigil:
    """Those that ask for the same: which members are awake, and when quiet ones have something without telling."""

    def __init__(self, leaves: Iterable[Leaf], version: int) -> None:
        self.version = version
        self.awake = set(leaves)
        self.times: list[tuple[float, int, Leaf]] = []

    def settle(self, leaf: Leaf, nap_s: float, number: int) -> None:
        """It was asked, and has nothing."""
        self.awake.discard(leaf)
        if nap_s < SLEEP_MAX_S:
            heapq.heappush(self.times, (time.monotonic() + nap_s, number, leaf))

    def rouse(self, now_s: float) -> None:
        """Those whose time has come."""
        while self.times and self.times[0][0] <= now_s:
            self.awake.add(heapq.heappop(self.times)[2])

    def nap_s(self, now_s: float) -> float:
        return self.times[0][0] - now_s if self.times else SLEEP_MAX_S


class Receiving:
    """The gets of one macro queue object. For coroutines it is what a ``Consumer`` is for a queue."""

    def __init__(self, name: str, members: Members, clock: Clock, also: Callable[[Group], None]) -> None:
        self._name = name
        self._also = also  # what else is to be done once a second
        self._members = members
        self._clock = clock
        self._vigils: dict[Any, Vigil] = {}
        self._numbers = itertools.count()
        self._tend_at_s = 0.0
        self._version = -1
        self._watched: dict[Path, Leaf | None] = {}
        self.alarm = Alarm(self._listen)

    # ------------------------------------------------------------ blocking

    def receive(self, most: int, wait_s: float | None, lease_us: int | None, asked: Asked | None) -> list[Message]:
        """Up to ``most``, as soon as there is one; none after ``wait_s`` seconds (None: never give up)."""
        deadline = None if wait_s is None or wait_s == 0 else time.monotonic() + wait_s
        left_s = wait_s
        found: list[Message] = []
        while True:
            look = self.look(most - len(found), lease_us, 0 if found else left_s, None, asked)
            if look.deliveries:
                found += look.deliveries
                if len(found) >= most or (asked is not None and asked.group):
                    return found
            elif found:
                return found
            elif left_s == 0:
                self._require_one()
                return []
            else:
                self.sleep(look.seen, look.sleep_s)
            if deadline is not None:
                left_s = max(deadline - time.monotonic(), 0.0)

    def one(self, group: Group, quick: list[Quick], lease_us: int | None) -> Message | None:
        """The next message, where a look at each member is all that it takes; None: ``receive`` finds out why."""
        if self.alarm.is_watching:
            self.alarm.hear()
        now_us = self._clock.wall_us()
        for n in group.turns.get(group.last) or self._turns(group):
            due, receive, own_lease_us, leaf = quick[n]
            if due(now_us) and leaf.gives.error is None:
                try:
                    found = receive(1, 0.0, own_lease_us if lease_us is None else lease_us)
                except QueueClosed:  # by another thread: it is a member no longer
                    return None
                except Misuse:
                    raise
                except (PenstockError, OSError) as error:
                    leaf.gives.begin(leaf.name, "get", error)
                    continue
                if found:
                    group.last = n
                    return found[0]
        return None

    def _turns(self, group: Group) -> list[int]:
        found = by_turns(group.levels, group.last)
        if len(group.nodes) <= TURNS_KEPT_MAX:
            group.turns[group.last] = found
        return found

    def _require_one(self) -> None:
        """Where no member works at all, nobody can say that nothing is due."""
        leaves = self._members.leaves
        errors = [leaf.opening.error or leaf.gives.error for leaf in leaves]
        if leaves and all(errors):
            raise errors[0]  # type: ignore[misc]

    def look(
        self, most: int, lease_us: int | None, left_s: float | None, timed_out: int | None, asked: Asked | None
    ) -> Found:
        """Take what is due; if nothing is, and the caller wants to wait, ask all that are not quiet."""
        group = self._members.current()
        self.alarm.hear()
        seen = self.alarm.count
        vigil = self._vigil(asked)
        now_s = time.monotonic()
        if vigil.times:
            vigil.rouse(now_s)
        if now_s >= self._tend_at_s:
            self.tend(now_s)
        for leaf, share in self._candidates(group, vigil, most, asked):
            found = self._take(leaf, share, lease_us, asked)
            if found:
                return Found(found)
        if left_s == 0:
            return Found([])
        return self._ask_all(vigil, most, lease_us, asked, seen, left_s)

    def _ask_all(
        self, vigil: Vigil, most: int, lease_us: int | None, asked: Asked | None, seen: int, left_s: float | None
    ) -> Found:
        self.watch()
        asked_of: list[tuple[Leaf, float]] = []
        for leaf in sorted(vigil.awake, key=lambda leaf: leaf.place):
            member = leaf.member
            if member is None or not leaf.may_give:
                continue
            try:
                nap_s = member.ask(asked)
            except QueueClosed:
                continue
            except Misuse:
                raise
            except (PenstockError, OSError) as error:
                leaf.gives.begin(leaf.name, "get", error)
                continue
            found = self._take(leaf, most, lease_us, asked)
            if found:
                return Found(found)
            asked_of.append((leaf, nap_s))
        self.alarm.unless_told(seen, lambda: self._settle(vigil, asked_of))
        now_s = time.monotonic()
        nap_s = min(vigil.nap_s(now_s), max(self._tend_at_s - now_s, 0.0))
        return Found([], seen, max(nap_s if left_s is None else min(nap_s, left_s), 0.0))

    def _settle(self, vigil: Vigil, asked_of: list[tuple[Leaf, float]]) -> None:
        for leaf, nap_s in asked_of:
            vigil.settle(leaf, nap_s, next(self._numbers))

    def sleep(self, seen: int, seconds: float) -> bool:
        return self.alarm.sleep(seen, seconds)

    # ------------------------------------------------------------ which member

    def _candidates(self, group: Group, vigil: Vigil, most: int, asked: Asked | None) -> Iterator[tuple[Leaf, int]]:
        """Members that seem to have something, in order, each with how many to take; then those where something may
        come back."""
        now_us = self._clock.wall_us()
        if asked is not None and asked.group is not None:
            yield from ((leaf, most) for leaf in self._by_group(vigil, asked.group))
            return
        seemed = []
        for leaf, share in self._due(group, vigil, most, asked, now_us):
            seemed.append(leaf)
            yield leaf, share
        if group.active:
            for leaf in [leaf for leaf in vigil.awake if leaf not in seemed and leaf.may_give]:
                if self._may_have(leaf, asked):
                    yield leaf, most

    def _may_have(self, leaf: Leaf, asked: Asked | None) -> bool:
        member = leaf.member
        try:
            return member is not None and (member.stirs() or (asked is not None and member.gauge().waiting > 0))
        except QueueClosed:  # it is a member no longer
            return False

    def _by_group(self, vigil: Vigil, which: str) -> list[Leaf]:
        """The members that are awake, by the group of each that comes first."""
        order, by = ORDERS[which], "size" if which == "largest" else "age"
        firsts = []
        for leaf in vigil.awake:
            member = leaf.member
            if member is not None and leaf.may_give:
                with contextlib.suppress(QueueClosed):  # it is a member no longer
                    firsts += [(order(group), leaf) for group in member.queue.groups(by=by, limit=1)]
        return [leaf for _, leaf in sorted(firsts, key=lambda first: first[0])]

    def _due(
        self, group: Group, vigil: Vigil, most: int, asked: Asked | None, now_us: int
    ) -> Iterator[tuple[Leaf, int]]:
        if not group.active:
            return
        policy = group.options.consuming
        share = most
        if policy in IN_ORDER:
            oldest = policy == "oldest"
            heads = [self._head(node, vigil, asked, now_us, oldest) for node in group.nodes]
            order = by_age(heads) if oldest else by_message_priority(heads)
            share = most if len(order) == 1 and not oldest else 1
        elif group.is_flat and len(vigil.awake) <= FEW and len(group.nodes) > FEW:
            awake = sorted((-leaf.priority, leaf.place <= group.last, leaf.place) for leaf in vigil.awake)
            order = [place for _, _, place in awake]
        else:
            order = by_turns(group.levels, group.last)
        for n in order:
            node = group.nodes[n]
            if isinstance(node, Group):
                below = self._due(node, vigil, share, asked, now_us)
            else:
                below = iter([(node, share)] if self._seems_due(node, vigil, now_us) else [])
            for leaf, part in below:
                group.last = n
                yield leaf, max(part // len(group.nodes), 1) if policy == "round-robin" else part

    def _seems_due(self, leaf: Leaf, vigil: Vigil, now_us: int) -> bool:
        member = leaf.member
        try:
            return member is not None and leaf in vigil.awake and leaf.may_give and member.is_due(now_us)
        except QueueClosed:  # it is a member no longer
            return False

    def _head(self, node: Leaf | Group, vigil: Vigil, asked: Asked | None, now_us: int, oldest: bool) -> Any:
        """What a member has for now; of a macro queue, the best of its own."""
        if isinstance(node, Leaf):
            if not self._seems_due(node, vigil, now_us):
                return None
            assert node.member is not None
            try:
                return node.member.head(now_us, asked, oldest=oldest)
            except QueueClosed:
                return None
            except Misuse:
                raise
            except (PenstockError, OSError) as error:
                node.gives.begin(node.name, "get", error)
                return None
        heads = [self._head(each, vigil, asked, now_us, oldest) for each in node.nodes] if node.active else []
        order = by_age(heads) if oldest else by_message_priority(heads)
        return heads[order[0]] if order else None

    def _take(self, leaf: Leaf, most: int, lease_us: int | None, asked: Asked | None) -> list[Message]:
        member = leaf.member
        if member is None:
            return []
        lease = member.lease_us if lease_us is None else lease_us
        try:
            if asked is None and self._members.root.options.consuming == "oldest":
                found = member.take_oldest(lease) or (member.take(most, lease, None) if member.stirs() else [])
            else:
                found = member.take(most, lease, asked)
        except QueueClosed:
            return []
        except Misuse:
            raise
        except (PenstockError, OSError) as error:
            leaf.gives.begin(leaf.name, "get", error)
            return []
        if leaf.gives.error is not None:
            leaf.gives.end(leaf.name)
        return found

    # ------------------------------------------------------------ news

    def _vigil(self, asked: Asked | None) -> Vigil:
        key = None if asked is None else asked.names
        found = self._vigils.get(key)
        if found is None or found.version != self._members.version:
            if len(self._vigils) >= VIGILS_MAX:
                self._vigils = {}
            found = self._vigils[key] = Vigil(self._members.leaves, self._members.version)
        return found

    def watch(self) -> None:
        """The notification files of all members, and of the macro queues above them."""
        version = self._members.version
        if self._version == version and self._watched and self.alarm.watches(len(self._watched)):
            return
        wanted: dict[Path, Leaf | None] = {leaf.member.notice: leaf for leaf in self._members.leaves if leaf.member}
        wanted |= {notice_of(group.path): None for group in self._members.root.groups()}
        self.alarm.unwatch(path for path, leaf in self._watched.items() if wanted.get(path) is not leaf)
        self._watched = wanted
        self.alarm.watch(wanted)
        self._version = version

    def _listen(self, news: set[Path] | None) -> None:
        """These members have something, perhaps; without any known, all."""
        if news is None:
            self._vigils = {}
            return
        leaves = [leaf for path in news if (leaf := self._watched.get(path)) is not None]
        for vigil in list(self._vigils.values()):
            vigil.awake.update(leaves)

    def tend(self, now_s: float) -> None:
        """What comes back by itself, falls due soon, or is gone: a few loads for each member, once a second."""
        self._tend_at_s = now_s + TEND_S
        self._members.lose_gone()
        self._also(self._members.root)
        now_us = self._clock.wall_us()
        for leaf in self._members.leaves:
            with contextlib.suppress(QueueClosed):  # it is a member no longer
                self._tend_one(leaf, now_us)

    def _tend_one(self, leaf: Leaf, now_us: int) -> None:
        member = leaf.member
        if member is None:
            return
        if member.stirs() or member.is_due(now_us):
            for vigil in list(self._vigils.values()):
                vigil.awake.add(leaf)
        elif (soon_s := member.soon_s(now_us)) < SLEEP_MAX_S:
            for vigil in list(self._vigils.values()):
                if leaf not in vigil.awake:
                    vigil.settle(leaf, soon_s, next(self._numbers))

    # ------------------------------------------------------------ for coroutines, as a Consumer has it

    def look_at_once(self, most: int, lease_us: int | None, asked: Asked | None) -> Found:
        """For an event loop, which must not wait: ``QueueBusy`` if it would have to, and a thread looks instead."""
        if self._members.is_stale() or (asked is not None and (asked.group or self._policy in IN_ORDER)):
            raise QueueBusy(self._name, waited_s=0)
        if self._policy == "oldest" or time.monotonic() >= self._tend_at_s:
            raise QueueBusy(self._name, waited_s=0)
        self.alarm.hear()
        vigil = self._vigil(asked)
        for leaf, share in self._candidates(self._members.root, vigil, most, asked):
            assert leaf.member is not None
            lease = leaf.member.lease_us if lease_us is None else lease_us
            look = leaf.member.look_at_once(share, lease, asked)
            if look.deliveries or look.again:
                found = Found(look.deliveries)
                found.leaf, found.look, found.again = leaf, look, look.again
                return found
        return Found([])

    @property
    def _policy(self) -> str:
        return self._members.root.options.consuming

    def messages(self, found: Found) -> list[Message]:
        if found.look is None:
            return found.deliveries
        return list(self._consumer_of(found).messages(found.look))

    def must_read_files(self, found: Found) -> bool:
        return found.look is not None and bool(self._consumer_of(found).must_read_files(found.look))

    def give_back(self, found: Found) -> None:
        if found.look is not None:
            self._consumer_of(found).give_back(found.look)

    def _consumer_of(self, found: Found) -> Any:
        assert found.leaf is not None and found.leaf.member is not None
        return found.leaf.member.queue._consumer

    def has_trees(self) -> bool:
        return True  # those of members that have none are walked over

    def stand_down(self, seen: int, chooses: bool = False) -> None:
        """Nobody is counted: whoever was told for nothing costs nothing."""

    def after_fork_in_child(self) -> None:
        self.alarm.after_fork_in_child()
        self._vigils = {}
        self._watched = {}
        self._version = -1
