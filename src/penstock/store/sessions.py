"""Part of the door to the operating system: the file ``session``, which says whether its session was shut down.

A session lasts as long as anybody has the file open through this module: each holds a shared lock (``flock``) on it.
Whoever comes when nobody else does begins a new one, which is not shut down. So what was shut down stays so for all
that have it open, whatever is killed, and a program that is started again begins afresh. Never looks at the kernel.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from penstock.errors import QueueBusy
from penstock.store import rig
from penstock.store.files import name_file, open_file, write_all

SESSION = "session"

GOES_ON = b"\0"
SHUT_DOWN = b"\1"

PAUSE_S = 0.001  # a beginner holds the lock alone for two system calls


class Session:
    """Our part in the session of a queue. A forked child has a part in it too, through the same lock."""

    def __init__(self, queue: Path, *, busy_s: float) -> None:
        self._fd = open_file(queue / SESSION, os.O_RDWR | os.O_CREAT)
        try:
            if self._lock(fcntl.LOCK_EX):  # nobody else is here
                write_all(self._fd, GOES_ON, 0)
            deadline = time.monotonic() + busy_s
            while not self._lock(fcntl.LOCK_SH):
                if time.monotonic() >= deadline:
                    raise QueueBusy(str(queue), waited_s=busy_s, holder=f"somebody begins a session: {SESSION}")
                time.sleep(PAUSE_S)
        except BaseException:
            self.close()
            raise

    def _lock(self, kind: int) -> bool:
        try:
            rig.effect(rig.LOCK, self._fd)
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            name_file(error, self._fd)
            raise
        return True

    def is_shut_down(self) -> bool:
        return os.pread(self._fd, 1, 0) == SHUT_DOWN

    def shut_down(self) -> None:
        write_all(self._fd, SHUT_DOWN, 0)

    def close(self) -> None:
        """Only close: an unlock would end the part of a child or parent as well."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()
