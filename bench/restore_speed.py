"""How long a restore of a large queue takes, against reading its data file once from the page cache.

Scenario o; alone as ``python -m bench.restore_speed [messages] [body_bytes]``. Makes a queue in a temporary directory,
then measures reading and restoring in turns, each restore in a process of its own, and prints the times, their ratio,
and the most anonymous memory that a restore had. Three kinds of kernel: as its last user left it, with stale slots
(those of the second half of the messages lost), and lost as a whole. Two kinds of order: all always due, and all with
random times.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import penstock
from bench.results import Figure
from penstock.store import layout as L
from penstock.timequeue import Draft, check_queue, restore_queue

ROUNDS = 5
MESSAGES = 1_000_000
FILE_BYTES = 2 << 30  # of the data file, for as many
BODY_BYTES = 2048 - L.RECORD_BYTES
BUFFER_BYTES = 1 << 20
BATCH = 1000
KERNELS = ("kept", "half", "lost")
ORDERS = {"ready": False, "timed": True}


class Took(NamedTuple):
    """Seconds that passed, and seconds of a processor: the second is steadier where others work too."""

    wall_s: float
    cpu_s: float


class Timer:
    def __init__(self) -> None:
        self._start = Took(time.perf_counter(), time.process_time())

    def took(self) -> Took:
        return Took(time.perf_counter() - self._start.wall_s, time.process_time() - self._start.cpu_s)


def read(path: Path) -> Took:
    """Read a file once, with a buffer of 1 MiB. At the start of a page: 16 bytes further on it was seen to take twice
    as long, which is where a first ``bytearray`` is."""
    buffer = mmap.mmap(-1, BUFFER_BYTES)
    buffer.write(bytes(BUFFER_BYTES))
    timer = Timer()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return timer.took()


def build(path: Path, messages: int, body_bytes: int, *, timed: bool) -> None:
    """A queue with waiting messages of this size: its data file is full, but for the last twentieth by default."""
    rng = random.Random(1)
    least_bytes = messages * L.units(body_bytes) * L.UNIT_BYTES
    data_bytes = -(-max(least_bytes, messages * FILE_BYTES // MESSAGES) // L.PAGE_BYTES) * L.PAGE_BYTES
    body = rng.randbytes(body_bytes)
    with penstock.create(path, slots=messages, data_bytes=data_bytes, durability="relaxed") as queue:
        for start in range(0, messages, BATCH):
            count = min(BATCH, messages - start)
            queue.put_many([Draft(body=body, delay=rng.random() * 1e6 if timed else None) for _ in range(count)])


def spoil(path: Path, kernel: str) -> None:
    """Make the kernel one of ``KERNELS``."""
    if kernel == "kept":
        return
    size = (path / "kernel").stat().st_size
    with open(path / "kernel", "r+b") as file:
        file.seek(L.H_SLOTS_AT * L.WORD_BYTES)
        slots_at = int.from_bytes(file.read(L.WORD_BYTES), "little") * L.WORD_BYTES
        start = slots_at + (size - slots_at) // 2 // L.PAGE_BYTES * L.PAGE_BYTES if kernel == "half" else slots_at
        file.seek(start)
        left = size - start
        while left > 0:
            left -= file.write(bytes(min(left, 1 << 16)))
        file.flush()
        os.fsync(file.fileno())


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def restore_here(path: Path, *, sample: bool) -> None:
    """Restore in this process and print how long it took and, if asked, the most anonymous memory that was seen."""
    most = anonymous_bytes()
    over = threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.002):
            most = max(most, anonymous_bytes())

    sampler = threading.Thread(target=look)
    if sample:
        sampler.start()
    timer = Timer()
    restore_queue(path, progress=lambda done, total: None)
    took = timer.took()
    over.set()
    if sample:
        sampler.join()
    print(json.dumps({"wall_s": took.wall_s, "cpu_s": took.cpu_s, "anonymous_bytes": most}))


def restore_in_child(path: Path, *, sample: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.restore_speed", "--restore", str(path), *(["--sample"] if sample else [])]
    done: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return done


class Sample(NamedTuple):
    """A file read, and then restored."""

    read: Took
    restore: Took


class Row(NamedTuple):
    """A kind of order and kernel."""

    name: str
    samples: list[Sample]
    anonymous_bytes: float

    def wall(self) -> tuple[Figure, Figure, Figure]:
        """Restore, reading, and the ratio of the two."""
        pairs = [(sample.restore.wall_s, sample.read.wall_s) for sample in self.samples]
        restores, reads = zip(*pairs, strict=True)
        return Figure.of(list(restores)), Figure.of(list(reads)), Figure.of([a / b for a, b in pairs])

    def cpu_ratio(self) -> Figure:
        return Figure.of([sample.restore.cpu_s / sample.read.cpu_s for sample in self.samples])


def measure(
    folder: Path, *, order: str, rounds: int, messages: int = MESSAGES, body_bytes: int = BODY_BYTES
) -> list[Row]:
    """Each kind of kernel, read and restored in turns. Memory is looked at in a restore that is not timed."""
    path = folder / "queue"
    build(path, messages, body_bytes, timed=ORDERS[order])
    rows = []
    try:
        for kernel in KERNELS:
            spoil(path, kernel)
            anonymous = restore_in_child(path, sample=True)["anonymous_bytes"]
            samples = []
            for _ in range(rounds):
                spoil(path, kernel)
                took = read(path / "data.0")
                done = restore_in_child(path, sample=False)
                samples.append(Sample(took, Took(done["wall_s"], done["cpu_s"])))
            rows.append(Row(f"{order}, kernel {kernel}", samples, anonymous))
        with penstock.open(path) as queue:
            waiting = queue.stats().waiting
        if waiting != messages:
            raise SystemExit(f"{waiting} of {messages} messages are there after the restore")
    finally:
        shutil.rmtree(path)
    return rows


def show(row: Row) -> str:
    restore, reading, ratio = row.wall()
    cpu = row.cpu_ratio()
    return (
        f"{row.name}: read {reading.median:.3f} s, restore {restore.median:.3f} s, "
        f"ratio {ratio.median:.2f} ({ratio.low:.2f} – {ratio.high:.2f}); "
        f"of processor time {cpu.median:.2f} ({cpu.low:.2f} – {cpu.high:.2f}); "
        f"anonymous {row.anonymous_bytes / 1e6:.0f} MB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("messages", nargs="?", type=int, default=MESSAGES)
    parser.add_argument("body_bytes", nargs="?", type=int, default=BODY_BYTES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--check", action="store_true", help="check the restored queue as well")
    parser.add_argument("--restore", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.restore:
        restore_here(arguments.restore, sample=arguments.sample)
        return 0
    print(f"{arguments.messages} messages of {arguments.body_bytes} bytes; compiled: {penstock.compiled}")
    with tempfile.TemporaryDirectory() as folder:
        for order in ORDERS:
            for row in measure(
                Path(folder),
                order=order,
                rounds=arguments.rounds,
                messages=arguments.messages,
                body_bytes=arguments.body_bytes,
            ):
                print(show(row), flush=True)
    if arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "queue"
            build(path, arguments.messages, arguments.body_bytes, timed=True)
            restore_queue(path)
            print(f"findings after the restore: {len(check_queue(path))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
