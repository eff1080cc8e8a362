"""Large bodies under adverse conditions: little memory, a full disk, kill -9, and others who must not wait for them."""

from __future__ import annotations

import errno
import io
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.stdlib import Queue
from penstock.store import bodyfiles, rig
from penstock.store.rig import kill_at
from tests.conftest import Queues
from tests.fault.processes import Child
from tests.large import in_process, room_for, through
from tests.pipes import Pipe

LARGE = bytes(range(256)) * 200
ROOMY: dict[str, Any] = {"spill_bytes": 1000, "data_bytes": 1 << 20}
MEMORY_TEST_BYTES = 64 << 20

Start = Callable[..., Child]


def test_no_process_has_a_large_body_in_memory(tmp_path: Path) -> None:
    """Those that put and get 64 MB, from a pipe and from a file, need a few MB more than before."""
    reason = room_for(tmp_path, MEMORY_TEST_BYTES)
    if reason is not None:
        pytest.skip(reason)
    print(through(tmp_path / "large", MEMORY_TEST_BYTES))


def test_the_meter_would_see_a_body_in_memory(tmp_path: Path) -> None:
    """The same process, with ``put`` in the place of ``put_file``."""
    penstock.create(tmp_path / "queue", slots=4, data_bytes=80 << 20, durability="relaxed").close()
    assert in_process("put_whole", tmp_path / "queue", MEMORY_TEST_BYTES) > MEMORY_TEST_BYTES // 2


class Full:
    """A disk that is full after so many writes."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.WRITE and len(data) > 8:  # the tombstone of what is given up goes over what is there
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("writes", [0, 1, 30])
@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_a_full_disk_leaves_nothing_of_a_file(queue: Queues, writes: int, durability: str) -> None:
    q = queue(**ROOMY)
    rig.observe(Full(writes))
    try:
        with pytest.raises(OSError, match=f"No space left on device: '{q.path}/bodies/"):
            q.put_file(Pipe(LARGE), durability=durability)
    finally:
        rig.observe(None)
    stats = q.stats()
    assert (stats.filling, stats.spilled_bytes, stats.used_bytes) == (0, 0, 0)
    assert list((q.path / "bodies").iterdir()) == []
    q.put_file(Pipe(LARGE))
    assert q.get(block=False).data == LARGE


def test_a_file_is_copied_again_when_an_index_sync_has_made_room_on_the_disk(queue: Queues) -> None:
    """And a pipe, of which a part is gone, is not: the error says what was wrong."""
    q = queue(index_sync_ms=0, **ROOMY)
    for source, done in ((io.BytesIO(LARGE), True), (Pipe(LARGE), False)):
        q.put(b"a" * 5000)
        q.get(block=False).ack()
        rig.observe(Full(0) if done else Full(1))
        full = rig._observer

        class UntilSynced:
            def store(self, path: str, index: int, value: int) -> None:
                pass

            def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
                if q._mine().files.body_names() != [] and len(q._mine().files.body_names()) > 1:
                    full.effect(kind, target, offset, data)  # noqa: B023

        rig.observe(UntilSynced())
        try:
            if done:
                q.put_file(source)
            else:
                with pytest.raises(OSError, match="No space"):
                    q.put_file(source)
        finally:
            rig.observe(None)
        assert [message.body_bytes for message in q.browse()] == ([len(LARGE)] if done else [])
        q.purge()
        q.sync_index()
    assert list((q.path / "bodies").iterdir()) == []


def test_a_file_that_waits_for_room_is_put_when_there_is_some(queue: Queues) -> None:
    q = queue(spill_bytes=1000, data_bytes=81_920)
    q.put_file(io.BytesIO(LARGE))
    message = q.get(block=False)
    threading.Timer(0.2, message.ack).start()
    q.put_file(io.BytesIO(LARGE[::-1]), timeout=20)
    assert q.get(block=False).data == LARGE[::-1]


class Slow(Pipe):
    """A pipe that stops in the middle until it is told to go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def read(self, most: int) -> bytes:
        if self._at >= 20_000:
            self.reached.set()
            assert self.go_on.wait(20)
        return super().read(most)


def test_nobody_waits_for_a_file_that_is_being_copied(queue: Queues) -> None:
    q = queue(durability="commit", **ROOMY)
    slow = Slow(LARGE)
    thread = threading.Thread(target=q.put_file, args=(slow,))
    thread.start()
    try:
        assert slow.reached.wait(20)
        other = queue.open(q)
        other.put(b"small")
        other.put(b"l" * 5000)
        assert [message.body_bytes for message in q.get_many(5)] == [5, 5000]
        other.sync_index()
        assert q.stats().filling == 1
    finally:
        slow.go_on.set()
        thread.join()
    assert q.get(block=False).data == LARGE


def test_a_process_killed_while_it_copies_a_file_leaves_nothing(queue: Queues, start: Start) -> None:
    q = queue(**ROOMY)

    def produce(say: Any, step: int) -> None:
        q.qsize()
        kill_at(step)
        q.put_file(Pipe(LARGE))
        os.kill(os.getpid(), signal.SIGTERM)

    copied = 0
    for step in range(1, 5000, 19):
        code = start(produce, step).join()
        stats = q.stats()
        if stats.filling:
            (body,) = (q.path / "bodies").iterdir() if stats.spilled_bytes > 3000 else (None,)
            copied += body is not None and body.stat().st_size <= stats.spilled_bytes
            penstock.open(q.path).close()  # takes the dead one's place, and with it hands back what it held
            stats = q.stats()
            assert (stats.filling, stats.waiting, stats.spilled_bytes) == (0, 0, 0)
            assert list((q.path / "bodies").iterdir()) == []
        if code == -signal.SIGTERM:
            break
        assert code == -signal.SIGKILL
        q.purge()
    assert copied > 10 and [message.data for message in q.get_many(5)] == [LARGE]


def test_a_long_body_is_synced_on_the_way(queue: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodyfiles, "SYNC_EVERY_BYTES", 10_000)
    q = queue(**ROOMY)
    seen: list[tuple[str, int]] = []

    class Watch:
        def store(self, path: str, index: int, value: int) -> None:
            pass

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind in (rig.WRITE, rig.SYNC) and "bodies" in os.readlink(f"/proc/self/fd/{target}"):
                seen.append((kind, len(data)))

    rig.observe(Watch())
    try:
        q.put_file(Pipe(LARGE), durability="relaxed")
        assert rig.SYNC not in {kind for kind, _ in seen}
        seen.clear()
        q.put_file(Pipe(LARGE), durability="commit")
    finally:
        rig.observe(None)
    assert [kind for kind, _ in seen].count(rig.SYNC) == 5 + 1 + 1  # on the way, at its end, and the directory
    assert sum(size for _, size in seen) == len(LARGE)


def test_a_put_that_is_interrupted_leaves_nothing(queue: Queues) -> None:
    q = queue(**ROOMY)
    slow = Slow(LARGE)

    def interrupt() -> None:
        assert slow.reached.wait(20)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        q.put_file(slow)
    stats = q.stats()
    assert (stats.filling, stats.spilled_bytes, list((q.path / "bodies").iterdir())) == (0, 0, [])


def test_a_large_item_of_the_standard_library_s_queue_is_read_when_it_is_got(tmp_path: Path) -> None:
    """And a damaged one is given back, and not in everybody's way."""
    large = LARGE * 10
    with Queue(tmp_path / "items", slots=10, data_bytes=4 << 20) as items:
        for item in (large, large, "next"):
            items.put(item)
        assert items.get() == large
        items.task_done()
        newest = max((tmp_path / "items" / "bodies").iterdir())
        newest.write_bytes(large[::-1])
        with pytest.raises(penstock.Corrupt):
            items.get(timeout=5)
        assert items.get(timeout=5) == "next"
        items.task_done()
        assert items.qsize() == 1
