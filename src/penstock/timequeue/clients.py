"""Owns one client of a queue directory: its files, its byte in the client table, its turns at the lock; who lives.

A client lives as long as its byte of the ``clients`` file is locked, which the operating system ends with the process,
however that ends. Nothing is decided by a pid. Whoever comes by hands back what the dead held; nobody is in charge.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.errors import Corrupt, Misuse, QueueBusy, QueueClosed, TooManyClients, WrongFormat
from penstock.store import layout as L
from penstock.store import resizing, restore, syscalls
from penstock.store.begun import BegunMoves
from penstock.store.clienttable import ClientTable
from penstock.store.directory import read_options
from penstock.store.failures import Failures
from penstock.store.files import Clock, LocalFiles, body_name
from penstock.store.kernel import Kernel
from penstock.store.mutex import Mutex
from penstock.store.offers import Offers
from penstock.store.outcomes import Outcomes
from penstock.store.regions import Regions
from penstock.store.sleepers import OWED_FILE, OWED_ROOM
from penstock.store.unfinished import taken_units
from penstock.store.waking import touch
from penstock.store.words import Words
from penstock.timequeue.commit import Syncs
from penstock.timequeue.history import History
from penstock.timequeue.notify import Bell

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
Mapped = tuple[int, int]  # bytes, and in how many regions

log = logging.getLogger("penstock")

RETURNED_A_TURN_MAX = 1024  # messages handed back under one turn at the lock: about a millisecond, compiled
DEAD_LOOK_US = 100_000  # a busy receiver looks for dead clients this often; an idle one each time it finds nothing
RETIRED_A_TURN_MAX = 256
FORGET_S_MAX = 10.0
OFFER = "offer"
NOT_WAITING = (False,)
TOMBSTONE = bytes(L.WORD_BYTES)


class Client:
    """An open queue directory, registered in its client table."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        busy_s: float,
        progress: Progress | None = None,
        mapped: Mapped | None = None,
    ) -> None:
        """``mapped``: how much of the data files is mapped at once; None: all."""
        self.path = path
        self._mapped = mapped
        self.name = str(path)
        self.clock = clock
        self.busy_s = busy_s
        self.mutex = Mutex() if cython.compiled else threading.Lock()
        self.closed = False
        self.filling: dict[int, int] = {}  # puts of our threads that are between reserve and publish
        self.leftovers: list[list[tuple[int, int]]] = []  # slots and numbers of puts that failed
        self.holder = 0  # the thread that is in a turn
        self.upkeep = threading.RLock()  # held while the background works for us, and to close
        while not self._opened(busy_s, progress):
            pass  # another kernel was put in the place of the one that we had just opened

    def _opened(self, busy_s: float, progress: Progress | None) -> bool:
        resizing.finish(self.path, busy_s)
        self.options = read_options(self.path)
        try:
            regions = None if self._mapped is None else Regions(*self._mapped)
            self.files = LocalFiles(self.path, self.options, busy_s=busy_s, regions=regions)
        except Corrupt:
            if resizing.is_cut_short(self.path) or read_options(self.path) != self.options:
                return False  # files of two sizes, in the middle of a resize
            raise
        self.opened_us = self.clock.boot_us()  # not before: see SharedSync
        try:
            if not self._trust(progress):
                self.files.close()
                return False
            self._start()
            # Whoever resizes from here on sees that we live. One that came between our turns at the lock did not.
            if self._is_current():
                return True
        except BaseException:
            self.files.close()
            raise
        self._forget()
        self.closed = False
        return False

    def _is_current(self) -> bool:
        return self.files.is_current() and not resizing.is_cut_short(self.path)

    def _trust(self, progress: Progress | None) -> bool:
        """Before anything of the kernel is believed: is it what its last user left? If not, it is restored, by one
        client while the others wait. False if it is not the queue's kernel any more."""
        try:
            self._lock_or_wait_for_restore()
            if not self._is_current():
                return False
            with memoryview(self.files.kernel) as data, data.cast("Q") as words:
                self._check_header(words)
                reason = restore.needed(self.files, words)
            if reason is not None and not any(self.files.clients.alive(index) for index in range(L.CLIENTS)):
                log.warning("%s: restoring: %s", self.name, reason)
                for finding in restore.restore(self.files, self.options, after_power_loss=True, progress=progress):
                    log.warning("%s: byte %d: %s", finding.path, finding.offset, finding.what)
            return True
        finally:
            self.files.lock.release()

    def _lock_or_wait_for_restore(self) -> None:
        """A restore may take longer than anybody else may hold the lock."""
        mark = L.H_REPAIRING * L.WORD_BYTES
        while True:
            try:
                self.files.lock.acquire()
                return
            except QueueBusy:
                if not any(self.files.kernel[mark : mark + L.WORD_BYTES]):
                    raise

    def _start(self) -> None:
        self.words = Words(self.files.kernel, self.files.kernel_path)
        self.kernel = Kernel(self.words)
        self.kernel.backoff = self.options.backoff
        self.signature = self.options.signature
        self.id_prefix = self.options.uuid.replace("-", "")[:16] + "-"
        self.receivers = Bell(self.files, L.H_WAKE, way=self.options.notify)
        self.producers = Bell(self.files, L.H_ROOM, way=self.options.notify)
        self.table = ClientTable(self.kernel)
        self.offers = Offers(self.kernel)
        self.failures = Failures(self.path)
        self.begun = BegunMoves(self.path)
        self.offering: dict[str, Any] = {}  # the put that is offered to leaders, if one is
        self.syncs = Syncs(self)
        self.looked_us = 0
        self.index = -1
        self.owner = 0
        self.outcomes: Outcomes | None = None
        self.history: History | None = None
        self._register()
        if self.options.history_bytes:
            self.outcomes = Outcomes()
            self.history = History(
                self.path, self.options, self.id_prefix, self.index, clock=self.clock, gathered=self.outcomes
            )

    def _check_header(self, words: memoryview) -> None:
        """The kernel is one of this format, of this queue and of its sizes."""
        self.options = read_options(self.path)  # another one may have restored a copy meanwhile: it has a new UUID
        if words[L.H_MAGIC] == L.MAGIC and words[L.H_FEATURES] & ~L.FEATURES:
            raise WrongFormat(
                f"{self.name}: a newer Penstock keeps things in this queue that this version does not know "
                f"(features {words[L.H_FEATURES]:#x})"
            )
        expected = self.options.regions()
        if not words[L.H_REPAIRING]:  # else it may just be getting the UUID that queue.json has already
            expected[L.H_UUID], expected[L.H_UUID + 1] = self.options.uuid_words
        expected[L.H_FILES] = len(self.options.data_files)
        expected[L.H_DATA_UNITS] = self.files.data_units
        for index, value in expected.items():
            found = words[index]
            if found != value:
                raise Corrupt(
                    self.files.kernel_path, offset=index * L.WORD_BYTES, expected=f"{value:#x}", found=f"{found:#x}"
                )

    # ------------------------------------------------------------ turns at the lock

    def turn(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Hold the queue's lock for ``work``: recover what others left, do it, send the notifications that are owed.

        Whatever interrupts us, the lock is released by the one call in ``finally``, and an open transaction is undone.
        """
        result: Result = self.take_turn(work, arguments)
        return result

    def take_turn(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        me = syscalls.get_ident()
        if self.holder == me:
            raise Misuse(f"{self.name}: called by a signal handler or finalizer that interrupted a call of this queue")
        if cython.compiled:  # nothing comes between two lines of C
            self.mutex.acquire()
            try:
                return self._turn(me, work, arguments, True)
            finally:
                self.mutex.release()
        with self.mutex:
            return self._turn(me, work, arguments, True)

    def turn_at_once(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """A turn for an event loop, which must not wait: ``QueueBusy`` if others have the lock for longer than a turn.

        Nothing was done then: the caller lets a thread wait for the lock.
        """
        me = syscalls.get_ident()
        if self.holder == me:
            raise Misuse(f"{self.name}: called by a signal handler or finalizer that interrupted a call of this queue")
        if cython.compiled:
            if not self.mutex.acquire_at_once():  # type: ignore[union-attr]
                raise QueueBusy(self.name, waited_s=0)
            try:
                return self._turn(me, work, arguments, False)
            finally:
                self.mutex.release()
        acquired: list[Any] = []
        try:
            # A single C call: no interrupt comes in between.
            acquired.extend(map(self.mutex.acquire, NOT_WAITING))  # type: ignore[arg-type]
            if True not in acquired:
                raise QueueBusy(self.name, waited_s=0)
            return self._turn(me, work, arguments, False)
        finally:
            if True in acquired:
                self.mutex.release()

    def _turn(self, me: int, work: Callable[..., Any], arguments: tuple[Any, ...], patient: bool) -> Any:
        self.holder = me
        try:
            if self.closed:
                raise QueueClosed(f"{self.name}: this queue object is closed")
            try:
                if patient:
                    self.files.lock.acquire()
                else:
                    self.files.lock.acquire_at_once()
                if self.kernel.get(L.H_JOURNAL_COUNT):
                    self._bury()
                self.kernel.recover()
                if self.leftovers:
                    self._settle()
                try:
                    return work(*arguments)
                except BaseException:
                    self.kernel.rollback()
                    raise
                finally:
                    if self.kernel.get(L.H_OWED):
                        self._pay()
            finally:
                self.files.lock.release()
        finally:
            self.holder = 0

    def _bury(self) -> None:
        """Somebody died in the middle of a put: what he may have written must not be found as a message later."""
        for unit in taken_units(self.kernel):
            self.files.write(unit, TOMBSTONE)

    def _settle(self) -> None:
        """Give back the slots of puts that failed. If the disk refuses the tombstone, a later turn tries again."""
        for batch in list(self.leftovers):
            try:
                for slot, number in batch:
                    if self.is_filling(slot, number):
                        self.discard_filling(slot, self.index)
            except OSError:
                self.kernel.rollback()
            else:
                self.leftovers.remove(batch)
                self.end_offer(batch)

    def end_offer(self, batch: list[tuple[int, int]]) -> None:
        """The put is over, and what a leader says of it later too: the next may be offered. After one that failed,
        therefore, in the turn that settles it."""
        offered = self.offering.get(OFFER)
        if offered is not None and offered.is_of(batch):
            self.offering.pop(OFFER, None)

    def is_filling(self, slot: int, number: int) -> bool:
        return (
            self.kernel.number(slot) == number
            and self.kernel.state(slot) == L.STATE_FILLING
            and self.kernel.field(slot, L.S_OWNER) == self.owner
        )

    def _pay(self) -> None:
        owed = self.kernel.get(L.H_OWED)
        if owed & L.MASK32:
            self.receivers.ring(owed & L.MASK32)
        if owed & OWED_ROOM:
            self.producers.ring(L.MASK32)
        if owed & OWED_FILE:
            touch(self.files.wakeup_path)
        self.kernel.sleepers.paid()

    def advance_rates(self, now_us: int) -> None:
        """What whoever puts, gets or acknowledges does first in a turn: see ``Measuring``."""
        if self.kernel.measuring.is_tick(now_us):
            self.kernel.measuring.advance(now_us, self.clock.boot_us())

    def done_us(self) -> int:
        """The time for what is done in this turn, for statistics alone; 0 if none are kept."""
        if not self.kernel.measuring.keeping:
            return 0
        now_us = self.clock.wall_us()
        self.advance_rates(now_us)
        return now_us

    # ------------------------------------------------------------ history, if any is kept

    def seal_history(self) -> None:
        """What was gathered of it is to be written, be it a block or less. A turn of its own, and only if there is
        any."""
        if self.outcomes is not None and self.outcomes.count:
            self.turn(self._seal_history)

    def _seal_history(self) -> None:
        self.outcomes.seal()  # type: ignore[union-attr]

    # ------------------------------------------------------------ the client table

    def _register(self) -> None:
        """Take a byte of the table, clear what its last owner left, in short turns, and enter."""
        for index in range(self.kernel.clients):
            if self.files.clients.take(index):
                while self.turn(self.hand_back, index, RETURNED_A_TURN_MAX) == RETURNED_A_TURN_MAX:
                    pass
                if self.turn(self._enter, index):
                    return
                self.files.clients.leave(index)
        raise TooManyClients(self.name, limit=self.kernel.clients)

    def _enter(self, index: int) -> bool:
        if self.kernel.chain_head(index) != 0:
            return False  # what is there cannot be cleared now; another place will do
        self.owner = self.table.enter(index, os.getpid(), self.clock.wall_us(), self.opened_us)
        self.index = index
        return True

    def hand_back(self, index: int, most: int) -> int:
        """Return what client ``index``, which is dead or ourselves, holds; how many."""
        done = 0
        while done < most:
            slot = self.kernel.chain_head(index)
            if slot == 0:
                break
            if self.kernel.state(slot) == L.STATE_PENDING:
                self.kernel.give_back(slot, index, self.clock.wall_us(), index != self.index)
            else:
                try:
                    self.discard_filling(slot, index)
                except OSError:  # no tombstone, no room back: whoever comes by later tries again
                    self.kernel.rollback()
                    break
            done += 1
        return done

    def discard_filling(self, slot: int, index: int) -> None:
        """A put that will not be published. The tombstone comes first: nothing may find a whole record there later."""
        self.offers.withdraw(index)
        self.kernel.commit()
        self.files.write(self.kernel.field(slot, L.S_PLACE) >> L.PLACE_SHIFT, TOMBSTONE)
        number = self.kernel.number(slot)
        spilled = (self.kernel.field(slot, L.S_INFO) >> L.FLAGS_SHIFT) & L.FLAG_SPILLED
        if spilled:
            self.kernel.spill(-self.kernel.field(slot, L.S_LEASE_US))
        self.kernel.abandon(slot, index, True)
        if spilled:
            self.files.remove_body(body_name(number, slot))

    def return_from_dead(self) -> int:
        """Hand back what dead clients hold, a bounded number; how many."""
        done = 0
        self.looked_us = self.clock.boot_us()
        for index in range(self.kernel.get(L.H_CLIENTS_HIGH)):
            if done >= RETURNED_A_TURN_MAX:
                break
            if index != self.index and self.kernel.chain_head(index) and not self.files.clients.alive(index):
                done += self.hand_back(index, RETURNED_A_TURN_MAX - done)
        return done

    # ------------------------------------------------------------ room that waited for an index sync

    def retire_kept(self) -> int:
        """Give back the room of messages that were removed before the last index sync; how many."""
        total = 0
        while self.kernel.retained.retirable():
            total += self.turn(self._retire_some)
        return total

    def _retire_some(self) -> int:
        done = 0
        while done < RETIRED_A_TURN_MAX:
            slot = self.kernel.retained.retirable()
            if slot == 0:
                break
            name = body_name(self.kernel.number(slot), slot) if self.kernel.spilled(slot) else None
            self.kernel.retire(slot)
            if name is not None:
                with contextlib.suppress(OSError):  # it is swept up when the queue is opened next
                    self.files.remove_body(name)
            done += 1
        return done

    def regain(self) -> bool:
        """Make room available that dead clients hold or that waits for an index sync; False if there is none."""
        gained = self.retire_kept()
        if self.kernel.get(L.H_FILLING):  # perhaps of producers that died
            gained += self.turn(self.return_from_dead)
        if self.kernel.get(L.H_KEPT) and not self.kernel.get(L.H_SYNC_FAILED):
            self.syncs.sync_index()
            gained += 1
        return gained > 0

    def living(self) -> list[dict[str, int]]:
        """The clients that are alive: entry, pid and start as they gave them, slots they hold, what they have done."""
        found = []
        for index in range(self.kernel.get(L.H_CLIENTS_HIGH)):
            if index == self.index or self.files.clients.alive(index):
                found.append(
                    {
                        "client": index,
                        "pid": self.table.word(index, L.C_PID),
                        "since_us": self.table.word(index, L.C_SINCE_US),
                        "holds": self.table.word(index, L.C_COUNT),
                        "produces": int(self.table.word(index, L.C_INCARNATION) & L.CLIENT_PRODUCES != 0),
                        "consumes": int(self.table.word(index, L.C_INCARNATION) & L.CLIENT_CONSUMES != 0),
                    }
                )
        return found

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give back what we hold and leave the table."""
        with self.upkeep:
            self._close()

    def _close(self) -> None:
        while not self.closed and self.turn(self._leave):
            pass
        self.end_history()
        self.forget()

    def end_history(self) -> None:
        """Write the last of it. By whoever knows that nobody uses this client any more."""
        if self.history is not None:
            self.history.end()

    def _leave(self) -> bool:
        """One turn's worth of giving back; True if there is more."""
        if self.filling:
            raise Misuse(f"{self.name}: {len(self.filling)} puts or syncs are under way")
        if self.hand_back(self.index, RETURNED_A_TURN_MAX) == RETURNED_A_TURN_MAX:
            return True
        if self.kernel.chain_head(self.index) == 0:
            self.table.leave(self.index)
        self.closed = True
        return False

    def give_up(self) -> None:
        """Closing failed: what we hold goes back when others look. Else whoever keeps the error, and us with it, would
        keep us alive in their eyes."""
        with self.mutex:
            self.closed = self.closed or not self.filling  # a thread in the middle of a put needs the files
        if self.closed:
            self.forget()

    def forget(self) -> None:
        """Only close: as when the process dies. If the background does not let go of us, the process's end does."""
        if self.upkeep.acquire(timeout=FORGET_S_MAX):
            try:
                self._forget()
            finally:
                self.upkeep.release()

    def disown(self) -> None:
        """In the child of a fork: only close, since unlocking would drop the parent's locks. A thread of the parent's
        that worked for us, and held this lock, is not here."""
        self.upkeep = threading.RLock()
        self.forget()

    def _forget(self) -> None:
        self.closed = True
        if self.history is not None:
            self.history.drop()
        self.receivers.close()
        self.producers.close()
        self.syncs.close()
        self.words.close()
        self.files.close()
