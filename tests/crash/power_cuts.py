"""Power cuts on real file systems: a queue on a loop device, under load, and the file system stops in mid-flight.

    python -m tests.crash.power_cuts --kind ext4 --cuts 20 [--seed 7]      (as root)

Producers put durably, consumers acknowledge, and each writes what was confirmed to a log outside the image. At a random
moment the file system is shut down by the ioctl that exists for this (the one behind ``xfs_io -c shutdown``): from then
on it writes nothing more, neither dirty pages nor its journal, and every later sync fails. So the image holds what a
power cut at that moment would leave, all of it from one moment, which no copy of a changing image has. It is copied
then, and the copy is mounted elsewhere: its journal is replayed, and the queue, which finds itself on another disk, is
restored, in turns by its first client and on demand. The next load and the next cut are on that copy.

What this shows: the real file system's order of writes, its journal, allocation and directory entries, syncs that do
or do not cover what was confirmed, and a kernel file of which any pages are new and any are old (a process of the rig
has random pages written back all the time, as memory pressure would). What it cannot show: a device that loses what it
was sent and not told to flush, or tears a sector. The loop device keeps every write that it has completed. The storage
layer for tests does these.

Everything happens in a process with a mount namespace of its own, and loop devices are attached by ``mount`` and free
themselves: when that process ends, in whatever way, no mount and no loop device is left. No other device is touched.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import penstock
from penstock.timequeue import check_queue, restore_queue

KINDS = {
    # How to make one, and how large: mkfs.xfs refuses less than 300 MB. Images are sparse.
    "ext4": (["mkfs.ext4", "-q", "-F"], 64 << 20),
    "xfs": (["mkfs.xfs", "-q", "-f"], 320 << 20),
}
TOOLS = ("unshare", "mount", "umount", "cp")

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32): the same number for ext4 and XFS
WITHOUT_FLUSHING = 2
SYNC_FILE_RANGE_WRITE = 2
PAGE_BYTES = 4096

PRODUCERS = 3
CONSUMERS = 2
CUTS_EACH = 4  # of one queue: each is restored, used on, and cut again
RUN_S = (0.02, 0.7)  # under load before a cut
FULL_S = 0.002
UNMOUNT_S = 10.0
CUT_S_MAX = 60.0  # far above what one takes: then something hangs

# Small, so that the ring is written over many times.
QUEUE = {"slots": 1000, "data_bytes": 1 << 20, "spill_bytes": 8 << 10, "durability": "commit"}
SIZES = (10, 200, 200, 1000, 3000, 12_000)
DELAYS_S = (None, None, None, None, 0.05, 0.4)


class PowerCutFailed(AssertionError):
    """The queue broke a promise. Says what, and which image shows it."""


def why_not(kind: str) -> str | None:
    """Why there can be no power cuts on this kind of file system here, or None. Tries it."""
    if os.geteuid() != 0:
        return "mounting a loop device needs root"
    for tool in (*TOOLS, KINDS[kind][0][0]):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    with tempfile.TemporaryDirectory(prefix="penstock-probe-") as where:
        done = _in_namespace("--probe", "--kind", kind, "--where", where, timeout_s=CUT_S_MAX)
    return None if done.returncode == 0 else f"no {kind} on a loop device here: {done.stderr.strip().splitlines()[-1]}"


def power_cuts(
    *, cuts: int | None = None, minutes: float | None = None, kind: str = "ext4", seed: int, where: Path
) -> dict[str, int]:
    """So many cuts, or as many as fit into the minutes. What was counted; ``PowerCutFailed`` with what is wrong.

    The directory ``where`` is ours: it keeps the image of a cut that failed.
    """
    if (cuts is None) == (minutes is None):
        raise ValueError("either a number of cuts or minutes")
    limit = ("--cuts", str(cuts)) if cuts is not None else ("--minutes", str(minutes))
    timeout_s = CUT_S_MAX * (cuts or 1) + 60 * (minutes or 0)
    done = _in_namespace("--kind", kind, "--seed", str(seed), "--where", str(where), *limit, timeout_s=timeout_s)
    if done.returncode:
        raise PowerCutFailed(done.stderr.strip() or f"the rig ended with {done.returncode}")
    return json.loads(done.stdout)


def _in_namespace(*arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        sys.executable,
        "-m",
        "tests.crash.power_cuts",
        "--inside",
    ]
    root = Path(__file__).parents[2]
    return subprocess.run([*command, *arguments], cwd=root, capture_output=True, text=True, timeout=timeout_s)


# From here on: inside the namespace.


class Log:
    """What happened, outside the image: one unbuffered write for each line."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, kind: str, *words: str) -> None:
        os.write(self._fd, " ".join((kind, *words, "\n")).encode())


class Account:
    """What the logs of one load say."""

    def __init__(self, folder: Path) -> None:
        self.tried: set[str] = set()
        self.confirmed: dict[str, str] = {}  # key to id
        self.refused: set[str] = set()
        self.acking: set[str] = set()
        self.acked: set[str] = set()
        self.gone: set[str] = set()  # acknowledged durably
        for path in folder.iterdir():
            for line in path.read_text().splitlines():
                kind, *words = line.split()
                if kind == "put":
                    self.confirmed |= dict(zip(words[::2], words[1::2], strict=True))
                else:
                    getattr(self, kind).update(words)

    def batches(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for key in self.tried:
            batch, slash, _ = key.partition("/")
            if slash:
                found.setdefault(batch, set()).add(key)
        return found


def body(key: str, rng: random.Random) -> bytes:
    text = key.encode() + b"|" + rng.randbytes(rng.choice(SIZES))
    return text + zlib.crc32(text).to_bytes(4, "little")


def key_of(data: bytes) -> str:
    if zlib.crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
        raise PowerCutFailed(f"a body that nobody put: {data[:40]!r}...")
    return data.partition(b"|")[0].decode()


def produce(path: Path, log: Log, rng: random.Random, name: str) -> None:
    queue = penstock.open(path)
    number = 0
    while True:
        number += 1
        count = rng.choice((1, 1, 1, 1, 2, 7))
        keys = [f"{name}.{number}/{at}" for at in range(count)] if count > 1 else [f"{name}.{number}"]
        log("tried", *keys)
        try:
            ids = put(queue, keys, rng)
        except penstock.QueueFull:
            log("refused", *keys)
            time.sleep(FULL_S)
            continue
        log("put", *(word for pair in zip(keys, ids, strict=True) for word in pair))


def put(queue: penstock.TimeQueue, keys: list[str], rng: random.Random) -> list[str]:
    if len(keys) > 1:
        return list(queue.put_many([body(key, rng) for key in keys]))
    return [queue.put(body(keys[0], rng), priority=rng.randrange(3), delay=rng.choice(DELAYS_S))]


def consume(path: Path, log: Log, rng: random.Random, name: str) -> None:
    queue = penstock.open(path)
    while True:
        for message in queue.get_many(rng.randrange(1, 8), wait=0.05):
            key = key_of(message.data)
            what = rng.random()
            if what < 0.1:
                message.release(delay=rng.choice((None, 0.01)))
            elif what < 0.98:  # the others stay pending
                log("acking", key)
                durable = what < 0.15
                queue.ack(message, durable=durable)
                log("acked", key)
                if durable:
                    log("gone", key)
        time.sleep(rng.random() * 0.01)


def write_back(path: Path, log: Log, rng: random.Random, name: str) -> None:
    """Start the writing of random pages, as the kernel does whenever it likes."""
    sync_file_range = ctypes.CDLL(None, use_errno=True).sync_file_range
    sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    files = [os.open(path / found, os.O_RDWR) for found in ("kernel", "kernel", "data.0")]
    while True:
        fd = rng.choice(files)
        pages = os.fstat(fd).st_size // PAGE_BYTES
        first = rng.randrange(pages)
        sync_file_range(fd, first * PAGE_BYTES, rng.randrange(1, 9) * PAGE_BYTES, SYNC_FILE_RANGE_WRITE)
        time.sleep(rng.random() * 0.002)


class Worker:
    """A forked process that works until it is killed, or until the file system has gone from under it."""

    def __init__(self, work: Callable[..., None], path: Path, logs: Path, seed: int, name: str) -> None:
        self.name = f"{work.__name__} {name}"
        self.errors = logs.parent / f"error-{name}"
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _die_with_parent()
                work(path, Log(logs / name), random.Random(f"{seed} {name}"), name)
            except BaseException:
                self.errors.write_text(traceback.format_exc())
            finally:
                os._exit(1)

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> str | None:
        """The error it ended with, if any."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        if not self.errors.exists():
            return None
        text = self.errors.read_text()
        self.errors.unlink()
        return text


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Cuts:
    """One queue after the other, each on an image of its own that is cut a few times."""

    def __init__(self, kind: str, seed: int, where: Path) -> None:
        self.kind = kind
        self.seed = seed
        self.rng = random.Random(seed)
        self.where = where
        self.counts: Counter[str] = Counter()

    def run(self, more: Callable[[int], bool]) -> Counter[str]:
        while more(self.counts["cuts"]):
            self.life(more)
        return self.counts

    def life(self, more: Callable[[int], bool]) -> None:
        """A new queue, and a few cuts."""
        image = self._path("image")
        make(self.kind, image)
        owed: set[str] | None = None
        ids: dict[str, str] = {}
        for cut in range(CUTS_EACH):
            if cut and not more(self.counts["cuts"]):
                break
            logs = self._folder(f"logs-{self.counts['cuts']}")
            with mounted(image, self.where / "before") as root:
                if owed is None:
                    owed = set()
                    penstock.create(root / "queue", **QUEUE).close()
                self._load_and_cut(root, logs)
            copy = self._path("copy")
            subprocess.run(["cp", "--sparse=always", "--reflink=auto", str(image), str(copy)], check=True)
            with mounted(copy, self.where / "after") as root:
                self.counts["cuts"] += 1
                owed = self._judge(root / "queue", Account(logs), owed, ids)
                if cut == CUTS_EACH - 1:
                    self._drain(root / "queue", owed)
            copy.replace(image)
            shutil.rmtree(logs)
        image.unlink()

    def _load_and_cut(self, root: Path, logs: Path) -> None:
        name = f"c{self.counts['cuts']}"
        jobs = [(produce, PRODUCERS), (consume, CONSUMERS), (write_back, 1)]
        workers: list[Worker] = []
        errors = []
        try:
            for work, count in jobs:
                for index in range(count):
                    worker_name = f"{name}{work.__name__[0]}{index}"
                    workers.append(Worker(work, root / "queue", logs, self.seed, worker_name))
            time.sleep(self.rng.uniform(*RUN_S))
            early = [worker for worker in workers if worker.ended()]
            shut_down(root)
        finally:
            errors = [worker.end() for worker in workers]
        if early:
            said = "\n".join(filter(None, errors))
            raise self._failed(f"ended before the cut: {', '.join(worker.name for worker in early)}\n{said}")

    def _judge(self, path: Path, account: Account, owed: set[str], ids: dict[str, str]) -> set[str]:
        """What is there now. ``owed`` is what was there after the cut before."""
        if self.counts["cuts"] % 2:
            penstock.open(path).close()  # the first to come restores it
        else:
            restore_queue(path, after_power_loss=True)
        if findings := check_queue(path):
            raise self._failed(f"after the restore: {findings[:5]}")
        with penstock.open(path) as queue:
            keys = [key_of(message.data) for message in queue.browse(state="all")]
            if not queue.stats().restores:
                raise self._failed("nobody has restored it")
        present = set(keys)
        self._none("there twice", {key for key, count in Counter(keys).items() if count > 1})
        self._none("confirmed and lost", (owed | set(account.confirmed)) - account.acking - present)
        self._none("there and never put, or returned after it was gone", present - owed - account.tried)
        self._none("acknowledged durably, and back", present & account.gone)
        self._none("refused, and there all the same", present & account.refused)
        for batch, members in account.batches().items():
            if not members & account.acking and members & present != members and members & present:
                raise self._failed(f"half of a batch: {batch}: {len(members & present)} of {len(members)}")
        self._none("ids given twice", set(account.confirmed.values()) & set(ids))
        ids |= {message_id: key for key, message_id in account.confirmed.items()}
        self.counts["confirmed"] += len(account.confirmed)
        self.counts["acknowledged"] += len(account.acked)
        self.counts["acknowledged durably"] += len(account.gone)
        self.counts["returned after their ack"] += len(present & account.acked)
        self.counts["there without being confirmed"] += len(present & account.tried - set(account.confirmed))
        self.counts["found"] += len(present)
        return present

    def _drain(self, path: Path, expected: set[str]) -> None:
        """All of it can be received, and is then gone."""
        found: list[str] = []
        with penstock.open(path) as queue:
            while len(found) < len(expected):
                messages = queue.get_many(100, wait=2)
                if not messages:
                    break
                found += [key_of(message.data) for message in messages]
                queue.ack_many(messages)
            left = queue.qsize()
        if left or Counter(found) != Counter(expected):
            raise self._failed(f"{len(found)} received of {len(expected)}, {left} left")

    def _none(self, what: str, keys: set[str]) -> None:
        if keys:
            raise self._failed(f"{what}: {len(keys)}, such as {sorted(keys)[:5]}")

    def _failed(self, what: str) -> PowerCutFailed:
        at = f"{self.kind}, seed {self.seed}, cut {self.counts['cuts']}, counted so far {dict(self.counts)}"
        return PowerCutFailed(f"{what}\n({at}; the image as the cut left it: {self.where / 'image'})")

    def _path(self, name: str) -> Path:
        return self.where / name

    def _folder(self, name: str) -> Path:
        path = self.where / name
        path.mkdir()
        return path


def make(kind: str, image: Path) -> None:
    command, size = KINDS[kind]
    with open(image, "wb") as file:
        file.truncate(size)
    _do(*command, str(image))


@contextlib.contextmanager
def mounted(image: Path, root: Path) -> Iterator[Path]:
    root.mkdir(exist_ok=True)
    _do("mount", "-o", "loop", str(image), str(root))
    try:
        yield root
    finally:
        _unmount(root)


def _unmount(root: Path) -> None:
    """A process that was killed may take a moment to let go."""
    deadline = time.monotonic() + UNMOUNT_S
    while True:
        try:
            return _do("umount", str(root))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def shut_down(root: Path) -> None:
    """The cut: whatever has not been written by now never will be."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, WITHOUT_FLUSHING.to_bytes(4, sys.byteorder))
    finally:
        os.close(fd)


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


def probe(kind: str, where: Path) -> None:
    """Make one, cut it, mount it again: what was synced must be there."""
    image = where / "image"
    make(kind, image)
    with mounted(image, where / "root") as root:
        fd = os.open(root / "file", os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"synced")
        os.fsync(fd)
        shut_down(root)
        os.close(fd)
    with mounted(image, where / "root") as root:
        if (root / "file").read_bytes() != b"synced":
            raise OSError("what was synced before a shutdown is not there after it")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.power_cuts", description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="ext4")
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--minutes", type=float, help="as many cuts as fit, instead of --cuts")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--where", type=Path, help="for the images; made if missing")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.where = options.where or Path(tempfile.mkdtemp(prefix="penstock-cuts-"))
    try:
        if options.probe:
            probe(options.kind, options.where)
        else:
            print(json.dumps(_inside(options) if options.inside else _outside(options)))
    except (OSError, PowerCutFailed) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    return 0


def _outside(options: argparse.Namespace) -> dict[str, int]:
    if reason := why_not(options.kind):
        raise OSError(reason)
    cuts = None if options.minutes else options.cuts
    return power_cuts(cuts=cuts, minutes=options.minutes, kind=options.kind, seed=options.seed, where=options.where)


def _inside(options: argparse.Namespace) -> dict[str, int]:
    _die_with_parent()  # and with us our mounts
    options.where.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * (options.minutes or 0)

    def more(done: int) -> bool:
        return time.monotonic() < end if options.minutes else done < options.cuts

    return {"seed": options.seed, **Cuts(options.kind, options.seed, options.where).run(more)}


if __name__ == "__main__":
    sys.exit(main())
