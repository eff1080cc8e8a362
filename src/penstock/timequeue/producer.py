"""Owns the puts of one client, the first half of a message's life: reserve, copy, commit, publish. Knows nothing of
receivers, nor of how a message is encoded.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import time
from collections.abc import Callable
from typing import Protocol

from penstock.errors import BatchTooLarge, BodyTooLarge, PenstockError, QueueBusy, QueueFull
from penstock.store import layout as L
from penstock.store import record
from penstock.store.bodyfiles import copy_in
from penstock.store.files import body_name
from penstock.store.hashes import Hashes
from penstock.store.kernel import NO_NUMBER, NO_ROOM, NO_SLOT
from penstock.timequeue.clients import OFFER, TOMBSTONE, Client
from penstock.timequeue.puts import Entry

DIRECT_BYTES_MAX = 16384  # up to here the copy is cheaper than a second turn at the lock
BEING_PUT_LOOK_S = 0.0005
BEING_PUT_LOOK_S_MAX = 0.02
KNOWN = 1  # Entry.known: a message of this key was put and synced
KNOWN_UNSYNCED = 2  # and not synced
RUN_BYTES_MAX = 1 << 20  # records side by side are written together, up to this much

_PADDING = bytes(L.UNIT_BYTES)


class OutOfNumbers(PenstockError):
    """An index sync is needed before another number can be given."""


def _units(payload_bytes: int) -> int:
    """``layout.units`` again, compiled: no signal handler runs in the middle of a turn because of it."""
    return (L.RECORD_BYTES + payload_bytes + L.UNIT_BYTES - 1) // L.UNIT_BYTES


class KnownAlready(Exception):
    """Some of the messages were put before, which they say; never seen by a caller of the queue."""


class BeingPut(Exception):
    """Somebody is just putting messages of these ``keys``; never seen by a caller of the queue."""

    def __init__(self, keys: list[int]) -> None:
        self.keys = keys


def being_put_for_long(name: str, busy_s: float) -> QueueBusy:
    return QueueBusy(name, waited_s=busy_s, holder="somebody who is putting a message of the same dedup id")


class Once(Protocol):
    """A publisher's batch, which is put once: see ``once.py``."""

    def announce(self, slot: int, number: int, count: int, sync: bool) -> None:
        """Its messages have slots, and nothing of them is written yet."""

    def due(self) -> tuple[int, int]:
        """Under the lock: what the kernel is to remember with it."""

    def remember(self) -> None:
        """There is nothing to put: only that it was."""


class Offered:
    """A put of one message that the leader of a sync may publish. One at a time for a client: it has one word."""

    def __init__(self, client: Client, item: Entry) -> None:
        self._client = client
        self._item = item

    def is_of(self, batch: list[tuple[int, int]]) -> bool:
        return (self._item.slot, self._item.number) in batch

    def make(self, ticket: int) -> bool:
        if self._client.offering.setdefault(OFFER, self) is not self:
            return False
        self._client.offers.make(self._client.index, self._item.slot, ticket, self._item.deliver_us > self._now_us())
        return True

    def _now_us(self) -> int:
        return self._client.clock.wall_us()

    def is_served(self) -> bool:
        return self._client.offers.is_served(self._client.index, self._item.number)

    def is_done(self) -> bool:
        self._client.offers.withdraw(self._client.index)
        self._client.kernel.commit()
        return not self._client.is_filling(self._item.slot, self._item.number)

    def take_back(self) -> None:
        self._client.offers.take_back(self._client.index)


class Producer:
    """Puts entries into the queue of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kernel = client.kernel
        self._files = client.files
        self._clock = client.clock
        self._commits = client.syncs.commits
        self._data_bytes = client.options.data_bytes
        self._spill_bytes = client.options.spill_bytes
        self._direct_bytes_max = min(DIRECT_BYTES_MAX, self._spill_bytes)
        self._has_trees = self._kernel.trees_at != 0
        self._hashes = Hashes(client.options.signature)
        self._known = False  # whether the client's entry says that it produces
        self.admit: Callable[[], None] | None = None  # asked under the lock before a slot is taken; raises to refuse

    def put(self, items: list[Entry], sync: bool, batch: bool, once: Once | None = None) -> None:
        """``put_all`` of those that are not known already. If it is no ``batch``, it is the caller who waits for what
        somebody else is just putting: ``BeingPut``, and none was put."""
        first = items[0]
        if len(items) == 1 and first.key and not first.known:
            first.memory = L.BEING_PUT | L.PUT_SYNCED if sync else L.BEING_PUT
            try:
                self.put_all(items, sync, batch, once)
            except (KnownAlready, BeingPut):
                self._put_unknown(items, sync, batch, once)
        elif self._has_keys(items):
            self._put_unknown(items, sync, batch, once)
        else:
            self.put_all(items, sync, batch, once)

    def _has_keys(self, items: list[Entry]) -> bool:
        for item in items:  # noqa: SIM110 (compiled, a generator would cost more than the loop)
            if item.key:
                return True
        return False

    def _put_unknown(self, items: list[Entry], sync: bool, batch: bool, once: Once | None) -> None:
        """Whoever finds a message of its key being put waits until that is published, or given up."""
        client = self._client
        deadline = time.monotonic() + client.busy_s
        nap_s = BEING_PUT_LOOK_S
        while True:
            unknown = self._unknown(items, sync)
            if sync and len(unknown) < len(items):
                self._confirm_known(items)
            try:
                if unknown:
                    self.put_all(unknown, sync, batch, once)
                elif once is not None:
                    once.remember()
                break
            except KnownAlready:
                continue
            except BeingPut:
                client.turn(client.return_from_dead)
                if not batch:
                    raise
                if time.monotonic() >= deadline:
                    raise being_put_for_long(client.name, client.busy_s) from None
                time.sleep(nap_s)
                nap_s = min(2 * nap_s, BEING_PUT_LOOK_S_MAX)
        if len(unknown) < len(items):
            self._say_known(items, len(items) - len(unknown))

    def _confirm_known(self, items: list[Entry]) -> None:
        """What was put before without a sync is brought to disk, with a body of its own if it has one. Before the
        others are put: a publisher's batch that is known must not speak of a message that a power loss may take."""
        unsynced = []
        for item in items:
            if item.known == KNOWN_UNSYNCED:
                unsynced.append(body_name(item.number, item.slot))
        if unsynced:
            if self._kernel.get(L.H_SPILLED_BYTES):
                self._files.sync_bodies(unsynced)
            self._client.syncs.sync_index()
            for item in items:
                if item.known == KNOWN_UNSYNCED:
                    item.known = KNOWN

    def _unknown(self, items: list[Entry], sync: bool) -> list[Entry]:
        """Those that are to be put: of each key the first, unless a message of it is there."""
        keys = set()
        found = []
        for item in items:
            item.memory = L.BEING_PUT | L.PUT_SYNCED if sync else L.BEING_PUT
            if not item.known and item.key not in keys:
                found.append(item)
            if item.key:
                keys.add(item.key)
        return found

    def _say_known(self, items: list[Entry], count: int) -> None:
        """Those that were not put are the messages that were, of the same key."""
        firsts: dict[int, Entry] = {}
        for item in items:
            first = firsts.setdefault(item.key, item) if item.key else item
            item.slot = first.slot
            item.number = first.number
        self._client.turn(self._count_known, count)

    def _count_known(self, count: int) -> None:
        self._kernel.count(L.T_DEDUPLICATED, count)
        self._kernel.commit()

    def put_all(self, items: list[Entry], sync: bool, batch: bool, once: Once | None = None) -> None:
        """All or nothing: also after a power loss if it is a ``batch``, else each is a message of its own then.

        What is full may have room that only waits for an index sync. With ``once`` it is a publisher's batch.
        """
        if self._has_trees:
            self._classify(items)
        if sync:
            self._commits.require_working()
            if batch and (len(items) > 1 or once is not None):  # of a publisher's batch a trace must stay
                self._mark_batch(items)
        try:
            self._put_now(items, sync, batch, once)
        except QueueFull:
            if not (self.may_try_again(items) and self._client.regain()):
                raise
            self._put_now(items, sync, batch, once)
        except OSError as error:
            if not (self.may_make_room_on_disk(error) and self.may_try_again(items)):
                raise
            self._put_now(items, sync, batch, once)
        except OutOfNumbers:
            self._client.syncs.sync_index()
            self._put_now(items, sync, batch, once)

    def put_at_once(self, item: Entry) -> bool:
        """For an event loop: a small message that need not be synced, in one turn. False, and nothing was put, if that
        cannot be done now: the usual way finds out why."""
        if len(item.body) > self._direct_bytes_max or item.key:
            return False
        if self._has_trees and item.meta:
            item.classify(self._hashes)
        try:
            return bool(self._client.turn_at_once(self.put_direct, (item,)))
        except (QueueBusy, QueueFull, OutOfNumbers, OSError):
            item.forget()
            return False

    def put_when_room(self, items: list[Entry], timeout_s: float, sync: bool, once: Once | None) -> None:
        """``put`` as soon as there is room; ``QueueFull`` if there is none for so long."""
        client = self._client
        deadline = time.monotonic() + timeout_s
        while True:
            # Armed before it tries again: whoever makes room after this turn rings, whoever did before is seen.
            seen = client.turn(client.kernel.sleepers.arm, L.H_ROOM)
            try:
                self.put(items, sync, True, once)
                return
            except QueueFull:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self.may_try_again(items):
                    raise
            # A dead producer's room comes back when somebody looks.
            client.turn(client.return_from_dead)
            client.producers.sleep(seen, min(left_s, 1.0))

    def may_try_again(self, items: list[Entry]) -> bool:
        """As if they had not been tried, unless a part of one is gone: of a pipe what was read."""
        for item in items:
            if item.source is not None and not item.source.rewind():
                return False
        for item in items:
            item.forget()
        return True

    def may_make_room_on_disk(self, error: OSError) -> bool:
        """Bodies of their own stay on the disk until an index sync after their message has gone."""
        full = error.errno == errno.ENOSPC and not isinstance(error, PenstockError)
        return full and self._kernel.get(L.H_KEPT) > 0 and self._client.regain()

    def _classify(self, items: list[Entry]) -> None:
        for item in items:
            if item.meta:
                item.classify(self._hashes)

    def _mark_batch(self, items: list[Entry]) -> None:
        for item in items:
            item.info |= L.FLAG_BATCHED << L.FLAGS_SHIFT

    def _put_now(self, items: list[Entry], sync: bool, batch: bool, once: Once | None) -> None:
        """A small message that need not be synced takes one turn at the lock instead of two."""
        item = items[0]
        small = len(items) == 1 and not sync and once is None and item.source is None
        small = small and len(item.body) <= self._direct_bytes_max
        if not (small and self._client.turn(self.put_direct, item)):
            self.check_sizes(items)
            self.put_staged(items, sync, batch, once)

    def put_direct(self, item: Entry) -> bool:
        """Reserve, copy and publish in one transaction, under the lock. False if the ring has no gap for it."""
        kernel = self._kernel
        now_us = self.begin()
        if item.key:
            self._look_up([item], now_us)
        slot = kernel.take(_units(len(item.meta) + len(item.body)))
        if slot < 0:
            kernel.commit()
            if slot == NO_ROOM:
                return False
            raise self._full(slot, item)
        item.slot = slot
        item.number = kernel.number(slot)
        item.unit = kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT
        if not item.deliver_us:
            item.deliver_us = now_us
        try:
            entry = self._remember(item, slot, now_us) if item.key else 0
            self._files.write(item.unit, self._record(item, now_us, 1, 0))
            kernel.describe(slot, item.deliver_us, item.info, 0, 0, now_us)
            if item.type_hash or item.key_hash:
                kernel.classes.classify(slot, item.type_hash, item.key_hash)
            kernel.publish_taken(slot, now_us)
            if entry:
                kernel.remembered.settle(entry)
                kernel.commit()
        except BaseException:
            kernel.rollback()
            if kernel.number(slot) != item.number or kernel.state(slot) != L.STATE_WAITING:  # it was not published
                self._files.write(item.unit, TOMBSTONE)
            raise
        return True

    def begin(self) -> int:
        """What a put does first in its turn; the time. But for the question it is for statistics alone."""
        if self.admit is not None:
            self.admit()
        now_us = self._clock.wall_us()
        self._client.advance_rates(now_us)
        if not self._known:
            self._known = True
            self._client.table.note(self._client.index, L.CLIENT_PRODUCES)
        return now_us

    def put_staged(self, items: list[Entry], sync: bool, batch: bool, once: Once | None) -> None:
        """Reserve under the lock, copy and sync without it, publish under it: all or nothing."""
        client = self._client
        under_way, key = client.filling, id(items)  # so that the last line is a single call: no interrupt before it
        try:
            # Copying a file takes its time: nobody may wait for a sync that comes after it.
            first = items[0]
            alone = sync and len(items) == 1 and once is None and first.source is None
            if not (alone and self._commits.lead_alone(self._reserve, self._copy_one, self._publish_committed, items)):
                self._put_with_others(items, sync, batch, once)
        except BaseException:
            client.leftovers.append([(item.slot, item.number) for item in items if item.slot])
            with contextlib.suppress(PenstockError):  # it was the lock that could not be had: the next turn will do
                client.turn(int)  # a turn settles what is left over
            raise
        finally:
            under_way.pop(key, None)

    def _put_with_others(self, items: list[Entry], sync: bool, batch: bool, once: Once | None) -> None:
        client = self._client
        now_us = client.take_turn(self._reserve, (items,))
        first = items[0]
        if once is not None:
            once.announce(first.slot, first.number, len(items), sync)
        self._copy(items, now_us, sync, batch)
        ticket = self._commits.ticket()
        ranges = self._ranges(items) if sync and self._commits.has_syncer() else None
        if not sync:
            client.take_turn(self._publish, (items, once))
        elif once is not None:
            self._commits.wait(ticket, self._publish_once, (items, once), None, ranges)
        else:
            offer = Offered(client, first) if len(items) == 1 else None
            self._commits.wait(ticket, self._publish_committed, items, offer, ranges)
            if client.offering:
                client.end_offer([(item.slot, item.number) for item in items])

    def _reserve(self, items: list[Entry]) -> int:
        """Slots and room for all of them, or as if nothing had been tried."""
        kernel = self._kernel
        now_us = self.begin()
        self._look_up(items, now_us)
        self._client.filling[id(items)] = len(items)
        try:
            self._reserve_all(items, now_us)
        except BaseException:
            kernel.rollback()
            for item in items:
                if item.slot and kernel.number(item.slot) == item.number:  # of a transaction before the last
                    self._undo(item)
                item.forget()
            raise
        return now_us

    def _reserve_all(self, items: list[Entry], now_us: int) -> None:
        client = self._client
        kernel = self._kernel
        last = 0
        for item in items:
            slot = self._take(item)
            if slot < 0:
                kernel.commit()
                raise self._full(slot, item)
            if item.deliver_us == 0:
                item.deliver_us = now_us
            if item.spilled_bytes:
                kernel.spill(item.spilled_bytes)
            if item.type_hash or item.key_hash:
                kernel.classes.classify(slot, item.type_hash, item.key_hash)
            item.number = kernel.number(slot)
            entry = self._remember(item, slot, now_us) if item.key else 0
            if item.moved is not None:
                kernel.count(L.T_MOVED_IN, 1)
            kernel.describe(slot, item.deliver_us, item.info, item.spilled_bytes, entry, now_us)
            item.unit = kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT
            kernel.fill(slot, last, client.index, client.owner)
            item.slot = slot  # from here on it is ours to give back
            last = slot
        kernel.commit()

    def _look_up(self, items: list[Entry], now_us: int) -> None:
        """Whether some of them were put before, which they then say, or are just being put."""
        remembered = self._kernel.remembered
        known = False
        being_put: list[int] | None = None
        for item in items:
            if item.moved is not None:
                item.moved()
            found = remembered.find(item.key, now_us) if item.key else 0
            if found == 0:
                continue
            if remembered.is_being_put(found):
                if being_put is None:
                    being_put = []
                being_put.append(item.key)
                continue
            item.slot = remembered.slot(found)
            item.number = remembered.number(found)
            item.known = KNOWN if remembered.last(found) & L.PUT_SYNCED else KNOWN_UNSYNCED
            known = True
        if being_put is not None:
            raise BeingPut(being_put)
        if known:
            raise KnownAlready

    def _remember(self, item: Entry, slot: int, now_us: int) -> int:
        """The entry of a message that has just got its slot, in the same transaction."""
        number = self._kernel.number(slot)
        entry = self._kernel.remembered.add(item.key, item.until_us, number, slot, item.memory, now_us)
        if entry == 0:
            raise QueueFull(self._client.name, which="dedup_entries", size=self._client.options.dedup_entries)
        return entry

    def _take(self, item: Entry) -> int:
        """A slot with room in the ring for the record or, failing that, for one that names a file in ``bodies/``."""
        if item.source is None and len(item.body) <= self._spill_bytes:
            slot = self._kernel.take(_units(len(item.meta) + len(item.body)))
            if slot >= 0 or slot == NO_SLOT:
                return slot
        units = _units(len(item.meta) + L.SPILL.size)
        if self._used_bytes() + units * L.UNIT_BYTES + self._body_bytes(item) > self._data_bytes:
            return NO_ROOM
        slot = self._kernel.take(units)
        if slot >= 0 and item.source is None:
            item.spill()
        return slot

    def _used_bytes(self) -> int:
        """Of the queue's bound, by records and by bodies of their own."""
        return self._kernel.get(L.H_USED_UNITS) * L.UNIT_BYTES + self._kernel.get(L.H_SPILLED_BYTES)

    def _body_bytes(self, item: Entry) -> int:
        return len(item.body) if item.source is None else item.spilled_bytes

    def _undo(self, item: Entry) -> None:
        """Give up a reserved slot that nothing was written to, in the turn in which it was reserved."""
        if item.spilled_bytes:
            self._kernel.spill(-item.spilled_bytes)
        self._kernel.abandon(item.slot, self._client.index, False)

    def _copy(self, items: list[Entry], now_us: int, sync: bool, batch: bool) -> None:
        """Records side by side go out in one write. A body of its own is on disk before the record that names it."""
        run: list[bytes] = []
        start = following = size_bytes = limit = 0
        most_bytes = RUN_BYTES_MAX
        for index, item in enumerate(items):
            if item.spilled is not None:
                self._files.write_body(body_name(item.number, item.slot), item.spilled, sync=sync)
            elif item.source is not None:
                self._copy_source(item, sync)
            data = self._record(item, now_us, len(items) if batch else 1, index if batch else 0)
            if run and (item.unit != following or item.unit >= limit or size_bytes > most_bytes):
                self._files.write(start, b"".join(run))
                run = []
            if not run:
                start = item.unit
                limit = self._files.file_end(start)
                size_bytes = 0
            elif size_bytes % L.UNIT_BYTES:
                run.append(_PADDING[size_bytes % L.UNIT_BYTES :])
                size_bytes += L.UNIT_BYTES - size_bytes % L.UNIT_BYTES
            run.append(data)
            size_bytes += len(data)
            following = item.unit + _units(len(data) - L.RECORD_BYTES)
        self._files.write(start, b"".join(run))

    def _ranges(self, items: list[Entry]) -> list[tuple[int, int]]:
        """Where their records are, in bytes over all data files: first byte and length of each run."""
        runs: list[tuple[int, int]] = []
        first = items[0]
        start = end = first.unit
        for item in items:
            if item.unit != end:
                runs.append((start * L.UNIT_BYTES, (end - start) * L.UNIT_BYTES))
                start = end = item.unit
            end += _units(len(item.meta) + len(item.body))
        runs.append((start * L.UNIT_BYTES, (end - start) * L.UNIT_BYTES))
        return runs

    def _copy_source(self, item: Entry, sync: bool) -> None:
        """A body that is not in memory. The room for what is not known to come is reserved as it comes."""
        assert item.source is not None
        pieces = item.source.pieces(functools.partial(self.make_room, item))
        length, check = copy_in(self._files, body_name(item.number, item.slot), pieces, sync=sync)
        assert length == item.spilled_bytes
        item.refer(check)

    def make_room(self, item: Entry, more_bytes: int) -> None:
        """For a body that has turned out to be longer."""
        if item.spilled_bytes + more_bytes + len(item.meta) + 2 * L.UNIT_BYTES > self._data_bytes:
            raise self._too_large(item.spilled_bytes + more_bytes)
        while not self._client.turn(self._grow, item, more_bytes):
            if not self._client.regain():
                wanted = item.spilled_bytes + more_bytes
                raise QueueFull(self._client.name, which="data", size=self._data_bytes, wanted=wanted)

    def _grow(self, item: Entry, more_bytes: int) -> bool:
        if self._used_bytes() + more_bytes > self._data_bytes:
            return False
        self._kernel.grow(item.slot, more_bytes)
        item.spilled_bytes += more_bytes
        return True

    def _copy_one(self, items: list[Entry], now_us: int) -> None:
        self._copy(items, now_us, True, False)

    def _record(self, item: Entry, now_us: int, batch: int, index: int) -> bytes:
        return record.build(
            self._client.signature,
            item.number,
            now_us,
            item.deliver_us,
            item.slot,
            batch,
            index,
            item.info,
            item.meta,
            item.body,
            item.check,
            item.unit,
        )

    def _publish_committed(self, led: bool, items: list[Entry]) -> None:
        self._publish_synced(led, items, None)

    def _publish_once(self, led: bool, batch: tuple[list[Entry], Once]) -> None:
        items, once = batch
        self._publish_synced(led, items, once)

    def _publish_synced(self, led: bool, items: list[Entry], once: Once | None) -> None:
        first, last = items[0], items[-1]
        self.publish_synced(led, first.slot, first.number, last.slot, len(items), self._latest_us(items), once)

    def _publish(self, items: list[Entry], once: Once | None) -> None:
        first, last = items[0], items[-1]
        self.publish(first.slot, last.slot, len(items), self._latest_us(items), once)

    def _latest_us(self, items: list[Entry]) -> int:
        latest_us = 0
        for item in items:
            if item.deliver_us > latest_us:
                latest_us = item.deliver_us
        return latest_us

    def publish_synced(
        self, led: bool, first: int, number: int, last: int, count: int, latest_us: int, once: Once | None
    ) -> None:
        """``publish`` in the turn after a sync. The first slot has a message of this ``number``."""
        if led:
            self._kernel.synced()
        if self._client.offering:
            self._client.offers.withdraw(self._client.index)  # ours or another thread's, which then publishes itself
        if self._client.is_filling(first, number):  # else a leader did, and had no time to say so
            self._kernel.committed(count, 0 if led else 1)
            self.publish(first, last, count, latest_us, once)
        else:
            self._kernel.commit()

    def publish(self, first: int, last: int, count: int, latest_us: int, once: Once | None) -> None:
        """So many messages, from slot to slot of our chain, of which one is to be delivered at ``latest_us``."""
        now_us = self._clock.wall_us()
        self._client.advance_rates(now_us)
        # What is due later may be the next one that all have to wait for.
        wake = L.MASK32 if latest_us > now_us else count
        publisher = batch = 0
        if once is not None:
            publisher, batch = once.due()
        self._kernel.publish_filled(first, last, count, self._client.index, wake, publisher, batch)

    def _full(self, code: int, item: Entry) -> PenstockError:
        options = self._client.options
        if code == NO_NUMBER:
            return OutOfNumbers(f"{self._client.name}: an index sync is needed")
        if code == NO_SLOT:
            return QueueFull(self._client.name, which="slots", size=options.slots)
        wanted = self._body_bytes(item) + len(item.meta) + L.RECORD_BYTES
        return QueueFull(self._client.name, which="data", size=self._data_bytes, wanted=wanted)

    def check_sizes(self, items: list[Entry]) -> None:
        """What can never fit is refused before anything is tried."""
        for item in items:
            if self._body_bytes(item) + len(item.meta) + 2 * L.UNIT_BYTES > self._data_bytes:
                raise self._too_large(self._body_bytes(item))
        if len(items) > self._client.options.slots:
            raise BatchTooLarge(self._client.name, messages=len(items), slots=self._client.options.slots)

    def _too_large(self, body_bytes: int) -> BodyTooLarge:
        return BodyTooLarge(self._client.name, body_bytes=body_bytes, limit_bytes=self._data_bytes)
