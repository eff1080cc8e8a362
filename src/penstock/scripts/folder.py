"""Owns the folder of an app of scripts in a root: what it is called, and the locks in it, one byte for each worker slot
and one for each key that is worked on. The system drops a lock with its process. Never opens the store.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import Misuse, PenstockError, QueueBusy, QueueNotFound
from penstock.store import syscalls
from penstock.store.files import LOCK, Lock, make_folder, open_file, sync_directory
from penstock.timequeue import forking

SCRIPTS = ".scripts"  # in the root. No queue has such a name
STORE = "contexts.sqlite"
SPARK = "spark"  # in the app's folder: it is there when Spark has the contexts
SLOTS = "slots"
KEYS = "keys"
SLOTS_MAX = 200  # workers at a time: each is a publisher, of which a queue knows 256
RETRY_S = 0.02
NAME_MAX = 40  # a publisher's name has 64 bytes: the app's is a part of it

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{NAME_MAX - 1}}}")


def check_name(name: str) -> str:
    """Of an app: also that of a folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Misuse(
            f"the name of an app or a pipeline has 1 to {NAME_MAX} letters, digits, dots, hyphens and underscores and "
            f"begins with none of the dots and hyphens; not {name!r}"
        )
    return name


def publisher_of(app: str, slot: int) -> str:
    """As which a worker puts follow-ups.

    >>> publisher_of("shop", 3)
    'scripts.shop.3'
    """
    return f"scripts.{app}.{slot}"


class Folder:
    """The folder of one app."""

    def __init__(self, root: Path, app: str, folder: str = SCRIPTS) -> None:
        self.app = check_name(app)
        self.root = root
        self.path = root / folder / app
        self.store = self.path / STORE

    def require_root(self) -> None:
        if not self.root.is_dir():  # a manager would make it
            raise QueueNotFound(f"{self.root}: there is no such folder of queues")

    def make(self) -> None:
        for folder in (self.path.parent, self.path):
            if not folder.exists():
                make_folder(folder, exist_ok=True)
                sync_directory(folder.parent)

    @contextlib.contextmanager
    def alone(self, busy_s: float) -> Iterator[None]:
        """For whoever opens the store: two at a time could not make it."""
        path = self.path / LOCK
        os.close(open_file(path, os.O_RDWR | os.O_CREAT))
        with forking.locked(lambda: Lock(path, str(self.store), busy_s)):
            yield

    @property
    def is_on_spark(self) -> bool:
        """Whether Spark has the contexts: then no worker may."""
        return (self.path / SPARK).exists()

    def stores(self) -> list[Path]:
        """Files with contexts: that of the workers, or those that Spark has, one for each part of the keys."""
        if self.is_on_spark:
            return sorted((self.path / SPARK).glob("part-*.sqlite"))
        return [self.store] if self.store.exists() else []

    def require_no_spark(self) -> None:
        if self.is_on_spark:
            raise Misuse(
                f"{self.path / SPARK}: Spark has the contexts of the app {self.app!r}; workers would know none of them"
            )

    def require(self) -> None:
        if not self.stores():
            raise QueueNotFound(f"{self.store}: no worker of an app {self.app!r} has stored a context here yet")


class _Bytes:
    """Locked bytes of a file, for one file description. A child of a fork only closes: the locks are its parent's."""

    def __init__(self, path: Path) -> None:
        with forking.opening():
            self._fd = open_file(path, os.O_RDWR | os.O_CREAT)
            forking.note(self)

    def _after_fork_in_child(self) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Slots(_Bytes):
    """Which worker is which: a slot is a worker's name among all of its app, for as long as it lives."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder.path / SLOTS)
        self._app = folder.app
        self._mine = self._first()

    @property
    def lost(self) -> bool:
        """Whether it is closed, as in the child of a fork: there the slot is its parent's."""
        return self._fd < 0

    def require(self) -> None:
        """Two processes with one slot would give two batches one number."""
        if self.lost:
            raise Misuse(f"{self._app}: this worker is closed, or that of the process that forked this one")

    @property
    def mine(self) -> int:
        self.require()
        return self._mine

    def _first(self) -> int:
        for slot in range(SLOTS_MAX):
            if syscalls.try_lock(self._fd, slot):
                return slot
        self.close()
        raise PenstockError(f"{self._app}: {SLOTS_MAX} workers are at work, and more are not possible")

    @contextlib.contextmanager
    def all(self) -> Iterator[None]:
        """Every slot is ours for the block: nobody works. ``Misuse`` if somebody does."""
        taken: list[int] = []
        try:
            for slot in range(SLOTS_MAX):
                if slot != self.mine:
                    if not syscalls.try_lock(self._fd, slot):
                        raise Misuse(f"{self._app}: a worker is at work (slot {slot}); stop all of them first")
                    taken.append(slot)
            yield
        finally:
            for slot in taken:
                syscalls.unlock(self._fd, slot)

    @contextlib.contextmanager
    def of_the_dead(self, slot: int) -> Iterator[bool]:
        """Whether nobody has this slot; then it is ours for the block."""
        taken = slot != self.mine and syscalls.try_lock(self._fd, slot)
        try:
            yield taken
        finally:
            if taken and self._fd >= 0:
                syscalls.unlock(self._fd, slot)


class DriverLock(_Bytes):
    """Who is the driver of an app on Spark: a byte behind those of the workers."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder.path / SLOTS)
        self._app = folder.app

    def take(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not syscalls.try_lock(self._fd, SLOTS_MAX):
            if time.monotonic() >= deadline:
                raise QueueBusy(self._app, waited_s=wait_s, holder="another driver on Spark has its outbox")
            time.sleep(RETRY_S)


class KeyLocks(_Bytes):
    """Which keys are being worked on, where messages of a key may come from several queues. A key's byte follows from
    its hash, among so many that two keys hardly ever share one; those that do wait for each other."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder.path / KEYS)
        self._held: set[int] = set()

    def take(self, key: str) -> bool:
        """False if somebody works on it: another worker, or this one."""
        place = place_of(key)
        if place in self._held or not syscalls.try_lock(self._fd, place):
            return False
        self._held.add(place)
        return True

    def leave_all(self) -> None:
        for place in self._held:
            syscalls.unlock(self._fd, place)
        self._held.clear()

    def leave(self, key: str) -> None:
        place = place_of(key)
        if place in self._held:
            self._held.discard(place)
            syscalls.unlock(self._fd, place)


def place_of(key: str) -> int:
    """The byte of a key: the same in every process."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 2
