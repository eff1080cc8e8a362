"""Owns moves between two queues: dead letters, messages moved by hand or in bulk, and bringing dead letters back.

A message is put into the other queue and confirmed there, under a key of where it comes from, before it leaves this
one. Whoever dies in between leaves it here, and a note that it was on its way (``store/begun.py``): who gets it next
moves it again, finds the key there, and it is stored once. The key is forgotten only when this queue's disk knows that
the message has gone. Never holds two queues' locks at once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.codec import encode_meta
from penstock.errors import (
    BatchTooLarge,
    LeaseLost,
    Misuse,
    PenstockError,
    QueueBusy,
    QueueClosed,
    QueueExists,
    QueueFull,
    QueueNotFound,
    SyncFailed,
)
from penstock.interface import Names
from penstock.message import PENDING, Message
from penstock.store import layout as L
from penstock.store.begun import BegunMove
from penstock.store.directory import mode_of
from penstock.store.keys import MOVE_KEPT_US, origin_key, origin_of
from penstock.store.options import BESIDE, DELETE
from penstock.store.outcomes import DEAD_LETTERED, DROPPED, MOVED, texts
from penstock.store.outcomes import EXPIRED as EXPIRED_OUTCOME
from penstock.timequeue import forking
from penstock.timequeue.arguments import check_names, queue_path
from penstock.timequeue.holder import Holder
from penstock.timequeue.making import check_whole, make
from penstock.timequeue.puts import Entry, Extra, made
from penstock.timequeue.retries import EXPIRED, PARKED_US

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue

log = logging.getLogger("penstock")

LEASE_US = 60 * 1_000_000  # a message that is being moved is ours for at least so long
SETTLED_AT_ONCE = 64  # moves whose keys are forgotten together, after one index sync
MOVED_AT_ONCE_MAX = 256  # by a bulk move: confirmed by one sync
MOVED_AT_ONCE_BYTES = 8 << 20  # and how much of them is in memory
KEPT = ("x", "a", "b", "l", "d", "r", "e", "y", "q", "w")  # what a message brings to wherever it is moved
DEAD = ".dead"

Progress = Callable[[int], None]
Wanted = Callable[[Message], bool]
Change = Callable[[dict[str, Any]], dict[str, Any]]


def _unchanged(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


def _revived(fields: dict[str, Any]) -> dict[str, Any]:
    """Of a dead letter that is brought back: it starts anew."""
    expired = fields.get("r") == EXPIRED
    gone = ("r", "e", "y", "f", "n", "x") if expired else ("r", "e", "y", "f", "n")
    return {name: value for name, value in fields.items() if name not in gone}


class Moves:
    """The moves out of one queue, and the queues that they go to."""

    def __init__(self, source: TimeQueue) -> None:
        self._source = source
        self._opened: dict[Path, TimeQueue] = {}
        self._replaced: list[TimeQueue] = []  # opened, and no longer what is at their path
        self._unsettled: list[tuple[TimeQueue, list[tuple[int, int]]]] = []  # queue; keys and numbers there
        self._mutex = threading.Lock()  # for the three above

    # ------------------------------------------------------------ one message

    def give_up(self, message: Message, reason: str, error: str | None = None) -> None:
        """A message of ours is not to be delivered any more. If its new queue does not take it, it waits here."""
        options = self._source._mine().options
        consumer = self._source._consumer
        try:
            if options.dead_letter == DELETE or (reason == EXPIRED and options.expired == "drop"):
                self._drop(message, reason, error)
                return
            self.dead_letter(message, reason, error)
        except LeaseLost:
            raise
        except (PenstockError, OSError) as failure:
            log.warning("%s: %s waits, since it could not be moved: %s", self._source.name, message.id, failure)
            consumer.park(message, PARKED_US)

    def give_up_claimed(self, message: Message, reason: str, error: str | None, holder: Holder) -> None:
        """The same for a message of a claim. Whoever died on the way has left it there: it goes on from its note."""
        client = self._source._mine()
        found = client.begun.of(message.number, message.slot)
        try:
            self.dead_letter(message, reason, error, found, holder)
        except LeaseLost:
            raise
        except (PenstockError, OSError) as failure:
            if found is not None and isinstance(failure, (QueueNotFound, QueueFull, Misuse)):
                client.begun.leave_out(*found, message.number, message.slot)  # it is not there
            log.warning("%s: %s waits, since it could not be moved: %s", client.name, message.id, failure)
            holder.park(message, PARKED_US)

    def dead_letter(
        self,
        message: Message,
        reason: str,
        error: str | None = None,
        begun: tuple[str, BegunMove] | None = None,
        holder: Holder | None = None,
    ) -> None:
        """To the dead-letter queue; where those are deleted, away. What was ``begun``, by a note, goes to where it was
        going then."""
        client = self._source._mine()
        if client.options.dead_letter == DELETE and begun is None:
            self._drop(message, reason, error, holder)
            return
        history = client.failures.read(message.number, message.slot)
        if error is not None:
            history.append((client.clock.wall_us(), error))
        last = history[-1][1] if history else None

        def dead(fields: dict[str, Any]) -> dict[str, Any]:
            return {**fields, "r": reason[:1000], "e": error or last, "y": history or None}

        target = self.target(begun[1].to) if begun else self.dead_letters(make_it=True)
        assert target is not None
        move = BegunMove(target.name, [(message.number, message.slot)], dead=True, reason=reason, error=error)
        self._move(target, [message], move, dead, now=True, note=begun[0] if begun else None, holder=holder)

    def _drop(self, message: Message, reason: str, error: str | None = None, holder: Holder | None = None) -> None:
        holder = holder or self._source._consumer
        if message._special and holder.holds(message):
            self._source._answers.give_up((message,), "dropped", reason)
        result = EXPIRED_OUTCOME if reason == EXPIRED else DROPPED
        holder.remove((message,), L.T_DROPPED, result, texts(reason, error))

    def move(self, message: Message, to: TimeQueue | str | os.PathLike[str]) -> None:
        target = self.target(to)
        self._move(target, [message], BegunMove(target.name, [(message.number, message.slot)]), _unchanged, now=True)

    def finish(self, message: Message) -> bool:
        """Whether this message was on its way to another queue when its mover died: it is there now, or waits. If that
        queue is gone or refuses it, it is not there: then it stays here, as if nobody had begun."""
        client = self._source._mine()
        found = client.begun.of(message.number, message.slot)
        if found is None:
            return False
        name, begun = found
        try:
            if begun.dead:
                self.dead_letter(message, begun.reason, begun.error, found)
            else:
                change = _revived if begun.revive else _unchanged
                self._move(self.target(begun.to), [message], begun, change, now=begun.revive, taken=True, note=name)
        except LeaseLost:  # somebody else's by now
            return True
        except (QueueNotFound, QueueFull, Misuse) as refusal:
            if isinstance(refusal, QueueClosed):
                raise
            client.begun.leave_out(name, begun, message.number, message.slot)
            return False
        except (PenstockError, OSError) as failure:
            log.warning("%s: %s waits, since its move was not finished: %s", client.name, message.id, failure)
            with contextlib.suppress(LeaseLost):
                self._source._consumer.park(message, PARKED_US)
        return True

    # ------------------------------------------------------------ many

    def move_many(
        self, target: TimeQueue, wanted: Wanted, *, limit: int | None, progress: Progress | None, revive: bool
    ) -> int:
        """Messages that wait here and were there when this began, due or not; how many were moved."""
        source = self._source
        self._check_other(target)
        if limit is not None:
            check_whole("limit", limit, 0, L.SLOTS_MAX)
        below = source._mine().kernel.get(L.H_NUMBER_NEXT)
        left = L.SLOTS_MAX if limit is None else limit
        moved = 0
        batch: list[Message] = []
        try:
            for seen in source.browse(limit=None):
                if len(batch) + moved >= left:
                    break
                if seen.number < below and wanted(seen):
                    taken = source._consumer.take(seen.slot, seen.number, LEASE_US)
                    if taken is not None and not self._goes_elsewhere(taken, target):
                        batch.append(taken)
                if len(batch) >= MOVED_AT_ONCE_MAX or sum(m.body_bytes for m in batch) >= MOVED_AT_ONCE_BYTES:
                    moved += self._move_some(target, batch, revive)
                    batch = []
                    if progress is not None:
                        progress(moved)
            if batch:
                moved += self._move_some(target, batch, revive)
                if progress is not None:
                    progress(moved)
        except BaseException:
            with contextlib.suppress(PenstockError):
                self._give_back([message for message in batch if message.state == PENDING])
            raise
        self._settle_or_warn()
        return moved

    def _give_back(self, messages: list[Message]) -> None:
        """Nobody was given them to work on: it was no attempt. But one that may be in the other queue keeps it: whoever
        gets it next looks for the note."""
        noted = self._source._mine().begun.messages()
        for message in messages:
            if (message.number, message.slot) in noted:
                with contextlib.suppress(LeaseLost):
                    self._source.release(message)
        self._source.unget(m for m in messages if m.state == PENDING)

    def _goes_elsewhere(self, message: Message, target: TimeQueue) -> bool:
        """Whether its mover died on the way to another queue than this: then it goes there."""
        found = self._source._mine().begun.of(message.number, message.slot) if message.attempts > 1 else None
        return found is not None and found[1].to != target.name and self.finish(message)

    def _move_some(self, target: TimeQueue, batch: list[Message], revive: bool) -> int:
        """All of them, or as many as there is room for."""
        try:
            begun = BegunMove(target.name, [(message.number, message.slot) for message in batch], revive=revive)
            self._move(target, batch, begun, _revived if revive else _unchanged, now=revive, taken=True)
        except (QueueFull, BatchTooLarge):
            if len(batch) == 1:
                raise
            middle = len(batch) // 2
            self._move_some(target, batch[:middle], revive)
            self._move_some(target, batch[middle:], revive)
        return len(batch)

    # ------------------------------------------------------------ the steps of a move

    def _move(
        self,
        target: TimeQueue,
        messages: list[Message],
        begun: BegunMove,
        change: Change,
        *,
        now: bool,
        taken: bool = False,
        note: str | None = None,
        holder: Holder | None = None,
    ) -> None:
        """``taken``: only to be moved, so that this delivery is none that counts. ``note``: of one who died, which the
        caller ends if it is refused. ``holder``: whose they are; by default our consumer's."""
        source = self._source
        held_by: Holder = holder or source._consumer
        self._check_other(target)
        for message in messages:
            held_by.keep(message, LEASE_US)  # and still ours

        def entry_of(message: Message, remembered: bool) -> Entry:
            attempts = message.attempts - 1 if taken else message.attempts
            item = self._entry(target, message, change, now, attempts, remembered)
            item.moved = functools.partial(self._require, message, held_by)
            return item

        notes = source._mine().begun
        name = note or notes.begin(begun)
        try:
            put = self._put(target, messages, entry_of)
        except (QueueBusy, SyncFailed):  # whether it is there is not known
            raise
        except (PenstockError, OSError):
            if note is None:
                notes.end(name)
            raise
        if begun.dead:  # before it is gone here: whoever finishes this after a kill tells it too
            source._answers.give_up(messages, "dead-lettered", begun.reason)
        if begun.dead:
            said = texts(begun.reason, begun.error)
            held_by.remove(messages, L.T_DEAD_LETTERED, DEAD_LETTERED, said)
        else:
            held_by.remove(messages, L.T_MOVED_OUT, MOVED, texts(target.name))
        if len(begun.messages) == len(messages):
            notes.end(name)
        with self._mutex:
            self._unsettled.append((target, [(item.key, item.number) for item in put if item.key]))
            enough = sum(len(keys) for _, keys in self._unsettled) >= SETTLED_AT_ONCE
        if enough:
            self._settle_or_warn()

    def _put(
        self, target: TimeQueue, messages: list[Message], entry_of: Callable[[Message, bool], Entry]
    ) -> list[Entry]:
        """Those that are not there yet; what was put, or found. Where there is no room to remember where they come
        from, what is there says it: keys of movers that died are kept for long, and must not be in the way."""
        known: list[Entry] = []
        if target._mine().options.dedup_entries:
            items = [entry_of(message, True) for message in messages]
            try:
                target._put(items, None, "commit")
            except QueueFull as error:
                if error.which != "dedup_entries":
                    raise
            else:
                return items
            known = [item for item in items if item.known]
            messages = [message for item, message in zip(items, messages, strict=True) if not item.known]
        there = _moved_before(target)
        new = [entry_of(message, False) for message in messages if self._origin(message) not in there]
        if new:
            target._put(new, None, "commit")
        return [*known, *new]

    def _require(self, message: Message, held_by: Holder) -> None:
        """In the other queue's turn, before it gets a slot there: whoever was stopped until its lease had ended may
        come when somebody else has moved the message, and the key of that is forgotten. Takes no lock."""
        if not held_by.holds(message):
            raise LeaseLost(self._source._mine().name, message.id)

    def _check_other(self, target: TimeQueue) -> None:
        if target._mine().options.uuid == self._source._mine().options.uuid:
            raise Misuse(f"{self._source.name}: a message cannot be moved to the queue that it is in")
        if not target._mine().files.is_current():
            raise QueueNotFound(f"{target.name}: this queue was removed or replaced while it was open here")

    def _origin(self, message: Message) -> str:
        return origin_of(self._source._mine().options.uuid, message.number)

    def _entry(
        self, target: TimeQueue, message: Message, change: Change, now: bool, attempts: int, remembered: bool
    ) -> Entry:
        client = self._source._mine()
        meta = message.meta
        fields = {name: value for name in KEPT if (value := getattr(meta, name)) is not None}
        fields["f"] = client.name
        fields["n"] = attempts
        fields = {name: value for name, value in change(fields).items() if value is not None}
        fields["o"] = message.id
        if "q" in fields:
            fields.setdefault("w", client.name)
        fields["s"] = self._origin(message)
        now_us = client.clock.wall_us()
        deliver_us = 0 if now or message.deliver_us <= now_us else message.deliver_us
        key = origin_key(fields["s"], target._mine().options.signature) if remembered else 0
        data = _encoded(meta.t, meta.k, meta.h, fields)
        until_us = (
            max(now_us, message.deliver_us) + MOVE_KEPT_US
        )  # it may be finished by whoever gets it, when it is due
        extra = Extra(fields, L.FLAG_SPECIAL | L.FLAG_REMEMBERED, key, until_us)
        return made(message.data, message._codec, data, deliver_us, message.priority, extra)

    def settle(self) -> None:
        """That the moved messages have gone is brought to disk; then nobody will move them again, and the queues that
        they went to may forget where they came from."""
        with self._mutex:
            unsettled, self._unsettled = self._unsettled, []
        if not unsettled:
            return
        self._source._mine().syncs.sync_index()
        for target, keys in unsettled:
            if keys and not target.closed:
                client = target._mine()
                client.turn(forget_keys, client, keys)

    def _settle_or_warn(self) -> None:
        """The moves are made, whatever comes of this: then the keys stay for their time."""
        try:
            self.settle()
        except (PenstockError, OSError) as error:
            log.warning("%s: what was moved is remembered for long: %s", self._source.name, error)

    # ------------------------------------------------------------ the other queues

    def dead_letters(self, *, make_it: bool) -> TimeQueue | None:
        """The dead-letter queue; None if there is none and it is not to be made."""
        options = self._source._mine().options
        if options.dead_letter == DELETE:
            return None
        path = self._source.path
        where = path.with_name(path.name + DEAD) if options.dead_letter == BESIDE else Path(options.dead_letter)
        try:
            return self.target(where)
        except QueueNotFound:
            if not make_it:
                return None
        # A child of a fork meanwhile would keep the lock of what is being made.
        with forking.opening(), contextlib.suppress(QueueExists):  # somebody else was first
            make(
                where,
                slots=options.slots,
                data_bytes=options.data_bytes,
                spill_bytes=options.spill_bytes,
                lease=options.lease_s,
                durability=options.durability,
                notify=options.notify,
                index_sync_ms=options.index_sync_ms,
                mode=mode_of(path),
            )
        return self.target(where)

    def target(self, to: TimeQueue | str | os.PathLike[str]) -> TimeQueue:
        if isinstance(to, self._source.__class__):
            return to
        where = queue_path(to)  # type: ignore[arg-type]
        with self._mutex:
            found = self._opened.get(where)
            if found is not None and not found.closed and not found._mine().files.is_current():
                self._replaced.append(found)  # perhaps a caller of ours has it
                found = None
            if found is None or found.closed:
                found = self._opened[where] = self._source.__class__(
                    where, busy_s=self._source._busy_s, clock=self._source._clock
                )
            return found

    def close(self) -> None:
        """The keys of what was not settled stay in the other queues for their time."""
        with contextlib.suppress(PenstockError, OSError):
            self.settle()
        with self._mutex:
            opened, self._opened = [*self._opened.values(), *self._replaced], {}
            self._replaced = []
        for queue in opened:
            with contextlib.suppress(PenstockError, OSError):
                queue.close()


def _encoded(type: str | None, key: str | None, headers: dict[str, str] | None, fields: dict[str, Any]) -> bytes:
    """The meta of a moved message. What went wrong with it is left out if there is no room for it."""
    for left_out in ((), ("y",), ("y", "e", "r")):
        try:
            some = {name: value for name, value in fields.items() if name not in left_out}
            if "r" in left_out and "r" in fields:
                some["r"] = fields["r"][:20]
            return encode_meta(type, key, headers, some)
        except Misuse as error:
            refused = error
    raise refused


def _moved_before(target: TimeQueue) -> set[str]:
    """Where the messages of a queue that remembers nothing came from."""
    return {m.meta.s for m in target.browse(state="all") if m._special and m.meta.s is not None}


def forget_keys(client: Any, keys: Iterable[tuple[int, int]]) -> None:
    """In a turn: what was remembered under these keys, of messages with these numbers, can be put again."""
    remembered = client.kernel.remembered
    now_us = client.clock.wall_us()
    for key, number in keys:
        entry = remembered.find(key, now_us)
        if entry and remembered.number(entry) == number:
            remembered.forget(entry)
            if not client.kernel.words.room():
                client.kernel.commit()
    client.kernel.commit()


def wanted(type: Names | None, key: Names | None, reason: Names | None) -> Wanted:
    """Which messages: those of these types, keys and reasons, where some are given."""
    types, keys, reasons = check_names("type", type), check_names("key", key), check_names("reason", reason)

    def is_wanted(message: Message) -> bool:
        return (
            (not types or message.type in types)
            and (not keys or message.key in keys)
            and (not reasons or message.reason in reasons)
        )

    return is_wanted
