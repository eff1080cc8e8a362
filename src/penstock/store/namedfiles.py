"""Part of the door to the operating system: the folder of one receiver or publisher, which is named after it.

Owns what such names may be, the folder's making, the lock in it, and files that are there whole or not at all. Never
knows what is in them.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from penstock.errors import Corrupt, Misuse
from penstock.store import layout as L
from penstock.store import rig, syscalls
from penstock.store.files import make_folder, open_file, sync_directory, sync_file, write_all

LOCK = "lock"
NAME_BYTES = min(L.RECEIVER_NAME_BYTES, L.PUBLISHER_NAME_BYTES)

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{NAME_BYTES - 1}}}")


def check_name(name: str, whose: str) -> str:
    """A name is also that of a folder.

    >>> check_name("nightly-report.1", "receiver")
    'nightly-report.1'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Misuse(
            f"a {whose}'s name has 1 to {NAME_BYTES} letters, digits, dots, hyphens and underscores and "
            f"begins with none of the dots and hyphens; not {name!r}"
        )
    return name


def names(folder: Path) -> list[str]:
    """Names of those that have a folder below this one."""
    try:
        found = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in found if _NAME.fullmatch(name))


class NamedFiles:
    """The files of one of them."""

    def __init__(self, path: Path, signature: int) -> None:
        self.path = path
        self._signature = signature

    def _make(self) -> None:
        """The folder, if it is not there."""
        for folder in (self.path.parent, self.path):
            if not folder.exists():
                with contextlib.suppress(FileExistsError):
                    make_folder(folder)
                sync_directory(folder.parent)

    def lock(self) -> int:
        """A descriptor that keeps everybody else out until it is closed, in a folder that it makes; -1 if somebody else
        has one."""
        while True:
            self._make()
            try:
                fd = open_file(self.path / LOCK, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:
                continue  # the one of this name is just being forgotten
            try:
                rig.effect(rig.LOCK, fd)
                if not syscalls.try_lock_file(fd):
                    os.close(fd)
                    return -1
                if self._is_lock(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _is_lock(self, fd: int) -> bool:
        """Not one that was removed with its folder before we had it."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path / LOCK))
        except FileNotFoundError:
            return False

    def is_locked(self) -> bool:
        """Whether the one of this name is there now."""
        try:
            fd = open_file(self.path / LOCK, os.O_RDWR)  # makes nothing: one that is being forgotten is to go
        except FileNotFoundError:
            return False
        try:
            return not syscalls.try_lock_file(fd)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """What is there now has its name for good."""
        sync_directory(self.path)

    def _replace(self, name: str, data: bytes, aside: str | None = None) -> None:
        """Durable when it returns. ``aside`` is what it is called until then."""
        new = self.path / (aside or f"{name}.new")
        fd = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data, 0)
            sync_file(fd)
        finally:
            os.close(fd)
        rig.effect(rig.RENAME, str(new))
        os.rename(new, self.path / name)
        sync_directory(self.path)

    def _damaged(self, name: str, expected: str, found: str) -> Corrupt:
        return Corrupt(str(self.path / name), offset=0, expected=expected, found=found)
