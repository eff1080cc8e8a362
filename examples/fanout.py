"""Fan-out: each order goes to the warehouse, to billing and to the archive, or to none of them.

The shop puts into one queue, which copies to all of its members. Each of them works at its own pace, and has what the
others have. One that joins later is one more member, and the shop does not notice.

    python examples/fanout.py --orders 20
"""

from __future__ import annotations

import argparse
import sys
import tempfile

import penstock

DEPARTMENTS = ["warehouse", "billing"]


def sell(manager: penstock.QueueManager, orders: range) -> None:
    with manager.open("orders", relationship="producer") as queue:
        for number in orders:
            queue.put({"order": number})


def read(manager: penstock.QueueManager, department: str) -> list[int]:
    with manager.open(department, relationship="consumer") as queue, queue.consumer(wait=0) as consumer:
        return [message.body["order"] for message in consumer]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=20)
    arguments = parser.parse_args()
    first, second = range(arguments.orders // 2), range(arguments.orders // 2, arguments.orders)
    with tempfile.TemporaryDirectory(prefix="penstock-fanout-") as folder, penstock.QueueManager(folder) as manager:
        for department in [*DEPARTMENTS, "archive"]:
            manager.create(department)
        manager.create_macro("orders", DEPARTMENTS, producing="copy-to-all")
        sell(manager, first)
        manager.add_member("orders", "archive")
        sell(manager, second)
        found = {department: read(manager, department) for department in [*DEPARTMENTS, "archive"]}
    for department, orders in found.items():
        print(f"{department}: {len(orders)} orders, from {orders[0]} to {orders[-1]}")
    right = all(found[department] == [*first, *second] for department in DEPARTMENTS)
    return 0 if right and found["archive"] == [*second] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
