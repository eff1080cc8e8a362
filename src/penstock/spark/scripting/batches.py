"""Owns the driver's side of a batch: runs the tasks, writes down what is to be put, puts it, and says which messages
have failed or are answered, before Spark calls the batch done. Each step can be done again: a batch that is written
down is not worked on again, what is put is put once, and what is said of a message is said in the same words. Never
calls a script.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.errors import PenstockError, QueueFull, QueueNotFound
from penstock.manager import QueueManager
from penstock.scripts.folder import DriverLock
from penstock.scripts.outbox import Outbox
from penstock.scripts.store import Row
from penstock.scripts.taking import homes_of
from penstock.scripts.targets import Targets
from penstock.scripts.worker import RETRY_S
from penstock.spark.finding import places_of
from penstock.spark.scripting import logged
from penstock.spark.scripting.batchstore import Batch, BatchStore
from penstock.spark.scripting.place import SLOT, Place
from penstock.spark.scripting.results import Marks, Result, decode, decode_marks, encode, joined
from penstock.spark.scripting.tasks import differ
from penstock.store.files import Clock
from penstock.timequeue import open_queue
from penstock.timequeue.arguments import BUSY_S
from penstock.timequeue.verdicts import Answered, Dead, Failed, Verdict, note

LOOK_S = 0.5

Outcomes = Callable[[int, set[str]], list[Any]]


class SinkLost(PenstockError):
    """A queue that messages are to be put into is gone, or cannot be opened. No message is to blame: all wait."""

    def __init__(self, path: Path, error: Exception) -> None:
        why = "there is no such queue any more" if isinstance(error, FileNotFoundError) else str(error)
        super().__init__(f"{path}: {why}; what is to be put there waits, and is put when it is there and this goes on")


class Named(Protocol):
    """What of an app is asked for here."""

    @property
    def name(self) -> str: ...
    @property
    def input(self) -> str: ...


log = logging.getLogger("penstock")


class Batches:
    """Those of one query: what ``foreachBatch`` is given."""

    stores = BatchStore
    what = "its script"  # that failed, for the log

    def __init__(
        self,
        app: Named,
        place: Place,
        receiver: str,
        retry_delay: float | None,
        wait_s: float,
        *,
        may_be_gone: bool = False,
    ) -> None:
        self._app = app
        self._place = place
        self._receiver = receiver
        self._retry_delay = retry_delay
        self._wait_s = wait_s
        self._may_be_gone = may_be_gone  # messages of a claim: onLostClaim=skip
        self._thread: threading.Thread | None = None

    def run(self, number: int, outcomes: Outcomes, marked: Callable[[], Marks]) -> None:
        """A batch of Spark's. ``outcomes`` gives a DataFrame whose rows the tasks make when it is collected, by the
        batch's serial number and without the messages of some queues; ``marked`` says by what its messages are known
        again."""
        with self._alone(), self._opened() as (store, outbox):
            batch = self._known(store, number, marked) or self._work(
                store, number, self._whole(number, outcomes, marked), marked
            )
            self._put(store, outbox)
            self._judge([each for each in decode(batch.results) if each.queue in batch.marks])

    def _known(self, store: BatchStore, number: int, marked: Callable[[], Marks]) -> Batch | None:
        """The batch as it is stored, if it was run before with this checkpoint."""
        last = store.batch()
        if last is None or last.query != self._place.query() or last.number < number:
            return None
        marks = marked()
        if last.number != number or last.marks != marks:
            raise differ(self._place.driver, f"batch {number} of Spark", marks, last)
        return last

    def _whole(self, number: int, outcomes: Outcomes, marked: Callable[[], Marks]) -> Outcomes:
        """The same, with an outcome for every message of the batch, or an error: what is missing would be acknowledged
        with the others."""

        def whole(serial: int, known: set[str]) -> list[Any]:
            rows = outcomes(serial, known)
            there = self._told_of(rows)
            wanted = logged.counts(self._place.checkpoint, number)
            if wanted is None or (self._may_be_gone and _missing(wanted, there, known)):
                wanted = {queue: mark.count for queue, mark in marked().items()}
            missing = _missing(wanted, there, known)
            if missing:
                raise PenstockError(
                    f"{self._receiver}: batch {number}: {missing} of its {sum(wanted.values())} messages have no "
                    f"outcome: not all that tasks came to has reached the driver. Nothing was acknowledged; start it "
                    f"again"
                )
            return rows

        return whole

    def _told_of(self, rows: list[Any]) -> dict[str, int]:
        """How many messages rows of outcomes are about, by the UUIDs of queues."""
        return {queue: mark.count for queue, mark in joined(decode_marks(row["marks"]) for row in rows).items()}

    def put_left(self) -> None:
        """What was written down and not put: a driver was killed, or there was no room."""
        if self._place.driver.exists():
            with self._alone(), self._opened() as (store, outbox):
                self._put(store, outbox)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One driver at a time, of all threads and processes: one may live on when its Java is dead."""
        with contextlib.closing(DriverLock(self._place.folder)) as lock:
            lock.take(BUSY_S)
            yield

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[BatchStore, Outbox]]:
        clock = Clock()
        with contextlib.ExitStack() as opened:
            with self._place.folder.alone(BUSY_S):
                store = opened.enter_context(contextlib.closing(self.stores(self._place.driver, busy_s=BUSY_S)))
            manager = opened.enter_context(QueueManager(self._place.folder.root))
            self._targets = opened.enter_context(contextlib.closing(Targets(manager, self._app.input, clock)))
            yield store, self._outbox(store, self._targets, clock.wall_us)
            store.tidy()

    def _outbox(self, store: BatchStore, targets: Targets, now_us: Callable[[], int]) -> Outbox:
        return Outbox(self._app.name, store, targets, now_us)

    def _work(self, store: BatchStore, number: int, outcomes: Outcomes, marked: Callable[[], Marks]) -> Batch:
        """Run it. A new checkpoint takes what is open first, which may be the last of each queue that the one before it
        had, queue by queue: what is known of it is not done again."""
        query = self._place.query()
        last = store.batch() or Batch(0, {}, encode([]))
        pending = last.pending if last.query == query else last.last
        there = marked() if pending else {}
        known = {queue: mark for queue, mark in there.items() if pending.get(queue) == mark}
        results: list[Result] = []
        marks = [known]
        for row in sorted(outcomes(last.serial + 1, set(known)), key=lambda row: row["part"]):
            marks.append(decode_marks(row["marks"]))
            results += decode(row["results"])
        batch = following(last, query, number, joined(marks), results, pending=pending, known=known)
        if batch.marks:  # an empty one leaves what is known of the last
            self._store(store, batch, results)
        return batch

    def _store(self, store: BatchStore, batch: Batch, results: list[Result]) -> None:
        posts = (post for each in results for post in each.posts)
        store.post_batch(batch, SLOT, posts, time.time_ns() // 1000, self._targets.room)

    # ------------------------------------------------------------ putting

    def _put(self, store: BatchStore, outbox: Outbox) -> None:
        """All that is to be put. What waits for room in the input is left to a thread: it is this batch that makes
        room there."""
        deadline = time.monotonic() + self._wait_s
        while left := outbox.publish(store.outbox(SLOT)):
            store.tidy()
            if self._is_for_input(left, outbox):
                self._put_later()
                return
            if time.monotonic() >= deadline:
                name, error = next(iter(outbox.stuck.items()))
                raise SinkLost(self._place.folder.root / name, error) if isinstance(error, QueueNotFound) else error
            outbox.wait(lambda: False)
        store.tidy()

    def _is_for_input(self, left: list[Row], outbox: Outbox) -> bool:
        homes = {queue._mine().options.uuid for name in self._inputs() for queue in homes_of(self._targets.open(name))}
        return all(
            isinstance(outbox.stuck.get(row.queue), QueueFull) and self._targets.uuid(row.queue) in homes
            for row in left
        )

    def _inputs(self) -> list[str]:
        return [self._app.input]

    def _put_later(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._go_on, name=f"penstock-{self._app.name}", daemon=True)
            self._thread.start()

    def _go_on(self) -> None:
        left = True
        said = ""
        while left and self._place.path.exists():
            time.sleep(LOOK_S)
            try:
                with self._alone(), self._opened() as (store, outbox):
                    left = bool(outbox.publish(store.outbox(SLOT)))
            except (PenstockError, OSError) as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("%s: follow-ups wait: %s", self._app.name, error)

    # ------------------------------------------------------------ what is said of messages

    def _judge(self, results: list[Result]) -> None:
        if not results:
            return
        by_queue: dict[str, list[Verdict]] = {}
        for each in results:
            by_queue.setdefault(each.queue, []).append(self._verdict(each))
        paths = self._paths(by_queue)
        for uuid, verdicts in by_queue.items():
            with open_queue(paths[uuid]) as queue:
                note(queue, self._receiver, verdicts)

    def _paths(self, uuids: Iterable[str]) -> dict[str, str]:
        """Where queues of these UUIDs are now."""
        return places_of(self._place.folder.root, self._inputs(), uuids)

    def _verdict(self, result: Result) -> Verdict:
        if result.answer is not None:
            return Answered(result.id, *result.answer)
        assert result.error is not None
        log.warning("%s: %s failed: %s", result.id, self.what, " ".join(result.error.split()))
        if result.reason is not None:
            return Dead(result.id, result.reason, result.error)
        return Failed(result.id, result.error, self._retry_delay, RETRY_S)


def _missing(wanted: dict[str, int], there: dict[str, int], known: set[str]) -> int:
    """
    >>> _missing({"a": 3, "b": 2}, {"a": 1}, {"b"})
    2
    """
    return sum(max(count - there.get(queue, 0), 0) for queue, count in wanted.items() if queue not in known)


def following(
    last: Batch, query: str, number: int, marks: Marks, results: list[Result], *, pending: Marks, known: Marks
) -> Batch:
    """The batch behind the last one. Of a queue that it has nothing of, or nothing new, what was said of its last
    messages stays."""
    rest = {queue: mark for queue, mark in last.last.items() if queue not in marks}
    said = [
        msgspec.structs.replace(each, posts=[]) for each in results if each.error is not None or each.answer is not None
    ]
    said += [each for each in decode(last.results) if each.queue in known or each.queue in rest]
    return Batch(
        last.serial + 1,
        marks,
        encode(said),
        query,
        number,
        {queue: mark for queue, mark in rest.items() if queue in pending},
        {queue: mark for queue, mark in rest.items() if queue not in pending},
    )
