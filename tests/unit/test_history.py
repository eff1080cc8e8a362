"""What became of messages is kept in files beside the queue: bounded, cheap, and never in the way."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import outcomes, rig
from penstock.store.options import Options
from penstock.store.outcomes import Outcomes
from penstock.timequeue import history, verdicts
from penstock.timequeue.history import History

MB = 1 << 20
PATIENCE_S = 20.0


def kept(queue: penstock.TimeQueue) -> list[penstock.Outcome]:
    """All of it, also what a client would write within the next second."""
    client = queue._mine()
    client.seal_history()
    assert client.history is not None
    client.history.write(wait=True)
    return list(penstock.outcomes(queue.path))


def files(queue: penstock.TimeQueue) -> list[Path]:
    return history.files_of(queue.path)


def total_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


class Writer:
    """A client's history without its queue."""

    def __init__(self, folder: Path, clock: Any, *, most_bytes: int, age_s: float = 1000.0, client: int = 0) -> None:
        options = Options(
            penstock=1,
            uuid="00000000-0000-0000-0000-000000000000",
            secret="0" * 16,
            slots=1,
            data_bytes=4096,
            spill_bytes=0,
            lease_s=1,
            durability="relaxed",
            kernel_bytes=1,
            history_bytes=most_bytes,
            history_age_s=age_s,
        )
        self.clock = clock
        self.gathered = Outcomes()
        self.history = History(folder, options, "prefix-", client, clock, self.gathered)
        self.folder = folder / history.FOLDER
        self.number = 0

    def note(self, count: int, meta: bytes = b"") -> None:
        for _ in range(count):
            self.number += 1
            now_us = self.clock.wall_us()
            self.gathered.note(self.number, 1, now_us, now_us, now_us, now_us, 1, 0, outcomes.ACKED, meta, b"")

    def write(self) -> None:
        self.gathered.seal()
        self.history.write()

    def numbers(self) -> list[int]:
        damage = outcomes.Damage()
        return [
            words[outcomes.O_NUMBER]
            for each in history._files(self.folder)
            for _, rows, _ in history.read_blocks(each.file, damage)
            for words in outcomes.ROW.iter_unpack(rows)
        ]


# ---------------------------------------------------------------- what is kept


def test_without_the_option_nothing_is_written(queue: Any) -> None:
    q = queue()
    q.put("a")
    q.get().ack()
    client = q._mine()
    assert client.history is None and client.outcomes is None
    q.close()
    assert not (q.path / "history").exists()
    assert list(penstock.outcomes(q.path)) == []


def test_an_outcome_says_which_message_when_how_often_and_who(queue: Any, clock: Any) -> None:
    q = queue(history_bytes=MB)
    start_us = clock.wall_us()
    id = q.put("a", type="order", key="example.com", priority=3, delay=2, headers={"x": "y"})
    clock.advance(5)
    message = q.get(block=False)
    clock.advance(0.25)
    message.ack()
    assert kept(q) == [
        penstock.Outcome(
            id=id,
            type="order",
            key="example.com",
            priority=3,
            attempts=1,
            enqueued_us=start_us,
            deliver_us=start_us + 2_000_000,
            taken_us=start_us + 5_000_000,
            done_us=start_us + 5_250_000,
            owner=f"pid {os.getpid()}",
            result="acked",
            reason=None,
            error=None,
        )
    ]


def test_every_way_out_of_a_queue_is_an_outcome(queue: Any, clock: Any, tmp_path: Path) -> None:
    q = queue(history_bytes=MB, max_attempts=2)
    other = queue("other")
    q.put("acked", type="acked")
    q.get(block=False).ack()
    q.put("fails", type="fails")
    q.get(block=False).fail(ValueError("no"))
    q.get(block=False).fail("again")
    q.put("bad", type="bad")
    q.get(block=False).dead_letter("broken", error="what it was")
    q.put("late", type="late", ttl=1)
    clock.advance(2)
    with pytest.raises(penstock.QueueEmpty):
        q.get(block=False)
    assert q.cancel(q.put("cancelled", type="cancelled"))
    q.put("purged", type="purged")
    assert q.purge() == 1
    q.put("moved", type="moved")
    q.get(block=False).move(to=other)
    q.put("released", type="released")
    q.get(block=False).release()
    q.get(block=False, type="released").ack()
    said = [(each.type, each.result, each.attempts, each.reason, each.error) for each in kept(q)]
    assert said == [
        ("acked", "acked", 1, None, None),
        ("fails", "failed", 1, None, "ValueError: no"),
        ("fails", "dead-lettered", 2, "max_attempts", "again"),
        ("bad", "dead-lettered", 1, "broken", "what it was"),
        ("late", "expired", 1, "expired", None),
        ("cancelled", "cancelled", 0, None, None),
        ("purged", "purged", 0, None, None),
        ("moved", "moved", 1, other.name, None),
        ("released", "acked", 2, None, None),
    ]


def test_what_is_deleted_instead_of_dead_lettered_is_dropped(queue: Any, clock: Any) -> None:
    q = queue(history_bytes=MB, max_attempts=1, dead_letter="delete")
    q.put("a")
    q.get(block=False).fail("broken")
    assert [(each.result, each.reason, each.error) for each in kept(q)] == [("dropped", "max_attempts", "broken")]


def test_an_acknowledgement_that_came_too_late_is_no_outcome(queue: Any, clock: Any) -> None:
    q = queue(history_bytes=MB)
    q.put_many(["a", "b"])
    first, second = q.get_many(2, lease=1)
    clock.advance(2)
    assert q.get(block=False).id == first.id
    with pytest.raises(penstock.LeaseLost):
        q.ack_many([first])
    assert kept(q) == []
    assert second.attempts == 1


def test_coroutines_consumers_and_batches_leave_outcomes_too(queue: Any) -> None:
    import asyncio

    q = queue(history_bytes=MB)
    q.put_many(list(range(9)))
    q.ack_many(q.get_many(3))
    with q.consumer(prefetch=3, wait=0) as consumer:
        for number, _ in enumerate(consumer):
            if number == 2:
                break

    async def rest() -> None:
        while q.qsize():
            message = await q.aget(0)
            await message.aack()

    asyncio.run(rest())
    assert Counter(each.result for each in kept(q)) == {"acked": 9}


def test_what_a_receiver_commits_is_acknowledged_under_its_name(queue: Any) -> None:
    q = queue(history_bytes=MB, spill_bytes=100)
    ids = [q.put(b"x" * (500 if n % 5 == 0 else 10), type="t", key=f"k{n % 2}", priority=n % 3) for n in range(20)]
    with q.receiver("nightly") as receiver:
        first, second = receiver.claim(12), receiver.claim(12)
        receiver.commit(first.number)
        assert len(kept(q)) == 12
        receiver.commit(second.number)
        receiver.commit(second.number)
    with q.receiver("nightly"):  # which finishes what the last one may have left
        assert (q.path / "claims").exists()
    found = kept(q)
    assert len(found) == 20
    assert sorted(each.id for each in found) == sorted(ids)
    assert {(each.owner, each.result, each.attempts, each.type) for each in found} == {
        ("receiver nightly", "acked", 1, "t")
    }
    assert {each.key for each in found} == {"k0", "k1"} and {each.priority for each in found} == {0, 1, 2}
    assert all(0 < each.enqueued_us <= each.taken_us <= each.done_us for each in found)


def test_what_verdicts_say_of_messages_of_a_claim_is_kept(queue: Any) -> None:
    q = queue(history_bytes=MB)
    failed, dead, _ = q.put_many(["a", "b", "c"], type="t")
    with q.receiver("nightly") as receiver:
        claim = receiver.claim(12)
        verdicts.note(q, "nightly", [verdicts.Failed(failed, "not today"), verdicts.Dead(dead, "never", "no")])
        receiver.commit(claim.number)
        receiver.commit(claim.number)
    found = {each.id: (each.result, each.reason, each.error, each.attempts) for each in kept(q)}
    assert len(kept(q)) == 3 and found[failed] == ("failed", None, "not today", 1)
    assert found[dead] == ("dead-lettered", "never", "no", 1)
    assert Counter(result for result, *_ in found.values())["acked"] == 1


def test_a_long_meta_is_cut_to_type_key_and_id(queue: Any) -> None:
    q = queue(history_bytes=MB)
    id = q.put("a", type="t", key="k", headers={"long": "x" * 5000})
    q.get().ack()
    (found,) = kept(q)
    assert (found.id, found.type, found.key) == (id, "t", "k")
    assert files(q)[0].stat().st_size < 500


def test_the_files_have_the_rights_of_the_queue(queue: Any) -> None:
    before = os.umask(0o077)
    try:
        q = queue(history_bytes=MB, mode=0o660)
        q.put("a")
        q.get().ack()
        kept(q)
    finally:
        os.umask(before)
    assert (q.path / "history").stat().st_mode & 0o777 == q.path.stat().st_mode & 0o777
    assert files(q)[0].stat().st_mode & 0o777 == 0o660


def test_a_purge_of_many_does_not_keep_their_lines_in_memory(queue: Any) -> None:
    q = queue(history_bytes=8 * MB, slots=6000, data_bytes=4 * MB, index_sync_ms=0)
    q.put_many([b"x"] * 5000, type="t")
    assert q.purge() == 5000
    assert len(q._mine().outcomes.sealed) <= 1
    assert Counter(each.result for each in kept(q)) == {"purged": 5000}


def test_the_same_texts_are_stored_once_in_a_block() -> None:
    gathered = Outcomes()
    for number in range(1000):
        gathered.note(number, 1, 1, 1, 1, 1, 1, 0, outcomes.ACKED, b"meta %d" % (number % 4), b"")
    gathered.seal()
    (block,) = gathered.sealed
    assert len(block) == outcomes.BLOCK.size + 1000 * outcomes.ROW_BYTES + 4 * len(b"meta 0")


# ---------------------------------------------------------------- bounds


def test_the_files_together_stay_within_the_bound_and_the_newest_are_kept(tmp_path: Path, clock: Any) -> None:
    writer = Writer(tmp_path, clock, most_bytes=MB)
    most = 0
    for _ in range(60):
        writer.note(1000)
        clock.advance(0.01)
        writer.write()
        most = max(most, total_bytes(writer.folder))
    assert MB * 3 // 4 < most <= MB
    numbers = writer.numbers()
    assert numbers == list(range(numbers[0], 60_001)), "not the newest, without a gap"
    assert len(list(writer.folder.iterdir())) > 4


def test_many_clients_together_stay_within_the_bound(tmp_path: Path, clock: Any) -> None:
    writers = [Writer(tmp_path, clock, most_bytes=MB, client=client) for client in range(12)]
    for _ in range(12):
        for writer in writers:
            writer.note(300)
            clock.advance(0.01)
            writer.write()
            assert total_bytes(writer.folder) <= MB
    for writer in writers:
        assert not writer.history.stopped


def test_a_writer_whose_file_was_removed_goes_on_with_another(tmp_path: Path, clock: Any) -> None:
    writer = Writer(tmp_path, clock, most_bytes=MB)
    writer.note(3)
    writer.write()
    for file in writer.folder.iterdir():
        file.unlink()
    clock.advance(1)
    writer.note(2)
    writer.write()
    assert writer.numbers() == [4, 5]


def test_what_is_too_old_is_removed_though_nothing_is_written(tmp_path: Path, clock: Any) -> None:
    writer = Writer(tmp_path, clock, most_bytes=MB, age_s=800)
    writer.note(1)
    writer.write()
    clock.advance(150)  # more than an eighth: the next goes to another file
    writer.note(1)
    writer.write()
    assert len(list(writer.folder.iterdir())) == 2
    clock.advance(700)
    writer.history.tend()
    assert writer.numbers() == [1, 2], "nothing is removed before its age"
    clock.advance(100)
    writer.history.tend()
    assert writer.numbers() == [2]
    clock.advance(800)
    writer.history.tend()
    assert writer.numbers() == []


def test_a_block_is_written_when_it_is_a_second_old_by_the_next_call(queue: Any, clock: Any) -> None:
    q = queue(history_bytes=MB, index_sync_ms=0)
    q.put_many(["a", "b", "c"])
    q.get(block=False).ack()
    clock.advance(0.5)
    q.get(block=False).ack()
    clock.advance(0.6)
    q.get(block=False).ack()
    assert len(q._mine().outcomes.sealed) == 0
    assert [each.attempts for each in penstock.outcomes(q.path)][:2] == [1, 1]


def test_the_background_writes_within_about_a_second(queue: Any) -> None:
    q = queue(history_bytes=MB, index_sync_ms=0)
    q.put("a")
    q.get().ack()
    deadline = time.monotonic() + PATIENCE_S
    while not list(penstock.outcomes(q.path)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("wrong", [-1, 1, MB - 1, 1.5, True, "1M"])
def test_a_bound_that_cannot_be_is_refused(path: Path, wrong: Any) -> None:
    with pytest.raises(penstock.Misuse, match="history_bytes"):
        penstock.create(path, history_bytes=wrong)


def test_the_options_can_be_changed_and_count_from_the_next_open(tmp_path: Path) -> None:
    with penstock.QueueManager(tmp_path) as manager:
        manager.create("orders", depth=64, data_bytes=1 << 16, durability="relaxed")

        def one(body: str) -> None:
            with manager.open("orders") as q:
                q.put(body, type=body)
                q.get(timeout=1).ack()
            manager.close("orders")

        one("before")
        manager.configure("orders", history_bytes=2 * MB, history_age=60.0)
        assert manager.find("orders").options.history_bytes == 2 * MB
        assert manager.find("orders").options.history_age == 60
        one("kept")
        manager.configure("orders", history_bytes=0)
        one("after")
    assert [each.type for each in penstock.outcomes(tmp_path / "orders")] == ["kept"]


# ---------------------------------------------------------------- damage


def three_blocks(q: penstock.TimeQueue) -> bytes:
    for number in range(3):
        q.put_many([number] * 4, type=f"t{number}")
        q.ack_many(q.get_many(4))
        kept(q)
    (file,) = files(q)
    return file.read_bytes()


def test_a_torn_tail_is_passed_over(queue: Any) -> None:
    q = queue(history_bytes=MB)
    data = three_blocks(q)
    (file,) = files(q)
    ends = [at for at in range(len(data)) if data.startswith(outcomes.BLOCK_MAGIC, at)] + [len(data)]
    for cut in range(ends[1], len(data)):
        file.write_bytes(data[:cut])
        damage = outcomes.Damage()
        found = list(penstock.outcomes(q.path, damage=damage))
        assert len(found) == 4 * (sum(end <= cut for end in ends) - 1)
        assert damage.blocks == 0 and damage.torn_bytes == cut - max(end for end in ends if end <= cut)


def test_every_flipped_bit_costs_one_block_and_is_counted(queue: Any) -> None:
    q = queue(history_bytes=MB)
    data = three_blocks(q)
    (file,) = files(q)
    starts = [at for at in range(len(data)) if data.startswith(outcomes.BLOCK_MAGIC, at)]
    for at in range(starts[1], starts[2]):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        file.write_bytes(changed)
        damage = outcomes.Damage()
        types = [each.type for each in penstock.outcomes(q.path, damage=damage)]
        assert types == ["t0"] * 4 + ["t2"] * 4, f"byte {at}"
        assert damage.blocks == 1, f"byte {at}"


def test_a_file_without_its_head_says_nothing(queue: Any) -> None:
    q = queue(history_bytes=MB)
    data = three_blocks(q)
    (file,) = files(q)
    for at in range(data.index(outcomes.BLOCK_MAGIC)):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        file.write_bytes(changed)
        assert list(penstock.outcomes(q.path)) == []


def test_other_files_in_the_folder_are_left_alone(queue: Any) -> None:
    q = queue(history_bytes=MB)
    three_blocks(q)
    stranger = q.path / "history" / "notes.txt"
    stranger.write_text("mine")
    q._mine().history._remove_old(1 << 60)
    assert stranger.read_text() == "mine" and files(q) == []


# ---------------------------------------------------------------- in nobody's way


class FullDisk:
    """Every write into a history fails."""

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.OPEN and "/history/" in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))


def test_a_full_disk_ends_the_history_with_one_line_and_no_acknowledgement_fails(
    queue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    q = queue(history_bytes=MB)
    rig.observe(FullDisk())
    try:
        with caplog.at_level(logging.WARNING, "penstock"):
            for n in range(3):
                q.put(n)
                q.get().ack()
                kept(q)
    finally:
        rig.observe(None)
    assert q.stats().acks == 3
    assert len([line for line in caplog.messages if "no more history" in line]) == 1
    assert q._mine().outcomes.sealed == [] and list(penstock.outcomes(q.path)) == []


def test_many_threads_leave_one_outcome_for_each_message(queue: Any) -> None:
    q = queue(history_bytes=MB, slots=4000, data_bytes=MB)
    ids = set(q.put_many([b"x"] * 3000))

    def work() -> None:
        while messages := q.get_many(7):
            q.ack_many(messages)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [each.id for each in kept(q)]
    assert len(found) == 3000 and set(found) == ids


def test_a_queue_that_nobody_closed_has_written_all_when_the_process_ends(path: Path) -> None:
    program = f"""
import penstock
q = penstock.create({str(path)!r}, slots=64, data_bytes=1 << 16, durability="relaxed", history_bytes=1 << 20)
q.put("a")
q.get().ack()
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ})
    assert [each.result for each in penstock.outcomes(path)] == ["acked"]


def worker(path: str, count: int, ready: int, kill: bool) -> None:
    """Acknowledges messages, writes once when half of them are done, and is killed at the end, or closes."""
    q = penstock.open(path)
    for number in range(count):
        q.get(timeout=PATIENCE_S).ack()
        if number == count // 2 - 1:
            kept(q)
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    q.close()


def forked(work: Any, *arguments: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


def test_each_process_has_files_of_its_own(queue: Any) -> None:
    q = queue(history_bytes=MB)
    ids = set(q.put_many([b"x"] * 60))
    pids = [forked(worker, q.name, 20, 0, False) for _ in range(3)]
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    found = list(penstock.outcomes(q.path))
    assert {each.id for each in found} == ids and len(found) == 60
    assert Counter(each.owner for each in found) == {f"pid {pid}": 20 for pid in pids}
    assert len(files(q)) == 3


def test_a_kill_takes_no_more_than_what_was_not_written(queue: Any) -> None:
    q = queue(history_bytes=MB)
    q.put_many([b"x"] * 40)
    pid = forked(worker, q.name, 40, 0, True)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    found = list(penstock.outcomes(q.path))
    assert 20 <= len(found) <= 40
    assert q.stats().acks == 40
    q.put("next")
    q.get(timeout=1).ack()
    assert len(kept(q)) == len(found) + 1


def test_the_child_of_a_fork_writes_nothing_of_its_parent_s(queue: Any) -> None:
    q = queue(history_bytes=MB, index_sync_ms=0)
    q.put_many(["parent", "child"])
    q.get().ack()

    def child() -> None:
        q.get(timeout=1).ack()
        q.close()
        history._at_exit()

    assert os.waitpid(forked(child), 0)[1] == 0
    found = kept(q)
    assert sorted(Counter(each.owner for each in found).values()) == [1, 1]
    assert len({each.id for each in found}) == 2
