"""Owns the files of a manager's root that are about all of its queues: the lock between managers, the defaults for new
queues and the permissions. A file is replaced as a whole; who is killed leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.errors import Corrupt, Misuse
from penstock.manager.permissions import Grants
from penstock.store.alone import finish_removal
from penstock.store.counter import SharedCounter
from penstock.store.directory import replace_file
from penstock.store.files import Lock, open_file
from penstock.timequeue import forking

log = logging.getLogger("penstock")

SETTINGS = "manager.json"
LOCK = "manager.lock"
CHANGES = "manager.changes"
DESTROYED = ".~destroyed."  # the beginning of the name of what is being deleted; not that of a queue being made

Value = TypeVar("Value")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``manager.json``."""

    penstock: int = 1
    defaults: dict[str, Any] = {}
    permissions: Grants = {}


def read(file: Path, kind: type[Value]) -> Value:
    """One of our files, as by default if it is not there; or the error that says that it is damaged."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return kind()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        remedy = "put a good copy in its place, or remove it: then all is as by default"
        raise Corrupt(str(file), offset=0, expected="what a manager writes", found=str(error), remedy=remedy) from None


class Root:
    """The folder of a manager."""

    def __init__(self, path: Path, *, busy_s: float) -> None:
        self.path = path
        self._busy_s = busy_s
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise Misuse(f"{path}: not a folder, and none can be made here: {error.strerror}") from None

    @functools.cached_property
    def changes(self) -> SharedCounter:
        """Who only looks needs none, and makes no file."""
        return SharedCounter(self.path / CHANGES)

    def settings(self) -> Settings:
        return read(self.path / SETTINGS, Settings)

    def change(self, **settings: Any) -> None:
        """To be called with the lock."""
        new = msgspec.structs.replace(self.settings(), **settings)
        replace_file(self.path / SETTINGS, msgspec.json.format(msgspec.json.encode(new), indent=1))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One manager at a time changes what is in the root, and then tells all others to look. What a killed one was
        deleting is deleted first."""
        os.close(open_file(self.path / LOCK, os.O_RDWR | os.O_CREAT))
        with forking.locked(lambda: Lock(self.path / LOCK, str(self.path), self._busy_s)):
            try:
                self._sweep()
                yield
            finally:
                self.changes.advance()

    def place_of_destroyed(self) -> Path:
        return self.path / f"{DESTROYED}{secrets.token_hex(4)}"

    def _sweep(self) -> None:
        for aside in self.path.glob(f"{DESTROYED}*"):
            try:
                finish_removal(aside)
            except OSError as error:  # another user's, say: no reason to stop all others
                log.warning("%s: what is left of a destroyed queue cannot be removed: %s", aside, error)
