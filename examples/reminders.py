"""Delayed reminders: each is put for its time, can be cancelled or moved until then, and is worthless when it is late.

A reminder that is stored twice by a nervous client is stored once (``dedup_id``). One that was called off is cancelled.
One that nobody could deliver in time is not delivered at all (``ttl``).

    python examples/reminders.py --seconds 3
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import penstock


def book(queue: penstock.TimeQueue, seconds: float) -> list[str]:
    """What the clients of a calendar do; the reminders that are to come, in their order."""
    now_s = time.time()
    texts = ["stretch", "drink something", "call the dentist", "go home"]
    for place, text in enumerate(texts):
        at_s = now_s + seconds * (place + 1) / len(texts)
        for _ in range(2):  # the answer was lost, so the client asks again
            queue.put(text, deliver_at=at_s, type="reminder", dedup_id=f"{text} at {at_s}")
    off = queue.put("meeting", delay=seconds / 2, type="reminder")
    print(f"the meeting is called off: {'cancelled' if queue.cancel(off) else 'too late'}")
    queue.put("the bus leaves", ttl=0.01, type="reminder")
    time.sleep(0.05)  # nobody looked in time
    return texts


def remind(queue: penstock.TimeQueue, texts: list[str]) -> int:
    heard = []
    while len(heard) < len(texts):
        with queue.get(timeout=30) as message:
            late_ms = (time.time() - message.deliver_at.timestamp()) * 1e3
            print(f"{message.deliver_at:%H:%M:%S} {message.body} ({late_ms:.1f} ms late)")
            heard.append(message.body)
    stats = queue.stats()
    print(f"{len(heard)} reminders, {stats.deduplicated} asked for twice, {stats.dropped} no longer worth it")
    return 0 if heard == texts and queue.qsize() == 0 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="until the last reminder")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-reminders-") as folder,
        penstock.create(Path(folder) / "reminders") as queue,
    ):
        return remind(queue, book(queue, max(arguments.seconds, 0.4)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
