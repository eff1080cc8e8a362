"""Owns how a client asks the synchronization component for a sync and waits for its answer. Never syncs, and decides
nothing about a message: an answer, and its absence, are hints. What is on disk the kernel's words say.

One that waits has a pair of pipes of its own, a channel, by which it gets its receipt and its confirmation; so nobody
takes another's. It sleeps on the bell of group commit, which is rung when all that a sync served have their
confirmations: one call wakes them all. Whether the component lives is seen by the pipe that only it reads; whether it
is stopped, by a receipt that does not come. Either way the client does without it from then on, and asks again when
another one has begun to serve, or after a while.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.store import fifos, syscalls
from penstock.store import layout as L
from penstock.store.kernel import Kernel
from penstock.timequeue.syncframes import Range, confconf_frame, has_answer, request_frame

RECEIPT_S = 0.25  # a component that runs reads its requests within milliseconds, between two syncs
CONFIRM_S = 0.9  # in all: whoever was not confirmed by then leads a sync himself, within the promised second
AGAIN_S = 1.0  # after one that did not answer in time, the next is asked so much later
ANSWERS_KEPT = 128  # nobody needs those of what the kernel told; a user's pipes past 1024 have room for 256 each
CHANNELS_MAX = 64  # threads of a client that wait at the same time; those above it do without

CLOCK_MONOTONIC = time.CLOCK_MONOTONIC


def now_us() -> int:
    return syscalls.clock_us(CLOCK_MONOTONIC)


class Line:
    """The pipes to one component, from its start to its end. Closed when the last that waits there lets go of it."""

    def __init__(self, generation: int, request: int, confconf: int) -> None:
        self.generation = generation
        self.request = request
        self.confconf = confconf

    def is_read(self) -> bool:
        """Whether the component lives: nobody else reads its pipe."""
        poll = select.poll()
        poll.register(self.request, 0)
        return not poll.poll(0)

    def __del__(self) -> None:
        os.close(self.request)
        os.close(self.confconf)


class Channel:
    """The pipes by which one that waits is answered."""

    def __init__(self, folder: Path, client: int, number: int) -> None:
        self.client = client
        self.number = number
        # Answers to others that had this number before are told apart by it.
        self.serial = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        self._owner = os.getpid()
        self._paths = [folder / fifos.channel_name(kind, client, number) for kind in (fifos.RECEIPT, fifos.CONFIRM)]
        self._fds: list[int] = []
        try:
            for path in self._paths:
                self._fds.append(fifos.make_to_read(path))
        except BaseException:
            self.close()
            raise
        self.receipt, self.confirm = self._fds

    def close(self) -> None:
        while self._fds:
            fd = self._fds.pop()
            if os.getpid() == self._owner:  # else they are those of the process that we were forked from
                fifos.remove_ours(self._paths[len(self._fds)], fd)
            os.close(fd)


class Asked:
    """One request, and the wait for its answer."""

    __slots__ = ("_asking", "_channel", "_end_us", "_has_more_time", "_line", "_serial", "_waits")

    def send(self, asking: Asking, line: Line, channel: Channel, ranges: Sequence[Range]) -> None:
        self._asking = asking
        self._line = line
        self._channel = channel
        self._end_us = 0
        self._has_more_time = False
        self._waits = False
        channel.serial += 1
        self._serial = channel.serial
        frame = request_frame(channel.client, channel.number, self._serial, ranges)
        try:
            self._waits = fifos.send(self._line.request, frame)
        except BrokenPipeError:
            pass
        if not self._waits:
            self._asking.lost(self._line)

    def may_answer(self) -> bool:
        """Whether the answer may still come; False when there is one, or none is to be expected any more. Asked before
        each sleep: what it was asked for is not done, or the kernel would say so."""
        if not self._waits:
            return False
        if self._end_us == 0:  # it was sent just now
            self._end_us = now_us() + int(RECEIPT_S * 1e6)
            return True
        if has_answer(fifos.receive(self._channel.confirm), self._serial):
            self.confirm()  # of a sync that failed, or was none of those that count
        elif not self._line.is_read() or (now_us() >= self._end_us and not self._has_receipt()):
            self._waits = False
            self._asking.lost(self._line)
        return self._waits

    def _has_receipt(self) -> bool:
        """With it there is more time, once."""
        if self._has_more_time or not has_answer(fifos.receive(self._channel.receipt), self._serial):
            return False
        self._has_more_time = True
        self._end_us += int((CONFIRM_S - RECEIPT_S) * 1e6)
        return True

    def confirm(self) -> None:
        """We know that it is done. As soon as we do, whatever else is to be done then: others wait for it."""
        if self._waits:
            self._waits = False
            channel = self._channel
            try:
                fifos.send(self._line.confconf, confconf_frame(channel.client, channel.number, self._serial))
            except BrokenPipeError:
                pass  # it has died since, which the next request will find out

    def end(self) -> None:
        """Nobody waits any more, however it ended."""
        self.confirm()
        channel = self._channel
        if self._serial % ANSWERS_KEPT == 0:
            fifos.receive(channel.receipt)
            fifos.receive(channel.confirm)
        self._asking.free(channel)


class Asking:
    """One client's way to the synchronization component of its queue, whenever there is one."""

    def __init__(self, path: Path, kernel: Kernel) -> None:
        self._folder = path / fifos.FOLDER
        self._kernel = kernel
        self._line: Line | None = None
        self._lost_generation = 0
        self._again_us = 0
        self._free: list[Channel] = []
        self._all: list[Channel] = []
        self._unused = list(range(CHANNELS_MAX))  # numbers that no channel has

    def may_ask(self) -> bool:
        """Whether the one that serves, if one does, has not just been asked in vain."""
        return self._kernel.get(L.H_SYNCER) != self._lost_generation or now_us() >= self._again_us

    def ask(self, client: int, ranges: Sequence[Range]) -> Asked | None:
        """Ask for these bytes, which are written. None if there is nobody to ask."""
        generation = self._kernel.get(L.H_SYNCER)
        line = self._line
        if line is None or line.generation != generation:
            line = self._connect(generation)
            if line is None:
                return None
        channel = self._channel(client)
        if channel is None:
            return None
        asked = Asked()
        asked.send(self, line, channel, ranges)
        return asked

    def _connect(self, generation: int) -> Line | None:
        request = fifos.open_to_write(self._folder / fifos.REQUEST)
        confconf = fifos.open_to_write(self._folder / fifos.CONFCONF)
        if request is not None and confconf is not None:
            line = self._line = Line(generation, request, confconf)
            return line
        for fd in (request, confconf):
            if fd is not None:
                os.close(fd)
        self._do_without(generation)
        return None

    def _channel(self, client: int) -> Channel | None:
        try:
            return self._free.pop()
        except IndexError:
            pass
        try:
            number = self._unused.pop(0)  # one step, for threads and signal handlers alike
        except IndexError:
            return None
        channel = None
        try:
            channel = Channel(self._folder, client, number)
            self._all.append(channel)
        except OSError:  # no more files, or no right to make one: it is only a shorter way
            self._do_without(self._kernel.get(L.H_SYNCER))
        finally:
            if channel is None:
                self._unused.insert(0, number)
        return channel

    def lost(self, line: Line) -> None:
        """It has gone, or does not answer."""
        self._do_without(line.generation)
        if self._line is line:
            self._line = None

    def _do_without(self, generation: int) -> None:
        self._lost_generation = generation
        self._again_us = now_us() + int(AGAIN_S * 1e6)

    def free(self, channel: Channel) -> None:
        self._free.append(channel)

    def close(self) -> None:
        self._line = None
        self._free.clear()
        while self._all:
            self._all.pop().close()
