"""``penstock doctor``: does this machine have what a queue needs? Tries things out; changes nothing that stays."""

from __future__ import annotations

import ctypes
import importlib.metadata
import mmap
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

import penstock
from penstock.cli.exits import NO_QUEUE, NOTHING, OK, Failure, line_of
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, examples
from penstock.cli.output import console, say_json, table
from penstock.cli.values import readable_bytes
from penstock.store.directory import read_options
from penstock.store.files import ClientBytes
from penstock.store.waking import Futex, futex_available
from penstock.timequeue.making import DATA_BYTES

EXAMPLES = examples("penstock doctor", "penstock doctor orders", "penstock doctor /mnt/disk2 --json")

NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "ocfs2", "gfs2", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "drvfs", "davfs", "ncpfs",
}  # fmt: skip
MEMORY = {"tmpfs", "ramfs", "devtmpfs"}
FILES_MIN = 256  # an open queue takes eight descriptors


class Check(msgspec.Struct):
    name: str
    status: str  # ok, warn or fail
    value: str
    hint: str = ""


def doctor(
    queue: Annotated[Path | None, typer.Argument(metavar="QUEUE", help="A queue, or a folder for one.")] = None,
    json: Json = False,
) -> int:
    """Check this machine, and the file system of a queue or folder (else this one). Exit code 1 if something fails."""
    place = queue or Path()
    if not place.is_dir():
        raise Failure(f"{place}: {'not a folder' if place.exists() else 'there is nothing here'}", NO_QUEUE)
    found = [*machine(), *spark(), *storage(place)]
    if (place / "queue.json").exists():
        found += inside(place)
    failed = any(check.status == "fail" for check in found)
    if json:
        say_json({"path": os.path.abspath(place), "ok": not failed, "checks": msgspec.to_builtins(found)})
    else:
        rows = table("", "what", "value", "", whole=("", "what"))
        rows.show_header = False
        for check in found:
            rows.add_row(check.status, check.name, check.value, check.hint)
        console().print(rows)
    return NOTHING if failed else OK


# ---------------------------------------------------------------- the machine


def machine() -> Iterator[Check]:
    version = platform.python_version()
    yield _check(
        "python", sys.version_info >= (3, 11), f"{platform.python_implementation()} {version}", "3.11 or later"
    )
    yield Check("penstock", "ok", penstock.__version__)
    core = "compiled" if penstock.compiled else "interpreted"
    yield _check("core", penstock.compiled, core, "works, but several times slower than compiled", otherwise="warn")
    linux = sys.platform == "linux"
    yield _check(
        "system", linux, f"{platform.system()} {platform.release()} {platform.machine()}", "only Linux for now"
    )
    yield _futex()
    yield _inotify()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < FILES_MIN
    yield _check("open files", not few, "unlimited" if soft < 0 else str(soft), "few; see ulimit -n", otherwise="warn")


def _check(name: str, good: bool, value: str, hint: str, *, otherwise: str = "fail") -> Check:
    return Check(name, "ok", value) if good else Check(name, otherwise, value, hint)


def _futex() -> Check:
    """A word that differs ends the wait at once, one that does not lets it time out: that is all a queue relies on."""
    if not futex_available():
        return Check("futex", "fail", "unknown", f"not known for {platform.machine()}")
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        futex = Futex(memory, 0)
        try:
            works = futex.wait(1, 1.0) and not futex.wait(0, 0.001)
        finally:
            futex.close()
    return _check("futex", works, "works" if works else "does not work", "receivers could not be woken")


def _inotify() -> Check:
    try:
        fd = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_CLOEXEC)
    except AttributeError:
        fd = -1
    if fd >= 0:
        os.close(fd)
    hint = "not used on local file systems; see fs.inotify.max_user_instances"
    return _check("inotify", fd >= 0, "works" if fd >= 0 else "not available", hint, otherwise="warn")


# ---------------------------------------------------------------- for Spark


def spark() -> Iterator[Check]:
    """Which Spark and which Java, if Spark is wanted at all."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        yield Check("spark", "ok", "not installed", "only needed for Spark: pip install 'penstock[spark]'")
        return
    yield Check("spark", "ok", f"pyspark {version}")
    from penstock.spark import java  # here: it runs Java to ask it for its version

    try:
        found = java.find()
    except java.NoJava as error:
        yield Check("java", "warn", "; ".join(error.reasons) or "none", java.REMEDY)
    else:
        yield Check("java", "ok", f"Java {found.version} by {found.found_by}: {found.home}")


# ---------------------------------------------------------------- where the queue is


def storage(place: Path) -> Iterator[Check]:
    yield file_system("file system", place)
    yield _locks(place)
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        yield Check("free space", "fail", "unknown", line_of(error))
        return
    hint = f"a queue of the default size needs {readable_bytes(DATA_BYTES)}"
    yield _check("free space", free >= DATA_BYTES, readable_bytes(free), hint, otherwise="warn")


def file_system(name: str, place: Path) -> Check:
    try:
        kind = kind_of(place.resolve(), Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    except OSError as error:
        return Check(name, "warn", "unknown", line_of(error))
    return verdict(name, kind)


def verdict(name: str, kind: str) -> Check:
    if kind in NETWORK or kind.startswith("fuse"):
        return Check(name, "warn", kind, "not a local file system: only local ones are supported now")
    if kind in MEMORY:
        return Check(name, "warn", kind, "in memory: everything is lost when the machine restarts")
    return Check(name, "ok", kind)


def kind_of(place: Path, mounts: str) -> str:
    """The type of the file system that holds a path; of mounts on one another, the last counts.

    >>> kind_of(Path("/mnt/a/b"), "1 0 8:1 / / rw - ext4 /dev/a rw\\n2 1 0:9 / /mnt/a rw shared:1 - nfs4 host:/x rw")
    'nfs4'
    """
    best, found = -1, "unknown"
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")[0]
        if len(fields) < 5:
            continue
        point = Path(fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), kind
    return found


def _locks(place: Path) -> Check:
    """A lock through one open file description is seen through another, and is gone after it."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".penstock-doctor-", dir=place) as file:
            probe = ClientBytes(Path(file.name))
            try:
                free = not probe.alive(0)
                works = free and probe.take(0) and probe.alive(0)
                probe.leave(0)
                works = works and not probe.alive(0)
            finally:
                probe.close()
    except OSError as error:
        return Check("locks", "fail", "not tried", line_of(error))
    return _check("locks", works, "work" if works else "do not work", "open-file-description locks are needed")


def inside(place: Path) -> Iterator[Check]:
    """A queue: can it be opened, and are its outlying parts on local disks too?"""
    try:
        with open_queue(place, busy_s=1.0) as q:
            stats = q.stats()
    except (penstock.PenstockError, OSError) as error:
        yield Check("queue", "fail", "cannot be opened", line_of(error))
        return
    held = f"{stats.pending} pending, {stats.claimed} claimed"
    yield Check("queue", "ok", f"{stats.waiting} waiting, {held}, {len(stats.clients) - 1} other clients")
    for folder in outlying(place):
        yield file_system(f"file system of {folder}", folder)


def outlying(place: Path) -> list[Path]:
    """The directories outside of its own that a queue keeps files in."""
    options = read_options(place)
    folders = [Path(name).parent for name, _ in options.data_files if os.path.isabs(name)]
    if options.kernel_dir:
        folders.append(Path(options.kernel_dir))
    return sorted(set(folders))
