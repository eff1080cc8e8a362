"""Owns puts that wait for an answer, and puts that nobody waits for: which return a handle, and are made by one thread,
in the order in which they came. How a message is stored is ``producer.py``'s; who answers it, ``answers.py``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import GivenUp, Misuse, NoAnswer, PenstockError, QueueClosed, QueueFull
from penstock.timequeue import administration
from penstock.timequeue.answers import Answers
from penstock.timequeue.arguments import check_seconds
from penstock.timequeue.collecting import Collector
from penstock.timequeue.handles import Handle
from penstock.timequeue.ids import MessageIds
from penstock.timequeue.models import ACKNOWLEDGED, BY_NUMBER, Way
from penstock.timequeue.producer import BeingPut
from penstock.timequeue.puts import Entry

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue

EVER_S = 1e9
LINGER_S = 1.0  # an idle thread stays so long: starting one takes longer than most puts
TOGETHER_MAX = 1000  # puts that share a sync
ROOM_LOOK_S = 0.25  # how often a put that waits for room looks whether the queue object is being closed


class Task:
    """A put that is to be made by the thread."""

    def __init__(self, handle: Handle, way: Way, items: list[Entry], *, room_s: float | None, several: bool) -> None:
        self.handle = handle
        self.way = way
        self.items = items
        self.until_s = None if room_s is None else time.monotonic() + room_s
        self.several = several  # what it returns is a list
        self.store: Callable[[], list[Entry]] | None = None  # of a file: how it is read and stored

    @property
    def joins(self) -> bool:
        """Whether it can be stored with others."""
        return self.store is None and not self.several


class Asking:
    """The puts of one queue object that are not just stored."""

    def __init__(self, queue: TimeQueue, answers: Answers) -> None:
        if answers.closing:  # by a callback of a handle, say, that was told so
            raise QueueClosed(f"{queue.name}: this queue object is being closed")
        self._queue = queue
        self._answers = answers
        self._collector = Collector(queue.name, answers, self._is_there)
        self._tasks: deque[Task] = deque()
        self._mutex = threading.Lock()
        self._arrived = threading.Condition(self._mutex)
        self._thread: threading.Thread | None = None
        self._closing = False

    def asker(self, way: Way, *, several: bool = False) -> str:
        """Whom the answers of such a put are for."""
        return BY_NUMBER if way.wait and not several else self._collector.asker

    def prepare(self, way: Way) -> None:
        """Before there is a question: who answers finds where to."""
        if way.asks:
            self._answers.box()

    def expecting(self) -> contextlib.AbstractContextManager[None]:
        """While questions are put whose answers may come before their ids are known."""
        return self._collector.expecting()

    # ------------------------------------------------------------ puts that wait

    def put(self, item: Entry, way: Way, timeout: float | None) -> Any:
        """Of one message: what the put returns."""
        if not way.wait:
            return self.start(way, [item], timeout)
        deadline = self.store(way, [item], timeout)
        return self.answer(way, item, deadline)

    def store(self, way: Way, items: list[Entry], timeout: float | None) -> float | None:
        """Put them, with room for as long as the caller waits at all. Until when that is; None: for ever."""
        if not way.asks:
            self._queue._put(items, timeout, way.durability)
            return None
        self.prepare(way)
        seconds = EVER_S if timeout is None else check_seconds("timeout", timeout)
        deadline = None if timeout is None else time.monotonic() + seconds
        self._queue._put(items, seconds, way.durability)
        return deadline

    def answer(self, way: Way, item: Entry, deadline: float | None) -> Any:
        """What a put of one message returns that is stored."""
        question = item.id(self._queue._id_prefix)
        if not way.asks:
            return question
        result = self._collector.wait_for(question, _left_s(deadline), known=item.known != 0)
        return question if way.model == ACKNOWLEDGED else result

    def put_many(self, items: list[Entry], way: Way, timeout: float | None) -> Any:
        if not items:
            return [] if way.wait else self.start(way, items, timeout, several=True)
        if not way.wait:
            return self.start(way, items, timeout, several=True)
        if not way.asks:
            self.store(way, items, timeout)
            return MessageIds(self._queue._id_prefix, items)
        handle = self._handle()
        started_s = time.monotonic()
        with self._collector.expecting():
            deadline = self.store(way, items, timeout)
            gathered = self.await_answers(handle, way, items, several=True)
        try:
            return handle.result(_left_s(deadline))
        except NoAnswer:
            raise gathered.late(self._queue.name, time.monotonic() - started_s) from None
        finally:
            self.abandon(handle)

    def abandon(self, handle: Handle) -> None:
        """Its caller does not wait any more: what it has asked is answered to whoever names it."""
        handle.abandon()
        for question in handle.ids if not handle.done() or handle.cancelled() else ():
            self._collector.drop(question, handle)

    # ------------------------------------------------------------ puts that nobody waits for

    def _handle(self) -> Handle:
        return Handle(self._queue.name, self.take_back)

    def start(
        self,
        way: Way,
        items: list[Entry],
        timeout: float | None,
        *,
        several: bool = False,
        store: Callable[[], list[Entry]] | None = None,
    ) -> Handle:
        """Let the thread make a put. ``timeout`` is how long it may wait for room."""
        room_s = None if timeout is None else check_seconds("timeout", timeout)
        task = Task(self._handle(), way, items, room_s=room_s, several=several)
        task.store = store
        self._queue._mine()
        with self._mutex:
            if self._closing:
                raise QueueClosed(f"{self._queue.name}: this queue object is closed")
            self._tasks.append(task)
            self._arrived.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="penstock puts", daemon=True)
                self._thread.start()
        return task.handle

    def question(self, message_id: str) -> Handle:
        """A handle on the answer to a question that was put before, by whomever."""
        handle = self._handle()
        handle.stored([message_id], shared=True)
        self._answers.box()
        self._collector.add(message_id, handle, handle.finish, named=True)
        return handle

    async def aput(self, item: Entry, way: Way, timeout: float | None) -> Any:
        """For coroutines: a put that waits for its answer."""
        return await self._awaited(self.start(way, [item], EVER_S if timeout is None else timeout), timeout)

    async def aput_many(self, items: list[Entry], way: Way, timeout: float | None) -> Any:
        room_s = EVER_S if timeout is None else timeout
        return await self._awaited(self.start(way, items, room_s, several=True), timeout)

    async def _awaited(self, handle: Handle, timeout: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await handle
        except TimeoutError:
            if handle.done():
                return handle.result(0)
            raise NoAnswer(self._queue.name, handle.id, waited_s=timeout or 0.0) from None
        finally:
            self.abandon(handle)

    def take_back(self, handle: Handle) -> bool:
        """A question that waits in the queue leaves it, unless somebody else had put it. Whoever else waits for it is
        told; in other processes only where there can be such: else an answer would lie there that nobody collects."""
        question = handle.id
        assert question is not None
        if handle.known or not self._queue._cancel(question, tell=handle.shared):
            return False
        handle.abandoned = True  # it may be about to wait
        self._collector.drop(question, handle)
        self._collector.give_up(question, GivenUp(self._queue.name, question, how="cancelled", reason=None))
        return True

    def _is_there(self, question: str) -> bool:
        """Whether it waits in the queue, or a receiver has it. One that was brought back has another place."""
        queue = self._queue
        client = queue._mine()
        if client.turn(administration.is_live, client, *queue.parse_id(question)):
            return True
        return queue._has_moved_in() and any(message.id == question for message in queue.browse(state="all"))

    # ------------------------------------------------------------ the thread

    def _work(self) -> None:
        while tasks := self._next():
            begun = [task for task in tasks if task.handle.begin()]
            try:
                with self._collector.expecting():
                    self._make(begun)
            except BaseException as error:  # it is for those who wait: a thread has nobody else to tell
                for task in begun:
                    task.handle.finish(error=error)

    def _next(self) -> list[Task]:
        """Those that can be stored together; none, and the thread ends, when nothing has come for long."""
        with self._mutex:
            if not self._tasks and (
                self._closing or not self._arrived.wait_for(lambda: bool(self._tasks) or self._closing, LINGER_S)
            ):
                self._thread = None
                return []
            found: list[Task] = []
            while self._tasks and len(found) < TOGETHER_MAX:
                joins = self._tasks[0].joins and (not found or self._tasks[0].way.durability == found[0].way.durability)
                if found and not (joins and found[0].joins):
                    break
                found.append(self._tasks.popleft())
            if not found:  # it was told to close
                self._thread = None
            return found

    def _make(self, tasks: list[Task]) -> None:
        if any(task.way.asks for task in tasks):
            self._answers.box()
        if len(tasks) > 1 and self._store_together(tasks):
            return
        for task in tasks:
            try:
                items = task.store() if task.store is not None else self._store(task)
            except Exception as error:
                task.handle.finish(error=error)
            else:
                self._stored(task, items)

    def _store_together(self, tasks: list[Task]) -> bool:
        """False if they have to be stored one by one: one of them is refused, say."""
        items = [task.items[0] for task in tasks]
        queue = self._queue
        try:
            queue._put_together(items, queue._is_synced(tasks[0].way.durability))
        except (QueueFull, Misuse, BeingPut):
            queue._producer.may_try_again(items)
            return False
        for task in tasks:
            self._stored(task, task.items)
        return True

    def _store(self, task: Task) -> list[Entry]:
        items = task.items
        while items:
            room_s = None if task.until_s is None else self._room_s(task.until_s)
            try:
                self._queue._put(items, room_s, task.way.durability)
                break
            except QueueFull:
                if task.until_s is None or time.monotonic() >= task.until_s:
                    raise
                if self._closing:
                    raise QueueClosed(f"{self._queue.name}: this queue object was closed while it was full") from None
                self._queue._producer.may_try_again(items)
        return items

    def _room_s(self, until_s: float) -> float:
        return 0.0 if self._closing else min(max(until_s - time.monotonic(), 0.0), ROOM_LOOK_S)

    def _stored(self, task: Task, items: list[Entry]) -> None:
        if task.way.asks and items:
            self.await_answers(task.handle, task.way, items, several=task.several)
            return
        ids = MessageIds(self._queue._id_prefix, items)
        task.handle.stored(ids)
        task.handle.finish(ids if task.several else ids[0])

    def await_answers(self, handle: Handle, way: Way, items: list[Entry], *, several: bool) -> Gathered:
        """Whoever is told the ids is waited for already: else an answer that comes at once could be somebody else's."""
        ids = MessageIds(self._queue._id_prefix, items)
        gathered = Gathered(handle, list(ids), several)
        # One that was put before, by its dedup id, is answered under the name of whoever put it.
        known = {question: item.known != 0 for item, question in zip(reversed(items), reversed(ids), strict=True)}
        for question, is_known in known.items():
            told = functools.partial(gathered.take, question, question if way.model == ACKNOWLEDGED else None)
            try:
                self._collector.add(question, handle, told, known=is_known)
            except PenstockError as error:
                told(None, error)
        handle.stored(ids, known=any(item.known for item in items), shared=any(item.key for item in items))
        gathered.begin()
        if handle.abandoned:  # meanwhile
            self.abandon(handle)
        return gathered

    def close(self) -> None:
        """What can be stored at once is; the rest is told that there was no time for it."""
        self._answers.closing = True
        with self._mutex:
            self._closing = True
            thread = self._thread
            self._arrived.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._collector.close()


class Gathered:
    """The answers to the questions of one put."""

    def __init__(self, handle: Handle, questions: Sequence[str], several: bool) -> None:
        self._handle = handle
        self._questions = questions
        self._several = several
        self._left = len(set(questions)) + 1  # the one is ``begin``
        self._results: dict[str, Any] = {}
        self._error: BaseException | None = None
        self._mutex = threading.Lock()

    def take(self, question: str, instead: str | None, result: Any, error: BaseException | None) -> None:
        """``instead``: what counts as the result, whatever it is."""
        with self._mutex:
            if error is None:
                self._results[question] = result if instead is None else instead
            else:
                self._error = self._error or error
        self._one_less()

    def begin(self) -> None:
        """The handle may have its result: it has the ids."""
        self._one_less()

    def _one_less(self) -> None:
        with self._mutex:
            self._left -= 1
            if self._left:
                return
        if self._error is not None:
            if isinstance(self._error, GivenUp | NoAnswer):
                self._error.answers = dict(self._results)
            self._handle.finish(error=self._error)
        else:
            results = [self._results[each] for each in self._questions]
            self._handle.finish(results if self._several else results[0])

    def late(self, queue: str, waited_s: float) -> NoAnswer:
        with self._mutex:
            missing = next((each for each in self._questions if each not in self._results), self._questions[0])
            return NoAnswer(queue, missing, waited_s=waited_s, answers=dict(self._results))


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)
