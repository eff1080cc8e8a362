"""A power loss from beginning to end, all of it from a seed: work, crash, restore, judge; again, and cut short."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import penstock
from penstock.store import layout as L
from penstock.store.directory import read_options
from penstock.store.files import KERNEL
from penstock.store.kernel import Kernel
from penstock.store.keys import dedup_key
from penstock.store.words import Words
from penstock.timequeue import check_queue
from tests.conftest import SimulatedClock
from tests.crash.ledger import Found, found
from tests.crash.storage import MODES, SECTORS, WROTE, Disk, Image
from tests.crash.workload import FAR_S, TEMPLATES, Template, Workload, abandon, dedup_id

STEPS = (5, 25, 60)  # of the work before the power is lost
WEIGHTED_MODES = (*MODES, SECTORS, SECTORS, SECTORS)


class Wrong(AssertionError):
    """The queue is not what it must be after a power loss."""


def expect(wrong: list[str], when: str) -> None:
    if wrong:
        raise Wrong(f"{when}: " + "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""))


def faults(path: Path) -> list[str]:
    return [f"{finding.path}: {finding.offset}: {finding.what}" for finding in check_queue(path)]


def opened(path: Path, clock: SimulatedClock) -> penstock.TimeQueue:
    """The first open after a power loss: restores the queue by itself."""
    return penstock.open(path, clock=clock, busy_s=5)


def restored(path: Path, clock: SimulatedClock) -> list[Found]:
    """What is there after the first open, which must also leave nothing for a check to find."""
    before = restores(path)
    queue = opened(path, clock)
    try:
        if restores(path) != before + 1:
            raise Wrong("it was opened without a restore")
        here = [found(message) for message in queue.browse(state="all")]
        expect(faults(path), "a check after the restore finds")
        return here
    finally:
        abandon(queue)


def restores(path: Path) -> int:
    """How often the queue was restored, as its kernel says."""
    with open(path / KERNEL, "rb") as file:
        file.seek(L.H_STATS_AT * L.WORD_BYTES)
        file.seek((int.from_bytes(file.read(8), "little") + L.T_RESTORES) * L.WORD_BYTES)
        return int.from_bytes(file.read(8), "little")


def reboot(path: Path, kernel: str) -> None:
    """As if the machine had been started anew, with everything on disk."""
    with open(kernel, "r+b") as file:
        file.seek(L.H_BOOT_ID * L.WORD_BYTES)
        word = int.from_bytes(file.read(8), "little")
        file.seek(L.H_BOOT_ID * L.WORD_BYTES)
        file.write((word ^ 0x5555).to_bytes(8, "little"))


class Trial:
    """Work that was recorded, ready for power losses at any of its places."""

    def __init__(self, path: Path, work: Workload, run: Callable[[], None]) -> None:
        self.path = path
        self.work = work
        self.rng = work.rng
        self.clock = work.clock
        try:
            run()
            expect(self.work.disk.bypassed(), "written past the hook")
        finally:
            self.work.abandon()

    @classmethod
    def of(cls, folder: Path, seed: int) -> Trial:
        template = template_of(folder, seed % len(TEMPLATES))
        work = Workload(template, seed)
        return cls(template.path, work, lambda: work.run(work.rng.choice(STEPS)))

    @property
    def disk(self) -> Disk:
        return self.work.disk

    @functools.cached_property
    def _turning_points(self) -> list[int]:
        return self.disk.turning_points()

    def place(self) -> int:
        """Where the power is lost."""
        points = self._turning_points
        if points and self.rng.random() < 0.5:
            return min(self.rng.choice(points) + self.rng.choice((0, 0, 1)), len(self.disk.log))
        return self.rng.randint(0, len(self.disk.log))

    def given(self, at: int) -> int:
        """Message numbers below this one may have been given before the power loss."""
        where = L.H_NUMBER_NEXT * L.WORD_BYTES
        return max((e[3] for e in self.disk.log[:at] if e[:3] == (WROTE, self.disk.kernel, where)), default=1)

    def lose(self, image: Image, at: int) -> list[Found]:
        """A power loss, a restore and its judgement."""
        self.put(image)
        here = restored(self.path, self.clock)
        expect(self.work.ledger.judge(here, at), "after the restore")
        expect(self._misremembered(here, at), "after the restore")
        following = self._next_number()
        if following < self.given(at):
            raise Wrong(f"number {following} will be given again: {self.given(at) - 1} was given before")
        return here

    def _misremembered(self, here: list[Found], at: int) -> list[str]:
        """What is known by its dedup id came to be, or the put that is repeated would be lost; and what is there, or
        was put before the last index sync, is known."""
        ledger = self.work.ledger
        signature = read_options(self.path).signature
        there = {one.token for one in here}
        wrong = []
        with open(self.disk.kernel, "rb") as file:
            remembered = Kernel(Words(bytearray(file.read()), self.disk.kernel)).remembered
        for token, sent in ledger.sent.items():
            if "dedup_id" not in sent.options:
                continue
            known = remembered.find(dedup_key(dedup_id(token), signature), 0) != 0
            came_to_be = token in there or sent.may_be_gone(at)
            if known and not came_to_be:
                wrong.append(f"message {token} is remembered, and was never there")
            synced = (
                sent.ok and sent.put.done <= ledger.synced(at) and (sent.durable or sent.is_gone(ledger.synced(at), 0))
            )
            if not known and (token in there or synced):
                wrong.append(f"message {token} is {'there' if token in there else 'on disk'}, and not remembered")
        return wrong

    def _next_number(self) -> int:
        with open(self.disk.kernel, "rb") as file:
            file.seek(L.H_NUMBER_NEXT * L.WORD_BYTES)
            return int.from_bytes(file.read(L.WORD_BYTES), "little")

    def put(self, image: Image) -> None:
        image.reboot(self.disk.kernel, self.rng)
        image.write(self.path)

    def again(self, here: list[Found]) -> None:
        """A second restore changes nothing."""
        reboot(self.path, self.disk.kernel)
        expect(differences(here, restored(self.path, self.clock)), "after a second restore")

    def cut(self, image: Image, here: list[Found], mode: str) -> None:
        """The restore itself is cut by a power loss; the next one ends with the same messages."""
        self.put(image)
        disk = Disk(self.path)
        try:
            with disk:
                abandon(opened(self.path, self.clock))
            expect(disk.bypassed(), "written past the hook by the restore")
            half = disk.image(self.rng, self.rng.randint(0, len(disk.log)), mode)
        finally:
            disk.close()
        self.put(half)
        expect(differences(here, restored(self.path, self.clock)), "after a restore that was cut short")

    def go_on(self, here: list[Found], at: int) -> None:
        """The queue works: everything is delivered in order, new messages get new numbers, nothing is left."""
        self.clock.set_wall(FAR_S + 1_000_000)
        with opened(self.path, self.clock) as queue:
            self._drain(queue, here)
            ids = [queue.put(b"<0:new %d" % i) for i in range(3)]
            numbers = [queue.parse_id(message_id)[1] for message_id in ids]
            expect([f"number {n} was given before" for n in numbers if n < self.given(at)], "after the restore")
            self._drain(queue, [found(message) for message in queue.browse()])
            stats = queue.stats()
            if stats.waiting or stats.pending or stats.filling:
                raise Wrong(f"an emptied queue holds something: {stats}")
        expect(faults(self.path), "a check of the emptied queue finds")

    def _drain(self, queue: penstock.TimeQueue, here: list[Found]) -> None:
        taken = queue.get_many(1000)
        expect(differences(here, [found(message) for message in taken], attempt=1), "delivered after the restore")
        queue.ack_many(taken)
        queue.sync_index()


def differences(before: list[Found], after: list[Found], attempt: int = 0) -> list[str]:
    """What differs between two looks at a queue, apart from attempts beyond ``attempt`` more."""
    if [one.id for one in before] != [one.id for one in after]:
        return [f"{len(before)} messages {[one.id for one in before]} became {[one.id for one in after]}"]
    wrong = []
    for old, new in zip(before, after, strict=True):
        same = Found(**{**vars(new), "attempts": old.attempts})
        if same != old or not old.attempts <= new.attempts <= old.attempts + attempt:
            wrong.append(f"{old} became {new}")
    return wrong


@functools.cache
def template_of(folder: Path, which: int) -> Template:
    return Template(folder, which)


def fingerprint(image: Image) -> bytes:
    digest = hashlib.blake2b()
    for name, data in sorted({**image.files, **image.bodies}.items()):
        digest.update(name.encode() + bytes(data))
    return digest.digest()


def run(folder: Path, seed: int, losses: int = 2) -> Counter[str]:
    """A workload and some power losses. Raises ``Wrong``, or counts what was done."""
    counts: Counter[str] = Counter(seeds=1)
    try:
        trial = Trial.of(folder, seed)
        for _ in range(losses):
            at = trial.place()
            mode = trial.rng.choice(WEIGHTED_MODES)
            image = trial.disk.image(trial.rng, at, mode)
            here = trial.lose(image, at)
            counts["power losses"] += 1
            counts["messages restored"] += len(here)
            if trial.rng.random() < 0.4:
                trial.again(here)
                counts["restored twice"] += 1
            if trial.rng.random() < 0.4:
                trial.cut(image, here, trial.rng.choice(MODES))
                counts["restores cut short"] += 1
        trial.go_on(here, at)
    except Exception as error:
        error.add_note(f"seed {seed}: PENSTOCK_SEED={seed} runs it alone")
        raise
    return counts
