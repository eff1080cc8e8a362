"""Owns receiving by type and key from a queue that was made before there were trees: its lists are walked, and heads of
records are read, until something is found. What queues with trees do is ``leases.py``'s.
"""

from __future__ import annotations

import time

from penstock.message import Message
from penstock.store.classes import Choice
from penstock.store.gather import F_NUMBER, F_SLOT, REFERENCE_WORDS
from penstock.store.kernel import Delivery
from penstock.timequeue.clients import Client
from penstock.timequeue.leases import Consumer, Look, Wanted
from penstock.timequeue.notify import sleep_s
from penstock.timequeue.selection import Rows, Selection

NOTHING = Wanted((), (), Choice([], []))  # looked for, everything is done that a receiver does on the way


def receive_walking(
    client: Client, consumer: Consumer, wanted: Wanted, most: int, wait_s: float | None, lease_us: int
) -> list[Message]:
    """As ``Consumer.receive``."""
    deadline = None if wait_s is None or wait_s == 0 else time.monotonic() + wait_s
    left_s = wait_s
    selection = Selection(client, types=wanted.types, keys=wanted.keys)
    timed_out: int | None = None
    while True:
        look = consumer.look(1, lease_us, left_s, timed_out, NOTHING)
        timed_out = None
        if look.again:
            continue
        seen = None if left_s == 0 else look.seen
        found: list[Message] = []
        while not found and selection.look(most):
            rows = selection.found[: most * REFERENCE_WORDS]
            selection.taken = len(rows) // REFERENCE_WORDS
            selection.forget_taken()
            deliveries = client.turn(_claim, client, rows, look.now_us, lease_us, seen)
            seen = None
            found = consumer.messages(Look(deliveries, look.now_us, lease_us, 0, 0.0, False))
        if found or left_s == 0:
            return found
        if seen is not None:  # else it is not armed any more, and looks again first
            timed_out = None if client.receivers.sleep(look.seen, _nap_s(client, look)) else seen
        if deadline is not None:
            left_s = max(deadline - time.monotonic(), 0.0)


def _nap_s(client: Client, look: Look) -> float:
    """Until the next delivery time of any message: whose it is, only its record says."""
    due_us = client.kernel.order.next_due_us()
    now_us = client.clock.wall_us()
    later_us = due_us if due_us > now_us else 0
    return sleep_s(now_us=now_us, boot_us=0, next_due_us=later_us, next_lease_us=0, left_s=look.sleep_s)


def _claim(client: Client, rows: Rows, now_us: int, lease_us: int, seen: int | None) -> list[Delivery]:
    """Deliver those that still wait. One that is armed is so no more."""
    kernel = client.kernel
    if seen is not None:
        kernel.sleepers.disarm_choosing(seen)
    end_us = client.clock.boot_us() + lease_us
    found: list[Delivery] = []
    for at in range(0, len(rows), REFERENCE_WORDS):
        slot, number = rows[at + F_SLOT], rows[at + F_NUMBER]
        if kernel.claim_slot(slot, number, now_us, end_us, client.index, client.owner):
            found.append(kernel.delivery(slot))
    kernel.commit()
    return found
