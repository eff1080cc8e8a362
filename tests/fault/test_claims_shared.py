"""Two receivers in processes that are killed and started again, a plain consumer beside them: every message goes to one
of them, and a claim has the same messages however often it is read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.store.gather import F_NUMBER, REFERENCE_WORDS
from tests.conftest import Queues
from tests.fault.processes import Child

MESSAGES = 3000
KILLS = 12
END_S = 60

Say = Callable[[Any], None]


def receive(say: Say, path: Path, name: str) -> None:
    """Tell of each claim before it is committed, those first that a predecessor left."""
    with penstock.open(path) as queue, queue.receiver(name, wait=10) as receiver:
        while True:
            for number in receiver.claims():
                tell(say, name, number, receiver.references(number))
                receiver.commit(number)
            claim = receiver.claim(17)
            if claim is None:
                time.sleep(0.01)
                continue
            tell(say, name, claim.number, claim.references)
            if claim.number % 3:
                receiver.commit(claim.number)


def tell(say: Say, name: str, number: int, rows: Any) -> None:
    say((name, number, list(rows[F_NUMBER::REFERENCE_WORDS])))


def consume(say: Say, path: Path) -> None:
    with penstock.open(path) as queue:
        while messages := queue.get_many(5, wait=1.0):
            queue.ack_many(messages)
            say([message.number for message in messages])
            time.sleep(0.02)  # slow: most is for the receivers


def heard(child: Child) -> list[Any]:
    """All that a child said and nobody has heard yet."""
    found = []
    while child._ear.poll():
        try:
            found.append(child.hear())
        except EOFError:
            break
    return found


def test_every_message_goes_to_one_of_them_and_a_claim_stays_the_same(queue: Queues) -> None:
    made = queue(slots=MESSAGES, data_bytes=4 << 20)
    made.put_many([b"%d" % i for i in range(MESSAGES)])
    everything = {message.number for message in made.browse()}
    claims: dict[tuple[str, int], list[int]] = {}
    rng = random.Random(4)
    children = {name: Child(receive, made.path, name) for name in ("a", "b")}
    consumer = Child(consume, made.path)
    consumed: list[int] = []
    done = False
    kills = 0
    deadline = time.monotonic() + END_S

    def listen(child: Child) -> None:
        for name, number, rows in heard(child):
            assert claims.setdefault((name, number), rows) == rows

    try:
        while not done:
            assert time.monotonic() < deadline, made.stats()
            time.sleep(rng.random() * 0.05)
            for name, child in list(children.items()):
                listen(child)
                if kills < KILLS and rng.random() < 0.15:
                    child.kill()
                    listen(child)
                    child.end()
                    children[name] = Child(receive, made.path, name)
                    kills += 1
            stats = made.stats()
            done = kills >= KILLS and stats.waiting == stats.pending == stats.claimed == 0
        consumed = [number for part in heard(consumer) for number in part]
    finally:
        for child in (*children.values(), consumer):
            child.kill()
    for child in children.values():
        listen(child)
        child.end()
    consumed += [number for part in heard(consumer) for number in part]
    consumer.end()
    claimed = [number for rows in claims.values() for number in rows]
    assert len(claims) > 20 and consumed
    assert len(set(claimed)) == len(claimed) and not set(claimed) & set(consumed)
    assert set(claimed) | set(consumed) == everything
    assert made.stats().acks == MESSAGES
