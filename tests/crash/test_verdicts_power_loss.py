"""The power is lost at every effect of noting verdicts and of committing a claim that has some: what was noted is there
when that returned, a message that failed is never acknowledged by it, one that is dead is a dead letter once, and what
is claimed again belongs to the later claim.

Of the kernel and of the names in ``claims/`` anything may be on disk that ``test_claims_power_loss.py`` says, and of
the names each for itself. The queue of dead letters is as it was at that moment: what is put there is synced.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import rig
from penstock.timequeue import check_queue
from penstock.timequeue.claims import Receiver
from penstock.timequeue.verdicts import Dead, Failed, Verdict, note
from tests.crash.test_claims_killed import NAME
from tests.crash.test_claims_power_loss import Moment, Names, Recorder, kernels, put
from tests.snapshot import FAST, Snapshot, overwrite

OPTIONS = {"slots": 24, "data_bytes": 32 << 10, "spill_bytes": 3000, "dedup_entries": 64, "durability": "relaxed"}
BODIES = (b"first", b"failed", b"last", b"dead" * 1000, b"acked", b"other", b"left")
NAME_MIXES = 2


class BothRecorder(Recorder):
    """Notes the dead letters, too."""

    def __init__(self, path: Path) -> None:
        self._dead = path.with_name("queue.dead")
        self.dead: list[dict[Path, bytes]] = []
        super().__init__(path)

    def now(self) -> None:
        super().now()
        self.dead.append({file: file.read_bytes() for file in self._dead.rglob("*") if file.is_file()})


def names_of(moment: Moment, rng: random.Random) -> Iterator[Names]:
    old, new = moment.names
    yield old
    yield new
    for _ in range(NAME_MIXES if old != new else 0):
        chosen = {name: rng.choice((old, new)) for name in sorted({*old, *new})}
        yield {name: of[name] for name, of in chosen.items() if name in of}


class Case:
    """A queue with a claim of six messages, one more that waits, and verdicts on some."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue"
        self.queue = penstock.create(self.path, **OPTIONS)
        self.ids = {body[:4]: self.queue.put(body, max_attempts=1 if body == b"last" else None) for body in BODIES}
        penstock.create(folder / "queue.dead", **OPTIONS).close()
        self.receiver = self.queue.receiver(NAME)
        assert self.receiver.claim(6)

    def verdicts(self) -> list[Verdict]:
        return [
            Failed(self.ids[b"fail"], "no"),
            Failed(self.ids[b"last"], "too often"),
            Dead(self.ids[b"dead"], "poison"),
        ]

    def record(self, operate: Callable[[Receiver], object]) -> BothRecorder:
        self.queue.sync_index()
        recorder = BothRecorder(self.path)
        recorder.now()
        rig.observe(recorder)
        try:
            operate(self.receiver)
        finally:
            rig.observe(None)
        recorder.now()
        self.receiver.close()
        self.queue.close()
        return recorder

    def losses(self, recorder: BothRecorder, seed: str) -> Iterator[tuple[int, bool]]:
        """The queue as each loss leaves it: the moment, and whether it is the end."""
        saved = Snapshot(self.path)
        for file in list(saved.files):
            if file.parent.name in (NAME, "bodies", "failures", "moves"):
                del saved.files[file]
        rng = random.Random(seed)
        for place, (moment, dead) in enumerate(zip(recorder.moments, recorder.dead, strict=True)):
            for index, kernel in enumerate(kernels(moment, rng)):
                names = list(names_of(moment, rng))
                for some in names if index < 2 else rng.sample(names, 1):
                    put(saved, kernel, some, moment.bodies)
                    folder = self.path.with_name("queue.dead")
                    for file in [file for file in folder.rglob("*") if file.is_file() and file not in dead]:
                        file.unlink()
                    for file, data in dead.items():
                        overwrite(file, data) if file.exists() else file.write_bytes(data)
                    yield place, place == len(recorder.moments) - 1
        assert len(recorder.moments) > 4


@pytest.fixture
def case() -> Iterator[Case]:
    with tempfile.TemporaryDirectory(prefix="penstock-verdicts-", dir=FAST) as folder:
        yield Case(Path(folder))


def judge(case: Case, place: int, *, at_end: bool) -> list[bytes]:
    """What is claimed."""
    with penstock.open(case.path, busy_s=2) as queue:
        assert queue.stats().restores == 1
        with queue.receiver(NAME) as receiver:
            if 1 in receiver.claims():
                assert not at_end and receiver.count(1) == queue.stats().claimed == 6, place
                receiver.commit(1)
            again = [number for number in receiver.claims() if receiver.count(number)]
            claimed = [message.data for message in queue.browse(state="pending")]
            assert len(claimed) == sum(receiver.count(number) for number in again), place
            attempts = {message.data: message.attempts for message in queue.browse(state="all")}
        waiting = [message.data for message in queue.browse()]
        assert sorted(waiting + claimed) == [b"failed", b"left"], place
        assert attempts[b"failed"] in ((2,) if b"failed" in claimed else (1, 2)), place  # a claim was perhaps begun
        with penstock.open(case.path.with_name("queue.dead"), busy_s=2) as dead:
            letters = sorted((letter.data[:4], letter.reason, letter.attempts_before) for letter in dead.browse())
            assert letters == [(b"dead", "poison", 1), (b"last", "max_attempts", 1)], place
            assert dead.qsize() == 2
    assert check_queue(case.path) == []
    assert check_queue(case.path.with_name("queue.dead")) == []
    return claimed


def test_what_was_noted_is_there_when_that_returned(case: Case) -> None:
    old: list[Verdict] = [Dead(case.ids[b"othe"], "old")]
    note(case.queue, NAME, old)
    recorder = case.record(lambda receiver: note(case.queue, NAME, case.verdicts()))
    seen = set()
    for place, at_end in case.losses(recorder, "note"):
        with penstock.open(case.path, busy_s=2) as queue, queue.receiver(NAME) as receiver:
            count = len(receiver._files.verdicts(1))
            assert receiver.claims() == [1] and receiver.count(1) == queue.stats().claimed == 6
            assert count == 3 if at_end else count in (1, 3), place
            seen.add(count)
            if count == 1:
                note(queue, NAME, case.verdicts())
            receiver.commit(1)
        assert check_queue(case.path) == []
    assert seen == {1, 3}


CLAIMED_AFTER = {"commit": 0, "commit, and what comes after": 2, "commit later": 1}
OPERATIONS: dict[str, Callable[[Receiver], object]] = {
    "commit": lambda receiver: receiver.commit(1),
    "commit, and what comes after": lambda receiver: (receiver.commit(1), receiver.claim(5), receiver.is_due()),
    "commit later": lambda receiver: (receiver.commit(1, later=True), receiver.claim(1), receiver.settle()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_failed_is_not_acknowledged_and_what_is_dead_is_a_dead_letter_once(name: str, case: Case) -> None:
    note(case.queue, NAME, case.verdicts())
    recorder = case.record(OPERATIONS[name])
    for place, at_end in case.losses(recorder, name):
        claimed = judge(case, place, at_end=at_end)
        assert not at_end or len(claimed) == CLAIMED_AFTER[name]


def test_what_was_claimed_again_by_another_is_in_that_claim(case: Case) -> None:
    """Before the files of the first claim are gone for good."""
    note(case.queue, NAME, case.verdicts())
    folder = case.path / "claims" / NAME
    kept = {name: (folder / name).read_bytes() for name in ("1", "1.verdicts")}
    with case.queue.receiver("second") as another:
        case.record(lambda receiver: (receiver.commit(1), another.claim(5)))
    for name, data in kept.items():
        (folder / name).write_bytes(data)
    saved = Snapshot(case.path)
    kernel = (case.path / "kernel").read_bytes()
    put(saved, kernel, kept, {})
    with penstock.open(case.path, busy_s=2) as queue:
        assert queue.stats().restores == 1
        queue.receiver(NAME).close()
        with queue.receiver("second") as receiver:
            (number,) = receiver.claims()
            assert receiver.count(number) == 2 == queue.stats().claimed and queue.qsize() == 0
            receiver.commit(number)
        assert list(queue.browse(state="all")) == []
