"""Part of the door to the operating system: by what a file is known again. Another boot, another disk, a copied file or
another mount is told by it. What follows from a difference is ``trust.py``'s.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from penstock.store import layout as L


def home_of(path: Path) -> tuple[int, int]:
    """What tells a queue's directory from a copy of it: inode and time of birth."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _, inode, birth_us, _ = _storage_of(fd)
    finally:
        os.close(fd)
    return inode, birth_us


def identity_of(fd: int) -> tuple[int, ...]:
    """The six header words from ``H_BOOT_ID`` on, for a kernel file."""
    return (*_boot_id(), *_storage_of(fd))


def _boot_id() -> tuple[int, int]:
    number = int(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""), 16)
    return number & L.MASK64, number >> 64


class _Statx(ctypes.Structure):
    """The fields of Linux's struct statx that are asked for, at their places."""

    _fields_ = (
        ("before", ctypes.c_uint8 * 32),
        ("inode", ctypes.c_uint64),
        ("between", ctypes.c_uint8 * 40),
        ("birth_s", ctypes.c_int64),
        ("birth_ns", ctypes.c_uint32),
        ("later", ctypes.c_uint8 * 44),
        ("device_major", ctypes.c_uint32),
        ("device_minor", ctypes.c_uint32),
        ("mount", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * 104),
    )


_AT_EMPTY_PATH = 0x1000
_STATX_BASIC = 0x7FF
_STATX_BIRTH = 0x800
_STATX_MOUNT = 0x1000
_STATX_MOUNT_UNIQUE = 0x4000  # never given again before the next boot; older kernels only know the other


def _storage_of(fd: int) -> tuple[int, int, int, int]:
    """Device, inode, time of birth and mount of a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    for mount in (_STATX_MOUNT_UNIQUE, _STATX_MOUNT):
        found = _Statx()
        asked = _STATX_BASIC | _STATX_BIRTH | mount
        if hasattr(libc, "statx") and libc.statx(fd, b"", _AT_EMPTY_PATH, asked, ctypes.byref(found)) == 0:
            if not found.mount:
                continue
            device = found.device_major << 32 | found.device_minor
            return device, found.inode, found.birth_s * 1_000_000 + found.birth_ns // 1000, found.mount
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, 0, 0
