"""What every kind of queue promises about bodies that are too large for memory."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import BodyGone, BodyTooLarge, Corrupt, LeaseLost, Misuse, QueueClosed, QueueFull, SourceChanged
from tests.conftest import Queues, SimulatedClock
from tests.pipes import Pipe

LARGE = bytes(range(256)) * 200  # 51,200 bytes
ROOMY: dict[str, Any] = {"spill_bytes": 1000, "data_bytes": 1 << 20}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    return path


def bodies(q: penstock.TimeQueue) -> list[int]:
    return sorted(file.stat().st_size for file in (q.path / "bodies").iterdir())


def assert_empty(q: penstock.TimeQueue) -> None:
    q.sync_index()
    stats = q.stats()
    assert (stats.waiting, stats.pending, stats.filling, stats.spilled_bytes, stats.used_bytes) == (0, 0, 0, 0, 0)
    assert bodies(q) == []


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_a_file_is_put_and_read_as_a_stream(queue: Queues, file: Path, durability: str) -> None:
    q = queue(**ROOMY)
    ids = [q.put_file(given, durability=durability) for given in (file, str(file), io.BytesIO(LARGE), Pipe(LARGE))]
    with open(file, "rb") as given:
        ids.append(q.put_file(given, durability=durability))
    assert q.stats().spilled_bytes == 5 * len(LARGE) and bodies(q) == [len(LARGE)] * 5
    for message_id in ids:
        with q.get(block=False) as message, message.open() as stream:
            assert (message.id, message.body_bytes, message.state) == (message_id, len(LARGE), "pending")
            assert stream.read(7) == LARGE[:7] and stream.read() == LARGE[7:]
    assert_empty(q)


def test_a_file_has_the_options_of_every_put(queue: Queues, clock: SimulatedClock, file: Path) -> None:
    q = queue(**ROOMY)
    q.put_file(file, delay=5, priority=3, type="image", key="album", headers={"a": "b"})
    assert q.get_many(1) == []
    clock.advance(6)
    message = q.get(block=False)
    assert (message.priority, message.type, message.key, message.headers) == (3, "image", "album", {"a": "b"})
    assert message.body == message.data == LARGE
    with pytest.raises(Misuse, match="not both"):
        q.put_file(file, delay=5, deliver_at=7)
    with pytest.raises(Misuse, match="priority"):
        q.put_file(file, priority=99)


@pytest.mark.parametrize("length", [0, 1, 1000])
def test_a_small_file_becomes_an_ordinary_record(queue: Queues, tmp_path: Path, length: int) -> None:
    q = queue(**ROOMY)
    (tmp_path / "small").write_bytes(b"s" * length)
    q.put_file(tmp_path / "small")
    q.put_file(Pipe(b"s" * length))
    assert q.stats().spilled_bytes == 0
    for message in q.get_many(2):
        with message.open() as stream:
            assert stream.read() == message.data == b"s" * length and message.body_bytes == length
    assert [m.body_bytes for m in q.browse(state="pending")] == [length] * 2


def test_files_are_put_by_coroutines(queue: Queues, file: Path) -> None:
    q = queue(**ROOMY)

    async def many() -> list[str]:
        return await asyncio.gather(*(q.aput_file(file, priority=i) for i in range(4)))

    ids = asyncio.run(many())
    assert [message.id for message in q.get_many(10)] == ids[::-1]


def test_progress_is_told(queue: Queues, file: Path) -> None:
    q = queue(**ROOMY)
    told: list[tuple[int, int | None]] = []
    q.put_file(file, progress=lambda done, total: told.append((done, total)))
    assert told == [(len(LARGE), len(LARGE))]
    q.put_file(Pipe(LARGE), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(LARGE), None) and told[1:] == sorted(told[1:])


# ---------------------------------------------------------------- what cannot be put leaves nothing


class CutOff(io.FileIO):
    """A file that somebody cuts off when its reading begins."""

    def read(self, most: int = -1) -> bytes:
        os.truncate(self.name, 100)
        return super().read(most)


def test_a_source_that_is_cut_off_leaves_nothing(queue: Queues, file: Path) -> None:
    q = queue(**ROOMY)
    with CutOff(str(file)) as given, pytest.raises(SourceChanged, match="cut off after 100 of 51200"):
        q.put_file(given)
    assert_empty(q)


class Broken(Pipe):
    def read(self, most: int) -> bytes:
        if self._at > 20_000:
            raise ConnectionResetError("the other side has gone")
        return super().read(most)


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_a_source_that_breaks_leaves_nothing(queue: Queues, durability: str) -> None:
    q = queue(**ROOMY)
    with pytest.raises(ConnectionResetError):
        q.put_file(Broken(LARGE), durability=durability)
    assert_empty(q)


def test_a_file_that_never_fits_is_refused_before_it_is_read(queue: Queues) -> None:
    q = queue(spill_bytes=1000, data_bytes=40_960)
    given = io.BytesIO(LARGE)
    with pytest.raises(BodyTooLarge) as caught:
        q.put_file(given)
    assert caught.value.body_bytes == len(LARGE) and given.tell() == 0
    with pytest.raises(BodyTooLarge):  # found out on the way
        q.put_file(Pipe(LARGE))
    assert_empty(q)


def test_bodies_never_take_more_than_the_queue_has(queue: Queues) -> None:
    """Also while a pipe is copied in, whose length nobody knew."""
    q = queue(spill_bytes=1000, data_bytes=81_920)
    q.put_file(io.BytesIO(LARGE))
    with pytest.raises(QueueFull, match="no room for 51256 bytes"):
        q.put_file(io.BytesIO(LARGE))
    with pytest.raises(QueueFull) as caught:
        q.put_file(Pipe(LARGE), timeout=0.01)
    assert caught.value.which == "data" and bodies(q) == [len(LARGE)]
    assert q.stats().spilled_bytes == len(LARGE)

    class Watched(Pipe):
        def read(self, most: int) -> bytes:
            stats = q.stats()
            assert sum(bodies(q)) <= stats.spilled_bytes
            assert stats.used_bytes + stats.spilled_bytes <= stats.data_bytes
            return super().read(most)

    q.put_file(Watched(LARGE[:20_000]))
    assert [message.body_bytes for message in q.get_many(9)] == [51_200, 20_000]


@pytest.mark.parametrize("pipe", [False, True])
def test_a_file_takes_the_room_of_what_was_acknowledged(queue: Queues, pipe: bool) -> None:
    q = queue(spill_bytes=1000, data_bytes=81_920, index_sync_ms=0)
    q.put_file(io.BytesIO(LARGE))
    q.get(block=False).ack()
    assert q.stats().kept == 1
    q.put_file(Pipe(LARGE) if pipe else io.BytesIO(LARGE))
    assert q.get(block=False).data == LARGE


# ---------------------------------------------------------------- reading, and what becomes of the message meanwhile


def test_nothing_is_read_before_somebody_wants_it(queue: Queues) -> None:
    q = queue(**ROOMY)
    q.put(LARGE)
    (looked,) = q.browse()
    message = q.get(block=False)
    (body,) = (q.path / "bodies").iterdir()
    os.truncate(body, 0)
    assert looked.body_bytes == message.body_bytes == len(LARGE)
    with body.open("wb") as file:
        file.write(LARGE)
    assert looked.data == message.body == LARGE
    body.unlink()
    assert message.data == LARGE  # once read, it is kept
    body.write_bytes(LARGE)


def test_an_open_stream_can_be_read_after_the_message_has_gone(queue: Queues) -> None:
    q = queue(**ROOMY)
    q.put(LARGE)
    message = q.get(block=False)
    stream = message.open()
    message.ack(durable=True)
    assert bodies(q) == []
    q.close()
    with stream:
        assert stream.read() == LARGE


def test_an_acknowledged_message_says_that_its_body_was_not_read(queue: Queues) -> None:
    q = queue(**ROOMY)
    q.put_many([LARGE, LARGE, b"small"])
    for message in q.get_many(2):
        message.ack()
        for look in (lambda m: m.data, lambda m: m.body, lambda m: m.open()):
            with pytest.raises(BodyGone, match="acknowledged or given back before"):
                look(message)  # type: ignore[no-untyped-call]
    message = q.get(block=False)
    message.ack()
    assert message.data == b"small"  # it came with the message


def test_a_lost_lease_gives_the_right_bytes_or_an_error(queue: Queues, clock: SimulatedClock) -> None:
    q = queue(**ROOMY)
    q.put(LARGE)
    late = q.get(block=False, lease=1)
    clock.advance(2)
    other = q.get(block=False, lease=1)
    assert late.data == LARGE  # it is the same message
    clock.advance(2)
    q.get(block=False).ack(durable=True)
    q.put(LARGE[::-1])  # into the same slot
    with pytest.raises(BodyGone, match="left the queue"):
        other.data  # noqa: B018
    with pytest.raises(LeaseLost):
        other.open()
    looked = next(iter(q.browse()))
    q.cancel(looked.id)
    q.sync_index()
    with pytest.raises(BodyGone):
        looked.data  # noqa: B018


def test_a_closed_queue_says_so(queue: Queues) -> None:
    q = queue(**ROOMY)
    q.put(LARGE)
    message = q.get(block=False)
    q.close()
    with pytest.raises(QueueClosed, match="before the body"):
        message.data  # noqa: B018


@pytest.mark.damages
def test_a_damaged_body_comes_back_after_a_lease(queue: Queues, clock: SimulatedClock) -> None:
    """Not at once: it would be in everybody's way."""
    q = queue(**ROOMY)
    q.put_file(io.BytesIO(LARGE))
    q.put("next")
    (body,) = (q.path / "bodies").iterdir()
    data = bytearray(LARGE)
    data[30_000] ^= 4
    body.write_bytes(data)
    with pytest.raises(Corrupt, match=body.name) as caught, q.get(block=False, lease=30) as message:
        message.data  # noqa: B018
    assert caught.value.path == str(body)
    assert [message.body for message in q.get_many(5)] == ["next"]
    clock.advance(31)
    with q.get(block=False) as message, contextlib.suppress(Corrupt), message.open() as stream:
        assert stream.read(10) == LARGE[:10]  # what is right so far
        stream.read()
        raise AssertionError("it was read to its end")


@pytest.mark.damages
def test_a_body_that_is_lost_while_it_is_ours_is_damage(queue: Queues) -> None:
    q = queue(**ROOMY)
    q.put_many([LARGE, LARGE])
    first, second = q.get_many(2)
    files = sorted((q.path / "bodies").iterdir())
    files[0].unlink()
    with pytest.raises(Corrupt, match="no file"):
        first.data  # noqa: B018
    os.truncate(files[1], 77)
    with pytest.raises(Corrupt, match="damaged at byte 77"):
        second.open()


# ---------------------------------------------------------------- copies


def test_a_backup_has_large_bodies(queue: Queues, tmp_path: Path) -> None:
    q = queue(**ROOMY)
    q.put_file(io.BytesIO(LARGE))
    made = penstock.backup(q.path, tmp_path / "copy")
    assert (made.messages, made.spilled_bytes) == (1, len(LARGE))
    with queue.open(tmp_path / "copy") as copy:
        assert copy.get(block=False).data == LARGE


@pytest.mark.damages
def test_a_backup_leaves_out_a_body_that_is_damaged(queue: Queues, tmp_path: Path) -> None:
    q = queue(**ROOMY)
    q.put_many([LARGE, LARGE[::-1], b"x"])
    first, _ = sorted((q.path / "bodies").iterdir())
    first.write_bytes(bytes(len(LARGE)))
    made = penstock.backup(q.path, tmp_path / "copy")
    assert made.messages == 2 and first.name in made.findings[0].what
    assert len(list((tmp_path / "copy" / "bodies").iterdir())) == 1
    findings: list[Any] = []
    exported = list(penstock.export_messages(q, findings=findings))
    assert len(exported) == 2 and first.name in findings[0].what
