"""Owns what an operator asks of a queue: cancel, purge, statistics, sweeping up. Each function is for one turn, but for
``purge``, which takes as many as it needs, ``gauge``, which needs none, and ``glance``, which opens a queue for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from penstock.errors import Corrupt
from penstock.message import WAITING, Message
from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.files import Clock, body_name
from penstock.store.outcomes import CANCELLED, PURGED
from penstock.timequeue.arguments import queue_path
from penstock.timequeue.clients import Client, Progress
from penstock.timequeue.held import Held
from penstock.timequeue.leases import Consumer
from penstock.timequeue.measures import Distribution, distribution, rates
from penstock.timequeue.models import is_question

PURGED_A_TURN_MAX = 256
SWEPT_AT_ONCE_MAX = 1000  # files of failures that are looked at when a queue is opened, under the lock


class Stats(msgspec.Struct, frozen=True):
    """What a queue holds and has done. Counts are exact at the moment they were taken."""

    path: str
    uuid: str
    waiting: int
    ready: int
    timed: int
    held: int  # waiting for others of their exclusive key
    pending: int
    claimed: int
    filling: int
    vacant: int
    slots: int
    data_bytes: int
    used_bytes: int
    spilled_bytes: int
    depth_max: int
    puts: int
    gets: int
    acks: int
    releases: int
    expired: int
    returned: int
    cancels: int
    abandoned: int
    spills: int
    repairs: int
    kept: int  # removed messages whose room waits for an index sync
    syncs: int  # of the data files, for puts
    commits: int  # calls of put and put_many that waited for one
    committed: int  # messages of these calls
    followed: int  # of these calls, those that somebody else's sync served
    puts_per_sync: float | None
    index_syncs: int
    restores: int
    dead_lettered: int
    dropped: int  # since they had expired, or failed too often where such are deleted
    deduplicated: int  # puts of what was there already
    parked: int  # given back for later, since the queue that they were to be moved to did not take them
    moved_out: int
    moved_in: int
    index_synced_at: float | None
    sync_failed: str | None
    next_due_at: float | None
    oldest_due_at: float | None  # since when the message that is due for the longest is due
    late_at: float | None  # since when the one that would be delivered now is due
    waiting_time: Distribution  # from put to the first delivery
    lateness: Distribution  # from when a message was due to its delivery
    service_time: Distribution  # from delivery to acknowledgement
    service_recent_s: float | None  # the mean of service times in which the latest count most
    rates: dict[str, dict[str, float]]  # events a second, over "1s", "1m" and "15m"
    producers: int  # clients that have put something, or tried to
    consumers: int  # clients that have looked for messages to get or claim
    remote_clients: int  # on other machines
    clients: list[dict[str, int]]


def cancel(client: Client, slot: int, number: int, consumer: Consumer, asked: list[Message]) -> bool:
    """``asked`` gets the message if somebody waits for an answer to it."""
    kernel = client.kernel
    if slot >= kernel.slots or kernel.number(slot) != number or kernel.state(slot) != L.STATE_WAITING:
        return False
    asked += _questions(client, consumer, [slot])
    _remove(client, [slot], consumer, CANCELLED)
    return True


def purge(client: Client, consumer: Consumer, tell: Callable[[list[Message]], None]) -> int:
    """Remove every waiting message that was there when this was called; how many. ``tell`` is given those that somebody
    waits for an answer to."""
    work = Purge(client, consumer)
    removed = 0
    more = True
    while more:
        count, more = client.turn(work.turn)
        removed += count
        if client.history is not None:
            client.history.write()
        if work.asked:
            tell(work.asked)
            work.asked = []
    return removed


def _questions(client: Client, consumer: Consumer, slots: list[int]) -> list[Message]:
    """Of messages that wait, those that somebody waits for an answer to. A damaged one is none that could be told."""
    found = []
    for slot in slots:
        if (client.kernel.field(slot, L.S_INFO) >> L.FLAGS_SHIFT) & L.FLAG_SPECIAL:
            with contextlib.suppress(Corrupt):
                message = consumer.read(client.kernel.delivery(slot), 0, 0, 0, WAITING)
                if message is not None and is_question(message):
                    found.append(message)
    return found


class Purge:
    """Every waiting message below a number, some in each turn; where the next turn goes on."""

    def __init__(self, client: Client, consumer: Consumer) -> None:
        self._client = client
        self._consumer = consumer
        self.asked: list[Message] = []  # of what was removed, what somebody waits for an answer to
        self._limit = client.kernel.get(L.H_NUMBER_NEXT)
        self._which = 0
        self._place = (0, 0)  # key and number behind which to look
        self._held = Held(client.kernel)

    def turn(self) -> tuple[int, bool]:
        """How many were removed, and whether there may be more. Held ones come first: those on the lists hold them
        back, and would be replaced by them."""
        kernel = self._client.kernel
        if self._held.more:
            held = [slot for slot in self._held.some(PURGED_A_TURN_MAX) if kernel.number(slot) < self._limit]
            self._drop(held)
            return len(held), True
        found: list[int] = []
        looked = 0
        while self._which < L.LIST_LEASES and looked < PURGED_A_TURN_MAX:
            slot = kernel.order.after(self._which, *self._place)
            if slot == 0:
                self._which += 1
                self._place = (0, 0)
                continue
            key = kernel.field(slot, L.S_DELIVER_US) if self._which >= L.LIST_TIMED else 0
            number = kernel.number(slot)
            self._place = (key, number)
            looked += 1
            if number < self._limit:
                found.append(slot)
        self._drop(found)
        return len(found), self._which < L.LIST_LEASES

    def _drop(self, slots: list[int]) -> None:
        self.asked += _questions(self._client, self._consumer, slots)
        _remove(self._client, slots, self._consumer, PURGED)


def _remove(client: Client, slots: list[int], consumer: Consumer, result: int) -> None:
    kernel = client.kernel
    gone = _looked_at(client, consumer, slots) if client.outcomes is not None else []
    for slot in slots:
        spilled_bytes = 0
        if kernel.spilled(slot):
            place = kernel.field(slot, L.S_PLACE)
            data = client.files.read(place >> L.PLACE_SHIFT, place & L.PLACE_MASK)
            spilled_bytes = L.SPILL.unpack_from(data, L.RECORD_BYTES + L.RECORD.unpack_from(data)[8])[0]
        kernel.cancel(slot, spilled_bytes)
    kernel.commit()
    consumer.note_gone(gone, result)


def _looked_at(client: Client, consumer: Consumer, slots: list[int]) -> list[Message]:
    """Messages that wait, for the history; not those that are damaged."""
    found = []
    for slot in slots:
        with contextlib.suppress(Corrupt):
            message = consumer.read(client.kernel.delivery(slot), 0, 0, 0, WAITING)
            if message is not None:
                found.append(message)
    return found


def sweep_bodies(client: Client) -> None:
    """Bodies whose message is gone: whoever removed it died before the file was."""
    kernel = client.kernel
    for name in client.files.body_names():
        try:
            number, slot = (int(part, 16) for part in name.split("-"))
        except ValueError:
            continue  # not ours
        if body_name(number, slot) != name:
            continue
        known = slot < kernel.slots and kernel.number(slot) == number
        if known and (kernel.state(slot) > L.STATE_VACANT or kernel.get(L.H_KEPT)):
            continue  # alive, or it may be waiting for an index sync
        client.files.remove_body(name)


def sweep_failures(client: Client) -> None:
    """What was noted of messages that are gone."""
    for name in client.failures.names()[:SWEPT_AT_ONCE_MAX]:
        number, _, slot = name.partition("-")
        with contextlib.suppress(ValueError):  # not ours
            if not is_live(client, int(slot, 16), int(number, 16)):
                client.failures.forget(int(number, 16), int(slot, 16))


def sweep_moves(client: Client) -> None:
    """Moves that somebody else has finished."""
    for name in client.begun.names()[:SWEPT_AT_ONCE_MAX]:
        move = client.begun.read(name)
        if move is None:
            over = client.begun.is_left_over(name)
        else:
            over = not any(is_live(client, slot, number) for number, slot in move.messages)
        if over:
            client.begun.end(name)


def is_live(client: Client, slot: int, number: int) -> bool:
    """Whether this message is here: waiting, or with a receiver."""
    kernel = client.kernel
    return slot < kernel.slots and kernel.number(slot) == number and kernel.state(slot) > L.STATE_VACANT


def stats(client: Client) -> Stats:
    get = client.kernel.get
    stats_at = get(L.H_STATS_AT)
    order = client.kernel.order
    waiting, pending, filling = get(L.H_WAITING), get(L.H_PENDING), get(L.H_FILLING)
    claimed, kept, failed = get(L.H_CLAIMED), get(L.H_KEPT), get(L.H_SYNC_FAILED)
    slots = get(L.H_SLOTS) - 1 - get(L.H_FILES)
    ready = sum(order.count(L.LIST_READY + p) for p in range(L.PRIORITIES))
    timed = sum(order.count(L.LIST_TIMED + p) for p in range(L.PRIORITIES))
    due_us = client.kernel.order.next_due_us()
    now_us = client.clock.wall_us()
    page = client.kernel.words.view[stats_at : stats_at + L.STATS_WORDS].tolist()
    clients = client.living()
    due, oldest = client.kernel.due(now_us), order.oldest_due(now_us)
    return Stats(
        path=client.name,
        uuid=client.options.uuid,
        waiting=waiting,
        ready=ready,
        timed=timed,
        held=waiting - ready - timed,
        pending=pending,
        claimed=claimed,
        filling=filling,
        vacant=slots - waiting - pending - claimed - filling - kept,
        slots=slots,
        data_bytes=get(L.H_DATA_UNITS) * L.UNIT_BYTES,
        used_bytes=get(L.H_USED_UNITS) * L.UNIT_BYTES,
        spilled_bytes=get(L.H_SPILLED_BYTES),
        depth_max=page[L.T_DEPTH_MAX],
        puts=page[L.T_PUTS],
        gets=page[L.T_GETS],
        acks=page[L.T_ACKS],
        releases=page[L.T_RELEASES],
        expired=page[L.T_EXPIRED],
        returned=page[L.T_RETURNED],
        cancels=page[L.T_CANCELS],
        abandoned=page[L.T_ABANDONED],
        spills=page[L.T_SPILLS],
        repairs=page[L.T_REPAIRS],
        kept=kept,
        syncs=page[L.T_SYNCS],
        commits=page[L.T_COMMITS],
        committed=page[L.T_COMMITTED],
        followed=page[L.T_FOLLOWED],
        puts_per_sync=page[L.T_COMMITS] / page[L.T_SYNCS] if page[L.T_SYNCS] else None,
        index_syncs=page[L.T_INDEX_SYNCS],
        restores=page[L.T_RESTORES],
        dead_lettered=page[L.T_DEAD_LETTERED],
        dropped=page[L.T_DROPPED],
        deduplicated=page[L.T_DEDUPLICATED],
        parked=page[L.T_PARKED],
        moved_out=page[L.T_MOVED_OUT],
        moved_in=page[L.T_MOVED_IN],
        index_synced_at=get(L.H_INDEX_SYNC_US) / 1e6 or None,
        sync_failed=os.strerror(failed) if failed else None,
        next_due_at=due_us / 1e6 if due_us else None,
        oldest_due_at=client.kernel.field(oldest, L.S_DELIVER_US) / 1e6 if oldest else None,
        late_at=client.kernel.field(due, L.S_DELIVER_US) / 1e6 if due else None,
        waiting_time=distribution(page[L.T_WAITING : L.T_WAITING + L.SPAN_WORDS]),
        lateness=distribution(page[L.T_LATENESS : L.T_LATENESS + L.SPAN_WORDS]),
        service_time=distribution(page[L.T_SERVICE : L.T_SERVICE + L.SPAN_WORDS]),
        service_recent_s=page[L.T_SERVICE_RECENT_US] / 1e6 or None,
        rates=rates(page, client.clock.boot_us()),
        producers=sum(each["produces"] for each in clients),
        consumers=sum(each["consumes"] for each in clients),
        remote_clients=0,
        clients=clients,
    )


class Gauge(NamedTuple):
    """What routing looks at, for the price of a few loads. Without the lock: they may be of two moments."""

    waiting: int
    pending: int
    service_us: int  # from delivery to acknowledgement, lately; 0: nothing is known of it


def gauge(client: Client) -> Gauge:
    get = client.kernel.get
    return Gauge(get(L.H_WAITING), get(L.H_PENDING), get(get(L.H_STATS_AT) + L.T_SERVICE_RECENT_US))


class Glance(NamedTuple):
    """What a queue holds and has done, who looks left out, and how many have messages of it: clients by a lease,
    receivers by a claim."""

    stats: Stats
    holders: int


def glance(path: str | os.PathLike[str], *, busy_s: float, progress: Progress | None = None) -> Glance:
    """Open a queue for one look. Unlike a queue object it starts nothing in the background and syncs nothing when it
    closes, so that who looks often costs the queue nothing else."""
    client = Client(queue_path(path), clock=Clock(), busy_s=busy_s, progress=progress)
    try:
        return client.turn(_glance, client)
    finally:
        client.close()


def _glance(client: Client) -> Glance:
    found = stats(client)
    found = msgspec.structs.replace(found, clients=[each for each in found.clients if each["client"] != client.index])
    claiming = Claiming(client.kernel)
    receivers = sum(claiming.word(entry, L.N_COUNT) > 0 for entry in range(L.RECEIVERS)) if found.claimed else 0
    return Glance(found, receivers + sum(each["holds"] > 0 for each in found.clients))
