"""Owns repairing a queue directory that nobody has open: what is missing or cut off is made, then it is restored.

A dry run rehearses the same on copies of what would be made, so it finds what the repair finds. Knows how the parts
of a queue are put together; what becomes of each message is ``restore.py``'s.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Corrupt, Misuse, NotAQueue
from penstock.store import layout as L
from penstock.store.directory import (
    Short,
    absent_files,
    keep_damaged,
    kernel_of,
    lengthen,
    make_absent,
    make_file,
    read_options,
    short_files,
    write_options,
    write_word,
)
from penstock.store.files import CLIENTS, LOCK, QUEUE_JSON, ClientBytes, LocalFiles, Lock, is_open
from penstock.store.findings import Finding
from penstock.store.identity import identity_of
from penstock.store.options import Options
from penstock.store.rebuilding import rebuild
from penstock.store.recovery import check_files, due, held, reason_of
from penstock.store.resizing import CUT_SHORT, NEXT, finish, is_cut_short, sweep
from penstock.store.restore import Progress, Restore
from penstock.store.trust import IDENTITY


def restore_queue(
    path: str | os.PathLike[str],
    *,
    after_power_loss: bool = True,
    dry_run: bool = False,
    busy_s: float = 10.0,
    progress: Progress | None = None,
) -> list[Finding]:
    """Restore a queue that nobody has open; what was found wrong. With ``dry_run`` nothing is changed."""
    if dry_run and (cut := _cut_short(path)):
        return cut
    with _opened(Path(os.path.abspath(path)), dry_run=dry_run, busy_s=busy_s) as queue:
        restored = _restore(queue, after_power_loss or queue.incomplete, dry_run, progress)
        return queue.findings + restored


def repair_queue(
    path: str | os.PathLike[str], *, dry_run: bool = False, busy_s: float = 10.0, progress: Progress | None = None
) -> list[Finding]:
    """Check a queue and, if anything is wrong, restore it; what was found. Nobody else may have it open then.

    A record that cannot be read is set aside into ``damaged/``. With ``dry_run`` nothing is changed.
    """
    if dry_run and (cut := _cut_short(path)):
        return cut
    with _opened(Path(os.path.abspath(path)), dry_run=dry_run, busy_s=busy_s) as queue:
        wrong = [] if queue.incomplete else check_files(queue.files, queue.options, deep=True) or _due(queue.files)
        findings = queue.findings + wrong
        if not (wrong or queue.incomplete) or (dry_run and _living(queue.files.clients)):
            return findings
        known = {(finding.path, finding.offset, finding.what.partition(":")[0]) for finding in findings}
        # If the pages are not those that the last user left, restore sees to it that no more of them is believed.
        found = _restore(queue, queue.incomplete or not _is_noted(queue.files), dry_run, progress)
        return findings + [
            finding for finding in found if (finding.path, finding.offset, finding.what.partition(":")[0]) not in known
        ]


def _cut_short(path: str | os.PathLike[str]) -> list[Finding]:
    where = Path(os.path.abspath(path))
    return [Finding(str(where / NEXT), 0, CUT_SHORT)] if is_cut_short(where) else []


class Opened(NamedTuple):
    """A queue whose files are all there, or are stood in for."""

    files: LocalFiles
    options: Options
    findings: list[Finding]  # what was not there
    incomplete: bool  # of the kernel or the data something was not there


def _restore(queue: Opened, after_power_loss: bool, dry_run: bool, progress: Progress | None) -> list[Finding]:
    with held(queue.files):
        _refuse_clients(queue.files.clients, queue.files.path)
        with Restore(queue.files, queue.options, after_power_loss=after_power_loss) as work:
            work.read(progress)
            if not dry_run:
                work.write(rewrite=False)
            return work.findings.said


def _due(files: LocalFiles) -> list[Finding]:
    """Whether the next to open the queue would restore it, for whatever reason."""
    with held(files):
        reason = reason_of(files)
        return [] if reason is None else [due(files, reason)]


def _is_noted(files: LocalFiles) -> bool:
    """Whether the kernel says whose it is: if it does not, a power loss cannot be ruled out."""
    with memoryview(files.kernel) as data, data.cast("Q") as words:
        return any(words[word] for word in IDENTITY)


# ---------------------------------------------------------------- making what is not there


@contextlib.contextmanager
def _opened(where: Path, *, dry_run: bool, busy_s: float) -> Iterator[Opened]:
    if not dry_run:
        _finish_resize(where, busy_s)
    options, rebuilt = _options(where)
    short = short_files(where, options)
    absent = absent_files(where)
    for one in short:
        if one.found is None and one.path != kernel_of(where, options):
            raise NotAQueue(f"{where}: the queue is incomplete: {one.path} is missing, and only a backup can have it")
    findings = [Finding(str(where / QUEUE_JSON), 0, rebuilt)] if rebuilt else []
    findings += [_missing(file) for file in absent] + [_too_short(one) for one in short]
    with contextlib.ExitStack() as stack:
        stand_ins: dict[Path, Path] = {}
        if dry_run and (short or absent):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-dry-run-")))
            stand_ins = _rehearse(folder, where, options, short, absent)
        elif not dry_run and findings:
            _make(where, options, short, absent, busy_s, anew=rebuilt is not None)
        files = stack.enter_context(contextlib.closing(LocalFiles(where, options, busy_s=busy_s, stand_ins=stand_ins)))
        yield Opened(files, options, findings, any(one.found is None or one.found < one.wanted for one in short))


def _finish_resize(where: Path, busy_s: float) -> None:
    """One that was decided is completed before anything is measured by sizes; what one that was not has left goes."""
    if is_cut_short(where):
        for file in absent_files(where):
            if file.name in (LOCK, CLIENTS):
                make_absent(file)
        finish(where, busy_s)
    elif (where / LOCK).exists() and (where / CLIENTS).exists():
        sweep(where, busy_s)


def _options(where: Path) -> tuple[Options, str | None]:
    """The options of the queue; if they had to be made anew, how, in words."""
    try:
        return read_options(where), None
    except (Corrupt, NotAQueue) as damage:
        options, said = rebuild(where, damage)
        if not (where / QUEUE_JSON).exists():
            return options, f"it is missing: {said}"
        return options, f"damaged ({damage}), kept as {QUEUE_JSON}.damaged: {said}"


def _missing(file: Path) -> Finding:
    return Finding(str(file), 0, "it is missing: made anew, empty")


def _too_short(one: Short) -> Finding:
    if one.found is None:
        what = "it is missing: made anew from the records; messages that were acknowledged may be back"
        return Finding(str(one.path), 0, what)
    return Finding(str(one.path), one.found, f"expected a file of {one.wanted} bytes, found {one.found} bytes")


def _make(where: Path, options: Options, short: list[Short], absent: list[Path], busy_s: float, *, anew: bool) -> None:
    """Whoever has the queue open has files that are gone from the directory, and would go on with them."""
    if is_open(where / options.data_files[0][0]):
        raise Misuse(f"{where}: somebody has the queue open; a repair needs it alone")
    for file in absent:
        make_absent(file)
    with _alone(where, busy_s):
        if anew:
            keep_damaged(where / QUEUE_JSON)
            write_options(where, options)
        for one in short:
            if one.path == kernel_of(where, options):
                _make_kernel(one.path, options, one.found)
            else:
                lengthen(one.path, one.wanted)


def _make_kernel(file: Path, options: Options, found: int | None) -> None:
    """A kernel that says of itself that it was lost, at any moment: what is not there must not be taken for vacant."""
    if found is None:
        make_file(file, _header(options), options.kernel_bytes)
    else:
        if found < options.kernel_bytes - L.WORD_BYTES:
            write_word(file, L.H_REPAIRING, L.KERNEL_LOST)
        lengthen(file, options.kernel_bytes)


def _header(options: Options) -> bytes:
    words = [0] * L.HEADER_WORDS
    for word, value in options.regions().items():
        words[word] = value
    words[L.H_UUID], words[L.H_UUID + 1] = options.uuid_words
    words[L.H_FILES] = len(options.data_files)
    words[L.H_DATA_UNITS] = sum(size_bytes for _, size_bytes in options.data_files) // L.UNIT_BYTES
    words[L.H_REPAIRING] = L.KERNEL_LOST
    return b"".join(word.to_bytes(L.WORD_BYTES, "little") for word in words)


def _rehearse(folder: Path, where: Path, options: Options, short: list[Short], absent: list[Path]) -> dict[Path, Path]:
    """What a repair would make, in a folder that goes away."""
    stand_ins = {}
    for file in absent:
        stand_ins[file] = folder / file.relative_to(where)
        stand_ins[file].parent.mkdir(exist_ok=True)
        make_absent(stand_ins[file])
    for i, one in enumerate(short):
        stand_ins[one.path] = copy = folder / f"{i}.{one.path.name}"
        if one.found is not None:
            shutil.copyfile(one.path, copy)
        if one.path == kernel_of(where, options):
            _make_kernel(copy, options, one.found)
            if one.found is not None:
                _move_identity(one.path, copy)
        else:
            os.truncate(copy, one.wanted)
    return stand_ins


def _move_identity(source: Path, copy: Path) -> None:
    """A copy for a rehearsal is as much its own as its original is."""
    with open(source, "rb") as original, open(copy, "r+b") as file:
        for word, before, now in zip(IDENTITY, identity_of(original.fileno()), identity_of(file.fileno()), strict=True):
            file.seek(word * L.WORD_BYTES)
            if int.from_bytes(file.read(L.WORD_BYTES), "little") == before:
                file.seek(word * L.WORD_BYTES)
                file.write(now.to_bytes(L.WORD_BYTES, "little"))


# ---------------------------------------------------------------- nobody else


def _living(clients: ClientBytes) -> int:
    return sum(clients.alive(client) for client in range(L.CLIENTS))


def _refuse_clients(clients: ClientBytes, where: Path) -> None:
    alive = _living(clients)
    if alive:
        raise Misuse(f"{where}: {alive} clients have the queue open; a repair needs it alone")


@contextlib.contextmanager
def _alone(where: Path, busy_s: float) -> Iterator[None]:
    """The queue's lock, without the files that need be whole."""
    lock = Lock(where / LOCK, str(where), busy_s)
    try:
        with contextlib.closing(ClientBytes(where / CLIENTS)) as clients:
            try:
                lock.acquire()
                _refuse_clients(clients, where)
                yield
            finally:
                lock.release()
    finally:
        lock.close()
