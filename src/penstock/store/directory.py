"""Part of the door to the operating system: the directory of a queue, made, described and completed."""

from __future__ import annotations

import contextlib
import errno
import glob
import mmap
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.errors import NotAllowed, NotAQueue, QueueExists, QueueNotFound
from penstock.store import layout as L
from penstock.store import rig, syscalls
from penstock.store.files import (
    BODIES,
    CLIENTS,
    KERNEL,
    LOCK,
    NOTIFY,
    QUEUE_JSON,
    WAKEUP,
    LocalFiles,
    make_folder,
    name_file,
    open_file,
    sync_directory,
    sync_file,
    write_all,
)
from penstock.store.identity import home_of, identity_of
from penstock.store.options import Options, encode, parse

ZERO_CHUNK_BYTES = 1 << 16  # larger ones make large folios in the page cache: a small write then costs 2 µs, not 0.8
UNFINISHED_S = 60.0  # a creator needs no time to get from making a directory to locking the file in it


def read_options(path: Path) -> Options:
    """What ``queue.json`` says, or the error that explains why this is not a queue that can be opened."""
    try:
        text = (path / QUEUE_JSON).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not path.exists():
            raise QueueNotFound(f"{path}: there is no queue here; make one with `penstock create {path}`") from None
        if (path / KERNEL).exists():
            raise NotAQueue(
                f"{path}: the queue is incomplete: {path / QUEUE_JSON} is missing; run `penstock repair {path}`"
            ) from None
        if (path / NOTIFY).exists():
            raise NotAQueue(
                f"{path}: a macro queue, which has no messages of its own; open it with "
                f"penstock.MacroQueue({str(path)!r}), or by its name with a manager of {path.parent}"
            ) from None
        raise NotAQueue(f"{path}: not a queue: it has no {QUEUE_JSON}") from None
    except OSError as error:
        raise NotAllowed(f"{path}: {QUEUE_JSON} cannot be read: {error}") from error
    return parse(text, str(path), str(path / QUEUE_JSON))


def write_options(path: Path, options: Options, name: str = QUEUE_JSON) -> None:
    """Replace ``queue.json``: whoever reads it, whenever power is lost, finds the old one or the new one."""
    replace_file(path / name, encode(options))


def replace_file(file: Path, data: bytes) -> None:
    """Whoever reads it, whenever power is lost, finds the old bytes or the new ones."""
    aside = file.with_name(f"{file.name}.new")
    write_new(aside, data)
    rig.effect(rig.RENAME, str(aside))
    os.rename(aside, file)
    sync_directory(file.parent)


class Short(NamedTuple):
    """A file that is not there (``found`` is None), was cut off, or has something behind its end."""

    path: Path
    found: int | None
    wanted: int


def kernel_of(path: Path, options: Options) -> Path:
    return Path(options.kernel_dir or path) / KERNEL


def short_files(path: Path, options: Options) -> list[Short]:
    """Of kernel and data files, those that have not the size they were made with."""
    wanted = [(kernel_of(path, options), options.kernel_bytes)]
    wanted += [(path / name, size_bytes) for name, size_bytes in options.data_files]
    sizes = [(file, file.stat().st_size if file.exists() else None, size_bytes) for file, size_bytes in wanted]
    return [Short(*one) for one in sizes if one[1] != one[2]]


def absent_files(path: Path) -> list[Path]:
    """Of all that is empty in a new queue, what is not there."""
    return [path / name for name in (LOCK, CLIENTS, BODIES, NOTIFY, f"{NOTIFY}/{WAKEUP}") if not (path / name).exists()]


def make_absent(path: Path) -> None:
    """An empty file or directory of a queue, as a creator makes it. Whoever is first makes it."""
    if path.name in (BODIES, NOTIFY):
        make_folder(path, exist_ok=True)
    else:
        os.close(open_file(path, os.O_RDWR | os.O_CREAT))
    sync_directory(path.parent)


def lengthen(file: Path, size_bytes: int, progress: Callable[[int], None] | None = None) -> None:
    """Give a file its size again: with zeros, or without what is behind its end."""
    fd = open_file(file, os.O_RDWR)
    try:
        found = os.fstat(fd).st_size
        os.ftruncate(fd, size_bytes)
        for at in range(found, size_bytes, ZERO_CHUNK_BYTES):
            write_all(fd, bytes(min(ZERO_CHUNK_BYTES, size_bytes - at)), at)
            if progress:
                progress(min(ZERO_CHUNK_BYTES, size_bytes - at))
        sync_file(fd)
    finally:
        os.close(fd)


def write_word(file: Path, word: int, value: int) -> None:
    fd = open_file(file, os.O_RDWR)
    try:
        write_all(fd, value.to_bytes(L.WORD_BYTES, "little"), word * L.WORD_BYTES)
        sync_file(fd)
    finally:
        os.close(fd)


def keep_damaged(file: Path) -> None:
    """A copy of a file that is about to be replaced, as ``<name>.damaged``."""
    if not file.exists():
        return
    fd = open_file(file.with_name(f"{file.name}.damaged"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, file.read_bytes(), 0)
        sync_file(fd)
    finally:
        os.close(fd)
    sync_directory(file.parent)


def make_file(file: Path, data: bytes, size_bytes: int) -> None:
    """A new file with these bytes and then zeros: there whole or not at all."""
    aside = file.with_name(f"{file.name}.new")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside)
    allocate(aside, size_bytes, zero=False, progress=None)
    fd = open_file(aside, os.O_RDWR)
    try:
        write_all(fd, data, 0)
        sync_file(fd)
    finally:
        os.close(fd)
    rig.effect(rig.RENAME, str(aside))
    os.rename(aside, file)
    sync_directory(file.parent)


def create_directory(
    path: Path,
    options: Options,
    initialise: Callable[[mmap.mmap, tuple[int, ...]], None],
    *,
    data_dirs: list[Path],
    file_bytes: list[int],
    progress: Callable[[int], None] | None = None,
    fill: Callable[[LocalFiles], None] | None = None,
    mode: int | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Make the directory aside and rename it into place: a queue is there whole or not at all, and one creator wins.

    ``fill`` gets the files while they have no name yet, and syncs what it writes to them. ``mode`` is that of all
    files, None: as the umask has it. ``beside`` are further files that are there from the start.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise QueueExists(f"{path}: there is something here already; penstock.open opens a queue")
    aside = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    made: list[Path] = []
    making = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep_unfinished(path)
        os.mkdir(aside)
        made.append(aside)
        _give_rights(aside, mode)
        making = open_file(aside / LOCK, os.O_RDWR | os.O_CREAT)  # locked for as long as we live and make
        syscalls.try_lock_file(making)
        for name in (BODIES, NOTIFY, "sync"):
            make_folder(aside / name)
        for file in (CLIENTS, f"{NOTIFY}/{WAKEUP}"):
            os.close(open_file(aside / file, os.O_RDWR | os.O_CREAT))
        names = []
        for i, size_bytes in enumerate(file_bytes):
            if data_dirs:
                folder = data_dirs[i].resolve() / f"{path.name}-{options.uuid}"
                folder.mkdir(parents=True)
                made.append(folder)
                _give_rights(folder, mode)
                file_path = folder / f"data.{i}"
            else:
                file_path = aside / f"data.{i}"
            allocate(file_path, size_bytes, zero=True, progress=progress)
            names.append((str(file_path) if data_dirs else file_path.name, size_bytes))
        kernel_folder = aside
        if options.kernel_dir:
            kernel_folder = Path(options.kernel_dir).resolve() / f"{path.name}-{options.uuid}-kernel"
            kernel_folder.mkdir(parents=True)
            made.append(kernel_folder)
            _give_rights(kernel_folder, mode)
            options.kernel_dir = str(kernel_folder)
        allocate(kernel_folder / KERNEL, options.kernel_bytes, zero=False, progress=None)
        kernel_path = kernel_folder / KERNEL
        with open(kernel_path, "r+b") as kernel, mmap.mmap(kernel.fileno(), options.kernel_bytes) as mapping:
            initialise(mapping, identity_of(kernel.fileno()))
            sync_file(kernel.fileno())
        options.data_files = names
        if data_dirs or options.kernel_dir:
            options.home = list(home_of(aside))
        if fill is not None:
            files = LocalFiles(aside, options, busy_s=0.0)
            try:
                fill(files)
            finally:
                files.close()
        for name, data in {**(beside or {}), QUEUE_JSON: encode(options)}.items():
            write_new(aside / name, data)
        sync_directory(aside)
        try:
            rig.effect(rig.RENAME, str(aside))
            os.rename(aside, path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise QueueExists(f"{path}: there is something here already; penstock.open opens a queue") from error
            raise
        made.clear()
        sync_directory(path.parent)
    except OSError as error:
        if isinstance(error, QueueExists) or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise NotAllowed(f"{path}: a queue cannot be made here: {error}") from error
    finally:
        if making >= 0:
            os.close(making)
        for folder in made:
            remove_tree(folder)


def create_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """A directory that has no messages of its own, but these files and those that a queue has for locking and waking:
    there whole or not at all."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise QueueExists(f"{path}: there is something here already")
    aside = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    _sweep_unfinished(path)
    os.mkdir(aside)
    making = open_file(aside / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        syscalls.try_lock_file(making)  # for as long as we live and make
        make_folder(aside / NOTIFY)
        for name in (CLIENTS, f"{NOTIFY}/{WAKEUP}"):
            os.close(open_file(aside / name, os.O_RDWR | os.O_CREAT))
        for name, data in files.items():
            write_new(aside / name, data)
        sync_directory(aside)
        rig.effect(rig.RENAME, str(aside))
        os.rename(aside, path)
    except OSError as error:
        remove_tree(aside)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise QueueExists(f"{path}: there is something here already") from error
        raise
    finally:
        os.close(making)
    sync_directory(path.parent)


def _give_rights(folder: Path, mode: int | None) -> None:
    """Of a queue's folder: what is made in it follows. Who may read may also look for names in it."""
    if mode is not None:
        os.chmod(folder, stat.S_IMODE(folder.stat().st_mode) & ~0o777 | mode | (mode & 0o444) >> 2)


def mode_of(path: Path) -> int:
    """The rights of a queue's files, which are those of its folder."""
    return path.stat().st_mode & 0o666


def write_new(file: Path, data: bytes) -> None:
    fd = open_file(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, data, 0)
        sync_file(fd)
    finally:
        os.close(fd)


def _sweep_unfinished(path: Path) -> None:
    """Remove what killed creators of this queue left: nobody holds the lock in it, and a minute has passed."""
    for aside in path.parent.glob(f".{glob.escape(path.name)}.????????"):
        with contextlib.suppress(OSError):
            if time.time() - aside.stat().st_mtime < UNFINISHED_S:
                continue
            fd = os.open(aside / LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                if syscalls.try_lock_file(fd):
                    remove_tree(aside)
            finally:
                os.close(fd)


def remove_tree(path: Path) -> None:
    for folder, _, files in os.walk(path, topdown=False):
        for file in files:
            os.unlink(os.path.join(folder, file))
        os.rmdir(folder)


def allocate(path: Path, size_bytes: int, *, zero: bool, progress: Callable[[int], None] | None) -> None:
    """Create a file at its full size. Zero-filled, the first sync of a place need not write metadata as well."""
    fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        try:
            rig.effect(rig.ALLOCATE, fd)
            os.posix_fallocate(fd, 0, max(size_bytes, 1))
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                name_file(error, fd)
                raise
            os.ftruncate(fd, size_bytes)
        if zero:
            chunk = bytes(ZERO_CHUNK_BYTES)
            for at in range(0, size_bytes, ZERO_CHUNK_BYTES):
                write_all(fd, chunk[: size_bytes - at], at)
                if progress:
                    progress(min(size_bytes - at, ZERO_CHUNK_BYTES))
        sync_file(fd)
    finally:
        os.close(fd)
