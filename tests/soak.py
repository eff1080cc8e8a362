"""The soak: autonomous processes on one queue, killed and stopped at random for as long as you like, and an account.

    python tests/soak.py --minutes 10 [--seed 7] [--processes 16]

Every process writes what it did to a log of its own, after it was confirmed: an id that was put, acknowledged or
cancelled. At the end: what was put is acknowledged, cancelled or still there (nothing lost); nothing was acknowledged
twice; every body is one that somebody put (nothing forged); nothing is stuck; the queue is consistent.

After it a body of 5 GB goes through a queue, piece by piece, where the disk has room for it.

Beside it one process loses power on simulated disks (``tests/crash``), with new seeds for the whole time. A seed that
fails is printed; ``PENSTOCK_SEED=<it> pytest tests/crash/test_power_loss.py`` runs it alone.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # for tests.crash, when this is run as a program

import penstock
from penstock.timequeue import check_queue
from tests.crash.power_cuts import PowerCutFailed, power_cuts, why_not
from tests.large import GIGABYTE, LargeFailed, room_for, through
from tests.pipes import Pipe
from tests.snapshot import FAST

SLOTS = 4000
DATA_BYTES = 2 << 20
LEASE_S = 3.0  # stopped processes stay stopped for longer than this now and then
KILL_EVERY_S = 0.15
CHECK_EVERY_S = 13.0  # it wakes up the stopped ones: rare enough for leases to run out


class Log:
    """Lines that survive a kill: one unbuffered write each."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, ids: list[str]) -> None:
        os.write(self._fd, "".join(f"{kind} {message_id}\n" for message_id in ids).encode())


def body(rng: random.Random, origin: int) -> bytes:
    size = rng.choice((20, 200, 200, 1000, 3000, 20_000))
    text = b"%d:%d:" % (origin, rng.getrandbits(48)) + rng.randbytes(size)
    return text + zlib.crc32(text).to_bytes(4, "little")


def source(rng: random.Random, data: bytes) -> Any:
    """A file with these bytes, or a pipe, of which nobody knows how long it is."""
    return io.BytesIO(data) if rng.random() < 0.5 else Pipe(data)


def genuine(data: bytes) -> bool:
    return zlib.crc32(data[:-4]).to_bytes(4, "little") == data[-4:]


def produce(queue: penstock.TimeQueue, rng: random.Random, log: Log, own: list[str]) -> None:
    options = {
        "priority": rng.randrange(4),
        "delay": rng.choice((None, None, None, 0.001, 0.2)),
        "durability": "commit" if rng.random() < 0.2 else None,
        "timeout": rng.choice((None, 0.05)),
    }
    try:
        if rng.random() < 0.2:
            ids = list(queue.put_many([body(rng, os.getpid()) for _ in range(rng.randrange(1, 60))], **options))
        elif rng.random() < 0.2:
            ids = [queue.put_file(source(rng, body(rng, os.getpid())), **options)]
        else:
            ids = [queue.put(body(rng, os.getpid()), **options)]
    except penstock.QueueFull:
        return
    log.write("put", ids)
    own[:] = (own + ids)[-50:]
    if own and rng.random() < 0.02:
        victim = own.pop(rng.randrange(len(own)))
        log.write("intend", [victim])
        log.write("cancel" if queue.cancel(victim) else "settle", [victim])


def consume(queue: penstock.TimeQueue, rng: random.Random, log: Log) -> None:
    messages = queue.get_many(rng.choice((1, 1, 1, 30)), wait=0.05)
    for message in messages:
        try:
            if not genuine(message.data):
                log.write("forged", [message.id])
        except penstock.BodyGone:  # stopped for longer than its lease: somebody else has got and acknowledged it
            continue
    fate = rng.random()
    try:
        if fate < 0.05:
            for message in messages:
                message.release(delay=rng.choice((None, 0.05)))
            return
        if fate < 0.08:
            for message in messages:
                message.extend(1)
    except penstock.LeaseLost:
        return
    log.write("intend", [message.id for message in messages])
    try:
        queue.ack_many(messages)
    except penstock.LeaseLost:
        log.write("settle", [message.id for message in messages if message.state != "done"])
    log.write("ack", [message.id for message in messages if message.state == "done"])


def work(path: Path, log_path: Path, seed: int, drain: bool) -> None:
    rng = random.Random(seed)
    log = Log(log_path)
    queue = penstock.open(path, busy_s=30)
    own: list[str] = []
    leaning = rng.choice((0.3, 0.5, 0.7))
    while True:
        if not drain and rng.random() < leaning:
            produce(queue, rng, log, own)
        else:
            consume(queue, rng, log)


def start(path: Path, logs: Path, seed: int, *, drain: bool = False) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(path, logs / f"{seed}", seed, drain)
    except penstock.PenstockError as error:
        Log(logs / f"{seed}").write("error", [f"{type(error).__name__}: {error}"])
    finally:
        os._exit(1)


def lose_power(report: Path, first_seed: int, minutes: float) -> int:
    """Start a process that runs power losses until the time is over, and then reports; its pid."""
    pid = os.fork()
    if pid:
        return pid
    from tests.crash import trial

    logging.disable(logging.WARNING)  # every restore tells what it found
    counts: Counter[str] = Counter()
    wrong = []
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-power-", dir=FAST)))
    end = time.monotonic() + minutes * 60
    seed = first_seed
    try:
        while time.monotonic() < end and not wrong:
            try:
                counts += trial.run(folder, seed)
            except Exception as error:
                wrong.append(f"power loss: seed {seed}: {type(error).__name__}: {error}")
            seed += 1
        report.write_text(json.dumps([counts, wrong]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def power_report(report: Path, pid: int, counts: Counter[str]) -> list[str]:
    os.waitpid(pid, 0)
    if not report.exists():
        return ["power loss: the process ended without a report"]
    found, wrong = json.loads(report.read_text())
    counts.update({f"power: {what}": n for what, n in found.items()})
    return list(wrong)


def account(path: Path, logs: Path, counts: Counter[str]) -> list[str]:
    """What is wrong, in words; nothing if the list is empty."""
    put: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    open_intents: set[str] = set()  # of processes that died before they could say whether it was done
    wrong = []
    for file in logs.iterdir():
        intents: set[str] = set()
        for line in file.read_text().split("\n")[:-1]:  # one that is cut off is of a process that was killed at it
            kind, _, message_id = line.partition(" ")
            counts[kind] += 1
            if kind == "put":
                put[message_id] += 1
            elif kind == "intend":
                intents.add(message_id)
            elif kind in ("ack", "cancel", "settle"):
                intents.discard(message_id)
                gone[message_id] += kind != "settle"
            else:
                wrong.append(f"{kind}: {message_id}")
        open_intents |= intents
    with penstock.open(path) as queue:
        here = Counter(message.id for message in queue.browse(state="all"))
        client = queue._mine()
        while client.turn(client.return_from_dead):  # as the next receiver would
            pass
        stats = queue.stats()
    counts["still there"] = sum(here.values())
    wrong += [f"id given twice: {i}" for i, n in put.items() if n > 1]
    wrong += [f"acknowledged twice: {i}" for i, n in gone.items() if n > 1]
    wrong += [f"lost: {i}" for i in put if not gone[i] and i not in here and i not in open_intents]
    wrong += [f"acknowledged and still there: {i}" for i in here if gone[i]]
    if stats.filling:
        wrong.append(f"{stats.filling} slots are stuck being filled")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--large-gb", type=float, default=5.0, help="size of the one large body; 0 leaves it out")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print(f"soak: {arguments.minutes:g} min, {arguments.processes} processes, seed {arguments.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-soak-", dir=os.environ.get("PENSTOCK_SOAK_DIR")))
    path, logs = folder / "queue", folder / "logs"
    logs.mkdir()
    penstock.create(
        path, slots=SLOTS, data_bytes=DATA_BYTES, spill_bytes=8000, lease=LEASE_S, durability="relaxed"
    ).close()
    counts: Counter[str] = Counter()
    power = lose_power(folder / "power.json", arguments.seed, arguments.minutes)
    running: dict[int, float] = {}  # pid: when to wake it up again, 0 if it runs
    seed = arguments.seed
    wrong: list[str] = []
    try:
        end = time.monotonic() + arguments.minutes * 60
        next_check = time.monotonic() + CHECK_EVERY_S
        while time.monotonic() < end and not wrong:
            while len(running) < arguments.processes:
                seed += 1
                running[start(path, logs, seed)] = 0.0
                counts["started"] += 1
            time.sleep(rng.random() * 2 * KILL_EVERY_S)
            disturb(running, rng, counts)
            if time.monotonic() > next_check:
                for pid in running:  # one that is stopped may hold the lock, and only we would wake it up
                    os.kill(pid, signal.SIGCONT)
                    running[pid] = 0.0
                wrong += [f"check: {finding}" for finding in check_queue(path, busy_s=60)]
                next_check = time.monotonic() + CHECK_EVERY_S
                counts["checks"] += 1
                print(f"  {end - time.monotonic():5.0f} s left, {dict(counts)}", flush=True)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    wrong += power_report(folder / "power.json", power, counts)
    wrong += cut_power(folder, seed, arguments.minutes, counts)
    wrong += large_body(folder, arguments.large_gb, counts)
    wrong += finish(path, logs, counts)
    print(f"soak: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
    for line in wrong[:20]:
        print(f"WRONG {line}")
    if wrong:
        print(f"{len(wrong)} things are wrong; seed {arguments.seed}; the queue and the logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    print("soak: nothing lost, nothing doubled, nothing forged, nobody stuck")
    return 0


def large_body(folder: Path, gigabytes: float, counts: Counter[str]) -> list[str]:
    """One body that is larger than a process should have memory for, in and out again."""
    size_bytes = int(gigabytes * GIGABYTE)
    reason = room_for(folder, size_bytes)
    if not size_bytes or reason is not None:
        print(f"soak: no large body: {reason or 'not asked for'}", flush=True)
        return []
    try:
        told = through(folder / "large", size_bytes)
    except LargeFailed as error:
        return [f"a body of {gigabytes:g} GB: {error}"]
    print(f"soak: a body of {gigabytes:g} GB: {told}", flush=True)
    counts["large bodies"] += 1
    return []


def cut_power(folder: Path, seed: int, minutes: float, counts: Counter[str]) -> list[str]:
    """Power cuts on real file systems, after the rest: a hundred in a soak of ten minutes and more."""
    for kind in ("ext4", "xfs"):
        reason = why_not(kind)
        if reason is not None:
            print(f"soak: no power cuts on {kind}: {reason}", flush=True)
            continue
        try:
            done = power_cuts(cuts=min(100, max(2, round(10 * minutes))), kind=kind, seed=seed, where=folder / kind)
        except PowerCutFailed as error:
            return [f"power cut on {kind}: {error}"]
        counts[f"power cuts on {kind}"] = done["cuts"]
        counts[f"confirmed before a cut on {kind}"] = done["confirmed"]
    return []


def disturb(running: dict[int, float], rng: random.Random, counts: Counter[str]) -> None:
    now = time.monotonic()
    for pid, wake in list(running.items()):
        if wake and now >= wake:
            os.kill(pid, signal.SIGCONT)
            running[pid] = 0.0
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:  # by an error of its own, which is in its log
            del running[pid]
    if not running:
        return
    pid = rng.choice(list(running))
    if rng.random() < 0.7:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del running[pid]
        counts["killed"] += 1
    elif not running[pid]:
        os.kill(pid, signal.SIGSTOP)
        running[pid] = now + rng.choice((0.01, 0.3, LEASE_S + 2))
        counts["stopped"] += 1


def finish(path: Path, logs: Path, counts: Counter[str]) -> list[str]:
    """Everybody is dead. A fresh client must be able to take every message that is left, at once or when due."""
    wrong = [f"check: {finding}" for finding in check_queue(path)]
    wrong += account(path, logs, counts)
    with penstock.open(path) as queue:
        waiting = queue.stats().waiting + queue.stats().pending
        taken = 0
        while True:
            messages = queue.get_many(500, wait=0.5)
            if not messages:
                break
            wrong += [f"forged: {message.id}" for message in messages if not genuine(message.data)]
            taken += len(messages)
            queue.ack_many(messages)
        queue.sync_index()  # until then some room is kept
        if taken != waiting:
            wrong.append(f"{waiting} messages were there, {taken} could be taken")
        stats = queue.stats()
        if stats.waiting or stats.pending or stats.used_bytes or stats.spilled_bytes:
            wrong.append(f"an emptied queue holds something: {stats}")
        counts["repairs"] = stats.repairs
        counts["returned"] = stats.returned
        counts["expired"] = stats.expired
    wrong += [f"check: {finding}" for finding in check_queue(path)]
    return wrong


if __name__ == "__main__":
    sys.exit(main())
