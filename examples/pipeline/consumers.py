"""A consumer: a back office. It takes from one destination queue, acknowledges, and writes down what it saw.

python -m examples.pipeline.consumers FOLDER DESTINATION
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import penstock

from .journal import Journal
from .plan import Folder

MOST = 500
WAIT_S = 0.5


def consume(folder: Folder, destination: str) -> None:
    parent = os.getppid()
    journal = Journal(folder.journal(f"consumer-{destination}"))
    with penstock.open(folder.queue(destination)) as queue:
        while os.getppid() == parent:
            messages = queue.get_many(MOST, wait=WAIT_S)
            if not messages:
                continue
            queue.ack_many(messages)
            seen = [{"id": message.id, "type": message.type, **json.loads(message.body)} for message in messages]
            journal.write({"at_s": time.time(), "messages": seen})


def main() -> None:
    folder, destination = sys.argv[1:]
    consume(Folder(Path(folder)), destination)


if __name__ == "__main__":
    main()
