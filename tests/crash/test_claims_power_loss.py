"""The power is lost at every effect of a receiver's calls: a claim that was returned is there with the same messages, a
commit or release that returned holds, one that was cut is there as a whole or not at all, and no message is lost.

Of the kernel, any line of 64 bytes is as it was at its last sync or as it is; names in ``claims/`` are those of the
last sync of their directory or those of now, and a file has contents only if it was synced.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue import check_queue
from penstock.timequeue.claims import Receiver
from tests.crash.test_claims_killed import NAME, OPERATIONS, Found, fill, is_claimed_in_part, numbers, with_claims
from tests.snapshot import FAST, Snapshot, overwrite

LINE_BYTES = 64
MIXES = 6

Names = dict[str, bytes]


class Moment(NamedTuple):
    """What is on disk for certain, and what may be."""

    kernel: tuple[bytes, bytes]
    names: tuple[Names, Names]
    bodies: Names  # those that are there: one that is removed is gone at once


class Recorder:
    """Notes a moment before each effect; an observer for ``rig.observe``."""

    def __init__(self, path: Path) -> None:
        self._kernel = Path(os.path.realpath(path)) / "kernel"
        self._folder = self._kernel.parent / "claims" / NAME
        self._synced: set[int] = set()
        self._kernel_on_disk = self._kernel.read_bytes()
        for file in self._files():
            self._synced.add(file.stat().st_ino)
        self._names_on_disk = self._names()
        self.moments: list[Moment] = []

    def _files(self) -> list[Path]:
        return [file for file in self._folder.iterdir() if file.name != "lock"]

    def _names(self) -> Names:
        return {f.name: f.read_bytes() if f.stat().st_ino in self._synced else b"" for f in self._files()}

    def _bodies(self) -> Names:
        return {file.name: file.read_bytes() for file in (self._kernel.parent / "bodies").iterdir()}

    def now(self) -> None:
        kernel = (self._kernel_on_disk, self._kernel.read_bytes())
        self.moments.append(Moment(kernel, (self._names_on_disk, self._names()), self._bodies()))

    def store(self, path: str, index: int, value: int) -> None:
        """Words of the kernel are seen at the next effect."""

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind not in rig.FATAL:
            return
        self.now()
        if kind == rig.SYNC:
            self._sync(Path(os.readlink(f"/proc/self/fd/{target}")))

    def _sync(self, file: Path) -> None:
        if file == self._kernel:
            self._kernel_on_disk = file.read_bytes()
        elif file == self._folder:
            self._names_on_disk = self._names()
        elif file.parent == self._folder:
            self._synced.add(file.stat().st_ino)


def kernels(moment: Moment, rng: random.Random) -> Iterator[bytes]:
    """As synced, as it is, and mixed of both."""
    old, new = moment.kernel
    yield old
    yield new
    lines = [at for at in range(0, len(new), LINE_BYTES) if old[at : at + LINE_BYTES] != new[at : at + LINE_BYTES]]
    for _ in range(MIXES if lines else 0):
        mixed, share = bytearray(new), rng.random()
        for at in lines:
            if rng.random() < share:
                mixed[at : at + LINE_BYTES] = old[at : at + LINE_BYTES]
        yield bytes(mixed)


def put(saved: Snapshot, kernel: bytes, names: Names, bodies: Names) -> None:
    """After another boot."""
    saved.put_back()
    data = bytearray(kernel)
    data[L.H_BOOT_ID * L.WORD_BYTES] ^= 1
    overwrite(saved.path / "kernel", data)
    folder = saved.path / "claims" / NAME
    for name, contents in names.items():
        (folder / name).write_bytes(contents)
    for name, contents in bodies.items():
        (saved.path / "bodies" / name).write_bytes(contents)


def look(path: Path) -> Found:
    with penstock.open(path, busy_s=2) as queue:
        assert queue.stats().restores == 1
        with queue.receiver(NAME) as receiver:
            found = {number: numbers(receiver.references(number)) for number in receiver.claims()}
        claimed = [number for rows in found.values() for number in rows]
        assert [message.number for message in queue.browse(state="pending")] == claimed
        waiting = [message.number for message in queue.browse()]
        assert len({*waiting, *claimed}) == len(waiting) + len(claimed)
    assert check_queue(path) == []
    return Found(waiting, found, False)


def prepared(path: Path, prepare: Callable[[Path], Receiver]) -> tuple[penstock.TimeQueue, Receiver]:
    """On disk, so that what is lost is the operation's."""
    receiver = prepare(path)
    queue = receiver._queue
    assert isinstance(queue, penstock.TimeQueue)
    queue.sync_index()
    return queue, receiver


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-claims-", dir=FAST) as folder:
        yield Path(folder) / "queue"


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "open"])
def test_the_power_is_lost_at_every_effect(name: str, path: Path) -> None:
    prepare, operate = OPERATIONS[name]
    fill(path)
    queue, receiver = prepared(path, prepare if name != "claim" else with_claims())
    recorder = Recorder(path)
    recorder.now()
    rig.observe(recorder)
    try:
        operate(receiver)
    finally:
        rig.observe(None)
    recorder.now()
    receiver.close()
    queue.close()
    saved = Snapshot(path)
    for file in list(saved.files):
        if file.parent.name in (NAME, "bodies"):
            del saved.files[file]
    rng = random.Random(name)
    results: list[Found] = []
    for moment in (recorder.moments[0], recorder.moments[-1]):
        put(saved, moment.kernel[1], moment.names[1], moment.bodies)
        results.append(look(path))
    before, after = results
    assert before != after
    for place, moment in enumerate(recorder.moments):
        for kernel in kernels(moment, rng):
            for names in moment.names:
                put(saved, kernel, names, moment.bodies)
                found = look(path)
                if moment is recorder.moments[-1]:
                    assert found == after
                elif name.endswith("claim"):
                    assert is_claimed_in_part(found, before, after), place
                else:
                    assert found in (before, after), place
    assert len(recorder.moments) > 5
