"""The few system calls of every put and get, for ``files.py`` and the turn at the lock. ``syscalls.pxd`` has them
again without Python's wrappers, for the compiled core: same names, same results."""

import fcntl
import os
import struct
import time
from threading import get_ident as get_ident

_FLOCK = struct.Struct("hhqqi")
_SETLK = fcntl.F_OFD_SETLK
_GETLK = fcntl.F_OFD_GETLK


def _request(kind: int, start: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0)


def try_lock_file(fd: int) -> bool:
    """Lock a file for this file description; False if another one holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock_file(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)


def try_lock(fd: int, start: int) -> bool:
    """Lock one byte for this file description; False if another one holds it."""
    try:
        fcntl.fcntl(fd, _SETLK, _request(fcntl.F_WRLCK, start))
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(fd: int, start: int) -> None:
    fcntl.fcntl(fd, _SETLK, _request(fcntl.F_UNLCK, start))


def write_at(fd: int, data: bytes, offset: int) -> int:
    """Bytes written, which may be fewer than given."""
    return os.pwrite(fd, data, offset)


def locked_by_another(fd: int, start: int) -> bool:
    answer = fcntl.fcntl(fd, _GETLK, _request(fcntl.F_WRLCK, start))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def clock_us(clock: int) -> int:
    return time.clock_gettime_ns(clock) // 1000
