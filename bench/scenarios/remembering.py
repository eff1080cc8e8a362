"""What a dedup id costs (z): put, get and ack of messages with one, against plain ones.

Both run in one process on one queue, in turns, so that whatever else the machine does hits both.
"""

from __future__ import annotations

from pathlib import Path

import penstock
from bench.scenarios.measuring import Stopwatch, bodies, check, scratch
from bench.systems.penstock_queue import RECORD_EXTRA_BYTES

TURNS = 4  # of each, in a round
OURS = "Penstock"


def with_dedup_ids(below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second that are put, got and acknowledged one by one."""
    items = bodies(count // TURNS, body_bytes)
    seconds = {OURS: 0.0, "plain": 0.0}
    with scratch(below) as where:
        data_bytes = 1000 * (body_bytes + RECORD_EXTRA_BYTES)
        entries = 4 * (TURNS + 1) * len(items)  # all stay within the window
        with penstock.create(
            where / "queue", slots=1000, data_bytes=data_bytes, durability="relaxed", dedup_entries=entries
        ) as q:
            for turn in range(TURNS + 1):
                ids = [f"{turn}-{number}" for number in range(len(items))]
                for name in seconds:
                    with Stopwatch() as watch:
                        _each(q, items, ids) if name == OURS else _each_plain(q, items)
                    seconds[name] += watch.seconds if turn else 0.0  # the first turn warms up
            stats = q.stats()
            check(stats.waiting + stats.pending + stats.deduplicated == 0, "messages are left over, or were known")
            check(stats.acks == 2 * (TURNS + 1) * len(items), f"{stats.acks} messages were acknowledged")
    return {name: TURNS * len(items) / seconds[name] for name in seconds}


def _each(q: penstock.TimeQueue, items: list[bytes], ids: list[str]) -> None:
    for body, dedup_id in zip(items, ids, strict=True):
        q.put(body, dedup_id=dedup_id)
        q.get().ack()


def _each_plain(q: penstock.TimeQueue, items: list[bytes]) -> None:
    for body in items:
        q.put(body)
        q.get().ack()
