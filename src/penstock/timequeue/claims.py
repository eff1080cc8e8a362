"""Owns receivers: durable claims of due messages, numbered, which outlive every process until they are committed.

A claim is marked in the kernel first, some messages a turn, and then written to a file, synced and named: whoever dies
in between has it finished by the next receiver of that name. Acknowledged are claims whose number is in ``committed``
on disk; the kernel follows, and where there are verdicts on messages of them, by those (``judging.py``). One receiver
at a time has a name, by a lock that the system drops with its process, and every turn checks that nobody has taken its
place since. Never reads a message's body.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.errors import Corrupt, Misuse, NoSuchClaim, ReceiverBusy, ReceiverLost, TooManyReceivers
from penstock.store import claimfiles
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.claiming import NO_ENTRY, Claiming
from penstock.store.files import body_name
from penstock.store.gather import F_INFO, F_NUMBER, F_SLOT, REFERENCE_WORDS
from penstock.store.verdictfiles import KeptAnswer
from penstock.timequeue.backlogs import DUE_COUNTED_MOST, Backlog, backlog
from penstock.timequeue.claimhistory import ClaimHistory
from penstock.timequeue.claimtaking import CLAIMED_A_TURN_MAX, Rows, Taking, size_bytes, spilled_bytes
from penstock.timequeue.clients import RETURNED_A_TURN_MAX
from penstock.timequeue.judging import Giving, Judging, ends_otherwise
from penstock.timequeue.selection import Selection

LOOKED_A_TURN_MAX = 4096
RETRY_S = 0.02

Place: TypeAlias = tuple[int, int]  # slot and number


class Owner(Giving, Protocol):
    """The queue whose client a receiver works through."""

    def tell_claimed(self, special: list[Place], replies: dict[Place, tuple[int, bytes]]) -> None: ...
    def may_have_questions(self) -> bool: ...


class Claim(msgspec.Struct, frozen=True):
    """A numbered set of messages. ``references`` has ``gather.REFERENCE_WORDS`` words for each, in the order in which
    they were due."""

    number: int
    references: Any

    @property
    def count(self) -> int:
        return len(self.references) // REFERENCE_WORDS


class Receiver:
    """One name's claims. ``ReceiverBusy`` if another one has the name, and still has it after ``wait_s`` seconds.

    With ``timeout_s`` others may release its claims when it was not there for so long, see ``release_overdue``; 0 for
    never, None for what was said last.

    >>> import penstock
    >>> q = penstock.create(path)
    >>> _ = q.put_many([b"a", b"b", b"c"])
    >>> with q.receiver("report") as receiver:
    ...     claim = receiver.claim(2)
    ...     claim.number, claim.count
    (1, 2)
    >>> with q.receiver("report") as receiver:  # a claim outlives its process
    ...     receiver.claims(), receiver.references(1) == claim.references
    ...     receiver.commit(1)
    ([1], True)
    >>> q.qsize(), q.stats().claimed
    (1, 0)
    """

    def __init__(
        self, queue: Owner, name: str, *, wait_s: float = 0.0, timeout_s: float | None = None, if_overdue: bool = False
    ) -> None:
        client = queue._mine()
        self._client = client
        self._queue = queue
        self.name = claimfiles.check_name(name)
        self._kernel = client.kernel
        self._claiming = Claiming(client.kernel)
        self._files = ClaimFiles(client.path, name, client.signature)
        self._pid = os.getpid()
        self._entry = NO_ENTRY
        self._epoch = 0
        self._committed = 0
        self._acknowledged = 0  # in the kernel, too
        self._releasing: dict[int, int] = {}  # claims whose release is under way or failed, and how many messages
        self._done: list[int] = []  # committed claims that still have a file, and the index sync they wait for
        self._done_ticket = 0
        self._unreturned = 0  # a claim that may be marked, and has a file or not, and that no call has returned
        self._if_overdue = if_overdue
        self._behind: list[Future[None]] = []  # what goes on while the caller does something else, one after the other
        self._ahead: Claim | None = None  # one of these has made it, and no call has returned it
        self._making = threading.Lock()  # one claim at a time is made, whoever is interrupted
        self._thread: ThreadPoolExecutor | None = None
        self._fd = self._lock(wait_s)
        _receivers.add(self)
        try:
            self._committed = self._files.committed()
            known = max([self._committed, *self._files.numbers()])
            self._entry, self._epoch = client.turn(self._enter, known)
            self._finish()
            self._turn(self._claiming.set_timeout, self._entry, self._timeout_us(timeout_s))
        except BaseException:
            self.close()
            raise

    def _lock(self, wait_s: float) -> int:
        deadline = time.monotonic() + wait_s
        while True:
            fd = self._files.lock()
            if fd >= 0:
                return fd
            if time.monotonic() >= deadline:
                raise ReceiverBusy(self._client.name, self.name)
            time.sleep(RETRY_S)

    def _timeout_us(self, timeout_s: float | None) -> int:
        """What is to hold; the file has it for a restore."""
        said_us = self._files.timeout_us()
        if timeout_s is not None:
            timeout_us = int(timeout_s * 1_000_000)
        else:
            timeout_us = self._turn(self._claiming.word, self._entry, L.N_TIMEOUT_US) or said_us
        if timeout_us != said_us:
            self._files.set_timeout(timeout_us)
        return timeout_us

    def _enter(self, known: int) -> tuple[int, int]:
        entry = self._claiming.make(self.name)
        if entry == NO_ENTRY:
            raise TooManyReceivers(self._client.name, limit=L.RECEIVERS)
        if self._if_overdue and not self._claiming.overdue(entry, self._client.clock.wall_us()):
            raise ReceiverBusy(self._client.name, self.name)  # it came back
        return entry, self._claiming.enter(entry, known, self._client.clock.wall_us())

    # ------------------------------------------------------------ turns

    def _turn(self, work: Any, *arguments: Any) -> Any:
        if os.getpid() != self._pid or self._queue._mine() is not self._client:
            raise ReceiverLost(self._client.name, self.name)
        if self._fd < 0:
            raise Misuse(f"{self._client.name}: this receiver object is closed")
        return self._client.turn(self._fenced, work, arguments)

    def _fenced(self, work: Any, arguments: tuple[Any, ...]) -> Any:
        if self._claiming.word(self._entry, L.N_EPOCH) != self._epoch:
            raise ReceiverLost(self._client.name, self.name)
        return work(*arguments)

    def _finish(self) -> None:
        """What a receiver that died has left: a commit, a release or a claim half done, or with a name that is not on
        disk yet."""
        self._files.sync()
        if self._committed:
            self._acknowledge(self._committed)
        for number in self._files.numbers():
            if number > self._committed and not self._files.count(number):
                self._return(number)
        self._unwritten()
        self._files.sweep_verdicts()

    # ------------------------------------------------------------ claiming

    def claim(
        self,
        most_rows: int,
        most_bytes: int | None = None,
        *,
        selection: Selection | None = None,
        at_least_one: bool = True,
    ) -> Claim | None:
        """Take due messages into the next claim, up to so many, with up to so many bytes on disk together (the first
        may have more, with ``at_least_one``); None if nothing is due. When this returns, the claim is on disk, and so
        are its messages. With a selection, those that it finds.

        One that was begun and is not on disk yet, since a call like this failed, is finished first and returned.
        """
        if most_rows.__class__ is not int or most_rows < 1:
            raise Misuse(f"most_rows must be a whole number above 0, not {most_rows!r}")
        if most_bytes is not None and (most_bytes.__class__ is not int or most_bytes < 1):
            raise Misuse(f"most_bytes must be a whole number above 0, not {most_bytes!r}")
        self._join()
        with self._making:
            ahead, self._ahead = self._ahead, None
            return ahead if ahead is not None else self._make(most_rows, most_bytes, selection, at_least_one)

    def claim_ahead(self, most_rows: int, most_bytes: int | None = None, *, selection: Selection | None = None) -> None:
        """Begin to claim while the caller goes on with the claims before: it is what ``claim`` returns next. If that
        never comes, the claim stays, as any other. With one that is there already, it does nothing."""
        self._go_on(self._make_ahead, most_rows, most_bytes, selection)

    def _make_ahead(self, most_rows: int, most_bytes: int | None, selection: Selection | None) -> None:
        with self._making:
            if self._ahead is None:
                self._ahead = self._make(most_rows, most_bytes, selection, True)

    def claimed_ahead(self) -> Claim | None:
        """What was claimed ahead; None if nothing was, or nothing was due then."""
        self._join()
        with self._making:
            ahead, self._ahead = self._ahead, None
        return ahead

    def _make(
        self, most_rows: int, most_bytes: int | None, selection: Selection | None, at_least_one: bool
    ) -> Claim | None:
        left = self._unwritten()
        self._unreturned = 0
        if left is not None:
            return left
        self._sweep()
        taking = Taking(self._client, self._claiming, self._entry, self._turn, at_least_one=at_least_one)
        number = self._unreturned = taking.begin()
        rows = taking.collect(number, most_rows, most_bytes, selection)
        claim = self._keep(number, rows) if rows else None
        self._unreturned = 0
        return claim

    def size_bytes(self, claim: Claim) -> int:
        """What the messages of a claim that was just made have on disk together, as ``most_bytes`` counts it."""
        return size_bytes(self._client, claim.references)

    def _keep(self, number: int, rows: Rows) -> Claim:
        """Bring a claim to disk, after the records that it speaks of, and bodies of their own: some may have been put
        without a sync."""
        under_way, key = self._client.filling, -id(self)  # nobody closes the files meanwhile
        try:
            under_way[key] = 0
            self._client.syncs.commits.wait(self._client.syncs.commits.ticket())
            if self._kernel.get(L.H_SPILLED_BYTES) and (spilled := _spilled(rows)):
                self._client.files.sync_bodies(spilled)
        finally:
            under_way.pop(key, None)
        self._files.write(number, rows)
        return Claim(number, rows)

    def _unwritten(self) -> Claim | None:
        """The last claim, if its messages are marked and it has no file yet, or one that nobody was told of and that is
        perhaps not on disk."""
        number = self._turn(self._last)
        if number == 0 or number <= self._committed:
            return None
        if number != self._unreturned and self._files.count(number) is not None:
            return None
        return self._keep(number, self._marked(number))

    def _last(self) -> int:
        slot = self._claiming.last(self._entry)
        return self._claiming.claim_of(slot) if slot else 0

    def _marked(self, number: int) -> Rows:
        """References of a claim as the kernel has them, in their order."""
        slots: list[int] = []
        start = self._turn(self._claiming.last, self._entry)
        while start:
            start = self._turn(self._look_back, number, start, slots)
        rows: Rows = array("Q", bytes(L.WORD_BYTES * REFERENCE_WORDS * len(slots)))
        for index, slot in enumerate(reversed(slots)):
            self._claiming.row(rows, index, slot)  # without the lock: nobody but us moves them
        return rows

    def _look_back(self, number: int, start: int, slots: list[int]) -> int:
        slot = start
        for _ in range(LOOKED_A_TURN_MAX):
            if slot == 0 or self._claiming.claim_of(slot) < number:
                return 0
            if self._claiming.claim_of(slot) == number:
                slots.append(slot)
            slot = self._claiming.before(slot)
        return slot

    # ------------------------------------------------------------ looking

    @property
    def committed(self) -> int:
        """Claims up to this number are acknowledged."""
        return self._committed

    @property
    def last(self) -> int:
        """The number of the last claim that was begun, also ahead."""
        return int(self._turn(self._claiming.word, self._entry, L.N_CLAIM))

    def identity(self) -> str:
        """What tells this receiver from others that have its name when it was forgotten; made at the first call."""
        self._turn(self._nothing)
        known = self._files.identity()
        if not known:
            known = secrets.randbits(63) | 1
            self._files.set_identity(known)
        return f"{known:016x}"

    def is_due(self) -> bool:
        """Whether there is anything to claim. One short turn that leaves everything as it is, but for what others let
        go of."""
        self._join()
        self._sweep()
        return bool(self._turn(self._due))

    def _due(self) -> bool:
        client = self._client
        now_us = client.clock.wall_us()
        self._kernel.expire(client.clock.boot_us(), now_us, RETURNED_A_TURN_MAX)
        if self._kernel.get(L.H_PENDING):
            client.return_from_dead()
        return self._kernel.due(now_us) != 0

    def backlog(self, enough: int = DUE_COUNTED_MOST) -> Backlog:
        """What is due. Those that were put for a time are counted until there are ``enough``."""
        return backlog(self._client, self._claiming, self._turn, enough)

    def claims(self) -> list[int]:
        """Numbers of the claims that are neither committed nor released."""
        self._turn(self._nothing)
        return [number for number in self._files.numbers() if number > self._committed and self._files.count(number)]

    def count(self, number: int) -> int:
        """How many messages an open claim has."""
        return self._require(number)

    def references(self, number: int) -> Rows:
        """The messages of a claim: the same each time, until it is committed or released."""
        self._require(number)
        rows = self._files.read(number)
        assert rows is not None
        return rows

    def _require(self, number: int) -> int:
        """An open claim; how many messages it has."""
        self._turn(self._nothing)
        if number.__class__ is not int or number < 1:
            raise Misuse(f"the number of a claim must be a whole number above 0, not {number!r}")
        if number <= self._committed:
            raise NoSuchClaim(self._client.name, self.name, number, f"all up to {self._committed} are committed")
        count = self._files.count(number)
        if not count:
            raise NoSuchClaim(self._client.name, self.name, number, "it was never made, or was released")
        return count

    def _nothing(self) -> None:
        """Only the check that comes before it."""

    # ------------------------------------------------------------ what becomes of a claim

    def commit(self, number: int, *, later: bool = False) -> None:
        """Acknowledge all claims up to this one: they are gone for good when this returns. Again, it does nothing.

        With ``later`` the kernel has their messages until ``settle`` is called, or the next receiver of this name is
        there.
        """
        if number.__class__ is not int or number < 1:
            raise Misuse(f"the number of a claim must be a whole number above 0, not {number!r}")
        last = self._turn(self._claiming.word, self._entry, L.N_CLAIM)
        if number > last:
            raise NoSuchClaim(self._client.name, self.name, number, f"the last one is {last}")
        self._join()
        self._sweep()
        if self._ahead is not None and self._ahead.number <= number:
            self._ahead = None
        if number > self._committed:
            self._check_verdicts(number)
            self._tell_askers(number)
            # On disk first: from here on the messages may vanish one by one, and nobody may read a part of them.
            self._files.commit(number)
            self._committed = number
        if not later:
            self.settle()

    def _check_verdicts(self, number: int) -> None:
        """``Corrupt`` while the claims are still open: they may be noted anew."""
        for claim in self._files.judged():
            if self._committed < claim <= number:
                self._files.verdicts(claim)

    def _tell_askers(self, number: int) -> None:
        """Those who wait for the acknowledgement of a message, or for its reply. Killed after it, the same claim is
        committed again, and they are told once. Of those that fail nobody is told anything yet."""
        if not self._queue.may_have_questions():
            return
        for claim in self._files.numbers():
            rows = self._files.read(claim) if self._committed < claim <= number else None
            verdicts = {(one.slot, one.number): one for one in self._files.verdicts(claim)} if rows else {}
            special = [
                (rows[index * REFERENCE_WORDS + F_SLOT], rows[index * REFERENCE_WORDS + F_NUMBER])
                for index, info in enumerate(rows[F_INFO::REFERENCE_WORDS] if rows else ())
                if info >> L.FLAGS_SHIFT & L.FLAG_SPECIAL and rows is not None
            ]
            replies = {at: (one.codec, one.body) for at, one in verdicts.items() if isinstance(one, KeptAnswer)}
            special = [at for at in special if at in replies or at not in verdicts]
            if special:
                self._queue.tell_claimed(special, replies)

    def settle(self, *, behind: bool = False) -> None:
        """Take what is committed out of the kernel. ``behind``: while the caller goes on. The next call that takes,
        commits, releases or closes waits for it, and raises what went wrong."""
        self._join()
        if self._acknowledged == self._committed:  # less, also if a call before this one failed half-way
            return
        if behind:
            self._go_on(self._acknowledge, self._committed)
        else:
            self._acknowledge(self._committed)

    def _go_on(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do this while the caller does something else."""
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix=f"penstock-{self.name}")
        self._behind.append(self._thread.submit(work, *arguments))

    def _join(self) -> None:
        """Wait for all of it. Where something went wrong, that is raised, and the next call waits for the rest."""
        while self._behind:
            try:
                self._behind[0].result()
            finally:
                if self._behind[0].done():  # not if we were interrupted
                    del self._behind[0]

    def _acknowledge(self, number: int) -> None:
        """Idempotent; the files go last, since a restore needs them to know which messages were meant: when the index
        was synced, which the background does soon, or we do where there is none."""
        some_wait = self._carry_out(number)
        history = ClaimHistory(self._client, self._files, self.name)
        done = history.look_up(self._acknowledged, number) if self._client.outcomes is not None else []
        while self._turn(self._ack, number):
            pass
        for each in done:
            history.note(each)
        old = [claim for claim in self._files.numbers() if claim <= number]
        if old and (some_wait or self._client.options.index_sync_ms == 0):
            # Where messages of theirs wait again, a restore must not find them claimed for long.
            self._client.syncs.sync_index()
            self._files.remove(old)
        elif old:
            self._done = old
            self._done_ticket = self._client.syncs.index.ticket()
        self._acknowledged = number

    def _carry_out(self, number: int) -> bool:
        """Messages that are not to be acknowledged leave their claims; whether any did."""
        judged = [claim for claim in self._files.judged() if claim <= number]
        if not judged:
            return False
        some_wait = False
        judging = Judging(self._queue, self._claiming, self._entry, self._turn)
        for claim in judged:
            try:
                verdicts = self._files.verdicts(claim)
            except Corrupt:
                if self._marked(claim):
                    raise  # which of these are not to be acknowledged?
                some_wait = True  # a restore let all of them wait
                continue
            judging.carry_out(claim, verdicts)
            some_wait = some_wait or ends_otherwise(verdicts)
        return some_wait

    def _sweep(self) -> None:
        """Files of claims whose end is on disk by now."""
        if self._done and self._kernel.get(L.H_INDEX_DONE) >= self._done_ticket:
            old, self._done = self._done, []
            self._files.remove(old)

    def _ack(self, number: int) -> bool:
        """One turn's worth; True if there is more."""
        claiming, entry = self._claiming, self._entry
        now_us = self._client.clock.wall_us()
        self._client.advance_rates(now_us)
        done = claiming.ack(entry, number, CLAIMED_A_TURN_MAX, now_us)
        slot = claiming.first(entry)
        if slot == 0 or claiming.claim_of(slot) > number:
            claiming.seen(entry, now_us)
            self._kernel.commit()
            return False
        if done < CLAIMED_A_TURN_MAX:
            claiming.ack_spilled(entry, spilled_bytes(self._client, slot), now_us)
        return True

    def release(self, number: int) -> int:
        """Give the messages of an open claim back to the order, with their numbers and attempts; how many. If it fails,
        the same call goes on with it."""
        self._join()
        if self._ahead is not None and self._ahead.number == number:
            self._ahead = None
        if number not in self._releasing or number <= self._committed:
            self._releasing[number] = self._require(number)
        count = self._releasing[number]
        self._files.write(number, array("Q"))  # on disk first: after a restore nobody may claim them again
        self._return(number)
        del self._releasing[number]
        return count

    def _return(self, number: int) -> None:
        start = self._turn(self._claiming.last, self._entry)
        while start:
            now_us = self._client.clock.wall_us()
            start = self._turn(self._claiming.give_back, self._entry, number, start, CLAIMED_A_TURN_MAX, now_us)
        self._files.unjudge(number)
        if number < max(self._files.numbers()):
            self._files.remove([number])  # the last one stays: numbers go on behind it, whatever is lost

    def _forget(self) -> None:
        claims = self.claims()
        if claims:
            raise Misuse(
                f"{self._client.name}: receiver {self.name!r} has open claims ({', '.join(map(str, claims))}): commit "
                f"or release them first"
            )
        self._client.syncs.sync_index()  # without the files a restore would have committed messages wait again
        self._turn(self._claiming.forget, self._entry)
        self._files.remove_all()

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Let go of the name. The claims stay."""
        self._let_go(wait=True)

    def _let_go(self, *, wait: bool) -> None:
        thread, self._thread = self._thread, None
        if os.getpid() != self._pid:
            self._behind, self._making = [], threading.Lock()  # the parent's thread is not here
        elif thread is not None:
            thread.shutdown(wait=wait)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Receiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            with contextlib.suppress(OSError):  # at interpreter exit; the system frees the rest
                self._let_go(wait=False)  # the last to have us may be that thread, which is through by then

    def __repr__(self) -> str:
        return f"<Receiver {self.name} of {self._client.name}>"


def _spilled(rows: Rows) -> list[str]:
    """Names of bodies that are files."""
    return [
        body_name(rows[index * REFERENCE_WORDS + F_NUMBER], rows[index * REFERENCE_WORDS + F_SLOT])
        for index, info in enumerate(rows[F_INFO::REFERENCE_WORDS])
        if info >> L.FLAGS_SHIFT & L.FLAG_SPILLED
    ]


# ---------------------------------------------------------------- fork: a name stays with the process that took it

_receivers: weakref.WeakSet[Receiver] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Only close: the lock belongs to the description, which the parent has as well."""
    for receiver in list(_receivers):
        with contextlib.suppress(OSError):
            receiver.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
