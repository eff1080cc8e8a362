"""The power is lost at any moment while a synchronization component serves: what it confirmed is there."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import rig
from penstock.timequeue import check_queue
from penstock.timequeue.syncer import QueueSyncer
from tests.crash.storage import MODES, NOTHING, SECTORS, Disk
from tests.snapshot import FAST
from tests.thoroughness import IN_FULL

LOSSES = 150 if IN_FULL else 40


@pytest.fixture
def folder() -> Iterator[Path]:
    """The disk is simulated: a real one under it would only be slow."""
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-syncer-", dir=FAST)))
    yield made
    shutil.rmtree(made)


class QueueDisk(Disk):
    """The component is a thread of this process. While it works its clients wait, and while they work it waits, or is
    at its pipes, of which no disk knows: so what happens to files has one order."""

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind not in (rig.SEND, rig.RECEIVE):
            super().effect(kind, target, offset, data)


def recorded(path: Path) -> tuple[QueueDisk, dict[bytes, int]]:
    """Puts through a component: the log of the disk, and from which place of it on each message was confirmed."""
    confirmed: dict[bytes, int] = {}
    options = {"slots": 64, "data_bytes": 64 << 10, "spill_bytes": 3000, "index_sync_ms": 0}
    with penstock.create(path, **options) as q:  # type: ignore[arg-type]
        syncer = QueueSyncer(path)
        serving = threading.Thread(target=syncer.run)
        disk = QueueDisk(path)
        with disk:
            serving.start()
            for i in range(14):
                bodies = [b"%d.%d" % (i, k) + bytes(300 * k) for k in range(1 + i % 3)]
                if len(bodies) == 1:
                    q.put(bodies[0] + bytes(4000 if i == 6 else 0))
                    bodies = [bodies[0] + bytes(4000 if i == 6 else 0)]
                else:
                    q.put_many(bodies)
                confirmed.update(dict.fromkeys(bodies, disk.now()))
        syncer.stop()
        serving.join()
        assert syncer.served == 14, "all of them were confirmed by the component"
        assert disk.bypassed() == []
        syncer.close()
    return disk, confirmed


def test_what_the_component_confirmed_survives_a_power_loss(folder: Path) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = folder / "queue"
    disk, confirmed = recorded(path)
    places = [place for at in confirmed.values() for place in (at - 1, at)] + disk.turning_points()
    for number in range(LOSSES):
        at = rng.choice(places) if rng.random() < 0.7 else rng.randint(0, len(disk.log))
        mode = NOTHING if number % 3 == 0 else rng.choice((*MODES, SECTORS))
        image = disk.image(rng, at, mode)
        image.reboot(disk.kernel, rng)
        image.write(path)
        with penstock.open(path) as q:
            found = [message.data for message in q.browse()]
        assert len(found) == len(set(found)) and set(found) <= set(confirmed)
        lost = {body for body, place in confirmed.items() if place <= at} - set(found)
        assert not lost, f"seed {seed}, loss {number}: {sorted(lost)} were confirmed"
        assert check_queue(path) == []
    disk.close()
