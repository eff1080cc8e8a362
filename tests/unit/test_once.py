"""``put_once``: a publisher's numbered batches, each published once."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import layout as L
from penstock.store.publishfiles import PUBLISHED, STATE, PublishFiles, State, check_name
from penstock.timequeue import check_queue, repair_queue
from penstock.timequeue.once import OncePut
from tests.snapshot import overwrite

NAME = "query-1"


def reboot(path: Path) -> None:
    """As if the machine had been started anew, with everything on disk."""
    data = bytearray((path / "kernel").read_bytes())
    data[L.H_BOOT_ID * L.WORD_BYTES] ^= 1
    overwrite(path / "kernel", data)


def last(queue: Any, name: str = NAME) -> int | None:
    return {each.publisher: each.last for each in queue.publishers()}[name]


def bodies(queue: Any) -> list[Any]:
    return [message.body for message in queue.browse()]


def test_a_number_is_put_once_and_lower_ones_never(queue: Any) -> None:
    q = queue()
    ids = q.put_once(NAME, 5, ["a", penstock.Draft(body="b", priority=3)], type="order")
    assert ids is not None and [m.id for m in q.browse()] == [ids[1], ids[0]]
    assert [(m.body, m.type) for m in q.browse()] == [("b", None), ("a", "order")]
    for number in (5, 4, 0):
        assert q.put_once(NAME, number, ["again"]) is None
    assert q.put_once("another", 5, ["c"]) is not None
    assert q.put_once(NAME, 9, ["d"]) is not None
    assert sorted(bodies(q)) == ["a", "b", "c", "d"]
    assert [(each.publisher, each.last) for each in q.publishers()] == [("another", 5), (NAME, 9)]


def test_bodies_are_not_looked_at_if_they_are_published(queue: Any) -> None:
    q = queue()
    q.put_once(NAME, 0, ["a"])

    def bad() -> Any:
        raise AssertionError("it was looked at")
        yield

    assert q.put_once(NAME, 0, bad()) is None


def test_an_empty_batch_counts(queue: Any) -> None:
    q = queue()
    ids = q.put_once(NAME, 3, [])
    assert ids is not None and len(ids) == 0
    assert q.put_once(NAME, 3, ["late"]) is None
    assert last(q) == 3 and q.stats().puts == 0


def test_a_batch_larger_than_the_journal(queue: Any) -> None:
    q = queue(slots=5000, data_bytes=4 << 20)
    assert len(q.put_once(NAME, 0, [b"%d" % i for i in range(5000)]) or ()) == 5000
    assert q.put_once(NAME, 0, [b"again"]) is None
    assert q.stats().depth_max == 5000 and check_queue(q.path) == []


def test_a_full_queue_gets_nothing_and_the_same_number_works_later(queue: Any) -> None:
    q = queue(slots=3)
    q.put_many(["x", "y"])
    for _ in range(2):
        with pytest.raises(penstock.QueueFull):
            q.put_once(NAME, 0, ["a", "b"])
        assert bodies(q) == ["x", "y"] and last(q) is None
    for message in q.get_many(2):
        message.ack()
    assert q.put_once(NAME, 0, ["a", "b"], timeout=0) is not None
    assert bodies(q) == ["a", "b"] and last(q) == 0


def test_bodies_in_files_are_put_once_too(queue: Any) -> None:
    q = queue(slots=10, data_bytes=1 << 20, spill_bytes=1000)
    assert q.put_once(NAME, 0, [b"s" * 5000, b"t" * 6000]) is not None
    assert q.put_once(NAME, 0, [b"s" * 5000]) is None
    assert [len(m.body) for m in q.get_many(9)] == [5000, 6000]


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_the_number_is_known_to_the_next_process_and_after_a_restore(path: Path, durability: str) -> None:
    with penstock.create(path, slots=20, data_bytes=1 << 16, durability=durability) as q:
        q.put_once(NAME, 7, ["a", "b"])
    with penstock.open(path) as q:
        assert q.put_once(NAME, 7, ["again"]) is None
        for message in q.get_many(9):
            message.ack()
        q.sync_index()
    reboot(path)
    with penstock.open(path) as q:
        assert q.stats().restores == 1
        assert (last(q), q.put_once(NAME, 7, ["again"])) == (7, None)
        assert q.put_once(NAME, 8, ["c"]) is not None
    assert check_queue(path) == []


def test_of_two_at_once_with_the_same_number_one_puts(queue: Any) -> None:
    """A stale driver and its successor."""
    q = queue(slots=500, data_bytes=1 << 20)
    results: list[Any] = []

    def publish(part: int) -> None:
        with penstock.open(q.path) as other:
            for number in range(20):
                results.append((number, other.put_once(NAME, number, [f"{number}"] * 3)))

    threads = [threading.Thread(target=publish, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    assert sorted(number for number, ids in results if ids is not None) == list(range(20))
    assert sorted(bodies(q)) == sorted(f"{number}" for number in range(20) for _ in range(3))


def test_who_holds_the_name_too_long_is_an_error_for_others(queue: Any) -> None:
    q = queue()
    q.put_once(NAME, 0, ["a"])
    files = PublishFiles(q.path, NAME, q._mine().signature)
    fd = files.lock()
    try:
        with penstock.open(q.path, busy_s=0.1) as other:
            with pytest.raises(penstock.PublisherBusy, match="'query-1' is publishing"):
                other.put_once(NAME, 1, ["b"])
            with pytest.raises(penstock.PublisherBusy):
                other.forget_publisher(NAME)
    finally:
        os.close(fd)
    assert q.put_once(NAME, 1, ["b"]) is not None


def test_a_stale_one_without_a_lock_is_fenced_by_the_number(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock file was removed, and another has published meanwhile: nothing is put, nothing is left."""
    q = queue()
    announce = OncePut.announce

    def overtaken(once: OncePut, *arguments: Any) -> None:
        monkeypatch.setattr(OncePut, "announce", announce)
        os.unlink(q.path / PUBLISHED / NAME / "lock")
        with penstock.open(q.path) as other:
            assert other.put_once(NAME, 5, ["newer"]) is not None
        announce(once, *arguments)

    monkeypatch.setattr(OncePut, "announce", overtaken)
    with penstock.open(q.path) as stale:
        assert stale.put_once(NAME, 4, ["stale"], durability="relaxed") is None
    assert bodies(q) == ["newer"] and q.stats().filling == 0 and last(q) == 5


def test_nobody_goes_on_while_an_attempt_on_disk_lives(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has lost its lock file, too; who comes after it must not bury it alive."""
    q = queue()
    write = PublishFiles.write

    def overtaken(files: PublishFiles, state: State) -> None:
        write(files, state)
        if state.batch == 4:
            os.unlink(files.path / "lock")
            with penstock.open(q.path, busy_s=0.05) as other, pytest.raises(penstock.PublisherBusy):
                other.put_once(NAME, 5, ["newer"])

    monkeypatch.setattr(PublishFiles, "write", overtaken)
    with penstock.open(q.path) as first:
        assert first.put_once(NAME, 4, ["first"], durability="commit") is not None
    assert bodies(q) == ["first"] and q.stats().filling == 0


def test_a_forgotten_publisher_begins_anew(queue: Any) -> None:
    q = queue()
    q.put_once(NAME, 5, ["a"])
    assert q.forget_publisher(NAME) is True
    assert q.publishers() == [] and not (q.path / PUBLISHED / NAME).exists()
    assert q.forget_publisher(NAME) is False
    assert q.put_once(NAME, 0, ["b"]) is not None
    q.close()
    reboot(q.path)
    with penstock.open(q.path) as again:
        assert last(again) == 0


def test_there_is_room_for_256_and_forgetting_one_makes_some(queue: Any) -> None:
    q = queue()
    for i in range(L.PUBLISHERS):
        q.put_once(f"p{i}", 0, [], durability="relaxed")
    with pytest.raises(penstock.TooManyPublishers, match="penstock publishers"):
        q.put_once("more", 0, [])
    assert q.put_once("p17", 1, []) is not None
    q.forget_publisher("p17")
    assert q.put_once("more", 0, []) is not None
    assert len(q.publishers()) == L.PUBLISHERS and check_queue(q.path) == []


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a/b", "a b", "é", "x" * 65, None, 7])
def test_names_that_cannot_be_are_refused(queue: Any, name: Any) -> None:
    with pytest.raises(penstock.Misuse, match="a publisher's name has 1 to 64"):
        queue().put_once(name, 0, [])
    assert check_name("x" * 64)


@pytest.mark.parametrize("number", [-1, 1.0, "1", None, True, 1 << 48])
def test_numbers_that_cannot_be_are_refused(queue: Any, number: Any) -> None:
    q = queue()
    with pytest.raises(penstock.Misuse, match="the number of a batch must be a whole number from 0"):
        q.put_once(NAME, number, [])
    with pytest.raises(penstock.Misuse, match="several bodies"):
        q.put_once(NAME, 0, b"one")
    assert q.publishers() == []


def test_a_damaged_file_is_found_said_and_mended(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with penstock.create(path, slots=20, data_bytes=1 << 16) as q:
        q.put_once(NAME, 7, ["a"])
        file = path / PUBLISHED / NAME / STATE
        data = bytearray(file.read_bytes())
        data[20] ^= 1
        file.write_bytes(data)
        with pytest.raises(penstock.Corrupt):
            q.put_once(NAME, 8, ["b"])
    (finding,) = check_queue(path)
    assert finding.path == str(file) and "checksum" in finding.what
    repair_queue(path)
    assert check_queue(path) == []
    with penstock.open(path) as q:
        assert (last(q), q.put_once(NAME, 7, ["again"])) == (7, None)


def test_a_damaged_entry_is_found(path: Path) -> None:
    with penstock.create(path, slots=20, data_bytes=1 << 16) as q:
        q.put_once(NAME, 7, ["a"])
        names_at = q._mine().kernel.get(L.H_NAMES_AT)
    data = bytearray((path / "kernel").read_bytes())
    at = (names_at + L.PUBLISHERS_OFFSET + L.P_LAST) * L.WORD_BYTES
    data[at + 3] ^= 1
    overwrite(path / "kernel", data)
    (finding,) = check_queue(path)
    assert finding.offset == at and "publisher 0" in finding.what
    repair_queue(path)
    with penstock.open(path) as q:
        assert last(q) == 7  # its file and the first message of the batch say so
    assert check_queue(path) == []


def test_a_repair_keeps_the_numbers_and_a_lost_kernel_as_far_as_the_files_know(path: Path) -> None:
    with penstock.create(path, slots=20, data_bytes=1 << 16) as q:
        q.put_once(NAME, 7, ["a"])
        q.put_once("done", 3, ["b"])
        q.put_once("done", 4, ["c"])
    repair_queue(path)
    with penstock.open(path) as q:
        assert (last(q), last(q, "done")) == (7, 4)
    (path / "kernel").unlink()
    repair_queue(path)
    with penstock.open(path) as q:
        assert (last(q), last(q, "done")) == (7, 4)
    assert check_queue(path) == []


def test_copies_begin_without_publishers(queue: Any, tmp_path: Path) -> None:
    q = queue()
    q.put_once(NAME, 7, ["a"])
    penstock.backup(q.path, tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as copy:
        assert copy.publishers() == []
        assert copy.put_once(NAME, 7, ["again"]) is not None


def test_a_forked_child_does_not_hold_the_name(queue: Any) -> None:
    q = queue()
    read_end, write_end = os.pipe()
    with OncePut(q._mine(), NAME, 0, wait_s=1):
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
    try:
        assert q.put_once(NAME, 0, ["a"]) is not None
    finally:
        os.close(write_end)
        os.close(read_end)
        os.waitpid(pid, 0)
