"""Backup, export and import: what comes back, what is left out, and what says why it cannot be."""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Draft, ImportStopped, Misuse, QueueExists
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.directory import remove_tree
from penstock.timequeue import Finding, backups, exports, repair_queue
from penstock.timequeue.puts import plain
from tests.conftest import SMALL, Queues, SimulatedClock, assert_whole
from tests.crash.rig import killed_at

BODIES: list[Any] = [
    b"",
    b"\x00\xff bytes",
    bytes(range(256)) * 20,
    "",
    "Grüße ☃",
    {"order": 7, "items": [1.5, None, True, "é"], "big": 2**70},
    [],
    None,
    0,
    -1e300,
]


def shown(queue: penstock.TimeQueue) -> list[tuple[Any, ...]]:
    """Every message of a queue with all that it has, in the order in which they were put."""
    found = [
        (
            m.number, m.id, m.priority, m.type, m.key, m.headers, m.enqueued_us, m.deliver_us, m.attempts,
            m.last_attempt_us, type(m.body), m.body,
        )
        for m in queue.browse(state="all")
    ]  # fmt: skip
    return sorted(found, key=lambda row: row[0])


def varied(queue: penstock.TimeQueue, clock: SimulatedClock) -> None:
    """Messages of every kind, some of them taken, released, and released for later."""
    queue.put_many(BODIES)
    clock.advance(1)
    queue.put("timed", deliver_at=clock.now_s + 1000.000001, priority=15)
    queue.put("past", deliver_at=1.5)
    queue.put("described", type="order", key="example.com", headers={"a": "b", "é": ""}, priority=3)
    queue.put(bytes(3000), type="large")  # a file of its own
    gone, past, late, again, held = queue.get_many(5)
    gone.ack()
    past.release()
    late.release(delay=500)
    again.release()
    held.extend(1000)
    clock.advance(1)


@pytest.fixture
def full(queue: Queues, clock: SimulatedClock) -> penstock.TimeQueue:
    made = queue(slots=64, data_bytes=128 << 10, spill_bytes=2000)
    varied(made, clock)
    return made


# ---------------------------------------------------------------- backup


def test_a_backup_has_every_message_with_all_that_it_has(
    full: penstock.TimeQueue, queue: Queues, tmp_path: Path
) -> None:
    before = shown(full)
    made = penstock.backup(full.path, tmp_path / "copy")
    assert (made.messages, made.pending, made.gone, made.findings) == (len(before), 1, 0, [])
    assert shown(full) == before
    with queue.open(tmp_path / "copy") as copy:
        assert shown(copy) == before
        stats = copy.stats()
        assert (stats.waiting, stats.pending, stats.filling) == (len(before), 0, 0)
        assert stats.uuid == full.stats().uuid == made.uuid
        assert (stats.slots, stats.data_bytes) == (full.stats().slots, full.stats().data_bytes)
        assert (stats.used_bytes, stats.spilled_bytes) == (made.used_bytes, made.spilled_bytes)
        assert [client["holds"] for client in stats.clients] == [0]


def test_a_backup_delivers_in_the_same_order_and_goes_on_with_new_numbers(
    full: penstock.TimeQueue, queue: Queues, tmp_path: Path, clock: SimulatedClock
) -> None:
    penstock.backup(full.path, tmp_path / "copy")
    highest = max(row[0] for row in shown(full))
    clock.advance(2000)
    with queue.open(tmp_path / "copy") as copy:
        copy.put("new")
        orders = [[(m.id, m.body) for m in q.get_many(99)] for q in (full, copy)]
        assert orders[1][-1][1] == "new"
        assert orders[1][:-1] == orders[0]
        assert max(row[0] for row in shown(copy)) > highest


def test_what_the_original_gives_after_its_backup_has_another_id_than_what_the_backup_gives(
    full: penstock.TimeQueue, queue: Queues, tmp_path: Path
) -> None:
    penstock.backup(full.path, tmp_path / "copy")
    with queue.open(tmp_path / "copy") as copy:
        assert not set(full.put_many([b"x"] * 20)) & set(copy.put_many([b"y"] * 20))


def test_a_backup_with_a_new_identity_is_a_queue_of_its_own(
    full: penstock.TimeQueue, queue: Queues, tmp_path: Path
) -> None:
    made = penstock.backup(full.path, tmp_path / "copy", new_identity=True)
    secrets = [json.loads((path / "queue.json").read_text())["secret"] for path in (full.path, tmp_path / "copy")]
    assert secrets[0] != secrets[1]
    with queue.open(tmp_path / "copy") as copy:
        assert copy.stats().uuid == made.uuid != full.stats().uuid
        theirs, ours = shown(copy), shown(full)
        assert not {row[1] for row in theirs} & {row[1] for row in ours}
        assert [(row[0], *row[2:]) for row in theirs] == [(row[0], *row[2:]) for row in ours]


def test_a_backup_of_a_backup_is_the_same(full: penstock.TimeQueue, queue: Queues, tmp_path: Path) -> None:
    penstock.backup(full.path, tmp_path / "copy")
    penstock.backup(tmp_path / "copy", tmp_path / "again")
    with queue.open(tmp_path / "again") as again:
        assert shown(again) == shown(full)


def test_an_empty_and_a_full_queue_can_be_backed_up(queue: Queues, tmp_path: Path) -> None:
    q = queue(slots=8)
    assert penstock.backup(q.path, tmp_path / "empty").messages == 0
    q.put_many([b"x"] * 8)
    assert penstock.backup(q.path, tmp_path / "copy").messages == 8
    with queue.open(tmp_path / "copy") as copy, pytest.raises(penstock.QueueFull):
        copy.put(b"y")
    with queue.open(tmp_path / "empty") as empty:
        empty.put_many([b"y"] * 8)


@pytest.mark.parametrize("files", [2, 5])
def test_data_in_other_directories_is_in_the_copy_s_own(
    queue: Queues, tmp_path: Path, clock: SimulatedClock, files: int
) -> None:
    places = [tmp_path / f"disk{i}" for i in range(files)]
    q = queue(data_bytes=files * (16 << 10), data_dirs=places, kernel_dir=tmp_path / "fast", spill_bytes=2000)
    varied(q, clock)
    q.put_many([bytes([i]) * 1500 for i in range(10)])
    penstock.backup(q.path, tmp_path / "copy")
    assert {f"data.{i}" for i in range(files)} | {"kernel"} <= set(os.listdir(tmp_path / "copy"))
    with queue.open(tmp_path / "copy") as copy:
        assert shown(copy) == shown(q)
        assert copy.stats().data_bytes == q.stats().data_bytes


def test_the_room_of_a_copy_is_used_like_that_of_its_original(queue: Queues, tmp_path: Path) -> None:
    q = queue(slots=60, data_bytes=16 << 10)
    ids = q.put_many([bytes([i]) * (100 + 40 * (i % 7)) for i in range(40)])
    for message_id in list(ids)[1::3]:
        q.cancel(message_id)
    penstock.backup(q.path, tmp_path / "copy")
    with queue.open(tmp_path / "copy") as copy:
        for _ in range(200):
            copy.put_many([b"a" * 300, b"b" * 30])
            copy.ack_many(copy.get_many(2))
        assert_whole(copy.path)


@pytest.mark.parametrize("what", ["queue", "folder", "file"])
def test_a_backup_never_goes_over_something_that_is_there(full: penstock.TimeQueue, tmp_path: Path, what: str) -> None:
    target = tmp_path / "target"
    if what == "queue":
        penstock.create(target, **SMALL).close()
    elif what == "folder":
        target.mkdir()
        (target / "mine").write_text("mine")
    else:
        target.write_text("mine")
    before = sorted(target.rglob("*"))
    with pytest.raises(QueueExists):
        penstock.backup(full.path, target)
    with pytest.raises(QueueExists):
        penstock.backup(full.path, full.path)
    assert sorted(target.rglob("*")) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["queue", "target"]


def _while_copying(
    queue: Queues, path: Path, target: Path, work: Callable[[penstock.TimeQueue], None]
) -> backups.Backup:
    """A backup during which ``work`` is done once, when some records have been copied and others have not."""
    other = queue.open(path)
    base = other.stats().data_bytes
    done = False

    def progress(done_bytes: int, total_bytes: int) -> None:
        nonlocal done
        if not done and done_bytes > base + 4 * L.UNIT_BYTES:
            done = True
            work(other)

    made = penstock.backup(path, target, progress=progress)
    assert done
    return made


def test_what_is_acknowledged_or_cancelled_meanwhile_is_not_in_the_copy(queue: Queues, tmp_path: Path) -> None:
    q = queue(spill_bytes=500)
    ids = q.put_many([(b"%d" % i) * (600 if i % 5 == 0 else 1) for i in range(30)])
    taken = q.get_many(8)

    def work(other: penstock.TimeQueue) -> None:
        q.ack_many(taken[:4])  # copied already, one of them with a file
        assert other.cancel(ids[20])
        assert other.cancel(ids[25])  # not copied yet, with a file

    made = _while_copying(queue, q.path, tmp_path / "copy", work)
    assert (made.messages, made.gone, made.findings) == (24, 6, [])
    with queue.open(tmp_path / "copy") as copy:
        assert shown(copy) == shown(q)
        q.sync_index()  # until then bodies stay, of which the background has perhaps removed some by now
        assert len(os.listdir(copy.path / "bodies")) == len(os.listdir(q.path / "bodies")) == 3


def test_what_is_put_meanwhile_is_not_in_the_copy_even_where_it_takes_a_removed_one_s_place(
    queue: Queues, tmp_path: Path
) -> None:
    q = queue(slots=30)
    ids = list(q.put_many([b"old %d" % i for i in range(30)]))

    def work(other: penstock.TimeQueue) -> None:
        for message_id in ids[::3]:
            other.cancel(message_id)
        other.put_many([b"new %d" % i for i in range(10)])

    made = _while_copying(queue, q.path, tmp_path / "copy", work)
    assert made.gone == 10
    with queue.open(tmp_path / "copy") as copy:
        assert [m.body for m in copy.browse()] == [b"old %d" % i for i in range(30) if i % 3]
        assert copy.stats().vacant == 10


def test_what_is_released_for_later_meanwhile_is_in_the_copy_as_it_was_at_the_start(
    queue: Queues, tmp_path: Path
) -> None:
    q = queue()
    q.put_many([b"%d" % i for i in range(20)])
    before = shown(q)

    def work(other: penstock.TimeQueue) -> None:
        for message in other.get_many(15):
            message.release(delay=100)

    _while_copying(queue, q.path, tmp_path / "copy", work)
    with queue.open(tmp_path / "copy") as copy:
        assert shown(copy) == before


def test_a_batch_that_is_being_filled_is_not_in_the_copy(queue: Queues, tmp_path: Path) -> None:
    q = queue()
    q.put_many([b"there"] * 3)
    filling = penstock.open(q.path)
    items = [plain(b"half") for _ in range(4)]
    client = filling._mine()
    now_us = client.turn(filling._producer._reserve, items)
    filling._producer._copy(items, now_us, False, True)
    assert penstock.backup(q.path, tmp_path / "copy").messages == 3
    queue.die(filling)
    with queue.open(tmp_path / "copy") as copy:
        assert [m.body for m in copy.browse(state="all")] == [b"there"] * 3
        assert copy.stats().filling == 0


def _damage(path: Path, data: bytes) -> int:
    """Flip a bit in the middle of this; its offset in the data file."""
    at = (path / "data.0").read_bytes().index(data)
    with open(path / "data.0", "r+b") as file:
        file.seek(at + len(data) // 2)
        byte = file.read(1)[0]
        file.seek(at + len(data) // 2)
        file.write(bytes([byte ^ 4]))
    return at


@pytest.mark.damages
def test_a_damaged_record_is_reported_with_its_place_and_left_out(queue: Queues, tmp_path: Path) -> None:
    q = queue()
    q.put_many([b"first", b"the second one", b"third"])
    at = _damage(q.path, b"the second one")
    made = penstock.backup(q.path, tmp_path / "copy")
    (found,) = made.findings
    assert (found.path, found.offset) == (str(q.path / "data.0"), at // L.UNIT_BYTES * L.UNIT_BYTES)
    assert "message 2" in found.what
    assert_whole(tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as copy:
        assert [m.body for m in copy.browse()] == [b"first", b"third"]


@pytest.mark.damages
@pytest.mark.parametrize("way", ["changed", "short", "gone"])
def test_a_damaged_body_file_is_reported_and_left_out(queue: Queues, tmp_path: Path, way: str) -> None:
    q = queue(spill_bytes=100)
    q.put_many([b"small", b"x" * 500])
    (body,) = (q.path / "bodies").iterdir()
    body.unlink() if way == "gone" else body.write_bytes(b"y" * 500 if way == "changed" else b"x" * 499)
    made = penstock.backup(q.path, tmp_path / "copy")
    assert [str(body) in finding.what for finding in made.findings] == [True]
    assert_whole(tmp_path / "copy")
    assert os.listdir(tmp_path / "copy" / "bodies") == []


@pytest.mark.damages
def test_a_damaged_identity_word_is_reported_and_left_out(queue: Queues, tmp_path: Path) -> None:
    q = queue()
    q.put_many([b"first", b"second"])
    client = q._mine()
    slot = client.kernel.due(q._clock.wall_us())
    word = client.kernel.slots_at + slot * L.SLOT_WORDS
    client.words.raw(word, client.words.view[word] ^ 1)
    made = penstock.backup(q.path, tmp_path / "copy")
    assert ["identity word" in finding.what for finding in made.findings] == [True]
    assert_whole(tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as copy:
        assert [m.body for m in copy.browse()] == [b"second"]


def test_the_records_of_a_copy_say_all_that_its_index_says(
    full: penstock.TimeQueue, queue: Queues, tmp_path: Path
) -> None:
    """Its lists are destroyed and made anew from slots and records, as after a power loss."""
    before = shown(full)
    penstock.backup(full.path, tmp_path / "copy")
    kernel = bytearray((tmp_path / "copy" / "kernel").read_bytes())
    at = L.regions(64 + 2)[L.H_LISTS_AT] * L.WORD_BYTES
    kernel[at : at + 2048] = bytes(2048)
    (tmp_path / "copy" / "kernel").write_bytes(kernel)
    assert repair_queue(tmp_path / "copy")
    with queue.open(tmp_path / "copy") as copy:
        without_last_attempt = [(*row[:9], *row[10:]) for row in shown(copy)]
        assert without_last_attempt == [(*row[:9], *row[10:]) for row in before]


def test_the_identity_of_the_storage_is_left_open_in_a_copy(full: penstock.TimeQueue, tmp_path: Path) -> None:
    penstock.backup(full.path, tmp_path / "copy")
    words = memoryview((tmp_path / "copy" / "kernel").read_bytes()).cast("Q")
    assert list(words[L.H_BOOT_ID : L.H_MOUNT + 1]) == [0] * 6


def test_a_killed_backup_leaves_nothing_at_its_place_or_a_whole_copy(path: Path, tmp_path: Path) -> None:
    with penstock.create(path, slots=4, data_bytes=1 << 13, spill_bytes=300, durability="relaxed") as q:
        q.put_many([b"a", b"b" * 400, "c"])
    step, stride, whole = 1, 3, 0
    while killed_at(step, lambda _: penstock.backup(path, tmp_path / "copy"), lambda: None):
        assert_whole(path)
        if (tmp_path / "copy").exists():
            whole += 1
            assert_whole(tmp_path / "copy")
            remove_tree(tmp_path / "copy")
        step += stride
    assert step > 100
    with penstock.open(path) as q, penstock.open(tmp_path / "copy") as copy:
        assert shown(copy) == shown(q)
    assert whole <= step // stride // 2  # the name is the last thing that it gets


class _Failing:
    """The n-th call of one kind fails."""

    def __init__(self, kind: str, n: int) -> None:
        self._kind = kind
        self.left = n

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == self._kind:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("kind", [rig.OPEN, rig.ALLOCATE, rig.WRITE, rig.SYNC, rig.RENAME])
def test_a_backup_that_fails_leaves_nothing(path: Path, tmp_path: Path, kind: str) -> None:
    with penstock.create(path, slots=4, data_bytes=1 << 13, spill_bytes=300, durability="relaxed") as q:
        q.put_many([b"a", b"b" * 400, "c"])
    n = 0
    while True:
        n += 1
        failing = _Failing(kind, n)
        rig.observe(failing)
        try:
            penstock.backup(path, tmp_path / "copy")
        except OSError as error:
            assert error.errno == errno.EIO
            left = [p.name for p in tmp_path.iterdir()]
            assert left in (["queue"], ["copy", "queue"], ["queue", "copy"])
            if len(left) == 2:  # the last sync, of the folder that it is in, comes after the rename
                assert kind in (rig.SYNC, rig.OPEN)
                assert_whole(tmp_path / "copy")
                remove_tree(tmp_path / "copy")
            continue
        finally:
            rig.observe(None)
        break
    assert failing.left > 0
    assert n > 1


# ---------------------------------------------------------------- export and import


def lines(queue: penstock.TimeQueue, **options: Any) -> list[bytes]:
    return list(penstock.export_messages(queue, **options).lines())


def test_every_field_and_every_kind_of_body_comes_back(
    full: penstock.TimeQueue, queue: Queues, clock: SimulatedClock
) -> None:
    other = queue("other", data_bytes=128 << 10, spill_bytes=2000)
    clock.advance(1)
    done = penstock.import_messages(other, lines(full))
    ours, theirs = shown(full), shown(other)
    assert done.messages == len(ours)
    same = [(row[2:6], row[10:]) for row in ours]
    assert [(row[2:6], row[10:]) for row in theirs] == same
    assert not {row[1] for row in ours} & {row[1] for row in theirs}
    for mine, theirs_row in zip(penstock.export_messages(full), penstock.export_messages(other), strict=True):
        assert mine["deliver_at_us"] == theirs_row["deliver_at_us"]
        assert mine["body"] == theirs_row["body"]
        assert theirs_row["attempts"] == 0


def test_an_export_says_all_of_a_message(full: penstock.TimeQueue, clock: SimulatedClock) -> None:
    head, *found, end = [json.loads(line) for line in lines(full)]
    assert head["penstock_export"] == 1
    assert (head["queue"], head["uuid"]) == (full.name, full.stats().uuid)
    assert head["exported_at"].startswith("2023-11-14T22:13:")
    assert end == {"messages": len(found)}
    by_number = {m.number: m for m in full.browse(state="all")}
    assert [row["number"] for row in found] == sorted(by_number)
    for row in found:
        message = by_number[row["number"]]
        assert row["id"] == message.id
        assert row["state"] == message.state
        assert (row["priority"], row["type"], row["key"]) == (message.priority, message.type, message.key)
        assert (row["headers"], row["attempts"]) == (message.headers, message.attempts)
        assert row["enqueued_at_us"] == message.enqueued_us
        assert row["deliver_at_us"] in (None, message.deliver_us)
        assert base64.b64decode(row["body"]) == message.data
    assert sum(row["deliver_at_us"] is None for row in found) == len(found) - 3
    assert {row["codec"] for row in found} == {"bytes", "str", "json"}
    assert [row["state"] for row in found].count("pending") == 1


@pytest.mark.parametrize("state", ["waiting", "pending", "all"])
def test_an_export_has_the_states_that_were_asked_for(full: penstock.TimeQueue, state: str) -> None:
    found = list(penstock.export_messages(full, state=state))
    assert [row["id"] for row in found] == [
        m.id for m in sorted(full.browse(state=state), key=lambda message: message.number)
    ]
    with pytest.raises(Misuse, match="state"):
        penstock.export_messages(full, state="gone")


def test_an_export_is_of_one_moment_and_leaves_out_what_is_removed(
    queue: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "LOOKED_AGAIN_MAX", 4)
    q = queue()
    ids = q.put_many([b"%d" % i for i in range(12)])
    export = penstock.export_messages(q)
    first = [next(export)["body"] for _ in range(2)]
    q.put(b"later")
    q.cancel(ids[3])  # read already, and looked at again already
    q.cancel(ids[8])
    q.get().release(delay=100)
    q.put(b"in its place")
    bodies = [base64.b64decode(body) for body in [*first, *(row["body"] for row in export)]]
    assert bodies == [b"%d" % i for i in range(12) if i != 8]
    assert (export.total, export.messages, export.gone) == (12, 11, 1)


def test_an_export_of_a_queue_that_is_closed_meanwhile_says_so(queue: Queues) -> None:
    q = queue()
    q.put_many([b"x"] * 3)
    export = penstock.export_messages(q)
    q.close()
    with pytest.raises(penstock.QueueClosed):
        next(export)


@pytest.mark.damages
def test_an_export_raises_for_a_damaged_message_or_notes_it_and_goes_on(queue: Queues) -> None:
    q = queue()
    q.put_many([b"first", b"the second one", b"third"])
    at = _damage(q.path, b"the second one")
    with pytest.raises(penstock.Corrupt) as caught:
        lines(q)
    assert caught.value.offset == at // L.UNIT_BYTES * L.UNIT_BYTES
    findings: list[Finding] = []
    found = [json.loads(line) for line in lines(q, findings=findings)]
    assert [base64.b64decode(row["body"]) for row in found[1:-1]] == [b"first", b"third"]
    assert found[-1] == {"messages": 2}
    assert [finding.offset for finding in findings] == [caught.value.offset]


def test_the_order_of_delivery_is_kept(queue: Queues, clock: SimulatedClock) -> None:
    q, other = queue(slots=2000, data_bytes=1 << 20), queue("other", slots=2000, data_bytes=1 << 20)
    q.put_many([Draft(body=i, priority=i % 4) for i in range(1200)])
    q.put_many([Draft(body=i, deliver_at=clock.now_s + 10 + i * 7 % 50) for i in range(100)])
    assert penstock.import_messages(other, lines(q)).messages == 1300
    clock.advance(100)
    assert [m.body for m in other.get_many(2000)] == [m.body for m in q.get_many(2000)]


def test_an_import_can_make_a_queue_like_the_exported_one(full: penstock.TimeQueue, path: Path, tmp_path: Path) -> None:
    source = exports.Source(lines(full))
    with source.create(tmp_path / "new") as made:
        ours, theirs = full.stats(), made.stats()
        assert (ours.slots, ours.data_bytes) == (theirs.slots, theirs.data_bytes)
        assert ours.uuid != theirs.uuid
        assert made._mine().options.spill_bytes == 2000
        assert made._mine().options.durability == "relaxed"


def test_the_queue_that_an_import_makes_has_every_option_of_the_exported_one(queue: Queues, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "lease": 7.0,
        "index_sync_ms": 500,
        "max_attempts": 3,
        "backoff": 2.0,
        "expired": "dead_letter",
    }
    q = queue(**given, dedup_window=60.0, dedup_entries=64, exclusive_keys=True, dead_letter="delete", notify="file")
    with exports.Source(lines(q)).create(tmp_path / "new") as made:
        ours, theirs = (msgspec.structs.asdict(one._mine().options) for one in (q, made))
    assert {name for name in ours if ours[name] != theirs[name]} == {"uuid", "secret"}


def test_an_import_into_a_queue_without_room_says_how_many_are_in_and_goes_on_later(queue: Queues) -> None:
    q, other = queue(slots=2000, data_bytes=1 << 20), queue("other", slots=1200, data_bytes=1 << 20)
    q.put_many(list(range(1700)))
    exported = lines(q)
    told: list[int] = []
    with pytest.raises(ImportStopped, match="1000 messages are in") as caught:
        penstock.import_messages(other, exported, progress=told.append)
    assert isinstance(caught.value.__cause__, penstock.QueueFull)
    assert caught.value.messages == 1000
    assert told == [500, 500]
    assert [m.body for m in other.browse()] == list(range(1000))
    other.ack_many(other.get_many(1000))
    done = penstock.import_messages(other, exported, skip=caught.value.messages)
    assert (done.messages, done.skipped) == (700, 1000)
    assert [m.body for m in other.browse()] == list(range(1000, 1700))


def test_large_bodies_go_in_smaller_batches(queue: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "IMPORTED_BYTES", 10_000)
    q, other = queue(data_bytes=1 << 20), queue("other", data_bytes=1 << 20)
    q.put_many([b"x" * 3000 for _ in range(20)])
    told: list[int] = []
    penstock.import_messages(other, lines(q), progress=told.append)
    assert told == [2] * 10


@pytest.fixture
def exported(queue: Queues) -> list[bytes]:
    q = queue("source", slots=2000, data_bytes=1 << 20)
    q.put_many(list(range(1100)))
    return lines(q)


@pytest.mark.parametrize("kept", [1, 2, 300, 501, 502, 1000, 1101])
def test_an_export_that_was_cut_short_is_noticed(queue: Queues, exported: list[bytes], kept: int) -> None:
    q = queue(slots=2000, data_bytes=1 << 20)
    with pytest.raises(ImportStopped, match="cut short") as caught:
        penstock.import_messages(q, exported[:kept])
    assert q.qsize() == caught.value.messages == (kept - 2) // 500 * 500 if kept > 1 else q.qsize() == 0


def test_a_line_that_was_cut_is_named_and_nothing_of_its_batch_is_put(queue: Queues, exported: list[bytes]) -> None:
    q = queue(slots=2000, data_bytes=1 << 20)
    with pytest.raises(ImportStopped, match=r"line 701: .* 500 messages are in"):
        penstock.import_messages(q, [*exported[:700], exported[700][:-10]])
    assert [m.body for m in q.browse()] == list(range(500))


@pytest.mark.parametrize(
    "change",
    [
        {"codec": "morse"},
        {"codec": None},
        {"codec": "json", "body": base64.b64encode(b"{").decode()},
        {"codec": "str", "body": base64.b64encode(b"\xff").decode()},
        {"body": "not base64!"},
        {"body": 7},
        {"priority": 16},
        {"priority": "high"},
        {"deliver_at_us": 0},
        {"deliver_at_us": -5},
        {"deliver_at_us": 1 << 62},
        {"deliver_at_us": "soon"},
        {"type": 5},
        {"headers": {"a": 1}},
        {"headers": ["a"]},
        {"key": "k" * 70_000},
        {"codec": "json", "body": base64.b64encode(b"NaN").decode()},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_wrong_line_is_named_and_nothing_of_its_batch_is_put(
    queue: Queues, exported: list[bytes], change: dict[str, Any]
) -> None:
    q = queue(slots=2000, data_bytes=1 << 20)
    wrong = json.dumps({**json.loads(exported[600]), **change})
    with pytest.raises(ImportStopped) as caught:
        penstock.import_messages(q, [*exported[:600], wrong, *exported[601:]])
    assert isinstance(caught.value.__cause__, Misuse)
    assert "line 601" in str(caught.value)
    assert caught.value.messages == q.qsize() == 500


@pytest.mark.parametrize("missing", ["body", "codec", "priority", "deliver_at_us"])
def test_a_line_without_a_field_is_named(queue: Queues, exported: list[bytes], missing: str) -> None:
    row = json.loads(exported[1])
    del row[missing]
    with pytest.raises(ImportStopped, match=rf"line 2: .*{missing}"):
        penstock.import_messages(queue(), [exported[0], json.dumps(row), b'{"messages":1}'])


def test_lines_that_are_missing_doubled_or_too_many_are_noticed(queue: Queues, exported: list[bytes]) -> None:
    q = queue(slots=2000, data_bytes=1 << 20)
    head, first, second, *_ = exported
    for wrong, why in (
        ([head, first, b'{"messages":2}'], "2 messages should be here, 1 are"),
        ([head, first, second, first, b'{"messages":2}'], "2 messages should be here, 3 are"),
        ([head, first, b'{"messages":1}', second], "something follows"),
        ([head, first, b"", b'{"messages":1}'], "line 3"),
        ([head, first, b"\xff\n", b'{"messages":1}'], "line 3"),
        ([head, b'{"messages":-1}'], "line 2"),
    ):
        with pytest.raises(ImportStopped, match=why):
            penstock.import_messages(q, wrong)
    assert q.qsize() == 0
    with pytest.raises(Misuse, match="skip=5 is past the end of the export, which has 1 messages; nothing was put"):
        penstock.import_messages(q, [head, first, b'{"messages":1}'], skip=5)


@pytest.mark.parametrize("head", [b"", b"{}", b"hello", b"\xff", b'{"penstock_export":"1"}', b"[1]", b'{"messages":0}'])
def test_something_else_is_not_an_export(queue: Queues, head: bytes) -> None:
    with pytest.raises(Misuse, match="not an export"):
        penstock.import_messages(queue(), [head, b'{"messages":0}'])
    with pytest.raises(Misuse, match="not an export"):
        penstock.import_messages(queue("other"), [])


def test_an_export_of_a_later_format_is_refused(queue: Queues, exported: list[bytes]) -> None:
    head = json.dumps({**json.loads(exported[0]), "penstock_export": 2})
    with pytest.raises(Misuse, match="format 2"):
        penstock.import_messages(queue(), [head, *exported[1:]])


def test_text_spaces_and_new_fields_do_no_harm(queue: Queues, exported: list[bytes]) -> None:
    q = queue(slots=2000, data_bytes=1 << 20)
    rows = [{**json.loads(line), "of a later version": 1} for line in exported]
    assert penstock.import_messages(q, [json.dumps(row, indent=None) + "\r\n" for row in rows]).messages == 1100


def test_a_bad_skip_is_refused(queue: Queues, exported: list[bytes]) -> None:
    for skip in (-1, 1.5, True):
        with pytest.raises(Misuse, match="skip"):
            penstock.import_messages(queue(f"q{skip}"), exported, skip=skip)  # type: ignore[arg-type]
