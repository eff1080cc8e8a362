"""The power is lost right after calls of receivers have returned, and nothing is left but what they have synced: what
they promised holds, also for messages that were put without a sync."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.timequeue import check_queue
from tests.crash.storage import NOTHING, Disk
from tests.crash.test_claims_killed import NAME
from tests.crash.workload import abandon
from tests.snapshot import FAST


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-claims-", dir=FAST) as folder:
        yield Path(folder) / "queue"


def lose_power(path: Path, work: Callable[[penstock.TimeQueue], None]) -> None:
    """After ``work``, with a receiver that was there before. Files of claims are as they are."""
    queue = penstock.open(path)
    queue.receiver(NAME).close()
    queue.sync_index()
    disk = Disk(path)
    with disk:
        work(queue)
        at = disk.now()
    abandon(queue)
    rng = random.Random(1)
    image = disk.image(rng, at, NOTHING)
    image.reboot(disk.kernel, rng)
    image.write(path)
    disk.close()


def claimed(queue: penstock.TimeQueue) -> list[bytes]:
    """First letters of what is claimed, if every claim is whole."""
    found = [bytes(message.data[:1]) for message in queue.browse(state="pending")]
    with queue.receiver(NAME) as receiver:
        assert sum(receiver.count(number) for number in receiver.claims()) == len(found)
    assert check_queue(queue.path) == []
    return found


def test_what_was_committed_stays_gone_when_its_receiver_is_forgotten(path: Path) -> None:
    penstock.create(path, slots=30, data_bytes=64 << 10, durability="commit", index_sync_ms=600_000).close()

    def work(queue: penstock.TimeQueue) -> None:
        queue.put_many([b"a", b"b", b"c"])
        queue.sync_index()
        with queue.receiver(NAME) as receiver:
            receiver.claim(2)
            receiver.commit(1)
        queue.forget_receiver(NAME)

    lose_power(path, work)
    with penstock.open(path) as queue:
        assert [message.data for message in queue.browse()] == [b"c"]


def test_a_claimed_message_whose_body_is_a_file_is_there_though_it_was_put_without_a_sync(path: Path) -> None:
    penstock.create(path, slots=30, data_bytes=64 << 10, spill_bytes=3000, durability="relaxed").close()

    def work(queue: penstock.TimeQueue) -> None:
        queue.put(b"s" * 4000)
        queue.put(b"t")
        with queue.receiver(NAME) as receiver:
            receiver.claim(10)

    lose_power(path, work)
    with penstock.open(path) as queue:
        assert claimed(queue) == [b"s", b"t"]


def test_a_claimed_message_is_there_though_the_room_of_another_of_its_batch_was_used_again(path: Path) -> None:
    penstock.create(path, slots=30, data_bytes=8 << 10, durability="relaxed", index_sync_ms=600_000).close()

    def work(queue: penstock.TimeQueue) -> None:
        queue.put_many([b"a" + bytes(1500), b"b" + bytes(1500)])
        with queue.receiver(NAME) as receiver:
            receiver.claim(1)
            receiver.commit(1)
            receiver.claim(1)
            with contextlib.suppress(penstock.QueueFull):
                for _ in range(8):
                    queue.put(b"c" + bytes(1500))
            receiver.claim(20)

    lose_power(path, work)
    with penstock.open(path) as queue:
        assert claimed(queue)[:2] == [b"b", b"c"]
