"""The N-th call of each kind fails, once or for good, for every N until the operation gets through (issue of S5).

Whatever fails: the operation is done, or it says what was wrong with which file and is not done; nothing confirmed is
lost, and the next client goes on at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.files import CLIENTS, KERNEL, ClientBytes
from penstock.timequeue import check_queue, repair_queue
from tests.pipes import Pipe
from tests.snapshot import FAST, Snapshot
from tests.thoroughness import IN_FULL

KINDS = (rig.OPEN, rig.ALLOCATE, rig.WRITE, rig.SYNC, rig.LOCK, rig.RENAME, rig.UNLINK)
CODES = (errno.EIO, errno.ENOSPC, errno.EINTR, errno.ENOLCK)
USUAL = {rig.LOCK: errno.ENOLCK, rig.ALLOCATE: errno.ENOSPC, rig.WRITE: errno.ENOSPC}
CALLS_MAX = 1000  # an operation that never gets through would otherwise keep the test busy for ever
SMALL: dict[str, Any] = {"slots": 20, "data_bytes": 16 << 10, "spill_bytes": 1000, "index_sync_ms": 0}
FAR_S = 4_000_000_000

WAITING = [b"first", b"second", b"third " + b"x" * 2000, b"fourth", b"later"]


class Failing:
    """Fails the ``nth`` call of a kind, and with ``for_good`` all that follow. The error is as the system gives it: it
    names a path only where the call was given one."""

    def __init__(self, kind: str, nth: int, code: int, for_good: bool) -> None:
        self._kind = kind
        self._nth = nth
        self._code = code
        self._for_good = for_good
        self.calls = 0

    @property
    def struck(self) -> bool:
        return self.calls >= self._nth

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind != self._kind:
            return
        self.calls += 1
        if self.calls == self._nth or (self._for_good and self.struck):
            named = (target,) if isinstance(target, str) else ()
            raise OSError(self._code, os.strerror(self._code), *named)


@contextlib.contextmanager
def observed(failing: Failing) -> Iterator[None]:
    rig.observe(failing)
    try:
        yield
    finally:
        rig.observe(None)


@pytest.fixture(scope="module")
def saved() -> Iterator[Snapshot]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-failing-", dir=FAST))
    with penstock.create(folder / "queue", **SMALL) as queue:
        for body in WAITING:
            queue.put(body, deliver_at=FAR_S if body == b"later" else None)
        gone = queue.put(b"gone")
        queue.cancel(gone)
    yield Snapshot(folder / "queue")
    shutil.rmtree(folder)


@pytest.fixture
def fast_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-failing-", dir=FAST) as folder:
        yield Path(folder)


class Scene:
    """A queue with a client that is about to do something, and another one that looks on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.queue = penstock.open(path, busy_s=1)
        self.other = penstock.open(path, busy_s=1)
        self.held: list[penstock.Message] = []

    def take(self, *bodies: bytes) -> None:
        """Have exactly these messages delivered."""
        for message in self.queue.get_many(4):
            if message.data in bodies:
                self.held.append(message)
            else:
                message.release()

    def bodies(self) -> list[bytes]:
        return sorted(message.data for message in self.other.browse(state="all"))

    def sync_has_failed(self) -> bool:
        return self.other._mine().kernel.get(L.H_SYNC_FAILED) != 0

    def close(self) -> None:
        self.queue.close()
        self.other.close()


def taking(*bodies: bytes) -> Callable[[Scene], None]:
    return lambda scene: scene.take(*bodies)


def nothing(scene: Scene) -> None:
    pass


def cancel(scene: Scene) -> None:
    (message,) = (m for m in scene.other.browse() if m.data == b"later")
    assert scene.queue.cancel(message.id)


def opened_and_closed(scene: Scene) -> None:
    penstock.open(scene.path, busy_s=1).close()


def closed(scene: Scene) -> None:
    scene.queue.close()


SPILLED = WAITING[2]
NEW = b"new"
BATCH = [b"batch a", b"batch b" * 200, b"batch c"]

# name: prepare, operate, what it adds, what it removes
OPERATIONS: dict[str, tuple[Callable[[Scene], Any], Callable[[Scene], Any], list[bytes], list[bytes]]] = {
    "open": (nothing, opened_and_closed, [], []),
    "put relaxed": (nothing, lambda s: s.queue.put(NEW, durability="relaxed"), [NEW], []),
    "put commit": (nothing, lambda s: s.queue.put(NEW), [NEW], []),
    "put_many": (nothing, lambda s: s.queue.put_many(BATCH), BATCH, []),
    "put_many relaxed": (nothing, lambda s: s.queue.put_many(BATCH, durability="relaxed"), BATCH, []),
    "put spilled": (nothing, lambda s: s.queue.put(NEW * 500), [NEW * 500], []),
    "put_file": (nothing, lambda s: s.queue.put_file(io.BytesIO(NEW * 500)), [NEW * 500], []),
    "put_file of a pipe": (nothing, lambda s: s.queue.put_file(Pipe(NEW * 1000)), [NEW * 1000], []),
    "put_file relaxed": (
        nothing,
        lambda s: s.queue.put_file(Pipe(NEW * 1000), durability="relaxed"),
        [NEW * 1000],
        [],
    ),
    "get": (nothing, lambda s: s.queue.get(block=False), [], []),
    "get_many": (nothing, lambda s: s.queue.get_many(3), [], []),
    "ack": (taking(b"first"), lambda s: s.held[0].ack(), [], [b"first"]),
    "ack of a spilled one": (taking(SPILLED), lambda s: s.held[0].ack(), [], [SPILLED]),
    "ack_many": (
        taking(b"first", SPILLED, b"fourth"),
        lambda s: s.queue.ack_many(s.held),
        [],
        [b"first", SPILLED, b"fourth"],
    ),
    "release": (taking(b"second"), lambda s: s.held[0].release(delay=5), [], []),
    "extend": (taking(b"second"), lambda s: s.held[0].extend(5), [], []),
    "cancel": (nothing, cancel, [], [b"later"]),
    "purge": (nothing, lambda s: s.queue.purge(), [], WAITING),
    "close": (taking(b"first", b"fourth"), closed, [], []),
}


def names(error: BaseException, path: Path) -> bool:
    return str(path) in str(error)


def every_fault(kind: str, run: Callable[[Failing, str], None]) -> None:
    """``run(failing, told)`` once undisturbed; then for each call of the kind that was made, every error in its place.

    Up to the call that fails all runs are alike, so no other call can be the N-th.
    """
    undisturbed = Failing(kind, CALLS_MAX, 0, False)
    run(undisturbed, "undisturbed")
    assert not undisturbed.struck, "it has no end"
    for nth, (code, for_good) in itertools.product(range(1, undisturbed.calls + 1), errors(kind)):
        failing = Failing(kind, nth, code, for_good)
        told = f"{kind} {nth}, {errno.errorcode[code]}{' for good' if for_good else ''}"
        run(failing, told)
        assert failing.struck, f"{told}: never came"


def errors(kind: str) -> list[tuple[int, bool]]:
    """Error numbers, each once and for good; in `make test` some of them."""
    if IN_FULL:
        return list(itertools.product(CODES, (False, True)))
    return [(USUAL.get(kind, errno.EIO), False), (errno.EIO, True), (errno.EINTR, False)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_that_fails(name: str, kind: str, saved: Snapshot) -> None:
    prepare, operate, adds, removes = OPERATIONS[name]
    before = sorted(WAITING)
    after = sorted([body for body in before if body not in removes] + adds)

    def run(failing: Failing, told: str) -> None:
        saved.put_back()
        scene = Scene(saved.path)
        prepare(scene)
        error = attempt(lambda: operate(scene), failing)
        told = f"{name}: {told}: {error!r}"
        assert error is None or names(error, saved.path), told
        here = scene.bodies()
        assert here == after or (error is not None and here == before), f"{told}; {here}"
        if scene.sync_has_failed():
            be_refused(scene, here, told)
        else:
            go_on(scene, told)

    every_fault(kind, run)


def attempt(operate: Callable[[], Any], failing: Failing) -> OSError | penstock.PenstockError | None:
    """Any other kind of exception is not expected and ends the test."""
    try:
        with observed(failing):
            operate()
    except (OSError, penstock.PenstockError) as error:
        return error
    return None


def go_on(scene: Scene, told: str) -> None:
    """Others put, get and acknowledge at once; so does the one whose call failed; and nothing is out of order."""
    assert not check_queue(scene.path), told
    scene.other.put(b"onwards", priority=15, durability="relaxed")
    with scene.other.get(timeout=0) as message:
        assert message.data == b"onwards", told
    if not scene.queue.closed:
        scene.queue.put(b"onwards", priority=15, durability="relaxed")
        with scene.queue.get(timeout=0) as message:
            assert message.data == b"onwards", told
        assert scene.queue.stats().filling == 0, told
    scene.close()
    assert not check_queue(scene.path), told


def be_refused(scene: Scene, here: list[bytes], told: str) -> None:
    """A sync has failed: nobody is promised anything any more, but work goes on; until the queue was looked at."""
    for queue in (scene.queue, scene.other):
        if not queue.closed:
            with pytest.raises(penstock.SyncFailed, match=str(scene.path)):
                queue.put(b"refused")
    taken = scene.other.get_many(10)
    for message in taken[1:]:
        message.release()
    if taken:
        taken[0].ack()
        here.remove(taken[0].data)
    scene.close()
    with penstock.open(scene.path, busy_s=1) as queue:
        assert sorted(message.data for message in queue.browse(state="all")) == here, told
        queue.put(b"confirmed again")
    assert not check_queue(scene.path), told


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operate", [opened_and_closed, closed], ids=lambda operate: operate.__name__)
def test_no_client_outlives_an_open_or_close_that_failed(
    operate: Callable[[Scene], None], kind: str, saved: Snapshot
) -> None:
    """Whoever keeps the error keeps the queue object with it, and must not keep it alive in the eyes of others."""
    errors = []
    for code, for_good in itertools.product(CODES[:1], (False, True)):
        for nth in range(1, CALLS_MAX):
            saved.put_back()
            scene = Scene(saved.path)
            failing = Failing(kind, nth, code, for_good)
            errors.append(attempt(lambda: operate(scene), failing))  # noqa: B023
            scene.close()
            with contextlib.closing(ClientBytes(saved.path / CLIENTS)) as table:
                alive = [client for client in range(L.CLIENTS) if table.alive(client)]
            assert not alive, f"{kind} {nth}: {errors[-1]!r}"
            if not failing.struck:
                break
        else:
            raise AssertionError("the operation has no end")


def test_a_close_that_fails_does_not_take_the_files_from_a_thread_in_a_put(saved: Snapshot) -> None:
    saved.put_back()
    scene = Scene(saved.path)
    client = scene.queue._mine()
    client.filling[1] = 0  # as a thread between reserve and publish has it
    error = attempt(lambda: closed(scene), Failing(rig.LOCK, 1, errno.EIO, True))
    assert error is not None and not scene.queue.closed
    client.filling.clear()
    scene.queue.put(b"goes on")
    scene.close()
    assert not check_queue(saved.path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_that_cannot_be_made_leaves_nothing_behind(kind: str, fast_path: Path) -> None:
    path = fast_path / "queue"

    def run(failing: Failing, told: str) -> None:
        shutil.rmtree(path, ignore_errors=True)
        error = attempt(lambda: penstock.create(path, **SMALL).close(), failing)
        told = f"create: {told}: {error!r}"
        assert error is None or names(error, fast_path), told
        assert os.listdir(fast_path) in ([], ["queue"]), told
        if path.exists():
            assert not check_queue(path), told
        else:
            assert error is not None
            penstock.create(path, **SMALL).close()
        with penstock.open(path) as queue:
            queue.put(b"works")

    every_fault(kind, run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_that_fails_can_be_tried_again(kind: str, saved: Snapshot) -> None:
    path = saved.path

    def run(failing: Failing, told: str) -> None:
        saved.put_back()
        with open(path / KERNEL, "r+b") as file:
            file.seek(L.H_WAITING * L.WORD_BYTES)
            file.write(bytes(L.WORD_BYTES))
        error = attempt(lambda: repair_queue(path), failing)
        told = f"repair: {told}: {error!r}"
        assert error is None or names(error, path), told
        repair_queue(path)
        assert not check_queue(path), told
        with penstock.open(path) as queue:
            assert sorted(message.data for message in queue.browse()) == sorted(WAITING), told

    every_fault(kind, run)
