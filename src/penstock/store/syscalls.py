"""The few system calls of every put and get, for ``files.py`` and the turn at the lock. ``syscalls.pxd`` has them
again without Python's wrappers, for the compiled core: same names, same results."""

import ctypes
import errno
import fcntl
import os
import platform
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


def sync_data(fd: int) -> None:
    os.fdatasync(fd)


def locked_by_another(fd: int, start: int) -> bool:
    answer = fcntl.fcntl(fd, _GETLK, _request(fcntl.F_WRLCK, start))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


_FUTEX_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238, "loongarch64": 98}
_FUTEX_CALL = _FUTEX_CALLS.get(platform.machine(), -1)
_FUTEX_WAIT = 0
_FUTEX_WAKE = 1
_syscall = ctypes.CDLL(None, use_errno=True).syscall


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def has_futex() -> bool:
    return _FUTEX_CALL >= 0


def futex_wait(address: int, seen: int, seconds: int, nanoseconds: int) -> bool:
    """Sleep while the word there has this value; False when the time ran out."""
    span = _Timespec(seconds, nanoseconds)
    result = _syscall(
        _FUTEX_CALL, ctypes.c_void_p(address), _FUTEX_WAIT, ctypes.c_uint32(seen), ctypes.byref(span), None, 0
    )
    return not (result == -1 and ctypes.get_errno() == errno.ETIMEDOUT)


def futex_wake(address: int, count: int) -> None:
    _syscall(_FUTEX_CALL, ctypes.c_void_p(address), _FUTEX_WAKE, count, None, None, 0)


def clock_us(clock: int) -> int:
    return time.clock_gettime_ns(clock) // 1000


def write_pipe(fd: int, data: bytes) -> int:
    """Bytes written; -1 if it is full."""
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return -1


def read_pipe(fd: int, most: int) -> bytes:
    """What is there, which may be nothing."""
    try:
        return os.read(fd, most)
    except BlockingIOError:
        return b""
