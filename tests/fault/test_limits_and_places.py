"""Bounds that are never passed, and directories that are renamed, replaced or left half-made."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue import check_queue, repair_queue
from tests.conftest import Queues
from tests.crash.rig import in_child


def test_records_and_bodies_of_their_own_stay_within_data_bytes_together(queue: Queues) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    q = queue(slots=400, data_bytes=1 << 17, spill_bytes=3000)
    full = 0
    for _ in range(1500):
        bodies = [bytes(rng.choice((10, 300, 2900, 9000))) for _ in range(rng.choice((1, 1, 5)))]
        try:
            q.put_many(bodies)
        except penstock.QueueFull:
            full += 1
            q.ack_many(q.get_many(rng.randrange(1, 20)))
        stats = q.stats()
        assert stats.used_bytes + stats.spilled_bytes <= stats.data_bytes
        on_disk = sum(file.stat().st_size for file in (q.path / "bodies").iterdir())
        assert on_disk == stats.spilled_bytes
    assert full > 20 and stats.spills > 20


def test_a_directory_that_is_renamed_while_open_keeps_its_large_bodies(tmp_path: Path) -> None:
    q = penstock.create(tmp_path / "a", slots=8, data_bytes=1 << 16, spill_bytes=100, durability="relaxed")
    os.rename(tmp_path / "a", tmp_path / "b")
    other = penstock.create(tmp_path / "a", slots=8, data_bytes=1 << 16, spill_bytes=100, durability="relaxed")
    q.put(b"x" * 5000)
    assert list((tmp_path / "a" / "bodies").iterdir()) == []
    with penstock.open(tmp_path / "b") as renamed:
        assert renamed.get(block=False).data == b"x" * 5000
    q.close()
    other.close()
    assert check_queue(tmp_path / "a") == check_queue(tmp_path / "b") == []


def test_a_forked_child_does_not_join_another_queue_at_its_path(tmp_path: Path) -> None:
    q = penstock.create(tmp_path / "a", slots=8, data_bytes=1 << 16)
    os.rename(tmp_path / "a", tmp_path / "b")
    penstock.create(tmp_path / "a", slots=8, data_bytes=1 << 16).close()

    def child() -> None:
        with pytest.raises(penstock.QueueNotFound, match="another queue"):
            q.put("x")

    assert in_child(child) == 0
    with penstock.open(tmp_path / "a") as other:
        assert (other.qsize(), len(other.stats().clients)) == (0, 1)
    q.close()


def test_what_a_killed_creator_left_is_removed_by_the_next_one_after_a_minute(tmp_path: Path) -> None:
    penstock.create(tmp_path / "model", slots=8, data_bytes=1 << 16).close()
    old, young = tmp_path / ".queue.0123abcd", tmp_path / ".queue.4567abcd"
    for left in (old, young):
        shutil.copytree(tmp_path / "model", left)
    past_s = time.time() - 3600
    os.utime(old, (past_s, past_s))
    penstock.create(tmp_path / "queue", slots=8, data_bytes=1 << 16).close()
    assert not old.exists()
    assert young.exists(), "its creator may be at work"


@pytest.mark.parametrize("lease", [float("inf"), 1e30])
def test_an_endless_lease_makes_a_queue_that_works(tmp_path: Path, lease: float) -> None:
    with penstock.create(tmp_path / "queue", slots=8, data_bytes=1 << 16, lease=lease) as q:
        q.put("x")
        assert q.get(block=False).body == "x"
    assert check_queue(tmp_path / "queue") == []


@pytest.mark.parametrize("bodies", ["abc", b"abc", bytearray(b"abc")])
def test_one_body_is_not_taken_for_many(queue: Queues, bodies: Any) -> None:
    q = queue()
    with pytest.raises(penstock.Misuse, match="several bodies"):
        q.put_many(bodies)
    assert q.qsize() == 0


def test_every_time_that_is_accepted_can_be_shown(queue: Queues) -> None:
    q = queue()
    last_s = 253_402_214_399  # the second before 9999-12-31
    q.put("x", deliver_at=last_s)
    assert next(iter(q.browse())).deliver_at.year == 9999
    with pytest.raises(penstock.Misuse, match="too far away"):
        q.put("x", deliver_at=last_s + 1)


@pytest.mark.damages
def test_a_damaged_record_is_not_in_the_way_of_the_next_process(queue: Queues) -> None:
    q = queue()
    q.put(b"damaged")
    q.put(b"whole")
    with open(q.path / "data.0", "r+b") as file:
        file.seek(L.RECORD_BYTES)
        file.write(b"D")
    with pytest.raises(penstock.Corrupt, match=r"data\.0.*byte 0"):
        q.get(timeout=0)
    q.close()
    with penstock.open(q.path) as again:
        assert again.get(timeout=0).data == b"whole"
        assert again.qsize() == 1, "it comes back after a lease's time"


@pytest.mark.parametrize("option", ["data_dirs", "kernel_dir"])
def test_a_copy_of_a_queue_with_files_elsewhere_is_refused(queue: Queues, tmp_path: Path, option: str) -> None:
    elsewhere = tmp_path / "disk"
    q = queue(**{option: [elsewhere] if option == "data_dirs" else elsewhere})
    q.put(b"x")
    shutil.copytree(q.path, tmp_path / "copy")
    with pytest.raises(penstock.NotAQueue, match="penstock backup"):
        penstock.open(tmp_path / "copy")
    os.rename(q.path, tmp_path / "moved")
    with penstock.open(tmp_path / "moved") as moved:
        assert moved.get(timeout=0).data == b"x"
    os.rename(tmp_path / "moved", q.path)


def test_a_repair_restores_a_queue_of_another_boot(queue: Queues) -> None:
    q = queue()
    q.put(b"x")
    q.close()
    with open(q.path / "kernel", "r+b") as file:
        file.seek(L.H_BOOT_ID * L.WORD_BYTES)
        file.write(b"before")
    assert [finding.what for finding in repair_queue(q.path, dry_run=True)] == ["to be restored: another boot"]
    assert [finding.what for finding in repair_queue(q.path)] == ["to be restored: another boot"]
    assert repair_queue(q.path) == []
    with penstock.open(q.path) as again:
        assert (again.stats().restores, again.get(timeout=0).data) == (1, b"x")


def test_a_put_on_a_full_disk_takes_the_room_that_acknowledged_bodies_keep(queue: Queues) -> None:
    """A body of its own stays until an index sync after its message has gone: a put that needs room asks for one."""
    q = queue(spill_bytes=1000, data_bytes=1 << 20, index_sync_ms=0)
    q.put(b"a" * 5000)
    q.get(block=False).ack()
    assert q.stats().kept == 1

    class FullUntilSynced:
        def store(self, path: str, index: int, value: int) -> None:
            pass

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.OPEN and "bodies" in str(target) and len(q._mine().files.body_names()) > 0:
                raise OSError(errno.ENOSPC, "No space left on device", str(target))

    rig.observe(FullUntilSynced())
    try:
        q.put(b"b" * 5000)
        with pytest.raises(OSError, match="No space"):  # now there is nothing that could make room
            q.put(b"c" * 5000)
    finally:
        rig.observe(None)
    assert [message.data for message in q.browse()] == [b"b" * 5000]
