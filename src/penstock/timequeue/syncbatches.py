"""Owns the decisions of the synchronization component (S14, S15): which requests one sync serves, when it is due, who
is told, and when the next may begin. Requests, confirmations and the time come in, what is to be done comes out. Knows
no pipe, no file and no queue, and never reads a clock.

Both flows of the description can be followed here, by the numbers in its figures. FIG. 4, two phases: a request is
queued (416, 428) and its receipt is due (418, 430); then all that gathered are synced (434), each of the N that wait is
told (436), and no further sync begins before each has confirmed that (438 to 444), or time is up. FIG. 5, the decisions
on the way: whether a request fits into the batch (510, 515), else whether it is skipped or saved for the next (555,
560); whether to sync now (520); and when all have confirmed, the batch is cleared (545) and the next begins with what
was saved (550). FIG. 6 is FIG. 5 where everything fits.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

from penstock.timequeue.syncframes import Range, Request, Who

SAVED_MAX = 4096  # more than all clients of a queue with a few threads each: whoever is not saved helps himself
CONFIRM_US = 5_000  # so long a batch waits for one that was told: dead, stopped, or on a very busy machine
NO_LIMIT = 1 << 60
IDLE_SHARE = 1.0  # automatic, of the time that a sync usually takes: so long it waits for the next of those it served
USUAL_SHARE = 0.25  # of the last sync in what is usual
NAP_SHARE = 0.5  # of the time that those who are still missing usually take: so long it does not look
NAP_US_MIN = 50  # a shorter nap costs as much as it saves
NAP_MISSING_MIN = 8  # so few may each wake it


@dataclass(frozen=True)
class Limits:
    """The described options (S15)."""

    batch_bytes_max: int = 64 << 20  # most bytes a batch: about what a disk writes in a client's patience
    batch_requests_max: int = 1024  # most requests a batch: as many as there can be clients
    gather_us: int = 2_000  # longest gathering time, from the first request on
    idle_us: int = 500  # longest time without a new request
    gap_bytes: int = 16 << 20  # largest gap that counts as contiguous
    automatic: bool = True  # instead of ``idle_us``, and so the gathering time, what the load suggests


class State(Enum):
    GATHERING = "gathering"
    SYNCING = "syncing"
    CONFIRMING = "confirming"


AFTER = {State.GATHERING: State.SYNCING, State.SYNCING: State.CONFIRMING, State.CONFIRMING: State.GATHERING}
# Again for the compiled core: a name of the module is quicker to look up than one of the class.
_GATHERING, _SYNCING, _CONFIRMING = State


class Ranges:
    """Bytes to be synced: sorted, and one range where the gap between two counts as none."""

    def __init__(self, gap_bytes: int) -> None:
        self._gap_bytes = gap_bytes
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.total_bytes = 0  # without the gaps

    def __bool__(self) -> bool:
        return bool(self._starts)

    def is_near(self, start: int, length: int) -> bool:
        """Whether it is contiguous with what is there, or nearly."""
        at = bisect_left(self._starts, start)
        if at > 0:
            end = self._ends[at - 1]
            if start <= end + self._gap_bytes:
                return True
        if at < len(self._starts):
            following = self._starts[at]
            return following <= start + length + self._gap_bytes
        return False

    def add(self, start: int, length: int) -> None:
        first = bisect_left(self._starts, start)
        end = start + length
        if first > 0:
            before = self._ends[first - 1]
            if start <= before + self._gap_bytes:
                first -= 1
        last = first
        while last < len(self._starts):
            following = self._starts[last]
            if following > end + self._gap_bytes:
                break
            start, end = min(start, following), max(end, self._ends[last])
            last += 1
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        self.total_bytes += length

    def merged(self) -> list[Range]:
        return [(start, end - start) for start, end in zip(self._starts, self._ends, strict=True)]


class Batches:
    """The requests of one queue, from their receipt to the confirmation that they were confirmed."""

    def __init__(self, limits: Limits, *, data_bytes: int) -> None:
        self._data_bytes = data_bytes
        self.limit(limits)
        self.state = _GATHERING
        self._batch: list[Request] = []
        self._ranges = Ranges(self._gap_bytes)
        self._saved: list[tuple[Request, int]] = []  # and when they came
        self._unconfirmed: set[Who] = set()
        self._first_us = self._last_us = 0  # when the batch's first and last request came
        self._since_us = 0  # when the sync began, or those that wait were told
        self._expected = 1  # requests that are likely to come soon: of those that were served last
        self._usual_us = 0.0
        self._told_us = 0  # when those that were served last were told
        self._usual_gather_us = 0.0  # from then until the last of a batch has come

    def limit(self, limits: Limits) -> None:
        """From now on. Numbers that no queue reaches are as good as any: the compiled core has words for them."""
        self._batch_bytes_max = min(limits.batch_bytes_max, NO_LIMIT)
        self._batch_requests_max = min(limits.batch_requests_max, NO_LIMIT)
        self._gather_us = limits.gather_us
        self._fixed_idle_us = limits.idle_us
        self._gap_bytes = min(limits.gap_bytes, NO_LIMIT)
        self._automatic = limits.automatic

    # ------------------------------------------------------------ the first phase: request and receipt

    def request(self, request: Request, now_us: int) -> bool:
        """One came (505). Whether its receipt is due; if not, it was skipped."""
        if not self._is_possible(request) or len(self._saved) >= SAVED_MAX:
            return False
        self._sort_in(request, now_us)
        return True

    def _is_possible(self, request: Request) -> bool:
        """The bounds are checked before anything is done with them."""
        for offset, length in request.ranges:
            if not 0 < length <= self._data_bytes or offset > self._data_bytes - length:
                return False
        return True

    def _sort_in(self, request: Request, came_us: int) -> None:
        if self.state is _GATHERING and self._fits(request):
            if not self._batch:
                self._first_us = came_us
            self._last_us = came_us
            self._batch.append(request)  # 515, 620
            for offset, length in request.ranges:
                self._ranges.add(offset, length)
        else:
            self._saved.append((request, came_us))  # 560

    def _fits(self, request: Request) -> bool:
        """510: an empty batch takes anything, or what is too large would never be synced."""
        if not self._batch:
            return True
        if len(self._batch) >= self._batch_requests_max:
            return False
        left_bytes = self._batch_bytes_max - self._ranges.total_bytes
        for offset, length in request.ranges:
            left_bytes -= length
            if left_bytes < 0 or not self._ranges.is_near(offset, length):
                return False
        return True

    # ------------------------------------------------------------ the second phase: sync, confirm, be confirmed

    def sync_due(self, now_us: int) -> bool:
        """520, 630."""
        return self.state is _GATHERING and bool(self._batch) and (self._is_full() or now_us >= self._closes_us())

    def _is_full(self) -> bool:
        return (
            len(self._batch) >= self._batch_requests_max
            or self._ranges.total_bytes >= self._batch_bytes_max
            or (self._automatic and len(self._batch) + len(self._saved) >= self._expected)
        )

    def _closes_us(self) -> int:
        return min(self._first_us + self._gather_us, self._last_us + self.idle_us())

    def idle_us(self) -> int:
        """How long a batch waits for its next request, now. Automatic, it gathers as long as they keep coming."""
        return min(int(IDLE_SHARE * self._usual_us), self._gather_us) if self._automatic else self._fixed_idle_us

    def confirm_us(self) -> int:
        """How long the next batch waits at most for those that were told, now. Each has pipes of its own, so nobody
        takes the confirmation of one who is late: all that is waited for is that they come together."""
        return min(self.idle_us(), CONFIRM_US) if self._automatic else CONFIRM_US

    def begin(self, now_us: int) -> list[Range]:
        """What is to be synced now (434, 530, 640). What comes from here on belongs to the next batch."""
        gathered_us = min(max(self._last_us, self._told_us) - self._told_us, self._gather_us)
        self._usual_gather_us += USUAL_SHARE * (gathered_us - self._usual_gather_us)
        self._advance(now_us)
        return self._ranges.merged()

    def synced(self, now_us: int) -> list[Request]:
        """It is done: those to be told (436, 535, 650)."""
        self._usual_us += USUAL_SHARE * (now_us - self._since_us - self._usual_us)
        self._expected = len(self._batch) + len(self._saved)
        self._told_us = now_us
        self._advance(now_us)
        self._unconfirmed = {some.who() for some in self._batch}
        return self._batch

    def confirmed(self, who: Who) -> None:
        """It knows that it was confirmed (440, 442, 540, 660)."""
        self._unconfirmed.discard(who)

    def gone(self, who: Who) -> None:
        """It cannot be told, and is not waited for."""
        self._unconfirmed.discard(who)

    def look(self, now_us: int) -> None:
        """When all have confirmed, or time is up, the next batch begins with what was saved (545, 550)."""
        if self.state is _CONFIRMING and (not self._unconfirmed or now_us >= self._since_us + self.confirm_us()):
            self._advance(now_us)
            self._batch = []
            self._ranges = Ranges(self._gap_bytes)
            self._unconfirmed = set()
            saved, self._saved = self._saved, []
            for request, came_us in saved:
                self._sort_in(request, came_us)

    def give_up(self) -> list[Request]:
        """All that still wait. None of them is synced by us."""
        waiting = [] if self.state is _CONFIRMING else self._batch
        waiting = waiting + [request for request, _ in self._saved]
        self._batch, self._saved = [], []
        self._ranges = Ranges(self._gap_bytes)
        self._unconfirmed = set()
        self.state = _GATHERING
        return waiting

    def next_look_us(self) -> int | None:
        """When time alone will change something; None if nothing but a request can."""
        if self.state is _CONFIRMING:
            return self._since_us + self.confirm_us()
        return self._closes_us() if self._batch else None

    def nap_us(self, now_us: int) -> int:
        """How long it need not look at what comes, since many are still missing for the next batch; 0: it must look.
        Automatic only. Each that woke it would lose the processor to it, perhaps with the queue's lock in hand."""
        due_us = self.next_look_us()
        missing = self._expected - len(self._saved)
        if self.state is _GATHERING:
            missing -= len(self._batch)
        if (
            not self._automatic
            or missing < NAP_MISSING_MIN
            or due_us is None
            or now_us >= due_us
            or self.sync_due(now_us)
        ):
            return 0
        nap_us = min(NAP_SHARE * self._usual_gather_us * missing / self._expected, due_us - now_us)
        return int(nap_us) if nap_us >= NAP_US_MIN else 0

    def _advance(self, now_us: int) -> None:
        self.state = AFTER[self.state]
        self._since_us = now_us
