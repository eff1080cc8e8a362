"""Ordered processing for each customer, by many workers at once.

The queue is made with exclusive keys: of a customer's orders one is worked on at a time, in the order in which they
were put, while those of other customers go on beside it. One worker is killed; its order is done by another one before
the customer's next.

    python examples/customers.py --customers 20 --orders 10 --workers 4
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import penstock

_processes = multiprocessing.get_context("spawn")  # nothing is inherited but the queue's path


def work(path: str, book: str) -> None:
    """One worker: writes down what it did, then acknowledges."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    rng = random.Random(os.getpid())
    with penstock.open(path) as queue, open(book, "a", buffering=1) as lines:
        while True:
            message = queue.get()
            lines.write(f"{message.key} {message.body} begun\n")
            time.sleep(rng.uniform(0, 0.01))
            lines.write(f"{message.key} {message.body} done\n")
            message.ack()


def start(pool: list[Any]) -> None:
    """All of them; an interrupt waits until there is none half started."""
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    for process in pool:
        process.start()
    signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def run(folder: Path, customers: int, orders: int, workers: int) -> int:
    path = folder / "orders"
    book = folder / "book.txt"
    with penstock.create(path, exclusive_keys=True) as queue:
        for order in range(orders):
            queue.put_many([penstock.Draft(body=order, key=f"customer-{customer}") for customer in range(customers)])
        pool = [_processes.Process(target=work, args=(str(path), str(book))) for _ in range(workers)]
        try:
            start(pool)
            while queue.stats().acks < customers * orders // 3:
                time.sleep(0.01)
            os.kill(pool[0].pid or 0, signal.SIGKILL)
            print(f"worker {pool[0].pid} is killed")
            while (stats := queue.stats()).waiting + stats.pending:
                time.sleep(0.02)
        finally:
            for process in pool:
                process.kill()
            for process in pool:
                process.join()
    return account(book, customers, orders)


def account(book: Path, customers: int, orders: int) -> int:
    """Each customer's lines must be: 0 begun, 0 done, 1 begun, … An order whose worker was killed is begun again."""
    seen: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in book.read_text().splitlines():
        customer, order, what = line.split()
        seen[customer].append((int(order), what))
    wrong = again = 0
    for lines in seen.values():
        once: list[tuple[int, str]] = []
        for order, what in lines:
            if what == "begun" and once and once[-1][0] == order:
                again += 1
                once = [each for each in once if each[0] != order]
            once.append((order, what))
        wrong += once != [(order, what) for order in range(orders) for what in ("begun", "done")]
    print(f"{customers} customers, {orders} orders each; {again} done again by another worker, {wrong} out of order")
    return 1 if wrong or len(seen) != customers else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--customers", type=int, default=20)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    if min(arguments.customers, arguments.orders, arguments.workers - 1) < 1:
        parser.error("at least a customer, an order and 2 workers")
    with tempfile.TemporaryDirectory(prefix="penstock-customers-") as folder:
        return run(Path(folder), arguments.customers, arguments.orders, arguments.workers)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
