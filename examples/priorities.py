"""Three queues behind one: a worker takes what is urgent first, and what can wait when there is nothing else.

Programs put into the queue that fits; the worker knows one name, and is woken by a message in any of the three.

    python examples/priorities.py --jobs 30
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading

import penstock

LEVELS = {"urgent": 3, "normal": 2, "whenever": 1}


def produce(manager: penstock.QueueManager, jobs: int) -> None:
    """Programs that know how urgent their work is."""
    for level in reversed(LEVELS):  # what can wait comes first, so that the worker has a choice
        with manager.open(level, relationship="producer") as queue:
            queue.put_many([f"{level} job {n + 1}" for n in range(jobs // len(LEVELS))])


def work(manager: penstock.QueueManager, done: list[str]) -> None:
    """One that knows nothing of the three. Ctrl-C closes its queue."""
    with (
        contextlib.suppress(penstock.QueueClosed),
        manager.open("work", relationship="consumer") as queue,
        queue.consumer(prefetch=1, wait=1.0) as consumer,
    ):
        for message in consumer:
            done.append(message.body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-priorities-") as folder, penstock.QueueManager(folder) as manager:
        for level in LEVELS:
            manager.create(level)
        manager.create_macro("work", LEVELS.items())
        produce(manager, arguments.jobs)
        done: list[str] = []
        worker = threading.Thread(target=work, args=(manager, done), daemon=True)
        worker.start()
        while worker.is_alive():
            worker.join(0.1)
        for line in done:
            print(line)
        order = [line.split()[0] for line in done]
        right = order == sorted(order, key=list(LEVELS).index)
        print(f"{len(done)} jobs, {'each after all that was more urgent' if right else 'in the wrong order'}")
        return 0 if right and len(done) == arguments.jobs // len(LEVELS) * len(LEVELS) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
