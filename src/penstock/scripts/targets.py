"""Owns the queues that follow-ups go to: found by name in the root, opened once, and of a macro queue the member or
members that its policy chooses. Says before anything is stored whether a message can be put there at all. Never puts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.codec import encode_meta
from penstock.errors import BodyTooLarge, Misuse, QueueInactive
from penstock.manager import MacroQueue, QueueManager
from penstock.manager.copies import Kept, draft_of, kept
from penstock.manager.managed import ManagedQueue
from penstock.scripts.context import FollowUp
from penstock.scripts.store import Post, Posted
from penstock.store.files import Clock
from penstock.timequeue import TimeQueue
from penstock.timequeue.models import ACKNOWLEDGED, TWO_WAY

SHARE = 4  # of a queue's slots and bytes is put at once at most: it may have other messages
MESSAGES_MAX = 100
MARGIN_BYTES = 1024  # what a record says beside body, type, key and headers


class Targets:
    """The queues of one worker's follow-ups."""

    def __init__(self, manager: QueueManager, input: str, clock: Clock) -> None:
        self._manager = manager
        self._input = input
        self._clock = clock
        self._opened: dict[str, ManagedQueue] = {}

    def open(self, name: str) -> ManagedQueue:
        found = self._opened.get(name)
        if found is None or found.closed:
            found = self._opened[name] = self._manager.open(name, relationship="producer", clock=self._clock)
        return found

    def lose(self, name: str) -> None:
        """It is to be opened anew: it failed, and another one may have its name."""
        found = self._opened.pop(name, None)
        if found is not None:
            found.close()

    def close(self) -> None:
        for name in list(self._opened):
            self.lose(name)

    # ------------------------------------------------------------ where to

    def posts(self, follow_up: FollowUp, now_us: int) -> list[Post]:
        """A follow-up as it is to be stored, for each queue that it goes to; an error if one can never take it."""
        name = self._input if follow_up.to is None else follow_up.to
        target = self.open(name)
        target._gate.check("put_once")
        message = kept(follow_up.draft, now_us)
        posts: list[Post] = []
        for queue, via in self._chosen(target.called, target, follow_up.draft.dedup_id):
            self._check(queue, message)
            posts.append((queue, via, Posted(message, follow_up.timer)))
        return posts

    def _chosen(self, name: str, target: ManagedQueue, dedup_id: str | None) -> list[tuple[str, str | None]]:
        """The queues that one goes to, and the macro queue if another member will do. By the name that the manager
        calls it, never its UUID, since a row that waits holds back those of its name. One with a dedup id waits for
        the member where it meets what was put of its id."""
        if not isinstance(target._inner, MacroQueue):
            return [(name, None)]
        macro = target._inner
        route = next(macro._sending.routes(macro._mine(), dedup_id), None)
        if route is None:
            raise QueueInactive(name, call="a follow-up: no member takes messages now, and it")
        return [
            (leaf.name, None if route.copies is not None or dedup_id is not None else name) for leaf in route.leaves
        ]

    def others(self, macro: str, but: str) -> Iterator[str]:
        """Members that a message may go to instead of this one."""
        inner: Any = self.open(macro)._inner
        for route in inner._sending.routes(inner._mine(), None):
            if route.copies is None and route.leaves[0].name != but:
                yield route.leaves[0].name

    def _check(self, name: str, message: Kept) -> None:
        target = self.open(name)
        if target._gate.model in (ACKNOWLEDGED, TWO_WAY):
            raise Misuse(f"{name}: a follow-up waits for no answer, as the queue's model {target._gate.model} wants")
        queue = plain(target)
        queue._entries([draft_of(message)], {})  # every option is one that it takes
        said = len(encode_meta(*(message.options.get(name) for name in ("type", "key", "headers"))))
        limit = queue._mine().options.data_bytes
        if len(message.data) + said + MARGIN_BYTES > limit:
            raise BodyTooLarge(queue.name, body_bytes=len(message.data), limit_bytes=limit)

    def uuid(self, name: str) -> str:
        return plain(self.open(name))._mine().options.uuid

    def room(self, name: str) -> tuple[int, int]:
        """How many messages and bytes are put into a queue at once."""
        options = plain(self.open(name))._mine().options
        return max(min(options.slots // SHARE, MESSAGES_MAX), 1), options.data_bytes // SHARE


def plain(managed: ManagedQueue) -> TimeQueue:
    """The queue directory itself, which a macro queue has none of."""
    inner: Any = managed._inner
    if not isinstance(inner, TimeQueue):
        raise Misuse(f"{managed.called}: it has become a macro queue; start the worker again")
    return inner
