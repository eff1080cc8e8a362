"""Owns what a macro queue needs of a member that is a queue directory: a few words of its kernel, read without the
lock, and turns at it. Never decides which member is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.manager.members import Asked
from penstock.manager.policies import Head
from penstock.message import Message
from penstock.store import layout as L
from penstock.timequeue import TimeQueue
from penstock.timequeue.administration import Gauge, gauge
from penstock.timequeue.clients import Client
from penstock.timequeue.leases import Look, Wanted, wanted
from penstock.timequeue.notify import sleep_s
from penstock.timequeue.walking import receive_walking

ASKED_MAX = 256  # types and keys that are remembered
UNSETTLED = (L.H_PENDING, L.H_FILLING, L.H_INCOMING, L.H_JOURNAL_COUNT, L.H_PUBLISHER)


class LocalMember:
    """A queue directory of this machine."""

    def __init__(self, queue: TimeQueue) -> None:
        self.queue = queue
        self.notice: Path = queue._mine().files.wakeup_path
        self.lease_us = queue._lease_us(None)
        self._wanted: dict[tuple[object, ...], Wanted] = {}

    # ------------------------------------------------------------ hints, without the lock

    def gauge(self) -> Gauge:
        return gauge(self.queue._mine())

    def is_due(self, now_us: int) -> bool:
        return self.queue._mine().kernel.due(now_us) != 0

    def quick(self) -> tuple[Callable[[int], int], Callable[[int, float, int], list[Message]]]:
        return self.queue._mine().kernel.due, self.queue._consumer.receive

    def stirs(self) -> bool:
        get = self.queue._mine().kernel.get
        return any(get(word) for word in UNSETTLED)

    def soon_s(self, now_us: int) -> float:
        client = self.queue._mine()
        order = client.kernel.order
        return sleep_s(
            now_us=now_us,
            boot_us=client.clock.boot_us(),
            next_due_us=order.next_due_us(),
            next_lease_us=order.next_lease_us(),
            left_s=None,
        )

    def head(self, now_us: int, asked: Asked | None, *, oldest: bool) -> Head | None:
        client = self.queue._mine()
        if asked is not None and asked.group is None and client.kernel.trees_at:
            return client.turn(_head_of_class, client, self._choice(asked), now_us)
        kernel = client.kernel
        slot = kernel.order.oldest_due(now_us) if oldest else kernel.due(now_us)
        if slot == 0:
            return None
        return Head(kernel.field(slot, L.S_INFO) & 0xF, kernel.field(slot, L.S_DELIVER_US))

    # ------------------------------------------------------------ turns

    def take(self, most: int, lease_us: int, asked: Asked | None) -> list[Message]:
        client = self.queue._mine()
        consumer = self.queue._consumer
        if asked is None:
            return consumer.receive(most, 0.0, lease_us, None)
        if asked.group is not None:
            return self.queue.get_many(most, lease=lease_us / 1e6, group=asked.group)
        if not client.kernel.trees_at:
            return receive_walking(client, consumer, self._choice(asked), most, 0.0, lease_us)
        return consumer.receive(most, 0.0, lease_us, self._choice(asked))

    def take_oldest(self, lease_us: int) -> list[Message]:
        client = self.queue._mine()
        look = client.turn(_take_oldest, client, lease_us)
        return self.queue._consumer.messages(look) if look.deliveries else []

    def look_at_once(self, most: int, lease_us: int, asked: Asked | None) -> Look:
        self.queue._mine()
        return self.queue._consumer.look_at_once(most, lease_us, None if asked is None else self._choice(asked))

    def ask(self, asked: Asked | None) -> float:
        client = self.queue._mine()
        return client.turn(_ask, client, asked is not None)

    def ask_for_room(self) -> None:
        client = self.queue._mine()
        client.turn(_ask_for_room, client)

    def _choice(self, asked: Asked) -> Wanted:
        found = self._wanted.get(asked.names)
        if found is None:
            if len(self._wanted) >= ASKED_MAX:
                self._wanted.clear()
            found = self._wanted[asked.names] = wanted(asked.types, asked.keys, self.queue._mine().signature)
        return found

    # ------------------------------------------------------------ the queue as a whole

    def is_there(self) -> bool:
        return self.queue._mine().files.is_current()

    def holds(self) -> int:
        client = self.queue._mine()
        return client.table.word(client.index, L.C_COUNT)

    def close(self) -> None:
        self.queue.close()


def _ask(client: Client, chooses: bool) -> float:
    """Whoever has news after this turn changes the file; what is due already, the caller finds."""
    kernel = client.kernel
    kernel.sleepers.watch(chooses)
    now_us = client.clock.wall_us()
    due_us = kernel.order.next_due_us()
    if due_us <= now_us:  # the caller takes it, or does not want it: then the next one may be for it
        due_us = _next_after(client, now_us) if chooses else 0
    return sleep_s(
        now_us=now_us,
        boot_us=client.clock.boot_us(),
        next_due_us=due_us,
        next_lease_us=kernel.order.next_lease_us(),
        left_s=None,
    )


def _next_after(client: Client, now_us: int) -> int:
    """When the first of those falls due that are not due now; 0: none does."""
    order = client.kernel.order
    timed = [which for which in range(L.LIST_TIMED, L.LIST_LEASES) if order.count(which)]
    slots = [order.after(which, now_us, L.MASK48) for which in timed]
    return min((client.kernel.field(slot, L.S_DELIVER_US) for slot in slots if slot), default=0)


def _take_oldest(client: Client, lease_us: int) -> Look:
    kernel = client.kernel
    now_us, boot_us = client.clock.wall_us(), client.clock.boot_us()
    slot = kernel.order.oldest_due(now_us)
    deliveries = []
    if slot:
        kernel.claim(slot, now_us, boot_us + lease_us, client.index, client.owner)
        deliveries = [kernel.delivery(slot)]
    return Look(deliveries, now_us, lease_us, 0, 0.0, False)


def _ask_for_room(client: Client) -> None:
    client.kernel.sleepers.watch_room()
    client.return_from_dead()  # a dead producer's room comes back when somebody looks


def _head_of_class(client: Client, choice: Wanted, now_us: int) -> Head | None:
    kernel = client.kernel
    slot = kernel.classes.choose(choice.choice, now_us)
    if slot == 0:
        return None
    return Head(kernel.field(slot, L.S_INFO) & 0xF, kernel.field(slot, L.S_DELIVER_US))
