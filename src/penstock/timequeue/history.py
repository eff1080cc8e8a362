"""Owns the history of a queue: what became of its messages, in files beside it, and reading them again.

Each client appends blocks to a file of its own, ``history/<start in microseconds>-<client>.log``, and begins another
when that has its share of the bound. Whoever writes removes the oldest files of all when there is too much, or when
they are too old. Nothing here is synced, nothing is decided by it, and no error of it reaches whoever acknowledges: the
first is logged, and then this client keeps no history any more. Never waits for the queue's lock while it writes.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.codec import decode_meta
from penstock.errors import Misuse
from penstock.store import outcomes, rig
from penstock.store.directory import read_options
from penstock.store.files import Clock, make_folder, open_file, write_all
from penstock.store.options import Options
from penstock.store.outcomes import Outcomes
from penstock.timequeue.arguments import check_seconds

log = logging.getLogger("penstock")

FOLDER = "history"
SUFFIX = ".log"
BYTES_LEAST = 1 << 20  # less is a few seconds of a busy queue
BYTES_MOST = 1 << 46
FILES_SHARE = 8  # a file is an eighth of the bound at most, and as old as an eighth of the age: the oldest go whole
SLACK = 16  # removed is until a sixteenth of the bound is free, and looked for when so much may have been written
ASKED_US = 1_000_000  # between two looks whether our file is still there: it costs as much as a third of a write
END_S_MAX = 10.0  # for a thread that is writing yet
LOOK_US = 60 * 1_000_000  # after which somebody looks for files that are too old, whether anything is written or not


class Head(msgspec.Struct, frozen=True):
    """What a file says of itself: whose history it is. ``id_prefix`` makes an id of slot and number."""

    uuid: str
    id_prefix: str
    pid: int
    client: int
    started_us: int


_head = msgspec.json.Decoder(Head)


def check_bytes(given: int) -> int:
    """``history_bytes`` as ``create`` is given it."""
    whole = not isinstance(given, bool) and isinstance(given, int)
    if not whole or not (given == 0 or BYTES_LEAST <= given <= BYTES_MOST):
        raise Misuse(f"history_bytes must be 0 or a whole number from {BYTES_LEAST} to {BYTES_MOST}, not {given!r}")
    return given


def check_age(given: float) -> float:
    return check_seconds("history_age", given, zero=False)


# ---------------------------------------------------------------- writing


class History:
    """The history of one client."""

    def __init__(
        self, path: Path, options: Options, id_prefix: str, client: int, clock: Clock, gathered: Outcomes
    ) -> None:
        self._folder = path / FOLDER
        self._queue = str(path)
        self._bytes = options.history_bytes
        self._age_us = int(options.history_age_s * 1_000_000)
        self._uuid = options.uuid
        self._id_prefix = id_prefix
        self._client = client
        self._clock = clock
        self._gathered = gathered
        self._writing = threading.Lock()
        self._fd = -1
        self._at = 0  # where the next block goes
        self._started_us = 0
        self._unlooked = 0  # bytes that were written since somebody looked for what is too much
        self._files = 0  # that there were then
        self._looked_us = 0
        self._asked_us = 0
        self.stopped = False
        _open.add(self)

    def write(self, *, wait: bool = False) -> None:
        """Append what is sealed. Takes no lock of the queue's; never raises an error of the disk's. Does not ``wait``
        for another thread that is writing: that one, or the next to come, takes it along."""
        if (wait or self._gathered.sealed) and self._writing.acquire(blocking=wait):
            try:
                self._write()
            finally:
                self._writing.release()

    def _write(self) -> None:
        gathered = self._gathered
        try:
            while gathered.sealed:
                block = gathered.sealed.pop(0)
                if not self.stopped:
                    self._append(block)
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self.stopped = True
        self._gathered.sealed.clear()
        log.warning("%s: no more history is kept by this process: %s", self._queue, error)

    def _append(self, block: bytes) -> None:
        now_us = self._clock.wall_us()
        if self._fd < 0 or self._is_over(len(block), now_us):
            self._begin(now_us)
        write_all(self._fd, block, self._at)
        self._at += len(block)
        self._unlooked += len(block)
        if self._unlooked * SLACK * max(self._files, 1) >= self._bytes:
            self._remove_old(now_us)

    def _is_over(self, more_bytes: int, now_us: int) -> bool:
        """Whether our file has had its share, or somebody has removed it."""
        if self._at + more_bytes > self._bytes // FILES_SHARE:
            return True
        if abs(now_us - self._asked_us) >= ASKED_US:
            self._asked_us = now_us
            if os.fstat(self._fd).st_nlink == 0:
                return True
        return not 0 <= now_us - self._started_us <= self._age_us // FILES_SHARE

    def _begin(self, now_us: int) -> None:
        self._close()
        make_folder(self._folder, exist_ok=True)
        self._started_us = now_us
        while True:
            try:
                self._fd = open_file(self._place(), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                break
            except FileExistsError:
                self._started_us += 1
        said = Head(self._uuid, self._id_prefix, os.getpid(), self._client, self._started_us)
        head = outcomes.file_head(msgspec.json.encode(said))
        write_all(self._fd, head, 0)
        self._at = len(head)
        self._remove_old(now_us)

    def _place(self) -> Path:
        return self._folder / f"{self._started_us:016}-{self._client}{SUFFIX}"

    def _remove_old(self, now_us: int) -> None:
        found = _files(self._folder)
        before_us = now_us - self._age_us - self._age_us // FILES_SHARE  # what is in a file is younger than its name
        for each in too_old(found, self._bytes - self._bytes // SLACK, before_us):
            rig.effect(rig.UNLINK, str(each.file))
            with contextlib.suppress(FileNotFoundError):
                each.file.unlink()
        self._unlooked = 0
        self._files = len(found)
        self._looked_us = now_us

    def tend(self) -> None:
        """What the background does now and then, when what was gathered is sealed."""
        self.write()
        now_us = self._clock.wall_us()
        if self.stopped or abs(now_us - self._looked_us) < LOOK_US or not self._writing.acquire(blocking=False):
            return
        try:
            self._remove_old(now_us)
        except OSError as error:
            self._stop(error)
        finally:
            self._writing.release()

    def end(self) -> None:
        """The last of it, by whoever is the last to use this client."""
        if self.stopped or not self._writing.acquire(timeout=END_S_MAX):
            return
        try:
            self._gathered.seal()
            self._write()
            self.drop()
        finally:
            self._writing.release()

    def drop(self) -> None:
        """Only close: in the child of a fork what is gathered is the parent's."""
        self.stopped = True
        self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Found(NamedTuple):
    """A file of a history."""

    started_us: int
    file: Path
    size_bytes: int


def too_old(found: list[Found], most_bytes: int, before_us: int) -> list[Found]:
    """Of all files, in the order in which they were begun, those to remove: begun before a time, and of the others the
    first, until what is left has no more bytes than it may.

    >>> files = [Found(at_us, Path(str(at_us)), 10) for at_us in (1, 2, 3, 4)]
    >>> [each.started_us for each in too_old(files, 20, 2)]
    [1, 2]
    """
    gone = [each for each in found if each.started_us < before_us]
    kept = found[len(gone) :]
    total = sum(each.size_bytes for each in kept)
    while kept and total > most_bytes:
        total -= kept[0].size_bytes
        gone.append(kept.pop(0))
    return gone


def _files(folder: Path) -> list[Found]:
    """In the order in which they were begun."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            started, _, rest = entry.name.partition("-")
            if started.isdecimal() and rest.endswith(SUFFIX):
                with contextlib.suppress(FileNotFoundError):  # somebody else removed it
                    found.append(Found(int(started), Path(entry.path), entry.stat().st_size))
    return sorted(found)


# ---------------------------------------------------------------- reading


class Outcome(msgspec.Struct, frozen=True):
    """What became of a message, or of one attempt at it. Times are in microseconds since 1970; 0: there is none."""

    id: str
    type: str | None
    key: str | None
    priority: int
    attempts: int
    enqueued_us: int
    deliver_us: int
    taken_us: int
    done_us: int
    owner: str
    result: str
    reason: str | None
    error: str | None


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a queue's history, the oldest first. ``NotAQueue`` and the like if there is no queue."""
    read_options(Path(path))
    return [each.file for each in _files(Path(path) / FOLDER)]


def read_blocks(
    file: Path, damage: outcomes.Damage, size_bytes: int | None = None
) -> Iterator[tuple[Head, memoryview, memoryview]]:
    """The blocks of one file, or of its first bytes, each with what the file says of itself. One that is gone meanwhile
    has none."""
    try:
        data = file.read_bytes()[:size_bytes]
    except FileNotFoundError:
        return
    found = outcomes.read_head(data)
    try:
        head = None if found is None else _head.decode(found[0])
    except msgspec.DecodeError:
        head = None
    if found is None or head is None:
        damage.torn_bytes = len(data)
        return
    for rows, heap in outcomes.blocks(data, found[1], damage):
        yield head, rows, heap


def read(path: str | os.PathLike[str], *, damage: outcomes.Damage | None = None) -> Iterator[Outcome]:
    """All outcomes that a queue's history has now, file by file. What its clients have not written yet, up to about a
    second of it, is not there; what is damaged is passed over, and counted in ``damage``.

    >>> import penstock
    >>> q = penstock.create(path, history_bytes=1 << 20)
    >>> id = q.put("hello", type="greeting")
    >>> q.get().ack()
    >>> q.close()
    >>> [(each.type, each.result, each.attempts) for each in penstock.outcomes(path)]
    [('greeting', 'acked', 1)]
    """
    counted = outcomes.Damage() if damage is None else damage
    for file in files_of(path):
        part = outcomes.Damage()
        for head, rows, heap in read_blocks(file, part):
            for words in outcomes.ROW.iter_unpack(rows):
                yield _outcome(head, words, heap)
        counted.blocks += part.blocks
        counted.torn_bytes += part.torn_bytes


def _outcome(head: Head, words: tuple[int, ...], heap: memoryview) -> Outcome:
    number, enqueued_us, deliver_us, taken_us, done_us, what, where = words
    said, text = texts_of(where, heap)
    meta = decode_meta(said)
    result = what >> outcomes.RESULT_SHIFT & 0xF
    owner, reason, error = told(result, text, head)
    return Outcome(
        id=meta.o or f"{head.id_prefix}{what & 0xFFFFFFFF:x}-{number:x}",
        type=meta.t,
        key=meta.k,
        priority=what >> outcomes.PRIORITY_SHIFT,
        attempts=what >> outcomes.ATTEMPTS_SHIFT & outcomes.ATTEMPTS_MOST,
        enqueued_us=enqueued_us,
        deliver_us=deliver_us,
        taken_us=taken_us,
        done_us=done_us,
        owner=owner,
        result=outcomes.RESULTS.get(result, "unknown"),
        reason=reason,
        error=error,
    )


def texts_of(where: int, heap: memoryview) -> tuple[bytes, bytes]:
    """The meta of a row, and its text."""
    at = where & 0xFFFFFFFF
    middle = at + (where >> outcomes.META_SHIFT & 0xFFFF)
    return bytes(heap[at:middle]), bytes(heap[middle : middle + (where >> outcomes.TEXT_SHIFT)])


def told(result: int, text: bytes, head: Head) -> tuple[str, str | None, str | None]:
    """Owner, reason and error. Of what was acknowledged the text is the receiver whose claim it was in."""
    owner = f"pid {head.pid}"
    if not text:
        return owner, None, None
    if result == outcomes.ACKED:
        return f"receiver {text.decode('utf-8', 'replace')}", None, None
    reason, separated, error = text.decode("utf-8", "replace").partition("\0")
    return owner, reason or None, error if separated else None


# ---------------------------------------------------------------- the end of the process

_open: weakref.WeakSet[History] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Queues that nobody has closed."""
    for history in list(_open):
        with contextlib.suppress(Exception):
            history.end()
