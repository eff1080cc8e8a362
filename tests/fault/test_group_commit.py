"""Producers share syncs; leaders die, stop and fail; nothing is confirmed that is not on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.store import layout as L
from penstock.store import rig
from penstock.timequeue import check_queue, repair_queue
from penstock.timequeue.commit import DATA_BYTES_AT as LEADER_BYTE
from penstock.timequeue.commit import nothing
from penstock.timequeue.puts import plain
from tests.conftest import Queues
from tests.crash.rig import in_child

LONG_S = 20.0


class Watch:
    """Does something at a sync of a data file, in this process."""

    def __init__(self, at_sync: Callable[[int], None]) -> None:
        self.at_sync = at_sync
        self.syncs = 0

    def store(self, path: str, index: int, value: int) -> None:
        pass

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        if kind == rig.SYNC and os.path.basename(os.readlink(f"/proc/self/fd/{target}")).startswith("data."):
            self.syncs += 1
            self.at_sync(self.syncs)


@pytest.fixture(autouse=True)
def unwatched() -> Iterator[None]:
    yield
    rig.observe(None)


def forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def forked_together(count: int, work: Callable[[Callable[[], None]], None]) -> list[int]:
    """Children that each call what they are given when they are ready: it returns when all have been started."""
    here, there = os.pipe()

    def wait() -> None:
        os.close(there)
        assert os.read(here, 1) == b""  # it ends when nobody has the other end any more

    children = [forked(lambda: work(wait)) for _ in range(count)]
    os.close(here)
    os.close(there)
    return children


def ended(pid: int, seconds: float = LONG_S) -> int:
    """The exit code of a child, which must end in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child did not end")


def until(holds: Callable[[], bool], seconds: float = LONG_S) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def durable(queue: Queues, **options: object) -> penstock.TimeQueue:
    return queue(durability="commit", index_sync_ms=0, slots=2000, data_bytes=1 << 20, **options)


@pytest.mark.parametrize("way", ["futex", "file"])
def test_processes_share_syncs(queue: Queues, way: str) -> None:
    q = durable(queue, notify=way)

    def produce(wait: Callable[[], None]) -> None:
        rig.observe(Watch(lambda n: time.sleep(0.01)))
        with penstock.open(q.path) as mine:
            wait()
            for i in range(20):
                mine.put(b"%d" % i)

    children = forked_together(6, produce)
    assert [ended(pid) for pid in children] == [0] * 6
    stats = q.stats()
    assert (stats.waiting, stats.commits, stats.committed) == (120, 120, 120)
    assert stats.followed + stats.syncs >= 120  # one that led late may find that another leader served it
    assert stats.syncs < 80, "with six at it, most syncs serve several"


def test_threads_share_syncs(queue: Queues) -> None:
    q = durable(queue)
    rig.observe(Watch(lambda n: time.sleep(0.01)))
    threads = [threading.Thread(target=lambda: [q.put(b"x") for _ in range(10)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert q.qsize() == 80 and q.stats().syncs < 50


def test_a_record_copied_after_a_sync_began_waits_for_the_next_one(queue: Queues) -> None:
    q = durable(queue)
    begun, go_on = threading.Event(), threading.Event()

    def hold(n: int) -> None:
        if n == 1:
            begun.set()
            assert go_on.wait(LONG_S)

    watch = Watch(hold)
    rig.observe(watch)
    first = threading.Thread(target=q.put, args=(b"first",))
    first.start()
    assert begun.wait(LONG_S)
    second = threading.Thread(target=q.put, args=(b"second",))
    second.start()
    until(lambda: q._mine().kernel.get(L.H_FILLING) == 2)
    go_on.set()
    first.join()
    second.join()
    assert watch.syncs == 2 and q.qsize() == 2


def lead_when_offered(q: penstock.TimeQueue, follower: int, step: int) -> None:
    """Lead a sync for a client that offers its put, in a process that dies at a step on the way. Unless the client lost
    patience before that, on a busy machine, and led itself."""
    client = q._mine()
    commits = client.syncs.commits
    assert commits._may_lead(0)
    until(lambda: client.table.word(follower, L.C_OFFER) != 0 or client.kernel.get(L.H_WAITING) == 1)
    if client.kernel.get(L.H_WAITING) == 1:
        return
    rig.kill_at(step)
    commits._lead(nothing, ())
    commits._end_leading()


def test_a_leader_publishes_for_those_that_sleep(queue: Queues) -> None:
    q = durable(queue)
    mine = q._mine().index
    leader = forked(lambda: lead_when_offered(q, mine, 0))
    until(lambda: q._mine().files.clients.alive(LEADER_BYTE))
    turns = 0

    class Count(Watch):
        def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
            nonlocal turns
            turns += kind == rig.LOCK and os.readlink(f"/proc/self/fd/{target}").endswith("lock")

    rig.observe(Count(lambda n: None))
    started_s = time.monotonic()
    client = q._mine()
    client.syncs.commits._usual_s = 10.0  # so it is the bell that ends its sleep
    q.put(b"x")
    assert time.monotonic() - started_s < 5
    rig.observe(None)
    assert ended(leader) == 0
    assert turns == 1, "it reserved, slept, and found its message published"
    assert (q.qsize(), q.stats().commits, q.stats().followed) == (1, 1, 1)


def test_a_leader_that_dies_at_any_step_of_publishing_for_others(queue: Queues) -> None:
    q = durable(queue)
    mine = q._mine().index
    step = 1
    while True:
        followed = q.stats().followed
        leader = forked(lambda step=step: lead_when_offered(q, mine, step))  # type: ignore[misc]
        until(lambda: q._mine().files.clients.alive(LEADER_BYTE))
        q.put(b"%d" % step)
        died = ended(leader) == -signal.SIGKILL
        assert [message.data for message in q.get_many(5)] == [b"%d" % step]
        for message in q.browse(state="pending"):
            assert q.stats().filling == 0 and message.data == b"%d" % step
        q.ack_many([])
        q._mine().turn(q._mine().hand_back, mine, 10)
        assert q.purge() == 1
        if died:
            step += 1
        elif q.stats().followed > followed:  # else the leader was so slow that the put did without it: again
            break
    assert step > 20


def test_offers_of_threads_do_not_confirm_each_other(queue: Queues) -> None:
    """One word for all threads of a client: what one was told must not count for another with the same ticket."""
    q = durable(queue)
    rig.observe(Watch(lambda n: time.sleep(0.002)))
    other = queue.open(q)
    threads = [
        threading.Thread(target=lambda n=n, w=w: [w.put(b"%d.%d" % (n, i)) for i in range(30)])  # type: ignore[misc]
        for n, w in enumerate([q, q, q, other, other])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(m.data for m in q.get_many(1000)) == sorted(b"%d.%d" % (n, i) for n in range(5) for i in range(30))


def test_a_put_that_is_interrupted_takes_its_offer_back(queue: Queues) -> None:
    q = durable(queue)
    client = q._mine()
    assert client.files.clients.take(LEADER_BYTE)  # nobody leads

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    other = queue.open(q)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with pytest.raises(KeyboardInterrupt):
            other.put(b"x")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        client.files.clients.leave(LEADER_BYTE)
    assert client.table.word(other._mine().index, L.C_OFFER) == 0
    q.put(b"y")
    assert [message.data for message in q.get_many(5)] == [b"y"]


def test_a_put_that_a_leader_publishes_while_another_sync_fails_is_confirmed(queue: Queues) -> None:
    """Its own sync did not fail: to say so would be wrong, with the message in the queue."""
    q = durable(queue)
    client = q._mine()
    client.syncs.commits._usual_s = 0.25  # it has patience for twice as long
    word = client.kernel.clients_at + client.index * L.CLIENT_WORDS + L.C_OFFER

    class StopBeforeServing(Watch):
        def store(self, path: str, index: int, value: int) -> None:
            if index == word and value == 0:
                os.kill(os.getpid(), signal.SIGSTOP)

    def lead() -> None:
        rig.observe(StopBeforeServing(lambda n: None))
        mine = q._mine()
        assert mine.syncs.commits._may_lead(0)
        until(lambda: mine.table.word(client.index, L.C_OFFER) != 0)
        mine.syncs.commits._lead(nothing, ())

    leader = forked(lead)
    until(lambda: client.files.clients.alive(LEADER_BYTE))

    def fail() -> None:
        os.waitpid(leader, os.WUNTRACED)
        client.kernel.note(L.H_SYNC_FAILED, errno.EIO)  # as a second leader does, without the lock
        time.sleep(0.6)
        os.kill(leader, signal.SIGCONT)

    failing = threading.Thread(target=fail)
    failing.start()
    q.put(b"x")
    failing.join()
    assert ended(leader) in (0, 1)
    assert q.qsize() == 1
    client.kernel.note(L.H_SYNC_FAILED, 0)


def test_an_index_sync_that_finds_the_queue_busy_is_no_failed_sync(queue: Queues) -> None:
    q = durable(queue, busy_s=0.1)
    q.put(b"x")
    holders: list[int] = []

    def take_the_lock(n: int) -> None:
        holders.append(forked(lambda: q._mine().turn(os.kill, os.getpid(), signal.SIGSTOP)))
        os.waitpid(holders[0], os.WUNTRACED)

    rig.observe(Watch(take_the_lock))
    try:
        with pytest.raises(penstock.QueueBusy):
            q.sync_index()
    finally:
        rig.observe(None)
        os.kill(holders[0], signal.SIGCONT)
        assert ended(holders[0]) == 0
    assert q.stats().sync_failed is None
    q.sync_index()
    q.put(b"y")
    assert q.qsize() == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_leader_that_is_killed_or_stopped_hands_over(queue: Queues, how: signal.Signals) -> None:
    q = durable(queue)

    def lead() -> None:
        mine = penstock.open(q.path)
        rig.observe(Watch(lambda n: os.kill(os.getpid(), how) if n == 1 else None))
        mine.put(b"leader")
        mine.close()

    leader = forked(lead)
    _, status = os.waitpid(leader, os.WUNTRACED)
    assert os.WIFSIGNALED(status) or os.WIFSTOPPED(status)
    try:
        followers = [forked(lambda: put_one(q.path)) for _ in range(4)]
        assert [ended(pid) for pid in followers] == [0] * 4
        assert q.put(b"here too")
        assert q.qsize() == 5
    finally:
        if how == signal.SIGSTOP:
            os.kill(leader, signal.SIGCONT)
            assert ended(leader) == 0
    assert q.qsize() == (6 if how == signal.SIGSTOP else 5)


def put_one(path: Path) -> None:
    with penstock.open(path) as mine:
        mine.put(b"follower")


def fail(code: int) -> Callable[[int], None]:
    def raises(n: int) -> None:
        raise OSError(code, os.strerror(code))

    return raises


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_is_final_for_everybody_and_getting_goes_on(queue: Queues, code: int) -> None:
    q = durable(queue)
    other = queue.open(q)
    q.put_many([b"a", b"b"])
    rig.observe(Watch(fail(code)))
    with pytest.raises(penstock.SyncFailed, match=os.strerror(code)) as caught:
        q.put(b"lost")
    assert caught.value.errno == code and str(q.path) in str(caught.value)
    rig.observe(None)  # the disk works again: that does not make it true
    for client in (q, other):
        with pytest.raises(penstock.SyncFailed):
            client.put(b"refused")
        with pytest.raises(penstock.SyncFailed):
            client.put_many([b"refused", b"too"])
    assert q.stats().sync_failed == os.strerror(code)
    assert q.qsize() == 2
    message = other.get(timeout=0)
    message.ack()
    other.get(timeout=0).release()
    with pytest.raises(penstock.SyncFailed):
        other.get(timeout=0).ack(durable=True)
    q.close()
    other.close()
    with penstock.open(q.path) as again:  # the first to open it checks and rewrites what is there
        assert again.stats().sync_failed is None and again.stats().restores == 1
        again.put(b"confirmed")


def test_waiters_of_a_failed_sync_are_told_and_nothing_of_theirs_is_in_the_queue(queue: Queues) -> None:
    q = durable(queue)
    begun, go_on = threading.Event(), threading.Event()

    def hold_and_fail(n: int) -> None:
        begun.set()
        assert go_on.wait(LONG_S)
        raise OSError(errno.EIO, "Input/output error")

    rig.observe(Watch(hold_and_fail))
    errors: list[BaseException] = []

    def put() -> None:
        try:
            q.put(b"x")
        except penstock.SyncFailed as error:
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(LONG_S)
    until(lambda: q._mine().kernel.get(L.H_FILLING) == 3)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(errors) == 3
    assert (q.qsize(), q.stats().filling) == (0, 0)
    rig.observe(None)
    q.close()
    assert [finding.what for finding in repair_queue(q.path)]
    with penstock.open(q.path) as again:
        again.put(b"confirmed")


def test_a_young_client_does_not_confirm_for_an_older_one_what_a_dead_leader_left_open(queue: Queues) -> None:
    """The dead one may have been told of an error that nobody who opened the files later is told of."""
    q = durable(queue)
    old = q._mine()
    kernel = old.kernel
    waiting = [plain(b"old")]
    old.turn(q._producer._reserve, waiting)
    ticket = old.syncs.commits.ticket()
    kernel.note(L.H_SYNC_BEGUN, ticket)  # a leader began, and died
    kernel.note(L.H_SYNC_BEGUN_US, old.clock.boot_us())
    young = queue.open(q)
    assert young._mine().opened_us >= kernel.get(L.H_SYNC_BEGUN_US)
    young.put(b"young")
    assert kernel.get(L.H_SYNC_DONE) < ticket, "the old one is not confirmed"
    assert young.qsize() == 1
    old.syncs.commits.wait(ticket)
    assert kernel.get(L.H_SYNC_DONE) >= ticket
    old.leftovers.append([(waiting[0].slot, waiting[0].number)])
    old.filling.clear()
    young.put(b"shared again")
    assert kernel.get(L.H_SYNC_DONE) == kernel.get(L.H_SYNC_BEGUN)


def test_a_young_client_does_not_confirm_for_one_that_came_while_a_dead_leader_was_at_it(queue: Queues) -> None:
    """The error may have come when that one had the files open, with its record among what was lost, and we had not."""
    q = durable(queue)
    kernel = q._mine().kernel
    kernel.note(L.H_SYNC_BEGUN, kernel.get(L.H_SYNC_BEGUN) + 1)  # a leader began, and will die
    kernel.note(L.H_SYNC_BEGUN_US, q._mine().clock.boot_us())
    older = queue.open(q)
    client = older._mine()
    waiting = [plain(b"older")]
    client.turn(older._producer._reserve, waiting)
    ticket = client.syncs.commits.ticket()
    younger = queue.open(q)
    younger.put(b"younger")
    assert kernel.get(L.H_SYNC_DONE) < ticket, "the older one is not confirmed"
    assert younger.qsize() == 1
    client.syncs.commits.wait(ticket)
    assert kernel.get(L.H_SYNC_DONE) == kernel.get(L.H_SYNC_BEGUN), "nobody is left who may know more"
    client.leftovers.append([(waiting[0].slot, waiting[0].number)])
    client.filling.clear()


# ---------------------------------------------------------------- coroutines


def test_a_thousand_coroutines_share_a_few_syncs_and_never_stop_the_loop(queue: Queues) -> None:
    q = durable(queue)
    ticks = 0
    enough = threading.Event()
    watch = Watch(lambda n: enough.wait(LONG_S) or None)  # a sync that ends only when the loop has gone on meanwhile
    rig.observe(watch)

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1
            if ticks > 5000:
                enough.set()

    async def run() -> list[str]:
        ticking = asyncio.create_task(tick())
        ids = await asyncio.gather(*(q.aput({"n": n}) for n in range(1000)))
        ticking.cancel()
        return list(ids)

    ids = asyncio.run(run())
    assert len(set(ids)) == 1000 and q.qsize() == 1000
    assert watch.syncs <= 10
    assert sorted(m.body["n"] for m in q.browse()) == list(range(1000))
    assert {m.id for m in q.browse()} == set(ids)


def test_a_loop_whose_threads_are_shut_down_harms_only_itself(queue: Queues) -> None:
    q = durable(queue)

    async def late() -> None:
        await asyncio.get_running_loop().shutdown_default_executor()
        await q.aput(b"a")

    with pytest.raises(RuntimeError):
        asyncio.run(late())
    asyncio.run(asyncio.wait_for(q.aput(b"b"), LONG_S))
    assert [m.data for m in q.browse()] == [b"b"]


def test_a_child_forked_during_an_aput_can_put(queue: Queues) -> None:
    q = durable(queue)
    begun, go_on = threading.Event(), threading.Event()

    def hold(n: int) -> None:
        begun.set()
        assert go_on.wait(LONG_S)

    rig.observe(Watch(hold))

    async def run() -> int:
        first = asyncio.ensure_future(q.aput(b"parent"))
        while not begun.is_set():
            await asyncio.sleep(0.001)

        def child() -> None:
            rig.observe(None)
            asyncio._set_running_loop(None)
            asyncio.new_event_loop().run_until_complete(q.aput(b"child"))

        pid = forked(child)
        go_on.set()
        await first
        return pid

    assert ended(asyncio.run(run())) == 0
    assert {m.data for m in q.browse()} == {b"parent", b"child"}


def test_coroutines_get_their_own_errors(queue: Queues) -> None:
    q = queue(durability="commit", slots=5, data_bytes=1 << 16)

    async def run() -> list[str | BaseException]:
        return await asyncio.gather(*(q.aput(b"x") for _ in range(8)), return_exceptions=True)

    answers = asyncio.run(run())
    assert sum(isinstance(answer, str) for answer in answers) == 5
    assert sum(isinstance(answer, penstock.QueueFull) for answer in answers) == 3
    assert q.qsize() == 5


def test_a_cancelled_coroutine_leaves_the_others_alone(queue: Queues) -> None:
    q = durable(queue)

    async def run() -> list[str | BaseException]:
        tasks = [asyncio.create_task(q.aput(b"%d" % n)) for n in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())
    assert isinstance(answers[3], asyncio.CancelledError)
    assert {m.data for m in q.browse()} >= {b"%d" % n for n in range(10) if n != 3}


def test_a_coroutine_waits_for_room_without_keeping_others_out(queue: Queues) -> None:
    q = queue(durability="commit", slots=2, data_bytes=1 << 16)

    async def run() -> None:
        await q.aput(b"a")
        await q.aput(b"b")
        waiting = asyncio.create_task(q.aput(b"c", timeout=LONG_S))
        with pytest.raises(penstock.QueueFull):
            await q.aput(b"d")
        q.get(timeout=0).ack()
        await waiting

    asyncio.run(run())
    assert [m.data for m in q.browse()] == [b"b", b"c"]


# ---------------------------------------------------------------- index syncs


def test_the_background_syncs_the_index_when_something_changed(queue: Queues) -> None:
    q = queue(durability="relaxed", index_sync_ms=20)
    assert q.stats().index_syncs == 0
    q.put(b"x")
    until(lambda: q.stats().index_syncs == 1)
    until(lambda: q.stats().index_synced_at is not None)
    time.sleep(0.2)
    assert q.stats().index_syncs == 1, "nothing changed since"


def test_a_durable_ack_waits_for_an_index_sync(queue: Queues) -> None:
    q = durable(queue)
    q.put_many([b"a", b"b", b"c"])
    q.get(timeout=0).ack()
    assert q.stats().index_syncs == 0
    q.get(timeout=0).ack(durable=True)
    assert q.stats().index_syncs == 1
    q.ack_many(q.get_many(1), durable=True)
    assert q.stats().index_syncs == 2


def test_room_of_a_batch_is_not_reused_before_the_kernel_is_on_disk(queue: Queues) -> None:
    q = queue(durability="commit", index_sync_ms=0, slots=8, data_bytes=1 << 16)
    q.put_many([b"%d" % i for i in range(4)])
    places = {q._mine().kernel.field(m.slot, L.S_PLACE) for m in q.browse()}
    q.ack_many(q.get_many(4))
    assert (q.stats().kept, q.stats().vacant) == (4, 4)
    q.put_many([b"x"] * 4)
    assert not places & {q._mine().kernel.field(m.slot, L.S_PLACE) for m in q.browse()}
    assert check_queue(q.path) == []
    q.put(b"needs room")  # which makes an index sync worth its while
    assert q.stats().index_syncs == 1
    assert (q.stats().kept, q.stats().waiting) == (0, 5)


def test_single_messages_and_old_batches_keep_no_room(queue: Queues) -> None:
    q = durable(queue)
    q.put(b"a")
    q.put_many([b"b", b"c"])
    q.sync_index()
    q.ack_many(q.get_many(3))
    assert q.stats().kept == 0


def test_a_batch_published_while_the_index_was_being_synced_keeps_its_room(queue: Queues) -> None:
    q = durable(queue)
    client = q._mine()
    number = client.syncs.index.ticket()
    settled = client.turn(client.syncs.index.notes.begin, number)
    q.put_many([b"b", b"c"])
    client.turn(client.syncs.index.notes.end, number, settled, client.kernel.get(L.H_NUMBER_LIMIT), 1)
    q.ack_many(q.get_many(3))
    assert q.stats().kept == 2


def test_an_index_sync_that_began_earlier_frees_nothing_that_a_later_one_covers(queue: Queues) -> None:
    q = durable(queue)
    client = q._mine()
    kernel = client.kernel
    first = client.syncs.index.ticket()
    settled = client.turn(client.syncs.index.notes.begin, first)
    q.put_many([b"b", b"c"])
    q.ack_many(q.get_many(2))
    client.turn(client.syncs.index.notes.begin, first + 1)
    client.turn(client.syncs.index.notes.end, first, settled, kernel.get(L.H_NUMBER_LIMIT), 1)
    assert kernel.retained.retirable() == 0
    client.turn(client.syncs.index.notes.end, first + 1, settled, kernel.get(L.H_NUMBER_LIMIT), 1)
    assert kernel.retained.retirable() != 0


def test_an_index_sync_whose_leader_died_is_made_up_for(queue: Queues) -> None:
    q = durable(queue)
    q.put(b"x")
    client = q._mine()
    client.turn(client.syncs.index._begin)
    client.turn(client.syncs.index._begin_index, client.kernel.get(L.H_INDEX_BEGUN))  # and it is killed
    assert client.syncs.index_due(0)
    q.sync_index()
    assert not client.syncs.index_due(0)


def test_an_error_is_heard_by_every_thread_of_the_client_that_was_told(queue: Queues) -> None:
    """The system tells a descriptor once. A sync of the index and one for puts use the same descriptors."""
    q = durable(queue)
    rig.observe(Watch(lambda n: fail(errno.EIO)(n) if n == 1 else None))
    with pytest.raises(penstock.SyncFailed):
        q.sync_index()
    q._mine().kernel.note(L.H_SYNC_FAILED, 0)  # as if the note had not been made yet
    with pytest.raises(penstock.SyncFailed):
        q.put(b"x")


def test_numbers_stay_below_a_limit_that_is_on_disk(queue: Queues) -> None:
    q = durable(queue)
    kernel = q._mine().kernel
    kernel.note(L.H_NUMBER_SAFE, kernel.get(L.H_NUMBER_NEXT) + 2)
    kernel.note(L.H_NUMBER_LIMIT, kernel.get(L.H_NUMBER_NEXT) + 2)
    for _ in range(3):
        q.put(b"x", durability="relaxed")
    assert q.stats().index_syncs == 1
    q.put_many([b"y"] * 10)
    assert kernel.get(L.H_NUMBER_NEXT) < kernel.get(L.H_NUMBER_SAFE) <= kernel.get(L.H_NUMBER_LIMIT)


def test_a_put_that_died_half_done_leaves_no_record_to_be_found_later(queue: Queues) -> None:
    q = queue(durability="relaxed")
    for step in range(1, 80):

        def die(step: int = step) -> None:
            mine = penstock.open(q.path)
            rig.kill_at(step)
            mine.put(b"half done")
            os._exit(0)

        if in_child(die) == 0:
            break
        client = q._mine()
        client.turn(int)  # whoever comes next clears up
        taken = {client.kernel.field(m.slot, L.S_PLACE) >> L.PLACE_SHIFT for m in q.browse()}
        for unit in range(client.files.data_units):
            data = client.files.read(unit, 1)
            assert unit in taken or data[:8] != client.signature.to_bytes(8, "little"), step
    else:
        raise AssertionError("the put never finished")
