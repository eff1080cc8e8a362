"""Owns QueueConsumer: a loop over the messages of a queue, taken many at a time and handed out one by one.

Only asking for the next message acknowledges the one before. However else a loop is left, by an exception, ``break`` or
``return``, the message in hand goes back, unless it was answered before. Acknowledgements are gathered and sent
together; a background thread sends those that wait, and keeps the leases of all that is held while work goes on. What
was never handed out goes back without an attempt. Knows a queue only by its public interface: what a killed process
held comes back by the queue's own means.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType

from penstock.errors import LeaseLost, Misuse, PenstockError, QueueClosed
from penstock.interface import Queue
from penstock.message import LOST, PENDING, Message
from penstock.timequeue import forking

PREFETCH = 100
PREFETCH_MAX = 10_000  # all of it is extended one by one, and given back when the consumer closes
ACKS_S_MAX = 0.05  # how long an acknowledgement waits for others while work goes on
NAP_S_MAX = 0.25  # a loop that waits for messages looks so often whether it shall stop
EXTENSIONS_A_LEASE = 3  # so that one may fail, or come late

log = logging.getLogger("penstock")

Clock = Callable[[], float]


class QueueConsumer:
    """See ``TimeQueue.consumer``. Several threads, or several tasks, may loop over one consumer."""

    def __init__(
        self,
        queue: Queue,
        *,
        prefetch: int,
        wait_s: float | None,
        lease_s: float,
        types: tuple[str, ...] = (),
        keys: tuple[str, ...] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        if prefetch.__class__ is not int or not 1 <= prefetch <= PREFETCH_MAX:
            raise Misuse(f"prefetch must be a whole number from 1 to {PREFETCH_MAX}, not {prefetch!r}")
        self._queue = queue
        self._prefetch = prefetch
        self._wait_s = wait_s
        self._lease_s = lease_s
        self._type = _asked(types)
        self._key = _asked(keys)
        self._shortest_s = lease_s  # of all leases so far: messages may have their own
        self._clock = clock
        self._ready: deque[Message] = deque()  # taken, not started
        self._unstarted: deque[Message] = deque()  # what was ready when it was told to stop
        self._hands: dict[int, list[Message | None]] = {}  # of each loop: what its body works on
        self._done: list[Message] = []  # to be acknowledged
        self._left: deque[Message] = deque()  # by the loops of coroutines: to be given back
        self._taking = threading.Lock()  # for whoever empties the list of what is done
        self._extended_s = clock()
        self._filling = threading.Lock()
        self._answering = threading.Lock()  # one thread at a time sends acknowledgements, extends or gives back
        self._filling_async: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._entered = False
        self._stopping = False
        self._closed = False
        self._ended = False
        self._sooner = threading.Event()  # the background is to look at once
        self._keeper: threading.Thread | None = None
        self._disowned = False
        self.lost = 0
        forking.note(self)

    # ------------------------------------------------------------ the loops

    def __iter__(self) -> Iterator[Message]:
        self._require_entered()
        return self._loop()

    def _loop(self) -> Iterator[Message]:
        hand: list[Message | None] = [None]
        self._hands[id(hand)] = hand
        take = self._ready.popleft
        done = self._done.append
        while True:
            try:
                message = take()
            except IndexError:
                hand[0] = None
                if not self._fill():
                    self._hands.pop(id(hand), None)
                    return
                continue
            hand[0] = message
            try:
                yield message
            except BaseException:  # the loop is left: closed, dropped, or thrown into
                self._leave(hand)
                raise
            done(message)

    def __aiter__(self) -> AsyncIterator[Message]:
        self._require_entered()
        return self._aloop()

    async def _aloop(self) -> AsyncIterator[Message]:
        hand: list[Message | None] = [None]
        self._hands[id(hand)] = hand
        take = self._ready.popleft
        done = self._done.append
        while True:
            try:
                message = take()
            except IndexError:
                hand[0] = None
                if not await self._afill():
                    self._hands.pop(id(hand), None)
                    return
                continue
            hand[0] = message
            try:
                yield message
            except BaseException:  # the event loop does not wait for the lock: the background gives it back
                self._left.append(message)
                self._hands.pop(id(hand), None)
                raise
            done(message)

    def _require_entered(self) -> None:
        if not self._entered or self._closed:
            raise Misuse(
                "loop over a consumer inside its block: with q.consumer() as consumer: for message in consumer:"
            )

    def _leave(self, hand: list[Message | None]) -> None:
        """A loop was left with a message in hand, of which nobody knows that it is done."""
        self._hands.pop(id(hand), None)
        message, hand[0] = hand[0], None
        if message is not None:
            self._give_back(message)

    def _after_fork_in_child(self) -> None:
        """What is held is the parent's: a loop that goes on here ends. Threads that had a lock of ours are not here."""
        self._disowned = self._stopping = self._closed = True
        self._answering = threading.Lock()
        self._taking = threading.Lock()
        self._filling = threading.Lock()
        for held in (self._ready, self._unstarted, self._left, self._hands, self._done):
            held.clear()

    # ------------------------------------------------------------ taking

    def _fill(self) -> bool:
        """Wait for more; False when the loop is to end. First what is done: it may have waited for this."""
        self.flush()
        end_s = None if self._wait_s is None else self._clock() + self._wait_s
        with self._filling:
            while not self._ready:
                if self._stopping:
                    return False
                nap_s = NAP_S_MAX if end_s is None else max(min(end_s - self._clock(), NAP_S_MAX), 0.0)
                found = self._queue.get_many(
                    self._prefetch, wait=nap_s, lease=self._lease_s, type=self._type, key=self._key
                )
                self._take(found)
                if self._stopping:
                    self.stop()
                    if self._closed:  # meanwhile, and nobody else comes to give it back
                        self._unget_unstarted()
                if not found and end_s is not None and self._clock() >= end_s:
                    return False
        return True

    def _take(self, found: list[Message]) -> None:
        for message in found:
            if message.own_lease_s is not None and message.own_lease_s < self._shortest_s:
                self._shortest_s = message.own_lease_s
                self._sooner.set()
        self._ready.extend(found)

    async def _afill(self) -> bool:
        await self._aflush()
        end_s = None if self._wait_s is None else self._clock() + self._wait_s
        loop = asyncio.get_running_loop()
        async with self._filling_async.setdefault(loop, asyncio.Lock()):
            while not self._ready:
                if self._stopping:
                    return False
                nap_s = NAP_S_MAX if end_s is None else max(min(end_s - self._clock(), NAP_S_MAX), 0.0)
                found = await self._queue.aget_many(
                    self._prefetch, wait=nap_s, lease=self._lease_s, type=self._type, key=self._key
                )
                self._take(found)
                if self._stopping:
                    self.stop()
                    if self._closed:
                        await asyncio.shield(loop.run_in_executor(None, self._unget_unstarted))
                if not found and end_s is not None and self._clock() >= end_s:
                    return False
        return True

    # ------------------------------------------------------------ answering

    def flush(self) -> None:
        """Send the acknowledgements that wait for others. By itself that happens twenty times a second."""
        if not self._done or self._disowned:
            return
        with self._answering:
            self._flush()

    def _flush(self) -> None:
        done = self._take_done()
        try:
            self._queue.ack_many(done)
        except LeaseLost:
            self._note_lost(done)
        except BaseException:
            self._put_back(done)
            raise

    async def _aflush(self) -> None:
        if not self._done or self._disowned:
            return
        done = self._take_done()
        try:
            await self._queue.aack_many(done)
        except LeaseLost:
            self._note_lost(done)
        except (PenstockError, OSError):
            self._put_back(done)
            raise

    def _put_back(self, done: list[Message]) -> None:
        """The next flush tries again."""
        with self._taking:
            self._done[:0] = done

    def _take_done(self) -> list[Message]:
        """Loops may append meanwhile. Those that a body has answered itself are among them, and no longer ours."""
        with self._taking:
            count = len(self._done)
            done = self._done[:count]
            del self._done[:count]
        return done

    def _note_lost(self, messages: list[Message]) -> None:
        for message in messages:
            if message.state == PENDING:
                self._lose(message)

    def _lose(self, message: Message) -> None:
        """Somebody else may have it by now: that is said, and no end of the others."""
        message.state = LOST
        self.lost += 1
        log.warning("%s: its lease ended before it was acknowledged: it is delivered again", message.id)

    def _give_back(self, message: Message) -> None:
        if message.state != PENDING or self._disowned:
            return
        try:
            message.release()
        except LeaseLost:
            message.state = LOST
        except QueueClosed:
            pass  # with the queue object all that it held went back
        except Misuse:  # in a finalizer that interrupted a call of this queue: the background does it
            self._left.append(message)
        except (PenstockError, OSError) as error:
            log.warning("%s: it was not given back, and returns when its lease ends: %s", message.id, error)

    # ------------------------------------------------------------ the background

    def _keep(self) -> None:
        while not self._ended:
            if self._sooner.wait(min(ACKS_S_MAX, self._shortest_s / EXTENSIONS_A_LEASE / 2)):
                self._sooner.clear()
                continue
            try:
                self.keep()
            except QueueClosed:
                return
            except (PenstockError, OSError) as error:
                log.warning("%s: leases or acknowledgements have to wait: %s", self._queue.name, error)

    def keep(self) -> None:
        """What the background does again and again: acknowledge what is done, extend what has been held for long."""
        self.flush()
        self._give_back_left()
        now_s = self._clock()
        if now_s - self._extended_s >= self._shortest_s / EXTENSIONS_A_LEASE:
            self._extended_s = now_s
            with self._answering:
                for message in self._held():
                    self._extend(message)

    def _held(self) -> list[Message]:
        in_hand = [message for (message,) in list(self._hands.values()) if message is not None]
        return [*in_hand, *self._ready.copy(), *self._unstarted.copy(), *self._done.copy()]

    def _extend(self, message: Message) -> None:
        if message.state != PENDING:
            return
        try:
            message.extend(message.own_lease_s or self._lease_s)
        except LeaseLost:
            if message.state != PENDING:
                return  # answered in this moment
            self._lose(message)
            with contextlib.suppress(ValueError):  # a loop has just taken it
                self._ready.remove(message)

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Let every loop end when it asks for its next message. May be called by a signal handler."""
        self._stopping = True
        while self._ready:
            with contextlib.suppress(IndexError):  # a loop has just taken it
                self._unstarted.append(self._ready.popleft())

    def close(self) -> None:
        """Acknowledge what is done, give back the rest: what is in hand and what was not started."""
        if self._closed:
            return
        self.stop()
        self._closed = True
        self._ended = True
        self._sooner.set()
        if self._keeper is not None:
            self._keeper.join()
        try:
            with contextlib.suppress(QueueClosed):
                self.flush()
        finally:
            with self._answering:
                for hand in list(self._hands.values()):
                    self._leave(hand)
                self._give_back_left()
                self._unget_unstarted()

    def _give_back_left(self) -> None:
        for _ in range(len(self._left)):
            self._give_back(self._left.popleft())

    def _unget_unstarted(self) -> None:
        unstarted = []
        with contextlib.suppress(IndexError):  # others may do the same
            while True:
                unstarted.append(self._unstarted.popleft())
        try:
            if unstarted:
                self._queue.unget(unstarted)
        except QueueClosed:
            pass  # with the queue object all that it held went back
        except (PenstockError, OSError) as error:
            log.warning("%s: %d return when their lease ends: %s", self._queue.name, len(unstarted), error)

    def __enter__(self) -> QueueConsumer:
        if self._entered:
            raise Misuse("a consumer is for one block: make another one")
        self._entered = True
        self._keeper = threading.Thread(target=self._keep, name="penstock consumer", daemon=True)
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> QueueConsumer:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """By a thread, since it may have to wait for the lock. Cancelled, it ends first all the same: whoever comes
        after it may close the queue, with which what is done and not acknowledged would come back."""
        self.stop()
        closing = asyncio.get_running_loop().run_in_executor(None, self.close)
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise

    def __repr__(self) -> str:
        return f"<QueueConsumer of {self._queue.name}, {len(self._ready) + len(self._unstarted)} not started>"


def _asked(names: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """As ``get_many`` has it; one alone as a str, which a queue knows again at once."""
    return None if not names else names[0] if len(names) == 1 else names
