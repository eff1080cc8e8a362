"""Owns how far long work on a queue is, as a bar: the restore, which the first open after a power loss makes, and other
sizes. Never decides when there is such work."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from rich.progress import DownloadColumn, TransferSpeedColumn

import penstock
from penstock.cli.output import progress
from penstock.manager.directory import ENTRY, describe, read_noted
from penstock.manager.macrolook import glance_members
from penstock.manager.membership import MACRO
from penstock.store.files import QUEUE_JSON
from penstock.timequeue.administration import Glance, glance


class Changing(contextlib.ExitStack):
    """Progress in bytes. The bar appears with the first report: most opens need no restore."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        if self._bar is None:
            self._bar = self.enter_context(progress(DownloadColumn(binary_units=True), TransferSpeedColumn()))
            self._task = self._bar.add_task(self._what, total=total_bytes)
        self._bar.update(self._task, completed=done_bytes, total=total_bytes)


def open_queue(path: Path, **options: Any) -> penstock.TimeQueue:
    with Changing("restoring") as restoring:
        return penstock.open(path, progress=restoring, **options)


def open_any(path: Path, **options: Any) -> Any:
    """A queue of its own, or a macro queue: for commands that make sense for both."""
    if not is_macro(path):
        return open_queue(path, **options)
    with Changing("restoring") as restoring:
        return penstock.MacroQueue(path, progress=restoring, **options)


def glance_any(path: Path, *, busy_s: float) -> Glance:
    """A look at a queue of its own, or at a macro queue, whose figures are ``MacroStats``."""
    with Changing("restoring") as restoring:
        if (path / ENTRY).exists() and not (path / QUEUE_JSON).exists() and read_noted(path).kind == MACRO:
            return glance_members(path, busy_s=busy_s, progress=restoring)
        return glance(path, busy_s=busy_s, progress=restoring)


def is_macro(path: Path) -> bool:
    return path.is_dir() and not (path / QUEUE_JSON).exists() and describe(path.absolute()).kind == MACRO
