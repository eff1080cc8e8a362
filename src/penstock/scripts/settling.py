"""Owns how long a message is known as done: until it is gone from its queue for good. Acknowledged is not enough, since
a power loss may bring it back until the queue's next index sync. Never acknowledges anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from penstock.errors import PenstockError
from penstock.scripts.store import Done, Store
from penstock.store import layout as L
from penstock.timequeue import TimeQueue
from penstock.timequeue.clients import Client

LOOKED_AT_ONCE = 500  # messages in one turn at a queue's lock
SETTLED_MAX = 5000  # of a queue, in one go
THERE = (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)


def settle(store: Store, slot: int, queues: Iterable[TimeQueue]) -> int:
    """Forget those messages of a slot that are gone from these queues; how many."""
    forgotten: list[str] = []
    for queue in queues:
        gone = _gone(queue, store.done_by(slot, queue._mine().options.uuid, SETTLED_MAX))
        if gone:
            queue.sync_index()  # gone for good: not even a power loss brings them back
            _bury(queue, gone)
            forgotten += [each.id for each in gone]
    if forgotten:
        store.forget_done(forgotten)
    return len(forgotten)


def _gone(queue: TimeQueue, done: list[Done]) -> list[Done]:
    client = queue._mine()
    found: list[Done] = []
    for start in range(0, len(done), LOOKED_AT_ONCE):
        found += client.turn(_look, client, done[start : start + LOOKED_AT_ONCE])
    return found


def _look(client: Client, done: list[Done]) -> list[Done]:
    kernel = client.kernel
    return [
        each
        for each in done
        if each.place >= kernel.slots
        or kernel.number(each.place) != each.number
        or kernel.state(each.place) not in THERE
    ]


def _bury(queue: TimeQueue, gone: list[Done]) -> None:
    """A message whose worker died between doing it and acknowledging it, at its last attempt, has become a dead letter.
    It is done: nobody is to bring it back."""
    letters = queue.dead_letters()
    if letters is None or not letters.qsize():
        return
    ids = {each.id for each in gone}
    for letter in letters.browse():
        if letter.id in ids:
            with contextlib.suppress(PenstockError):
                letters.cancel(letter.id)
