"""Owns messages that come in columns, as tasks of Spark stage them, and their put without an object for each.

The steps are those of entries, on disk and in the kernel: reserve, copy, commit, publish. Only what is usual goes this
way. Whatever is not (a body that is too long for a record, a queue without room, numbers that have run out) is given up
as a whole, and the same messages are put as entries. Never encodes a message.
"""

from __future__ import annotations

import contextlib
from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.errors import PenstockError
from penstock.store import layout as L
from penstock.store import record
from penstock.store.hashes import Hashes
from penstock.timequeue.clients import Client
from penstock.timequeue.producer import Once, Producer
from penstock.timequeue.puts import Entry, ready_entries

RUN_BYTES_MAX = 1 << 18  # records side by side are written together, up to this much: it stays in the cache
NOT_NOW = 0  # what a reservation says that was given up


class Piece:
    """Some of the messages: bytes of all bodies one after the other, and where each begins and the last ends; the same
    of meta; ``info`` and delivery time (0: at once) of each."""

    def __init__(self, bodies: Any, body_ends: Any, metas: Any, meta_ends: Any, infos: Any, delivers: Any) -> None:
        self.bodies = bodies
        self.body_ends = body_ends
        self.metas = metas
        self.meta_ends = meta_ends
        self.infos = infos
        self.delivers = delivers
        self.count = len(infos)
        if cython.compiled:
            self.body_bytes = _start(self.bodies)
            self.meta_bytes = _start(self.metas)

    def meta_size(self, i: int) -> int:
        return self.meta_ends[i + 1] - self.meta_ends[i]  # type: ignore[no-any-return]

    def body_size(self, i: int) -> int:
        return self.body_ends[i + 1] - self.body_ends[i]  # type: ignore[no-any-return]

    def size(self, i: int) -> int:
        """Bytes of the record of one of them."""
        return L.RECORD_BYTES + self.meta_size(i) + self.body_size(i)

    def units(self, i: int) -> int:
        return (self.size(i) + L.UNIT_BYTES - 1) // L.UNIT_BYTES

    def meta(self, i: int) -> Any:
        """In the compiled core a pointer."""
        if cython.compiled:
            return self.meta_bytes + self.meta_ends[i]
        return bytes(self.metas[self.meta_ends[i] : self.meta_ends[i + 1]])

    def body(self, i: int) -> Any:
        if cython.compiled:
            return self.body_bytes + self.body_ends[i]
        return bytes(self.bodies[self.body_ends[i] : self.body_ends[i + 1]])

    def entries(self) -> list[Entry]:
        return ready_entries(self.bodies, self.body_ends, self.metas, self.meta_ends, self.infos, self.delivers)


def _start(data: Any) -> Any:
    """Its address. Where there are no bytes, none are read."""
    return cython.address(data[0]) if len(data) else cython.cast("const unsigned char*", b"")


class Columns:
    """A batch in columns, on its way in: then with slots, then with places. Where it is asked for messages, it makes
    entries."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.count = 0
        for piece in pieces:
            self.count += piece.count
        self.taken = 0  # so many have a slot
        self.latest_us = 0  # the latest delivery time that was given
        self.slots = self.numbers = self.places = self.infos = _words(0)
        self._made: list[Entry] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        return self.entries()[index]

    def entries(self) -> list[Entry]:
        """The messages, each an entry; with their slots if they were put."""
        if self._made is None:
            made: list[Entry] = []
            for piece in self.pieces:
                made += piece.entries()
            for i in range(self.taken):
                _place(made[i], self.slots[i], self.numbers[i])
            self._made = made
        return self._made

    def begin(self) -> None:
        self.taken = 0
        self.latest_us = 0
        self.slots = _words(self.count)
        self.numbers = _words(self.count)
        self.places = _words(self.count)  # first units
        self.infos = _words(self.count)

    def placed(self) -> list[tuple[int, int]]:
        return [(self.slots[i], self.numbers[i]) for i in range(self.taken)]


def _words(count: int) -> Any:
    return memoryview(bytearray(max(count, 1) * L.WORD_BYTES)).cast("Q")


def _place(item: Entry, slot: int, number: int) -> None:
    item.slot = slot
    item.number = number


class ColumnPuts:
    """Puts columns into the queue of one client."""

    def __init__(self, client: Client, producer: Producer) -> None:
        self._client = client
        self._producer = producer
        self._kernel = client.kernel
        self._files = client.files
        self._commits = client.syncs.commits
        self._spill_bytes = client.options.spill_bytes
        self._has_trees = self._kernel.trees_at != 0
        self._hashes = Hashes(client.options.signature)

    def put(self, columns: Columns, sync: bool, once: Once | None) -> bool:
        """All or nothing, as a batch of entries. False, and nothing was put, if entries it has to be."""
        if not self._is_usual(columns):
            return False
        if sync:
            self._commits.require_working()
        client = self._client
        under_way, key = client.filling, id(columns)  # so that the last line is a single call: no interrupt before it
        try:
            return self._put(columns, sync, once)
        except BaseException as error:
            client.leftovers.append(columns.placed())
            columns.taken = 0
            with contextlib.suppress(PenstockError):  # it was the lock that could not be had: the next turn will do
                client.turn(int)  # a turn settles what is left over
            if isinstance(error, OSError) and self._producer.may_make_room_on_disk(error):
                return False
            raise
        finally:
            under_way.pop(key, None)

    def _put(self, columns: Columns, sync: bool, once: Once | None) -> bool:
        client = self._client
        batched = sync and (columns.count > 1 or once is not None)  # of a publisher's batch a trace must stay
        now_us = client.take_turn(self._reserve, (columns, batched))
        if now_us == NOT_NOW:
            return False
        if once is not None:
            once.announce(columns.slots[0], columns.numbers[0], columns.count, sync)
        runs = self._copy(columns, now_us)
        if sync:
            ticket = self._commits.ticket()
            ranges = runs if self._commits.has_syncer() else None
            self._commits.wait(ticket, self._publish_synced, (columns, once), None, ranges)
        else:
            client.take_turn(self._publish, (columns, once))
        return True

    def _is_usual(self, columns: Columns) -> bool:
        """Whether each of them fits into a record, and there seems to be room for all."""
        units = 0
        for piece in columns.pieces:
            for i in range(piece.count):
                if piece.body_size(i) > self._spill_bytes:
                    return False
                units += piece.units(i)
        kernel = self._kernel
        used = kernel.get(L.H_WAITING) + kernel.get(L.H_PENDING) + kernel.get(L.H_FILLING) + kernel.get(L.H_KEPT)
        has_slots = used + columns.count < kernel.slots
        return columns.count > 0 and has_slots and kernel.get(L.H_USED_UNITS) + units <= kernel.get(L.H_DATA_UNITS)

    # ------------------------------------------------------------ reserve, under the lock

    def _reserve(self, columns: Columns, batched: bool) -> int:
        """Slots and room for all of them, or as if nothing had been tried: ``NOT_NOW``."""
        now_us = self._producer.begin()
        self._client.filling[id(columns)] = columns.count
        columns.begin()
        try:
            if self._reserve_all(columns, L.FLAG_BATCHED << L.FLAGS_SHIFT if batched else 0, now_us):
                self._kernel.commit()
                return now_us
        except BaseException:
            self._give_up(columns)
            raise
        self._give_up(columns)
        return NOT_NOW

    def _reserve_all(self, columns: Columns, marks: int, now_us: int) -> bool:
        client = self._client
        kernel = self._kernel
        n = last = 0
        for piece in columns.pieces:
            for i in range(piece.count):
                slot = kernel.take(piece.units(i))
                if slot < 0:
                    return False
                deliver_us = piece.delivers[i]
                info = piece.infos[i] | marks
                if self._has_trees and self._has_class(piece, i):
                    kernel.classes.classify(slot, self._hashes.type_hash, self._hashes.key_hash)
                    info |= L.FLAG_CLASSED << L.FLAGS_SHIFT
                kernel.describe(slot, deliver_us if deliver_us else now_us, info, 0, 0, now_us)
                if deliver_us > columns.latest_us:
                    columns.latest_us = deliver_us
                columns.slots[n] = slot
                columns.numbers[n] = kernel.number(slot)
                columns.places[n] = kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT
                columns.infos[n] = info
                n += 1
                columns.taken = n  # before it may be committed: from then on it is ours to give back
                kernel.fill(slot, last, client.index, client.owner)
                last = slot
        return True

    def _has_class(self, piece: Piece, i: int) -> bool:
        """Whether it has a type or a key, of which the hashes are known then."""
        size = piece.meta_size(i)
        return size != 0 and self._hashes.read_at(piece.meta(i), size)

    def _give_up(self, columns: Columns) -> None:
        """Nothing was written to what has been taken."""
        self._kernel.rollback()
        for i in range(columns.taken):
            if self._client.is_filling(columns.slots[i], columns.numbers[i]):  # of a transaction before the last
                self._kernel.abandon(columns.slots[i], self._client.index, False)
        columns.taken = 0

    # ------------------------------------------------------------ copy, without it

    def _copy(self, columns: Columns, now_us: int) -> list[tuple[int, int]]:
        """Records side by side go out in one write. Where they are, in bytes over all data files: first byte and length
        of each run."""
        runs: list[tuple[int, int]] = []
        first = run_start = run_end = 0
        for piece in columns.pieces:
            i = 0
            while i < piece.count:
                start = columns.places[first + i]
                end = self._end_of_run(columns, piece, first, i)
                self._files.write(start, self._records(columns, piece, first, i, end, now_us))
                if start != run_end:
                    if run_end:
                        runs.append((run_start * L.UNIT_BYTES, (run_end - run_start) * L.UNIT_BYTES))
                    run_start = start
                run_end = columns.places[first + end - 1] + piece.units(end - 1)
                i = end
            first += piece.count
        runs.append((run_start * L.UNIT_BYTES, (run_end - run_start) * L.UNIT_BYTES))
        return runs

    def _end_of_run(self, columns: Columns, piece: Piece, first: int, i: int) -> int:
        """Behind the last message of a piece that can be written together with message ``i``. The piece begins with the
        ``first`` of the batch."""
        following = columns.places[first + i]
        most_units = RUN_BYTES_MAX // L.UNIT_BYTES
        limit = min(self._files.file_end(following), following + most_units)
        while i < piece.count and columns.places[first + i] == following and following < limit:
            following += piece.units(i)
            i += 1
        return i

    def _records(self, columns: Columns, piece: Piece, first: int, i: int, end: int, now_us: int) -> bytes:
        """Of the messages from ``i`` up to ``end``, which are side by side. In the compiled core straight into the new
        bytes object; the names are C's, see columns.pxd."""
        start = columns.places[first + i]
        size = (columns.places[first + end - 1] - start) * L.UNIT_BYTES + piece.size(end - 1)
        if cython.compiled:
            data = new_bytes(cython.NULL, size)  # type: ignore[name-defined] # noqa: F821
            to = cython.cast("unsigned char*", start_of(data))  # type: ignore[name-defined] # noqa: F821
        else:
            to = bytearray(size)
        done = 0
        for k in range(i, end):
            n = first + k
            unit = columns.places[n]
            at = (unit - start) * L.UNIT_BYTES
            if cython.compiled and at > done:
                clear(to + done, 0, at - done)  # type: ignore[name-defined] # noqa: F821
            deliver_us = piece.delivers[k]
            record.build_at(
                to,
                at,
                self._client.signature,
                columns.numbers[n],
                now_us,
                deliver_us if deliver_us else now_us,
                columns.slots[n],
                columns.count,
                n,
                columns.infos[n],
                piece.meta(k),
                piece.meta_size(k),
                piece.body(k),
                piece.body_size(k),
                unit,
            )
            done = at + piece.size(k)
        return data if cython.compiled else bytes(to)

    # ------------------------------------------------------------ publish, under it

    def _publish_synced(self, led: bool, batch: tuple[Columns, Once | None]) -> None:
        columns, once = batch
        last = columns.slots[columns.count - 1]
        slot, number = columns.slots[0], columns.numbers[0]
        self._producer.publish_synced(led, slot, number, last, columns.count, columns.latest_us, once)

    def _publish(self, columns: Columns, once: Once | None) -> None:
        last = columns.slots[columns.count - 1]
        self._producer.publish(columns.slots[0], last, columns.count, columns.latest_us, once)
