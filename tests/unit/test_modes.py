"""``create(mode=)``: every file of a queue has these rights, also those that are made later, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.timequeue import resize_queue

SMALL = {"slots": 20, "data_bytes": 1 << 16, "spill_bytes": 100, "durability": "relaxed"}


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(path: Path) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {"files": set(), "folders": {stat.S_IMODE(path.stat().st_mode)}}
    for each in path.rglob("*"):
        found["folders" if each.is_dir() else "files"].add(stat.S_IMODE(each.stat().st_mode))
    return found


def use_all(path: Path) -> None:
    """Whatever makes files."""
    with penstock.open(path) as q:
        q.put(b"x" * 1000)
        q.put(b"failed")
        q.put_once("publisher", 1, [b"once"])
        with q.receiver("report") as receiver:
            receiver.claim(1)
        q.get_many(1)[0].fail("no")
        q.sync_index()


@pytest.mark.parametrize("mode, folders", [(0o600, 0o700), (0o660, 0o770), (0o640, 0o750), (0o666, 0o777)])
def test_files_have_the_mode_now_and_later_whatever_the_umask(path: Path, mode: int, folders: int) -> None:
    os.umask(0o077)
    penstock.create(path, mode=mode, **SMALL).close()
    assert rights(path) == {"files": {mode}, "folders": {folders}}
    os.umask(0o002)
    use_all(path)
    assert (path / "failures").exists() and any((path / "bodies").iterdir())
    assert rights(path) == {"files": {mode}, "folders": {folders}}
    os.umask(0o077)
    resize_queue(path, slots=100)
    assert rights(path) == {"files": {mode}, "folders": {folders}}


def test_without_a_mode_the_umask_of_the_creator_decides_for_all(path: Path) -> None:
    os.umask(0o027)
    penstock.create(path, **SMALL).close()
    os.umask(0o077)
    use_all(path)
    assert rights(path) == {"files": {0o640}, "folders": {0o750}}


def test_folders_elsewhere_and_the_dead_letter_queue_follow(path: Path, tmp_path: Path) -> None:
    data, kernel = tmp_path / "data", tmp_path / "kernel"
    with penstock.create(path, mode=0o600, data_dirs=[data], kernel_dir=kernel, max_attempts=1, **SMALL) as q:
        q.put(b"bad")
        q.get().fail("no")
    for made in (*data.iterdir(), *kernel.iterdir(), path, path.with_name("queue.dead")):
        assert rights(made) == {"files": {0o600}, "folders": {0o700}}, made


def test_rights_that_were_changed_by_hand_stay(path: Path) -> None:
    penstock.create(path, mode=0o660, **SMALL).close()
    use_all(path)
    lock = path / "published" / "publisher" / "lock"
    os.chmod(lock, 0o600)
    with penstock.open(path) as q:
        q.put_once("publisher", 2, [b"more"])
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o700, 0o400, 0o060, -1, True, "660", 0o4600])
def test_a_mode_with_which_a_queue_cannot_work_is_refused(path: Path, mode: object) -> None:
    with pytest.raises(penstock.Misuse, match="mode must be"):
        penstock.create(path, mode=mode, **SMALL)  # type: ignore[arg-type]
    assert not path.exists()
