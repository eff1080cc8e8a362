"""Owns how long a message is known as done: until it is gone from its queue for good. Acknowledged is not enough, since
a power loss may bring it back until the queue's next index sync. Never acknowledges anything.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from penstock.errors import PenstockError
from penstock.scripts.store import Done, Store
from penstock.timequeue import TimeQueue, administration
from penstock.timequeue.clients import Client

LOOKED_AT_ONCE = 500  # messages in one turn at a queue's lock
SETTLED_MAX = 5000  # of a queue, in one go

log = logging.getLogger("penstock")


def settle(store: Store, slot: int, queues: Iterable[TimeQueue], acknowledged: Container[str] = ()) -> list[str]:
    """Forget those messages of a slot that are gone from these queues; their ids. ``acknowledged`` are those that are
    known to have gone the usual way."""
    forgotten: list[str] = []
    queues = list(queues)
    for queue in queues:
        gone = _gone(queue, store.done_by(slot, queue._mine().options.uuid, SETTLED_MAX))
        if gone:
            queue.sync_index()  # gone for good: not even a power loss brings them back
            odd = {each.id for each in gone if each.id not in acknowledged}
            back = _looked_for(queue, odd, queues) if odd else set()
            forgotten += [each.id for each in gone if each.id not in back]
    if forgotten:
        store.forget_done(forgotten)
    return forgotten


def _gone(queue: TimeQueue, done: list[Done]) -> list[Done]:
    client = queue._mine()
    found: list[Done] = []
    for start in range(0, len(done), LOOKED_AT_ONCE):
        found += client.turn(_look, client, done[start : start + LOOKED_AT_ONCE])
    return found


def _look(client: Client, done: list[Done]) -> list[Done]:
    return [each for each in done if not administration.is_live(client, each.place, each.number)]


def _looked_for(queue: TimeQueue, odd: set[str], queues: list[TimeQueue]) -> set[str]:
    try:
        return _found_again(queue, odd, queues)
    except (PenstockError, OSError) as error:
        log.warning("%s: whether %d that are done are dead letters is not known: %s", queue.name, len(odd), error)
        return odd


def _found_again(queue: TimeQueue, odd: set[str], queues: list[TimeQueue]) -> set[str]:
    """A message whose worker died between doing it and acknowledging it, at its last attempt, has become a dead letter.
    It is done: there it goes. Those that somebody has brought back already are known as done until they come."""
    letters = queue.dead_letters()
    if letters is not None and letters.qsize():
        for letter in letters.browse():
            if letter.id in odd:
                letters.cancel(letter.id)
    found: set[str] = set()
    for each in queues:  # it may have been moved to another one of the input
        if each._has_moved_in():
            each.sync_index()  # what is gone from there is gone for good
            found |= {message.id for message in each.browse(state="all") if message.id in odd}
    return found
