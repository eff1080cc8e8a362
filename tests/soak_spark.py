"""The soak with Spark: a query from queue to queue whose driver is killed again and again, and an account.

    python tests/soak_spark.py --minutes 30 [--kills 200] [--seed 7] [--waiting 10000000]

Messages are put all the time and taken from the other end, each with the id of the one it came from. The driver, its
Java or one of its Python processes is killed at a random moment, or at a step of the protocols that is chosen by
chance, and the next driver goes on with its checkpoint. At the end a last one finishes the rest, and what came out is
compared with what was put: nothing lost, nothing twice, nothing forged. A batch that was read again had the same rows.

Then, in soaks of 10 minutes or more, a stream takes 10 million waiting messages in batches of 100,000, and the memory
of the driver's Python process is compared with that of one batch.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # for tests.spark, when this is run as a program

import penstock
from penstock.timequeue import check_queue

ROWS = 500  # of a batch
WAITING_MAX = 3000
LONG_MINUTES = 10.0  # from here on with many messages that wait
WAITING = 10_000_000
MEMORY_TIMES_MAX = 1.25  # of what a stream takes that has one batch
MOMENT_S_MAX = 3.0  # how long a driver works before it is killed


class Ends:
    """Both ends of the pipe, in this process, which is not killed: what was put, and what came out."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.put: Counter[tuple[str, bytes]] = Counter()
        self.got: Counter[tuple[str, bytes]] = Counter()
        self.wrong: list[str] = []
        self._folder = folder
        self._rng = rng
        self._stopped = threading.Event()
        self._producer = threading.Thread(target=self._guarded, args=(self._produce,))
        self._producer.start()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.wrong.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _produce(self) -> None:
        with penstock.open(self._folder / "in", busy_s=60) as queue:
            while not self._stopped.is_set():
                if queue.qsize() < WAITING_MAX:
                    sizes = self._rng.choices((10, 200, 3000), k=self._rng.randrange(1, 200))
                    bodies = [self._rng.randbytes(size) for size in sizes]
                    self.put.update(zip(queue.put_many(bodies), bodies, strict=True))
                self._take()
                self._stopped.wait(0.05)

    def _take(self) -> None:
        with penstock.open(self._folder / "out", busy_s=60) as queue:
            while messages := queue.get_many(500, wait=0):
                self.got.update((message.headers["from"], message.data) for message in messages)
                queue.ack_many(messages)

    def stop(self) -> None:
        self._stopped.set()
        self._producer.join()

    def account(self) -> list[str]:
        self._guarded(self._take)
        twice = sum((self.got - self.put).values())
        lost = sum((self.put - self.got).values())
        wrong = [*self.wrong]
        wrong += [f"{lost} messages are lost"] * (lost > 0)
        wrong += [f"{twice} messages came out twice, or were never put"] * (twice > 0)
        with penstock.open(self._folder / "in") as queue:
            if queue.qsize() or queue.stats().claimed:
                wrong.append(f"the first queue holds something: {queue.stats()}")
        for name in ("in", "out"):
            wrong += [f"check: {name}: {finding}" for finding in check_queue(self._folder / name)]
        return wrong


def parts_of(driver: Any) -> tuple[list[int], list[int]]:
    """The processes of its session: Java, and Python beside the driver itself."""
    import psutil

    java, python = [], []
    for process in psutil.process_iter():
        try:
            if process.pid != driver.pid and os.getsid(process.pid) == driver.pid:
                (java if "java" in process.name() else python).append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return java, python


def kill(driver: Any, rng: random.Random) -> str:
    """In one of several ways; how, in a word."""
    java, python = parts_of(driver)
    how = rng.choice(("driver and Java", "driver and Java", "everything", "Java", "a Python process"))
    some = rng.sample(python, min(len(python), 1))
    victims = {"everything": [*java, *python], "Java": java, "a Python process": some}
    for pid in victims.get(how, []):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if how in ("Java", "a Python process"):  # the driver ends with an error, or goes on if the part was done with
        deadline = time.monotonic() + rng.uniform(0, MOMENT_S_MAX)
        while driver.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    driver.kill()
    return how


def disturb(folder: Path, driver: Any, rng: random.Random, counts: Counter[str]) -> None:
    """Let it work until a moment or a step, and kill it there."""
    from tests.spark import steps

    step = rng.choice(steps.STEPS) if rng.random() < 0.4 else None
    if step is not None:
        steps.stop_at(folder, step, None)
    driver.go()
    if step is not None:
        driver.wait_for(lambda: steps.stopped(folder), step)
        counts[f"killed when {step}"] += 1
    elif rng.random() < 0.8:
        with penstock.open(folder / "out", busy_s=60) as queue:
            before = queue.stats().puts
            driver.wait_for(lambda: queue.stats().puts > before, "a batch")
        time.sleep(rng.uniform(0, MOMENT_S_MAX))
    else:  # before it has done anything, or hardly
        driver.wait_for(lambda: (folder / f"begun.{driver.pid}").exists(), "its query")
        time.sleep(rng.uniform(0, 2 * MOMENT_S_MAX))
    if driver.process.poll() is not None:
        raise AssertionError(f"the driver ended by itself: {driver.said()}")
    counts[f"killed: {kill(driver, rng)}"] += 1
    (folder / "stop").unlink(missing_ok=True)


def soak(folder: Path, minutes: float, kills: int, rng: random.Random, counts: Counter[str]) -> list[str]:
    from tests.spark import steps
    from tests.spark.processes import Drivers

    for name, durability in (("in", "relaxed"), ("out", "commit")):
        penstock.create(folder / name, slots=20_000, data_bytes=32 << 20, durability=durability).close()
    ends = Ends(folder, random.Random(rng.getrandbits(32)))
    try:
        with Drivers(folder, ROWS, "goes-on") as drivers:
            end = time.monotonic() + minutes * 60
            following = drivers.prepare()
            while time.monotonic() < end and counts["kills"] < kills and not ends.wrong:
                driver, following = following, drivers.prepare()
                disturb(folder, driver, rng, counts)
                counts["kills"] += 1
                if counts["kills"] % 10 == 0:
                    print(f"  {end - time.monotonic():5.0f} s left, {dict(counts)}", flush=True)
    finally:
        ends.stop()
    with Drivers(folder, ROWS) as drivers:
        last = drivers.prepare()
        last.go()
        last.wait()
    wrong = ends.account()
    counts["messages"] = sum(ends.put.values())
    counts["read again"], differing = steps.read_again(folder)
    return wrong + [f"batch {batch} had other rows when it was read again" for batch in differing]


def deep(folder: Path, waiting: int) -> list[str]:
    """The memory of the process that plans the batches, with many messages waiting and with one batch of them."""
    from bench.scenarios.spark import SHALLOW, SparkRun

    print(f"soak with Spark: {waiting:,} messages waiting", flush=True)
    run = SparkRun(folder)
    try:
        found = run.memory(waiting)
    finally:
        run.close()
    said = f"{found['Penstock'] / 1e6:.0f} MB with {waiting:,} waiting, {found[SHALLOW] / 1e6:.0f} MB with one batch"
    print(f"soak with Spark: the driver's Python process took {said}", flush=True)
    return [f"memory grows with what waits: {said}"] if found["Penstock"] > MEMORY_TIMES_MAX * found[SHALLOW] else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--waiting", type=int, help=f"default {WAITING:,} from {LONG_MINUTES:g} minutes on, else 0")
    arguments = parser.parse_args()
    waiting = arguments.waiting if arguments.waiting is not None else WAITING * (arguments.minutes >= LONG_MINUTES)
    if find_spec("pyspark") is None:
        print("soak: Spark is not installed, no soak with it")
        return 0
    print(f"soak with Spark: {arguments.minutes:g} min, {arguments.kills} kills, seed {arguments.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-soak-", dir=os.environ.get("PENSTOCK_SOAK_DIR")))
    counts: Counter[str] = Counter()
    wrong = soak(folder, arguments.minutes, arguments.kills, random.Random(arguments.seed), counts)
    if waiting:
        wrong += deep(folder, waiting)
    print(f"soak with Spark: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    for line in wrong[:20]:
        print(f"WRONG {line}")
    if wrong:
        print(f"{len(wrong)} things are wrong; seed {arguments.seed}; queues, checkpoint and logs are in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print("soak with Spark: nothing lost, nothing twice, nothing forged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
