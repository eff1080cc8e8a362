"""Coroutines: many wait and one watches; the event loop never waits; cancelled anywhere, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import QueueClosed, QueueEmpty
from penstock.store import layout as L
from penstock.timequeue import asyncgets, asyncputs, puts
from tests.conftest import Queues
from tests.fault.processes import Child

LONG_S = 20.0
WATCHER = "penstock watcher"


def watchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == WATCHER}


def sleepers(q: penstock.TimeQueue) -> int:
    return q._mine().kernel.get(L.H_SLEEPERS)


def _hold(taken: threading.Event) -> None:
    taken.set()
    time.sleep(0.003)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_thousands_of_coroutines_wait_with_one_thread(queue: Queues) -> None:
    q = queue(slots=4000, data_bytes=1 << 20)
    before = set(threading.enumerate())

    async def run() -> tuple[list[bytes], list[str]]:
        waiting = [asyncio.create_task(q.aget(timeout=LONG_S)) for _ in range(3000)]
        await asyncio.sleep(0.05)
        more = [thread.name for thread in set(threading.enumerate()) - before]
        await asyncio.to_thread(q.put_many, [b"%d" % n for n in range(3000)])
        found = await asyncio.gather(*waiting)
        await q.aack_many(found)
        return [message.data for message in found], more

    found, more = asyncio.run(run())
    assert found == [b"%d" % n for n in range(3000)], "first come, first served"
    assert more == [WATCHER]
    assert q.stats().acks == 3000


def test_the_watcher_ends_when_nobody_has_waited_for_long(queue: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.timequeue.asyncgets.LINGER_S", 0.01)
    q = queue()
    before = watchers()
    with pytest.raises(QueueEmpty):
        asyncio.run(q.aget(timeout=0.01))
    assert len(watchers() - before) == 1
    until(lambda: not watchers() - before)
    q.put(b"a")
    assert asyncio.run(q.aget()).data == b"a"


def test_a_coroutine_is_woken_by_another_process(path: Path, start: Callable[..., Child]) -> None:
    q = penstock.create(path, slots=16, data_bytes=1 << 16, durability="relaxed")
    child = start(_put_when_told, path)
    assert child.hear() == "ready"

    async def run() -> bytes:
        return (await q.aget(timeout=LONG_S)).data

    assert asyncio.run(run()) == b"from afar"
    assert child.join() == 0
    q.close()


def _put_when_told(say: Callable[[Any], None], path: Path) -> None:
    with penstock.open(path) as q:
        say("ready")
        while sleepers(q) == 0:
            time.sleep(0.001)
        q.put(b"from afar")


def test_a_wake_up_for_coroutines_that_are_gone_is_passed_on(queue: Queues) -> None:
    """The watcher sleeps for a coroutine that was cancelled; the message that wakes it is another receiver's."""
    q = queue()
    other = queue.open(q)
    found: list[float] = []

    async def run() -> None:
        waiting = asyncio.create_task(q.aget())
        until_sleeping = asyncio.to_thread(until, lambda: sleepers(q) == 1)
        await until_sleeping
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        receiver = threading.Thread(target=lambda: found.append(_seconds(other)))
        receiver.start()
        await asyncio.to_thread(until, lambda: sleepers(q) == 2)
        q.put(b"a")
        await asyncio.to_thread(receiver.join)

    asyncio.run(run())
    assert found and found[0] < 0.5, "it did not wait for the look that comes once a second"


def _seconds(q: penstock.TimeQueue) -> float:
    message = q.get(timeout=LONG_S)
    late = time.time() - message.enqueued_us / 1e6
    message.ack()
    return late


def test_the_loop_goes_on_while_the_lock_is_held_by_a_process_that_is_stopped(
    path: Path, start: Callable[..., Child]
) -> None:
    q = penstock.create(path, slots=16, data_bytes=1 << 16, durability="relaxed")
    q.put_many([b"a", b"b", b"c"])
    held, later = q.get_many(2)
    child = start(_hold_the_lock, path)
    assert child.hear() == "held"

    async def run() -> list[Any]:
        work = [
            asyncio.create_task(made)
            for made in (
                q.aget(timeout=LONG_S),
                q.aget_many(5),
                q.aput(b"d"),
                q.aput_many([b"e"]),
                held.aack(),
                q.arelease(later),
                q.aextend(later, 60),
            )
        ]
        for _ in range(100):  # one that held the loop would hold it until it gives up
            await asyncio.sleep(0.003)
        assert [task for task in work if task.done()] == []
        child.kill()
        return await asyncio.gather(*work, return_exceptions=True)

    answers = asyncio.run(run())
    unexpected = [a for a in answers if isinstance(a, BaseException) and not isinstance(a, penstock.LeaseLost)]
    assert unexpected == []
    assert q.stats().acks == 1
    q.close()


def _hold_the_lock(say: Callable[[Any], None], path: Path) -> None:
    q = penstock.open(path)
    q._client.turn(lambda: (say("held"), time.sleep(LONG_S)))  # type: ignore[union-attr]


def test_a_large_body_is_read_by_a_thread(queue: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    q = queue(data_bytes=1 << 20, spill_bytes=1000)
    q.put(b"x" * 5000)
    threads = []
    read = penstock.store.files.LocalFiles.read_body

    if not penstock.compiled:

        def noting(self: Any, name: str) -> bytes:
            threads.append(threading.current_thread())
            return read(self, name)

        monkeypatch.setattr(penstock.store.files.LocalFiles, "read_body", noting)

    async def run() -> bytes:
        async with await q.aget() as message:
            return message.data

    assert asyncio.run(run()) == b"x" * 5000
    assert threading.main_thread() not in threads
    assert q.stats().acks == 1


def test_coroutines_that_wait_for_a_queue_that_is_closed_are_told(queue: Queues) -> None:
    q = queue()

    async def run() -> list[Any]:
        waiting = [asyncio.create_task(q.aget()) for _ in range(3)]
        await asyncio.sleep(0.02)
        q.close()
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LONG_S)

    assert [type(answer) for answer in asyncio.run(run())] == [QueueClosed] * 3


def test_gets_that_never_wait_let_other_tasks_run(queue: Queues) -> None:
    q = queue(slots=1000, data_bytes=1 << 18)
    q.put_many([b"x"] * 1000)

    async def run() -> tuple[int, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        for _ in range(1000):
            await (await q.aget(block=False)).aack()
        ticking.cancel()
        return ticks, q.qsize()

    ticks, left = asyncio.run(run())
    assert left == 0 and ticks >= 10


# ---------------------------------------------------------------- cancellation


class Stepper:
    """Drives a coroutine in a loop of its own, and cancels it after so many steps of that loop."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.cancelled = False

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        for _ in range(self.steps):
            if task.done():
                break
            await asyncio.sleep(0)
        if not task.done():
            self.cancelled = task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None


def at_every_step(scenario: Callable[[Stepper], None]) -> int:
    """Run it with a cancellation after 0, 1, 2... steps of the loop, until it ends before it is cancelled."""
    steps = 0
    while True:
        stepper = Stepper(steps)
        scenario(stepper)
        if not stepper.cancelled:
            return steps
        steps += 1
        assert steps < 100_000


@pytest.mark.parametrize("way", ["at once", "waiting", "busy", "from a file"])
def test_a_get_that_is_cancelled_at_any_step_loses_nothing(queue: Queues, way: str) -> None:
    q = queue(data_bytes=1 << 20, spill_bytes=1000)
    body = b"x" * (5000 if way == "from a file" else 10)

    async def take(stepper: Stepper) -> Any:
        q._async_gets._at_once = 63 if way == "at once" else 0  # with the breather
        if way == "waiting":
            asyncio.get_running_loop().call_later(0.002, q.put, body)
        else:
            q.put(body)
        if way == "busy":
            taken = threading.Event()
            threading.Thread(target=q._mine().turn, args=(_hold, taken)).start()
            taken.wait(LONG_S)
        return await stepper.run(q.aget(timeout=LONG_S))

    def scenario(stepper: Stepper) -> None:
        async def run() -> Any:
            found = await take(stepper)
            await asyncio.sleep(0.01 if way == "waiting" else 0)
            return found

        found = asyncio.run(run())
        if found is not None:
            found.ack()
        else:
            until(lambda: q.qsize() == 1)
            q.get(timeout=LONG_S).ack()
        assert (q.qsize(), q.stats().pending) == (0, 0)

    assert at_every_step(scenario) >= 1


def test_a_message_on_its_way_to_a_cancelled_coroutine_goes_to_the_next(
    queue: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is there, and the coroutine is cancelled before its next step."""
    q = queue()
    deliver = asyncgets._deliver

    async def run() -> bytes:
        first = asyncio.create_task(q.aget(timeout=LONG_S))
        second = asyncio.create_task(q.aget(timeout=LONG_S))
        await asyncio.sleep(0.02)

        def deliver_and_cancel(answers: list[Any]) -> None:
            deliver(answers)
            first.cancel()

        monkeypatch.setattr(asyncgets, "_deliver", deliver_and_cancel)
        q.put(b"a")
        message = await second
        assert first.cancelled()
        return message.data

    assert asyncio.run(run()) == b"a"
    assert q.stats().pending == 1


@pytest.mark.parametrize("thrown", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt])
def test_a_coroutine_driven_by_hand_may_be_ended_at_each_await(queue: Queues, thrown: type[BaseException]) -> None:
    q = queue()

    async def run() -> None:
        for answered in (False, True):
            coroutine = q.aget(timeout=LONG_S)
            coroutine.send(None)  # it waits in the line
            (waiting,) = q._async_gets._line
            if answered:
                q.put(b"a")
                while not waiting.future.done():
                    await asyncio.sleep(0.001)
            with pytest.raises(thrown):
                coroutine.throw(thrown())
            assert not q._async_gets._line
        await asyncio.to_thread(until, lambda: q.qsize() == 1)

    asyncio.run(run())
    assert q.stats().pending == 0


def test_an_answer_to_a_loop_that_was_closed_goes_back(queue: Queues) -> None:
    q = queue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(q.aget())
    loop.run_until_complete(asyncio.sleep(0.02))
    q.put(b"a")
    until(lambda: q.stats().pending == 1)  # it is in the loop's list of calls, which is never run
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del task, loop
    gc.collect()
    until(lambda: q.qsize() == 1)


@pytest.mark.parametrize("what", ["aput", "aput_many"])
def test_a_put_that_is_cancelled_at_any_step_is_there_whole_or_not_at_all(queue: Queues, what: str) -> None:
    q = queue(durability="commit")
    bodies = [b"a", b"b", b"c"] if what == "aput_many" else [b"a"]

    def scenario(stepper: Stepper) -> None:
        async def run() -> Any:
            return await stepper.run(q.aput_many(bodies) if what == "aput_many" else q.aput(b"a"))

        told = asyncio.run(run())  # which waits for its threads
        until(lambda: not q._mine().filling and q._async_puts.idle)
        found = [message.data for message in q.browse()]
        assert found in ([], bodies) if told is None else found == bodies
        q.purge()

    assert at_every_step(scenario) >= 1


@pytest.mark.parametrize("what", ["aack", "arelease"])
def test_an_answer_that_is_cancelled_while_the_lock_is_taken_is_given_all_the_same(queue: Queues, what: str) -> None:
    q = queue()
    q.put(b"a")
    message = q.get()
    go_on = threading.Event()
    holder = threading.Thread(target=lambda: q._mine().turn(go_on.wait, LONG_S))
    holder.start()

    async def run() -> None:
        task = asyncio.create_task(getattr(message, what)())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        go_on.set()

    asyncio.run(run())
    holder.join()
    assert (q.stats().pending, q.qsize()) == (0, 1 if what == "arelease" else 0)


def test_a_task_that_puts_without_waiting_lets_others_run(queue: Queues) -> None:
    q = queue(slots=4000, data_bytes=1 << 21)
    turns = 0
    puts_of_turn: dict[int, int] = {}

    async def produce() -> None:
        for _ in range(3000):
            await q.aput(b"a", durability="relaxed")
            puts_of_turn[turns] = puts_of_turn.get(turns, 0) + 1

    async def run() -> None:
        nonlocal turns
        producing = asyncio.create_task(produce())
        while not producing.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(run())
    assert q.qsize() == 3000
    assert max(puts_of_turn.values()) <= asyncputs.BREATHER


def _begin_to_put(q: penstock.TimeQueue, dedup_id: str) -> None:
    """As a producer that is stopped in the middle of it."""
    item = puts.entry(b"m", 1, None, None, 0, None, None, None, q._specials.of({"dedup_id": dedup_id}, 1))
    item.memory = L.BEING_PUT
    q._mine().turn(q._producer._reserve, [item])


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_a_dedup_id_that_a_stopped_producer_holds_is_in_nobody_elses_way(queue: Queues, durability: str) -> None:
    stopped = queue(durability=durability)
    q = queue.open(stopped, busy_s=1.0)
    _begin_to_put(stopped, "held")

    async def run() -> tuple[list[str], list[str | BaseException], float]:
        began_s = time.monotonic()
        held = [asyncio.create_task(q.aput(b"%d" % n, dedup_id="held")) for n in range(2)]
        first = await asyncio.gather(*(q.aput(b"%d" % n, dedup_id=f"{n}" if n % 2 else None) for n in range(6)))
        later = await q.aput(b"later", dedup_id="later")
        took_s = time.monotonic() - began_s
        return [*first, later], await asyncio.gather(*held, return_exceptions=True), took_s

    there, held, took_s = asyncio.run(run())
    assert len(set(there)) == 7 and q.qsize() == 7 and took_s < 0.9
    assert [type(answer) for answer in held] == [penstock.QueueBusy] * 2
    queue.die(stopped)


def test_a_put_that_waits_for_another_of_its_dedup_id_goes_on_when_that_is_given_up(queue: Queues) -> None:
    stopped = queue(durability="commit")
    q = queue.open(stopped)
    _begin_to_put(stopped, "held")

    async def run() -> list[str]:
        tasks = [asyncio.create_task(q.aput(b"%d" % n, dedup_id="held")) for n in range(3)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in tasks)
        queue.die(stopped)
        return await asyncio.gather(*tasks)

    assert len(set(asyncio.run(run()))) == 1 and q.qsize() == 1
