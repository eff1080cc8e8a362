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
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.errors import QueueFull
from penstock.manager import QueueManager
from penstock.scripts import App
from penstock.scripts.outbox import Outbox
from penstock.scripts.store import Row
from penstock.scripts.taking import homes_of
from penstock.scripts.targets import Targets
from penstock.scripts.worker import LEFT_MAX, RETRY_S
from penstock.spark.scripting.batchstore import Batch, BatchStore
from penstock.spark.scripting.place import SLOT, Place
from penstock.spark.scripting.results import Mark, Result, decode, encode
from penstock.spark.scripting.tasks import differ
from penstock.store.files import Clock
from penstock.timequeue import open_queue
from penstock.timequeue.arguments import BUSY_S
from penstock.timequeue.verdicts import Answered, Dead, Failed, Verdict, note

LOOK_S = 0.5

Outcomes = Callable[[int], Any]

log = logging.getLogger("penstock")


class Batches:
    """Those of one query: what ``foreachBatch`` is given."""

    def __init__(self, app: App[Any], place: Place, receiver: str, retry_delay: float | None, wait_s: float) -> None:
        self._app = app
        self._place = place
        self._receiver = receiver
        self._retry_delay = retry_delay
        self._wait_s = wait_s
        self._mutex = threading.Lock()  # one has the outbox
        self._thread: threading.Thread | None = None

    def run(self, number: int, outcomes: Outcomes, marked: Callable[[], Mark]) -> None:
        """A batch of Spark's. ``outcomes`` gives a DataFrame, by the batch's serial number, whose rows the tasks make
        when it is collected; ``marked`` says of its messages how many there are, and the ends of their ids."""
        with self._mutex, self._opened() as (store, outbox):
            done = self._known(store, number, marked)
            if done is None:
                done = self._work(store, number, outcomes)
            self._put(store, outbox)
            self._judge(decode(done.results))

    def _known(self, store: BatchStore, number: int, marked: Callable[[], Mark]) -> Batch | None:
        """The batch as it is stored, if it was run before."""
        query = self._place.query()
        last = store.batch()
        if last is None or (last.query == query and last.number < number):
            return None
        mark = marked()
        if last.query == query and (last.number != number or last.mark != mark):
            raise differ(self._place.driver, f"batch {number} of Spark", mark, last)
        if last.query != query:  # a new checkpoint: it takes what is open first, which may be the last batch
            if last.mark != mark:
                return None
            store.rename_batch(last := msgspec.structs.replace(last, query=query, number=number))
        return last

    def put_left(self) -> None:
        """What was written down and not put: a driver was killed, or there was no room."""
        if self._place.driver.exists():
            with self._mutex, self._opened() as (store, outbox):
                self._put(store, outbox)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[BatchStore, Outbox]]:
        clock = Clock()
        with contextlib.ExitStack() as opened:
            with self._place.folder.alone(BUSY_S):
                store = opened.enter_context(contextlib.closing(BatchStore(self._place.driver, busy_s=BUSY_S)))
            manager = opened.enter_context(QueueManager(self._place.folder.root))
            self._targets = opened.enter_context(contextlib.closing(Targets(manager, self._app.input, clock)))
            yield store, Outbox(self._app.name, store, self._targets, clock.wall_us)
            store.tidy()

    def _work(self, store: BatchStore, number: int, outcomes: Outcomes) -> Batch:
        last = store.batch()
        serial = 1 if last is None else last.serial + 1
        mark = Mark()
        results: list[Result] = []
        for row in sorted(outcomes(serial).collect(), key=lambda row: row.part):
            mark = mark.joined(Mark(row["count"], row["first"], row["last"]))
            results += decode(row["results"])
        said = [
            msgspec.structs.replace(each, posts=[])
            for each in results
            if each.error is not None or each.answer is not None
        ]
        batch = Batch(serial, mark, encode(said), self._place.query(), number)
        posts = (post for each in results for post in each.posts)
        store.post_batch(batch, SLOT, posts, time.time_ns() // 1000, self._targets.room)
        return batch

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
                raise next(iter(outbox.stuck.values()))
            outbox.wait(lambda: False)
        store.tidy()

    def _is_for_input(self, left: list[Row], outbox: Outbox) -> bool:
        if sum(len(row.messages) for row in left) > LEFT_MAX:
            return False
        homes = {queue._mine().options.uuid for queue in homes_of(self._targets.open(self._app.input))}
        return all(
            isinstance(outbox.stuck.get(row.queue), QueueFull) and self._targets.uuid(row.queue) in homes
            for row in left
        )

    def _put_later(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._go_on, name=f"penstock-{self._app.name}", daemon=True)
            self._thread.start()

    def _go_on(self) -> None:
        left = True
        while left:
            time.sleep(LOOK_S)
            try:
                with self._mutex, self._opened() as (store, outbox):
                    left = bool(outbox.publish(store.outbox(SLOT)))
            except Exception as error:  # a later batch, or the next query, puts them
                log.warning("%s: follow-ups wait: %s", self._app.name, error)
                return

    # ------------------------------------------------------------ what is said of messages

    def _judge(self, results: list[Result]) -> None:
        by_queue: dict[str, list[Verdict]] = {}
        for each in results:
            by_queue.setdefault(each.queue, []).append(self._verdict(each))
        for path, verdicts in by_queue.items():
            with open_queue(path) as queue:
                note(queue, self._receiver, verdicts)

    def _verdict(self, result: Result) -> Verdict:
        if result.answer is not None:
            return Answered(result.id, *result.answer)
        assert result.error is not None
        log.warning("%s: its script failed: %s", result.id, " ".join(result.error.split()))
        if result.reason is not None:
            return Dead(result.id, result.reason, result.error)
        return Failed(result.id, result.error, self._retry_delay, RETRY_S)
