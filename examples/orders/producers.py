"""A producer: the tills of some shops. It puts numbered batches of orders and payments into the three lanes and knows
of nobody else.

What it puts follows from its number alone, so that after a kill it makes the batch again of which it does not know
whether it came through; each lane puts it only if it did not (``put_once``).

    python -m examples.orders.producers FOLDER NUMBER --of PRODUCERS --messages N --start TIME --seconds S
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import penstock

from .journal import Journal
from .plan import LANES, ORDER, PAYMENT, REMIND_S, Folder

BATCH_MOST = 24
SHARES = {"express": 15, "normal": 50, "bulk": 35}  # of a hundred orders
URGENT_SHARE, URGENT = 0.1, 9  # of all orders, and their priority within their lane
DELAYED_SHARE = 0.2  # of all orders: wanted some time later
DELAY_S = (0.5, 3.0)
# When an order is paid after it is due: soon, too late to stop the reminder, or never.
PAID = {(0.5, REMIND_S - 1.5): 75, (REMIND_S + 0.5, REMIND_S + 2.0): 15, None: 10}
POISON_EVERY = 97  # one order in so many is for nothing, which no script can do anything with
FULL_S_MAX = 60.0  # to wait for room in a queue
MESSAGES_OF_CUSTOMER = 12  # on average; customers are the same in all shops


@dataclass(frozen=True)
class Event:
    """An order or a payment. ``n`` is unique among all producers."""

    n: int
    type: str
    customer: str
    lane: str
    cents: int
    at_ms: int
    delay_s: float = 0.0
    priority: int = 0

    @property
    def due_s(self) -> float:
        return self.at_ms / 1000 + self.delay_s

    @property
    def is_poison(self) -> bool:
        return self.cents <= 0

    def draft(self) -> penstock.Draft:
        return penstock.Draft(
            body={"n": self.n, "cents": self.cents, "at_ms": self.at_ms, "lane": self.lane},
            deliver_at=self.due_s if self.delay_s else None,
            priority=self.priority,
            type=self.type,
            key=self.customer,
        )


def batches(producer: int, of: int, messages: int, start_s: float, seconds: float) -> Iterator[list[Event]]:
    """All that a producer puts, spread over the time: the same each time it is asked."""
    rng = random.Random(producer)
    customers = max(messages * of // MESSAGES_OF_CUSTOMER, 3)
    numbers = iter(range(producer, messages * of, of))
    made = 0
    while made < messages:
        count = min(rng.randint(1, BATCH_MOST), messages - made)
        at_ms = int((start_s + seconds * made / messages) * 1000)
        some: list[Event] = []
        while len(some) < count:
            customer = f"customer {rng.randrange(customers)}"
            some += islice(_bought(rng, numbers, customer, at_ms), count - len(some))
        yield some
        made += count


def _bought(rng: random.Random, numbers: Iterator[int], customer: str, at_ms: int) -> Iterator[Event]:
    """An order, and what is paid for it, in the same lane."""
    n = next(numbers)
    lane = rng.choices(list(SHARES), list(SHARES.values()))[0]
    delay_s = round(rng.uniform(*DELAY_S), 3) if rng.random() < DELAYED_SHARE else 0.0
    priority = URGENT if rng.random() < URGENT_SHARE else 0
    cents = 0 if n % POISON_EVERY == 0 else rng.randint(100, 20_000)
    paid_s = rng.choices(list(PAID), list(PAID.values()))[0]
    after_s = delay_s + rng.uniform(*paid_s) if paid_s and cents else None
    yield Event(n, ORDER, customer, lane, cents, at_ms, delay_s, priority)
    if after_s is not None:
        yield Event(next(numbers), PAYMENT, customer, lane, cents, at_ms, round(after_s, 3), priority)


def produce(folder: Folder, producer: int, all_batches: Iterator[list[Event]]) -> None:
    parent = os.getppid()
    journal = Journal(folder.journal(f"producer-{producer}"))
    with contextlib.ExitStack() as opened:
        lanes = {lane: opened.enter_context(penstock.open(folder.queue(lane))) for lane in LANES}
        for number, events in islice(enumerate(all_batches), journal.lines, None):
            time.sleep(max(events[0].at_ms / 1000 - time.time(), 0))
            if os.getppid() != parent:
                return
            journal.write(_line(number, events, again=_put(lanes, f"producer-{producer}", number, events)))


def _put(lanes: dict[str, penstock.TimeQueue], publisher: str, number: int, events: list[Event]) -> int:
    """Each lane its part of the batch; in how many lanes it was already, put by one who was killed before it could
    write that down."""
    again = 0
    for lane, queue in lanes.items():
        drafts = [event.draft() for event in events if event.lane == lane]
        if drafts:
            again += queue.put_once(publisher, number, drafts, timeout=FULL_S_MAX) is None
    return again


def _line(number: int, events: list[Event], *, again: int) -> dict[str, Any]:
    return {"at_s": time.time(), "batch": number, "again": again, "events": [asdict(event) for event in events]}


def main() -> None:
    parser = argparse.ArgumentParser(description="One producer of the orders example.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("--of", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--start", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    plan = batches(given.number, given.of, given.messages, given.start, given.seconds)
    produce(Folder(given.folder), given.number, plan)


if __name__ == "__main__":
    main()
