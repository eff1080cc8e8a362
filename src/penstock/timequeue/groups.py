"""Owns groups: the waiting messages of each key, counted, and taken from the largest or the oldest of them.

The trees by key are looked through in short turns at the lock; the text of a key is in the records, and is read without
it. Where there are no trees, all waiting messages are looked at. Never changes anything but by receiving.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable

import msgspec

from penstock.codec import decode_meta
from penstock.errors import Misuse
from penstock.message import Message
from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.classes import Choice
from penstock.store.classes import Group as Counted
from penstock.store.gather import GATHERED, REFERENCE_WORDS, Gather
from penstock.timequeue.browsing import browse
from penstock.timequeue.clients import Client
from penstock.timequeue.leases import Consumer, Wanted, wanted
from penstock.timequeue.walking import NOTHING, receive_walking

BUCKETS_A_TURN = 4096  # of the table of classes: most of an empty one is a look at a word each
GROUPS_A_TURN_MAX = 256
LOOKED_MAX = 8  # times that a group is looked at whose message was gone when it was to be read
TRIES_MAX = 8  # groups that others emptied before we came


class Group(msgspec.Struct, frozen=True):
    """The waiting messages of one key."""

    key: str
    waiting: int
    due: int  # of these, those whose time has come; none where somebody else has to be done first
    oldest_at: float  # delivery time of the one that comes first by it, in epoch seconds
    busy: bool = False  # keys are exclusive and somebody has one of its messages


def _by_size(group: Counted | Group) -> tuple[int, float]:
    return -group.due, _age(group)


def _by_age(group: Counted | Group) -> tuple[float, int]:
    return _age(group), -group.due


def _age(group: Counted | Group) -> float:
    return group.oldest_at if isinstance(group, Group) else group.oldest_us


Order = Callable[[Counted | Group], tuple[float, float]]

ORDERS: dict[str, Order] = {"largest": _by_size, "oldest": _by_age}


SORTS: dict[str | None, Callable[[Group], tuple[float, float]] | None] = {
    "size": lambda group: (-group.waiting, group.oldest_at),
    "age": lambda group: (group.oldest_at, -group.waiting),
    None: None,
}


def check_sort(by: str | None) -> None:
    """What ``groups(by=)`` names."""
    if by not in SORTS:
        raise Misuse(f"by must be size, age or None, not {by!r}")


def check_order(group: str, type: object, key: object) -> Order:
    """The order that ``get_many(group=)`` names."""
    if group not in ORDERS:
        raise Misuse(f"group must be one of {', '.join(ORDERS)}, not {group!r}")
    if type is not None or key is not None:
        raise Misuse("give group, or type and key")
    return ORDERS[group]


def groups(client: Client, consumer: Consumer, *, by: str | None, limit: int | None) -> list[Group]:
    found = _named(client) if client.kernel.trees_at else _browsed(client, consumer)
    order = SORTS[by]
    if order is not None:
        found.sort(key=order)
    return found if limit is None else found[:limit]


# ---------------------------------------------------------------- by the trees


def _counted(client: Client) -> Iterable[list[Counted]]:
    """All groups, some in each turn."""
    buckets = client.kernel.get(L.H_CLASSES)
    bucket = key = 0
    while bucket < buckets:
        now_us = client.clock.wall_us()
        found = client.turn(client.kernel.classes.groups, bucket, BUCKETS_A_TURN, key, GROUPS_A_TURN_MAX, now_us)
        if len(found) == GROUPS_A_TURN_MAX:
            key = found[-1].key
            bucket = key & (buckets - 1)
        else:
            key = 0
            bucket += BUCKETS_A_TURN
        yield [group for group in found if group.waiting]


def _named(client: Client) -> list[Group]:
    found: list[Group] = []
    for some in _counted(client):
        left = some
        for _ in range(LOOKED_MAX):
            if not left:
                break
            texts = _texts(client, left)
            found += [_group(group, text) for group, text in zip(left, texts, strict=True) if text is not None]
            missed = [group.key for group, text in zip(left, texts, strict=True) if text is None]
            left = client.turn(_measure, client, missed) if missed else []
    return found


def _measure(client: Client, keys: list[int]) -> list[Counted]:
    now_us = client.clock.wall_us()
    return [group for key in keys if (group := client.kernel.classes.measure(key, now_us)).waiting]


def _group(group: Counted, text: str) -> Group:
    return Group(text, group.waiting, group.due, group.oldest_us / 1e6, group.busy)


def _texts(client: Client, counted: list[Counted]) -> list[str | None]:
    """The key of one message of each; None where that is gone by now."""
    rows: array[int] = array("Q", bytes(L.WORD_BYTES * REFERENCE_WORDS * len(counted)))
    client.turn(_fill, client, rows, counted)
    gather = Gather(client.files.mappings(), client.signature)
    try:
        read = gather.collect(rows, 0, len(counted), False)
    finally:
        gather.close()
    return [decode_meta(read.metas[i]).k if read.faults[i] == GATHERED else None for i in range(len(counted))]


def _fill(client: Client, rows: array[int], counted: list[Counted]) -> None:
    claiming = Claiming(client.kernel)
    for index, group in enumerate(counted):
        if client.kernel.classes.trees.key_of(group.slot) == group.key:
            claiming.row(rows, index, group.slot)


# ---------------------------------------------------------------- without trees


def _browsed(client: Client, consumer: Consumer) -> list[Group]:
    now_us = client.clock.wall_us()
    counts: dict[str, tuple[int, int, int]] = {}
    for message in browse(client, consumer, state="waiting", limit=None):
        if message.key is not None:
            waiting, due, oldest_us = counts.get(message.key, (0, 0, message.deliver_us))
            is_due = message.deliver_us <= now_us
            counts[message.key] = waiting + 1, due + is_due, min(oldest_us, message.deliver_us)
    return [Group(key, waiting, due, us / 1e6) for key, (waiting, due, us) in counts.items()]


# ---------------------------------------------------------------- receiving


def receive(client: Client, consumer: Consumer, order: Order, most: int, wait_s: float, lease_us: int) -> list[Message]:
    """Up to ``most`` messages of the group that comes first, as soon as there is one; none after ``wait_s`` seconds."""
    deadline = time.monotonic() + wait_s
    left_s = wait_s
    timed_out: int | None = None
    while True:
        look = consumer.look(1, lease_us, left_s, timed_out, NOTHING)  # armed before the groups are looked at
        timed_out = None
        if look.again:
            continue
        seen = None if left_s == 0 else look.seen
        for _ in range(TRIES_MAX):
            first, next_us = _first(client, consumer, order)
            if first is None:
                break
            found = _take(client, consumer, first, most, lease_us)
            if found:
                if seen is not None:
                    client.turn(client.kernel.sleepers.disarm_choosing, seen)
                return found
        if left_s == 0:
            return []
        nap_s = look.sleep_s
        if next_us:
            nap_s = min(nap_s, max(next_us - client.clock.wall_us(), 0) / 1e6)
        timed_out = None if client.receivers.sleep(look.seen, nap_s) else look.seen
        left_s = max(deadline - time.monotonic(), 0.0)


def _first(client: Client, consumer: Consumer, order: Order) -> tuple[Counted | Group | None, int]:
    """Of the groups that have something due the first; and when the next of the others has, 0 if nobody knows."""
    first: Counted | Group | None = None
    next_us = 0
    now_us = client.clock.wall_us()
    parts: Iterable[Iterable[Counted | Group]] = (
        _counted(client) if client.kernel.trees_at else [_browsed(client, consumer)]
    )
    for part in parts:
        for group in part:
            if group.due:
                first = group if first is None else min(first, group, key=order)
            else:
                oldest_us = int(group.oldest_at * 1e6) if isinstance(group, Group) else group.oldest_us
                if oldest_us > now_us and (next_us == 0 or oldest_us < next_us):
                    next_us = oldest_us
    return first, next_us


def _take(client: Client, consumer: Consumer, group: Counted | Group, most: int, lease_us: int) -> list[Message]:
    if isinstance(group, Group):
        return receive_walking(client, consumer, wanted((), (group.key,), client.signature), most, 0.0, lease_us)
    found = consumer.receive(most, 0.0, lease_us, Wanted((), (), Choice([], [group.key])))
    for message in found[1:]:
        if message.key != found[0].key:  # the hash of another key is the same
            message.release()
    return [message for message in found if message.key == found[0].key]
