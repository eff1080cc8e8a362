"""The only door to the operating system: directories, mapped files, locks, futexes. Knows no slot and no message.

One class for each kind of storage; this is local disks. Nothing outside may assume that two hosts see one mapping.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import mmap
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.errors import Corrupt, NotAllowed, NotAQueue, PenstockError, QueueBusy
from penstock.store import layout as L
from penstock.store import rig, syscalls
from penstock.store.identity import home_of, identity_of
from penstock.store.options import Options
from penstock.store.record import Parts, crc32
from penstock.store.regions import Regions

QUEUE_JSON = "queue.json"
KERNEL = "kernel"
LOCK = "lock"
CLIENTS = "clients"
BODIES = "bodies"
NOTIFY = "notify"
WAKEUP = "wakeup"

CLOCK_REALTIME = time.CLOCK_REALTIME
CLOCK_BOOTTIME = time.CLOCK_BOOTTIME
SUM_CHUNK_BYTES = 1 << 20
SPINS_MAX = 32  # tries before a waiting client starts to sleep between tries: a lock is held for microseconds
PAUSE_S = 0.00005
PAUSE_MAX_S = 0.001


class Lock:
    """The queue's lock: a file that is never mapped, locked through a file description of our own.

    It belongs to the description, like those of ``ClientBytes``: a POSIX lock would be dropped when any descriptor of
    the file closes. Tried and retried rather than waited for, so that a deadline holds even when the holder is stopped.
    The caller holds the process's mutex as well, since threads share the description.
    """

    def __init__(self, path: Path, queue: str, busy_s: float) -> None:
        self._fd = open_file(path, os.O_RDWR)
        self._queue = queue
        self._busy_s = busy_s
        if not cython.compiled:  # a single C call: no interrupt can come after it was entered and before the unlock
            self.release = functools.partial(fcntl.flock, self._fd, fcntl.LOCK_UN)  # type: ignore[method-assign]

    def acquire(self) -> None:
        try:
            if rig.watching:
                rig.effect(rig.LOCK, self._fd)
            if not syscalls.try_lock_file(self._fd):
                self._wait()
        except OSError as error:
            name_file(error, self._fd)
            raise

    def acquire_at_once(self) -> None:
        """For whoever must not wait longer than others' turns take: ``QueueBusy`` after a few tries."""
        try:
            if rig.watching:
                rig.effect(rig.LOCK, self._fd)
            tries = 0
            while not syscalls.try_lock_file(self._fd):
                tries += 1
                if tries == SPINS_MAX:
                    raise QueueBusy(self._queue, waited_s=0)
                os.sched_yield()
        except OSError as error:
            name_file(error, self._fd)
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + self._busy_s
        tries = 0
        pause_s = PAUSE_S
        while not syscalls.try_lock_file(self._fd):
            tries += 1
            if tries < SPINS_MAX:
                os.sched_yield()  # lets other threads of ours run as well, as the sleep below does
                continue
            if time.monotonic() >= deadline:
                raise QueueBusy(self._queue, waited_s=self._busy_s, holder=self._holder())
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, PAUSE_MAX_S)

    def _holder(self) -> str:
        """Who holds it, for people, as far as the system tells."""
        inode = os.fstat(self._fd).st_ino
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path("/proc/locks").read_text().splitlines():
                words = line.split()
                if "FLOCK" in words and words[5].endswith(f":{inode}"):
                    state = Path(f"/proc/{int(words[4])}/stat").read_text().rpartition(")")[2].split()[0]
                    return f"process {words[4]}{' (stopped)' if state in 'Tt' else ''} holds it"
        return "its holder is not known"

    def release(self) -> None:
        """Also right when it is not held: a caller that was interrupted while acquiring need not know."""
        syscalls.unlock_file(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class ClientBytes:
    """One locked byte for each living client. Others test it through a second description: our own locks look free
    to the description that holds them."""

    def __init__(self, path: Path) -> None:
        self._own = open_file(path, os.O_RDWR)
        try:
            self._probe = open_file(path, os.O_RDWR)
        except BaseException:
            os.close(self._own)
            raise

    def take(self, client: int) -> bool:
        try:
            rig.effect(rig.LOCK, self._own, client)
            return syscalls.try_lock(self._own, client)
        except OSError as error:
            name_file(error, self._own)
            raise

    def leave(self, client: int) -> None:
        syscalls.unlock(self._own, client)

    def alive(self, client: int) -> bool:
        return syscalls.locked_by_another(self._probe, client)

    def close(self) -> None:
        os.close(self._own)
        os.close(self._probe)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write until it is all there or there is an error: a signal or a full disk may cut a write short."""
    try:
        if rig.watching:
            rig.effect(rig.WRITE, fd, offset, data)
        done = syscalls.write_at(fd, data, offset)
        while done < len(data):
            data = data[done:]
            offset += done
            done = syscalls.write_at(fd, data, offset)
    except OSError as error:
        name_file(error, fd)
        raise


def name_file(error: OSError, fd: int) -> None:
    """The system gives the error of a call on a descriptor without the name of the file: add it."""
    if error.filename is None and not isinstance(error, PenstockError):
        with contextlib.suppress(OSError):
            error.filename = os.readlink(f"/proc/self/fd/{fd}")


class LocalFiles:
    """The files of one queue on a local disk: mapped for reading, written by positioned writes, locked byte by byte."""

    def __init__(
        self,
        path: Path,
        options: Options,
        *,
        busy_s: float,
        stand_ins: dict[Path, Path] | None = None,
        regions: Regions | None = None,
    ) -> None:
        """``stand_ins``: for a rehearsal, other files in the place of some; messages to people name the true ones. With
        ``regions`` the data files are not mapped as a whole, but a few regions of them at a time."""
        self.path = path
        self.name = str(path)
        self._stand_ins = stand_ins or {}
        self._regions = regions
        self._mapped_end = 0  # units that are read straight from the first mapping
        self._data: list[tuple[int, int, int, mmap.mmap | None, str]] = []
        self._closers: list[Callable[[], None]] = []
        try:
            self._open(options, busy_s)
        except FileNotFoundError as error:
            self.close()
            raise NotAQueue(
                f"{path}: the queue is incomplete: {error.filename} is missing; run `penstock repair {path}`"
            ) from error
        except OSError as error:
            self.close()
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise NotAllowed(f"{path}: a queue must be readable and writable by its clients: {error}") from error
        except BaseException:
            self.close()
            raise

    def _open(self, options: Options, busy_s: float) -> None:
        if options.home is not None and list(home_of(self.path)) != options.home:
            raise NotAQueue(
                f"{self.path}: this is a copy of a queue that has files in other directories, and would share them "
                f"with the original; copy queues with `penstock backup`"
            )
        kernel_path = Path(options.kernel_dir or self.path) / KERNEL
        self.kernel_path = str(kernel_path)
        self._kernel_fd, self.kernel = self._map(kernel_path, options.kernel_bytes, mmap.PROT_READ | mmap.PROT_WRITE)
        start = 0
        for name, size_bytes in options.data_files:
            data_path = self.path / name
            mapping = None
            if self._regions is None:
                fd, mapping = self._map(data_path, size_bytes, mmap.PROT_READ)
            else:
                fd = self._open_whole(data_path, size_bytes)
            units = size_bytes // L.UNIT_BYTES
            self._data.append((start, start + units, fd, mapping, str(data_path)))
            start += units
        self.data_units = start
        self.lock = Lock(self._true(self.path / LOCK), self.name, busy_s)
        self._closers.append(self.lock.close)
        self.clients = ClientBytes(self._true(self.path / CLIENTS))
        self._closers.append(self.clients.close)
        # By descriptor, like all other files: a directory that is renamed while we have it open stays ours.
        self._bodies = open_file(self._true(self.path / BODIES), os.O_RDONLY | os.O_DIRECTORY)
        self._closers.append(lambda fd=self._bodies: os.close(fd))  # type: ignore[misc]
        self.wakeup_path = self.path / NOTIFY / WAKEUP
        if self._regions is not None:
            self._closers.append(self._regions.close)
        # Most queues have one data file, mapped as a whole: the way to it is short.
        _, self._first_end, self._first_fd, self._first_map, _ = self._data[0]
        if self._first_map is not None:
            self._mapped_end = self._first_end
            if cython.compiled:
                self._point(memoryview(self._first_map))

    def _true(self, path: Path) -> Path:
        return self._stand_ins.get(path, path)

    def _point(self, view: memoryview) -> None:
        self._first = cython.cast("const char*", cython.address(view[0]))

    def _map(self, path: Path, size_bytes: int, protection: int) -> tuple[int, mmap.mmap]:
        """The file's descriptor and its mapping."""
        fd = self._open_whole(path, size_bytes)
        mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, protection)
        self._closers.append(mapping.close)
        return fd, mapping

    def _open_whole(self, path: Path, size_bytes: int) -> int:
        fd = open_file(self._true(path), os.O_RDWR)
        self._closers.append(lambda: os.close(fd))
        found = os.fstat(fd).st_size
        if found != size_bytes:  # mapping a shorter file would turn a later read into a signal
            raise Corrupt(str(path), offset=found, expected=f"a file of {size_bytes} bytes", found=f"{found} bytes")
        return fd

    def close(self) -> None:
        self._first_end = self._mapped_end = 0  # nothing may be read through a mapping that is gone
        while self._closers:  # taken out first: nobody may close a number twice, it may be given anew
            with contextlib.suppress(BufferError):  # a mapping that a traceback still refers to goes with it
                self._closers.pop()()
        self._data.clear()

    # ------------------------------------------------------------ data files

    def write(self, unit: int, data: bytes) -> None:
        """Write bytes at a unit. They must not reach past the end of that unit's file, which the ring sees to."""
        if unit < self._first_end:
            write_all(self._first_fd, data, unit * L.UNIT_BYTES)
        else:
            start, _, fd, _, _ = self._file_of(unit)
            write_all(fd, data, (unit - start) * L.UNIT_BYTES)

    def read(self, unit: int, units: int) -> bytes:
        if unit + units <= self._mapped_end:
            if cython.compiled:
                return self._first[unit * L.UNIT_BYTES : (unit + units) * L.UNIT_BYTES]  # type: ignore[no-any-return]
            return self._first_map[unit * L.UNIT_BYTES : (unit + units) * L.UNIT_BYTES]  # type: ignore[index]
        start, end, fd, mapping, path = self._file_of(unit)
        if unit + units > end:
            raise Corrupt(path, offset=(unit - start) * L.UNIT_BYTES, expected="a record inside its file")
        if mapping is None:
            assert self._regions is not None
            offset, length = (unit - start) * L.UNIT_BYTES, units * L.UNIT_BYTES
            return self._regions.read(fd, (end - start) * L.UNIT_BYTES, offset, length)
        return mapping[(unit - start) * L.UNIT_BYTES : (unit - start + units) * L.UNIT_BYTES]

    def read_record(self, parts: Parts, unit: int, units: int, signature: int, number: int, slot: int) -> None:
        """Take the record at a unit apart, straight from the mapping where that is possible."""
        if cython.compiled and unit + units <= self._mapped_end:
            start = cython.cast("const unsigned char*", self._first) + unit * L.UNIT_BYTES
            parts.read(start, units * L.UNIT_BYTES, signature, number, slot, unit)
        else:
            parts.read_bytes(self.read(unit, units), signature, number, slot, unit)

    def file_end(self, unit: int) -> int:
        """The first unit behind the file that holds this one."""
        return self._first_end if unit < self._first_end else self._file_of(unit)[1]

    def place_of(self, unit: int) -> tuple[str, int]:
        """File and byte offset of a unit, for messages to people."""
        start, _, _, _, path = self._file_of(unit)
        return path, (unit - start) * L.UNIT_BYTES

    def mappings(self) -> list[tuple[int, int, mmap.mmap]]:
        """First unit, the unit behind the last, and the mapping of each data file. Also where they are not mapped as a
        whole: for as long as it takes whoever goes through all of the data."""
        found = []
        for start, end, fd, mapping, _ in self._data:
            if mapping is None:
                mapping = mmap.mmap(fd, (end - start) * L.UNIT_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
            found.append((start, end, mapping))
        return found

    def descriptors(self) -> list[int]:
        """Those of the data files."""
        return [fd for _, _, fd, _, _ in self._data]

    def sync_data(self) -> None:
        """Sync the data files. Until it returns, what was written to them may be lost with the power."""
        for _, _, fd, _, _ in self._data:
            sync_file(fd)

    def sync_kernel(self) -> None:
        """Sync the kernel: of each word, at least the value that it has now."""
        sync_file(self._kernel_fd)

    def identity(self) -> tuple[int, ...]:
        """What tells whether the kernel's pages in memory are those that its last user left: the six header words
        from ``H_BOOT_ID`` on. Another boot, another disk, a copied file, another mount: not these pages."""
        return identity_of(self._kernel_fd)

    def is_current(self) -> bool:
        """Whether the kernel that we have open is the one in its place: a resize puts another one there."""
        try:
            there = os.stat(self.kernel_path)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._kernel_fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _file_of(self, unit: int) -> tuple[int, int, int, mmap.mmap | None, str]:
        for file in self._data:
            if file[0] <= unit < file[1]:
                return file
        raise Corrupt(self.kernel_path, offset=0, expected=f"a place below unit {self.data_units}", found=str(unit))

    # ------------------------------------------------------------ bodies of their own

    def write_body(self, name: str, body: bytes, *, sync: bool) -> None:
        fd = self.create_body(name)
        try:
            write_all(fd, body, 0)
            if sync:
                sync_file(fd)
        finally:
            os.close(fd)
        if sync:
            self.sync_body_names()

    def create_body(self, name: str) -> int:
        """The descriptor of a new one, for writing."""
        rig.effect(rig.OPEN, self.body_path(name))
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=self._bodies)
        follow_folder(fd, os.fstat(self._bodies))
        return fd

    def sync_body_names(self) -> None:
        sync_file(self._bodies)

    def sync_bodies(self, names: list[str]) -> None:
        """Sync these bodies; what is not there is not, which whoever reads it will say."""
        for name in names:
            try:
                fd = self.open_body(name)
            except FileNotFoundError:
                continue
            try:
                sync_file(fd)
            finally:
                os.close(fd)
        self.sync_body_names()

    def read_body(self, name: str) -> bytes:
        with open(self.open_body(name), "rb") as file:
            return file.read()

    def open_body(self, name: str) -> int:
        """A descriptor for reading; its owner closes it."""
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._bodies)

    def body_bytes(self, name: str) -> int:
        return os.stat(name, dir_fd=self._bodies).st_size

    def remove_body(self, name: str) -> None:
        rig.effect(rig.UNLINK, self.body_path(name))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._bodies)

    def body_names(self) -> list[str]:
        return os.listdir(self._bodies)

    def sum_body(self, name: str) -> tuple[int, int]:
        """Length and checksum of a body, without having all of it in memory."""
        size = check = 0
        with open(self.body_path(name), "rb") as file:
            while data := file.read(SUM_CHUNK_BYTES):
                size += len(data)
                check = crc32(data, check)
        return size, check

    def set_aside(self, folder: str, name: str, data: bytes) -> None:
        """Keep bytes that could not be read as what they should be."""
        where = self._aside(folder)
        fd = open_file(where / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data, 0)
            sync_file(fd)
        finally:
            os.close(fd)
        sync_directory(where)

    def set_body_aside(self, folder: str, name: str) -> None:
        """Likewise for a body; nothing if there is none."""
        where = self._aside(folder)
        rig.effect(rig.RENAME, self.body_path(name))
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.body_path(name), where / f"{name}.body")
        sync_directory(where)

    def _aside(self, folder: str) -> Path:
        where = self.path / folder
        if not where.exists():
            make_folder(where)
            sync_directory(self.path)
        return where

    def body_path(self, name: str) -> str:
        return str(self.path / BODIES / name)


def body_name(number: int, slot: int) -> str:
    """File in ``bodies/``: by message number, with the slot, so that its message is found without a search."""
    return f"{number:012x}-{slot:x}"


def open_file(path: Path, flags: int) -> int:
    """A descriptor. A file that is made by it has the rights of its folder, whatever the umask of who makes it."""
    rig.effect(rig.OPEN, str(path))
    flags |= os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    try:
        fd = os.open(path, flags | os.O_EXCL, 0o666)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, 0o666)
    follow_folder(fd, os.stat(os.path.dirname(path) or "."))
    return fd


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """A folder inside one of a queue's, with its rights."""
    try:
        path.mkdir()
    except FileExistsError:
        if not exist_ok:
            raise
        return
    above = path.parent.stat()
    rights = stat.S_IMODE(path.stat().st_mode) & ~0o777 | above.st_mode & 0o777
    os.chmod(path, rights)
    if _gives_away(path.stat(), above):
        with contextlib.suppress(OSError):
            os.chown(path, above.st_uid, above.st_gid, follow_symlinks=False)


def follow_folder(fd: int, folder: os.stat_result) -> None:
    """Give a new file the rights of the folder that it is in, and its owner, if we are root: all clients of a queue can
    use it, or none but those who were meant to."""
    found = os.fstat(fd)
    rights = folder.st_mode & 0o666
    if stat.S_IMODE(found.st_mode) != rights:
        os.fchmod(fd, rights)
    if _gives_away(found, folder):
        with contextlib.suppress(OSError):  # root of a container, say, to whom that user does not exist
            os.fchown(fd, folder.st_uid, folder.st_gid)


def _gives_away(made: os.stat_result, folder: os.stat_result) -> bool:
    """Whether we are root in a queue of somebody else, who could not use what we make there."""
    return made.st_uid == 0 != folder.st_uid and os.geteuid() == 0


def is_open(path: Path) -> bool | None:
    """Whether anybody, in any process, has a file open for writing; None where the system does not say."""
    fd = open_file(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # whoever opens it meanwhile has us told: by SIGIO we would end
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)


def sync_file(fd: int) -> None:
    """Everything of the file that is needed to read it back; a directory too."""
    try:
        rig.effect(rig.SYNC, fd)
        syscalls.sync_data(fd)
    except OSError as error:
        name_file(error, fd)
        raise


def sync_directory(path: Path) -> None:
    fd = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def private_memory(size_bytes: int, *, touched: bool = False) -> mmap.mmap:
    """Zeroed memory of our own, in ordinary pages. Large ones would save faults, but on a virtual machine whose host
    takes free ones back they were seen to cost ten times as much. All of it is ``touched`` for those who fill it while
    others wait."""
    populate = mmap.MAP_POPULATE if touched else 0
    return mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | populate)


class Clock:
    """Wall time for deliveries, boot time (which no one sets) for leases."""

    def wall_us(self) -> int:
        return syscalls.clock_us(CLOCK_REALTIME)

    def boot_us(self) -> int:
        return syscalls.clock_us(CLOCK_BOOTTIME)
