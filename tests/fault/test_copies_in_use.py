"""Copies of a queue while other processes put and acknowledge: what is in them was there, and nothing is missing."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conftest import assert_whole
from tests.fault.processes import PATIENCE_S, Child
from tests.thoroughness import IN_FULL

Start = Callable[..., Child]

BATCH = 7  # a prime: batches straddle every other rhythm
LARGE_EVERY = 11  # such a member has a file of its own
COPIES = 4 if IN_FULL else 2
MONTH_S = 30 * 86_400.0
STAYING = 30  # batches of each producer with members for next month: whatever the others do, these are in every copy
STAYS = 3  # so many of each


class Log:
    """Lines that a child appends and this process reads: each is there when the child goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def writer(self) -> Callable[[Iterable[str]], None]:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND)

        def write(lines: Iterable[str]) -> None:
            os.write(fd, "".join(f"{line}\n" for line in lines).encode())

        return write

    def read(self) -> set[str]:
        return set(self._path.read_text().split("\n")[:-1])


def body(name: str) -> bytes:
    large = int(name.rpartition("/")[2]) % LARGE_EVERY == 3
    return name.encode() + (b"." * 1500 if large else b"")


def members(batch: str) -> list[str]:
    """``producer/batch`` has these."""
    producer, number = batch.split("/")
    return [f"{producer}/{number}/{int(number) * BATCH + i}" for i in range(BATCH)]


def drafts(batch: str) -> list[penstock.Draft]:
    stays = STAYS if int(batch.rpartition("/")[2]) < STAYING else 0
    return [
        penstock.Draft(body=body(name), delay=MONTH_S if i < stays else None) for i, name in enumerate(members(batch))
    ]


def produce(say: Callable[[Any], None], path: Path, producer: int, tried: Log, put: Log) -> None:
    note_tried, note_put = tried.writer(), put.writer()
    number = 0
    with penstock.open(path) as q:
        while True:
            batch = f"{producer}/{number}"
            note_tried([batch])
            q.put_many(drafts(batch), timeout=PATIENCE_S)
            note_put([batch])
            number += 1


def consume(say: Callable[[Any], None], path: Path, begun: Log, acked: Log) -> None:
    note_begun, note_acked = begun.writer(), acked.writer()
    with penstock.open(path) as q:
        while True:
            found = q.get_many(5, wait=1.0)
            if found and found[0].number % 3 == 0:
                time.sleep(0.001)  # some stay pending for a while
            names = [message.data.rstrip(b".").decode() for message in found]
            note_begun(names)
            q.ack_many(found)
            note_acked(names)


class Traffic:
    """Two producers and two consumers on a queue, with what they say that they did."""

    def __init__(self, start: Start, path: Path, folder: Path) -> None:
        self._tried, self._put, self._begun, self._acked = (Log(folder / name) for name in ("t", "p", "b", "a"))
        for producer in range(2):
            start(produce, path, producer, self._tried, self._put)
        for _ in range(2):
            start(consume, path, self._begun, self._acked)

    def wait(self, acked: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self._acked.read()) < acked:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def judge(self, copy: Callable[[], list[bytes]]) -> int:
        """Make a copy and hold it against what is known of the moments before and after; how many are in it."""
        put_before, acked_before = self._put.read(), self._acked.read()
        found = copy()
        begun_after, tried_after = self._begun.read(), self._tried.read()
        names = [data.rstrip(b".").decode() for data in found]
        there = set(names)
        assert len(names) == len(there), "a message is in it twice"
        assert all(data == body(name) for data, name in zip(found, names, strict=True))
        assert there <= {name for batch in tried_after for name in members(batch)}, "something that nobody put"
        assert not there & acked_before, "something that was gone before"
        confirmed = {name for batch in put_before for name in members(batch)}
        assert confirmed - begun_after <= there, "something that was confirmed and not acknowledged is missing"
        for batch in {name.rpartition("/")[0] for name in there}:
            assert set(members(batch)) <= there | begun_after, "a part of a batch"
        return len(there)


@pytest.fixture
def traffic(path: Path, start: Start, tmp_path: Path) -> Traffic:
    penstock.create(path, slots=3000, data_bytes=2 << 20, spill_bytes=1000, durability="relaxed").close()
    return Traffic(start, path, tmp_path)


@pytest.mark.parametrize("new_identity", [False, True])
def test_a_backup_of_a_queue_in_use_is_consistent(
    traffic: Traffic, path: Path, tmp_path: Path, new_identity: bool
) -> None:
    sizes = []
    for i in range(COPIES):
        target = tmp_path / f"copy-{i}"

        def copy(target: Path = target) -> list[bytes]:
            made = penstock.backup(path, target, new_identity=new_identity)
            assert made.findings == []
            with penstock.open(target) as q:
                found = [message.data for message in q.browse(state="all")]
            assert len(found) == made.messages
            return found

        traffic.wait(300 * (i + 1))
        sizes.append(traffic.judge(copy))
        assert_whole(target)
    assert sizes[-1] >= 2 * STAYING * STAYS


def test_an_export_of_a_queue_in_use_is_consistent(traffic: Traffic, path: Path) -> None:
    sizes = []

    def copy() -> list[bytes]:
        with penstock.open(path) as q:
            return [base64.b64decode(row["body"]) for row in penstock.export_messages(q)]

    for i in range(COPIES):
        traffic.wait(300 * (i + 1))
        sizes.append(traffic.judge(copy))
    assert sizes[-1] >= 2 * STAYING * STAYS


def test_what_waits_for_room_and_for_the_lock_goes_on_while_a_copy_is_made(
    traffic: Traffic, path: Path, tmp_path: Path
) -> None:
    """A copy holds the lock for two short looks: the others go on between them."""
    moved: list[int] = []

    def progress(done_bytes: int, total_bytes: int) -> None:
        if len(moved) < 2:
            moved.append(len(traffic._acked.read()))
            traffic.wait(moved[-1] + 50)

    traffic.wait(100)
    penstock.backup(path, tmp_path / "copy", progress=progress)
    assert len(moved) == 2
    assert_whole(tmp_path / "copy")
