"""Questions and answers between real processes, which are killed, restarted, or never come back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import GivenUp, NoAnswer
from penstock.store import layout as L
from penstock.timequeue.answers import REPLIES
from tests.conftest import Queues, SimulatedClock
from tests.fault.processes import Child

SMALL: dict[str, Any] = {"slots": 64, "data_bytes": 1 << 16, "durability": "relaxed"}
PATIENCE_S = 20.0

Say = Callable[[Any], None]
Start = Callable[..., Child]


def _echo(say: Say, path: Path) -> None:
    """Replies to everything with the same, and its own process."""
    with penstock.open(path) as q:
        say("ready")
        while True:
            message = q.get()
            message.reply([message.body, os.getpid()])


def _dies_before_it_replies(say: Say, path: Path) -> None:
    with penstock.open(path) as q:
        message = q.get()
        say(message.body)
        signal.pause()


def _asks_and_dies(say: Say, path: Path) -> None:
    with penstock.open(path) as q:
        handle = q.put("are you there", model="two-way", wait=False)
        while handle.id is None:
            time.sleep(0.001)
        say(handle.id)
        signal.pause()


def _asks_many(say: Say, path: Path, who: int, count: int) -> None:
    with penstock.open(path) as q:
        say("ready")
        right = 0
        for n in range(count):
            if n % 3 == 0:
                handles = [q.put([who, n, i], model="two-way", wait=False) for i in range(3)]
                right += sum(handle.result(PATIENCE_S)[0] == [who, n, i] for i, handle in enumerate(handles)) == 3
            else:
                right += q.put([who, n], model="two-way", timeout=PATIENCE_S)[0] == [who, n]
        say(right)


def test_a_receiver_that_dies_before_it_replies_leads_to_another_delivery(path: Path, start: Start) -> None:
    with penstock.create(path, **SMALL) as q:
        first = start(_dies_before_it_replies, path)
        handle = q.put("?", model="two-way", wait=False)
        assert first.hear() == "?"
        first.kill()
        assert not handle.done()
        second = start(_echo, path)
        body, pid = handle.result(PATIENCE_S)
        assert (body, pid) == ("?", second.pid)


def test_an_asker_that_was_restarted_has_the_answer_that_came_meanwhile(path: Path, start: Start) -> None:
    with penstock.create(path, **SMALL) as q:
        asker = start(_asks_and_dies, path)
        question = asker.hear()
        asker.kill()
        q.get(timeout=PATIENCE_S).reply("here I am")
    with penstock.open(path) as q:
        assert q.answer(question).result(PATIENCE_S) == "here I am"


def test_an_asker_that_was_restarted_has_the_answer_that_comes_later(path: Path, start: Start) -> None:
    with penstock.create(path, **SMALL) as q:
        asker = start(_asks_and_dies, path)
        question = asker.hear()
        asker.kill()
        handle = q.answer(question)
        start(_echo, path)
        assert handle.result(PATIENCE_S)[0] == "are you there"


def test_answers_reach_only_those_who_asked(path: Path, start: Start) -> None:
    penstock.create(path, **SMALL).close()
    receivers = [start(_echo, path) for _ in range(2)]
    assert [receiver.hear() for receiver in receivers] == ["ready"] * 2
    askers = [start(_asks_many, path, who, 12) for who in range(4)]
    assert [asker.hear() for asker in askers] == ["ready"] * 4
    assert [asker.hear(60) for asker in askers] == [12] * 4
    with penstock.open(path) as q:
        assert q.qsize() == 0 and q._answers.box().qsize() == 0


def test_threads_that_wait_for_answers_of_one_queue_object_get_their_own(path: Path, start: Start) -> None:
    with penstock.create(path, **SMALL) as q:
        start(_echo, path).hear()
        wrong: list[Any] = []

        def ask(who: int) -> None:
            for n in range(10):
                answer, _ = q.put([who, n], model="two-way", timeout=PATIENCE_S)
                if answer != [who, n]:
                    wrong.append(answer)

        threads = [threading.Thread(target=ask, args=(who,)) for who in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_forked_asker_is_another_one(path: Path, start: Start) -> None:
    with penstock.create(path, **SMALL) as q:
        start(_echo, path).hear()
        waits = q.put("parent", model="two-way", wait=False)
        child = start(_asks_with, q)
        assert child.hear()[0] == "child"
        assert waits.result(PATIENCE_S)[0] == "parent"


def _asks_with(say: Say, q: penstock.TimeQueue) -> None:
    say(q.put("child", model="two-way", wait=False).result(PATIENCE_S))


def test_threads_are_gone_when_nobody_waits(path: Path, start: Start) -> None:
    with penstock.create(path, **SMALL) as q:
        late = _late(q)  # nobody is there yet who could be quick
        start(_echo, path).hear()
        for handle in [q.put(n, model="two-way", wait=False) for n in range(5)]:
            handle.result(PATIENCE_S)
        q.answer(late).result(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while any(thread.name in ("penstock answers", "penstock puts") for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _late(q: penstock.TimeQueue) -> str:
    with pytest.raises(NoAnswer) as caught:
        q.put("late", model="two-way", timeout=0)
    assert caught.value.message_id is not None
    return caught.value.message_id


# ---------------------------------------------------------------- answers that nobody collects


def unheard(q: penstock.TimeQueue, **options: Any) -> None:
    """A question that is answered, by an asker that does not wait for it."""
    with pytest.raises(NoAnswer):
        q.put("?", model="two-way", timeout=0, **options)
    q.get(block=False).reply(b"x" * 100)


def test_answers_that_nobody_collects_are_gone_after_their_time(queue: Queues, clock: SimulatedClock) -> None:
    q = queue()
    for _ in range(20):
        unheard(q)
    assert q._answers.box().qsize() == 20
    clock.advance(3601)
    unheard(q)  # by whoever answers next
    assert q._answers.box().qsize() == 1
    unheard(q, reply_ttl=5)
    clock.advance(6)
    unheard(q)
    assert q._answers.box().qsize() == 2


def test_answers_that_nobody_collects_make_room_for_others(
    queue: Queues, caplog: pytest.LogCaptureFixture, clock: SimulatedClock
) -> None:
    """Nobody who answers is held up, and what is there stays within its bounds."""
    q = queue()
    with caplog.at_level(logging.WARNING):
        for _ in range(300):
            unheard(q)
    assert 0 < q._answers.box().qsize() <= 64
    assert "answers that nobody has collected are gone" in caplog.text
    with pytest.raises(NoAnswer) as caught:
        q.put("?", model="two-way", timeout=0)
    q.get(block=False).reply(b"y" * 40_000)  # as large as hundreds of these
    assert q.answer(caught.value.message_id or "").result(PATIENCE_S) == b"y" * 40_000


def test_answers_wait_for_room_as_long_as_askers_collect_theirs(
    queue: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    """There is room for three at once. Who asked has a moment to collect before the oldest go."""
    q = queue()
    asked = []
    for _ in range(12):
        with pytest.raises(NoAnswer) as caught:
            q.put("?", model="two-way", timeout=0)
        asked.append(caught.value.message_id or "")
    theirs = queue.open(q)

    def reply() -> None:
        for message in theirs.get_many(12):
            message.reply(b"x" * 20_000)

    replying = threading.Thread(target=reply)
    replying.start()
    replying.join(0.2)  # it has to wait
    try:
        assert [len(q.answer(each).result(PATIENCE_S)) for each in asked] == [20_000] * 12
    finally:
        replying.join()
    assert "are gone" not in caplog.text and q._answers.box().qsize() == 0


def test_an_answer_that_never_fits_is_refused_and_the_question_stays(queue: Queues) -> None:
    q = queue()
    handle = q.put("?", model="two-way", wait=False)
    message = q.get(timeout=PATIENCE_S)
    with pytest.raises(penstock.BodyTooLarge):
        message.reply(b"x" * 100_000)
    message.reply("too long to say")
    assert handle.result(PATIENCE_S) == "too long to say"


def test_the_second_answer_to_a_question_is_dropped(queue: Queues, clock: SimulatedClock) -> None:
    """Its first receiver had answered, and was stopped before it could acknowledge."""
    q = queue()
    with pytest.raises(NoAnswer) as caught:
        q.put("?", model="two-way", timeout=0)
    slow = q.get(block=False, lease=1)
    q._answers.reply(slow, "first")
    clock.advance(2)
    q.get(block=False).reply("second")
    assert q._answers.box().qsize() == 1
    assert q.answer(caught.value.message_id or "").result(PATIENCE_S) == "first"
    with pytest.raises(penstock.LeaseLost):
        slow.reply("third")


def test_a_batch_of_receipts_is_larger_than_there_is_room_for(queue: Queues, clock: SimulatedClock) -> None:
    """Where the questions were asked in a queue that is smaller than the one they were moved to."""
    q, other = queue(slots=4, data_bytes=1 << 15), queue("other", slots=400)
    for _ in range(30):
        for _ in range(4):
            with pytest.raises(NoAnswer):
                q.put("?", model="acknowledged", timeout=0)
        q.move_all(to=other)
    other.ack_many(other.get_many(200))
    assert other.qsize() == 0 and 0 < q._answers.box().qsize() <= 4


@pytest.mark.parametrize("several", [False, True])
def test_who_has_stopped_waiting_leaves_the_answer_to_whoever_names_the_question(queue: Queues, several: bool) -> None:
    q = queue()
    q._answers.box()  # which takes its time
    with pytest.raises(NoAnswer) as caught:
        if several:
            q.put_many(["?"], model="two-way", timeout=0.3)
        else:
            asyncio.run(q.aput("?", model="two-way", timeout=0.3))
    others = q.put("not yet", model="two-way", wait=False)  # answers to this queue object are being collected
    message = q.get(timeout=PATIENCE_S)
    assert message.body == "?" and caught.value.message_id == message.id
    message.reply("late")
    assert queue.open(q).answer(message.id).result(PATIENCE_S) == "late"
    assert not others.done()


def test_an_answer_that_cannot_be_passed_on_is_no_error_of_a_put(
    queue: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    """A macro queue would put what is stored into another member as well."""
    q = queue(slots=4)
    for _ in range(3):
        unheard(q)
    late = q.put_many(["late"], model="two-way", wait=False)
    others = q.put("not yet", model="two-way", wait=False)  # answers to this queue object are being collected
    message = q.get(timeout=PATIENCE_S)
    _until(lambda: late.id is not None)
    q._asks().abandon(late)
    with q._asks().expecting():
        message.reply("after all")  # there is no room for another
        _until(lambda: bool(q._asks()._collector._early))
    assert "not passed on" in caplog.text
    assert queue.open(q).answer(message.id).result(PATIENCE_S) == "after all"
    assert not others.done()


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_answers_are_remembered_only_until_their_questions_are_gone(queue: Queues, clock: SimulatedClock) -> None:
    """Else the ids of an hour's answers would leave no room for that of one whose receiver was killed."""
    q = queue()
    for _ in range(500):
        with pytest.raises(NoAnswer) as caught:
            q.put("?", model="two-way", timeout=0)
        q.get(block=False).reply("!")
        assert q._asks()._collector.wait_for(caught.value.message_id or "", 5) == "!"
    box = q._answers.box()
    kernel = box._mine().kernel
    known = sum(kernel.get(entry) != 0 for entry in _entries(kernel))
    assert known <= 64 and box.qsize() == 0


def _entries(kernel: Any) -> list[int]:
    width = L.REMEMBERED_BUCKET * L.REMEMBERED_WORDS
    start, buckets = kernel.remembered.at, kernel.remembered.buckets
    return [start + b * width + i for b in range(buckets) for i in range(L.REMEMBERED_BUCKET)]


# ---------------------------------------------------------------- moves, copies, other places


def test_a_question_that_was_moved_is_answered_where_it_was_asked(queue: Queues) -> None:
    q, other, third = queue("queue"), queue("other"), queue("third")
    handle = q.put("?", model="two-way", wait=False)
    receipt = q.put("!", model="acknowledged", wait=False)
    receipt_id = None
    for _ in range(2):
        q.get(timeout=PATIENCE_S).move(to=other)
    other.move_all(to=third)
    for message in third.get_many(2, wait=PATIENCE_S):
        if message.wants_reply:
            message.reply("from afar")
        else:
            receipt_id = message.id
            message.ack()
    assert handle.result(PATIENCE_S) == "from afar"
    assert receipt.result(PATIENCE_S) == receipt_id == receipt.id
    assert not (third.path / REPLIES).exists()


def test_a_question_whose_queue_is_gone_can_be_done_with(
    queue: Queues, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = queue("other")
    manager = penstock.QueueManager(tmp_path)
    manager.create("gone", depth=10, data_bytes=1 << 16)
    with manager.open("gone") as q:
        for _ in range(2):
            with pytest.raises(NoAnswer):
                q.put("?", model="two-way", timeout=0)
            q.get(block=False).move(to=other.path)
    manager.destroy("gone")
    with caplog.at_level(logging.WARNING):
        other.get(block=False).reply("anybody?")
        other.get(block=False).ack()
    assert other.qsize() == 0 and "nobody can be given an answer" in caplog.text


def test_who_tidies_up_dead_letters_answers_nothing(queue: Queues) -> None:
    q = queue()
    handles = [q.put(n, model="two-way", wait=False) for n in range(2)]
    for _ in range(2):
        q.get(timeout=PATIENCE_S).dead_letter("no use")
    assert all(isinstance(handle.exception(PATIENCE_S), GivenUp) for handle in handles)
    dead = q.dead_letters()
    assert dead is not None
    dead.get(block=False).ack()
    answer = q.answer(handles[1].id or "")
    dead.get(block=False).reply("from the other side")  # but who wants to answer can
    assert answer.result(PATIENCE_S) == "from the other side"
    with pytest.raises(NoAnswer):
        q.answer(handles[0].id or "").result(0.05)


def test_a_queue_that_was_asked_is_renamed_backed_up_resized_and_destroyed_with_its_answers(tmp_path: Path) -> None:
    manager = penstock.QueueManager(tmp_path)
    manager.create("asked", depth=50, data_bytes=1 << 16)
    with manager.open("asked") as q:
        for _ in range(2):
            with pytest.raises(NoAnswer) as caught:
                q.put("?", model="two-way", timeout=0)
        question = caught.value.message_id
        for message in q.get_many(2):
            message.reply("kept")
    manager.configure("asked", depth=80)
    manager.rename("asked", "renamed")
    assert penstock.backup(tmp_path / "renamed", tmp_path / "copy").messages == 0
    with manager.open("renamed") as q:
        assert q.answer(question).result(PATIENCE_S) == "kept"
    assert [each.name for each in manager.list()] == ["copy", "renamed"]
    manager.destroy("renamed")
    assert not (tmp_path / "renamed").exists()


def test_an_export_of_a_question_is_a_message_that_nobody_waits_for(queue: Queues) -> None:
    q, other = queue("queue"), queue("other")
    with pytest.raises(NoAnswer):
        q.put("?", model="two-way", timeout=0, max_attempts=7)
    penstock.import_messages(other, penstock.export_messages(q).lines())
    message = other.get(block=False)
    assert (message.body, message.max_attempts, message.wants_reply) == ("?", 7, False)
