"""The synchronization component and its clients: either may be killed or stopped at any step, and nothing is lost,
nothing is confirmed that is not on disk, nobody waits for long."""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import fcntl
import functools
import os
import random
import shutil
import signal
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.store import fifos, rig
from penstock.store import layout as L
from penstock.timequeue import syncasking, syncservice
from penstock.timequeue.commit import nothing
from penstock.timequeue.puts import plain
from penstock.timequeue.syncasking import CHANNELS_MAX, Asking, Channel
from penstock.timequeue.syncbatches import Limits
from penstock.timequeue.syncer import QueueSyncer
from penstock.timequeue.syncframes import Requests, answer_frame, request_frame
from penstock.timequeue.syncservice import SyncService
from tests.conftest import Queues
from tests.fault.processes import Child
from tests.fault.test_group_commit import LONG_S, Watch, durable, ended, forked, forked_together, until

PROMISED_S = 1.0  # whoever is not answered does without after so long
SLACK_S = 2.0  # for a busy machine


@pytest.fixture(autouse=True)
def unwatched() -> Iterator[None]:
    yield
    rig.observe(None)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client takes a component on a busy machine for one that does not answer."""
    monkeypatch.setattr(syncasking, "RECEIPT_S", LONG_S)
    monkeypatch.setattr(syncasking, "CONFIRM_S", 2 * LONG_S)


@pytest.fixture
def serve() -> Iterator[Callable[..., Child]]:
    """Start a synchronization component for a queue, in a process of its own; it serves when this returns."""
    children: list[Child] = []

    def start(q: penstock.TimeQueue, work: Callable[[QueueSyncer], object] | None = None) -> Child:
        before = q._mine().kernel.get(L.H_SYNCER)
        child = Child(serving, q.path, work)
        children.append(child)
        until(lambda: q._mine().kernel.get(L.H_SYNCER) not in (0, before) or child.has_spoken())
        return child

    yield start
    for child in children:
        child.end()


def serving(say: Callable[[object], None], path: Path, work: Callable[[QueueSyncer], object] | None) -> None:
    syncer = QueueSyncer(path)
    if work is not None:
        work(syncer)
    signal.signal(signal.SIGTERM, lambda *_: syncer.stop())
    try:
        syncer.run()
        say((syncer.syncs, syncer.served))
    finally:
        syncer.close()


def no_sync(n: int) -> None:
    raise AssertionError("a producer had to sync by itself")


def bodies(q: penstock.TimeQueue) -> list[bytes]:
    return sorted(message.data for message in q.browse())


# ---------------------------------------------------------------- serving


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("way", ["futex", "file"])
def test_producers_of_many_processes_never_sync_themselves(
    queue: Queues, serve: Callable[..., Child], way: str
) -> None:
    q = durable(queue, notify=way)
    syncer = serve(q, lambda _: rig.observe(Watch(lambda n: time.sleep(0.005))))

    def produce(wait: Callable[[], None]) -> None:
        rig.observe(Watch(no_sync))
        with penstock.open(q.path) as mine:
            wait()
            for i in range(20):
                mine.put(b"%d" % i)
            mine.put_many([b"a", b"b", b"c"])
            rig.observe(None)  # the next needs an index sync first, and closing is one
            mine.put_once(f"publisher-{os.getpid()}", 1, [b"d"])

    children = forked_together(5, produce)
    assert [ended(pid) for pid in children] == [0] * 5
    syncer.send_signal(signal.SIGTERM)
    syncs, served = syncer.hear()
    stats = q.stats()
    assert (stats.waiting, stats.committed, served) == (5 * 24, 5 * 24, 5 * 22)
    assert syncs < 90, "with five at it, most syncs serve several"
    assert stats.followed == 5 * 22


@pytest.mark.usefixtures("patient")
def test_threads_of_a_client_wait_side_by_side(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    serve(q, lambda _: rig.observe(Watch(lambda n: time.sleep(0.005))))
    rig.observe(Watch(no_sync))
    threads = [threading.Thread(target=lambda: [q.put(b"x") for _ in range(10)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rig.observe(None)
    assert q.qsize() == 60 and q.stats().syncs < 50


@pytest.mark.usefixtures("patient")
def test_the_event_loop_goes_on_and_its_process_syncs_nothing(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    serve(q)
    rig.observe(Watch(no_sync))

    async def run() -> list[str]:
        return list(await asyncio.gather(*(q.aput(n) for n in range(300))))

    assert len(set(asyncio.run(run()))) == 300
    rig.observe(None)
    assert sorted(m.body for m in q.browse()) == list(range(300))


@pytest.mark.usefixtures("patient")
def test_batches_over_several_data_files_and_around_the_end_of_the_ring(
    queue: Queues, serve: Callable[..., Child], tmp_path: Path
) -> None:
    q = durable(queue, data_dirs=[tmp_path / "a", tmp_path / "b"])
    serve(q)
    rig.observe(Watch(no_sync))
    for _ in range(8):
        q.put_many([b"%d" % i + bytes(1000) for i in range(200)])
        rig.observe(None)  # the room of a batch that is gone waits for an index sync
        messages = q.get_many(200)
        assert [m.data.rstrip(b"\0") for m in messages] == [b"%d" % i for i in range(200)]
        q.ack_many(messages, durable=True)
        rig.observe(Watch(no_sync))
    rig.observe(None)
    assert q.stats().followed == 8


@pytest.mark.usefixtures("patient")
def test_a_second_one_is_refused_and_may_serve_when_the_first_has_gone(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    q = durable(queue)
    first = serve(q)
    with pytest.raises(penstock.QueueInUse, match="another synchronization component"):
        QueueSyncer(q.path)
    q.put(b"the first one goes on")
    assert q.stats().followed == 1
    first.kill()
    with pytest.raises(TimeoutError):
        serve(q).hear(0.1)  # it runs
    q.put(b"by itself: what was the first one's last sync told?")
    rig.observe(Watch(no_sync))
    q.put(b"the second one")
    rig.observe(None)
    assert q.stats().followed == 2


def test_one_that_ends_leaves_nothing_behind(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    syncer = serve(q)
    other = queue.open(q)
    for each in (q, other):
        each.put(b"x")
    syncer.send_signal(signal.SIGTERM)
    assert syncer.hear() == (2, 2)
    syncer.join()
    assert q._mine().kernel.get(L.H_SYNCER) == 0
    other.close()
    q.put(b"alone")
    q.close()
    assert os.listdir(q.path / "sync") == ["lock"]


def test_pipes_of_killed_clients_are_swept_up(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    syncer = serve(q)

    def die() -> None:
        penstock.open(q.path).put(b"x")
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(die)) == -signal.SIGKILL
    q.put(b"y")
    names = os.listdir(q.path / "sync")
    assert len([name for name in names if fifos.channel_of(name)]) == 4
    syncer.kill()
    second = serve(q)
    names = os.listdir(q.path / "sync")
    assert len([name for name in names if fifos.channel_of(name)]) == 2
    q.put(b"by itself, after a kill")
    q.put(b"z")
    assert q.stats().followed == 3
    assert ended(forked(die)) == -signal.SIGKILL
    second.send_signal(signal.SIGTERM)  # its last look round, perhaps nobody comes after it
    second.join()
    names = os.listdir(q.path / "sync")
    assert sorted(names) == sorted(["lock", "confirm.0.0", "receipt.0.0"])


@pytest.mark.usefixtures("patient")
def test_a_forked_child_has_pipes_of_its_own(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    serve(q)
    q.put(b"parent")

    def child() -> None:
        q.put(b"child")
        q.close()

    assert ended(forked(child)) == 0
    rig.observe(Watch(no_sync))
    q.put(b"parent again")
    rig.observe(None)
    assert bodies(q) == [b"child", b"parent", b"parent again"]


@pytest.mark.usefixtures("patient")
def test_a_confirmation_is_confirmed_before_anything_else_is_done(queue: Queues, serve: Callable[..., Child]) -> None:
    """The next sync waits for it; what is put in a batch is published by its producer, which takes its time."""
    q = durable(queue)
    serve(q)
    q.put(b"x")
    done: list[str] = []

    class Look(Watch):
        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind in (rig.SEND, rig.LOCK):
                done.append(data[:4].decode() or kind)

    rig.observe(Look(lambda n: None))
    q.put_many([b"y", b"z"])
    rig.observe(None)
    assert done == ["lock", "PSRQ", "PSCC", "lock"]


@pytest.mark.usefixtures("patient")
def test_answers_that_nobody_reads_never_fill_their_pipes(queue: Queues, serve: Callable[..., Child]) -> None:
    """What the kernel tells needs no answer. A pipe of one page is the least that a system gives."""
    q = durable(queue)
    serve(q)
    q.put(b"x")
    [channel] = q._mine().syncs.commits._asking._free
    for fd in (channel.receipt, channel.confirm):
        room = fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096)
    frames = room // len(answer_frame(0, 0))
    most = 0
    for _ in range(3 * frames):
        q.put(b"x")
        most = max(most, *(waiting_bytes(fd) for fd in (channel.receipt, channel.confirm)))
    assert q.stats().followed == 3 * frames + 1, "each was confirmed by the component"
    assert most <= room // 2


def waiting_bytes(fd: int) -> int:
    found = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, found)
    return found[0]


# ---------------------------------------------------------------- killed and stopped at every step


def puts_in_time(q: penstock.TimeQueue, names: list[bytes]) -> None:
    for name in names:
        start_s = time.monotonic()
        q.put(name)
        assert time.monotonic() - start_s < PROMISED_S + SLACK_S


def test_killed_at_every_step_the_component_harms_nobody(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    step = 0
    expected = []
    while True:
        step += 1
        syncer = serve(q, lambda _, step=step: rig.kill_at(step))
        names = [b"%d.%d" % (step, i) for i in range(3)]
        puts_in_time(q, names)
        expected += names
        if q.stats().followed >= 3 and _alive(syncer):
            break
        until(lambda syncer=syncer: not _alive(syncer))  # type: ignore[misc]
        syncer.end()
        if step % 20 == 0:
            assert bodies(q) == sorted(expected)
    assert bodies(q) == sorted(expected)
    assert step > 30, "a turn of three requests has many steps"


def _alive(child: Child) -> bool:
    return child._process.is_alive()


class StopAt:
    """Stops this process by SIGSTOP just before the n-th call on a pipe or sync of a data file."""

    def __init__(self, step: int) -> None:
        self._left = step

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind in (rig.SEND, rig.RECEIVE, rig.SYNC):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)


SYNCER_STEPS = 6  # receive a request, its receipt, the sync, the confirmation, its confirmation, and the next request
CLIENT_STEPS = 4  # the request, the confirmation of its confirmation, and the same of the next


@pytest.mark.parametrize("step", range(1, SYNCER_STEPS + 1))
def test_stopped_at_every_step_the_component_holds_nobody_up(
    queue: Queues, serve: Callable[..., Child], step: int
) -> None:
    q = durable(queue)
    syncer = serve(q, lambda _: rig.observe(StopAt(step)))
    puts_in_time(q, [b"a", b"b"])
    syncer.until_stopped()
    start_s = time.monotonic()
    for name in (b"c", b"d", b"e"):
        q.put(name)
    assert time.monotonic() - start_s < PROMISED_S + SLACK_S, "it is not asked again and again"
    syncer.go_on()
    time.sleep(0.05)  # it goes on where it was: with requests and confirmations that nobody waits for any more
    q._mine().syncs.commits._asking._again_us = 0  # as if a second had passed
    puts_in_time(q, [b"f", b"g"])
    assert bodies(q) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert q.stats().followed >= 1, "it serves again"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("step", range(1, CLIENT_STEPS + 1))
def test_a_client_that_is_killed_or_stopped_at_any_step_holds_up_neither_the_component_nor_others(
    queue: Queues, serve: Callable[..., Child], step: int, how: str
) -> None:
    q = durable(queue)
    serve(q)
    q.put(b"first")

    def produce(say: Callable[[object], None]) -> None:
        with penstock.open(q.path) as mine:
            rig.observe(StopAt(step))
            for name in (b"1", b"2"):
                mine.put(name)
                say(name)

    client = Child(produce)
    client.until_stopped()
    try:
        if how == "killed":
            client.kill()
        rig.observe(Watch(no_sync))
        puts_in_time(q, [b"second", b"third"])
        rig.observe(None)
        confirmed = []
        if how == "stopped":
            client.go_on()
            confirmed = [client.hear(), client.hear()]
            assert client.join() == 0
        else:
            while client.has_spoken():
                try:
                    confirmed.append(client.hear())
                except EOFError:
                    break
    finally:
        client.end()
    found = bodies(q)
    assert set(found) >= {b"first", b"second", b"third", *confirmed} and len(found) == len(set(found))
    assert set(found) <= {b"first", b"second", b"third", b"1", b"2"}


@pytest.mark.usefixtures("patient")
def test_of_many_clients_some_are_killed_and_the_others_go_on(queue: Queues, serve: Callable[..., Child]) -> None:
    """With so many at it the component does not look at each request, and expects those that died to come again."""
    q = durable(queue)
    syncer = serve(q)
    first_step = random.randrange(500, 1000)
    print(f"first step {first_step}")

    def produce(wait: Callable[[], None]) -> None:
        mine = penstock.open(q.path)
        wait()
        rig.observe(Watch(no_sync))
        puts_in_time(mine, [b"%d.%d" % (os.getpid(), i) for i in range(60)])

    def die(step: int) -> None:
        mine = penstock.open(q.path)
        rig.kill_at(step)
        while True:
            mine.put(b"%d.%d" % (os.getpid(), rig.steps()))

    children = forked_together(10, produce)
    victims = [forked(functools.partial(die, first_step + 131 * number)) for number in range(6)]
    assert [ended(pid) for pid in victims] == [-signal.SIGKILL] * 6
    assert [ended(pid) for pid in children] == [0] * 10
    found = bodies(q)
    assert len(found) == len(set(found))
    for pid in children:
        assert set(found) >= {b"%d.%d" % (pid, i) for i in range(60)}
    syncer.send_signal(signal.SIGTERM)
    syncs, served = syncer.hear()
    assert served >= 600 and syncs < served / 2


def test_pipes_to_one_that_has_died_are_closed(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    for _ in range(3):
        syncer = serve(q)
        q.put(b"x")  # by itself, after a kill
        q.put(b"y")
        assert open_pipes(q.path) == ["confconf", "request"]
        syncer.kill()
        q.put(b"z")
        assert open_pipes(q.path) == []


def open_pipes(path: Path) -> list[str]:
    """Those of this process that lead to a component."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the folder itself, while it was read
            place = Path(os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)"))
            if place.parent == path / fifos.FOLDER and place.name in (fifos.REQUEST, fifos.CONFCONF):
                found.append(place.name)
    return sorted(found)


def test_a_client_killed_at_every_step_loses_nothing_that_was_confirmed(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    q = durable(queue)
    serve(q)
    step = 0
    while True:
        step += 1

        def produce(say: Callable[[object], None], step: int = step) -> None:
            mine = penstock.open(q.path)
            rig.kill_at(step)
            mine.put(b"%d" % step)
            rig.kill_at(0)
            say("confirmed")
            mine.close()

        client = Child(produce)
        survived = client.join() == 0
        if survived:
            assert client.hear() == "confirmed"
        client.end()
        puts_in_time(q, [b"other %d" % step])
        found = bodies(q)
        assert found in ([b"%d" % step, b"other %d" % step], [b"other %d" % step])
        assert not survived or len(found) == 2
        assert q.purge() == len(found)
        if survived:
            break
    assert step > 15


def test_a_producer_that_wants_to_be_ended_by_broken_pipes_is_not_ended_by_ours(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    q = durable(queue)
    syncer = serve(q)

    def produce(say: Callable[[object], None]) -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        with penstock.open(q.path) as mine:
            mine.put(b"a")
            say("asked")
            until(lambda: not _reads(q.path))
            mine.put(b"b")
            say(signal.pthread_sigmask(signal.SIG_BLOCK, ()) | signal.sigpending())

    producer = Child(produce)
    try:
        assert producer.hear() == "asked"
        syncer.kill()
        assert producer.join() == 0
        assert signal.SIGPIPE not in producer.hear()
    finally:
        producer.end()
    assert bodies(q) == [b"a", b"b"]


def _reads(path: Path) -> bool:
    fd = fifos.open_to_write(path / fifos.FOLDER / fifos.REQUEST)
    if fd is not None:
        os.close(fd)
    return fd is not None


@pytest.mark.parametrize("pending", [False, True])
def test_a_signal_of_a_broken_pipe_that_was_blocked_is_left_as_it_was(pending: bool) -> None:
    def work() -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGPIPE,))
        if pending:
            signal.pthread_kill(threading.get_ident(), signal.SIGPIPE)
        reading, writing = os.pipe()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            fifos.send(writing, b"x")
        assert (signal.SIGPIPE in signal.sigpending()) == pending
        assert signal.SIGPIPE in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert ended(forked(work)) == 0


def test_one_that_finds_the_queue_busy_says_so_to_those_that_wait(queue: Queues) -> None:
    q = durable(queue)
    client = q._mine()
    syncer = QueueSyncer(q.path)
    asking = client.syncs.commits._asking
    asked = asking.ask(client.index, [(0, 256)])
    assert asked is not None and asked.may_answer()
    holder = forked(lambda: q._mine().turn(os.kill, os.getpid(), signal.SIGSTOP))
    os.waitpid(holder, os.WUNTRACED)
    try:
        assert syncer.step()
        assert not asked.may_answer(), "there is an answer"
    finally:
        os.kill(holder, signal.SIGCONT)
        assert ended(holder) == 0
        asked.end()
        syncer.close()
    assert asking.may_ask(), "it lives, and will be asked again"


def test_stopped_in_its_turn_at_the_lock_the_component_makes_the_queue_busy(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    """As anybody who is stopped there: nobody can do without the lock."""
    q = durable(queue, busy_s=0.1)

    class StopInTurn(StopAt):
        def store(self, path: str, index: int, value: int) -> None:
            rig.observe(None)
            os.kill(os.getpid(), signal.SIGSTOP)

    syncer = serve(q, lambda _: rig.observe(StopInTurn(0)))
    try:
        with pytest.raises(penstock.QueueBusy, match="stopped"):
            q.put(b"x")
    finally:
        syncer.go_on()
    until(lambda: q._mine().turn(lambda: True))
    q.put(b"y")
    assert b"y" in bodies(q)


def test_what_a_producer_still_syncs_itself(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue, spill_bytes=4096)
    serve(q)
    synced: set[str] = set()

    class Look(Watch):
        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            if kind == rig.SYNC:
                synced.add(os.path.relpath(os.readlink(f"/proc/self/fd/{target}"), q.path).partition("/")[0])

    def syncs_of(put: Callable[[], object]) -> set[str]:
        synced.clear()
        rig.observe(Look(lambda n: None))
        put()
        rig.observe(None)
        return set(synced)

    assert syncs_of(lambda: q.put(b"x")) == set()
    assert syncs_of(lambda: q.put(bytes(10_000))) == {"bodies"}
    q.put_once("publisher", 1, [b"x"])
    assert syncs_of(lambda: q.put_once("publisher", 2, [b"x"])) == {"published"}
    q.put(b"x", dedup_id="a", durability="relaxed")
    assert syncs_of(lambda: q.put(b"x", dedup_id="a")) >= {"data.0", "kernel"}


def test_a_queue_that_is_served_is_not_renamed(tmp_path: Path) -> None:
    manager = penstock.QueueManager(tmp_path)
    manager.create("orders", depth=100, data_bytes=1 << 16)
    syncer = QueueSyncer(tmp_path / "orders")
    with pytest.raises(penstock.QueueInUse, match=str(os.getpid())):
        manager.rename("orders", "invoices")
    syncer.close()
    manager.rename("orders", "invoices")
    manager.close()


# ---------------------------------------------------------------- channels


def test_a_channel_that_cannot_be_made_takes_no_number(queue: Queues, tmp_path: Path) -> None:
    asking = Asking(tmp_path, queue()._mine().kernel)
    for _ in range(CHANNELS_MAX + 1):
        assert asking._channel(3) is None, "there is no folder for it"
    (tmp_path / fifos.FOLDER).mkdir()
    channels = [asking._channel(3) for _ in range(CHANNELS_MAX + 1)]
    assert [None if channel is None else channel.number for channel in channels] == [*range(CHANNELS_MAX), None]
    asking.close()
    assert os.listdir(tmp_path / fifos.FOLDER) == []


def test_a_pipe_that_has_taken_the_place_of_ours_is_left_there(tmp_path: Path) -> None:
    first = Channel(tmp_path, 3, 0)
    second = Channel(tmp_path, 3, 0)  # of a queue that was made anew in the same place, say
    first.close()
    assert sorted(os.listdir(tmp_path)) == ["confirm.3.0", "receipt.3.0"]
    second.close()
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- the end of one, and of its queue


def anew(path: Path) -> penstock.TimeQueue:
    shutil.rmtree(path, ignore_errors=True)
    return penstock.create(path, slots=100, data_bytes=1 << 16, durability="commit", index_sync_ms=0)


def test_one_that_is_stopped_after_its_end_writes_nowhere(queue: Queues) -> None:
    syncer = QueueSyncer(durable(queue).path)
    syncer.close()
    ends = os.pipe2(os.O_NONBLOCK), os.pipe2(os.O_NONBLOCK)  # with the numbers that its own had, perhaps
    syncer.stop()
    for reading, writing in ends:
        assert fifos.receive(reading) == b""
        os.close(reading)
        os.close(writing)


def test_one_whose_queue_was_made_anew_leaves_the_pipes_of_the_next(path: Path) -> None:
    anew(path).close()
    first = QueueSyncer(path)
    with anew(path):
        second = QueueSyncer(path)
        first.close()
        assert sorted(os.listdir(path / fifos.FOLDER)) == ["confconf", "lock", "request"]
        second.close()


def told_service(path: Path) -> tuple[SyncService, list[str]]:
    """A service of this queue, and what it says."""
    said: list[str] = []
    service = SyncService(lambda: [path], Limits(), lambda event, _path, _text: said.append(event))
    service._look(True)
    return service, said


def test_a_queue_that_is_made_anew_in_the_same_place_is_served(path: Path) -> None:
    anew(path).close()
    service, said = told_service(path)
    with anew(path) as q:
        try:
            service._look(False)
            q.put(b"x")
            assert q.stats().followed == 1
            assert said == ["serving", "ended", "serving"]
        finally:
            syncservice._end(list(service._served.values()))


@pytest.mark.parametrize("names", [["request"], ["confconf"], ["lock"], ["request", "confconf", "lock"]])
def test_one_whose_pipes_were_removed_is_found_again(path: Path, names: list[str]) -> None:
    with anew(path) as q:
        service, said = told_service(path)
        try:
            service._look(False)
            assert said == ["serving"]
            for name in names:
                os.unlink(path / fifos.FOLDER / name)
            service._look(False)
            q.put(b"x")
            assert q.stats().followed == 1
            assert said == ["serving", "ended", "serving"]
        finally:
            syncservice._end(list(service._served.values()))
        assert sorted(os.listdir(path / fifos.FOLDER)) == ["confirm.0.0", "lock", "receipt.0.0"]


def test_disks_that_do_not_answer_hold_up_its_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncservice, "JOIN_S", 0.5)
    paths = [tmp_path / name for name in "abcdef"]
    for path in paths:
        anew(path).close()
    service = SyncService(lambda: paths, Limits(), lambda *_: None)
    service._look(True)
    served = list(service._served.values())
    answers = threading.Event()
    watch = Watch(lambda n: bool(answers.wait(LONG_S)))
    rig.observe(watch)
    try:
        for path in paths:
            fd = fifos.open_to_write(path / fifos.FOLDER / fifos.REQUEST)
            assert fd is not None
            fifos.send(fd, request_frame(0, 0, 1, [(0, 256)]))
            os.close(fd)
        until(lambda: watch.syncs == len(paths))
        start_s = time.monotonic()
        service.stop()
        service.run(insist=False)
        assert time.monotonic() - start_s < 4 * syncservice.JOIN_S
        assert all(one.is_running() for one in served)
    finally:
        answers.set()
        syncservice._end(served)
    assert not any(one.is_running() for one in served)


def test_a_signal_that_comes_while_the_service_goes_to_sleep_ends_it() -> None:
    """At the worst moment, where there is one: with a lock in hand that the handler needs."""

    def serve_nothing(say: Callable[[object], None]) -> None:
        service = SyncService(lambda: [], Limits(), lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: service.stop())

        def trace(frame: Any, event: str, argument: object) -> Any:
            if event == "line" and frame.f_code.co_qualname == "Condition.wait":
                sys.settrace(None)
                os.kill(os.getpid(), signal.SIGTERM)
            return trace

        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        sys.settrace(trace)
        service.run(insist=False)
        sys.settrace(None)
        say("ended")

    child = Child(serve_nothing)
    try:
        assert child.hear(5.0) == "ended"
    finally:
        child.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root serves queues of others")
def test_root_serves_a_queue_of_somebody_else_and_leaves_it_his() -> None:
    somebody = 12345
    with tempfile.TemporaryDirectory() as folder:  # the test's own is for root only
        os.chmod(folder, 0o711)
        home = Path(folder) / "home"
        home.mkdir()
        os.chown(home, somebody, somebody)

        def use(say: Callable[[object], None]) -> None:
            os.setgid(somebody)
            os.setuid(somebody)
            with anew(home / "queue") as q:
                shutil.rmtree(q.path / fifos.FOLDER)  # so that it has to be made, too
                say("made")
                until(lambda: q._mine().kernel.get(L.H_SYNCER) != 0)
                q.put(b"x")
                say(q.stats().followed)
                until(lambda: q._mine().kernel.get(L.H_SYNCER) == 0)
                QueueSyncer(q.path).close()
                say("serves it himself")

        user = Child(use)
        try:
            assert user.hear() == "made"
            syncer = QueueSyncer(home / "queue")
            serving = threading.Thread(target=syncer.run)
            serving.start()
            assert user.hear() == 1
            syncer.stop()
            serving.join()
            syncer.close()
            assert user.hear() == "serves it himself"
        finally:
            user.end()


# ---------------------------------------------------------------- what it says is only a hint


def test_a_confirmation_without_a_sync_is_not_believed(queue: Queues) -> None:
    """Of somebody who only pretends: what is on disk the kernel says."""
    q = durable(queue)
    folder = q.path / fifos.FOLDER
    for name in (fifos.REQUEST, fifos.CONFCONF):
        fifos.make_fifo(folder / name)
    request = fifos.open_to_read(folder / fifos.REQUEST)
    confconf = fifos.open_to_read(folder / fifos.CONFCONF)
    q._mine().kernel.note(L.H_SYNCER, 7)
    asked = []

    def pretend() -> None:
        reader = Requests()
        while not asked:
            asked.extend(reader.take(fifos.receive(request)))
        for kind in (fifos.RECEIPT, fifos.CONFIRM):
            fd = fifos.open_to_write(folder / fifos.channel_name(kind, asked[0].client, asked[0].channel))
            assert fd is not None
            fifos.send(fd, answer_frame(asked[0].serial, 0))
            os.close(fd)

    pretending = threading.Thread(target=pretend)
    pretending.start()
    watch = Watch(lambda n: None)
    rig.observe(watch)
    q.put(b"x")
    pretending.join()
    rig.observe(None)
    assert watch.syncs == 1, "so it led one itself"
    q._mine().kernel.note(L.H_SYNCER, 0)
    os.close(request)
    os.close(confconf)


def test_a_mark_that_one_serves_is_only_a_hint(queue: Queues) -> None:
    q = durable(queue)
    q._mine().kernel.note(L.H_SYNCER, 7)  # as one leaves it that was killed, or a damaged kernel
    q.put(b"no pipes")
    fifos.make_fifo(q.path / fifos.FOLDER / fifos.REQUEST)
    q._mine().kernel.note(L.H_SYNCER, 8)
    q.put(b"a pipe that nobody reads")
    (q.path / fifos.FOLDER / fifos.REQUEST).unlink()
    (q.path / fifos.FOLDER / fifos.REQUEST).write_bytes(b"no pipe")
    (q.path / fifos.FOLDER / fifos.CONFCONF).write_bytes(b"no pipe")
    q._mine().kernel.note(L.H_SYNCER, 9)
    q.put(b"files in their place")
    assert q.qsize() == 3 and q.stats().followed == 0
    for name in (fifos.REQUEST, fifos.CONFCONF):
        (q.path / fifos.FOLDER / name).unlink()
    q._mine().kernel.note(L.H_SYNCER, 0)


def test_bytes_of_others_in_the_pipes_are_dropped(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)
    serve(q)
    q.put(b"x")
    line = q._mine().syncs.commits._asking._line
    for fd in (line.request, line.confconf):
        assert fifos.send(fd, os.urandom(1000))
    time.sleep(0.02)  # else the next request is read with them, dropped too, and made up for by the client
    puts_in_time(q, [b"y", b"z"])
    assert bodies(q) == [b"x", b"y", b"z"]


# ---------------------------------------------------------------- a sync that fails


@pytest.mark.usefixtures("patient")
def test_a_failed_sync_reaches_every_waiter_and_is_final(queue: Queues, serve: Callable[..., Child]) -> None:
    q = durable(queue)

    def fail_when_three_wait(syncer: QueueSyncer) -> None:
        def fail(n: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        rig.observe(Watch(fail))
        syncer._batches.limit(Limits(gather_us=400_000, idle_us=400_000, batch_requests_max=3, automatic=False))

    syncer = serve(q, fail_when_three_wait)
    rig.observe(Watch(no_sync))
    told: list[BaseException] = []

    def produce(mine: penstock.TimeQueue) -> None:
        try:
            mine.put(b"x")
        except penstock.SyncFailed as error:
            told.append(error)

    others = [q, queue.open(q), queue.open(q)]
    threads = [threading.Thread(target=produce, args=(mine,)) for mine in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 3 and {error.errno for error in told} == {errno.EIO}  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="SyncFailed"):
        syncer.hear()  # it ends: the queue is to be checked first
    for mine in others:
        with pytest.raises(penstock.SyncFailed):
            mine.put(b"y")
    with pytest.raises(penstock.SyncFailed):
        QueueSyncer(q.path)
    rig.observe(None)
    assert q.qsize() == 0
    q._mine().kernel.note(L.H_SYNC_FAILED, 0)


def test_a_sync_that_failed_while_the_component_died_is_not_forgotten(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    """Killed in a sync, it may have been told of an error: a client that is older than it syncs itself, and hears."""
    q = durable(queue)

    def die(n: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    serve(q, lambda _: rig.observe(Watch(die)))
    watch = Watch(lambda n: None)
    rig.observe(watch)
    puts_in_time(q, [b"x"])
    rig.observe(None)
    assert watch.syncs >= 1
    kernel = q._mine().kernel
    assert kernel.get(L.H_SYNC_DONE) == kernel.get(L.H_SYNC_BEGUN)


def test_one_that_follows_a_killed_one_does_not_confirm_for_those_that_may_know_more(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    """It may have been killed with an error in its hands, in a sync that others had overtaken: the kernel does not say
    that one was open. Who came after it began, and is not told of the error either, does not confirm for others."""
    q = durable(queue)
    client, kernel = q._mine(), q._mine().kernel
    first = serve(q)
    between = queue.open(q)
    first.kill()
    waiting = [plain(b"older")]
    client.turn(q._producer._reserve, waiting)
    ticket = client.syncs.commits.ticket()
    syncer = QueueSyncer(q.path)
    syncer._client.syncs.commits.lead_for_others()
    assert kernel.get(L.H_SYNC_DONE) < ticket
    syncer.close()
    between.put(b"between")
    assert kernel.get(L.H_SYNC_DONE) < ticket
    client.syncs.commits.wait(ticket)
    assert kernel.get(L.H_SYNC_DONE) == kernel.get(L.H_SYNC_BEGUN)
    client.leftovers.append([(waiting[0].slot, waiting[0].number)])
    client.filling.clear()


def test_the_end_of_a_sync_that_was_under_way_is_not_the_end_of_the_doubt(
    queue: Queues, serve: Callable[..., Child]
) -> None:
    """It may have asked the disk before the error came."""
    q = durable(queue)
    client, kernel = q._mine(), q._mine().kernel
    serve(q).kill()
    number, _, _ = client.turn(client.syncs.commits._begin)
    QueueSyncer(q.path).close()
    client.turn(client.syncs.commits._finish, number, nothing, None)
    assert kernel.get(L.H_SYNC_DONE) != kernel.get(L.H_SYNC_BEGUN)
    q.put(b"x")
    assert kernel.get(L.H_SYNC_DONE) == kernel.get(L.H_SYNC_BEGUN)
