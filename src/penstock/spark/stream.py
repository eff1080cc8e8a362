"""Owns reading a queue as a stream: the offset is the number of a claim, and a batch has the messages of one claim.

Spark's side of the protocol, in the one long-lived process that plans the batches: which claim is next, what was
acknowledged, and whether checkpoint and queue speak of the same. Claims are kept by ``timequeue.claims``; the queue is
opened at the first call that needs it and stays open. Tasks only read: see ``claimed``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import ClaimLost, Misuse, PenstockError, QueueNotFound
from penstock.spark import bykeys, finding, snapshot, workers
from penstock.spark.claimed import NEW_CHECKPOINT, SKIP, PartOfClaim, claimed_reader
from penstock.spark.snapshot import Place
from penstock.store import gather as G
from penstock.store import layout as L
from penstock.store.directory import read_options
from penstock.timequeue import TimeQueue, open_queue
from penstock.timequeue.claims import Claim, Receiver
from penstock.timequeue.selection import Selection

ROWS_MOST = L.SLOTS_MAX


class ClaimReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's stream of claims."""

    def __init__(self, given: dict[str, Any], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._gate: finding.Check | None = None
        self._name: str = given["receiver"]
        self._skip = given["onLostClaim"] == "skip"
        self._uuid: str | None = None
        self._identity = ""
        self._queue: TimeQueue | None = None
        self._receiver: Receiver | None = None
        self._open: dict[int, int] = {}  # claims that are open, and how many messages each has
        self._fresh: Claim | None = None  # the last one made here, whose file need not be read again
        self._selection: Selection | None = None
        self._bounds: dict[str, int] = {}  # of numbers and times
        self._only_now = False
        self._chosen: tuple[int, ReadLimit] | None = None  # the claim of the next batch, which tasks do not read yet

    # ------------------------------------------------------------ what Spark calls

    def initialOffset(self) -> dict[str, Any]:
        """Before all claims. Spark asks more than once."""
        return self._offset(0, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._given["maxRows"])

    def prepareForTriggerAvailableNow(self) -> None:
        """What is due now is what the query is about: nothing that is put or becomes due later."""
        self._start()
        client = self._live_queue()._mine()
        self._only_now = True
        self._bounds = {"below": client.kernel.get(L.H_NUMBER_NEXT), "due_us": client.clock.wall_us()}
        self._selection = self._select(**self._bounds)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next claim: one that is open already, found again, else a new one; ``start`` if there is nothing.

        All up to ``start`` is done with, also where Spark would not say so: the last batch before it stopped.
        """
        claim = self.finish(start)
        following = self._following(claim, limit)
        if not following and self.free_keys():
            following = self._following(claim, limit)
        if following:
            self._chosen = following, limit
            return self.offset_of(following)
        self.settle(behind=False)
        return self.where_it_begins() if claim == 0 else start

    def finish(self, start: dict[str, Any]) -> int:
        """Acknowledge all up to here; the number of its last claim."""
        claim, messages = self._meant(start)
        self._acknowledge(claim, messages)
        return claim

    def free_keys(self) -> bool:
        """What waited for others of its key, which are done, is free from here on. False if there is no such thing."""
        if not self._live_queue()._mine().options.exclusive_keys:
            return False
        self.settle(behind=False)
        return True

    def settle(self, *, behind: bool) -> None:
        """The kernel follows what is acknowledged; while tasks run, if there are any."""
        self._start().settle(behind=behind)

    def _following(self, claim: int, limit: ReadLimit) -> int:
        """The number of the claim behind this one; 0 if there is none."""
        found = self.found_again(claim)
        if not found and self.is_due():
            most_rows, most_bytes = limits(self._given, limit)
            made = self.take(most_rows, most_bytes) if self._is_enough(most_rows) else None
            found = made.number if made is not None else 0
        return found

    def _claim_ahead(self, claim: int, limit: ReadLimit) -> None:
        """With a trigger that ends all that is due will be read: the batch after this one is claimed while tasks read
        this one. Elsewhere it is not, since the query may be stopped, and nobody else could have those messages."""
        if self._only_now and claim == max(self._open):
            self._admitted().claim_ahead(*limits(self._given, limit), selection=self._selection)

    def found_again(self, claim: int) -> int:
        """The number of the first open claim behind this one, which nobody has logged; 0 if there is none."""
        self._know(self._start().claimed_ahead())
        return min((number for number in self._open if number > claim), default=0)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For people, in the query's progress: the last claim, and what waits behind it."""
        receiver = self._start()
        backlog = receiver.backlog()
        age_us = self.now_us() - backlog.oldest_us if backlog.oldest_us else 0
        return {
            "claim": receiver.last,
            "due": backlog.due,
            "waiting": backlog.waiting,
            "oldestDueMs": max(age_us // 1000, 0),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if bykeys.is_wanted(self._schema):
            parts: Sequence[InputPartition] = bykeys.split(self.parts(start, end, 1), self._given)
        else:
            parts = self.parts(start, end, self._given["partitions"])
        self._go_on()
        return parts

    def _go_on(self) -> None:
        """While tasks read, and not before: until then Spark asks and waits for answers, and each would come 5 ms later
        where another thread is at work."""
        chosen, self._chosen = self._chosen, None
        if chosen is not None:
            self.settle(behind=True)
            self._claim_ahead(*chosen)

    def parts(self, start: dict[str, Any], end: dict[str, Any], wanted: int) -> list[PartOfClaim]:
        first, _ = self._meant(start)
        claim, messages = self._meant(end)
        if first == claim or messages == 0:
            return []
        if not self._is_open(claim, messages):
            return []
        self._refuse_between(first, claim)
        parts = snapshot.ranges(self._references(claim), wanted)
        return [PartOfClaim(self._place(), self._name, claim, *part) for part in parts]

    def read(self, partition: PartOfClaim | bykeys.PartOfKeys) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._given, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        claim, messages = self._meant(end)
        if claim > self._start().committed:
            self._acknowledge(claim, messages)
            self._start().settle(behind=True)

    def stop(self) -> None:
        """The claims stay."""
        self._selection = self._fresh = None
        receiver, self._receiver = self._receiver, None
        queue, self._queue = self._queue, None
        if receiver is not None:
            if self._chosen is not None:  # no task came: what is acknowledged leaves the kernel now
                with contextlib.suppress(PenstockError, OSError):  # or with the next receiver of this name
                    receiver.settle(behind=True)
            receiver.close()
        if queue is not None:
            queue.close()

    # ------------------------------------------------------------ offsets

    def _offset(self, claim: int, messages: int) -> dict[str, Any]:
        """Spark compares offsets as texts: the names come in this order."""
        if self._uuid is None:
            self._uuid = read_options(Path(self._given["path"])).uuid
        identity = self._identity if claim else ""  # before all claims there need be no receiver
        return {
            "queue": self._uuid,
            "receiver": self._name,
            "identity": identity,
            "claim": claim,
            "messages": messages,
        }

    def offset_of(self, claim: int) -> dict[str, Any]:
        """Where the query is with this claim, an open one."""
        return self._offset(claim, self._open[claim])

    def where_it_begins(self) -> dict[str, Any]:
        """For a checkpoint without claims: from here on it knows."""
        return self._offset(self._start().committed, 0)

    def _meant(self, offset: dict[str, Any]) -> tuple[int, int]:
        """Claim and number of its messages, if it is one of this queue and this receiver."""
        try:
            queue, name, claim, messages = (offset[field] for field in ("queue", "receiver", "claim", "messages"))
        except (KeyError, TypeError):
            raise Misuse(f"the checkpoint is not one of a Penstock stream: its offset is {offset!r}") from None
        if queue != self._offset(0, 0)["queue"]:
            raise Misuse(
                f"{self._given['path']}: the checkpoint belongs to another queue ({queue}) than is here now "
                f"({self._uuid}), perhaps restored from a copy; {NEW_CHECKPOINT}"
            )
        if name != self._name:
            raise Misuse(
                f"{self._given['path']}: the checkpoint belongs to receiver {name!r}, not {self._name!r}; use that "
                f"name, or a new checkpoint"
            )
        self._start()
        if claim and (offset.get("identity") or self._identity) != self._identity:
            raise self._lost(
                claim, "is that of an earlier receiver of this name, which was forgotten since", skip=False
            )
        return int(claim), int(messages)

    # ------------------------------------------------------------ the receiver

    def _start(self) -> Receiver:
        """Open the queue and become the receiver, the first time."""
        if self._receiver is None:
            given = self._given
            self._gate = finding.gate(given, "consumer")
            self._gate.check("get")
            queue = open_queue(given["path"], busy_s=given["busyTimeout"])
            try:
                receiver = queue.receiver(self._name, wait=given["receiverWait"], timeout=given["claimTimeout"])
                self._open = {number: receiver.count(number) for number in receiver.claims()}
                self._identity = receiver.identity()
            except BaseException:
                with contextlib.suppress(PenstockError):
                    queue.close()
                raise
            self._queue, self._receiver = queue, receiver
            if given["types"] or given["keys"]:
                self._selection = self._select()
        return self._receiver

    @property
    def path(self) -> str:
        return str(self._given["path"])

    def begin(self, uuid: str) -> None:
        """Become the receiver, of this very queue and not of another one in its place."""
        if self._offset(0, 0)["queue"] != uuid:
            raise QueueNotFound(f"{self.path}: another queue is here now")
        self._start()

    def _live_queue(self) -> TimeQueue:
        self._start()
        assert self._queue is not None
        return self._queue

    def _select(self, **bounds: int) -> Selection:
        assert self._queue is not None
        return Selection(self._queue._mine(), types=self._given["types"], keys=self._given["keys"], **bounds)

    def _place(self) -> Place:
        queue = self._live_queue()
        client = queue._mine()
        return Place(queue.name, client.options.uuid, client.id_prefix, self._given["busyTimeout"])

    def _references(self, claim: int) -> Any:
        rows = self._start().references(claim) if self._fresh is None or self._fresh.number != claim else None
        if rows is None:
            assert self._fresh is not None
            rows = self._fresh.references
        return np.frombuffer(rows, dtype=np.uint64).reshape(-1, G.REFERENCE_WORDS)

    # ------------------------------------------------------------ claiming

    def is_due(self) -> bool:
        return self._start().is_due()

    def now_us(self) -> int:
        return self._live_queue()._clock.wall_us()

    def peek(self, most_rows: int) -> Any:
        """References of what is due and would be claimed next, up to so many. Nothing is taken."""
        selection = self._selection
        if selection is None or selection.takes_any:
            selection = self._select(**self._bounds)
        selection.look(most_rows)
        return np.frombuffer(selection.found.tobytes(), dtype=np.uint64).reshape(-1, G.REFERENCE_WORDS)[:most_rows]

    def size_bytes(self, claim: Claim) -> int:
        return self._start().size_bytes(claim)

    def take(self, most_rows: int, most_bytes: int | None, *, at_least_one: bool = True) -> Claim | None:
        """Claim what is due, up to so much of it."""
        receiver = self._admitted()
        made = receiver.claim(most_rows, most_bytes, selection=self._selection, at_least_one=at_least_one)
        self._know(made)
        return made

    def _admitted(self) -> Receiver:
        """The receiver, if it may claim."""
        receiver = self._start()
        assert self._gate is not None
        self._gate.check("get")
        return receiver

    def _know(self, made: Claim | None) -> None:
        if made is not None:
            self._open[made.number] = made.count
            self._fresh = made

    def due(self, enough: int) -> tuple[int, int]:
        """How many messages are due that this query takes, counted until there are ``enough``, and since when the
        oldest is."""
        if self._selection is None:
            backlog = self._start().backlog(enough=enough)
            return backlog.due, backlog.oldest_us
        self._selection.look(enough)
        return self._selection.count, self._selection.oldest_us()

    def _is_enough(self, most_rows: int) -> bool:
        return self._only_now or is_enough(self._given, most_rows, self.due, self.now_us())

    # ------------------------------------------------------------ acknowledging

    def _acknowledge(self, claim: int, messages: int) -> None:
        """All claims up to this one are done with."""
        receiver = self._start()
        if claim == 0 or claim == receiver.committed:
            return
        if self._is_open(claim, messages):
            self._refuse_between(0, claim)
            receiver.commit(claim, later=True)
            del self._open[claim]
        if self._fresh is not None and self._fresh.number <= claim:
            self._fresh = None

    def _refuse_between(self, first: int, claim: int) -> None:
        """One claim is one batch: to acknowledge another with it would lose that."""
        between = [number for number in self._open if first < number < claim]
        if between:
            raise self._lost(claim, f"comes after open ones that this checkpoint does not know: {between}", skip=False)

    def _is_open(self, claim: int, messages: int) -> bool:
        """Whether a claim of the checkpoint is there as it was. If not, that is an error, or may be passed over."""
        receiver = self._start()
        if self._open.get(claim) == messages:
            return True
        if claim > receiver.last or claim in self._open:
            # A queue that is older than its checkpoint, or a name that was forgotten: nothing can be told from numbers.
            has = f"has {self._open[claim]} messages, not {messages}" if claim in self._open else "was never made"
            raise self._lost(claim, f"{has}: the queue is not the one that the checkpoint knew", skip=False)
        if self._skip:
            return False
        if claim <= receiver.committed:
            raise self._lost(
                claim,
                f"is acknowledged, and so are all up to {receiver.committed}, which this checkpoint does not know: it "
                f"lost its last entries (a power loss), is an old copy, or another query had this name",
                caution="; not if the query writes to a queue that has a higher batch of it (`penstock publishers ls`)",
            )
        raise self._lost(
            claim, "was released, by an operator or after its claimTimeout: others may have had its messages"
        )

    def _lost(self, claim: int, why: str, *, skip: bool = True, caution: str = "") -> ClaimLost:
        remedy = f"{NEW_CHECKPOINT}; or {SKIP}{caution}" if skip else NEW_CHECKPOINT
        return ClaimLost(self._live_queue().name, self._name, claim, f"{why}. What to do: {remedy}")


def limits(given: dict[str, Any], limit: ReadLimit) -> tuple[int, int | None]:
    """Most rows and bytes of a batch, by the options and by what Spark says."""
    if isinstance(limit, ReadAllAvailable):
        return ROWS_MOST, None
    if isinstance(limit, ReadMaxBytes):
        return given["maxRows"], limit.max_bytes
    return limit.max_rows if isinstance(limit, ReadMaxRows) else given["maxRows"], given["maxBytes"]


def is_enough(given: dict[str, Any], most_rows: int, due: Callable[[int], tuple[int, int]], now_us: int) -> bool:
    """Whether a batch is worth it: ``minRows`` are due, or the oldest has been for ``maxDelay``."""
    least = min(given["minRows"], most_rows)
    if least == 1:
        return True
    count, oldest_us = due(least)
    return count >= least or (count > 0 and now_us - oldest_us >= given["maxDelay"] * 1_000_000)


def read_part(
    part: PartOfClaim | bykeys.PartOfKeys, given: dict[str, Any], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """In a task."""
    workers.begin_task()
    if isinstance(part, bykeys.PartOfKeys):
        return bykeys.read(part)
    return claimed_reader(part, given, schema).read_part(part)
