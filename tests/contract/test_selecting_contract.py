"""What every kind of queue promises about types, keys, groups and exclusive keys."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import penstock
from penstock import Draft, Misuse, QueueEmpty
from tests.conftest import SimulatedClock
from tests.contract.test_queue_contract import Local, drain, kind, live  # noqa: F401

# ruff: noqa: F811 (the fixtures)


def bodies(messages: list[penstock.Message]) -> list[Any]:
    return [message.body for message in messages]


def fill(queue: penstock.TimeQueue) -> None:
    """0 to 11, of types a, b, c and of keys x, y or none."""
    queue.put_many([Draft(body=n, type="abc"[n % 3], key=("x", "y", None)[n // 4]) for n in range(12)])


# ---------------------------------------------------------------- types and keys


@pytest.mark.parametrize(
    "wanted, expected",
    [
        ({"type": "a"}, [0, 3, 6, 9]),
        ({"type": ["a", "c"]}, [0, 2, 3, 5, 6, 8, 9, 11]),
        ({"key": "y"}, [4, 5, 6, 7]),
        ({"key": ("y", "x")}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"type": "b", "key": "x"}, [1]),
        ({"type": {"a", "b"}, "key": ["y"]}, [4, 6, 7]),
        ({"type": "nobody's"}, []),
        ({"type": "a", "key": "nobody's"}, []),
    ],
)
def test_only_what_is_asked_for_is_delivered_and_in_order(wanted: Any, expected: list[int], kind: Local) -> None:
    queue = kind.make()
    fill(queue)
    assert bodies(queue.get_many(100, **wanted)) == expected
    assert bodies(queue.get_many(100)) == [n for n in range(12) if n not in expected]


def test_get_takes_one_of_a_type(kind: Local) -> None:
    queue = kind.make()
    fill(queue)
    assert queue.get(block=False, type="c").body == 2
    assert queue.get(block=False, type="c").body == 5
    assert queue.get(block=False, key="y").body == 4
    with pytest.raises(QueueEmpty):
        queue.get(block=False, type="d")


def test_what_has_no_type_is_not_of_any_type(kind: Local) -> None:
    queue = kind.make()
    queue.put(b"neither")
    queue.put(b"headers only", headers={"type": "a"})
    queue.put(b"empty", type="", key="")
    assert bodies(queue.get_many(10, type="a")) == []
    assert bodies(queue.get_many(10, type="", key="")) == [b"empty"]


def test_priority_and_delivery_time_count_among_what_is_asked_for(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make()
    queue.put("other", type="b", priority=15)
    queue.put("second", type="a")
    queue.put("later", type="a", delay=10, priority=9)
    queue.put("first", type="a", priority=3)
    queue.put("past", type="a", deliver_at=clock.now_s - 100)
    assert bodies(queue.get_many(10, type="a")) == ["first", "past", "second"]
    clock.advance(10)
    assert bodies(queue.get_many(10, type="a")) == ["later"]
    assert bodies(queue.get_many(10)) == ["other"]


def test_several_types_come_in_the_order_in_which_all_would(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make()
    queue.put(1, type="a")
    queue.put(2, type="b", priority=1)
    clock.advance(1)
    queue.put(3, type="b")
    queue.put(4, type="a", deliver_at=clock.now_s - 0.5)
    queue.put(5, type="a", priority=1)
    assert bodies(queue.get_many(10, type=["a", "b"])) == [2, 5, 1, 4, 3]


def test_what_was_taken_by_type_returns_to_its_place(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make()
    fill(queue)
    taken = queue.get_many(3, type="a", lease=5)
    taken[0].release()
    taken[1].release(delay=60)
    assert bodies(queue.get_many(10, type="a", lease=1000)) == [0, 9]
    clock.advance(6)
    assert bodies(queue.get_many(10, type="a", lease=1000)) == [6]
    clock.advance(60)
    assert bodies(queue.get_many(10, type="a", key="x")) == [3]


def test_a_cancelled_message_is_of_no_type_any_more(kind: Local) -> None:
    queue = kind.make()
    ids = [queue.put(n, type="a", key="k") for n in range(5)]
    assert queue.cancel(ids[0]) and queue.cancel(ids[3])
    assert bodies(queue.get_many(10, type="a")) == [1, 2, 4]
    assert queue.groups() == []


def test_long_and_strange_names_are_names(kind: Local) -> None:
    queue = kind.make(data_bytes=1 << 20)
    names = ["", "a", "b" * 31, "c" * 32, "d" * 255, "e" * 256, "f" * 30_000, "grüße", "\0", "\U0001f600"]
    for n, name in enumerate(names):
        queue.put(n, type=name)
        queue.put(-n, key=name, headers={"h": "v"})
    for n, name in enumerate(names):
        assert bodies(queue.get_many(10, type=name)) == [n]
        assert bodies(queue.get_many(10, key=name)) == [-n]


@pytest.mark.parametrize("wrong", [5, b"bytes", [], ["a", None], [b"a"], object()])
@pytest.mark.parametrize("name", ["type", "key"])
def test_what_is_no_name_is_refused(name: str, wrong: Any, kind: Local) -> None:
    queue = kind.make()
    with pytest.raises(Misuse, match=name):
        queue.get(block=False, **{name: wrong})
    with pytest.raises(Misuse, match=name):
        queue.get_many(1, **{name: wrong})


def test_a_receiver_is_woken_for_what_it_wants(live: Local) -> None:
    queue = live.make()
    peer = live.peer(queue)
    found: list[Any] = []
    receiver = threading.Thread(target=lambda: found.append(peer.get(timeout=20, type="wanted").body))
    receiver.start()
    deadline = time.monotonic() + 20
    while receiver.is_alive() and not live.sleepers(queue) and time.monotonic() < deadline:
        time.sleep(0.001)
    for n in range(5):
        queue.put(n, type="unwanted")
    begun = time.monotonic()
    queue.put("this", type="wanted")
    receiver.join(20)
    assert found == ["this"]
    assert time.monotonic() - begun < 0.9, "it was not woken: it looked by itself"
    assert bodies(queue.get_many(10)) == [0, 1, 2, 3, 4]


def test_a_receiver_that_chooses_sleeps_although_others_are_due(live: Local) -> None:
    queue = live.make()
    queue.put("unwanted", type="a")
    queue.put("unwanted too", type="a", delay=0.001)
    time.sleep(0.01)
    used = time.process_time()
    assert queue.get_many(1, wait=0.7, type="b") == []
    assert time.process_time() - used < 0.35


def test_a_receiver_that_chooses_wakes_at_the_delivery_time(live: Local) -> None:
    queue = live.make()
    queue.put("then", type="a", delay=0.3)
    assert queue.get(timeout=20, type="a").body == "then"
    queue.put("again", key="k", delay=0.3)
    assert bodies(queue.get_many(5, wait=20, group="largest")) == ["again"]


# ---------------------------------------------------------------- consumers and coroutines


def test_a_consumer_gets_what_it_asks_for_and_leaves_the_rest(kind: Local) -> None:
    queue = kind.make()
    fill(queue)
    with queue.consumer(prefetch=2, wait=0, type=["a", "c"], key="y") as consumer:
        assert bodies(list(consumer)) == [5, 6]
    with queue.consumer(wait=0, type="b") as consumer:
        assert bodies(list(consumer)) == [1, 4, 7, 10]
    assert queue.stats().acks == 6
    assert bodies(queue.get_many(100)) == [0, 2, 3, 8, 9, 11]


def test_a_consumer_for_coroutines_gets_what_it_asks_for(kind: Local) -> None:
    queue = kind.make()
    fill(queue)

    async def run() -> list[Any]:
        async with queue.consumer(prefetch=2, wait=0, type="a", key=["x", "y"]) as consumer:
            return [message.body async for message in consumer]

    assert asyncio.run(run()) == [0, 3, 6]
    assert queue.qsize() == 9 and queue.stats().acks == 3


def test_coroutines_get_only_what_they_ask_for_and_in_order(kind: Local) -> None:
    queue = kind.make()
    fill(queue)

    async def run() -> None:
        assert (await queue.aget(block=False, type="c")).body == 2
        assert bodies(await queue.aget_many(10, type=["b", "c"], key="y")) == [4, 5, 7]
        assert await queue.aget_many(10, key="nobody's") == []
        with pytest.raises(QueueEmpty):
            await queue.aget(block=False, type="nobody's")
        assert bodies(await queue.aget_many(100)) == [0, 1, 3, 6, 8, 9, 10, 11]

    asyncio.run(run())


def test_coroutines_that_wait_are_each_woken_for_what_they_want(live: Local) -> None:
    queue = live.make()

    async def run() -> list[Any]:
        asked: list[Any] = [{"type": "a"}, {"type": "b"}, {"key": "k"}, {"type": "b"}, {}]
        waiting = [asyncio.create_task(queue.aget(timeout=20, **wanted)) for wanted in asked]
        while live.sleepers(queue) < 4:
            await asyncio.sleep(0.001)
        for body, wanted in [
            (0, {"type": "b"}),
            (1, {"key": "k", "type": "z"}),
            (2, {"type": "b"}),
            (3, {"type": "a"}),
        ]:
            await queue.aput(body, **wanted)
        for body in range(4, 8):  # one of these, or of those before, is for the one that takes any
            await queue.aput(body, type="abz"[body % 3], key="k")
        return bodies(await asyncio.gather(*waiting))

    a, b, k, second_b, anything = asyncio.run(run())
    of_type = {0: "b", 1: "z", 2: "b", 3: "a", 4: "b", 5: "z", 6: "a", 7: "b"}
    assert (of_type[a], of_type[b], of_type[second_b]) == ("a", "b", "b") and k in (1, 4, 5, 6, 7)
    assert len({a, b, k, second_b, anything}) == 5
    assert queue.qsize() == 3


def test_a_coroutine_that_chooses_and_is_cancelled_has_taken_nothing(live: Local) -> None:
    queue = live.make()

    async def run() -> None:
        for pause in range(12):
            waiting = asyncio.create_task(queue.aget(type="a"))
            for _ in range(pause % 4):
                await asyncio.sleep(0.001)
            await queue.aput(pause, type="a")
            if pause % 3:
                await asyncio.sleep(0)
            waiting.cancel()
            try:
                (await waiting).ack()
            except asyncio.CancelledError:
                (await queue.aget(timeout=20, type="a")).ack()
        assert queue.qsize() == 0

    asyncio.run(run())
    assert queue.stats().acks == 12


@pytest.mark.parametrize("wrong", [{"type": ()}, {"key": 3}, {"type": ["a", None]}])
def test_what_is_no_name_is_refused_by_consumers_and_coroutines_too(wrong: Any, kind: Local) -> None:
    queue = kind.make()
    with pytest.raises(Misuse):
        queue.consumer(**wrong)
    with pytest.raises(Misuse):
        asyncio.run(queue.aget(block=False, **wrong))


# ---------------------------------------------------------------- groups


def test_groups_are_counted(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make()
    queue.put("no key")
    start_s = clock.now_s
    for n in range(3):
        queue.put(n, key="small" if n == 1 else "large", priority=n, type=str(n))
    clock.advance(2)
    queue.put("later", key="small", delay=10)
    queue.put("latest", key="latest", delay=20)
    found = {group.key: (group.waiting, group.due, group.oldest_at, group.busy) for group in queue.groups()}
    assert found == {
        "small": (2, 1, start_s, False),
        "large": (2, 2, start_s, False),
        "latest": (1, 0, clock.now_s + 20, False),
    }
    assert [group.key for group in queue.groups(by="age", limit=3)][2] == "latest"
    queue.put(3, key="large")
    assert [(group.key, group.waiting) for group in queue.groups(by="size", limit=2)] == [("large", 3), ("small", 2)]
    assert queue.groups(limit=0) == []


def test_what_is_with_a_receiver_is_not_counted(kind: Local) -> None:
    queue = kind.make()
    queue.put_many([b""] * 5, key="k")
    taken = queue.get_many(2)
    assert [group.waiting for group in queue.groups()] == [3]
    taken[0].release()
    assert [group.waiting for group in queue.groups()] == [4]
    queue.purge()
    assert queue.groups() == []


def test_messages_of_the_largest_group_come_together(kind: Local) -> None:
    queue = kind.make()
    for n in range(10):
        queue.put(n, key="odd" if n % 2 or n == 4 else "even")
    assert bodies(queue.get_many(4, group="largest")) == [1, 3, 4, 5]
    assert bodies(queue.get_many(9, group="largest")) == [0, 2, 6, 8]
    assert bodies(queue.get_many(9, group="largest")) == [7, 9]
    assert queue.get_many(9, group="largest") == []


def test_the_oldest_group_is_the_one_that_has_been_due_longest(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make()
    queue.put("later", key="c", delay=5)
    queue.put("a", key="a")
    clock.advance(1)
    queue.put("b", key="b")
    queue.put("b too", key="b")
    queue.put("very old", key="d", deliver_at=clock.now_s - 100)
    queue.put("no key")
    assert [bodies(queue.get_many(9, group="oldest")) for _ in range(4)] == [["very old"], ["a"], ["b", "b too"], []]
    clock.advance(5)
    assert bodies(queue.get_many(9, group="oldest")) == ["later"]


def test_a_group_is_waited_for(live: Local) -> None:
    queue = live.make()
    peer = live.peer(queue)
    queue.put("no key")
    sender = threading.Timer(0.1, lambda: peer.put_many(["a", "b"], key="k"))
    sender.start()
    begun = time.monotonic()
    assert bodies(queue.get_many(10, wait=20, group="largest")) == ["a", "b"]
    assert time.monotonic() - begun < 0.9
    sender.join()
    assert queue.get_many(10, wait=0.05, group="oldest") == []


def test_many_groups_are_all_found(kind: Local) -> None:
    queue = kind.make(slots=2000, data_bytes=1 << 20)
    queue.put_many([Draft(body=n, key=f"key {n % 600}") for n in range(1500)])
    groups = queue.groups(by="size")
    assert len(groups) == 600
    assert [group.waiting for group in groups] == [3] * 300 + [2] * 300
    assert {group.key for group in groups} == {f"key {n}" for n in range(600)}


@pytest.mark.parametrize("wrong", [{"group": "smallest"}, {"group": 1}, {"group": "largest", "key": "a"}])
def test_what_is_no_group_is_refused(wrong: Any, kind: Local) -> None:
    queue = kind.make()
    with pytest.raises(Misuse, match="group"):
        queue.get_many(1, **wrong)
    with pytest.raises(Misuse):
        queue.groups(by="name")
    with pytest.raises(Misuse):
        queue.groups(limit=-1)


# ---------------------------------------------------------------- exclusive keys


def exclusive(kind: Local) -> penstock.TimeQueue:
    queue = kind.make(exclusive_keys=True)
    for n in range(9):
        queue.put(n, key=("a", "b", None)[n % 3], priority=9 - n if n % 3 == 2 else 0)
    return queue


def test_of_an_exclusive_key_one_message_at_a_time_is_delivered(kind: Local) -> None:
    queue = exclusive(kind)
    peer = kind.peer(queue)
    first = queue.get_many(10)
    assert bodies(first) == [2, 5, 8, 0, 1]  # all without a key, and one of each key
    assert peer.get_many(10) == []
    queue.ack(first[3])
    assert bodies(peer.get_many(10)) == [3]
    queue.ack(first[4])
    assert bodies(queue.get_many(10)) == [4]
    assert queue.qsize() == 2


def test_the_messages_of_an_exclusive_key_come_in_order(kind: Local) -> None:
    queue = kind.make(exclusive_keys=True)
    for n in range(20):
        queue.put(n, key="k", priority=n % 16, type="even" if n % 2 == 0 else "odd")
    assert queue.get_many(5, type="odd") == [], "the first one is even"
    assert drain(queue) == list(range(20))


def test_a_message_that_is_given_back_comes_before_the_others_of_its_key(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make(exclusive_keys=True)
    for n in range(3):
        queue.put(n, key="k")
    queue.get(block=False).release()
    queue.get(block=False, lease=5)
    assert queue.get_many(5) == []
    clock.advance(6)
    message = queue.get(block=False)
    assert (message.body, message.attempts) == (0, 3)
    message.release(delay=60)  # for later: the others need not wait for it
    assert drain(queue) == [1, 2]
    clock.advance(60)
    assert drain(queue) == [0]


def test_a_scheduled_message_of_an_exclusive_key_waits_for_its_time_alone(kind: Local, clock: SimulatedClock) -> None:
    queue = kind.make(exclusive_keys=True)
    queue.put("later", key="k", delay=10)
    queue.put("latest", key="k", delay=20)
    queue.put("now", key="k")
    message = queue.get(block=False)
    clock.advance(30)
    assert queue.get_many(5) == [], "somebody has the key"
    message.ack()
    assert drain(queue) == ["later", "latest"]


def test_a_held_message_is_counted_browsed_cancelled_and_purged(kind: Local) -> None:
    queue = exclusive(kind)
    ids = {message.body: message.id for message in queue.browse()}
    assert sorted(ids) == list(range(9))
    stats = queue.stats()
    assert (stats.waiting, stats.ready, stats.held) == (9, 5, 4)
    assert {group.key: group.waiting for group in queue.groups()} == {"a": 3, "b": 3}
    assert queue.cancel(ids[3])  # held
    assert queue.cancel(ids[0])  # the first of its key: the next takes its place
    assert bodies(queue.get_many(10)) == [2, 5, 8, 1, 6]
    assert {group.key: (group.waiting, group.due, group.busy) for group in queue.groups()} == {"b": (2, 0, True)}
    assert queue.purge() == 2
    assert queue.qsize() == 0


def test_exclusive_keys_are_asked_for_like_others(kind: Local) -> None:
    queue = exclusive(kind)
    message = queue.get(block=False, key="b")
    assert message.body == 1
    assert queue.get_many(10, key="b") == []
    assert bodies(queue.get_many(10, key=["a", "b"])) == [0]
    message.ack()
    assert bodies(queue.get_many(10, group="largest")) == [4]
    assert queue.get_many(10, group="largest") == []


def test_the_messages_of_a_closed_receiver_free_their_keys(kind: Local) -> None:
    queue = exclusive(kind)
    peer = kind.peer(queue)
    assert len(peer.get_many(10)) == 5
    peer.close()
    assert bodies(queue.get_many(10)) == [2, 5, 8, 0, 1]


def test_a_receiver_is_woken_when_a_key_is_free_again(live: Local) -> None:
    queue = live.make(exclusive_keys=True)
    peer = live.peer(queue)
    queue.put_many(["first", "second"], key="k")
    message = queue.get(timeout=1)
    found: list[Any] = []
    receiver = threading.Thread(target=lambda: found.append(peer.get(timeout=20).body))
    receiver.start()
    deadline = time.monotonic() + 20
    while receiver.is_alive() and not live.sleepers(queue) and time.monotonic() < deadline:
        time.sleep(0.001)
    begun = time.monotonic()
    message.ack()
    receiver.join(20)
    assert found == ["second"]
    assert time.monotonic() - begun < 0.9, "it was not woken: it looked by itself"
