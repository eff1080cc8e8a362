"""Part of the door to the operating system: how a process sleeps until another one wakes it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import time
from pathlib import Path

from penstock.store import layout as L
from penstock.store import rig, syscalls


class Futex:
    """Sleep on a 32-bit word of a mapping until it changes; shared by all processes that map the file."""

    def __init__(self, mapping: mmap.mmap, word: int) -> None:
        self._word: ctypes.c_uint32 | None = ctypes.c_uint32.from_buffer(mapping, word * L.WORD_BYTES)
        self._address = ctypes.addressof(self._word)

    def wait(self, seen: int, timeout_s: float) -> bool:
        """False when the time ran out; True when woken, or when the word had changed already."""
        if timeout_s <= 0:
            return False
        whole = int(timeout_s)
        return syscalls.futex_wait(self._address, seen, whole, int((timeout_s - whole) * 1e9))

    def wake(self, count: int) -> None:
        if rig.watching:
            rig.effect(rig.WAKE, "futex")
        syscalls.futex_wake(self._address, min(count, 0x7FFFFFFF))

    def close(self) -> None:
        self._word = None


def futex_available() -> bool:
    return syscalls.has_futex()


def touch(path: Path) -> None:
    """Tell those who watch a notification file that there is news."""
    rig.effect(rig.WAKE, str(path))
    with contextlib.suppress(OSError):  # a hint that got lost: whoever sleeps looks by itself within a second
        os.utime(path)


UNWATCHED_S = 0.02
_IN_ATTRIB = 4
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000


class Notice:
    """The described way (T7): who has news changes an attribute of the notification file, who sleeps watches it.

    Wakes every sleeper, in every process, and works without a futex. The watch is made at the first sleep, so that a
    queue that nobody waits for costs no inotify instance: a user has few of them.
    """

    def __init__(self, mapping: mmap.mmap, word: int, path: Path) -> None:
        self._mapping = mapping
        self._at = word * L.WORD_BYTES
        self._path = path
        self._fd = -1
        self._libc = ctypes.CDLL(None, use_errno=True)

    def wait(self, seen: int, timeout_s: float) -> bool:
        """False when the time ran out; True when told, or when the word had changed already."""
        if self._fd < 0:
            try:
                self._watch()
            except OSError:  # there are few of them for a user: look now and then instead
                time.sleep(min(timeout_s, UNWATCHED_S))
                return timeout_s > UNWATCHED_S
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 65536)  # old news; what comes after this line ends the poll below
        if int.from_bytes(self._mapping[self._at : self._at + 4], "little") != seen:
            return True
        if timeout_s <= 0:
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _watch(self) -> None:
        fd = self._libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        if fd < 0 or self._libc.inotify_add_watch(fd, os.fsencode(self._path), _IN_ATTRIB) < 0:
            code = ctypes.get_errno()
            if fd >= 0:
                os.close(fd)
            raise OSError(code, f"{os.strerror(code)}: the notification file cannot be watched", str(self._path))
        self._fd = fd

    def wake(self, count: int) -> None:
        touch(self._path)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
