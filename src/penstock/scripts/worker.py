"""Owns Worker, which runs the scripts of an app in this process: takes messages, calls, stores, puts, acknowledges.

The order is what makes it exactly once. One transaction of the store has the contexts, the follow-ups and that the
messages are done. Then the follow-ups are put, as numbered batches that their queues take once; then the messages are
acknowledged. Killed anywhere, a message that is not done is delivered again as if nothing had happened, and one that is
done is only acknowledged; whoever has the worker's slot next puts what was left.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock.codec import decode_body
from penstock.errors import BodyTooLarge, LeaseLost, Misuse, NoScript, PenstockError, QueueFull
from penstock.manager import QueueManager
from penstock.message import DONE, PENDING, Message
from penstock.scripts.calling import Kept, Outcome, Stale, call, error_text, held
from penstock.scripts.folder import Folder, Slots
from penstock.scripts.leasekeeper import LeaseKeeper
from penstock.scripts.outbox import Outbox
from penstock.scripts.settling import settle
from penstock.scripts.store import Change, Done, Placed, Row, Store
from penstock.scripts.taking import Taking
from penstock.scripts.targets import Targets
from penstock.store import layout as L
from penstock.store.files import Clock
from penstock.store.options import DELETE
from penstock.timequeue.answers import DATA_BYTES_LEAST, share_of
from penstock.timequeue.arguments import BUSY_S, check_seconds
from penstock.timequeue.puts import is_traced

if TYPE_CHECKING:
    from penstock.scripts.app import App

BATCH = 200  # messages that are taken, and stored, together
BATCH_MAX = 10_000
BATCH_S = 0.2  # after so long what is done is stored, and the rest of a batch given back: others wait for it
NAP_S = 0.5  # so often a worker that waits looks whether it is to stop
TEND_S = 2.0  # so often what others left is looked for
SETTLE_S = 10.0  # messages that are done are forgotten so often,
SETTLE_AFTER = 2000  # or after so many of them
LEFT_MAX = 10_000  # follow-ups that may wait for room in the input while its messages are worked on: in memory
RETRY_S = 1.0  # so long waits a message that failed and has no backoff
NO_SCRIPT = "no script"  # the reason of dead letters that no script is for

log = logging.getLogger("penstock")

Report = Callable[..., None]


class Counts(msgspec.Struct):
    """What a worker has done: messages."""

    done: int = 0
    failed: int = 0
    letters: int = 0  # that no script is for
    dropped: int = 0  # of timers that were cancelled or set anew
    again: int = 0  # that were done before, and only acknowledged
    lost: int = 0  # whose lease ended while they were worked on, or whose context changed: they are done anew


class _Batch:
    """What becomes of the messages of one batch."""

    def __init__(self) -> None:
        self.changes: list[tuple[Message, Change]] = []
        self.acks: list[Message] = []
        self.replies: list[tuple[Message, tuple[int, bytes]]] = []
        self.failed: list[tuple[Message, Exception]] = []
        self.again = False  # whether some were done before


class Worker:
    """One worker of an app, with the queues of a root. Any number of them share the work, in any processes.

    >>> from penstock.scripts import App
    >>> import penstock
    >>> app = App("counting", input="numbers")
    >>> @app.script("number")
    ... def number(context, message):
    ...     context.state["sum"] = context.state.get("sum", 0) + message.body
    >>> with penstock.QueueManager(path) as manager:
    ...     info = manager.create("numbers", exclusive_keys=True, durability="relaxed")
    ...     with manager.open("numbers") as numbers:
    ...         ids = numbers.put_many([1, 2, 3], type="number", key="a")
    >>> with app.worker(path) as worker:
    ...     counts = worker.run(until_empty=True)
    >>> dict(app.contexts(path))
    {'a': {'sum': 6}}
    """

    def __init__(
        self,
        app: App[Any],
        root: str | os.PathLike[str],
        *,
        batch: int = BATCH,
        batch_s: float = BATCH_S,
        lease: float | None = None,
        retry_delay: float | None = None,
        busy_s: float = BUSY_S,
        clock: Clock | None = None,
        report: Report | None = None,
    ) -> None:
        if batch.__class__ is not int or not 1 <= batch <= BATCH_MAX:
            raise Misuse(f"batch must be a whole number from 1 to {BATCH_MAX}, not {batch!r}")
        self._app = app
        self._batch_s = check_seconds("batch_s", batch_s)
        self._retry_delay = None if retry_delay is None else check_seconds("retry_delay", retry_delay)
        self._clock = clock or Clock()
        self._report = report
        self._stopped = False
        self._tend_at_s = 0.0
        self._settle_at_s = 0.0
        self._unsettled = 0
        self._acknowledged: set[str] = set()  # of what is done and not forgotten yet
        self.counts = Counts()
        folder = Folder(Path(os.path.abspath(root)), app.name)
        folder.require_root()
        folder.require_no_spark()
        with contextlib.ExitStack() as opened:
            self._manager = opened.enter_context(QueueManager(folder.root, busy_s=busy_s))
            self._input = opened.enter_context(self._manager.open(app.input, relationship="consumer", clock=clock))
            folder.make()
            self._taking = Taking(folder, self._input, batch=batch, lease_s=lease)
            opened.callback(self._taking.close)
            with folder.alone(busy_s):
                self._store = opened.enter_context(contextlib.closing(Store(folder.store, busy_s=busy_s)))
            self._slots = opened.enter_context(contextlib.closing(Slots(folder)))
            folder.require_no_spark()  # as long as we have a slot, it stays so
            self._targets = opened.enter_context(contextlib.closing(Targets(self._manager, app.input, self._clock)))
            self._outbox = Outbox(app.name, self._store, self._targets, self._clock.wall_us)
            self._left: list[Row] = []
            self._interrupted = True  # as the last worker of this slot may have been
            lease_s = self._input._lease_s if lease is None else check_seconds("lease", lease, zero=False)
            self._keeper = opened.enter_context(contextlib.closing(LeaseKeeper(lease_s, self._taking.in_hand)))
            self._opened = opened.pop_all()

    # ------------------------------------------------------------ running

    def run(self, *, until_empty: bool = False) -> Counts:
        """Work until ``stop`` is called; with ``until_empty``, until nothing is due."""
        while not self._stopped:
            if not self.step(0.0 if until_empty else NAP_S) and until_empty and not self.waits:
                break
        return self.counts

    @property
    def waits(self) -> bool:
        """Whether it has follow-ups that a queue does not take yet, or messages whose key another worker has."""
        return bool(self._left) or self._taking.waits

    def stop(self) -> None:
        """Let ``run`` end when the script that runs has returned and what is done is stored. May be called by a signal
        handler, or another thread."""
        self._stopped = True

    def step(self, wait: float = 0.0) -> int:
        """Work on the messages that are due, of each key one and one batch at most; how many. Waits so many seconds for
        the first."""
        self._slots.require()
        try:
            if not self._put_left():
                return 0
            self._tend()
            batch = self._taking.take(wait)
            for message in self._taking.in_hand():  # parked ones, too
                if message._special:
                    self._keeper.mind(message)
            if batch:
                self._work(batch)
            else:
                self._store.tidy()
                if self._left:
                    self._outbox.wait(lambda: self._stopped)
            self._outbox.cancel(self._store.stale())
        except BaseException:
            self._interrupted = True
            self._taking.give_back()
            raise
        count = len(self._taking.batch)
        self._taking.finished()
        return count

    def _put_left(self) -> bool:
        """Follow-ups that a queue would not take, or that an interrupt has left: nothing else is done before them,
        unless they wait for room that only workers make."""
        if self._interrupted:
            self._left = self._store.outbox(self._slots.mine)
            self._interrupted = False
        if self._left:
            self._left = self._outbox.publish(self._left)
            if self._left and not self._makes_room():
                self._outbox.wait(lambda: self._stopped)
                return False
        return True

    def _makes_room(self) -> bool:
        """Whether all that is left waits for room in the input: nobody would make any if workers waited, too."""
        if sum(len(row.messages) for row in self._left) > LEFT_MAX:
            return False
        homes = {home._mine().options.uuid for home in self._taking.homes()}
        return all(
            isinstance(self._outbox.stuck.get(row.queue), QueueFull) and self._targets.uuid(row.queue) in homes
            for row in self._left
        )

    # ------------------------------------------------------------ one batch

    def _work(self, batch: list[Message]) -> None:
        made = self._call_all(batch)
        if made.again:  # follow-ups of the dead come before those of the next of a key, which waits for our ack
            for slot in self._store.slots():
                self._put_for(slot)
        placed: list[Placed] = []
        if made.changes:
            placed = self._apply(made)
        for message, answer in made.replies:
            self._reply(message, answer)
        if made.acks:
            with contextlib.suppress(LeaseLost):  # somebody else has it, and finds it done
                self._input.ack_many(made.acks)
        self._acknowledged.update(change.done.id for message, change in made.changes if message.state == DONE)
        for message, error in made.failed:
            self._give_up(message, error)
        self._outbox.cancel(placed)

    def _call_all(self, batch: list[Message]) -> _Batch:
        contexts = self._store.contexts([key for message in batch if (key := message.key) is not None])
        known = self._store.done([message.id for message in batch]) if self._store.any_done() else {}
        made = _Batch()
        now_us = self._clock.wall_us()
        app, scripts, states = self._app.name, self._app.scripts, self._app.states
        traced = is_traced()
        end_s = time.monotonic() + self._batch_s
        for n, message in enumerate(batch):
            if n and (self._stopped or time.monotonic() >= end_s):
                self._taking.enough(n)
                break
            if known and (done := known.get(message.id)) is not None:
                self._again(made, message, done)
                continue
            try:
                kept = contexts.get(message.key)  # type: ignore[arg-type]
                if traced:
                    with _span_of(message):
                        outcome = call(app, scripts, states, held(kept), message, now_us)
                else:
                    outcome = call(app, scripts, states, held(kept), message, now_us)
                if outcome is None:
                    made.acks.append(message)
                    self.counts.done += 1
                else:
                    made.changes.append((message, self._change(message, kept, outcome, now_us)))
            except Stale:
                made.acks.append(message)
                self.counts.dropped += 1
            except Exception as error:
                made.failed.append((message, error))
            except BaseException as end:  # exit() in the script, say: that counts as an attempt
                self._release(message, 0.0 if isinstance(end, KeyboardInterrupt) else RETRY_S)
                raise
        return made

    def _again(self, made: _Batch, message: Message, done: Done) -> None:
        """Its worker died, or its lease ended, before it was acknowledged."""
        self.counts.again += 1
        made.again = True
        if done.answer is not None:
            made.replies.append((message, done.answer))
        else:
            made.acks.append(message)

    def _change(self, message: Message, seen: Kept | None, outcome: Outcome, now_us: int) -> Change:
        """What can fail for a reason of the script's fails here, before anything is stored."""
        home: Any = message._receiver
        options = home._mine().options
        if outcome.answer is not None:
            size, limit = len(outcome.answer[1]) + 2 * L.UNIT_BYTES, share_of(options.data_bytes, DATA_BYTES_LEAST)
            if size > limit:
                raise BodyTooLarge(f"{home.name}/replies", body_bytes=len(outcome.answer[1]), limit_bytes=limit)
        return Change(
            done=Done(message.id, options.uuid, message.slot, message.number, outcome.answer),
            key=str(message.key),
            seen=seen,
            kept=outcome.kept,
            posts=[post for each in outcome.follow_ups for post in self._targets.posts(each, now_us)],
            unset=outcome.unset,
            is_ours=lambda: home._consumer.holds(message),
        )

    def _apply(self, made: _Batch) -> list[Placed]:
        counted, rows, placed = self._store.apply(
            self._slots.mine, [change for _, change in made.changes], self._clock.wall_us(), self._targets.room
        )
        self._left = self._outbox.publish([*self._left, *rows])
        void: list[Message] = []
        for message, change in made.changes:
            if change.done.id not in counted:
                self.counts.lost += 1
                log.warning("%s: a lease of its key ended while its script ran: that does not count", message.id)
                void.append(message)
            elif change.done.answer is not None:
                made.replies.append((message, change.done.answer))
            else:
                made.acks.append(message)
        if void:
            self._input.unget(void)  # one that is ours all the same comes again at once
        self.counts.done += len(counted)
        self._unsettled += len(counted)
        return placed

    # ------------------------------------------------------------ what becomes of a message

    def _reply(self, message: Message, answer: tuple[int, bytes]) -> None:
        """It is stored that it is done, and the reply with it: an error here leaves the message where it is, and the
        reply is sent when it comes again."""
        try:
            message.reply(decode_body(*answer))
        except LeaseLost:
            pass
        except (PenstockError, OSError) as error:
            log.error("%s: its reply could not be sent, which is tried again: %s", message.id, error)
            self._release(message, RETRY_S)

    def _release(self, message: Message, delay_s: float) -> None:
        with contextlib.suppress(LeaseLost):
            message.release(delay=delay_s)

    def _give_up(self, message: Message, error: Exception) -> None:
        """For now, or for good: as the queue's limits say. Its context is as it was."""
        home: Any = message._receiver
        options = home._mine().options
        self._tell(message, error)
        try:
            if isinstance(error, NoScript) and options.dead_letter != DELETE:
                with contextlib.suppress(LeaseLost):
                    message.dead_letter(NO_SCRIPT, error=error)
                self.counts.letters += 1
                return
        except (PenstockError, OSError) as full:
            log.error("%s: it cannot become a dead letter, and is tried again: %s", message.id, full)
        self.counts.failed += 1
        delay_s = self._retry_delay
        if delay_s is None and message.meta.b is None and options.backoff is None:
            delay_s = RETRY_S
        with contextlib.suppress(LeaseLost):
            if message.state == PENDING:
                message.fail(error_text(error), delay=delay_s)

    def _tell(self, message: Message, error: Exception) -> None:
        line = " ".join(error_text(error).split())
        if self._report is not None:
            trace = {} if isinstance(error, NoScript) else {"trace": "".join(traceback.format_exception(error))}
            self._report("failed", id=message.id, key=message.key, type=message.type, error=line, **trace)
        else:
            log.warning("%s: its script failed at attempt %d: %s", message.id, message.attempts, line)

    # ------------------------------------------------------------ what was left

    def _tend(self) -> None:
        """What workers that died left, and what is done and need not be known any more."""
        now_s = time.monotonic()
        if now_s >= self._tend_at_s:
            self._tend_at_s = now_s + TEND_S
            for slot in self._store.slots():
                self._put_for(slot, and_settle=True)
        if self._unsettled >= SETTLE_AFTER or now_s >= self._settle_at_s:
            self._settle_at_s = now_s + SETTLE_S
            self._settle()

    def _put_for(self, slot: int, *, and_settle: bool = False) -> None:
        """What the worker of this slot left, if it is dead."""
        with self._slots.of_the_dead(slot) as free:
            if free:
                self._outbox.publish(self._store.outbox(slot))
                self._store.tidy()
                if and_settle:
                    settle(self._store, slot, self._taking.homes())

    def _settle(self) -> None:
        self._unsettled = 0
        homes = self._taking.homes()
        self._acknowledged.difference_update(settle(self._store, self._slots.mine, homes, self._acknowledged))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Give back what was not begun, and leave. What could not be put yet is put by the next worker."""
        with self._opened:
            if self._slots.lost:  # in the child of a fork: all is the parent's
                return
            self._keeper.close()
            self._taking.give_back()
            try:
                self._settle()
                self._store.tidy()
                self._outbox.cancel(self._store.stale())
            except (PenstockError, OSError) as error:  # the next worker does
                log.warning("%s: what is done is not forgotten yet: %s", self._app.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _span_of(message: Message) -> contextlib.AbstractContextManager[Any]:
    """Where the program uses OpenTelemetry, a script runs in the trace that its message was put in."""
    from penstock.tracing import handling  # optional

    return handling(message)
