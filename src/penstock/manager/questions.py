"""Owns puts into a macro queue that wait for an answer, and those that nobody waits for, which one thread makes. Which
member a message goes to is ``sending.py``'s; how its answer comes back, that member's.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from penstock.codec import decode_body, encode_body
from penstock.errors import Misuse, NoAnswer, QueueClosed, QueueFull
from penstock.manager.sending import Route, Sending
from penstock.timequeue import TimeQueue
from penstock.timequeue.arguments import check_seconds
from penstock.timequeue.asking import EVER_S, ROOM_LOOK_S, Asking, Gathered
from penstock.timequeue.handles import Handle
from penstock.timequeue.ids import MessageIds
from penstock.timequeue.models import Way
from penstock.timequeue.puts import Draft, drafted, to_us


class Copy(Protocol):
    """How messages get into all members of a route."""

    def __call__(self, route: Route, drafts: list[Draft], durability: str | None) -> MessageIds: ...


class Question:
    """One put on its way: its handle, and the member that it went to, once that is known."""

    def __init__(self, name: str, way: Way, drafts: list[Draft], *, several: bool) -> None:
        self.way = way
        self.drafts = drafts
        self.several = several
        self.handle = Handle(name, self._take_back)
        self.gathered: Gathered | None = None
        self._asks: Asking | None = None

    @property
    def dedup_id(self) -> str | None:
        return next((draft.dedup_id for draft in self.drafts if draft.dedup_id), None)

    def store(self, queue: TimeQueue) -> Sequence[str]:
        """Into this member, or ``QueueFull``; its ids. Whoever asks hears from it from now on."""
        self._asks = asks = queue._asks()
        items = queue._entries(self.drafts, {}, self.way)
        with asks.expecting():
            asks.prepare(self.way)
            queue._put(items, None, self.way.durability)
            ids = MessageIds(queue._id_prefix, items)
            if self.way.asks:
                self.gathered = asks.await_answers(self.handle, self.way, items, several=self.several)
            else:
                self.done(ids)
        return ids

    def done(self, ids: Sequence[str]) -> None:
        """It is stored, and that was all."""
        self.handle.stored(ids)
        self.handle.finish(ids if self.several else ids[0])

    def _take_back(self, handle: Handle) -> bool:
        return self._asks is not None and self._asks.take_back(handle)

    def abandon(self) -> None:
        """Its caller does not wait any more."""
        self.handle.abandon()
        if self._asks is not None:
            self._asks.abandon(self.handle)


class Questions:
    """Those of one macro queue object."""

    def __init__(
        self,
        name: str,
        sending: Sending,
        *,
        queue_of: Callable[[Route], TimeQueue],
        copy: Copy,
        mine: Callable[[], Any],
        now_us: Callable[[], int],
    ) -> None:
        self._now_us = now_us
        self._name = name
        self._sending = sending
        self._queue_of = queue_of
        self._copy = copy
        self._mine = mine
        self._thread: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()
        self._worker: int | None = None
        self._closing = False

    def put(self, drafts: list[Draft], way: Way, timeout: float | None, *, several: bool) -> Any:
        """What a put of these returns."""
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        if not way.wait:
            return self._start(drafts, way, seconds, several=several).handle
        started_s = time.monotonic()
        room_s = EVER_S if way.asks and seconds is None else seconds
        if way.asks and not several:
            return self._ask(drafts, way, room_s, None if seconds is None else started_s + seconds)
        question = Question(self._name, way, drafts, several=several)
        self._sending.put(lambda route: self._into(route, question), room_s, question.dedup_id)
        try:
            left_s = None if seconds is None or not way.asks else max(started_s + seconds - time.monotonic(), 0.0)
            return question.handle.result(left_s)
        except NoAnswer:
            if question.gathered is None:
                raise
            raise question.gathered.late(self._name, time.monotonic() - started_s) from None
        finally:
            question.abandon()

    def _ask(self, drafts: list[Draft], way: Way, room_s: float | None, deadline: float | None) -> Any:
        """One question, whose answer this thread takes itself."""
        started_s = time.monotonic()

        def into(route: Route) -> Callable[[], Any]:
            self._refuse_copies(route, way)
            queue = self._queue_of(route)
            asks = queue._asks()
            asks.prepare(way)
            (item,) = queue._entries(drafts, {}, way, several=False)
            queue._put([item], None, way.durability)
            return lambda: asks.answer(way, item, deadline)

        answer = self._sending.put(into, room_s, drafts[0].dedup_id)
        try:
            return answer()
        except NoAnswer as late:  # as the caller knows the queue
            raise NoAnswer(self._name, late.message_id, waited_s=time.monotonic() - started_s) from None

    def _refuse_copies(self, route: Route, way: Way) -> None:
        if route.copies is not None and way.asks:
            raise Misuse(
                f"{self._name}: it copies to all its members, and a put of the model {way.model} waits for one answer"
            )

    def _into(self, route: Route, question: Question) -> Sequence[str]:
        self._refuse_copies(route, question.way)
        if route.copies is None:
            return question.store(self._queue_of(route))
        ids = self._copy(route, question.drafts, question.way.durability)
        question.done(ids)
        return ids

    async def aput(self, drafts: list[Draft], way: Way, timeout: float | None, *, several: bool) -> Any:
        """For coroutines: a put that waits for its answer."""
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        room_s = EVER_S if way.asks and seconds is None else seconds
        question = self._start(drafts, way, room_s, several=several)
        try:
            async with asyncio.timeout(seconds if way.asks else None):
                return await question.handle
        except TimeoutError:
            if question.handle.done():
                return question.handle.result(0)
            raise NoAnswer(self._name, question.handle.id, waited_s=seconds or 0.0) from None
        finally:
            question.abandon()

    # ------------------------------------------------------------ the thread

    def _start(self, drafts: list[Draft], way: Way, room_s: float | None, *, several: bool) -> Question:
        frozen = [as_it_is(draft, self._now_us()) for draft in drafts]
        question = Question(self._name, way, frozen, several=several)
        until_s = None if room_s is None else time.monotonic() + room_s
        with self._mutex:
            if self._closing:
                raise QueueClosed(f"{self._name}: this queue object is closed")
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock puts")
            # With the caller's context: a trace goes along.
            self._thread.submit(contextvars.copy_context().run, self._make, question, until_s)
        return question

    def _make(self, question: Question, until_s: float | None) -> None:
        self._worker = threading.get_ident()
        if not question.handle.begin():
            return
        try:
            if not question.drafts:
                question.done([])
            else:
                self._mine()
                self._put_when_room(question, until_s)
        except BaseException as error:  # it is for those who wait: a thread has nobody else to tell
            question.handle.finish(error=error)

    def _put_when_room(self, question: Question, until_s: float | None) -> None:
        """In short waits: who closes the queue object waits for this thread."""
        while True:
            left_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
            room_s = 0.0 if self._closing and left_s is not None else left_s
            with contextlib.suppress(QueueFull) if left_s else contextlib.nullcontext():
                wait_s = None if room_s is None else min(room_s, ROOM_LOOK_S)
                self._sending.put(lambda route: self._into(route, question), wait_s, question.dedup_id)
                return
            if self._closing:
                raise QueueClosed(f"{self._name}: this queue object was closed while it was full")

    def close(self) -> None:
        """What can be stored at once is; the rest is told that there was no time for it."""
        with self._mutex:
            self._closing = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=self._worker != threading.get_ident())  # not by a callback in that thread

    def after_fork_in_child(self) -> None:
        self._mutex = threading.Lock()
        self._thread = None


def as_it_is(draft: Draft, now_us: int) -> Draft:
    """A draft that is put later as it is now: the caller may go on to change the body, and times count from now. What
    cannot be put is told now."""
    drafted(draft, draft.body, now_us, None)
    deliver_us = to_us(draft.deliver_at, draft.delay, now_us)
    expires = draft.expires_at is not None or draft.ttl is not None
    expires_us = (to_us(draft.expires_at, draft.ttl, now_us) or now_us) if expires else 0
    return msgspec.structs.replace(
        draft,
        body=decode_body(*encode_body(draft.body)),
        headers=dict(draft.headers) if draft.headers else None,
        deliver_at=deliver_us / 1e6 if deliver_us else None,
        delay=None,
        expires_at=expires_us / 1e6 if expires else None,
        ttl=None,
    )
