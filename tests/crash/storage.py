"""A disk that loses power: what of a queue's files is there afterwards, for every moment of a recorded run.

``Disk`` listens at the hook of ``store/rig.py`` and keeps one log of all that happens to the queue's files, in order:
words stored into the mapped kernel, writes, syncs (begun and done), names that come and go in ``bodies/``. It changes
nothing. ``image`` then makes the files as a power loss at any place of the log could leave them: what was synced is
there; of the rest an arbitrary part. A sector of 512 bytes has its own prefix of the writes that touched it,
independent of all others, so writes are reordered and records torn; in the mapped kernel every line of 64 bytes has
its own prefix of the stores, so that a page is torn between any two of them. A word of 8 bytes is never torn.

Knows nothing of messages.
"""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.store import layout as L
from penstock.store import rig
from penstock.store.directory import read_options
from penstock.store.files import BODIES, KERNEL, QUEUE_JSON
from tests.snapshot import overwrite

SECTOR_BYTES = 512
LINE_BYTES = 64

# How much of what was not synced a power loss leaves.
NOTHING = "nothing"
EVERYTHING = "everything"
KERNEL_ONLY = "only the kernel"
DATA_ONLY = "only the data"
MOMENT = "a moment"
SECTORS = "sectors"
MODES = (NOTHING, EVERYTHING, KERNEL_ONLY, DATA_ONLY, MOMENT, SECTORS)

# Chances that a sector has all of its writes, or none of them; else a prefix.
BIASES = ((0.45, 0.45), (0.8, 0.1), (0.1, 0.8), (0.05, 0.05), (0.95, 0.0), (0.3, 0.0))

# Events of the log
WROTE = 0  # file, offset, bytes
SYNCED = 1  # file, place in the log where the sync began
NAMED = 2  # name in bodies/, file or None

Event = tuple[int, Any, Any, Any]


class Image:
    """The files of a queue as found after a power loss."""

    def __init__(self, files: dict[str, bytearray], bodies: dict[str, bytes]) -> None:
        self.files = files
        self.bodies = bodies

    def reboot(self, kernel: str, rng: random.Random) -> None:
        """Another boot of the same machine finds them."""
        words = memoryview(self.files[kernel]).cast("Q")
        if words[L.H_BOOT_ID] or words[L.H_BOOT_ID + 1]:
            words[L.H_BOOT_ID] ^= rng.getrandbits(63) + 1
        words.release()

    def write(self, root: Path) -> None:
        """Put them in place of the files that are there."""
        for path, data in self.files.items():
            overwrite(path, data)
        folder = root / BODIES
        for name in os.listdir(folder):
            os.unlink(folder / name)
        for name, body in self.bodies.items():
            (folder / name).write_bytes(body)


class Disk:
    """Watches the files of one queue; an observer for ``rig.observe``."""

    def __init__(self, path: Path) -> None:
        self.root = Path(os.path.realpath(path))
        options = read_options(self.root)
        self.kernel = str(Path(options.kernel_dir or self.root) / KERNEL)
        self.data = [str(self.root / name) for name, _ in options.data_files]
        self.folder = str(self.root / BODIES)
        self._before = {
            name: Path(name).read_bytes() for name in (self.kernel, *self.data, str(self.root / QUEUE_JSON))
        }
        self._bodies_before: dict[str, str] = {}
        for name in os.listdir(self.folder):
            file = os.path.join(self.folder, name)
            self._bodies_before[name] = file
            self._before[file] = Path(file).read_bytes()
        self._names = dict(self._bodies_before)  # as they are now; a file is known by its path and when it was made
        self.log: list[Event] = []
        self._named: set[str] = set()  # names that ever were in bodies/
        self.between: Callable[[str, str], None] | None = None  # before an effect: may do something else, or raise
        self._stored: tuple[int, int] | None = None
        self._syncing: tuple[str, int] | None = None
        with open(self.kernel, "rb") as file:  # type: ignore[assignment]
            self._mapping = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)  # type: ignore[attr-defined]
        self._words = memoryview(self._mapping).cast("Q")

    def close(self) -> None:
        self._words.release()
        self._mapping.close()

    def __enter__(self) -> Disk:
        rig.observe(self)
        return self

    def __exit__(self, *_: object) -> None:
        rig.observe(None)
        self.now()

    # ------------------------------------------------------------ listening

    def now(self) -> int:
        """The place in the log where we are. What was announced has happened when this is called."""
        if self._stored is not None:
            index, value = self._stored
            self._stored = None
            if self._words[index] == value:  # else it went into a private copy, which has the kernel's name too
                self.log.append((WROTE, self.kernel, index * L.WORD_BYTES, value))
        elif self._syncing is not None:
            file, begun = self._syncing
            self._syncing = None
            self.log.append((SYNCED, file, begun, None))
        return len(self.log)

    def store(self, path: str, index: int, value: int) -> None:
        self.now()
        if path == self.kernel:
            self._stored = (index, value & L.MASK64)

    def effect(self, kind: str, target: int | str, offset: int, data: bytes) -> None:
        begun = self.now()
        if kind == rig.LOCK and self.between is not None:
            self.between(kind, self.folder)
        if kind not in (rig.OPEN, rig.WRITE, rig.SYNC, rig.UNLINK, rig.RENAME):
            return
        path = target if isinstance(target, str) else os.readlink(f"/proc/self/fd/{target}")
        folder, name = os.path.split(path)
        is_body = folder == self.folder
        if not is_body and path not in self._before and path != self.folder:
            return
        if self.between is not None:
            self.between(kind, path)
            self.now()
        if kind == rig.SYNC:
            self._syncing = (self._names.get(name, "") if is_body else path, begun)
        elif kind == rig.WRITE:
            self.log.append((WROTE, self._names[name] if is_body else path, offset, bytes(data)))
        elif is_body and kind == rig.OPEN and name not in self._names:
            self._names[name] = f"{path}@{len(self.log)}"
            self._named.add(name)
            self.log.append((NAMED, name, self._names[name], None))
        elif is_body and kind in (rig.UNLINK, rig.RENAME) and self._names.pop(name, None) is not None:
            self.log.append((NAMED, name, None, None))

    def had_body(self, name: str) -> bool:
        """Whether there ever was such a file in ``bodies/``."""
        return name in self._named

    def turning_points(self) -> list[int]:
        """Places just after a write to a file or the end of a sync: more depends on these than on others."""
        return [
            place + 1
            for place, (kind, file, _, _) in enumerate(self.log)
            if kind == SYNCED or (kind == WROTE and file != self.kernel)
        ]

    def rewind(self, at: int) -> None:
        """Make the files what they were at a place of the log, and go on from there: all since never happened."""
        image = self.image(random.Random(0), at, EVERYTHING)
        del self.log[at:]
        self._names = dict(self._bodies_before)
        self._named.clear()
        for kind, name, path, _ in self.log:
            if kind == NAMED:
                self._named.add(name)
                _rename(self._names, name, path)
        image.write(self.root)

    def bypassed(self) -> list[str]:
        """Files that are not what the log says: somebody wrote to them past the hook."""
        image = self.image(random.Random(0), self.now(), EVERYTHING)
        wrong = [path for path, data in image.files.items() if Path(path).read_bytes() != data]
        here = {name: Path(self.folder, name).read_bytes() for name in os.listdir(self.folder)}
        return wrong if here == image.bodies else [*wrong, self.folder]

    # ------------------------------------------------------------ the power is lost

    def image(self, rng: random.Random, at: int, mode: str) -> Image:
        """The files as a power loss before ``log[at]`` leaves them."""
        synced: dict[str, int] = {}
        for event in self.log[:at]:
            if event[0] == SYNCED:
                synced[event[1]] = max(synced.get(event[1], 0), event[2])
        files = {path: bytearray(data) for path, data in self._before.items()}
        loose: dict[str, list[tuple[int, int, Any]]] = {}
        names = dict(self._bodies_before)
        loose_names: dict[str, list[tuple[int, str | None]]] = {}
        names_synced = synced.get(self.folder, 0)
        for place, event in enumerate(self.log[:at]):
            kind, what, where, data = event
            if kind == WROTE:
                if place < synced.get(what, 0):
                    _apply(files.setdefault(what, bytearray()), where, data)
                else:
                    loose.setdefault(what, []).append((place, where, data))
            elif kind == NAMED:
                if place < names_synced:
                    _rename(names, what, where)
                else:
                    loose_names.setdefault(what, []).append((place, where))
        keep = _Keeper(rng, at, mode)
        for path, writes in loose.items():
            file = files.setdefault(path, bytearray())
            for where, data in keep.writes(writes, len(file), is_kernel=path == self.kernel):
                _apply(file, where, data)
        for name, changes in loose_names.items():
            for where in keep.names(changes):
                _rename(names, name, where)
        bodies = {name: bytes(files.get(path, b"")) for name, path in names.items()}
        return Image({path: files[path] for path in (self.kernel, *self.data)}, bodies)


def _rename(names: dict[str, str], name: str, path: str | None) -> None:
    if path is None:
        names.pop(name, None)
    else:
        names[name] = path


def _apply(file: bytearray, offset: int, data: Any) -> None:
    if isinstance(data, int):
        file[offset : offset + L.WORD_BYTES] = data.to_bytes(L.WORD_BYTES, "little")
        return
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data


class _Keeper:
    """Decides what of the writes that were not synced is on the disk."""

    def __init__(self, rng: random.Random, at: int, mode: str) -> None:
        self._rng = rng
        self._mode = mode
        self._moment = rng.randint(0, at) if mode == MOMENT else at
        self._all, self._none = rng.choice(BIASES)
        self._torn = rng.random() < 0.3  # sectors written out in the middle of a copy: a line of 64 bytes is whole

    def writes(
        self, writes: list[tuple[int, int, Any]], synced_bytes: int, *, is_kernel: bool
    ) -> Iterator[tuple[int, Any]]:
        if self._mode == NOTHING or self._mode == (DATA_ONLY if is_kernel else KERNEL_ONLY):
            return
        if self._mode == SECTORS:
            yield from self._some(writes, synced_bytes, LINE_BYTES if is_kernel or self._torn else SECTOR_BYTES)
            return
        for place, where, data in writes:
            if place < self._moment:
                yield where, data

    def _some(self, writes: list[tuple[int, int, Any]], synced_bytes: int, grain: int) -> Iterator[tuple[int, Any]]:
        pieces: dict[int, list[tuple[int, Any]]] = {}
        for _, where, data in writes:
            if isinstance(data, int):
                pieces.setdefault(where // grain, []).append((where, data))
                continue
            at = 0
            while at < len(data):
                step = min(grain - (where + at) % grain, len(data) - at)
                pieces.setdefault((where + at) // grain, []).append((where + at, data[at : at + step]))
                at += step
        for piece in pieces.values():
            yield from piece[: self._count(len(piece))]

    def _count(self, n: int) -> int:
        chance = self._rng.random()
        if chance < self._all:
            return n
        return 0 if chance < self._all + self._none else self._rng.randint(0, n)

    def names(self, changes: list[tuple[int, str | None]]) -> Iterator[str | None]:
        if self._mode in (NOTHING, KERNEL_ONLY):
            return
        count = self._count(len(changes)) if self._mode == SECTORS else len(changes)
        for place, path in changes[:count]:
            if place < self._moment:
                yield path
