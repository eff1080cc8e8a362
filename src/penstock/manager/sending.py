"""Owns putting messages into a macro queue: which members a message goes to, what happens with those that are full or
do not work, and waiting for room in any. How a message gets into several at once is ``copies.py``'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeVar

from penstock.errors import BatchTooLarge, BodyTooLarge, Misuse, PenstockError, QueueClosed, QueueFull, QueueInactive
from penstock.manager.alarm import Alarm
from penstock.manager.members import Group, Leaf, Members
from penstock.manager.membership import COPY_TO_ALL
from penstock.manager.policies import fastest, home_of, rotated, shortest
from penstock.timequeue.administration import Gauge

ROOM_S = 1.0  # a sender that waits looks again after so long, without any news

Result = TypeVar("Result")
NO_GAUGE = Gauge(1 << 62, 0, 1 << 62)  # of a member that takes nothing


class Route(NamedTuple):
    """Where a message goes: one member, or with ``copies`` all of these, or none."""

    leaves: tuple[Leaf, ...]
    copies: Group | None = None


class Refusals:
    """Why members did not take a message: what to tell when none did."""

    def __init__(self) -> None:
        self.full: QueueFull | None = None
        self.other: Exception | None = None
        self.tried = False

    @property
    def may_pass(self) -> bool:
        """Whether it may be taken later: one that is full has room again, one comes, or is activated."""
        return self.full is not None or not self.tried

    def tell(self, name: str, leaves: Sequence[Leaf]) -> NoReturn:
        """A full one may take it later; another error is told only if there is none."""
        full = self.full
        if full is not None:
            raise QueueFull(name, which=full.which, size=full.size, wanted=full.wanted) from full
        failed = self.other or next((leaf.error for leaf in leaves if leaf.active and leaf.error is not None), None)
        if failed is not None:
            raise failed
        if not leaves:
            raise Misuse(f"{name}: a macro queue without members: nothing can be put into it")
        raise QueueInactive(name, call="put into any member")


class Sending:
    """The puts of one macro queue object."""

    def __init__(self, name: str, members: Members, alarm: Alarm, watch: Callable[[], None]) -> None:
        self._name = name
        self._members = members
        self._alarm = alarm
        self._watch = watch

    def put(
        self,
        work: Callable[[Route], Result],
        timeout_s: float | None,
        dedup_id: str | None,
        again: Callable[[], bool] | None = None,
    ) -> Result:
        """``work`` with the first route that takes it; ``QueueFull`` if all are full, for ``timeout_s`` seconds if that
        is given. ``again`` says whether it may be tried once more."""
        refusals = Refusals()
        done = self._try(work, dedup_id, again, refusals)
        if done is not None:
            return done
        if timeout_s is None or not refusals.may_pass:
            refusals.tell(self._name, self._members.leaves)
        return self._put_when_room(work, timeout_s, dedup_id, again)

    def _put_when_room(
        self,
        work: Callable[[Route], Result],
        timeout_s: float,
        dedup_id: str | None,
        again: Callable[[], bool] | None,
    ) -> Result:
        deadline = time.monotonic() + timeout_s
        while True:
            self._members.current()
            self._watch()
            self._alarm.hear()
            seen = self._alarm.count
            # Asked before it tries again: whoever makes room after this tells, whoever did before is seen.
            for leaf in self._members.leaves:
                self._ask_for_room(leaf)
            refusals = Refusals()
            done = self._try(work, dedup_id, again, refusals)
            if done is not None:
                return done
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not refusals.may_pass or (again is not None and not again()):
                refusals.tell(self._name, self._members.leaves)
            self._alarm.sleep(seen, min(left_s, ROOM_S))

    def _ask_for_room(self, leaf: Leaf) -> None:
        if leaf.member is None or not leaf.may_take:
            return
        try:
            leaf.member.ask_for_room()
        except QueueClosed:  # by another thread: it is a member no longer
            pass
        except Misuse:
            raise
        except (PenstockError, OSError) as error:
            leaf.takes.begin(leaf.name, "put", error)

    def _try(
        self,
        work: Callable[[Route], Result],
        dedup_id: str | None,
        again: Callable[[], bool] | None,
        refusals: Refusals,
    ) -> Result | None:
        for route in self.routes(self._members.current(), dedup_id):
            done = self._attempt(route, work, refusals)
            if done is not None:
                return done
            if again is not None and not again():
                break
        return None

    def _attempt(self, route: Route, work: Callable[[Route], Result], refusals: Refusals) -> Result | None:
        """None if this route does not take it; what is the caller's own fault is told at once."""
        first = route.leaves[0]
        refusals.tried = True
        try:
            done = work(route)
        except QueueFull as error:
            refusals.full = error
            return None
        except (BodyTooLarge, BatchTooLarge) as error:  # for this one
            refusals.other = error
            return None
        except QueueClosed as error:  # by another thread: it is a member no longer
            refusals.other = error
            return None
        except Misuse:
            raise
        except (PenstockError, OSError) as error:
            if route.copies is not None:
                raise
            first.takes.begin(first.name, "put", error)
            refusals.other = error
            return None
        if first.takes.error is not None:
            first.takes.end(first.name)
        return done

    # ------------------------------------------------------------ where to

    def routes(self, group: Group, dedup_id: str | None) -> Iterator[Route]:
        """The ways that a message may go, the first choice first. One with a dedup id has one way: there it meets what
        was put of its id."""
        if not group.active:
            return
        if group.options.producing == COPY_TO_ALL:
            if group.nodes:
                yield Route(tuple(self._copied(group)), group)
            return
        for n in self._order(group, dedup_id):
            node = group.nodes[n]
            found = False
            for route in [Route((node,))] if isinstance(node, Leaf) else self.routes(node, dedup_id):
                if route.copies is None and not route.leaves[0].may_take:
                    continue
                _note(group, n)
                found = True
                yield route
            if found and dedup_id is not None:
                return

    def _copied(self, group: Group) -> Iterator[Leaf]:
        """The queues that a copy goes to. All or none: one that does not take any is an error for all."""
        for node in group.nodes:
            if isinstance(node, Group) and node.options.producing == COPY_TO_ALL and node.active:
                yield from self._copied(node)
            elif isinstance(node, Group):
                route = next(iter(self.routes(node, None)), None)
                if route is None:
                    raise QueueInactive(node.name, call="a copy")
                yield from route.leaves
            elif not node.active:
                raise QueueInactive(node.name, call="a copy")
            elif node.member is None:
                raise node.opening.error or QueueInactive(node.name, call="a copy")
            else:
                yield node

    def _order(self, group: Group, dedup_id: str | None) -> list[int] | range:
        if dedup_id is not None:
            return home_of(dedup_id, [node.name for node in group.nodes])
        policy = group.options.producing
        if policy == "first-available":
            return range(len(group.nodes))
        if policy == "round-robin":
            return rotated(len(group.nodes), group.next)
        gauges = [self._gauge(node) for node in group.nodes]
        return shortest(gauges) if policy == "shortest" else fastest(gauges, group.elsewhere)

    def _gauge(self, node: Leaf | Group) -> Gauge:
        """Of a macro queue, that of the member that has the least to do."""
        if isinstance(node, Leaf):
            member = node.member
            try:
                return member.gauge() if member is not None and node.may_take else NO_GAUGE
            except QueueClosed:  # it is a member no longer
                return NO_GAUGE
        below = [self._gauge(each) for each in node.nodes] if node.active else []
        return min(below, key=lambda gauge: gauge.waiting + gauge.pending, default=NO_GAUGE)


def _note(group: Group, n: int) -> None:
    """It is tried now: what policies that look back need to know."""
    group.next = n + 1
    if group.options.producing == "fastest":
        group.elsewhere = [count + 1 for count in group.elsewhere]
        group.elsewhere[n] = 0
