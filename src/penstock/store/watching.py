"""Part of the door to the operating system: watching the notification files of many directories with one instance of
inotify, so that who waits for all of them costs as much as who waits for one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
from pathlib import Path

from penstock.store.waking import UNWATCHED_S

_EVENT = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name that follows
_READ_BYTES = 65536
_IN_ATTRIB = 4
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000  # the file is gone, and with it the watch
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000


class Watches:
    """The notification files of several directories. Without an instance, of which a user has few, or where a file
    cannot be watched, ``complete`` is False, and a wait is short: whoever waits then looks at all of them."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        self._paths: dict[int, Path] = {}
        self._watches: dict[Path, int] = {}
        self._unwatched: set[Path] = set()
        self._poll = select.poll()
        if self._fd >= 0:
            self._poll.register(self._fd, select.POLLIN)

    @property
    def complete(self) -> bool:
        return self._fd >= 0 and not self._unwatched

    def add(self, path: Path) -> None:
        if path in self._watches:
            return
        mask = _IN_ATTRIB | _IN_DELETE_SELF | _IN_MOVE_SELF
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask) if self._fd >= 0 else -1
        if watch < 0:  # too many, or it is gone
            self._unwatched.add(path)
            return
        self._unwatched.discard(path)
        self._watches[path] = watch
        self._paths[watch] = path

    def remove(self, path: Path) -> None:
        self._unwatched.discard(path)
        watch = self._watches.pop(path, None)
        if watch is not None:
            self._paths.pop(watch, None)
            self._libc.inotify_rm_watch(self._fd, watch)

    def __len__(self) -> int:
        return len(self._watches) + len(self._unwatched)

    def wait(self, seconds: float) -> None:
        """Until there may be news; not longer than this."""
        longest_s = seconds if self.complete else min(seconds, UNWATCHED_S)
        self._poll.poll(max(longest_s, 0.0) * 1000)

    def news(self) -> set[Path] | None:
        """Which of them were changed since the last call; None if nobody knows: any may have been."""
        if self._fd < 0:
            return None
        changed: set[Path] = set()
        known = not self._unwatched
        with contextlib.suppress(BlockingIOError):
            while True:
                known = self._read(os.read(self._fd, _READ_BYTES), changed) and known
        return changed if known else None

    def _read(self, data: bytes, changed: set[Path]) -> bool:
        at, known = 0, True
        while at < len(data):
            watch, mask, _, name_bytes = _EVENT.unpack_from(data, at)
            at += _EVENT.size + name_bytes
            if mask & _IN_Q_OVERFLOW:
                known = False
            elif watch in self._paths:
                changed.add(self._paths[watch])
                if mask & _IN_IGNORED:
                    self._watches.pop(self._paths.pop(watch), None)
        return known

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
