"""The power is lost while types, keys, groups and exclusive keys are used: the trees are made anew from the records,
and hold what the queue holds. The machinery is that of ``test_power_loss.py``."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store.directory import read_options
from tests.conftest import SimulatedClock
from tests.crash import trial as t
from tests.crash.ledger import Found, Ledger, Sent, found
from tests.crash.workload import OPTIONS, Template, Workload
from tests.snapshot import FAST
from tests.thoroughness import FIRST, IN_FULL

SEEDS = 120 if IN_FULL else 60
SEED = 0 if IN_FULL else FIRST  # the first of them
SEEDS_A_TEST = 20
KEYS = (None, "example.com", "example.org", "example.net")
SIZES: dict[str, Any] = {"slots": 32, "data_bytes": 32 << 10, "spill_bytes": 2000}


class ClassTemplate(Template):
    """With and without exclusive keys."""

    def _create(self, folder: Path, which: int) -> None:
        exclusive = which % 2 == 1
        clock = SimulatedClock()
        penstock.create(self.path, exclusive_keys=exclusive, clock=clock, **SIZES, **OPTIONS).close()


@functools.cache
def template_of(folder: Path, which: int) -> ClassTemplate:
    return ClassTemplate(folder, which)


class ExclusiveLedger(Ledger):
    """Held messages come last when a queue is looked at."""

    def _judge_order(self, here: list[Found]) -> list[str]:
        return []


class ClassWorkload(Workload):
    """Most messages have a key, and receivers ask for it."""

    def __init__(self, template: Template, seed: int) -> None:
        super().__init__(template, seed)
        if read_options(template.path).exclusive_keys:
            self.ledger = ExclusiveLedger()

    def message(self, queue: penstock.TimeQueue, durable: bool) -> Sent:
        sent = super().message(queue, durable)
        sent.options["key"] = self.rng.choice(KEYS)
        sent.options["type"] = self.rng.choice((None, "order", "invoice"))
        return sent

    def get(self, queue: penstock.TimeQueue) -> None:
        begun = self.disk.now()
        wanted: dict[str, Any] = self.rng.choice(
            ({}, {"type": "order"}, {"key": "example.com"}, {"key": KEYS[1:3]}, {"group": "largest"})
        )
        most, lease = self.rng.choice((1, 1, 2, 5)), self.rng.choice((0.5, 60.0))
        for message in queue.get_many(most, lease=lease, **wanted):
            self.ledger.sent[found(message).token].delivered.append(begun)
            self.held.append((queue, message))


class ClassTrial(t.Trial):
    """Judged as others are, and then emptied by type and key."""

    @classmethod
    def of(cls, folder: Path, seed: int) -> ClassTrial:
        template = template_of(folder, seed % 2)
        work = ClassWorkload(template, seed)
        return cls(template.path, work, lambda: work.run(work.rng.choice(t.STEPS)))

    def _drain(self, queue: penstock.TimeQueue, here: list[Found]) -> None:
        counted = {group.key: group.waiting for group in queue.groups()}
        assert counted == Counter(message.key for message in queue.browse() if message.key is not None)
        exclusive = queue._mine().options.exclusive_keys
        taken: dict[str, Found] = {}
        for wanted in ({"type": "order"}, {"key": KEYS[1]}, {"key": KEYS[2:]}, {}) * (len(here) + 1):
            more = queue.get_many(1000, **wanted)  # type: ignore[arg-type]
            keys = [message.key for message in more if message.key is not None]
            assert not exclusive or len(set(keys)) == len(keys), "two of one key at a time"
            taken |= {message.id: found(message) for message in more}
            queue.ack_many(more)
        t.expect(t.differences(here, [taken[one.id] for one in here if one.id in taken], attempt=1), "delivered")
        queue.sync_index()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-power-", dir=FAST)))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("first", range(SEED, SEED + SEEDS, SEEDS_A_TEST))
def test_types_and_keys_survive_a_power_loss(first: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t, "Trial", ClassTrial)
    counts: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_A_TEST):
        counts += t.run(folder, seed)
    assert counts["messages restored"] > SEEDS_A_TEST
