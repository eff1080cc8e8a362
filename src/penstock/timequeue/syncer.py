"""Owns the synchronization component at work (S14): for one queue, its lock, its pipes and its syncs; what to do when,
``syncbatches.py`` decides. A sync is one of group commit, led for all that asked: what it means, and what its failure
means, ``commit.py`` says.

The confirmations are told by the pipes, but they are true because the kernel has the number of the sync by then. So a
confirmation that is lost, late or taken by another costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from pathlib import Path

from penstock.errors import PenstockError, QueueInUse, SyncFailed
from penstock.store import fifos, syscalls
from penstock.store import layout as L
from penstock.store.files import Clock, make_folder, open_file
from penstock.timequeue.opened import OpenQueue
from penstock.timequeue.syncbatches import Batches, Limits, State
from penstock.timequeue.syncframes import Confirmations, Request, Requests, answer_frame

log = logging.getLogger("penstock")

BUSY_S = 0.5  # a queue whose lock is stuck for so long: those that wait lose their patience, and hear so themselves
LINES_MAX = 2048  # pipes of each kind to those that wait, kept open; more are opened anew each time


CLOCK_MONOTONIC = time.CLOCK_MONOTONIC
_REQUEST, _CONFCONF, _STOP = 1, 2, 4  # what is watched for, as ``Watched`` tells it


def now_us() -> int:
    return syscalls.clock_us(CLOCK_MONOTONIC)


class Answers:
    """The pipes of one kind to those that wait, opened when the first answer is due."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._fds: dict[int, int] = {}

    def send(self, request: Request, code: int) -> bool:
        """False if it cannot be told: it is dead, or does not read."""
        key = request.client << 32 | request.channel
        found = self._fds.get(key)
        frame = answer_frame(request.serial, code)
        if found is None:
            return self._send_first(request, key, frame)
        try:
            return fifos.send(found, frame)
        except BrokenPipeError:  # of one that had this number before, perhaps
            self._close(key)
        return self._send_first(request, key, frame)

    def _send_first(self, request: Request, key: int, frame: bytes) -> bool:
        fd = fifos.open_to_write(self._folder / fifos.channel_name(self._kind, request.client, request.channel))
        if fd is None:
            return False
        if len(self._fds) >= LINES_MAX:
            self._close(next(iter(self._fds)))
        self._fds[key] = fd
        try:
            return fifos.send(fd, frame)
        except BrokenPipeError:
            return False

    def _close(self, key: int) -> None:
        os.close(self._fds.pop(key))

    def close(self) -> None:
        for key in list(self._fds):
            self._close(key)


class QueueSyncer:
    """Serves one queue until it is told to stop, or a sync fails."""

    def __init__(
        self, path: str | os.PathLike[str], limits: Limits | None = None, *, clock: Clock | None = None
    ) -> None:
        """``QueueInUse`` if another one serves it."""
        self._closing = contextlib.ExitStack()
        self._ending = threading.RLock()
        self._ended = False
        try:
            self._open(path, limits or Limits(), clock)
        except BaseException:
            self._closing.close()
            raise

    def _open(self, path: str | os.PathLike[str], limits: Limits, clock: Clock | None) -> None:
        queue = self._closing.enter_context(OpenQueue(path, busy_s=BUSY_S, clock=clock))
        self.path = queue.path
        self._client = client = queue._mine()
        client.syncs.commits.require_working()
        folder = queue.path / fifos.FOLDER
        make_folder(folder, exist_ok=True)  # a version control system, say, does not keep empty ones
        self._places: list[tuple[Path, int]] = []
        self._take_lock(folder)
        self._sweep(folder)
        self._requests, self._confirmations = Requests(), Confirmations()
        self._request = self._fifo(folder / fifos.REQUEST)
        self._confconf = self._fifo(folder / fifos.CONFCONF)
        self._receipts, self._confirms = Answers(folder, fifos.RECEIPT), Answers(folder, fifos.CONFIRM)
        self._closing.callback(self._receipts.close)
        self._closing.callback(self._confirms.close)
        self._stop, self._stopping = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self._stop, self._stopping):
            self._closing.callback(os.close, fd)
        self._watched = fifos.Watched((self._request, self._confconf, self._stop))
        self._napping = fifos.Watched((self._stop,))
        self._batches = Batches(limits, data_bytes=client.files.data_units * L.UNIT_BYTES)
        self.syncs = self.served = 0
        left_us = client.kernel.get(L.H_SYNCER)
        if left_us:  # by one that was killed: from then on it led
            client.turn(client.syncs.commits.doubt, min(left_us, client.opened_us))
        # Last: whoever sees it finds the pipes.
        self._generation = client.clock.boot_us()
        client.kernel.note(L.H_SYNCER, self._generation)
        self._closing.callback(self._sweep_last, folder)
        self._closing.callback(self._say_gone)

    def _take_lock(self, folder: Path) -> None:
        fd = open_file(folder / fifos.LOCK, os.O_RDWR | os.O_CREAT)
        self._closing.callback(os.close, fd)
        self._places.append((folder / fifos.LOCK, fd))
        if not syscalls.try_lock_file(fd):
            raise QueueInUse(str(self.path), "another synchronization component serves it")

    def _sweep(self, folder: Path) -> None:
        """Pipes of clients that were killed."""
        for name in os.listdir(folder):
            whose = fifos.channel_of(name)
            if whose is not None and whose[0] < L.CLIENTS and not self._client.files.clients.alive(whose[0]):
                fifos.remove_fifo(folder / name)

    def _sweep_last(self, folder: Path) -> None:
        """Perhaps nobody comes after us. What is not ours any more is left alone."""
        with contextlib.suppress(OSError):
            if self.is_current():
                self._sweep(folder)

    def _fifo(self, path: Path) -> int:
        fd = fifos.make_to_read(path)
        self._closing.callback(os.close, fd)
        self._closing.callback(fifos.remove_ours, path, fd)
        self._places.append((path, fd))
        return fd

    def _say_gone(self) -> None:
        if self._client.kernel.get(L.H_SYNCER) == self._generation:
            self._client.kernel.note(L.H_SYNCER, 0)

    # ------------------------------------------------------------ serving

    def run(self) -> None:
        """Until ``stop`` is called; ``SyncFailed`` if a sync fails, when all that waited have been told."""
        while self.step():
            pass

    def step(self) -> bool:
        """Wait for what comes next, and do what is due. False when told to stop."""
        look_us = self._batches.next_look_us()
        now = now_us()
        nap_us = self._batches.nap_us(now)
        if nap_us:
            ready = _STOP if self._napping.wait(nap_us) else _REQUEST | _CONFCONF
        else:
            ready = self._watched.wait(-1 if look_us is None else max(look_us - now, 0))
        if ready & _STOP:
            return False
        if ready & _CONFCONF:
            for who in self._confirmations.take(fifos.receive(self._confconf)):
                self._batches.confirmed(who)
        self._batches.look(now_us())
        if ready & _REQUEST:
            self._take_requests()
        now = now_us()
        if self._batches.sync_due(now):
            self._sync(now)
        return True

    def _take_requests(self) -> None:
        now = now_us()
        for request in self._requests.take(fifos.receive(self._request)):
            if self._batches.request(request, now) and not self._receipts.send(request, 0):
                self._batches.gone(request.who())

    def _sync(self, now: int) -> None:
        self._batches.begin(now)
        try:
            self._client.syncs.commits.lead_for_others()
        except SyncFailed as error:
            self._tell(self._batches.give_up(), error.errno or errno.EIO)
            raise
        except PenstockError as error:  # the lock was not to be had, say: those that are told so find out why
            log.warning("%s: no sync: %s", self.path, error)
            self._tell(self._batches.give_up(), errno.EBUSY)
        else:
            self.syncs += 1
            self.served += self._tell(self._batches.synced(now_us()), 0)
            self._batches.look(now_us())

    def _tell(self, waiting: list[Request], code: int) -> int:
        """By their pipes. Then one ring wakes all of them: each that was woken by a write of its own would be given the
        processor in our place, and the last be told milliseconds after the first."""
        told = 0
        for request in waiting:
            told += 1
            if not self._confirms.send(request, code):
                self._batches.gone(request.who())
        self._client.syncs.commits.tell_sleepers()
        return told

    @property
    def state(self) -> State:
        return self._batches.state

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """From another thread, or a signal handler; also when it has ended."""
        with self._ending:
            if not self._ended:
                os.write(self._stopping, b"x")

    def close(self) -> None:
        """Whoever waits does without."""
        with self._ending:  # from here on ``stop`` leaves a descriptor alone that may be somebody else's
            self._ended = True
        self._closing.close()

    def is_current(self) -> bool:
        """Whether the queue that we serve is the one in its place: it may have been moved, or removed and made anew.
        And whether clients find us there: somebody may have removed the pipes, or the lock that keeps others out."""
        return self._client.files.is_current() and all(fifos.is_ours(path, fd) for path, fd in self._places)
