"""Owns reading a macro queue as a stream: a batch has the messages of one claim of some of its members each.

The offset says for every member how far the query is there, as the offset of a query of that member alone would.
Members are read by ``stream.ClaimReader``; here is what joins them: which of them give how much to a batch, who joins
and who leaves, and what happens when one fails. Never claims from a member that is not in a logged offset: so whatever
is killed, and whoever is removed meanwhile, every claim that was made is found again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.errors import ClaimLost, Misuse, PenstockError, ReceiverBusy, ReceiverLost, TooManyReceivers
from penstock.manager.membership import Leaf
from penstock.spark import bykeys, finding
from penstock.spark.claimed import NEW_CHECKPOINT, SKIP, PartOfClaim
from penstock.spark.shares import KEYS, by_member_priority, shares
from penstock.spark.snapshot import share
from penstock.spark.stream import ClaimReader, is_enough, limits, read_part
from penstock.store import layout as L
from penstock.timequeue.claims import Claim

log = logging.getLogger("penstock")

RETRY_S = 5.0  # until a member that failed is looked at again: opening a damaged queue may take a while each time

# What is wrong between the query and a member, which an operator must see. All else is a member that fails.
STOPS = (Misuse, ClaimLost, ReceiverBusy, ReceiverLost, TooManyReceivers)

Found = TypeVar("Found")


class Mark(NamedTuple):
    """How far a query is in a member: the last claim of it that is in a batch."""

    identity: str
    claim: int
    messages: int


NOWHERE = Mark("", 0, 0)
Marks = dict[str, Mark]  # by the members' UUIDs


class MacroReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's stream of claims of several queues."""

    def __init__(self, given: dict[str, Any], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._name: str = given["receiver"]
        self._members: finding.Members | None = None
        self._gate: finding.Check | None = None
        self._readers: dict[str, ClaimReader] = {}
        self._failed: dict[str, float] = {}  # when to look again
        self._only_now: set[str] | None = None  # with a trigger that ends: the members that were there when it began
        self._first = 0  # whose turn it is

    # ------------------------------------------------------------ what Spark calls

    def initialOffset(self) -> dict[str, Any]:
        """Before all claims, and before all members. Spark asks more than once."""
        return self._offset({})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._given["maxRows"])

    def prepareForTriggerAvailableNow(self) -> None:
        """What is due now in those that are members now is what the query is about."""
        leaves = self._leaves()
        self._open_all(leaves, {})
        ready = [uuid for uuid in leaves if self._try(uuid, _is_prepared)]
        self._only_now = set(ready)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Claims that are open already, found again, else new ones; or members that are new; ``start`` if there is
        nothing."""
        began = self._meant(start)
        leaves = self._leaves()
        self._open_all(leaves, began)
        done = [uuid for uuid in began if self._try(uuid, self._finish, uuid, began)]
        end = self._found_again(began, done, limit) or self._claimed(leaves, done, limit)
        if not end and self._freed(done):
            end = self._claimed(leaves, done, limit)
        for uuid in done:
            self._try(uuid, _settle, bool(end))
        joined = {uuid: self._began_at(uuid) for uuid in leaves if uuid not in began and uuid in self._readers}
        if not end and not joined:
            return start
        stay = {uuid: mark for uuid, mark in began.items() if uuid in leaves or self._is_unfinished(uuid, mark, done)}
        self._leave(began.keys() - stay.keys() - end.keys())
        return self._offset({**stay, **joined, **end})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For people, in the query's progress: what waits in all members, and how many cannot be read now."""
        leaves = self._leaves()
        self._open_all(leaves, {})
        said = [self._try(uuid, ClaimReader.reportLatestOffset) for uuid in leaves]
        known = [each for each in said if each is not None]
        return {
            "members": len(leaves),
            "failed": len(leaves) - len(known),
            "due": sum(each["due"] for each in known),
            "waiting": sum(each["waiting"] for each in known),
            "oldestDueMs": max((each["oldestDueMs"] for each in known), default=0),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = self._meant(start), self._meant(end)
        new = [uuid for uuid, mark in after.items() if mark.messages and mark.claim != before.get(uuid, NOWHERE).claim]
        messages = sum(after[uuid].messages for uuid in new)
        by_keys = bykeys.is_wanted(self._schema)
        wanted = self._given["partitions"]
        parts: list[PartOfClaim] = []
        for uuid in new:
            reader = self._required(uuid, after[uuid].claim)
            if reader is not None:
                some = 1 if by_keys else share(wanted, after[uuid].messages, messages)
                parts += reader.parts(self._of(uuid, before), self._of(uuid, after), some)
        return bykeys.split(parts, self._given) if by_keys else parts

    def read(self, partition: PartOfClaim | bykeys.PartOfKeys) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._given, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """What fails here is acknowledged when the next batch is asked for."""
        done = self._meant(end)
        for uuid in done:
            self._try(uuid, ClaimReader.commit, self._of(uuid, done))

    def stop(self) -> None:
        """The claims stay."""
        self._leave(list(self._readers))
        self._members = self._gate = None

    # ------------------------------------------------------------ offsets

    def _offset(self, marks: Marks) -> dict[str, Any]:
        """Spark compares offsets as texts: names and members come in this order."""
        members = {uuid: list(marks[uuid]) for uuid in sorted(marks)}
        return {"macro": self._macro().uuid, "receiver": self._name, "members": members}

    def _meant(self, offset: dict[str, Any]) -> Marks:
        """How far it is in each member, if it is one of this macro queue and this receiver."""
        try:
            macro, name = offset["macro"], offset["receiver"]
            marks = {uuid: Mark(*mark) for uuid, mark in offset["members"].items()}
        except (KeyError, TypeError, AttributeError):
            raise Misuse(
                f"{self._given['path']}: the checkpoint is not one of a stream from a macro queue: its offset is "
                f"{offset!r}; {NEW_CHECKPOINT}"
            ) from None
        if macro != self._macro().uuid:
            raise Misuse(
                f"{self._given['path']}: the checkpoint belongs to another macro queue ({macro}) than is here now "
                f"({self._macro().uuid}); {NEW_CHECKPOINT}"
            )
        if name != self._name:
            raise Misuse(
                f"{self._given['path']}: the checkpoint belongs to receiver {name!r}, not {self._name!r}; use that "
                f"name, or a new checkpoint"
            )
        return marks

    def _of(self, uuid: str, marks: Mapping[str, Mark]) -> dict[str, Any]:
        """The offset of a query of this member alone."""
        mark = marks.get(uuid, NOWHERE)
        return {"queue": uuid, "receiver": self._name, **mark._asdict()}

    def _began_at(self, uuid: str) -> Mark:
        """Of a member that joins: from here on the checkpoint knows where it began."""
        offset = self._readers[uuid].where_it_begins()
        return Mark(offset["identity"], offset["claim"], 0)

    # ------------------------------------------------------------ members

    def _macro(self) -> finding.Members:
        if self._members is None:
            self._members = finding.Members(self._given["path"])
            self._gate = finding.gate(self._given, "consumer")
        return self._members

    def _leaves(self) -> dict[str, Leaf]:
        """Those that are members now, by UUID. One whose files do not even say that fails."""
        return {leaf.uuid: leaf for leaf in self._macro().leaves() if leaf.uuid}

    def _open_all(self, leaves: Mapping[str, Leaf], began: Marks) -> None:
        """In the order of their UUIDs: two queries of one name do not wait for each other."""
        tried = sorted(leaves.keys() | began.keys())
        failures = [error for uuid in tried if (error := self._opened(uuid, leaves)) is not None]
        if leaves and failures and not self._readers:
            raise failures[0]

    def _opened(self, uuid: str, leaves: Mapping[str, Leaf]) -> Exception | None:
        """Read this member from now on, if it can be and is not yet; what went wrong."""
        if uuid in self._readers or self._failed.get(uuid, 0.0) > time.monotonic():
            return None
        place = leaves[uuid].place if uuid in leaves else self._macro().place_of(uuid)
        if place is None:
            self._failed[uuid] = time.monotonic() + RETRY_S  # looking for it in the whole root takes a while, too
            return None
        reader = ClaimReader({**self._given, "path": place, "root": None}, self._schema)
        try:
            reader.begin(uuid)
        except STOPS:
            raise
        except (PenstockError, OSError) as error:
            self._pass_over(uuid, place, error)
            return error
        self._failed.pop(uuid, None)
        self._readers[uuid] = reader
        return None

    def _pass_over(self, uuid: str, name: str, error: Exception) -> None:
        """It is looked at again later. What of it is claimed and not finished stays so until then."""
        log.warning("%s: passed over for %g s: %s", name, RETRY_S, error)
        self._failed[uuid] = time.monotonic() + RETRY_S
        if self._only_now is not None:
            self._only_now.discard(uuid)  # what was due when it began is not known any more
        self._leave([uuid])

    def _leave(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            reader = self._readers.pop(uuid, None)
            if reader is not None:
                with contextlib.suppress(PenstockError, OSError):
                    reader.stop()

    def _try(self, uuid: str, work: Callable[..., Found], *given: Any) -> Found | None:
        """What a member has to say; None if it fails, and while it is passed over."""
        reader = self._readers.get(uuid)
        if reader is None:
            return None
        try:
            return work(reader, *given)
        except STOPS:
            raise
        except (PenstockError, OSError) as error:
            self._pass_over(uuid, reader.path, error)
            return None

    def _required(self, uuid: str, claim: int) -> ClaimReader | None:
        """A member of which the batch has messages. There is no batch without it: its error ends the query, which goes
        on with the same batch when it is started again. None if what is lost may be passed over."""
        if uuid in self._readers:
            return self._readers[uuid]
        leaves = self._leaves()
        self._failed.pop(uuid, None)
        error = self._opened(uuid, leaves)
        if error is not None:
            raise error
        if uuid not in self._readers and self._given["onLostClaim"] != "skip":
            raise ClaimLost(uuid, self._name, claim, f"is lost with its queue. What to do: {NEW_CHECKPOINT}; or {SKIP}")
        return self._readers.get(uuid)

    # ------------------------------------------------------------ what is done with

    def _finish(self, reader: ClaimReader, uuid: str, began: Marks) -> bool:
        reader.finish(self._of(uuid, began))
        return True

    def _freed(self, done: Sequence[str]) -> bool:
        """Whether something that waited for others of its key may be free, now that those are done."""
        freed = [self._try(uuid, ClaimReader.free_keys) for uuid in done]
        return any(freed)

    def _is_unfinished(self, uuid: str, mark: Mark, done: Sequence[str]) -> bool:
        """Of a member no more: whether there is, or may be, something that the query must still complete. One that
        cannot be found may be back some day: without its mark what was finished of it would be read again."""
        return uuid not in done or bool(self._try(uuid, ClaimReader.found_again, mark.claim))

    # ------------------------------------------------------------ the next batch

    def _found_again(self, began: Marks, done: Iterable[str], limit: ReadLimit) -> Marks:
        """Claims that are open and in no batch yet, the first of each member: as many as fit, and at least one."""
        room, _ = limits(self._given, limit)
        end: Marks = {}
        for uuid in sorted(done):
            number = self._try(uuid, ClaimReader.found_again, began[uuid].claim)
            if not number:
                continue
            mark = self._mark(uuid, number)
            if not end or mark.messages <= room:
                end[uuid] = mark
                room -= mark.messages
        return end

    def _mark(self, uuid: str, number: int) -> Mark:
        offset = self._readers[uuid].offset_of(number)
        return Mark(offset["identity"], offset["claim"], offset["messages"])

    def _claimed(self, leaves: Mapping[str, Leaf], done: Sequence[str], limit: ReadLimit) -> Marks:
        """New claims, of as many members as it takes. One that was killed in between has them found again."""
        assert self._gate is not None
        self._gate.check("get")
        rows, size_bytes = limits(self._given, limit)
        end: Marks = {}
        for uuid, most in self._plan([leaf for uuid, leaf in leaves.items() if uuid in done], rows):
            made = self._try(uuid, _take, min(most, rows), size_bytes, not end)
            if made is None:
                continue
            end[uuid] = self._mark(uuid, made.number)
            rows -= made.count
            if size_bytes is not None:
                size_bytes -= self._readers[uuid].size_bytes(made)
            if rows < 1 or (size_bytes is not None and size_bytes < L.UNIT_BYTES):
                break
        return end

    def _plan(self, leaves: Sequence[Leaf], rows: int) -> list[tuple[str, int]]:
        """Whom to claim from, in which order, and the most of each; nobody if there is too little."""
        due = [leaf for leaf in leaves if self._may_give(leaf) and self._try(leaf.uuid, ClaimReader.is_due)]
        if not due or not self._is_enough(due, rows):
            return []
        consuming = self._macro().options().consuming
        if consuming not in KEYS or len(due) == 1:
            planned = by_member_priority([leaf.priority for leaf in due], rows)
        else:
            found = [self._try(leaf.uuid, ClaimReader.peek, rows) for leaf in due]
            there = [(leaf, some) for leaf, some in zip(due, found, strict=True) if some is not None]
            due = [leaf for leaf, _ in there]
            planned = shares(consuming, [some for _, some in there], rows, self._first % len(due)) if due else []
            self._first += 1
        return [(due[member].uuid, most) for member, most in planned]

    def _may_give(self, leaf: Leaf) -> bool:
        return leaf.active and (self._only_now is None or leaf.uuid in self._only_now)

    def _is_enough(self, due: Sequence[Leaf], rows: int) -> bool:
        if self._only_now is not None:
            return True
        now_us = max((self._try(leaf.uuid, ClaimReader.now_us) or 0 for leaf in due), default=0)
        return is_enough(self._given, rows, lambda enough: self._due(due, enough), now_us)

    def _due(self, leaves: Sequence[Leaf], enough: int) -> tuple[int, int]:
        """In all of them: how many are due, and since when the oldest is."""
        said = [self._try(leaf.uuid, ClaimReader.due, enough) or (0, 0) for leaf in leaves]
        return sum(count for count, _ in said), min((oldest for _, oldest in said if oldest), default=0)


def _is_prepared(reader: ClaimReader) -> bool:
    reader.prepareForTriggerAvailableNow()
    return True


def _settle(reader: ClaimReader, behind: bool) -> None:
    reader.settle(behind=behind)


def _take(reader: ClaimReader, most_rows: int, most_bytes: int | None, at_least_one: bool) -> Claim | None:
    return reader.take(most_rows, most_bytes, at_least_one=at_least_one)
