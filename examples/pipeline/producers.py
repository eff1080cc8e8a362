"""A producer: the tills of some shops. It puts numbered batches into the inbound queue and knows of nobody else.

What it puts follows from its number alone, so that after a kill it makes the batch again of which it does not know
whether it came through, and ``put_once`` puts it only if it did not.

    python -m examples.pipeline.producers FOLDER NUMBER --of PRODUCERS --messages N --start TIME --seconds S
"""

from __future__ import annotations

import argparse
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
from .plan import EXPRESS_SHARE, INBOUND, PRIORITIES, SHARES, SHOPS, Folder

BATCH_MOST = 24
DELAYED_SHARE = 0.2
DELAY_S = (0.5, 4.0)
FULL_S_MAX = 60.0  # to wait for room in the queue


@dataclass(frozen=True)
class Event:
    """What happened in a shop. ``n`` is unique among all producers."""

    n: int
    type: str
    shop: str
    cents: int
    at_ms: int
    delay_s: float = 0.0
    priority: int = 0

    def draft(self) -> penstock.Draft:
        return penstock.Draft(
            body={"n": self.n, "shop": self.shop, "cents": self.cents, "at_ms": self.at_ms},
            deliver_at=self.at_ms / 1000 + self.delay_s if self.delay_s else None,
            priority=self.priority,
            type=self.type,
            key=self.shop,
        )


def batches(producer: int, of: int, messages: int, start_s: float, seconds: float) -> Iterator[list[Event]]:
    """All that a producer puts, spread over the time: the same each time it is asked."""
    rng = random.Random(producer)
    made = 0
    while made < messages:
        count = min(rng.randint(1, BATCH_MOST), messages - made)
        at_ms = int((start_s + seconds * made / messages) * 1000)
        yield [_event(rng, (made + i) * of + producer, at_ms) for i in range(count)]
        made += count


def _event(rng: random.Random, n: int, at_ms: int) -> Event:
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    delay_s = round(rng.uniform(*DELAY_S), 3) if rng.random() < DELAYED_SHARE else 0.0
    priority = PRIORITIES[kind][rng.random() < EXPRESS_SHARE]
    return Event(n, kind, rng.choice(SHOPS), rng.randint(100, 20_000), at_ms, delay_s, priority)


def produce(folder: Folder, producer: int, all_batches: Iterator[list[Event]]) -> None:
    parent = os.getppid()
    journal = Journal(folder.journal(f"producer-{producer}"))
    with penstock.open(folder.queue(INBOUND)) as queue:
        for number, events in islice(enumerate(all_batches), journal.lines, None):
            time.sleep(max(events[0].at_ms / 1000 - time.time(), 0))
            if os.getppid() != parent:
                return
            drafts = [event.draft() for event in events]
            ids = queue.put_once(f"producer-{producer}", number, drafts, timeout=FULL_S_MAX)
            journal.write(_line(number, events, again=ids is None))


def _line(number: int, events: list[Event], *, again: bool) -> dict[str, Any]:
    """``again``: the queue had it already, and the one who put it was killed before it could write that down."""
    return {"at_s": time.time(), "batch": number, "again": again, "events": [asdict(event) for event in events]}


def main() -> None:
    parser = argparse.ArgumentParser(description="One producer of the pipeline example.")
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
