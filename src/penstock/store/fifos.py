"""Part of the door to the operating system: the named pipes in a queue's ``sync/`` folder. Knows no request.

Nobody ever waits in a read or a write here: a pipe without a reader, a full one and an empty one are answers. A write
of at most ``FRAME_BYTES_MAX`` is whole or not at all, also where many write to one pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import rig, syscalls
from penstock.store.files import follow_folder

FOLDER = "sync"
LOCK = "lock"
REQUEST = "request"
CONFCONF = "confconf"
RECEIPT = "receipt"
CONFIRM = "confirm"

FRAME_BYTES_MAX = select.PIPE_BUF  # what POSIX promises not to mix with what others write
READ_BYTES = 1 << 16  # as much as a pipe holds, where nobody changed that
WATCHED_MAX = 4  # descriptors of one ``Watched``; fifos.pxd has it again

_CLOSED = os.O_CLOEXEC | os.O_NONBLOCK

try:  # the one behind Python's, which makes an enumeration's member of its answer: that takes longer than a write
    from _signal import getsignal as _handler_of  # type: ignore[import-not-found]
except ImportError:
    _handler_of = signal.getsignal
_SIGPIPE, _IGNORED = int(signal.SIGPIPE), int(signal.SIG_IGN)


def channel_name(kind: str, client: int, channel: int) -> str:
    """The pipe by which one that waits is answered.

    >>> channel_name(CONFIRM, 3, 0)
    'confirm.3.0'
    """
    return f"{kind}.{client}.{channel}"


def channel_of(name: str) -> tuple[int, int] | None:
    """Whose pipe it is; None if it is none of those.

    >>> channel_of("receipt.3.0"), channel_of("request")
    ((3, 0), None)
    """
    kind, _, rest = name.partition(".")
    client, _, channel = rest.partition(".")
    if kind not in (RECEIPT, CONFIRM) or not (client.isdecimal() and channel.isdecimal()):
        return None
    return int(client), int(channel)


def make_fifo(path: Path) -> None:
    """A new one, with its folder's rights; also where one was left: what is in that is for somebody else."""
    remove_fifo(path)
    os.mkfifo(path, 0o600)
    fd = open_to_read(path)  # by its name, root might give away what somebody has put into its place
    try:
        follow_folder(fd, path.parent.stat())
    finally:
        os.close(fd)


def remove_fifo(path: Path) -> None:
    rig.effect(rig.UNLINK, str(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def is_ours(path: Path, fd: int) -> bool:
    """Whether what we have open is still there, and nothing has taken its place: of a queue made there since, say."""
    try:
        there, ours = path.lstat(), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def remove_ours(path: Path, fd: int) -> None:
    if is_ours(path, fd):
        remove_fifo(path)


def make_to_read(path: Path) -> int:
    """A new one, open. If that fails, there is none."""
    try:
        make_fifo(path)
        return open_to_read(path)
    except OSError:
        with contextlib.suppress(OSError):
            remove_fifo(path)
        raise


def open_to_read(path: Path) -> int:
    """Also for writing, which nobody does: a pipe whose last writer leaves would be readable for ever."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | _CLOSED)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "somebody has put a file into the place of a pipe", str(path))
    return fd


def open_to_write(path: Path) -> int | None:
    """None if nobody has it open to read, or there is no way to it: for who would write that is the same."""
    rig.effect(rig.OPEN, str(path))
    try:
        fd = os.open(path, os.O_WRONLY | _CLOSED)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):  # somebody's file of this name: nobody answers there
        os.close(fd)
        return None
    return fd


def send(fd: int, frame: bytes) -> bool:
    """False if it is full: nobody has read for long. ``BrokenPipeError`` if nobody has it open any more."""
    if rig.watching:
        rig.effect(rig.SEND, fd, 0, frame)
    if _handler_of(_SIGPIPE) == _IGNORED:  # as Python has it, unless a program changes that
        return syscalls.write_pipe(fd, frame) == len(frame)
    return _write_unsignalled(fd, frame) == len(frame)


def _write_unsignalled(fd: int, frame: bytes) -> int:
    """In a program that wants to be ended by SIGPIPE, as one in a shell's pipeline does: not by a pipe of ours. The
    signal is this thread's, so it is blocked here, and taken away before anybody sees it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # first: an interrupt may come out of each of these calls
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGPIPE,))
        is_pending = signal.SIGPIPE in signal.sigpending()  # of somebody who had it blocked: that one is not ours
        try:
            return syscalls.write_pipe(fd, frame)
        except BrokenPipeError:
            if not is_pending:
                signal.sigtimedwait((signal.SIGPIPE,), 0)
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def receive(fd: int) -> bytes:
    """What is there; nothing if there is nothing."""
    if rig.watching:
        rig.effect(rig.RECEIVE, fd)
    return syscalls.read_pipe(fd, READ_BYTES)


if not cython.compiled:  # where it is compiled, the one of syscalls.pxd

    class _PollFd(ctypes.Structure):
        _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))

    class _Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    _ppoll = ctypes.CDLL(None, use_errno=True).ppoll


class Watched:
    """Waits until there is something to read from one of a few descriptors. To the microsecond: ``select.poll`` rounds
    up to a millisecond, which is longer than most syncs, and ``select.select`` knows no descriptor above 1023."""

    def __init__(self, fds: Sequence[int]) -> None:
        self._count = len(fds)
        assert self._count <= WATCHED_MAX
        if not cython.compiled:
            self._fds: Any = (_PollFd * len(fds))()
        for i in range(self._count):
            self._fds[i].fd = fds[i]
            self._fds[i].events = select.POLLIN

    def wait(self, timeout_us: int) -> int:
        """Those that have, a bit for each in their order; none after so long (-1: never), or when a signal came."""
        if cython.compiled:
            count = syscalls.poll_readable(self._fds, self._count, timeout_us)  # type: ignore[attr-defined]
        else:
            seconds, rest_us = divmod(timeout_us, 1_000_000)
            span = None if timeout_us < 0 else ctypes.byref(_Timespec(seconds, rest_us * 1000))
            count = _ppoll(self._fds, self._count, span, None)
        found = 0
        if count > 0:
            for i in range(self._count):
                if self._fds[i].revents:
                    found |= 1 << i
        return found
