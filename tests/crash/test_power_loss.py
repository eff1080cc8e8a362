"""The power is lost at any moment and any part of what was not synced is kept (issue of S5 to S7): nothing confirmed is
lost, nothing is invented, nothing acknowledged before the last index sync returns, batches are whole, no number is
given twice, and a restore that is cut short ends the same.

``PENSTOCK_SEED=123`` runs that seed alone.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import trial as t
from tests.crash.storage import MODES, SECTORS
from tests.crash.ledger import Sent, make_body
from tests.crash.workload import Workload

SEEDS = 600
SEEDS_A_TEST = 25
SHARED_MEMORY = Path("/dev/shm")  # the disk is simulated: a real one under it would only be slow


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    where = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-power-", dir=where)))
    yield made
    shutil.rmtree(made)


def seeds() -> list[range]:
    alone = os.environ.get("PENSTOCK_SEED")
    if alone is not None:
        return [range(int(alone), int(alone) + 1)]
    return [range(first, min(first + SEEDS_A_TEST, SEEDS)) for first in range(0, SEEDS, SEEDS_A_TEST)]


@pytest.mark.parametrize("some", seeds(), ids=lambda some: f"seeds {some.start} to {some.stop - 1}")
def test_what_was_confirmed_survives_a_power_loss(some: range, folder: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in some:
        counts += t.run(folder, seed)
    assert counts["seeds"] == len(some)
    assert len(some) == 1 or counts["messages restored"] > len(some)


class Short(Workload):
    """A put, a batch, a delivery, its end, an index sync, and one more put."""

    def run(self, steps: int = 0) -> None:
        self._overlap = 0.0
        with self.disk:
            queue = self._open()
            self.queues.append(queue)
            self._put(queue, [self._plain(100)], one=True)
            self._put(queue, [self._plain(size) for size in (20, 700, 300)])
            begun = self.disk.now()
            message = queue.get()
            self.ledger.sent[1].delivered.append(begun)
            self._remove([message], message.ack)
            self.sync_index(queue)
            self._put(queue, [self._plain(2000)], one=True)
            self.disk.now()

    def _plain(self, size: int) -> Sent:
        sent = self.message(self.queues[0], True)
        sent.body = make_body(sent.token, random.Random(size).randbytes(size))
        sent.options.update(priority=0, type="order", key=None, headers={"a": "b"})
        for name in ("delay", "deliver_at"):
            sent.options.pop(name, None)
        sent.deliver_us = (self.clock.wall_us(),) * 2
        return sent


def test_crashed_after_every_effect_of_a_short_run(folder: Path) -> None:
    """Every place of its log, several times; images that were judged before are not judged again."""
    trial = t.Trial(folder, seed=1, kind=Short)
    seen: set[bytes] = set()
    places = range(len(trial.disk.log) + 1)
    for at in places:
        for mode in (*MODES, SECTORS):
            trial.rng.seed(f"{at} {mode} {len(seen)}")
            image = trial.disk.image(trial.rng, at, mode)
            key = t.fingerprint(image) + bytes([at in (span.done for span in trial.work.ledger.syncs)])
            if key in seen:
                continue
            seen.add(key)
            try:
                trial.lose(image, at)
            except Exception as error:
                error.add_note(f"at {at} of {len(places)}, {mode} kept")
                raise
    assert len(seen) > 300
