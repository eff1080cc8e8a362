"""A job queue with retries: workers that crash and jobs that fail, and nothing is forgotten.

Thumbnails are to be made. Some jobs fail at first and work when they are tried again, a few fail for good and become
dead letters, and one worker is killed in the middle of its work. At the end the mistake is mended, the dead letters
are brought back, and every picture has its thumbnail, once or more.

    python examples/jobs.py --jobs 60 --workers 3
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import penstock

ATTEMPTS = 3
BACKOFF = penstock.Backoff.exponential(0.05, factor=2, most=1.0, jitter=0.5)

_processes = multiprocessing.get_context("spawn")  # nothing is inherited but the queue's path


class Broken(Exception):
    """A picture that this version of the program cannot read."""


def make_thumbnail(job: dict[str, int], attempts: int, done: Path, *, mended: bool) -> None:
    picture = job["picture"]
    if picture % 10 == 3 and not mended:
        raise Broken(f"picture {picture} is not understood")
    if picture % 10 == 7 and attempts == 1:
        raise TimeoutError("the picture server did not answer")
    time.sleep(0.01)
    (done / f"{picture}.thumbnail").touch()


def work(path: str, done: str) -> None:
    """One worker. A message that raises goes back and waits for its backoff, until its attempts are used up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    with penstock.open(path) as queue:
        while True:
            message = queue.get()
            try:
                make_thumbnail(message.body, message.attempts, Path(done), mended=False)
            except (Broken, TimeoutError) as error:
                message.fail(error)
            else:
                message.ack()


def start(pool: list[Any]) -> None:
    """All of them; an interrupt waits until there is none half started."""
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    for process in pool:
        process.start()
    signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def run(folder: Path, jobs: int, workers: int) -> int:
    done = folder / "thumbnails"
    done.mkdir()
    with penstock.create(folder / "jobs", lease=5.0, max_attempts=ATTEMPTS, backoff=BACKOFF) as queue:
        queue.put_many([{"picture": picture} for picture in range(jobs)])
        pool = [_processes.Process(target=work, args=(str(folder / "jobs"), str(done))) for _ in range(workers)]
        try:
            start(pool)
            while queue.stats().acks < jobs // 3:
                time.sleep(0.01)
            os.kill(pool[0].pid or 0, signal.SIGKILL)
            print(f"worker {pool[0].pid} is killed; what it had goes back to the queue")
            while (stats := queue.stats()).waiting + stats.pending:
                time.sleep(0.05)
        finally:
            for process in pool:
                process.kill()
            for process in pool:
                process.join()
        return account(queue, jobs, done)


def account(queue: penstock.TimeQueue, jobs: int, done: Path) -> int:
    dead = queue.dead_letters()
    letters = list(dead.browse()) if dead is not None else []
    print(f"{len(list(done.iterdir()))} thumbnails; {len(letters)} dead letters")
    for letter in letters:
        print(f"  {letter.body}: {letter.reason} after {letter.attempts_before} attempts: {letter.error}")
    print(f"the mistake is mended: {queue.redrive()} jobs are brought back")
    for message in queue.get_many(jobs):
        make_thumbnail(message.body, message.attempts, done, mended=True)
        message.ack()
    missing = set(range(jobs)) - {int(file.stem) for file in done.iterdir()}
    print("every picture has its thumbnail" if not missing else f"missing: {sorted(missing)}")
    return 1 if missing or queue.qsize() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--workers", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.jobs < 10 or arguments.workers < 2:
        parser.error("at least 10 jobs and 2 workers")
    with tempfile.TemporaryDirectory(prefix="penstock-jobs-") as folder:
        return run(Path(folder), arguments.jobs, arguments.workers)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
