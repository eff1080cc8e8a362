"""A consumer: a back office. It takes from one queue, acknowledges, and writes down what it saw, until it is told to
end (SIGTERM).

    python -m examples.orders.consumers FOLDER QUEUE
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from threading import Event

import msgspec

import penstock

from .journal import Journal
from .plan import Folder

MOST = 500
WAIT_S = 0.5


def consume(folder: Folder, name: str, stop: Event) -> None:
    parent = os.getppid()
    journal = Journal(folder.journal(f"consumer-{name}"))
    with penstock.open(folder.queue(name)) as queue:
        while os.getppid() == parent and not stop.is_set():
            messages = queue.get_many(MOST, wait=WAIT_S)
            if not messages:
                continue
            queue.ack_many(messages)
            seen = [{"id": message.id, **msgspec.json.decode(message.data)} for message in messages]
            journal.write({"at_s": time.time(), "messages": seen})


def main() -> None:
    folder, name = sys.argv[1:]
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consume(Folder(Path(folder)), name, stop)


if __name__ == "__main__":
    main()
