"""Bulk mail by destination: one connection carries many mails to the same domain.

Mails wait in one queue, each with its domain as the key. A sender takes the largest group, up to 50 mails at once, and
delivers them over one connection. A domain that does not answer gets its mails back for later; after three attempts
they are dead letters.

    python examples/bulkmail.py --mails 1000
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import penstock

AT_ONCE = 50
DOWN = "down.example"
DOMAINS = {"large.example": 60, "middle.example": 25, "small.example": 10, DOWN: 5}  # and how many mails of a hundred


class Server:
    """Stands for the mail servers: counts connections, and one of them is down."""

    def __init__(self) -> None:
        self.connections: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()

    def deliver(self, domain: str, mails: list[dict[str, str]]) -> None:
        self.connections[domain] += 1
        if domain == DOWN:
            raise ConnectionRefusedError(f"{domain} does not answer")
        self.delivered[domain] += len(mails)


def send(queue: penstock.TimeQueue, server: Server) -> None:
    """Until nothing is left: the largest group that is due, one connection each time."""
    while queue.qsize():
        mails = queue.get_many(AT_ONCE, group="largest", wait=5)
        if not mails:
            continue
        domain = mails[0].key or ""
        try:
            server.deliver(domain, [mail.body for mail in mails])
        except OSError as error:
            for mail in mails:
                mail.fail(error)
        else:
            queue.ack_many(mails)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mails", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.mails < 1:
        parser.error("at least one mail")
    rng = random.Random(1)
    domains = rng.choices(list(DOMAINS), list(DOMAINS.values()), k=arguments.mails)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bulkmail-") as folder,
        penstock.create(Path(folder) / "mails", max_attempts=3, backoff=0.2) as queue,
    ):
        queue.put_many(
            [penstock.Draft(body={"to": f"user{n}@{domain}"}, key=domain) for n, domain in enumerate(domains)]
        )
        for group in queue.groups(by="size"):
            print(f"{group.waiting:6} mails wait for {group.key}")
        server = Server()
        send(queue, server)
        dead = queue.dead_letters()
        lost = dead.qsize() if dead is not None else 0
    for domain, connections in server.connections.most_common():
        print(f"{server.delivered[domain]:6} mails to {domain} over {connections} connections")
    print(f"{lost:6} dead letters")
    return 0 if server.delivered.total() + lost == arguments.mails and lost == domains.count(DOWN) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
