"""A large body through a queue, in processes that must not have it in memory: for the tests, and for the soak.

    python -m tests.large put|put_whole|get QUEUE BYTES      what runs in those processes

The bytes come out of a pipe or of a file and follow from their place, so that nobody has to keep them to compare.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock.timequeue import check_queue

GIGABYTE = 1 << 30
PIECE_BYTES = 1 << 20
ANONYMOUS_BYTES_MAX = 16 << 20  # of what a process may need more for it: pieces and buffers, never the body
PATIENCE_S = 3600.0
COPIES = 4  # of the body, on the disk at a time: the file that is put, the one in bodies/, and a data file for both


class LargeFailed(Exception):
    """What was wrong, in words."""


def room_for(folder: Path, size_bytes: int) -> str | None:
    """Why there is not enough; None if there is."""
    needed = COPIES * size_bytes + GIGABYTE // 4
    free = shutil.disk_usage(folder).free
    return None if free >= needed else f"{folder} has {free >> 20} MB free, and {needed >> 20} MB are needed"


def pieces(size_bytes: int) -> Iterator[bytes]:
    """Bytes of which no two pieces are alike."""
    fixed = bytes(range(256)) * (PIECE_BYTES // 256)
    for at in range(0, size_bytes, PIECE_BYTES):
        yield (at.to_bytes(8, "little") + fixed)[: min(PIECE_BYTES, size_bytes - at)]


def anonymous_bytes() -> int:
    """Memory of this process that is nobody else's and no file's."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


class Meter:
    """The most memory that this process has had more than when it began."""

    def __init__(self) -> None:
        self._start = anonymous_bytes()
        self.most_bytes = 0

    def look(self, *_: object) -> None:
        self.most_bytes = max(self.most_bytes, anonymous_bytes() - self._start)


class Made:
    """The bytes as a source, of which nobody knows how long it is."""

    name = "made up"

    def __init__(self, size_bytes: int) -> None:
        self._pieces: Iterator[bytes] = pieces(size_bytes)

    def read(self, most: int) -> bytes:
        found = next(self._pieces, b"")
        if len(found) > most:  # as for the start, by which it is seen whether there is much
            self._pieces = itertools.chain([found[most:]], self._pieces)
        return found[:most]


def put(path: Path, size_bytes: int) -> int:
    with penstock.open(path) as queue:
        meter = Meter()
        file = path.with_name("file")
        source = file if file.exists() else Made(size_bytes)
        queue.put_file(source, progress=meter.look)  # type: ignore[arg-type]
    return meter.most_bytes


def put_whole(path: Path, size_bytes: int) -> int:
    """As one should not: to see that the meter sees it."""
    with penstock.open(path) as queue:
        meter = Meter()
        body = b"".join(pieces(size_bytes))
        meter.look()
        queue.put(body)
    return meter.most_bytes


def get(path: Path, size_bytes: int) -> int:
    """Read it, compare it, acknowledge it."""
    with penstock.open(path) as queue:
        meter = Meter()
        with queue.get(timeout=0, lease=PATIENCE_S) as message, message.open() as stream:
            if message.body_bytes != size_bytes:
                raise LargeFailed(f"{message.body_bytes} bytes instead of {size_bytes}")
            for at, expected in enumerate(pieces(size_bytes)):
                if stream.read(PIECE_BYTES) != expected:
                    raise LargeFailed(f"other bytes in piece {at}")
                meter.look()
            if stream.read(1):
                raise LargeFailed("more bytes than were put")
    return meter.most_bytes


def in_process(what: str, path: Path, size_bytes: int) -> int:
    """The most memory that a process of its own needed for it."""
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), root])}
    command = [sys.executable, "-m", "tests.large", what, str(path), str(size_bytes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise LargeFailed(f"{what}: {done.stderr.strip()}")
    return int(done.stdout)


def through(folder: Path, size_bytes: int) -> str:
    """Put as a pipe and got, put as a file and got; how long it took and how much memory it needed, in words."""
    folder.mkdir()
    path = folder / "queue"
    penstock.create(path, slots=16, data_bytes=(1 << 20) + size_bytes * 9 // 8, spill_bytes=1 << 16).close()
    told = []
    try:
        for kind in ("pipe", "file"):
            if kind == "file":
                _write(folder / "file", size_bytes)
            for what in ("put", "get"):
                started = time.monotonic()
                needed = in_process(what, path, size_bytes)
                rate = size_bytes / (time.monotonic() - started) / (1 << 20)
                told.append(f"{what} ({kind}) {rate:.0f} MB/s with {needed >> 10} KB of memory")
                if needed > ANONYMOUS_BYTES_MAX:
                    raise LargeFailed(f"{what} ({kind}) needed {needed >> 10} KB of memory")
                if what == "put" and (found := check_queue(path)):
                    raise LargeFailed(f"check: {found}")
        if left := list((path / "bodies").iterdir()):
            raise LargeFailed(f"bodies that are left: {left}")
        return ", ".join(told)
    finally:
        shutil.rmtree(folder)


def _write(file: Path, size_bytes: int) -> None:
    with open(file, "wb") as out:
        out.writelines(pieces(size_bytes))


if __name__ == "__main__":
    print({"put": put, "put_whole": put_whole, "get": get}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3])))
