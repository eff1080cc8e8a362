"""Scripts on Spark, without Spark itself (tests/spark/fakespark.py): new checkpoints, two drivers, odd errors."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import PenstockError, QueueBusy
from penstock.scripts import App

pytest.importorskip("pyspark")
from penstock.scripts.folder import DriverLock, Folder
from penstock.spark import PenstockDataSource
from penstock.spark.bykeys import parts_of
from penstock.spark.schema import BY_KEYS
from penstock.spark.scripting.batchstore import Batch, BatchStore
from penstock.spark.scripting.place import SLOT, Place
from penstock.spark.scripting.references import part_of
from penstock.spark.scripting.results import Mark
from tests.spark.fakespark import FakeSpark

SMALL: dict[str, Any] = {"depth": 64, "data_bytes": 64 << 10, "durability": "relaxed"}


class Counting:
    """An app that adds up, with a macro queue of two queues, or one of them, as its input."""

    def __init__(self, root: Path, input: str) -> None:
        self.root = root
        self.calls: list[Any] = []
        self.bad: set[Any] = set()
        self.app = App("counting", input=input)
        with penstock.QueueManager(root) as manager:
            for name in ("one", "two"):
                manager.create(name, **SMALL)
            manager.create("out", **{**SMALL, "depth": 256})
            manager.create_macro("all", ["one", "two"])

        @self.app.script("n")
        def n(context: Any, message: Any) -> None:
            self.calls.append(message.body)
            if message.body in self.bad:
                raise ValueError("down")
            context.state["sum"] = context.state.get("sum", 0) + message.body
            context.put(message.body, to="out")

    def put(self, queue: str, *bodies: int) -> None:
        with penstock.open(self.root / queue) as opened:
            opened.put_many(bodies, type="n", key="a")

    def driver(self, **options: Any) -> FakeSpark:
        return FakeSpark(self.app, self.root, **options)

    def out(self) -> list[Any]:
        with penstock.open(self.root / "out") as queue:
            return sorted(message.body for message in queue.browse())


@pytest.mark.parametrize("input", ["one", "all"])
def test_with_a_new_checkpoint_the_batch_that_was_done_last_is_not_done_again(tmp_path: Path, input: str) -> None:
    counting = Counting(tmp_path, input)
    counting.put("one", 1, 2, 3)
    first = counting.driver()
    while not counting.calls:
        assert first.batch()
    first.lose_checkpoint()  # its claim is still open
    counting.put("one", 4)
    counting.driver(query="new").run()
    assert sorted(counting.calls) == counting.out() == [1, 2, 3, 4]
    assert dict(counting.app.contexts(tmp_path)) == {"a": {"sum": 10}}


def test_a_batch_of_several_queues_may_come_in_pieces_with_a_new_checkpoint(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "all")
    counting.put("one", 1, 2, 3)
    counting.put("two", 4, 5, 6)
    first = counting.driver()
    while len(counting.calls) < 6:
        assert first.batch()
    first.lose_checkpoint()
    counting.put("one", 7)
    counting.driver(query="new", max_rows=4).run()
    assert sorted(counting.calls) == counting.out() == [1, 2, 3, 4, 5, 6, 7]


def test_messages_of_a_key_come_in_the_order_of_delivery_whichever_queue_they_are_in(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "all")
    for queue, body, priority in (("one", 1, 0), ("two", 2, 0), ("one", 3, 5), ("two", 4, 5), ("one", 5, 0)):
        with penstock.open(tmp_path / queue) as opened:
            opened.put(body, type="n", key="a", priority=priority)
    driver = counting.driver(partitions=3)
    driver.batch()
    counting.calls.clear()  # of the first member, the other one joins with the second batch
    for queue, body, priority in (("two", 12, 0), ("one", 11, 0), ("one", 13, 5), ("two", 14, 5), ("one", 15, 0)):
        with penstock.open(tmp_path / queue) as opened:
            opened.put(body, type="n", key="a", priority=priority)
    driver.run()
    assert [call for call in counting.calls if call > 10] == [13, 14, 12, 11, 15]


def test_a_message_in_the_slot_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "one")
    counting.bad = {1, 3}
    counting.put("one", 1, 2, 3)
    first = counting.driver()
    first.run()
    counting.bad.clear()
    counting.put("one", 4)  # where 2 was
    time.sleep(1.1)  # 1 and 3 are due again
    first.lose_checkpoint()
    counting.driver(query="new").run()
    assert counting.out() == [1, 2, 3, 4] and counting.calls == [1, 2, 3, 4, 1, 3]


def test_an_error_that_is_not_utf_8_is_a_failure_like_any_other(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "one")

    @counting.app.script("odd")
    def odd(context: Any, message: Any) -> None:
        raise ValueError("\udcff" * 5000)

    with penstock.open(tmp_path / "one") as queue:
        queue.put(1, type="odd", key="a", max_attempts=1)
        counting.driver().run()
        assert queue.qsize() == queue.stats().claimed == 0
    with penstock.open(tmp_path / "one.dead") as letters:
        (letter,) = letters.browse()
        assert str(letter.error).startswith("ValueError: ?")


def test_one_driver_at_a_time_has_the_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(tmp_path, "one")
    counting.put("one", 1)
    driver = counting.driver()
    monkeypatch.setattr("penstock.spark.scripting.batches.BUSY_S", 0.1)
    with contextlib.closing(DriverLock(Folder(tmp_path, "counting"))) as lock:
        lock.take(0.0)
        with pytest.raises(QueueBusy, match="another driver"):
            driver.batch()
    driver.run()
    assert counting.out() == [1]


def test_a_driver_that_was_overtaken_stores_nothing(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "one")
    counting.put("one", 1)
    counting.driver().run()
    place = Place(tmp_path, "counting")
    with contextlib.closing(BatchStore(place.driver, busy_s=1)) as store:
        before = store.batch()
        with pytest.raises(PenstockError, match="another driver has stored batch 1"):
            late = Batch(1, {"q": Mark(1, "a", "a", 1, 1)}, b"", "query", 0)
            store.post_batch(late, SLOT, [], 0, lambda _: (1, 1))
        assert store.batch() == before and before is not None and before.serial == 1


def test_more_follow_ups_than_fit_wait_for_room_in_the_input(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "one")

    @counting.app.script("many")
    def many(context: Any, message: Any) -> None:
        for n in range(100):
            context.put(n, type="n")

    with penstock.open(tmp_path / "one") as queue:
        queue.put("go", type="many", key="a")
        deadline = time.monotonic() + 30
        while len(counting.calls) < 100:
            assert time.monotonic() < deadline
            counting.driver().run()
            time.sleep(0.1)
        assert counting.calls == list(range(100))


def test_each_message_is_of_the_part_of_its_key_and_read_there_in_order(tmp_path: Path) -> None:
    keys = [f"key {n % 7}" for n in range(40)]
    with penstock.QueueManager(tmp_path) as manager:
        manager.create("one", **SMALL)
        with manager.open("one") as queue:
            ids = dict(zip((queue.put(n, type="n", key=key) for n, key in enumerate(keys)), keys, strict=True))
    reader = streamed(tmp_path, partitions=3)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    seen: dict[str, str] = {}
    for given in reader.partitions(start, end):
        for _ in range(2):  # a task that is run again
            part = part_of(given.pieces, fail_if_gone=True)
            found = [message for some in part.messages() for message in some]
            (mark,) = part.marks().values()
            assert len(found) == len(part) == given.count == mark.count > 1
            assert [message.number for message in found] == sorted(message.number for message in found)
        assert {int(parts_of([message.key], 3)[0]) for message in found} == {part.number}
        seen |= {message.id: str(message.key) for message in found}
    reader.stop()
    assert seen == ids


def test_messages_of_a_claim_that_is_lost_are_an_error_unless_they_may_be_left_out(tmp_path: Path) -> None:
    counting = Counting(tmp_path, "one")
    counting.put("one", 1, 2, 3)
    reader = streamed(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (given,) = reader.partitions(start, end)
    with pytest.raises(PenstockError, match="PYSPARK_PIN_THREAD"):  # nor does a job of somebody else's
        list(reader.read(given))
    reader.stop()
    with penstock.open(tmp_path / "one") as queue, queue.receiver("scripts") as receiver:
        assert receiver.release(1) == 3
    with pytest.raises(PenstockError, match="is not in the queue any more"):
        part_of(given.pieces, fail_if_gone=True)
    part = part_of(given.pieces, fail_if_gone=False)
    assert len(part) == 0 and part.marks() == {} and list(part.messages()) == []


def streamed(root: Path, **options: Any) -> Any:
    given = {"root": root, "queue": "one", "receiver": "scripts", "receiverwait": 5, **options}
    return PenstockDataSource({name: str(value) for name, value in given.items()}).streamReader(BY_KEYS)
