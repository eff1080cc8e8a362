"""What every kind of queue promises of puts that wait for a receiver, or for nobody. In real time: they wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

import penstock
from penstock import Draft, GivenUp, Handle, LeaseLost, Misuse, NoAnswer, QueueClosed, QueueFull
from penstock.timequeue.collecting import Collector
from tests.conftest import Queues
from tests.contract.test_queue_contract import KINDS, Local

PATIENCE_S = 30.0
MODELS = ["one-way", "queued-acknowledged", "acknowledged", "two-way"]


@pytest.fixture(params=KINDS)
def live(request: pytest.FixtureRequest, queue: Queues) -> Local:
    return KINDS[request.param](queue)


@pytest.fixture
def q(live: Local) -> Any:
    return live.make()


def answered(message: penstock.Message) -> None:
    if message.wants_reply:
        message.reply(["seen", message.body])
    else:
        message.ack()


@contextlib.contextmanager
def receiver(live: Local, queue: Any, handle: Callable[[penstock.Message], object] = answered) -> Iterator[Any]:
    """Another program's, in a thread of ours, until the block ends."""
    theirs = live.peer(queue)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            for message in theirs.get_many(10, wait=0.05):
                handle(message)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield theirs
    finally:
        ended.set()
        thread.join()


def taken(queue: Any) -> penstock.Message:
    message: penstock.Message = queue.get(timeout=PATIENCE_S)
    return message


def stored(handle: Handle) -> str:
    """Its id, when it has one."""
    deadline = time.monotonic() + PATIENCE_S
    while handle.id is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return handle.id


# ---------------------------------------------------------------- waiting


def test_a_question_returns_the_reply(live: Local, q: Any) -> None:
    with receiver(live, q):
        for body in ("text", {"order": 7}, None):
            assert q.put(body, model="two-way", timeout=PATIENCE_S) == ["seen", body]
    assert q.qsize() == 0


@pytest.mark.parametrize("reply", [b"bytes", "text", {"order": [7]}, None, b"x" * 40_000])
def test_a_reply_is_any_body(live: Local, q: Any, reply: Any) -> None:
    with receiver(live, q, lambda message: message.reply(reply)):
        assert q.put("?", model="two-way", timeout=PATIENCE_S) == reply


def test_an_acknowledged_put_returns_when_a_receiver_has_acknowledged(live: Local, q: Any) -> None:
    seen: list[str] = []

    def slowly(message: penstock.Message) -> None:
        assert not message.wants_reply
        seen.append(message.id)
        message.ack()

    with receiver(live, q, slowly):
        id = q.put("work", model="acknowledged", timeout=PATIENCE_S)
    assert seen == [id] and q.qsize() == 0


@pytest.mark.parametrize("model", MODELS[:2])
def test_other_puts_need_no_receiver(q: Any, model: str) -> None:
    id = q.put("stored", model=model)
    with taken(q) as message:
        assert (message.id, message.wants_reply) == (id, False)
        with pytest.raises(Misuse, match="nobody waits for a reply"):
            message.reply("?")


def test_an_acknowledgement_of_a_question_is_a_reply_of_none(live: Local, q: Any) -> None:
    with receiver(live, q, lambda message: message.ack()):
        assert q.put("?", model="two-way", timeout=PATIENCE_S) is None


def test_without_a_receiver_a_question_waits_as_long_as_it_was_told(q: Any) -> None:
    for model in MODELS[2:]:
        with pytest.raises(NoAnswer) as caught:
            q.put("?", model=model, timeout=0.05)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.queue == q.name and 0.04 < caught.value.waited_s < PATIENCE_S
    with pytest.raises(NoAnswer):
        q.put("?", model="two-way", timeout=0)
    assert q.qsize() == 3  # they are still there to be answered


def test_a_late_answer_can_be_collected_by_the_questions_id(live: Local, q: Any) -> None:
    with pytest.raises(NoAnswer) as caught:
        q.put("?", model="two-way", timeout=0)
    id = caught.value.message_id
    taken(live.peer(q)).reply("late")
    assert live.peer(q).answer(id).result(PATIENCE_S) == "late"
    with pytest.raises(NoAnswer):  # it is given once
        q.answer(id).result(0.01)


def test_a_question_waits_for_room_and_answer_together(live: Local) -> None:
    q = live.make(slots=1)
    q.put("in the way")
    with pytest.raises(QueueFull):
        q.put("?", model="two-way", timeout=0.05)
    with receiver(live, q):
        assert q.put("?", model="two-way") == ["seen", "?"]


def test_a_reply_ends_the_delivery(q: Any) -> None:
    q.put("?", model="two-way", wait=False)
    message = taken(q)
    message.reply(1)
    for late in (message.ack, message.release, lambda: message.reply(2)):
        with pytest.raises(LeaseLost):
            late()
    assert q.qsize() == 0


def test_a_block_that_replies_does_not_acknowledge_again(live: Local, q: Any) -> None:
    def handle(message: penstock.Message) -> None:
        with message:
            message.reply(message.body + 1)

    with receiver(live, q, handle):
        assert q.put(1, model="two-way", timeout=PATIENCE_S) == 2


def test_a_question_that_fails_is_delivered_again_and_answered_once(live: Local, q: Any) -> None:
    handle = q.put("?", model="two-way", wait=False)
    message = taken(q)
    message.fail("no")
    assert not handle.done()
    again = taken(q)
    assert again.attempts == 2
    again.reply("yes")
    assert handle.result(PATIENCE_S) == "yes"


def test_a_consumer_answers_what_it_acknowledges(live: Local, q: Any) -> None:
    handles = [q.put(n, model=MODELS[2 + n % 2], wait=False) for n in range(6)]
    stored(handles[-1])
    q.put("last")
    with live.peer(q).consumer(wait=5) as consumer:
        for message in consumer:
            if message.body == "last":
                break
            if message.body == 3:
                message.reply("three")
    results = [handle.result(PATIENCE_S) for handle in handles]
    assert results[1::2] == [None, "three", None]
    assert results[::2] == [handle.id for handle in handles[::2]]


# ---------------------------------------------------------------- handles


@pytest.mark.parametrize("model", MODELS)
def test_a_handle_has_what_the_put_would_return(live: Local, q: Any, model: str) -> None:
    with receiver(live, q):
        handle = q.put("x", model=model, wait=False)
        told: SimpleQueue[Any] = SimpleQueue()
        handle.add_done_callback(lambda each: told.put(each.result()))
        result = handle.result(PATIENCE_S)
        assert result == (["seen", "x"] if model == "two-way" else handle.id)
        assert handle.done() and not handle.cancelled() and handle.exception() is None
        assert concurrent.futures.wait([handle], PATIENCE_S).done == {handle}
        assert told.get(timeout=PATIENCE_S) == result  # callbacks come after those that wait are woken
        assert told.empty()


def test_a_handle_that_waits_says_so(q: Any) -> None:
    handle = q.put("?", model="two-way", wait=False)
    with pytest.raises(NoAnswer) as caught:
        handle.result(0.05)
    assert caught.value.message_id in (None, handle.id)
    with pytest.raises(TimeoutError):
        handle.exception(0)
    assert not handle.done()
    taken(q).reply("now")
    assert handle.result(PATIENCE_S) == "now"


def test_handles_are_stored_in_their_order(q: Any) -> None:
    handles = [q.put(n, wait=False) for n in range(40)]
    assert [handle.result(PATIENCE_S) for handle in handles] == [handle.id for handle in handles]
    assert [message.body for message in q.get_many(100)] == list(range(40))


def test_a_handle_tells_what_went_wrong(live: Local) -> None:
    q = live.make(slots=2)
    handles = [q.put(n, wait=False) for n in range(4)]
    errors = [handle.exception(PATIENCE_S) for handle in handles]
    assert errors[:2] == [None, None] and all(isinstance(error, QueueFull) for error in errors[2:])
    with pytest.raises(QueueFull):
        handles[2].result()
    with pytest.raises(Misuse):  # what can be seen at once is
        q.put("x", priority=99, wait=False)


def test_a_handle_may_wait_for_room(live: Local) -> None:
    q = live.make(slots=1)
    first, second = q.put(1, wait=False), q.put(2, timeout=PATIENCE_S, wait=False)
    first.result(PATIENCE_S)
    assert not second.done()
    assert not second.done()
    taken(q).ack()
    assert second.result(PATIENCE_S) == second.id and taken(q).body == 2


def test_a_cancelled_question_is_gone(q: Any) -> None:
    handle = q.put("?", model="two-way", wait=False)
    stored(handle)
    assert handle.cancel() and handle.cancelled() and handle.cancel()
    assert q.qsize() == 0
    with pytest.raises(concurrent.futures.CancelledError):
        handle.result(0)


def test_a_question_that_a_receiver_has_is_not_cancelled(q: Any) -> None:
    handle = q.put("?", model="two-way", wait=False)
    message = taken(q)
    stored(handle)
    assert not handle.cancel()
    message.reply("too late to cancel")
    assert handle.result(PATIENCE_S) == "too late to cancel" and not handle.cancel()


def test_what_is_stored_and_no_question_is_not_taken_back(q: Any) -> None:
    handle = q.put("x", wait=False)
    handle.result(PATIENCE_S)
    assert not handle.cancel() and q.qsize() == 1


def test_closing_stores_what_was_put_and_ends_the_wait_for_answers(live: Local, q: Any) -> None:
    handles = [q.put(n, wait=False) for n in range(20)]
    asked = q.put("?", model="two-way", wait=False)
    peer = live.peer(q)
    q.close()
    assert all(handle.done() and handle.exception() is None for handle in handles)
    with pytest.raises(QueueClosed):
        asked.result(0)
    assert peer.qsize() == 21
    for message in peer.get_many(30):
        answered(message)
    assert peer.answer(asked.id).result(PATIENCE_S) == ["seen", "?"]


def test_who_asks_again_when_told_that_the_queue_is_closed_is_told_so_too(live: Local, q: Any) -> None:
    errors: list[BaseException] = []

    def ask_again(_: Handle) -> None:
        try:
            q.put("again", model="two-way", wait=False)
        except QueueClosed as error:
            errors.append(error)

    handle = q.put("?", model="two-way", wait=False)
    stored(handle)
    handle.add_done_callback(ask_again)
    peer = live.peer(q)
    q.close()
    assert isinstance(handle.exception(0), QueueClosed) and len(errors) == 1
    assert peer.qsize() == 1


def test_two_handles_on_one_question_get_the_same(q: Any) -> None:
    first = q.put("?", model="two-way", wait=False)
    second = q.answer(stored(first))
    taken(q).reply("both")
    assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == ("both", "both")


# ---------------------------------------------------------------- many, files, coroutines


def test_many_questions_are_answered_in_their_order(live: Local, q: Any) -> None:
    with receiver(live, q):
        assert q.put_many(range(20), model="two-way", timeout=PATIENCE_S) == [["seen", n] for n in range(20)]
        handle = q.put_many(["a", Draft(body="b", priority=9)], model="two-way", wait=False)
        assert handle.result(PATIENCE_S) == [["seen", "a"], ["seen", "b"]] and len(handle.ids) == 2
        ids = q.put_many(["a", "b"], model="acknowledged", timeout=PATIENCE_S)
        assert len(set(ids)) == 2
    assert len(q.put_many(["a"], model="one-way")) == 1
    assert len(q.put_many(["a", "b"], wait=False).result(PATIENCE_S)) == 2
    assert q.put_many([], model="two-way") == []


def test_of_many_questions_those_that_were_answered_are_told(q: Any) -> None:
    handle = q.put_many(["yes", "no"], model="two-way", wait=False)
    for message in [taken(q), taken(q)]:
        if message.body == "yes":
            message.reply("sure")
        else:
            message.dead_letter("never")
    error = handle.exception(PATIENCE_S)
    assert isinstance(error, GivenUp) and error.how == "dead-lettered" and error.reason == "never"
    assert error.answers == {handle.ids[0]: "sure"}


def test_of_many_questions_some_of_which_are_late(live: Local, q: Any) -> None:
    def only_even(message: penstock.Message) -> None:
        if message.body % 2 == 0:
            message.reply(message.body)

    with receiver(live, q, only_even), pytest.raises(NoAnswer) as caught:
        q.put_many(range(4), model="two-way", timeout=0.4)
    assert sorted(caught.value.answers.values()) == [0, 2]
    assert caught.value.message_id not in caught.value.answers


def test_a_file_is_a_question_too(live: Local, q: Any) -> None:
    with receiver(live, q, lambda message: message.reply(message.body_bytes)):
        assert q.put_file(io.BytesIO(b"x" * 5000), model="two-way", timeout=PATIENCE_S) == 5000
        handle = q.put_file(io.BytesIO(b"y" * 6000), model="two-way", wait=False)
        assert handle.result(PATIENCE_S) == 6000
    assert q.put_file(io.BytesIO(b"z"), wait=False).result(PATIENCE_S)


def test_coroutines_ask_without_holding_up_their_loop(live: Local, q: Any) -> None:
    async def run() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        asked = [asyncio.create_task(q.aput(n, model="two-way", timeout=PATIENCE_S)) for n in range(10)]
        receipt = asyncio.create_task(q.aput("x", model="acknowledged"))
        async for message in _messages(q, 11):
            if message.wants_reply:
                await message.areply(message.body + 1)
            else:
                await message.aack()
        assert await asyncio.gather(*asked) == list(range(1, 11))
        assert isinstance(await receipt, str)
        handle = q.put("?", model="two-way", wait=False)
        (await q.aget(timeout=PATIENCE_S)).reply("!")
        assert await handle == "!"
        with pytest.raises(NoAnswer):
            await q.aput("?", model="two-way", timeout=0.02)
        await (await q.aget(timeout=PATIENCE_S)).aack()
        many = asyncio.create_task(q.aput_many([1, 2], model="acknowledged", timeout=PATIENCE_S))
        async for message in _messages(q, 2):
            await message.aack()
        assert len(await many) == 2
        assert ticks > 3
        ticking.cancel()

    asyncio.run(run())


async def _messages(q: Any, count: int) -> Any:
    for _ in range(count):
        yield await q.aget(timeout=PATIENCE_S)


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_question(q: Any) -> None:
    async def run() -> Handle:
        handle: Handle = q.put("?", model="two-way", wait=False)

        async def wait() -> Any:
            return await handle

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return handle

    handle = asyncio.run(run())
    taken(q).reply("still")
    assert handle.result(PATIENCE_S) == "still"


# ---------------------------------------------------------------- what becomes of questions


def test_who_asked_is_told_that_nobody_will_answer(live: Local, q: Any) -> None:
    def purge(_: str) -> None:
        live.peer(q).purge()

    ends: dict[str, Callable[[str], object]] = {
        "cancelled": lambda id: live.peer(q).cancel(id),
        "purged": purge,
        "dead-lettered": lambda _: taken(q).dead_letter("no use"),
    }
    for how, end in ends.items():
        for model in MODELS[2:]:
            handle = q.put("?", model=model, wait=False)
            end(stored(handle))
            error = handle.exception(PATIENCE_S)
            assert isinstance(error, GivenUp) and error.how == how and error.message_id == handle.id
            assert error.reason == ("no use" if how == "dead-lettered" else None)


def test_a_question_that_fails_too_often_is_given_up(live: Local) -> None:
    q = live.make(max_attempts=1)
    handle = q.put("?", model="two-way", wait=False)
    taken(q).fail("no")
    error = handle.exception(PATIENCE_S)
    assert isinstance(error, GivenUp) and (error.how, error.reason) == ("dead-lettered", "max_attempts")
    dropping = live.make("dropping", max_attempts=1, dead_letter="delete")
    handle = dropping.put("?", model="acknowledged", wait=False)
    taken(dropping).fail("no")
    error = handle.exception(PATIENCE_S)
    assert isinstance(error, GivenUp) and (error.how, error.reason) == ("dropped", "max_attempts")


def test_a_question_that_has_expired_is_given_up_by_whoever_comes_across_it(q: Any) -> None:
    handle = q.put("?", model="two-way", wait=False, ttl=0)
    stored(handle)
    assert q.get_many(10) == []
    error = handle.exception(PATIENCE_S)
    assert isinstance(error, GivenUp) and (error.how, error.reason) == ("dropped", "expired")


def test_a_dead_letter_that_is_brought_back_can_still_be_answered(q: Any) -> None:
    handle = q.put("?", model="two-way", wait=False)
    other = q.put("?", model="two-way", wait=False)  # so that answers are being collected all the time
    taken(q).dead_letter("not now")
    assert isinstance(handle.exception(PATIENCE_S), GivenUp)
    later = q.answer(handle.id)
    assert q.redrive() == 1
    messages = {message.id: message for message in (taken(q), taken(q))}
    messages[handle.id].reply("now")
    assert later.result(PATIENCE_S) == "now"
    assert not other.done()


def test_the_same_question_twice_is_asked_once(live: Local, q: Any) -> None:
    first = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(first)
    second = q.put("?", model="two-way", wait=False, dedup_id="a")
    assert stored(second) == first.id and q.qsize() == 1
    taken(q).reply("once")
    assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == ("once", "once")


def test_who_is_told_an_id_is_waited_for_already(live: Local, q: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Collector.add

    def late(*given: Any, **options: Any) -> None:
        time.sleep(0.05)
        add(*given, **options)

    monkeypatch.setattr(Collector, "add", late)
    first = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(first)
    second = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(second)
    taken(q).reply("once")
    assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == ("once", "once")


def test_a_handle_that_has_its_result_has_its_id(q: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    had: list[tuple[bool, str | None]] = []
    add = Collector.add

    def answered_meanwhile(*given: Any, **options: Any) -> None:
        add(*given, **options)
        taken(q).reply("now")
        time.sleep(0.3)  # the answer is collected
        had.append((handle.done(), handle.id))

    monkeypatch.setattr(Collector, "add", answered_meanwhile)
    handle = q.put("?", model="two-way", wait=False)
    assert handle.result(PATIENCE_S) == "now" and handle.id is not None
    assert had == [(False, None)]


def test_who_stops_waiting_takes_the_answer_from_nobody_else(q: Any) -> None:
    async def run() -> None:
        with pytest.raises(NoAnswer):
            await q.aput("?", model="two-way", dedup_id="a", timeout=0.3)

    first = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(first)
    asyncio.run(run())
    with pytest.raises(NoAnswer):
        q.put_many([Draft(body="?", dedup_id="a")], model="two-way", timeout=0.1)
    taken(q).reply("yours")
    assert first.result(PATIENCE_S) == "yours"


def test_a_question_that_somebody_else_had_put_is_not_taken_back(live: Local, q: Any) -> None:
    first = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(first)
    peer = live.peer(q)
    second = peer.put("?", model="two-way", wait=False, dedup_id="a")
    stored(second)
    assert not second.cancel() and not second.done() and q.qsize() == 1
    peer.close()
    taken(q).reply("still asked")
    assert first.result(PATIENCE_S) == "still asked"


def test_others_who_wait_for_a_question_are_told_that_it_was_taken_back(live: Local, q: Any) -> None:
    first = q.put("?", model="two-way", wait=False)
    assert q.answer(stored(first)).cancel()
    error = first.exception(PATIENCE_S)
    assert isinstance(error, GivenUp) and error.how == "cancelled"
    first = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(first)
    elsewhere = live.peer(q).put("?", model="two-way", wait=False, dedup_id="a")
    stored(elsewhere)
    assert first.cancel() and first.cancelled()
    error = elsewhere.exception(PATIENCE_S)
    assert isinstance(error, GivenUp) and error.how == "cancelled"
    assert q.qsize() == 0


def test_a_question_that_was_asked_and_answered_before_is_not_waited_for(live: Local, q: Any) -> None:
    with receiver(live, q):
        assert q.put("?", model="two-way", dedup_id="a", timeout=PATIENCE_S) == ["seen", "?"]
    with pytest.raises(NoAnswer) as caught:
        q.put("?", model="two-way", dedup_id="a")
    assert caught.value.message_id is not None
    with pytest.raises(NoAnswer):
        q.put_many([Draft(body="?", dedup_id="a")], model="two-way")
    assert isinstance(q.put("?", model="two-way", wait=False, dedup_id="a").exception(PATIENCE_S), NoAnswer)


def test_of_those_who_ask_the_same_at_once_nobody_waits_for_ever(live: Local, q: Any) -> None:
    """Each has the answer, or is told that there is none any more."""
    first = q.put("?", model="two-way", wait=False, dedup_id="a")
    stored(first)
    results: list[Any] = []

    def ask() -> None:
        try:
            results.append(q.put("?", model="two-way", dedup_id="a"))
        except NoAnswer as error:
            results.append(type(error))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    with receiver(live, q):
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len(results) == 3 and all(each in (["seen", "?"], NoAnswer) for each in results)


@pytest.mark.parametrize(
    "options",
    [
        {"model": "three-way"},
        {"model": 2},
        {"wait": 5},
        {"model": "one-way", "durability": "commit"},
        {"reply_ttl": 5},
        {"model": "two-way", "reply_ttl": 0},
        {"model": "two-way", "timeout": -1},
    ],
)
def test_what_cannot_work_is_refused(q: Any, options: Any) -> None:
    with pytest.raises(Misuse):
        q.put("x", **options)
    with pytest.raises(Misuse):
        q.put_many(["x"], **options)
    assert q.qsize() == 0


def test_an_id_that_is_none_has_no_answer(q: Any) -> None:
    with pytest.raises(Misuse):
        q.answer("nonsense")
