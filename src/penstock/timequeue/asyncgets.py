"""Owns gets of coroutines: what is due they take by themselves, and for the rest they wait in one line.

One thread a queue object watches for all of its line, however long, and takes for as many as there are messages. Who
wants only some types or keys stands in a line of those that want the same, which has a thread of its own. The event
loop waits for no lock and reads no file: a look takes one turn, and only if the lock is free. What was taken for a
coroutine that is cancelled before it has it travels in a parcel, which goes back to the queue unless it is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, ParamSpec, Protocol, TypeVar

from penstock.errors import Corrupt, PenstockError, QueueBusy, QueueClosed
from penstock.message import Message
from penstock.timequeue.leases import Look, Wanted
from penstock.timequeue.walking import receive_walking

TAKEN_A_TURN_MAX = 1000  # for the coroutines of a line together: about as long as a batch takes
LINES_MAX = 64  # of those that choose: more are kept only while somebody stands there
WALK_PAUSE_S = 0.1  # between two searches of a queue that has no trees
LINGER_S = 5.0  # an idle thread stays so long: starting one takes longer than most waits
BREATHER = 64  # after so many gets without a wait the event loop's other tasks have a turn

log = logging.getLogger("penstock")

P = ParamSpec("P")
Result = TypeVar("Result")


class Source(Protocol):
    """What a queue object has for its coroutines."""

    @property
    def _consumer(self) -> Any: ...  # a Consumer, or what does the same for several queues
    @property
    def name(self) -> str: ...
    def _mine(self) -> Any: ...
    def unget(self, messages: list[Message]) -> None: ...


async def in_thread(work: Callable[P, Result], *arguments: P.args, **options: P.kwargs) -> Result:
    """Let a thread wait for a lock or a disk. What was begun is done, also when the coroutine is cancelled."""
    doing = asyncio.get_running_loop().run_in_executor(None, lambda: work(*arguments, **options))
    return await asyncio.shield(doing)


class _Parcel:
    """Messages on their way to a coroutine. Dropped unopened, by whomever, they go back."""

    __slots__ = ("_gets", "_messages", "_source")

    def __init__(self, gets: AsyncGets, source: Source, messages: list[Message]) -> None:
        self._gets = gets
        self._source = source
        self._messages = messages

    def open(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def give_back(self) -> None:
        messages = self.open()
        if messages:
            self._gets.give_back(self._source, messages)

    def __del__(self) -> None:
        self.give_back()


class _Waiting:
    """A coroutine in the line."""

    __slots__ = ("future", "lease_us", "loop", "most", "source", "stays")

    def __init__(self, source: Source, most: int, lease_us: int, *, stays: bool) -> None:
        self.source = source
        self.most = most
        self.lease_us = lease_us
        self.stays = stays  # else it wants an answer after one look
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[_Parcel | None] = self.loop.create_future()

    def answer(self, parcel: _Parcel | None, error: BaseException | None = None) -> None:
        """In its loop. One that was cancelled meanwhile gets nothing."""
        if self.future.done():
            if parcel is not None:
                parcel.give_back()
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(parcel)

    def abandon(self) -> None:
        """Cancelled, perhaps between the answer and the next step of the coroutine."""
        if self.future.done() and not self.future.cancelled() and self.future.exception() is None:
            parcel = self.future.result()
            if parcel is not None:
                parcel.give_back()


_Answer = tuple[_Waiting, _Parcel | None, BaseException | None]


class AsyncGets:
    """The coroutines that wait for messages of one queue object."""

    def __init__(self, wanted: Wanted | None = None) -> None:
        self._wanted = wanted
        self._choosing: dict[tuple[tuple[str, ...], tuple[str, ...]], AsyncGets] = {}
        self._mutex = threading.Lock()
        self._arrived = threading.Condition(self._mutex)
        self._line: dict[_Waiting, None] = {}
        self._watching = False
        self._at_once = 0
        self._returned: deque[tuple[Source, list[Message]]] = deque()
        self._returning = threading.Lock()  # held by the thread that gives back
        self._disowned = False

    def choosing(self, wanted: Wanted) -> AsyncGets:
        """The line of those that want the same. One that is forgotten here goes on for those that stand there."""
        names = wanted.types, wanted.keys
        with self._mutex:
            found = self._choosing.get(names)
            if found is None:
                if len(self._choosing) >= LINES_MAX:
                    self._choosing = {name: each for name, each in self._choosing.items() if each._line}
                found = self._choosing[names] = AsyncGets(wanted)
        return found

    async def get(self, source: Source, most: int, lease_us: int, wait_s: float | None) -> list[Message]:
        """Up to ``most``; none after ``wait_s`` seconds (None: for ever) is an empty list."""
        source._mine()
        if self._wanted is not None and not source._consumer.has_trees():
            return await self._walk(source, self._wanted, most, lease_us, wait_s)
        if not self._line:
            self._at_once += 1
            if self._at_once % BREATHER == 0:
                await asyncio.sleep(0)  # nothing is taken yet
        if not self._line or wait_s == 0:
            look = _look_at_once(source, most, lease_us, self._wanted)
            if look is not None:
                found = await self._read(source, look)
                if found or (wait_s == 0 and not look.deliveries):
                    return found
        return await self._wait(source, most, lease_us, wait_s)

    async def _read(self, source: Source, look: Look) -> list[Message]:
        consumer = source._consumer
        if not look.deliveries:
            return []
        if not consumer.must_read_files(look):
            return self._met(source, consumer.messages(look))
        begun = False
        try:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(
                None, lambda: _Parcel(self, source, self._met(source, consumer.messages(look)))
            )
            begun = True
        finally:
            if not begun:  # the loop's threads are shut down, say
                consumer.give_back(look)
        return (await asyncio.shield(reading)).open()

    def _met(self, source: Source, messages: list[Message]) -> list[Message]:
        """Those that were wanted. Others have the hash of one that was, and go back."""
        unmet: list[Message] = []
        found = self._set_aside(messages, unmet)
        if unmet:
            self.give_back(source, unmet)
        return found

    def _set_aside(self, messages: list[Message], unmet: list[Message]) -> list[Message]:
        wanted = self._wanted
        if wanted is None:
            return messages
        unmet += [message for message in messages if not wanted.is_met(message)]
        return [message for message in messages if wanted.is_met(message)]

    async def _walk(
        self, source: Source, wanted: Wanted, most: int, lease_us: int, wait_s: float | None
    ) -> list[Message]:
        """By a thread, again and again: only the records say what is there."""
        loop = asyncio.get_running_loop()
        end_s = None if wait_s is None else loop.time() + wait_s

        def search() -> _Parcel:
            client = source._mine()
            return _Parcel(self, source, receive_walking(client, source._consumer, wanted, most, 0.0, lease_us))

        while True:
            found = (await asyncio.shield(loop.run_in_executor(None, search))).open()
            if found or (end_s is not None and loop.time() >= end_s):
                return found
            await asyncio.sleep(WALK_PAUSE_S if end_s is None else min(max(end_s - loop.time(), 0.0), WALK_PAUSE_S))

    async def _wait(self, source: Source, most: int, lease_us: int, wait_s: float | None) -> list[Message]:
        waiting = _Waiting(source, most, lease_us, stays=wait_s != 0)
        end = waiting.loop.call_later(wait_s, waiting.answer, None) if wait_s else None
        try:
            self._enter(waiting)
            parcel = await waiting.future
        except BaseException:
            waiting.abandon()
            raise
        finally:
            if end is not None:
                end.cancel()
            with self._mutex:
                self._line.pop(waiting, None)
        return [] if parcel is None else parcel.open()

    def _enter(self, waiting: _Waiting) -> None:
        with self._mutex:
            self._line[waiting] = None
            self._arrived.notify()
            if not self._watching:
                threading.Thread(target=self._watch, name="penstock watcher", daemon=True).start()
                self._watching = True

    # ------------------------------------------------------------ the thread that watches

    def _watch(self) -> None:
        try:
            while self._somebody_waits():
                self._serve()
        except BaseException as error:  # whoever comes later starts another one
            with self._mutex:
                self._watching = False
            self._tell([(waiting, None, error) for waiting in self._all()])
            raise

    def _somebody_waits(self) -> bool:
        """False, and the thread ends, when nobody has come for long."""
        with self._mutex:
            if not self._line and not self._arrived.wait_for(lambda: bool(self._line), LINGER_S):
                self._watching = False
                return False
            return True

    def _serve(self) -> None:
        """Until nobody waits any more. Armed is it with ``seen`` while it sleeps, and then looks or stands down."""
        source: Source | None = None
        seen: int | None = None
        timed_out: int | None = None
        unmet: list[Message] = []  # kept out of the way until all others were looked at
        while True:
            first = self._first()
            if not first:
                if source is not None and unmet:
                    self.give_back(source, unmet)
                if source is not None and seen is not None:
                    with contextlib.suppress(PenstockError, OSError):  # it is closed, or others look within a second
                        source._consumer.stand_down(seen, self._wanted is not None)
                return
            source = first[0].source
            try:
                source._mine()
                most = min(sum(waiting.most for waiting in first), TAKEN_A_TURN_MAX)
                look = source._consumer.look(most, first[0].lease_us, None, timed_out, self._wanted)
                seen = timed_out = None
                if look.deliveries:
                    self._hand_out(first, self._set_aside(source._consumer.messages(look), unmet))
                elif not look.again:
                    if unmet:
                        self.give_back(source, unmet)
                        unmet = []
                    seen = look.seen
                    if self._stays():
                        timed_out = None if source._consumer.sleep(look.seen, look.sleep_s) else look.seen
            except Corrupt as error:  # one of its messages is damaged; the others are back in the queue
                self._tell([(first[0], None, error)])
            except BaseException as error:  # it is for the coroutines: a thread has nobody else to tell
                self._tell([(waiting, None, error) for waiting in self._all()])

    def _all(self) -> list[_Waiting]:
        with self._mutex:
            return list(self._line)

    def _first(self) -> list[_Waiting]:
        """The head of the line, and those behind it that want the same lease."""
        line = self._all()
        found = []
        for waiting in islice(line, TAKEN_A_TURN_MAX):
            if waiting.lease_us != line[0].lease_us:
                break
            found.append(waiting)
        return found

    def _stays(self) -> bool:
        """Nothing is due: those that do not wait are told so. Whether anybody is left."""
        line = self._all()
        self._tell([(waiting, None, None) for waiting in line if not waiting.stays])
        return any(waiting.stays for waiting in line)

    def _hand_out(self, first: list[_Waiting], found: list[Message]) -> None:
        messages = iter(found)
        parts = [(waiting, list(islice(messages, waiting.most))) for waiting in first]
        self._tell([(waiting, _Parcel(self, waiting.source, part), None) for waiting, part in parts if part])

    def _tell(self, answers: list[_Answer]) -> None:
        """One call into each loop, not one for each coroutine. Whoever has an answer is out of the line."""
        with self._mutex:
            for answer in answers:
                self._line.pop(answer[0], None)
        for loop in {answer[0].loop for answer in answers}:
            with contextlib.suppress(RuntimeError):  # it is closed: nobody waits there, and what was taken goes back
                loop.call_soon_threadsafe(_deliver, [answer for answer in answers if answer[0].loop is loop])

    # ------------------------------------------------------------ giving back

    def give_back(self, source: Source, messages: list[Message]) -> None:
        """Soon, by a thread: a finalizer or a coroutine that is cancelled must not wait. Takes no lock of ours."""
        if self._disowned:
            return
        self._returned.append((source, messages))
        if self._returning.acquire(blocking=False):
            try:
                threading.Thread(target=self._return_all, name="penstock returns", daemon=True).start()
            except RuntimeError:  # the interpreter ends: they return with the process
                self._returning.release()

    def _return_all(self) -> None:
        while True:
            try:
                while self._returned:
                    _unget(*self._returned.popleft())
            finally:
                self._returning.release()
            if not self._returned or not self._returning.acquire(blocking=False):
                return

    def disown(self) -> None:
        """In the child of a fork: what is on its way is the parent's."""
        self._disowned = True
        for each in self._choosing.values():
            each.disown()

    def close(self, error: QueueClosed) -> None:
        """The queue object is closed: nobody waits for it any more."""
        for each in list(self._choosing.values()):
            each.close(error)
        self._tell([(waiting, None, error) for waiting in self._all()])


def _look_at_once(source: Source, most: int, lease_us: int, wanted: Wanted | None) -> Look | None:
    """None if it takes more than one turn at a lock that is free."""
    source._mine()
    try:
        look = source._consumer.look_at_once(most, lease_us, wanted)
    except QueueBusy:
        return None
    return None if look.again else look


def _unget(source: Source, messages: list[Message]) -> None:
    try:
        source.unget(messages)
    except QueueClosed:  # they are back already
        pass
    except (PenstockError, OSError) as error:
        log.warning("%s: %d return when their lease ends: not given back: %s", source.name, len(messages), error)


def _deliver(answers: list[Any]) -> None:
    for waiting, parcel, error in answers:
        waiting.answer(parcel, error)
