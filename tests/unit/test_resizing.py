"""Other sizes for a queue: what is refused and why, what must never come back, and who may come in between."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock
from penstock.store import alone, resizing, rig
from penstock.store import layout as L
from penstock.store.directory import read_options
from penstock.store.files import LocalFiles
from penstock.timequeue import check_queue, repair_queue, resize_queue, restore_queue, upgrade_queue

SEEDS = 4


def bodies(path: Path) -> list[bytes]:
    with penstock.open(path) as queue:
        return [message.data for message in queue.browse(state="all")]


def test_a_message_in_a_slot_that_would_be_cut_off_is_named(path: Path) -> None:
    with penstock.create(path, slots=50, data_bytes=1 << 16, durability="relaxed") as queue:
        ids = list(queue.put_many([b"%d" % i for i in range(30)]))
        queue.ack_many(queue.get_many(29))
    with pytest.raises(
        penstock.Misuse, match=f"in the way: 1 message is behind slot 11, .* {ids[-1]}.* at least 30 slots"
    ):
        resize_queue(path, slots=10)
    assert resize_queue(path, slots=30).slots == 30
    assert bodies(path) == [b"29"]
    with penstock.open(path) as queue:
        assert queue.cancel(ids[-1])
    assert resize_queue(path, slots=1).slots == 1
    assert check_queue(path) == []


def test_a_queue_can_shrink_to_what_is_in_it(path: Path) -> None:
    with penstock.create(path, slots=50, data_bytes=1 << 16, durability="relaxed") as queue:
        ids = list(queue.put_many([b"%d" % i for i in range(16)]))
        for each in ids[8:]:
            assert queue.cancel(each)
    assert resize_queue(path, slots=8, data_bytes=4096).slots == 8
    assert check_queue(path) == []
    with penstock.open(path) as queue:
        with pytest.raises(penstock.QueueFull):
            queue.put(b"one too many")
        queue.get().ack()
        queue.put(b"fits")
    assert bodies(path) == [*(b"%d" % i for i in range(1, 8)), b"fits"]
    assert check_queue(path) == []


def test_a_record_in_data_that_would_be_cut_off_is_named(path: Path) -> None:
    with penstock.create(path, slots=50, data_bytes=1 << 16, durability="relaxed") as queue:
        ids = list(queue.put_many([bytes(1000) for _ in range(40)]))
        queue.ack_many(queue.get_many(39))
    with pytest.raises(
        penstock.Misuse, match=f"behind byte 4096 of the data, .* {ids[-1]}.* at least 53248 data_bytes"
    ):
        resize_queue(path, data_bytes=4096)
    assert resize_queue(path, data_bytes=53248).data_bytes == 53248
    assert check_queue(path) == []
    assert len(bodies(path)) == 1


def test_bodies_of_their_own_count_as_data(path: Path) -> None:
    with penstock.create(path, slots=50, data_bytes=1 << 16, spill_bytes=1000, durability="relaxed") as queue:
        queue.put(bytes(30_000))
    with pytest.raises(penstock.Misuse, match="bodies of their own have 30256 bytes"):
        resize_queue(path, data_bytes=1 << 14)
    assert resize_queue(path, data_bytes=1 << 15).data_bytes == 1 << 15


def test_a_larger_queue_takes_more_and_a_smaller_one_less(path: Path) -> None:
    with penstock.create(path, slots=4, data_bytes=1 << 12, durability="relaxed") as queue:
        queue.put_many([b"%d" % i for i in range(4)])
        with pytest.raises(penstock.QueueFull):
            queue.put(b"one too many")
    resize_queue(path, slots=3000, data_bytes=1 << 20)
    with penstock.open(path) as queue:
        queue.put_many([b"%d" % i for i in range(4, 3000)])
        with pytest.raises(penstock.QueueFull):
            queue.put(b"one too many")
        assert [message.data for message in queue.get_many(5000)] == [b"%d" % i for i in range(3000)]
        queue.purge()
    assert check_queue(path) == []


def test_a_full_ring_goes_on_in_the_room_that_was_added(path: Path) -> None:
    with penstock.create(path, slots=50, data_bytes=1 << 12, durability="relaxed") as queue:
        queue.put_many([bytes(150) for _ in range(16)])
        first = queue.get()
        first.ack()
        queue.put(bytes(150))  # the cursor is at the start now, and there is no gap at the end
    resize_queue(path, data_bytes=1 << 13)
    assert check_queue(path) == []
    with penstock.open(path) as queue:
        queue.put_many([bytes(150) for _ in range(16)])
        assert queue.qsize() == 32
    assert check_queue(path) == []


def test_what_was_acknowledged_stays_gone_when_a_queue_shrinks_and_grows(path: Path) -> None:
    """Records of slots that were cut off are still in the data, and the slots come back without a memory of them."""
    with penstock.create(path, slots=50, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put(b"stays", delay=1e6)
        queue.put_many([b"%d" % i for i in range(40)])
        queue.ack_many(queue.get_many(40))
    assert resize_queue(path, slots=5).slots == 5
    assert bodies(path) == [b"stays"]
    for slots in (20, 45, 200):
        resize_queue(path, slots=slots)
        assert check_queue(path) == []
        restore_queue(path)
        assert bodies(path) == [b"stays"]
        assert check_queue(path) == []
    with penstock.open(path) as queue:
        queue.put_many([b"%d" % i for i in range(199)])
    assert check_queue(path) == []


def test_also_when_queue_json_had_to_be_made_anew_in_between(path: Path) -> None:
    with penstock.create(path, slots=50, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put_many([b"%d" % i for i in range(40)])
        queue.ack_many(queue.get_many(40))
    resize_queue(path, slots=5)
    (path / "queue.json").unlink()
    assert repair_queue(path)
    resize_queue(path, slots=60)
    restore_queue(path)
    assert bodies(path) == []
    assert check_queue(path) == []


def test_nobody_else_may_have_the_queue_open(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=1 << 16):
        with pytest.raises(penstock.QueueInUse, match=f"a client has it open \\(process {os.getpid()}\\)") as caught:
            resize_queue(path, slots=20)
        assert caught.value.pids == [os.getpid()]
        with pytest.raises(penstock.QueueInUse):
            upgrade_queue(path)
    assert resize_queue(path, slots=20).slots == 20


def test_who_only_reads_the_files_is_respected_too(path: Path) -> None:
    """An executor of Spark has them mapped and is no client: what is cut off would kill it."""
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    files = LocalFiles(path, read_options(path), busy_s=1)
    try:
        with pytest.raises(penstock.QueueInUse, match="such as a Spark job"):
            resize_queue(path, slots=20)
    finally:
        files.close()
    assert resize_queue(path, slots=20).changed


def test_the_same_sizes_change_nothing(path: Path) -> None:
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    inode = (path / "kernel").stat().st_ino
    assert not resize_queue(path, slots=10, data_bytes=(1 << 16) - 100).changed  # whole pages
    assert (path / "kernel").stat().st_ino == inode


@pytest.mark.parametrize("sizes", [{}, {"slots": 0}, {"slots": True}, {"data_bytes": 1}, {"slots": L.SLOTS_MAX + 1}])
def test_sizes_that_cannot_be_are_refused(path: Path, sizes: dict[str, int]) -> None:
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    with pytest.raises(penstock.Misuse):
        resize_queue(path, **sizes)


def test_of_several_data_files_the_last_one_changes(path: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    with penstock.create(
        path, slots=100, data_bytes=3 << 14, data_dirs=folders, kernel_dir=tmp_path / "fast", durability="relaxed"
    ) as queue:
        queue.put_many([b"%d" % i * 300 for i in range(60)])
        queue.ack_many(queue.get_many(55))
    left = bodies(path)
    with pytest.raises(penstock.Misuse, match="at least 36864: of 3 data files only the last one"):
        resize_queue(path, data_bytes=1 << 14)
    assert resize_queue(path, slots=200, data_bytes=1 << 18).data_bytes == 1 << 18
    assert [size for _, size in read_options(path).data_files] == [1 << 14, 1 << 14, (1 << 18) - (1 << 15)]
    assert (bodies(path), check_queue(path)) == (left, [])
    assert not (path / "kernel").exists()
    restore_queue(path)
    assert (bodies(path), check_queue(path)) == (left, [])
    with penstock.open(path) as queue:
        queue.put_many([bytes(900) for _ in range(190)])
        queue.purge()
    assert resize_queue(path, data_bytes=(1 << 15) + (1 << 12)).changed
    assert check_queue(path) == []


class FullDisk:
    """No room for the longer data file."""

    def store(self, path: str, index: int, value: int) -> None: ...

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.WRITE and offset >= 1 << 18 and "data.0" in os.readlink(f"/proc/self/fd/{target}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_queue(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put(b"kept")
    rig.observe(FullDisk())
    try:
        with pytest.raises(OSError, match="No space"):
            resize_queue(path, slots=20, data_bytes=1 << 20)
    finally:
        rig.observe(None)
    assert check_queue(path) == []
    assert bodies(path) == [b"kept"]
    assert sorted(each.name for each in path.iterdir() if "next" in each.name or "resize" in each.name) == []
    assert resize_queue(path, data_bytes=1 << 20).changed


class Order:
    """Before anything is renamed, all that was written or named before is synced."""

    def __init__(self) -> None:
        self.unsynced: set[str] = set()
        self.renamed: list[str] = []
        self.faults: list[tuple[str, set[str]]] = []

    def store(self, path: str, index: int, value: int) -> None: ...

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        name = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
        if kind == rig.WRITE:
            self.unsynced.add(name)
        elif kind == rig.SYNC:
            self.unsynced.discard(name)
        elif kind == rig.RENAME:
            if self.unsynced:
                self.faults.append((name, set(self.unsynced)))
            self.unsynced.add(str(Path(name).parent))
            self.renamed.append(Path(name).name)


@pytest.mark.parametrize("data_bytes", [1 << 15, 1 << 18])
def test_what_decides_is_on_disk_before_what_follows(path: Path, data_bytes: int) -> None:
    """So a power loss leaves what a kill can leave, which is tested for every effect."""
    with penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put(b"kept")
        queue.sync_index()
    order = Order()
    with penstock.open(path):
        pass
    rig.observe(order)
    try:
        resizing.change(path, slots=20, data_bytes=data_bytes, name=str, busy_s=1, progress=None)  # type: ignore[arg-type]
    finally:
        rig.observe(None)
    assert order.renamed == ["resize.json.new", "kernel-next", "resize.json"]
    assert order.faults == []
    assert order.unsynced == set()
    assert bodies(path) == [b"kept"]


def test_who_opens_the_queue_meanwhile_gets_the_new_one(path: Path) -> None:
    """They have opened the old files and wait for the lock, or come between two of the changes."""
    penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed").close()
    code = "import sys, penstock\nwith penstock.open(sys.argv[1]) as q:\n    q.put(b'x')\n    print(q.stats().slots)"
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    started: list[subprocess.Popen[str]] = []

    class Opening:
        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.RENAME and len(started) < 3:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-c", code, str(path)],
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        env=environment,
                    )
                )
                threading.Event().wait(0.4)  # until it waits for the lock

    rig.observe(Opening())
    try:
        resize_queue(path, slots=20, data_bytes=1 << 17)
    finally:
        rig.observe(None)
    assert len(started) == 3
    for process in started:
        out, error = process.communicate(timeout=30)
        assert (out, error) == ("20\n", "")
    assert bodies(path) == [b"x"] * 3
    assert check_queue(path) == []


def test_a_repair_removes_what_one_left_who_was_killed_before_it_was_decided(path: Path) -> None:
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    (path / "kernel-next").write_bytes(b"half of it")
    assert check_queue(path) == []
    assert repair_queue(path, dry_run=True) == []
    assert (path / "kernel-next").exists()
    assert repair_queue(path) == []
    assert not (path / "kernel-next").exists()


def test_a_repair_completes_one_though_the_lock_is_gone(path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put(b"kept")

    class Killed(Exception): ...

    class Stop:
        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.RENAME and str(target).endswith("resize.json"):
                raise Killed

    rig.observe(Stop())
    try:
        with pytest.raises(Killed):
            resize_queue(path, slots=20)
    finally:
        rig.observe(None)
    (path / "lock").unlink()
    assert repair_queue(path) == []
    with penstock.open(path) as queue:
        assert (queue.stats().slots, queue.qsize()) == (20, 1)
    assert check_queue(path) == []


def test_progress_is_told_up_to_the_end(path: Path) -> None:
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    told: list[tuple[int, int]] = []
    resize_queue(path, slots=30_000, data_bytes=1 << 22, progress=lambda done, total: told.append((done, total)))
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_a_queue_of_this_version_is_current(path: Path) -> None:
    penstock.create(path, slots=10, data_bytes=1 << 16).close()
    found = upgrade_queue(path)
    assert (found.changed, found.slots) == (False, 10)


def test_a_kernel_with_its_regions_elsewhere_is_outdated_and_carried_over(path: Path, tmp_path: Path) -> None:
    """What an older version might have made: here, one with a page more before the lists."""
    with penstock.create(path, slots=100, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put_many([b"%d" % i for i in range(40)])
        queue.put(b"first", priority=3)
    now = bytearray((path / "kernel").read_bytes())
    options = read_options(path)
    with memoryview(now) as data, data.cast("Q") as words:
        assert resizing.outdated(words) == []
        moved = [word for word in L.regions(words[L.H_SLOTS]) if word in AT and words[word] >= words[L.H_LISTS_AT]]
        older = bytearray(now[: words[L.H_LISTS_AT] * 8] + bytes(L.PAGE_BYTES) + now[words[L.H_LISTS_AT] * 8 :])
    with memoryview(older) as data, data.cast("Q") as words:
        for word in moved:
            words[word] += L.PAGE_BYTES // 8
        words[L.H_KERNEL_BYTES] += L.PAGE_BYTES
        assert set(resizing.outdated(words)) == {*moved, L.H_KERNEL_BYTES}
        new = resizing.with_sizes(options, slots=None, data_bytes=None)
        carried = bytes(resizing.carry_over(resizing.Old(words, options, path), new, lambda size_bytes: None))
    journal = slice(L.PAGE_BYTES, L.PAGE_BYTES + L.JOURNAL_ENTRIES * L.JOURNAL_WORDS * L.WORD_BYTES)  # is empty
    now[journal] = bytes(journal.stop - journal.start)
    assert carried == bytes(now)


AT = (L.H_JOURNAL_AT, L.H_STATS_AT, L.H_LISTS_AT, L.H_CLIENTS_AT, L.H_CLASSES_AT, L.H_NAMES_AT, L.H_SLOTS_AT)


def test_a_copy_of_a_resized_queue_is_a_queue(path: Path, tmp_path: Path) -> None:
    with penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed") as queue:
        queue.put(b"kept")
    resize_queue(path, slots=100, data_bytes=1 << 17)
    shutil.copytree(path, tmp_path / "copied")
    assert bodies(tmp_path / "copied") == [b"kept"]
    assert penstock.backup(path, tmp_path / "backup").messages == 1
    assert bodies(tmp_path / "backup") == [b"kept"]
    assert check_queue(tmp_path / "copied") == check_queue(tmp_path / "backup") == []


def act(queue: penstock.TimeQueue, rng: random.Random) -> None:
    """Something that users do."""
    what = rng.random()
    try:
        if what < 0.45:
            sizes = [rng.choice([0, 10, 200, 1000, 5000]) for _ in range(rng.choice([1, 1, 3, 12]))]
            durability = rng.choice(["commit", "relaxed"])
            bodies = [penstock.Draft(body=bytes(size), priority=rng.randrange(3)) for size in sizes]
            queue.put_many(bodies, durability=durability)
        elif what < 0.55:
            queue.put(b"later", delay=rng.choice([1000, 100_000]))
        else:
            for message in queue.get_many(rng.randrange(1, 9)):
                rng.choice([message.ack, message.ack, message.release])()
    except (penstock.QueueFull, penstock.BatchTooLarge, penstock.BodyTooLarge):
        queue.ack_many(queue.get_many(rng.randrange(1, 30)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_sizes_after_anything(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    penstock.create(path, slots=60, data_bytes=1 << 16, spill_bytes=3000, durability="relaxed").close()
    done = 0
    for _ in range(25):
        with penstock.open(path) as queue:
            for _ in range(rng.randrange(1, 12)):
                act(queue, rng)
            if rng.random() < 0.2:
                queue.ack_many(queue.get_many(1000))
        before = picture(path)
        sizes = {
            "slots": rng.choice([None, rng.randrange(1, 150)]),
            "data_bytes": rng.choice([None, rng.randrange(1, 40) << 12]),
        }
        try:
            done += resize_queue(path, **sizes).changed  # type: ignore[arg-type]
        except penstock.Misuse:
            pass  # nothing is asked for, or something is in the way
        assert check_queue(path) == [], (seed, sizes)
        assert picture(path) == before, (seed, sizes)
        if rng.random() < 0.3:
            assert restore_queue(path) == []
            assert picture(path) == before, (seed, sizes)
    assert done > 3


def picture(path: Path) -> list[tuple[str, bytes, int, int]]:
    with penstock.open(path) as queue:
        return [(each.id, each.data, each.attempts, each.deliver_us) for each in queue.browse(state="all")]


@pytest.mark.parametrize("killed", [False, True], ids=["done", "cut short"])
def test_who_is_about_to_register_when_the_sizes_change_gets_the_new_queue(
    path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Where the system does not say who has a file open, nobody knows of one that has only looked at the kernel."""
    penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed").close()
    monkeypatch.setattr(alone, "is_open", lambda file: None)

    class Killed(Exception): ...

    class Registering:
        began = ended = False

        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            file = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            if kind == rig.LOCK and Path(file).name == "clients" and not self.began:
                self.began = True
                with contextlib.suppress(Killed):
                    resizing.change(path, slots=20, data_bytes=None, name=str, busy_s=1, progress=None)  # type: ignore[arg-type]
                self.ended = True
            if killed and kind == rig.RENAME and self.began and not self.ended and "kernel" in file:
                raise Killed

    rig.observe(Registering())
    try:
        queue = penstock.open(path, busy_s=2)
    finally:
        rig.observe(None)
    with queue:
        queue.put(b"kept")
        assert queue.stats().slots == 20
    assert bodies(path) == [b"kept"]
    assert check_queue(path) == []


def test_whoever_completes_a_resize_syncs_what_the_first_one_had_no_time_to(path: Path) -> None:
    """Killed between giving the data file its size and syncing that."""
    penstock.create(path, slots=10, data_bytes=1 << 16, durability="relaxed").close()

    class Killed(Exception): ...

    class Stop:
        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.SYNC and Path(os.readlink(f"/proc/self/fd/{target}")).name == "data.0":
                raise Killed

    rig.observe(Stop())
    try:
        with pytest.raises(Killed):
            resizing.change(path, slots=None, data_bytes=1 << 17, name=str, busy_s=1, progress=None)  # type: ignore[arg-type]
    finally:
        rig.observe(None)
    synced: list[str] = []

    class Syncs:
        def store(self, path: str, index: int, value: int) -> None: ...

        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            name = Path(os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target).name
            if kind in (rig.SYNC, rig.RENAME):
                synced.append(name)

    rig.observe(Syncs())
    try:
        resizing.finish(path, 1.0)
    finally:
        rig.observe(None)
    assert synced.index("data.0") < synced.index("resize.json")
