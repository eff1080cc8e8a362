"""Kill -9 at every store and effect of a worker of scripts, and of the one that comes after it: each message has
changed its context once, and its follow-ups, timers and reply are there once."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.scripts import Worker
from penstock.scripts.folder import Folder
from penstock.scripts.store import Store
from penstock.store import rig
from tests.crash.rig import in_child
from tests.crash.scripted import Shop, app, kill_at_steps, kill_two
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL, STEPS_MAX

# Gets, puts and acknowledgements are killed at every step elsewhere: here it is their order that counts, and that of
# the transactions between them.
EVERY = 17 if IN_FULL else 101
AGAIN_EVERY = 301 if IN_FULL else 701
SECOND_EVERY = 151 if IN_FULL else 499


class Saved:
    """The files of queues and of the store, to be put back as often as needed."""

    def __init__(self, queues: list[Path], store: Path) -> None:
        self._queues = [Snapshot(queue) for queue in queues]
        self._files = [store.with_name(store.name + extra) for extra in ("", "-wal", "-shm")]
        self._stored = {path: path.read_bytes() for path in self._files if path.exists()}

    def put_back(self) -> None:
        for queue in self._queues:
            queue.put_back()
        for path in self._files:
            path.unlink(missing_ok=True)
        for path, data in self._stored.items():
            path.write_bytes(data)


class Root(Shop):
    def __init__(self, path: Path) -> None:
        self.folder = Folder(path, "shop")
        super().__init__(path, exclusive_keys=True)

    def saved(self) -> Saved:
        """All as it is now."""
        return Saved(self.queues, self.folder.store)

    def worker(self) -> Worker:
        return app.worker(self.path, busy_s=5)

    def finish(self) -> None:
        with self.worker() as worker:
            worker.run(until_empty=True)

    def judge(self) -> list[str]:
        waiting = super().judge()
        store = Store(self.folder.store, busy_s=5)
        try:
            timers = [timer.id for _, kept in store.all_contexts() for timer in kept.timers.values()]
            assert len(timers) == 2 and all(waiting.count(timer) == 1 for timer in timers)
            assert store.slots() == [], "what is done and what is to be put has been settled"
        finally:
            store.close()
        return waiting


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    with tempfile.TemporaryDirectory(prefix="penstock-scripts-", dir=FAST) as folder:
        yield Root(Path(folder))


def works(worker: Worker) -> None:
    worker.run(until_empty=True)
    worker.close()


def test_killed_at_every_step_each_message_has_its_effects_once(root: Root) -> None:
    kill_at_steps(root, EVERY, works, root.worker, least=500)


class KilledAtTransaction:
    """Ends this process just before the ``nth`` transaction of the store begins or is committed, or just after."""

    def __init__(self, store: Path, nth: int, *, after: bool) -> None:
        self._store = str(store)
        self._left = nth
        self._after = after

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        self.store("", 0, 0)
        self._left -= target == self._store
        if not self._after:
            self.store("", 0, 0)

    def store(self, path: str, index: int, value: int) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("after", [False, True])
def test_killed_around_each_transaction_each_message_has_its_effects_once(root: Root, after: bool) -> None:
    for nth in range(1, STEPS_MAX):
        root.begun.put_back()

        def watched(nth: int = nth) -> None:
            with root.worker() as worker:
                rig.observe(KilledAtTransaction(root.folder.store, nth, after=after))
                worker.run(until_empty=True)

        status = in_child(watched)
        assert in_child(root.finish) == 0
        root.judge()
        if not os.WIFSIGNALED(status):
            assert status == 0 and nth > 5
            return


def test_the_next_worker_may_be_killed_at_every_step_too(root: Root) -> None:
    kill_two(root, AGAIN_EVERY, SECOND_EVERY, works, root.worker, least=10)
