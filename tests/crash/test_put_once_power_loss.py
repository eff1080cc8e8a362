"""The power is lost at every effect of ``put_once`` and between its stores: a batch that was confirmed is known and
there, one that is known is there as a whole, one that is not is not there at all; put again, it is there once."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import rig
from penstock.store.publishfiles import PUBLISHED, STATE
from penstock.timequeue import check_queue
from tests.columns import columns
from tests.crash.storage import EVERYTHING, KERNEL_ONLY, MODES, SECTORS, Disk, Image
from tests.crash.workload import Killed, abandon
from tests.snapshot import FAST
from tests.thoroughness import chosen

NAME = "query"
PLACES = 120  # of a run where nothing but a word of the kernel was stored
NEVER = 1 << 60
pytestmark = pytest.mark.timeout(600)  # a search is not cut off because the machine is busy


class PublisherDisk(Disk):
    """Besides, what the file of the publisher may be: as of the last sync of its folder, or of a later rename."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.home = self.root / PUBLISHED / NAME
        self._first = self._read(STATE)
        self._events: list[tuple[int, bytes | None]] = []  # where in the log: renamed, or (None) synced
        self._ready = False

    def _read(self, name: str) -> bytes:
        file = self.home / name
        return file.read_bytes() if file.exists() else b""

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        super().effect(kind, target, offset, data)
        path = Path(target if isinstance(target, str) else os.readlink(f"/proc/self/fd/{target}"))
        if path.parent == self.home and path.name.startswith(STATE):
            if self.between is not None:
                self.between(kind, str(path))
            if kind == rig.WRITE:
                self._ready = False
            elif kind == rig.SYNC:
                self._ready = True
            elif kind == rig.RENAME:
                # A file that was not synced may be empty, or anything.
                self._events.append((self.now(), self._read(path.name) if self._ready else b"not synced"))
        elif path == self.home and kind == rig.SYNC:
            if self.between is not None:
                self.between(kind, str(path))
            self._events.append((self.now(), None))

    def states(self, at: int) -> list[bytes]:
        found = [self._first]
        for place, contents in self._events:
            if place > at:
                break
            found = [*found, contents] if contents is not None else [found[-1]]
        return found

    def put(self, image: Image, state: bytes, rng: random.Random) -> None:
        image.reboot(self.kernel, rng)
        image.write(self.root)
        for file in self.home.glob(f"{STATE}*"):
            file.unlink()
        if state:
            (self.home / STATE).write_bytes(state)


class Run:
    """What a publisher did, by places of the log."""

    def __init__(self, path: Path, *, in_columns: bool = False) -> None:
        self.path = path
        self._in_columns = in_columns
        self.queue = penstock.open(path, busy_s=2)
        assert self.queue.put_once(NAME, 0, [b"0/0"])
        self.queue.sync_index()
        self.disk = PublisherDisk(path)
        self.batches: dict[int, list[bytes]] = {0: [b"0/0"]}
        self.done: dict[int, int] = {0: 0}
        self.gone: dict[bytes, int] = {}  # where its ack began
        self._dies: tuple[str, int] | None = None
        self.disk.between = self._between

    def _between(self, kind: str, path: str) -> None:
        if self._dies is None:
            return
        wanted, left = self._dies
        if left == 0 and kind in (wanted, rig.LOCK):
            if wanted != rig.LOCK:
                self._dies = (rig.LOCK, 0)  # whatever it tries now
            raise Killed
        if kind == wanted:
            self._dies = (wanted, left - 1)

    def put(self, number: int, *sizes: int) -> bool:
        bodies = [b"%d/%d" % (number, i) + bytes(size) for i, size in enumerate(sizes)]
        self.batches[number] = bodies
        if self._in_columns:
            published = self.queue.put_entries_once(NAME, number, lambda: columns(bodies, piece=1)) is not None
        else:
            published = self.queue.put_once(NAME, number, bodies) is not None
        self.done.setdefault(number, self.disk.now())
        return published

    def dying(self, kind: str, left: int, number: int, *sizes: int) -> None:
        """An attempt that is killed at such an effect; another process goes on."""
        self._dies = (kind, left)
        self.batches[number] = []
        self.done[number] = NEVER
        with pytest.raises(Killed):
            self.put(number, *sizes)
        del self.done[number]
        abandon(self.queue)
        self._dies = None
        self.queue = penstock.open(self.path, busy_s=2)

    def take(self, most: int) -> None:
        """Delivered and acknowledged, without an index sync."""
        messages = self.queue.get_many(most)
        for message in messages:
            self.gone[message.data] = self.disk.now()
        self.queue.ack_many(messages)

    def others(self, count: int, size: int) -> None:
        """Room that was given back is written to."""
        for i in range(count):
            self.queue.put(b"other %d" % i + bytes(size), durability="relaxed")

    def judge(self, at: int) -> int:
        """What is there after a restore; the last number that is remembered."""
        with penstock.open(self.path, busy_s=2) as queue:
            (known,) = [each.last for each in queue.publishers() if each.publisher == NAME]
            assert known is not None
            self._check(queue, known, at)
            for number in sorted(self.batches):
                ids = queue.put_once(NAME, number, self.batches[number])
                assert (ids is None) == (number <= known)
                if ids is None:
                    continue
                assert not any(self.gone.get(body, NEVER) < at for body in self.batches[number]), number
            counts = Counter(message.data for message in queue.browse(state="all"))
            bodies = [body for batch in self.batches.values() for body in batch]
            assert all(counts[body] == 1 or (counts[body] == 0 and self.gone.get(body, NEVER) < at) for body in bodies)
        assert check_queue(self.path) == []
        return known

    def _check(self, queue: penstock.TimeQueue, known: int, at: int) -> None:
        counts = Counter(message.data for message in queue.browse(state="all"))
        for number, bodies in self.batches.items():
            assert max((counts[body] for body in bodies), default=0) <= 1
            here = [body for body in bodies if counts[body]]
            if number > known:
                assert not here and self.done.get(number, NEVER) > at, number
            else:
                assert all(counts[body] or self.gone.get(body, NEVER) < at for body in bodies), number

    def look(self) -> tuple[list[str], int | None]:
        """Restores, and changes nothing."""
        with penstock.open(self.path, busy_s=2) as queue:
            return [message.id for message in queue.browse(state="all")], queue.publishers()[0].last


def plain(run: Run) -> None:
    run.put(1, 300, 5000, 20)
    run.put(2, 100)
    assert not run.put(2, 100)
    run.put(3)


def taken_and_overwritten(run: Run) -> None:
    """Batches of one and of several are done with at once, and others want their room."""
    for number in range(1, 4):
        run.put(number, *(1500,) * number)
        run.take(10)
        run.others(6, 1500)
        run.take(10)


def synced_in_between(run: Run) -> None:
    run.put(1, 1500, 1500)
    run.take(10)
    run.queue.sync_index()
    run.others(20, 1500)
    run.put(2, 700)


def dead_attempts(run: Run) -> None:
    """Attempts that die before and after their records are on disk; the next one has the same number."""
    run.dying(rig.RENAME, 0, 1, 300, 400)
    run.put(1, 300, 400)
    run.dying(rig.SYNC, 2, 2, 300, 400)
    run.put(2, 300, 400)
    run.dying(rig.LOCK, 6, 3, 300, 400)
    run.put(3, 300, 400)


def dead_on_disk(run: Run) -> None:
    """All of a batch is synced when its process dies."""
    run.dying(rig.LOCK, 8, 1, 300)
    run.put(1, 300)
    run.dying(rig.LOCK, 7, 2, 300, 5000)
    run.put(2, 300, 5000)
    run.dying(rig.LOCK, 7, 3, 5000)
    run.others(1, 200)
    run.put(3, 5000)


RUNS = (plain, taken_and_overwritten, synced_in_between, dead_attempts, dead_on_disk)


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-once-", dir=FAST) as folder:
        yield Path(os.path.realpath(folder)) / "queue"


@pytest.mark.parametrize("in_columns", [False, True], ids=["entries", "columns"])
@pytest.mark.parametrize("script", RUNS, ids=lambda script: script.__name__)
def test_the_power_is_lost_at_every_effect(script: Callable[[Run], None], in_columns: bool, path: Path) -> None:
    penstock.create(path, slots=30, data_bytes=40 << 10, spill_bytes=3000, index_sync_ms=0).close()
    run = Run(path, in_columns=in_columns)
    disk = run.disk
    with disk:
        script(run)
    disk.between = None
    abandon(run.queue)
    rng = random.Random(script.__name__)
    points = set(disk.turning_points()) | {place for place, _ in disk._events}
    step = len(disk.log) // PLACES + 1
    seen: set[tuple[int, int]] = set()
    for at in chosen([at for at in range(len(disk.log) + 1) if at % step == 0 or at in points]):
        for mode in (*MODES, SECTORS, SECTORS) if at in points else (EVERYTHING, KERNEL_ONLY, SECTORS):
            for state in disk.states(at):
                image = disk.image(rng, at, mode)
                disk.put(image, state, rng)
                try:
                    again(run, disk, image, state, rng) if rng.random() < 0.15 else None
                    seen.add((run.judge(at), max(n for n, done in run.done.items() if done <= at)))
                except BaseException as error:
                    error.add_note(f"at {at} of {len(disk.log)}, {mode} kept")
                    raise
    disk.close()
    assert len(seen) > 3


def again(run: Run, disk: PublisherDisk, image: Image, state: bytes, rng: random.Random) -> None:
    """The restore itself is cut, and then another power loss comes: nothing changes."""
    second = PublisherDisk(run.path)
    with second:
        before = run.look()
    at = rng.randint(0, len(second.log))
    half = second.image(rng, at, rng.choice(MODES))
    found = rng.choice(second.states(at))
    second.close()
    second.put(half, found, rng)
    assert run.look() == before


def test_a_batch_that_is_known_has_what_was_put_before_under_its_dedup_ids(path: Path) -> None:
    """The first of them was relaxed. Who asks again is told that the batch is published, and puts nothing."""
    penstock.create(path, slots=30, data_bytes=40 << 10, spill_bytes=3000, index_sync_ms=0).close()
    queue = penstock.open(path, busy_s=2)
    queue.put_once(NAME, 0, [b"0"])
    queue.sync_index()
    batches = {1: [b"1/0", b"1/1"], 2: [b"2/0" + bytes(5000)]}
    disk = PublisherDisk(path)
    with disk:
        for number, bodies in batches.items():
            queue.put(bodies[0], dedup_id=str(number), durability="relaxed")
            queue.put_once(NAME, number, [penstock.Draft(body=bodies[0], dedup_id=str(number)), *bodies[1:]])
    abandon(queue)
    rng = random.Random(11)
    points = set(disk.turning_points()) | {place for place, _ in disk._events}
    known = set()
    for at in [at for at in range(len(disk.log) + 1) if at % 10 == 0 or at in points]:
        for mode in (EVERYTHING, KERNEL_ONLY, SECTORS):
            for state in disk.states(at):
                disk.put(disk.image(rng, at, mode), state, rng)
                with penstock.open(path, busy_s=2) as after:
                    there = {message.data for message in after.browse(state="all")}
                    last = after.publishers()[0].last
                    assert last is not None
                    known.add(last)
                    lost = [number for number in batches if number <= last and not there.issuperset(batches[number])]
                    assert lost == [], f"at {at} of {len(disk.log)}, {mode} kept"
    disk.close()
    assert known == {0, 1, 2}
