"""Owns looking at messages without taking them: short turns at the lock, each continuing where the last one ended."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import QueueClosed
from penstock.message import PENDING, WAITING, Message
from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.kernel import Delivery
from penstock.timequeue.clients import Client
from penstock.timequeue.held import Held
from penstock.timequeue.leases import Consumer

LOOKED_A_TURN_MAX = 256

Place = tuple[int, int]  # key and number of the last one seen on a list


def browse(client: Client, consumer: Consumer, *, state: str, limit: int | None, skip: int = 0) -> Iterator[Message]:
    """``skip``: so many are passed over first, without being read."""
    left = -1 if limit is None else limit
    behind = Skipped(skip)
    lists: list[tuple[int, ...]] = []
    if state in ("waiting", "all"):
        lists += [(L.LIST_READY + p, L.LIST_TIMED + p) for p in range(L.PRIORITIES - 1, -1, -1)]
    if state in ("pending", "all"):
        lists.append((L.LIST_LEASES,))
    for whiches in lists:
        places: dict[int, Place] = dict.fromkeys(whiches, (0, 0))
        while left != 0:
            most = LOOKED_A_TURN_MAX if left < 0 else min(left + behind.left, LOOKED_A_TURN_MAX)
            found = client.turn(_look, client, places, most)
            for delivery, attempt_us, lease_us, owner in found:
                if behind.one():
                    continue
                if client.closed:
                    raise QueueClosed(f"{client.name}: this queue object was closed while it was browsed")
                kind = PENDING if owner else WAITING
                message = consumer.read(delivery, attempt_us, lease_us, owner, kind)
                if message is not None:
                    left -= 1
                    yield message
            if not found:
                break
    if state in ("waiting", "all"):
        for message in _browse_held(client, consumer, behind):
            if left == 0:
                return
            left -= 1
            yield message
    if state in ("pending", "all"):
        yield from _browse_claims(client, consumer, left, behind)


class Skipped:
    """Messages that are passed over, until so many were."""

    def __init__(self, left: int) -> None:
        self.left = left

    def one(self) -> bool:
        """Whether the next message is one of them."""
        if self.left == 0:
            return False
        self.left -= 1
        return True


def _browse_held(client: Client, consumer: Consumer, behind: Skipped) -> Iterator[Message]:
    """Messages that wait for others of their exclusive key, key by key."""
    held = Held(client.kernel)
    while held.more:
        for delivery, attempt_us in client.turn(_look_at_held, client, held):
            if behind.one():
                continue
            if client.closed:
                raise QueueClosed(f"{client.name}: this queue object was closed while it was browsed")
            message = consumer.read(delivery, attempt_us, 0, 0, WAITING)
            if message is not None:
                yield message


def _look_at_held(client: Client, held: Held) -> list[tuple[Delivery, int]]:
    kernel = client.kernel
    return [(kernel.delivery(slot), kernel.field(slot, L.S_ATTEMPT_US)) for slot in held.some(LOOKED_A_TURN_MAX)]


def _browse_claims(client: Client, consumer: Consumer, left: int, behind: Skipped) -> Iterator[Message]:
    """Claimed messages, receiver by receiver: pending without a lease."""
    claiming = Claiming(client.kernel)
    for entry in range(L.RECEIVERS):
        place = (0, 0, 0)
        while left != 0 and claiming.word(entry, L.N_COUNT):
            found = client.turn(_look_at_claims, claiming, entry, place)
            if not found:
                break
            for delivery, attempt_us, claim in found:
                place = (claim, delivery.slot, delivery.number)
                if behind.one():
                    continue
                if client.closed:
                    raise QueueClosed(f"{client.name}: this queue object was closed while it was browsed")
                message = consumer.read(delivery, attempt_us, 0, claiming.owner(entry), PENDING)
                if message is not None and left != 0:
                    left -= 1
                    yield message


def _look_at_claims(claiming: Claiming, entry: int, place: tuple[int, int, int]) -> list[tuple[Delivery, int, int]]:
    """The next claimed messages behind claim, slot and number of the last one seen. If that has moved on, so has the
    rest of its claim, or is about to."""
    kernel = claiming.kernel
    claim, slot, number = place
    if slot and claiming.holds(entry, slot, number) and claiming.claim_of(slot) == claim:
        slot = claiming.after(slot)
    else:
        slot = claiming.first(entry)
        while slot and claiming.claim_of(slot) <= claim:
            slot = claiming.after(slot)
    found: list[tuple[Delivery, int, int]] = []
    while slot and len(found) < LOOKED_A_TURN_MAX:
        found.append((kernel.delivery(slot), kernel.field(slot, L.S_ATTEMPT_US), claiming.claim_of(slot)))
        slot = claiming.after(slot)
    return found


def _look(client: Client, places: dict[int, Place], most: int) -> list[tuple[Delivery, int, int, int]]:
    """The next messages of these lists together, by delivery time and number."""
    kernel = client.kernel
    order = kernel.order
    heads = {which: order.after(which, *places[which]) for which in places}
    offset_us = client.clock.wall_us() - client.clock.boot_us()
    found: list[tuple[Delivery, int, int, int]] = []
    while len(found) < most:
        here = [which for which in heads if heads[which]]
        if not here:
            break
        which = min(here, key=lambda w: (kernel.field(heads[w], L.S_DELIVER_US), kernel.number(heads[w])))
        slot = heads[which]
        key = 0
        if which >= L.LIST_LEASES:
            key = kernel.field(slot, L.S_LEASE_US)
        elif which >= L.LIST_TIMED:
            key = kernel.field(slot, L.S_DELIVER_US)
        places[which] = (key, kernel.number(slot))
        pending = which == L.LIST_LEASES
        found.append(
            (
                kernel.delivery(slot),
                kernel.field(slot, L.S_ATTEMPT_US),
                key + offset_us if pending else 0,
                kernel.field(slot, L.S_OWNER) if pending else 0,
            )
        )
        heads[which] = order.follower(which, 0, slot)
    return found


def seen(client: Client, consumer: Consumer, slot: int, number: int) -> Message | None:
    """One message, wherever it is in its life; None if it is not in the queue any more."""
    found = client.turn(_look_at_one, client, slot, number)
    return None if found is None else consumer.read(*found)


def _look_at_one(client: Client, slot: int, number: int) -> tuple[Delivery, int, int, int, str] | None:
    kernel = client.kernel
    if slot >= kernel.slots or kernel.number(slot) != number:
        return None
    state = kernel.state(slot)
    if state not in (L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED):
        return None
    lease_us = owner = 0
    if state == L.STATE_PENDING:
        lease_us = kernel.field(slot, L.S_LEASE_US) + client.clock.wall_us() - client.clock.boot_us()
        owner = kernel.field(slot, L.S_OWNER)
    attempt_us = kernel.field(slot, L.S_ATTEMPT_US)
    return kernel.delivery(slot), attempt_us, lease_us, owner, WAITING if state == L.STATE_WAITING else PENDING
