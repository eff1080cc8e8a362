"""Owns ``staging/`` in a queue's directory: files of messages that are written and not yet in the queue.

A job has a folder of its own, a task attempt a file in it. Nothing there counts until it was put; what jobs that died
left is removed after a while.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.spark import finding

STAGING = "staging"
DONE = ".done"
SWEPT_AFTER_S = 7 * 86_400.0  # nothing tells that a job's driver died; none goes on this long after its last file


def remove_older(queue: str, query: str, batch: int) -> None:
    """What dead attempts at earlier batches of a streaming query left. Nobody waits for it: those are published."""
    for folder in (Path(os.path.abspath(queue)) / STAGING).glob(f"{query}.*"):
        number = folder.name[len(query) + 1 :].removesuffix(DONE)
        if number.isdigit() and int(number) < batch:
            shutil.rmtree(folder, ignore_errors=True)


class Staging:
    """The folder of one job."""

    def __init__(self, queue: str, job: str) -> None:
        self._queue = Path(os.path.abspath(queue))
        self._folder = self._queue / STAGING / job

    def path(self, name: str | None) -> str:
        return str(self._folder / name) if name else str(self._folder)

    def begin(self) -> None:
        """Make the folder; by the driver, so that a task which goes on after the job was given up finds none."""
        finding.require(str(self._queue))
        self._folder.mkdir(parents=True)

    def write(self, name: str, schema: Any, batches: Iterable[Any]) -> tuple[str | None, int]:
        """Write batches into a file; its name and how many rows they have. No file if there are none."""
        messages = 0
        source = iter(batches)
        first = next(source, None)
        if first is None:
            return None, 0
        file = f"{name}.arrow"
        try:
            with pa.OSFile(self.path(file), "wb") as sink, pa.ipc.new_file(sink, schema) as stream:
                while first is not None:
                    stream.write_batch(first)
                    messages += first.num_rows
                    first = next(source, None)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(file))
            raise
        return file, messages

    def make(self) -> None:
        """Make the folder if it is not there; by tasks, where no driver did."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)

    def read(self, name: str) -> Iterator[Any]:
        with pa.memory_map(self.path(name)) as source, pa.ipc.open_file(source) as stream:
            for i in range(stream.num_record_batches):
                yield stream.get_batch(i)

    def remove(self) -> None:
        """Renamed first: a task that is still at work cannot add a file to what is being removed."""
        aside = self._folder.with_name(self._folder.name + DONE)
        shutil.rmtree(aside, ignore_errors=True)  # of an earlier attempt that was cut short
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._folder, aside)
        shutil.rmtree(aside, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what jobs left that died long ago."""
        for folder in (self._queue / STAGING).glob("*"):
            with contextlib.suppress(FileNotFoundError):  # another job was quicker
                if time.time() - folder.stat().st_mtime > SWEPT_AFTER_S:
                    shutil.rmtree(folder, ignore_errors=True)
