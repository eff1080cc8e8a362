"""The power is lost at any moment and any part of what was not synced is kept (issue of S5 to S7): nothing confirmed is
lost, nothing is invented, nothing acknowledged before the last index sync returns, batches are whole, no number is
given twice, and a restore that is cut short ends the same.

``PENSTOCK_SEED=123`` runs that seed alone.
"""

import errno
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import rig
from penstock.timequeue import restore_queue
from tests.crash import trial as t
from tests.crash.ledger import Found, Sent, found, make_body
from tests.crash.storage import EVERYTHING, KERNEL_ONLY, MODES, SECTORS, Disk
from tests.crash.workload import NUMBERS_LEFT, Killed, Workload, abandon
from tests.snapshot import FAST
from tests.thoroughness import FIRST, IN_FULL, chosen

SEEDS = 550 if IN_FULL else 150
SEED = 0 if IN_FULL else FIRST  # the first of them
SEEDS_A_TEST = 25
pytestmark = pytest.mark.timeout(600)  # a search is not cut off because the machine is busy
PLACES = 60  # of a scripted run where nothing but a word of the kernel was stored; of the first one, all
FOUND_WRONG = (147885275, 3246174993, 1900007470)  # by the soak, and mended since
OF_THE_KERNEL = (EVERYTHING, KERNEL_ONLY, SECTORS)  # what such a store makes a difference to


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The disk is simulated: a real one under it would only be slow."""
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-power-", dir=FAST)))
    yield made
    shutil.rmtree(made)


def seeds() -> list[range]:
    alone = os.environ.get("PENSTOCK_SEED")
    if alone is not None:
        return [range(int(alone), int(alone) + 1)]
    found_wrong = [range(seed, seed + 1) for seed in FOUND_WRONG]
    return [range(first, first + SEEDS_A_TEST) for first in range(SEED, SEED + SEEDS, SEEDS_A_TEST)] + found_wrong


@pytest.mark.parametrize("some", seeds(), ids=lambda some: f"seeds {some.start} to {some.stop - 1}")
def test_what_was_confirmed_survives_a_power_loss(some: range, folder: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in some:
        counts += t.run(folder, seed)
    assert counts["seeds"] == len(some)
    assert len(some) == 1 or counts["messages restored"] > len(some)


class Script(Workload):
    """A few operations, one after the other, instead of random ones."""

    def begin(self) -> penstock.TimeQueue:
        self._overlap = 0.0
        self.queues.append(self._open())
        return self.queues[0]

    def plain(self, size: int, durable: bool = True) -> Sent:
        sent = self.message(self.queues[0], durable)
        sent.body = make_body(sent.token, random.Random(size).randbytes(size))
        sent.options.update(priority=0, type="order", key=None, headers={"a": "b"})
        for name in ("delay", "deliver_at"):
            sent.options.pop(name, None)
        sent.deliver_us = (self.clock.wall_us(),) * 2
        return sent

    def one(self, size: int, durable: bool = True, how: str = "put") -> None:
        self.how = how
        self._put(self.queues[0], [self.plain(size, durable)], one=True)

    def many(self, *sizes: int, durable: bool = True) -> None:
        self._put(self.queues[0], [self.plain(size, durable) for size in sizes])

    def take(self) -> penstock.Message:
        begun = self.disk.now()
        message = self.queues[0].get(block=False)
        self.ledger.sent[found(message).token].delivered.append(begun)
        return message

    def failing(self, kind: str, left: int, put: Callable[[], None]) -> None:
        self._failing = (kind, left, errno.EIO)
        put()
        assert self._failing is None, "it did not get there"

    def dying(self, kind: str, left: int, put: Callable[[], None]) -> None:
        before = self.queues[0]
        self.kill(before, kind, left, lambda _: put())
        assert self.queues[0] is not before, "it did not get there"

    def finish(self) -> None:
        message = self.take()
        self._remove([message], message.ack)


def short(script: Script) -> None:
    """A put, a batch, a delivery, its end, an index sync, and one more put."""
    script.one(100)
    script.many(20, 700, 300)
    script.finish()
    script.sync_index(script.queues[0])
    script.one(2000)


def spilled(script: Script) -> None:
    """Bodies of their own: put, delivered, done, and the index synced, which removes their files."""
    script.one(5000)
    script.many(4000, 20, 4500)
    script.finish()
    script.finish()
    script.sync_index(script.queues[0])
    script.one(4600)


def streamed(script: Script) -> None:
    """Bodies that are copied out of files and pipes; one whose disk fails on the way, one whose client dies."""
    script.one(5000, how="file")
    script.one(5000, how="pipe")
    script.finish()
    script.failing(rig.WRITE, 2, lambda: script.one(5000, how="pipe"))
    script.dying(rig.WRITE, 2, lambda: script.one(5000, how="pipe"))
    script.dying(rig.SYNC, 1, lambda: script.one(4000, how="file"))
    script.sync_index(script.queues[0])
    script.one(4600, durable=False, how="pipe")
    script.one(100)


def part_of_a_batch_is_gone(script: Script) -> None:
    """The others must not depend on the record of one that is gone, whose room is wanted by new messages."""
    script.many(1500, 1500, 1500)
    script.finish()
    for _ in range(20):  # once around the ring
        script.one(1300, durable=False)
    script.one(20)


def room_is_used_again(script: Script) -> None:
    """Each message goes before the next one comes: its record is written where the last one was."""
    for size in (100, 700, 300, 1500):
        script.one(size)
        script.finish()
    script.sync_index(script.queues[0])
    script.one(200)
    script.finish()
    script.one(220)


def failed(script: Script) -> None:
    """Puts that find no lock when their records are on disk already, and are not in the queue then."""
    for size in (100, 5000):
        script.failing(rig.LOCK, 2, lambda: script.one(size))  # noqa: B023
        script.failing(rig.WRITE, 1, lambda: script.many(size, 100, 5000))  # noqa: B023
    script.sync_index(script.queues[0])
    script.one(150)


def killed(script: Script) -> None:
    """Clients that die between the write of their record and its publication; the next one tidies up."""
    for kind, left in ((rig.SYNC, 0), (rig.LOCK, 2)):
        script.dying(kind, left, lambda: script.one(100))
    for left in (2, 3):  # to begin the sync, and after it
        script.dying(rig.LOCK, left, lambda: script.many(100, 100))
    script.sync_index(script.queues[0])
    script.one(150)


def killed_anywhere(script: Script) -> None:
    """Clients that die between two stores of a put of one turn, before and after the write of the record."""
    for part in range(5, 10):
        script.kill_between(script.queues[0], part / 10, lambda _: script.one(100 * part, durable=False))  # noqa: B023
        script.sync_index(script.queues[0])
    script.one(150)


def batch_of_the_dead(script: Script) -> None:
    """All records of a batch are on disk when its client dies. It is given up, one message after the other."""
    script.dying(rig.LOCK, 3, lambda: script.many(100, 200, 300))
    script.one(150)
    script.finish()


def out_of_numbers(script: Script) -> None:
    """The limit of the numbers is raised, on disk, before the first number beyond it is given."""
    for _ in range(NUMBERS_LEFT + 3):
        script.one(20, durable=False)
    script.finish()


SCRIPTS = (
    short,
    spilled,
    streamed,
    part_of_a_batch_is_gone,
    room_is_used_again,
    failed,
    killed,
    killed_anywhere,
    batch_of_the_dead,
    out_of_numbers,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_crashed_after_every_effect(script: Callable[[Script], None], folder: Path) -> None:
    """Of the first script; of the others after every call and many of the stores between. Several times each; what was
    judged before is not judged again."""
    template = t.template_of(folder, 1)
    work = Script(template, 1, late=script is out_of_numbers)

    def run() -> None:
        with work.disk:
            work.begin()
            script(work)

    trial = t.Trial(template.path, work, run)
    points = set(trial.disk.turning_points())
    step = 1 if script is short else len(trial.disk.log) // PLACES + 1
    before = None
    places = []
    for at in range(len(trial.disk.log) + 1):
        settled = work.ledger.settled(at)
        turned = at in points or settled != before
        before = settled
        if at % step == 0 or turned:
            places.append((at, settled, turned))
    here: list[Found] = []
    seen: set[bytes] = set()
    for at, settled, turned in places if script is short else chosen(places):
        for mode in (*MODES, SECTORS) if turned else OF_THE_KERNEL:
            work.rng.seed(f"{at} {mode} {len(seen)}")
            image = trial.disk.image(work.rng, at, mode)
            key = t.fingerprint(image) + repr(settled).encode()
            if key not in seen:
                seen.add(key)
                try:
                    here = trial.lose(image, at)
                except Exception as error:
                    error.add_note(f"at {at} of {len(trial.disk.log)}, {mode} kept")
                    raise
    assert len(seen) > 40
    trial.go_on(here, len(trial.disk.log))


IMAGES = 400 if IN_FULL else 200  # of the disk, of which one in some thirty was wrong


def test_a_batch_that_was_given_up_does_not_come_back_in_part(folder: Path) -> None:
    """It was synced and not published. Its slots were used again, behind another message, and of all that came after
    only the new record is on disk: it says that the old one of its slot counts for nothing."""
    path = folder / "given-up"
    penstock.create(path, slots=30, data_bytes=40 << 10, index_sync_ms=0).close()
    dying = penstock.open(path, busy_s=2)
    other = penstock.open(path, busy_s=2)
    disk = Disk(path)
    put_between = False

    def between(kind: str, target: str) -> None:
        nonlocal put_between
        if put_between and kind == rig.LOCK:
            raise Killed
        if kind == rig.SYNC and target.endswith("data.0"):
            disk.between = None
            other.put(b"behind them" + bytes(100), durability="relaxed")
            disk.between = between
            put_between = True

    with disk:
        disk.between = between
        with pytest.raises(Killed):
            dying.put_many([b"batch 0" + bytes(300), b"batch 1" + bytes(300)])
        disk.between = None
        abandon(dying)
        begun = disk.now()
        assert other._mine().turn(other._mine().return_from_dead) == 2
        other.put(b"again" + bytes(100), durability="relaxed")
        abandon(other)
    rng = random.Random(5)
    counts = Counter[int]()
    for _ in range(IMAGES):
        image = disk.image(rng, rng.randint(begun, disk.now()), SECTORS)
        image.reboot(disk.kernel, rng)
        image.write(disk.root)
        with penstock.open(path, busy_s=2) as q:
            counts[sum(message.data.startswith(b"batch") for message in q.browse(state="all"))] += 1
    disk.close()
    assert set(counts) == {0, 2}, counts


def test_a_repair_that_is_cut_short_brings_no_batch_back_in_part(folder: Path) -> None:
    """It was synced and never published, which is certain before the repair begins; after a power loss only the records
    and what the repair wrote to the slots are left to tell."""
    path = folder / "repaired"
    penstock.create(path, slots=200, data_bytes=200 << 10, index_sync_ms=0).close()
    dying = penstock.open(path, busy_s=2)
    bodies = [b"batch" + bytes(300)] * 100
    with pytest.raises(Killed), Disk(path) as dies:
        dies.between = _die_after_the_sync()
        dying.put_many(bodies)
    dies.close()
    abandon(dying)
    disk = Disk(path)
    with disk:
        restore_queue(path, after_power_loss=False)
    rng = random.Random(5)
    counts = Counter[int]()
    for _ in range(IMAGES // 4):
        image = disk.image(rng, rng.randint(0, disk.now()), SECTORS)
        image.reboot(disk.kernel, rng)
        image.write(disk.root)
        with penstock.open(path, busy_s=2) as q:
            counts[sum(message.data.startswith(b"batch") for message in q.browse(state="all"))] += 1
    disk.close()
    assert set(counts) == {0, len(bodies)}, counts


def _die_after_the_sync() -> Callable[[str, str], None]:
    synced = False

    def between(kind: str, target: str) -> None:
        nonlocal synced
        if synced and kind == rig.LOCK:
            raise Killed
        synced |= kind == rig.SYNC and target.endswith("data.0")

    return between
