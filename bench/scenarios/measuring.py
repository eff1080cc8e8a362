"""Bodies, stopwatches, scratch directories, and the complaint when a system did not do its job."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.systems.interface import System

NUMBER_BYTES = 8  # a body begins with its number, so that it can be recognised


class WrongResult(Exception):
    """A system lost, invented, repeated or reordered messages: its figures would mean nothing."""


def check(condition: bool, text: str) -> None:
    """Not an assert: these must hold under ``python -O`` too."""
    if not condition:
        raise WrongResult(text)


def numbered(number: int, size: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big") + _filler(size - NUMBER_BYTES)


def number_of(body: bytes) -> int:
    return int.from_bytes(body[:NUMBER_BYTES], "big")


def bodies(count: int, size: int, first: int = 0) -> list[bytes]:
    """Distinct ones: the same object again and again would stay in the processor's cache."""
    filler = _filler(size - NUMBER_BYTES)
    return [number.to_bytes(NUMBER_BYTES, "big") + filler for number in range(first, first + count)]


def _filler(size: int) -> bytes:
    pattern = b"penstock benchmark "
    return (pattern * (size // len(pattern) + 1))[:size]


class Stopwatch:
    """``with Stopwatch() as watch``: then ``watch.seconds``. Starts with the garbage collected."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        gc.collect()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


@contextlib.contextmanager
def scratch(below: Path) -> Iterator[Path]:
    """A directory for one measurement."""
    where = Path(tempfile.mkdtemp(dir=below))
    try:
        yield where
    finally:
        shutil.rmtree(where, ignore_errors=True)


@contextlib.contextmanager
def made(system: System, below: Path, *, messages: int, body_bytes: int, consumers: int = 1) -> Iterator[System]:
    """The system with data of its own, which is removed afterwards."""
    with scratch(below) as where:
        system.create(where, messages=messages, body_bytes=body_bytes, consumers=consumers)
        try:
            yield system
        finally:
            system.close()


def settle(where: Path) -> None:
    """Write back what filling has left dirty: else the first rounds measure the disk's work for the preparation."""
    for path in where.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def chunks(items: list[bytes], size: int) -> list[list[bytes]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def file_system(path: Path) -> str:
    """The type of the file system that holds ``path``, from the longest mount point above it."""
    where = os.path.realpath(path)
    best = ("", "unknown")
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            point, kind = line.split()[1:3]
            if (where + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1]
