"""Owns having a queue to oneself: nobody has it open, and who opens it meanwhile waits. And what is done to a queue as
a whole in that time: another place, other habits, its end. Sizes are ``resizing.py``'s. Never looks at a message.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError, QueueExists, QueueInUse
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.directory import kernel_of, read_options, write_options
from penstock.store.files import CLIENTS, LOCK, QUEUE_JSON, ClientBytes, Lock, is_open, sync_directory
from penstock.store.identity import home_of
from penstock.store.options import Options


@contextlib.contextmanager
def locked(where: Path, busy_s: float) -> Iterator[ClientBytes]:
    """Between two turns: who has the queue open waits, and so does who opens it."""
    lock = Lock(where / LOCK, str(where), busy_s)
    try:
        with contextlib.closing(ClientBytes(where / CLIENTS)) as clients:
            lock.acquire()
            try:
                yield clients
            finally:
                lock.release()
    finally:
        lock.close()


def refuse_others(where: Path, options: Options, clients: ClientBytes) -> None:
    """``QueueInUse`` if anybody has it open. To be called with the lock."""
    living = [client for client in range(L.CLIENTS) if clients.alive(client)]
    if living:
        raise in_use(str(where), _pids(where, options, living))
    for file in (kernel_of(where, options), *(where / name for name, _ in options.data_files)):
        if file.exists() and is_open(file):
            raise QueueInUse(str(where), f"somebody reads {file}, such as a Spark job; try again when it has ended")


def _refuse_others_of_any(where: Path, clients: ClientBytes) -> None:
    """Likewise for one that may be damaged."""
    try:
        options = read_options(where)
    except PenstockError:
        if any(clients.alive(client) for client in range(L.CLIENTS)):
            raise QueueInUse(str(where), "a client has it open; end it first") from None
    else:
        refuse_others(where, options, clients)


def _pids(where: Path, options: Options, clients: list[int]) -> list[int]:
    def word(file: Any, index: int) -> int:
        file.seek(index * L.WORD_BYTES)
        return int.from_bytes(file.read(L.WORD_BYTES), "little")

    with open(kernel_of(where, options), "rb") as file:
        at = word(file, L.H_CLIENTS_AT)
        return [word(file, at + client * L.CLIENT_WORDS + L.C_PID) for client in clients]


def in_use(queue: str, pids: list[int]) -> QueueInUse:
    named = ", ".join(map(str, sorted(set(pids))[:10])) + (", ..." if len(set(pids)) > 10 else "")
    many = f"{len(pids)} clients have it" if len(pids) != 1 else "a client has it"
    what = f"{many} open ({'processes' if len(set(pids)) > 1 else 'process'} {named}); end them first"
    return QueueInUse(queue, what, pids=pids)


def change_habits(where: Path, changes: dict[str, Any], *, busy_s: float) -> None:
    """Other values for options that decide nothing about the files: fields of ``Options``. Those who open the queue
    from now on find them."""
    with locked(where, busy_s) as clients:
        options = read_options(where)
        new = msgspec.structs.replace(options, **changes)
        if new != options:
            refuse_others(where, options, clients)
            write_options(where, new)


def move_queue(where: Path, *, to: Path, busy_s: float) -> None:
    """Another name in the same folder. One step: a queue is at the old place or at the new one."""
    with locked(where, busy_s) as clients:
        _refuse_others_of_any(where, clients)
        _rename(where, to)


def remove_queue(where: Path, *, aside: Path, busy_s: float) -> None:
    """The end of a queue and all that is in it. It is decided by one step: from then on there is no queue of this name,
    and ``finish_removal`` completes what a kill leaves at ``aside``. One that is damaged goes as well."""
    try:
        with locked(where, busy_s) as clients:
            _refuse_others_of_any(where, clients)
            _rename(where, aside)
            finish_removal(aside)  # before who waits for the lock to open it can go on
    except FileNotFoundError:
        if not where.is_dir() or ((where / LOCK).exists() and (where / CLIENTS).exists()):
            raise
        _rename(where, aside)  # without these files nobody can have it open
        finish_removal(aside)


def finish_removal(aside: Path) -> None:
    """Delete the files of a queue that has lost its name; killed anywhere, it can be done again."""
    for folder in _folders_elsewhere(aside):
        _remove(folder)
    _remove(aside)


def _folders_elsewhere(aside: Path) -> list[Path]:
    """Folders on other disks that were made for this queue, and not for one that it is a copy of."""
    try:
        options = read_options(aside)
    except PenstockError:  # damaged, or gone already
        return []
    if options.home is None or list(home_of(aside)) != options.home:
        return []
    folders = {Path(name).parent for name, _ in options.data_files if os.path.isabs(name)}
    folders |= {Path(options.kernel_dir)} if options.kernel_dir else set()
    return sorted(folder for folder in folders if f"-{options.uuid}" in folder.name and folder.exists())


def _remove(folder: Path) -> None:
    """What says where the rest is goes last."""
    found = [Path(where) / name for where, _, names in os.walk(folder) for name in names]
    for file in sorted(found, key=lambda file: file == folder / QUEUE_JSON):
        rig.effect(rig.UNLINK, str(file))
        file.unlink(missing_ok=True)
    for where, _, _ in os.walk(folder, topdown=False):
        os.rmdir(where)
    sync_directory(folder.parent)


def _rename(where: Path, to: Path) -> None:
    if to.is_symlink() or to.exists():
        raise QueueExists(f"{to}: there is something here already")
    rig.effect(rig.RENAME, str(where))
    try:
        os.rename(where, to)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise QueueExists(f"{to}: there is something here already") from error
        raise
    sync_directory(to.parent)
