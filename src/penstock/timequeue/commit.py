"""Owns syncs that many wait for and one performs: group commit of the data files, and index syncs (S5, S9).

No process is in charge. Whoever needs a sync reads how many were begun, and waits until a later one is complete. If
nobody is at it, one of those that wait takes a locked byte and leads: it counts a sync as begun, performs it, and notes
that it is complete. The others sleep on a bell. Leadership is only a hint that saves work: a follower that waited twice
the usual time leads by another byte, so neither a killed nor a stopped leader holds anybody up for long. Where the
synchronization component serves the queue, it is asked first (``syncasking.py``), and leads in the same way.

Counting syncs instead of offsets matters: "synced up to here" would confirm a record below that was still being copied.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import PenstockError, SyncFailed
from penstock.store import layout as L
from penstock.store import syscalls
from penstock.store.files import LocalFiles
from penstock.store.indexing import IndexNotes
from penstock.store.kernel import Kernel
from penstock.timequeue.notify import Bell
from penstock.timequeue.syncasking import Asked, Asking
from penstock.timequeue.syncframes import Range

if TYPE_CHECKING:
    from penstock.timequeue.clients import Client

LEADERS = 8  # bytes to lead by: the first as a rule, the next for each wait that was in vain
DATA_BYTES_AT = 1 << 20  # in the file ``clients``, behind the clients' own
INDEX_BYTES_AT = DATA_BYTES_AT + LEADERS
PATIENCE_S = 0.01  # the least time that a follower waits for a leader it does not know
CHAIN_LOOKED_MAX = 4096
ASKED_LOOK_S = 0.05  # who waits for the synchronization component looks so often whether it lives
GATHER_SHARE = 0.6  # of a sync's usual time: so long a leader waits at most for those that the last one served
GATHER_S_MAX = 0.001

BEGUN, DONE, BELL, BEGUN_US = range(4)  # words of a kind of sync, from its first one on


CLOCK_MONOTONIC = time.CLOCK_MONOTONIC


def nothing(led: bool, argument: Any) -> None:
    pass


def count_sync(led: bool, kernel: Kernel) -> None:
    kernel.synced()


class Told:
    """An error that a descriptor of this client was told of. It is told only once, whichever thread asks; so one thread
    syncs at a time, and all see what it heard."""

    def __init__(self) -> None:
        self.code = 0
        self.unknown = False  # an interrupt came, perhaps on top of an error
        self._mutex = threading.RLock()  # a signal handler may put, too

    def sync_data(self, files: LocalFiles) -> None:
        self._sync(files, False)

    def sync_kernel(self, files: LocalFiles) -> None:
        self._sync(files, True)

    def _sync(self, files: LocalFiles, kernel: bool) -> None:
        with self._mutex:
            if self.code:
                raise OSError(self.code, os.strerror(self.code))
            try:
                if kernel:
                    files.sync_kernel()
                else:
                    files.sync_data()
            except OSError as error:
                self.code = error.errno or errno.EIO
                raise
            except BaseException:
                self.unknown = True
                raise


class Offer(Protocol):
    """Work that the leader of a sync may do for one that waits for it."""

    def make(self, ticket: int) -> bool:
        """Offer it; False if that is not possible now."""

    def is_served(self) -> bool: ...
    def is_done(self) -> bool:
        """Whether it was done, for certain; if not, it will not be. In a turn."""

    def take_back(self) -> None: ...


class SharedSync:
    """One kind of sync of one queue, as one client sees it: a subclass says what is synced, and how those that wait are
    served."""

    def __init__(self, client: Client, first_word: int, first_byte: int, told: Told) -> None:
        self._client = client
        self._served = False
        self._told = told
        self._kernel = client.kernel
        self._files = client.files
        self._word = first_word
        self._byte = first_byte
        self._leaders: dict[int, int] = {}  # byte and the thread that leads by it
        self._bell = Bell(client.files, first_word + BELL, way=client.options.notify)
        self._usual_s = 0.0

    def _perform(self, number: int, doubtful: bool) -> int:
        """Sync. An earlier one may have failed without a word if it is ``doubtful``."""
        raise NotImplementedError

    def _makes_up(self) -> bool:
        """Whether it brings to disk what a doubtful one may have left in memory."""
        return False

    def _gather(self) -> int:
        """Let others come in time."""
        return 0

    def _serve(self, number: int) -> int:
        """Do for those that sleep what they offered; for how many."""
        return 0

    def _may_sleep(self) -> bool:
        """Whether anybody may be asleep who has not been served."""
        return True

    def ticket(self) -> int:
        """What has been written until now is on disk when a sync of at least this number is complete."""
        return self._kernel.get(self._word + BEGUN) + 1

    def has_syncer(self) -> bool:
        """Whether the synchronization component is to be asked for syncs of this kind."""
        return False

    def _ask(self, ranges: Sequence[Range]) -> Asked | None:
        return None

    def wait(
        self,
        ticket: int,
        then: Callable[[bool, Any], Any] = nothing,
        argument: Any = None,
        offer: Offer | None = None,
        ranges: Sequence[Range] | None = None,
    ) -> Any:
        """Return when the sync is complete; ``then`` runs in the turn after it, and learns whether we led it. It does
        not run if a leader has done what was offered. Of ``ranges`` the synchronization component is asked: if it does
        not answer, it is as if there were none.

        ``SyncFailed`` if a sync failed: nothing is confirmed, now or later, until the queue was checked.
        """
        waits = 0
        offered = False
        asked = None
        try:
            if ranges is not None:
                offered = offer is not None and offer.make(ticket)  # first: it may be served before we look again
                asked = self._ask(ranges)
            while True:
                bell = self._kernel.get(self._word + BELL) & L.MASK32
                if offered and offer is not None and offer.is_served():
                    return None
                if self.failed():
                    if offered and offer is not None and self._client.turn(offer.is_done):
                        return None  # by a leader whose sync had not failed
                    self.require_working()
                if self._kernel.get(self._word + DONE) >= ticket:
                    if asked is not None:
                        asked.confirm()
                    return self._client.take_turn(then, (False, argument))
                if asked is not None and asked.may_answer():
                    self._bell.sleep(bell, ASKED_LOOK_S)
                elif self._may_lead(waits):
                    if self._kernel.get(self._word + DONE) < ticket:
                        if offered and offer is not None:
                            offer.take_back()
                        return self._lead(then, argument)
                    self._end_leading()
                elif offer is not None and not offered:
                    offered = offer.make(ticket)  # then look again: a leader that did not see it has finished
                    offer = offer if offered else None
                elif not self._bell.sleep(bell, max(PATIENCE_S, 2 * self._usual_s)):
                    waits += 1
        finally:
            try:
                self._end_leading()
            finally:
                if asked is not None:
                    asked.end()

    def lead_for_others(self) -> None:
        """Perform one for those that asked for it, whoever else is at one. They sleep on until they are told."""
        self._complete(self._client.take_turn(self._begin, ()), count_sync, self._kernel)

    def doubt(self, since_us: int) -> None:
        """Somebody who led since then was killed, perhaps in a sync that others overtook, with its error in his hands:
        as if one had been begun then, and never ended. In a turn."""
        begun = self._kernel.get(self._word + BEGUN)
        if self._kernel.get(self._word + DONE) == begun or since_us < self._kernel.get(self._word + BEGUN_US):
            self._kernel.note(self._word + BEGUN_US, since_us)
        self._kernel.note(self._word + BEGUN, begun + 1)  # also while a sync is under way: its end is not the doubt's

    def lead_if_free(self) -> None:
        """Perform one unless somebody is at it."""
        try:
            if self._may_lead(0):
                self._lead(nothing, None)
        finally:
            self._end_leading()

    def failed(self) -> int:
        """The error number of a sync that failed, or 0."""
        return self._kernel.get(L.H_SYNC_FAILED) or self._told.code

    def require_working(self) -> None:
        code = self.failed()
        if code:
            raise SyncFailed(self._client.name, code)

    def _may_lead(self, waits: int) -> bool:
        """Take a byte to lead by; False if others have those we may take. One that has waited long needs none."""
        me = syscalls.get_ident()
        for i in range(min(waits + 1, LEADERS)):
            if self._leaders.setdefault(i, me) == me:  # threads of a process share its locked bytes
                if self._files.clients.take(self._byte + i):
                    return True
                self._leaders.pop(i, None)
        return waits >= LEADERS

    def _end_leading(self) -> int:
        """Give back what this thread leads by, wherever an interrupt or an error may have come, and tell the others."""
        me = syscalls.get_ident()
        for i in range(LEADERS):
            if not self._leaders:
                break
            if self._leaders.get(i) == me:
                try:
                    self._files.clients.leave(self._byte + i)
                finally:
                    self._leaders.pop(i, None)
                # Only now: whoever is told and has not been served must find the byte free.
                self.tell_sleepers()
        return 0

    def tell_sleepers(self) -> int:
        """Whoever sleeps looks again. One that found a leader's byte taken was being filled before: where nobody was
        served and nothing is being filled, no put sleeps."""
        if self._served or self._may_sleep():
            self._served = False
            self._kernel.note(self._word + BELL, (self._kernel.get(self._word + BELL) + 1) & L.MASK32)
            self._bell.ring(L.MASK32)
        return 0

    def _lead(self, then: Callable[[bool, Any], Any], argument: Any) -> Any:
        self._gather()
        return self._complete(self._client.take_turn(self._begin, ()), then, argument)

    def _complete(self, begun: tuple[int, bool, bool], then: Callable[[bool, Any], Any], argument: Any) -> Any:
        number, shared, doubtful = begun
        started_us = syscalls.clock_us(CLOCK_MONOTONIC)
        try:
            self._perform(number, doubtful)
        except PenstockError:  # of the queue, not of the disk: a lock that was not to be had is an OSError, too
            raise
        except OSError as error:
            code = error.errno or errno.EIO
            self._kernel.note(L.H_SYNC_FAILED, code)  # without the lock, which may not be to be had: one word
            raise SyncFailed(self._client.name, code) from error
        took_us = syscalls.clock_us(CLOCK_MONOTONIC) - started_us
        self._usual_s = 0.75 * self._usual_s + 0.25 * took_us / 1e6
        return self._client.take_turn(self._finish, (number if shared else 0, then, argument))

    def _begin(self) -> tuple[int, bool, bool]:
        """The number of a new sync, whether it may serve others, and whether an earlier one is in doubt.

        An error of a sync is told to every descriptor that was open then, once. If a leader began one and died, perhaps
        with the error in its hands, only a client that had the files open by then can find out by a sync of its own. A
        younger one syncs for itself, as long as one waits that is older than it.
        """
        self.require_working()
        number = self._kernel.get(self._word + BEGUN) + 1
        begun_us = self._kernel.get(self._word + BEGUN_US)
        open_ended = self._kernel.get(self._word + DONE) != number - 1
        doubtful = open_ended and (self._client.opened_us >= begun_us or self._told.unknown)
        shared = not doubtful or self._makes_up() or not self._other_waits()
        self._kernel.note(self._word + BEGUN, number)
        if not open_ended:  # else the doubt goes on: of clients that are younger than the first sync without an end
            self._kernel.note(self._word + BEGUN_US, self._client.clock.boot_us())
        return number, shared, doubtful

    def _other_waits(self) -> bool:
        """Whether a living client that may know of an error that we were not told of is in the middle of a put: one
        that had the files open before us, since the error may have come at any time before that; and where we do not
        know what we were told, any."""
        for index in range(self._kernel.get(L.H_CLIENTS_HIGH)):
            if (
                index != self._client.index
                and (self._told.unknown or self._client.table.word(index, L.C_OPENED_US) <= self._client.opened_us)
                and self._client.table.fills(index, CHAIN_LOOKED_MAX)
                and self._client.files.clients.alive(index)
            ):
                return True
        return False

    def lead_alone(
        self, reserve: Callable[[Any], Any], copy: Callable[[Any, Any], Any], then: Any, argument: Any
    ) -> bool:
        """Where nobody else is putting: lead the sync of what ``copy`` is still to write. False if others are, and
        nothing was done.

        The sync is begun in the turn that reserves, and not in one of its own. Who comes in between waits for the next
        one, which is why this is for those that are alone.
        """
        try:
            if (
                self._kernel.get(L.H_SYNC_GROUP) > 1
                or self._kernel.get(L.H_FILLING)
                or self.has_syncer()
                or not self._may_lead(0)
            ):
                return False
            reserved, begun = self._client.take_turn(self._reserve_and_begin, (reserve, argument))
            copy(argument, reserved)
            self._complete(begun, then, argument)
        finally:
            self._end_leading()
        return True

    def _reserve_and_begin(self, reserve: Callable[[Any], Any], argument: Any) -> tuple[Any, Any]:
        return reserve(argument), self._begin()

    def _finish(self, number: int, then: Callable[[bool, Any], Any], argument: Any) -> Any:
        self.require_working()
        if number and self._serve(number):
            self._served = True
        if number > self._kernel.get(self._word + DONE):
            self._kernel.note(self._word + DONE, number)
        return then(True, argument)

    def close(self) -> None:
        self._bell.close()


class Commits(SharedSync):
    """Group commit: syncs of the data files, which puts wait for."""

    def __init__(self, client: Client, told: Told) -> None:
        super().__init__(client, L.H_SYNC_BEGUN, DATA_BYTES_AT, told)
        self._offers = client.offers
        self._asking = Asking(client.path, client.kernel)

    def has_syncer(self) -> bool:
        return self._kernel.get(L.H_SYNCER) != 0 and self._asking.may_ask()

    def _ask(self, ranges: Sequence[Range]) -> Asked | None:
        return self._asking.ask(self._client.index, ranges)

    def close(self) -> None:
        self._asking.close()
        super().close()

    def _perform(self, number: int, doubtful: bool) -> int:
        self._told.sync_data(self._files)
        return 0

    def _gather(self) -> int:
        """Producers that one sync served come back at about the same time. The first to come back would lead a sync for
        itself and have all others wait for the next: it lets them run, until they are there or time is up."""
        expected = self._kernel.get(L.H_SYNC_GROUP)
        filling = self._kernel.get(L.H_FILLING)
        if filling < expected:
            deadline = time.perf_counter() + min(GATHER_SHARE * self._usual_s, GATHER_S_MAX)
            while filling < expected and time.perf_counter() < deadline:
                os.sched_yield()
                filling = self._kernel.get(L.H_FILLING)
        self._kernel.note(L.H_SYNC_GROUP, filling)
        return 0

    def _serve(self, number: int) -> int:
        return self._offers.serve(number)

    def _may_sleep(self) -> bool:
        return self._kernel.get(L.H_FILLING) != 0


class IndexSyncs(SharedSync):
    """Syncs of the kernel, after the data files."""

    def __init__(self, client: Client, told: Told, commits: Commits) -> None:
        super().__init__(client, L.H_INDEX_BEGUN, INDEX_BYTES_AT, told)
        self._commits = commits
        self.notes = IndexNotes(client.kernel)

    def _perform(self, number: int, doubtful: bool) -> int:
        """Data files first: a slot's word on disk never speaks of a record that is not."""
        client = self._client
        client.retire_kept()
        if doubtful:
            client.turn(client.words.touch)
        settled, limit = client.turn(self._begin_index, number)
        self._commits.wait(self._commits.ticket())
        self._told.sync_kernel(self._files)
        client.turn(self.notes.end, number, settled, limit, client.clock.wall_us())
        client.retire_kept()
        return 0

    def _makes_up(self) -> bool:
        return True

    def _begin_index(self, number: int) -> tuple[int, int]:
        settled = self.notes.begin(number)
        return settled, self._kernel.get(L.H_NUMBER_LIMIT)


class Syncs:
    """Both kinds of sync of one client: commits of puts, and index syncs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kernel = client.kernel
        told = Told()
        self.commits = Commits(client, told)
        self.index = IndexSyncs(client, told, self.commits)

    def sync_index(self) -> None:
        """Everything that was changed until now is on disk when this returns."""
        under_way, key = self._client.filling, -threading.get_ident()  # nobody closes the files meanwhile
        try:
            under_way[key] = 0
            self.index.wait(self.index.ticket())
        finally:
            under_way.pop(key, None)

    def index_due(self, interval_us: int) -> bool:
        """Whether there is something to sync, and the last index sync began long enough ago."""
        return (
            self._kernel.get(L.H_SYNC_FAILED) == 0
            and (
                self.index.notes.changes() != self._kernel.get(L.H_INDEX_MARK)
                or self._kernel.get(L.H_INDEX_BEGUN) != self._kernel.get(L.H_INDEX_DONE)  # its leader died
            )
            and self._client.clock.boot_us() - self._kernel.get(L.H_INDEX_BEGUN_US) >= interval_us
        )

    def before_closing(self) -> None:
        """The last index sync, if there is anything that it would bring to disk."""
        if not self._client.closed and self.index_due(0):
            self.index.lead_if_free()

    def close(self) -> None:
        self.commits.close()
        self.index.close()
