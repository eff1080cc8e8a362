"""Owns how a client asks the synchronization component for a sync and waits for its answer. Never syncs, and decides
nothing about a message: an answer, and its absence, are hints. What is on disk the kernel's words say.

One that waits has a pair of pipes of its own, a channel, by which it gets its receipt and its confirmation; so nobody
takes another's. Whether the component lives is seen at once, by the pipe that only it reads; whether it is stopped, by
a receipt that does not come. Either way the client does without it from then on, and asks again when another one has
begun to serve, or after a while.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.store import fifos
from penstock.store import layout as L
from penstock.store.kernel import Kernel
from penstock.timequeue.syncframes import Range, answers, confconf_frame, request_frame

RECEIPT_S = 0.25  # a component that runs reads its requests within milliseconds, between two syncs
CONFIRM_S = 0.9  # in all: whoever was not confirmed by then leads a sync himself, within the promised second
AGAIN_S = 1.0  # after one that did not answer in time, the next is asked so much later
CHANNELS_MAX = 64  # threads of a client that wait at the same time; those above it do without


class Line:
    """The pipes to one component, from its start to its end. Closed when the last that waits there lets go of it."""

    def __init__(self, generation: int, request: int, confconf: int) -> None:
        self.generation = generation
        self.request = request
        self.confconf = confconf

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
                fifos.make_fifo(path)
                self._fds.append(fifos.open_to_read(path))
        except OSError:
            self.close()
            raise
        self.receipt, self.confirm = self._fds

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())
        if os.getpid() == self._owner:  # else they are those of the process that we were forked from
            for path in self._paths:
                fifos.remove_fifo(path)


class Asked:
    """One request, and the wait for its answer."""

    def __init__(self, asking: Asking, line: Line, channel: Channel, ranges: Sequence[Range]) -> None:
        self._asking = asking
        self._line = line
        self._channel = channel
        channel.serial += 1
        self._serial = channel.serial
        self._end_s = time.monotonic() + CONFIRM_S
        frame = request_frame(channel.client, channel.number, self._serial, ranges)
        self._waits = fifos.send(line.request, frame)
        if not self._waits:
            asking.lost(line)

    def wait(self) -> bool:
        """True when it was confirmed; False if that is not to be expected any more."""
        if not self._waits:
            return False
        self._waits = False
        poll = select.poll()
        poll.register(self._channel.confirm, select.POLLIN)
        poll.register(self._line.request, 0)  # an error: nobody reads it any more
        if self._is_confirmed(poll, RECEIPT_S):
            return True
        if self._has(self._channel.receipt) and self._is_confirmed(poll, self._end_s - time.monotonic()):
            return True
        self._asking.lost(self._line)
        return False

    def _is_confirmed(self, poll: select.poll, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while True:
            left_s = deadline - time.monotonic()
            ready = poll.poll(max(left_s, 0) * 1000)
            if self._has(self._channel.confirm):
                self._confirm()
                return True
            if not ready or any(fd == self._line.request for fd, _ in ready):
                return False

    def _has(self, pipe: int) -> bool:
        """Whether our answer is among those that are there: others may be late ones."""
        return any(answer.serial == self._serial for answer in answers(fifos.receive(pipe)))

    def _confirm(self) -> None:
        channel = self._channel
        fifos.send(self._line.confconf, confconf_frame(channel.client, channel.number, self._serial))

    def end(self) -> None:
        """Nobody waits any more, however it ended."""
        self._asking.free(self._channel)


class Asking:
    """One client's way to the synchronization component of its queue, whenever there is one."""

    def __init__(self, path: Path, kernel: Kernel) -> None:
        self._folder = path / fifos.FOLDER
        self._kernel = kernel
        self._mutex = threading.Lock()
        self._line: Line | None = None
        self._lost_generation = 0
        self._again_s = 0.0
        self._channels = 0
        self._free: list[Channel] = []
        self._all: list[Channel] = []

    def may_ask(self) -> bool:
        """Whether the one that serves, if one does, has not just been asked in vain."""
        return self._kernel.get(L.H_SYNCER) != self._lost_generation or time.monotonic() >= self._again_s

    def ask(self, client: int, ranges: Sequence[Range]) -> Asked | None:
        """Ask for these bytes, which are written. None if there is nobody to ask."""
        generation = self._kernel.get(L.H_SYNCER)
        line = self._line
        if line is None or line.generation != generation:
            line = self._connect(generation)
            if line is None:
                return None
        channel = self._channel(client)
        return None if channel is None else Asked(self, line, channel, ranges)

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
        with self._mutex:
            number = self._channels
            if number >= CHANNELS_MAX:
                return None
            self._channels += 1
        try:
            channel = Channel(self._folder, client, number)
        except OSError:  # no more files, or no right to make one: it is only a shorter way
            self._do_without(self._kernel.get(L.H_SYNCER))
            return None
        self._all.append(channel)
        return channel

    def lost(self, line: Line) -> None:
        """It has gone, or does not answer."""
        self._do_without(line.generation)
        if self._line is line:
            self._line = None

    def _do_without(self, generation: int) -> None:
        self._lost_generation = generation
        self._again_s = time.monotonic() + AGAIN_S

    def free(self, channel: Channel) -> None:
        self._free.append(channel)

    def close(self) -> None:
        self._line = None
        self._free.clear()
        while self._all:
            self._all.pop().close()
