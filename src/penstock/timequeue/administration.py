"""Owns what an operator asks of a queue: cancel, purge, statistics, sweeping up. Each function is one turn, but for
``glance``, which opens a queue for it."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

import msgspec

from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.files import Clock, body_name
from penstock.timequeue.arguments import queue_path
from penstock.timequeue.clients import Client, Progress
from penstock.timequeue.held import Held

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
    clients: list[dict[str, int]]


def cancel(client: Client, slot: int, number: int) -> bool:
    kernel = client.kernel
    if slot >= kernel.slots or kernel.number(slot) != number or kernel.state(slot) != L.STATE_WAITING:
        return False
    _remove(client, [slot])
    return True


def purge(client: Client) -> int:
    """Remove every waiting message that was there when this was called; how many."""
    work = Purge(client)
    removed = 0
    more = True
    while more:
        count, more = client.turn(work.turn)
        removed += count
    return removed


class Purge:
    """Every waiting message below a number, some in each turn; where the next turn goes on."""

    def __init__(self, client: Client) -> None:
        self._client = client
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
            _remove(self._client, held)
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
        _remove(self._client, found)
        return len(found), self._which < L.LIST_LEASES


def _remove(client: Client, slots: list[int]) -> None:
    kernel = client.kernel
    for slot in slots:
        spilled_bytes = 0
        if kernel.spilled(slot):
            place = kernel.field(slot, L.S_PLACE)
            data = client.files.read(place >> L.PLACE_SHIFT, place & L.PLACE_MASK)
            spilled_bytes = L.SPILL.unpack_from(data, L.RECORD_BYTES + L.RECORD.unpack_from(data)[8])[0]
        kernel.cancel(slot, spilled_bytes)
    kernel.commit()


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
            if not _is_live(client, int(slot, 16), int(number, 16)):
                client.failures.forget(int(number, 16), int(slot, 16))


def sweep_moves(client: Client) -> None:
    """Moves that somebody else has finished."""
    for name in client.begun.names()[:SWEPT_AT_ONCE_MAX]:
        move = client.begun.read(name)
        if move is None:
            over = client.begun.is_left_over(name)
        else:
            over = not any(_is_live(client, slot, number) for number, slot in move.messages)
        if over:
            client.begun.end(name)


def _is_live(client: Client, slot: int, number: int) -> bool:
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
        depth_max=get(stats_at + L.T_DEPTH_MAX),
        puts=get(stats_at + L.T_PUTS),
        gets=get(stats_at + L.T_GETS),
        acks=get(stats_at + L.T_ACKS),
        releases=get(stats_at + L.T_RELEASES),
        expired=get(stats_at + L.T_EXPIRED),
        returned=get(stats_at + L.T_RETURNED),
        cancels=get(stats_at + L.T_CANCELS),
        abandoned=get(stats_at + L.T_ABANDONED),
        spills=get(stats_at + L.T_SPILLS),
        repairs=get(stats_at + L.T_REPAIRS),
        kept=kept,
        syncs=get(stats_at + L.T_SYNCS),
        commits=get(stats_at + L.T_COMMITS),
        committed=get(stats_at + L.T_COMMITTED),
        followed=get(stats_at + L.T_FOLLOWED),
        puts_per_sync=get(stats_at + L.T_COMMITS) / get(stats_at + L.T_SYNCS) if get(stats_at + L.T_SYNCS) else None,
        index_syncs=get(stats_at + L.T_INDEX_SYNCS),
        restores=get(stats_at + L.T_RESTORES),
        dead_lettered=get(stats_at + L.T_DEAD_LETTERED),
        dropped=get(stats_at + L.T_DROPPED),
        deduplicated=get(stats_at + L.T_DEDUPLICATED),
        parked=get(stats_at + L.T_PARKED),
        moved_out=get(stats_at + L.T_MOVED_OUT),
        moved_in=get(stats_at + L.T_MOVED_IN),
        index_synced_at=get(L.H_INDEX_SYNC_US) / 1e6 or None,
        sync_failed=os.strerror(failed) if failed else None,
        next_due_at=due_us / 1e6 if due_us else None,
        oldest_due_at=client.kernel.field(oldest, L.S_DELIVER_US) / 1e6 if oldest else None,
        late_at=client.kernel.field(due, L.S_DELIVER_US) / 1e6 if due else None,
        clients=client.living(),
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
    """What a queue holds and has done, and how many have messages of it: clients by a lease, receivers by a claim."""

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
    claiming = Claiming(client.kernel)
    receivers = sum(claiming.word(entry, L.N_COUNT) > 0 for entry in range(L.RECEIVERS)) if found.claimed else 0
    return Glance(found, receivers + sum(each["holds"] > 0 for each in found.clients))
