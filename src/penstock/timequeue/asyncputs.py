"""Owns puts of coroutines: they gather while a sync is under way, and go in together with the next one.

The event loop never waits for a lock or a disk: one worker of its thread pool at a time takes all puts that have
gathered, reserves, copies, commits and publishes them as one, and tells their coroutines. Each is a message of its own:
one that is refused, or waits for another producer who puts the same dedup id, does not keep the others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from penstock.errors import Misuse, QueueFull
from penstock.timequeue.producer import BEING_PUT_LOOK_S_MAX, BeingPut, being_put_for_long
from penstock.timequeue.puts import Entry

BREATHER = 64  # after so many puts without a wait the event loop's other tasks have a turn

PutTogether = Callable[[list[Entry], bool], None]


class _Waiting:
    __slots__ = ("entry", "future", "loop", "since_s", "sync")

    def __init__(self, entry: Entry, sync: bool, loop: asyncio.AbstractEventLoop) -> None:
        self.entry = entry
        self.sync = sync
        self.loop = loop
        self.since_s = time.monotonic()
        self.future: asyncio.Future[None] = loop.create_future()

    def tell(self, error: BaseException | None) -> None:
        if self.future.done():  # cancelled meanwhile
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class AsyncPuts:
    """The puts of one queue object that wait for their turn."""

    def __init__(self, name: str, busy_s: float) -> None:
        self._name = name
        self._busy_s = busy_s
        self._mutex = threading.Lock()
        self._gathered: list[_Waiting] = []
        self._held: list[_Waiting] = []  # the worker's: somebody else is putting their dedup ids
        self._working = False
        self._alone = 0

    @property
    def idle(self) -> bool:
        return not self._working

    async def may_be_alone(self) -> bool:
        """Whether nothing gathers: nobody is overtaken by one that puts by itself, without waiting."""
        self._alone += 1
        if self._alone % BREATHER == 0:
            await asyncio.sleep(0)
        return self.idle

    async def put(self, entry: Entry, sync: bool, put_together: PutTogether) -> None:
        """``put_together`` puts entries as messages of their own."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(entry, sync, loop)
        with self._mutex:
            self._gathered.append(waiting)
            start, self._working = not self._working, True
        if start:
            try:
                loop.run_in_executor(None, self._work, put_together)
            except BaseException:  # the loop's threads are shut down, say
                with self._mutex:
                    self._gathered.remove(waiting)
                    self._working = False
                raise
        await waiting.future

    def _work(self, put_together: PutTogether) -> None:
        """Until nothing is left; whoever comes after that starts the next worker."""
        while True:
            with self._mutex:
                gathered, self._gathered = self._gathered, []
                if not gathered:
                    self._working = False
                    return
            for sync in (True, False):
                self._put_gathered([waiting for waiting in gathered if waiting.sync == sync], sync, put_together)
            if self._held:
                self._gather_held()

    def _gather_held(self) -> None:
        """They try again, with those that came meanwhile or, if there are none, after a moment."""
        held, self._held = self._held, []
        with self._mutex:
            others = bool(self._gathered)
            self._gathered.extend(held)
        if not others:
            time.sleep(BEING_PUT_LOOK_S_MAX)

    def _put_gathered(self, gathered: list[_Waiting], sync: bool, put_together: PutTogether) -> None:
        if not gathered:
            return
        error = _error_of(put_together, [waiting.entry for waiting in gathered], sync)
        if isinstance(error, BeingPut):
            keys = set(error.keys)
            self._hold([waiting for waiting in gathered if waiting.entry.key in keys])
            self._put_gathered([waiting for waiting in gathered if waiting.entry.key not in keys], sync, put_together)
            return
        if not isinstance(error, QueueFull | Misuse) or len(gathered) == 1:
            self._tell([(waiting, error) for waiting in gathered])
            return
        for waiting in gathered:  # not all of them fit, and none is in: each gets its own answer
            self._put_gathered([waiting], sync, put_together)

    def _hold(self, held: list[_Waiting]) -> None:
        """None of them is in, nor are others that were to be put with them."""
        end_s = time.monotonic() - self._busy_s
        error = being_put_for_long(self._name, self._busy_s)
        self._tell([(waiting, error) for waiting in held if waiting.since_s <= end_s])
        self._held += [waiting for waiting in held if waiting.since_s > end_s]

    @staticmethod
    def _tell(answers: list[tuple[_Waiting, BaseException | None]]) -> None:
        """One call into each loop, not one for each coroutine."""
        loops = {answer[0].loop for answer in answers}
        for loop in loops:
            with contextlib.suppress(RuntimeError):  # it is closed: nobody waits there any more
                loop.call_soon_threadsafe(_deliver, [answer for answer in answers if answer[0].loop is loop])


def _error_of(put_together: PutTogether, entries: list[Entry], sync: bool) -> BaseException | None:
    try:
        put_together(entries, sync)
    except BaseException as error:  # it is for the coroutine, whatever it is; a worker has nobody else to tell
        return error
    return None


def _deliver(answers: list[tuple[_Waiting, BaseException | None]]) -> None:
    for waiting, error in answers:
        waiting.tell(error)
