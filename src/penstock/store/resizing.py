"""Owns giving a queue that nobody has open other sizes, or the newest layout: a new kernel is made beside the old one,
then takes its place. Slots and records never move, so all that is in them, and every link between them, stays as it is.
A queue that has no trees by type and key gets them.

A file, ``resize.json``, is what decides: before it is there the queue is the old one, and from then on whoever comes
next finishes (``finish``). Looks into records only for types and keys, and never decides what becomes of a message.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.errors import Misuse, PenstockError, QueueInUse
from penstock.store import layout as L
from penstock.store import rig
from penstock.store.alone import locked, refuse_others
from penstock.store.directory import allocate, kernel_of, lengthen, read_options, write_options
from penstock.store.files import (
    QUEUE_JSON,
    open_file,
    private_memory,
    sync_directory,
    sync_file,
    write_all,
)
from penstock.store.hashes import Hashes
from penstock.store.identity import identity_of
from penstock.store.kernel import Kernel
from penstock.store.options import Options, parse
from penstock.store.trust import IDENTITY
from penstock.store.words import Words

NEXT = "resize.json"
CHUNK_BYTES = 1 << 20  # of a kernel that is written at once
CUT_SHORT = "a resize or an upgrade was cut short; the next open or repair completes it"

Progress = Callable[[int, int], None]
Name = Callable[[int, int], str]  # of a message, by its slot and number

# What is carried over as it is: where a region starts, and how long it is in words. Its links are numbers of slots and
# not places in the file. The journal is empty. The slots are carried for themselves, since their number may change.
# A region that is added later, and whose contents do not depend on the number of slots, is one more line here.
CARRIED = (
    (L.H_STATS_AT, L.STATS_WORDS),
    (L.H_LISTS_AT, L.LISTS * L.LIST_WORDS),
    (L.H_CLIENTS_AT, L.CLIENTS * L.CLIENT_WORDS),
    (L.H_NAMES_AT, L.NAMES_BYTES // L.WORD_BYTES),
)
LIVE = (L.STATE_FILLING, L.STATE_WAITING, L.STATE_PENDING, L.STATE_CLAIMED)
AT_REST = (L.H_JOURNAL_COUNT, L.H_INCOMING, L.H_PUBLISHER, L.H_REPAIRING, L.H_SYNC_FAILED)


def outdated(words: memoryview) -> list[int]:
    """Header words in which a kernel is not as this version makes one of its size: what an upgrade is for."""
    remembered = words[L.H_REMEMBERED] or L.remembered_entries(words[L.H_SLOTS] - 1 - words[L.H_FILES])
    exclusive = bool(words[L.H_FEATURES] & L.FEATURE_EXCLUSIVE)
    newest = L.regions(words[L.H_SLOTS], remembered, exclusive=exclusive)
    return [word for word, value in newest.items() if words[word] != value]


def derive(kernel: Kernel, old: Old, new: Options) -> None:
    """Fill the regions of a new kernel that are neither carried over nor empty: the place for indexes that hold slots
    by hashes, whose tables are of another size now, and for what an older layout did not have, with its bit in
    ``H_FEATURES``. Stores are raw: nobody sees this kernel yet."""
    _carry_remembered(kernel, old)
    if old.words[L.H_TREES_AT]:
        _carry_trees(kernel, old)
    else:
        _plant_trees(kernel, old)


def _carry_trees(kernel: Kernel, old: Old) -> None:
    """The trees by type and key are made anew, with the hashes that there were: there are other buckets now. Lists, and
    who is held, stay as they are."""
    start = old.words[L.H_TREES_AT]
    for slot in _live(kernel, old):
        if kernel.is_classed(slot):
            at = start + slot * L.TREE_WORDS
            kernel.classes.classify(slot, old.words[at + L.X_TYPE], old.words[at + L.X_KEY])
            kernel.classes.join(slot)
            kernel.commit()


def _plant_trees(kernel: Kernel, old: Old) -> None:
    """There were none: what types and keys there are, only the records say. These stay as they are, without a flag that
    says it; slots get it. What cannot be read is left to whoever finds it damaged."""
    hashes = Hashes(old.options.signature)
    with Metas(old) as metas:
        for slot in _live(kernel, old):
            if kernel.state(slot) != L.STATE_FILLING and hashes.read(metas.read(slot, kernel.number(slot))):
                at = kernel.slots_at + slot * L.SLOT_WORDS + L.S_INFO
                kernel.note(at, kernel.field(slot, L.S_INFO) | L.FLAG_CLASSED << L.FLAGS_SHIFT)
                kernel.classes.classify(slot, hashes.type_hash, hashes.key_hash)
                kernel.classes.join(slot)
                kernel.commit()


def _live(kernel: Kernel, old: Old) -> Iterator[int]:
    for slot in range(old.files + 1, min(len(old.identity_words), kernel.slots)):
        if kernel.state(slot) in LIVE:
            yield slot


class Metas:
    """The metas of messages, from the data files, which are read as anybody may read them."""

    def __init__(self, old: Old) -> None:
        self._old = old
        self._files: list[tuple[int, int]] = []  # first unit behind it, and descriptor

    def __enter__(self) -> Metas:
        end = 0
        try:
            for name, size_bytes in self._old.options.data_files:
                end += size_bytes // L.UNIT_BYTES
                self._files.append((end, open_file(self._old.where / name, os.O_RDONLY)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for _end, fd in self._files:
            os.close(fd)

    def read(self, slot: int, number: int) -> bytes:
        """Nothing if there is no record of this message."""
        place = self._old.field(slot, L.S_PLACE)
        unit, size_bytes = place >> L.PLACE_SHIFT, (place & L.PLACE_MASK) * L.UNIT_BYTES
        start = 0
        for end, fd in self._files:
            if unit < end:
                size_bytes = min(size_bytes, L.RECORD_BYTES + L.META_BYTES_MAX)
                data = os.pread(fd, size_bytes, (unit - start) * L.UNIT_BYTES)
                break
            start = end
        else:
            return b""
        parts = L.RECORD.unpack_from(data) if len(data) >= L.RECORD_BYTES else None
        if parts is None or parts[:2] != (self._old.options.signature, number):
            return b""
        return data[L.RECORD_BYTES : L.RECORD_BYTES + parts[8]]


def _carry_remembered(kernel: Kernel, old: Old) -> None:
    """What was put is in a table of the same size, in a smaller one, or in none yet. A slot that is being filled names
    its entry by the word where that is; of a kernel without a table what is there means nothing."""
    moved: dict[int, int] = {}
    for entry in _entries(old.words[L.H_REMEMBERED_AT], old.words[L.H_REMEMBERED]):
        key = old.words[entry]
        if key:
            # One bucket becomes several, so that there is room in each.
            bucket = key & (kernel.remembered.buckets - 1)
            first = kernel.remembered.at + bucket * L.REMEMBERED_BUCKET * L.REMEMBERED_WORDS
            new = next(at for at in range(first, first + L.REMEMBERED_BUCKET) if kernel.get(at) == 0)
            for column in range(0, L.REMEMBERED_WORDS * L.REMEMBERED_BUCKET, L.REMEMBERED_BUCKET):
                kernel.note(new + column, old.words[entry + column])
            moved[entry] = new
    _settle_remembered(kernel, old)
    for slot in range(old.files + 1, min(len(old.identity_words), kernel.slots)):
        if kernel.state(slot) == L.STATE_FILLING:
            entry = kernel.field(slot, L.S_LANES)
            kernel.note(kernel.slots_at + slot * L.SLOT_WORDS + L.S_LANES, moved.get(entry, 0))


def _entries(at: int, count: int) -> Iterator[int]:
    """The first words of the entries of a table of what was put."""
    for bucket in range(at, at + count * L.REMEMBERED_WORDS, L.REMEMBERED_BUCKET * L.REMEMBERED_WORDS):
        yield from range(bucket, bucket + L.REMEMBERED_BUCKET)


def _settle_remembered(kernel: Kernel, old: Old) -> None:
    """Whoever published a message may have died before its entry said so. Its slot says so, which may be cut off."""
    words, remembered = old.identity_words, kernel.remembered
    for entry in _entries(remembered.at, remembered.buckets * L.REMEMBERED_BUCKET):
        if kernel.get(entry) and not remembered.is_settled(entry):
            slot = remembered.slot(entry)
            word = words[slot] if slot < len(words) else 0
            if word != kernel.word_of(slot, remembered.number(entry), L.STATE_FILLING):
                remembered.settle(entry)
                kernel.commit()


# ---------------------------------------------------------------- which sizes


def with_sizes(options: Options, *, slots: int | None, data_bytes: int | None) -> Options:
    """The options of the queue with these sizes; None leaves one as it is. Of several data files the last one changes:
    units are counted through all of them, so that what is in the others would be elsewhere."""
    slots = options.slots if slots is None else slots
    sizes = [size_bytes for _, size_bytes in options.data_files]
    if data_bytes is not None:
        fixed_bytes = sum(sizes[:-1])
        sizes[-1] = -(-(data_bytes - fixed_bytes) // L.PAGE_BYTES) * L.PAGE_BYTES
        if sizes[-1] < L.PAGE_BYTES:
            raise Misuse(
                f"data_bytes must be at least {fixed_bytes + L.PAGE_BYTES}: of {len(sizes)} data files only the last "
                f"one changes its size"
            )
    entries = max(options.dedup_entries, L.remembered_entries(slots))  # what this version gives every queue
    return msgspec.structs.replace(
        options,
        slots=slots,
        dedup_entries=entries,
        slots_most=max(options.slots, options.slots_most),
        data_bytes=sum(sizes),
        kernel_bytes=L.regions(slots + 1 + len(sizes), entries, exclusive=options.exclusive_keys)[L.H_KERNEL_BYTES],
        data_files=[(name, size) for (name, _), size in zip(options.data_files, sizes, strict=True)],
    )


class Old(NamedTuple):
    """The kernel that is to be replaced, read only."""

    words: memoryview
    options: Options
    where: Path

    @property
    def files(self) -> int:
        return self.words[L.H_FILES]

    @property
    def identity_words(self) -> list[int]:
        """Of every slot that was ever used, from slot 0 on."""
        at = self.words[L.H_SLOTS_AT]
        return self.words[at : at + self.words[L.H_FRESH] * L.SLOT_WORDS][L.S_WORD :: L.SLOT_WORDS].tolist()

    def field(self, slot: int, field: int) -> int:
        return self.words[self.words[L.H_SLOTS_AT] + slot * L.SLOT_WORDS + field]

    def chain(self, head: int) -> Iterator[int]:
        slot = self.words[head]
        while slot:
            yield slot
            slot = self.field(slot, L.S_CHAIN) & L.MASK32


def refuse_what_does_not_fit(old: Old, new: Options, name: Name, where: Path) -> None:
    """Shrinking cuts off slots and room: not if there is something in them."""
    table = new.slots + 1 + len(new.data_files)
    kept = {*old.chain(L.H_RETAINED), *old.chain(L.H_RETIRING)}
    words = old.identity_words
    used = [slot for slot in range(old.files + 1, len(words)) if words[slot] >> L.STATE_SHIFT & 0xF in LIVE]
    used = sorted({*used, *kept})
    if used and used[-1] >= table:
        beyond = sum(slot >= table for slot in used)
        what = name(used[-1], words[used[-1]] >> L.NUMBER_SHIFT)
        least = used[-1] - old.files
        raise _in_the_way(where, beyond, f"behind slot {table - 1}", what, f"at least {least} slots")
    ends = {slot: _end(old.field(slot, L.S_PLACE)) for slot in used}
    units = new.data_bytes // L.UNIT_BYTES
    beyond = sum(end > units for end in ends.values())
    if beyond:
        last = max(ends, key=lambda slot: ends[slot])
        least = -(-ends[last] * L.UNIT_BYTES // L.PAGE_BYTES) * L.PAGE_BYTES
        place = f"behind byte {units * L.UNIT_BYTES} of the data"
        what = name(last, words[last] >> L.NUMBER_SHIFT)
        raise _in_the_way(where, beyond, place, what, f"at least {least} data_bytes")
    stored = old.words[L.H_USED_UNITS] * L.UNIT_BYTES + old.words[L.H_SPILLED_BYTES]
    if new.data_bytes < min(stored, old.options.data_bytes):
        raise Misuse(
            f"{where}: {new.data_bytes} data_bytes are too few: records and bodies of their own have {stored} bytes"
        )


def _end(place: int) -> int:
    return (place >> L.PLACE_SHIFT) + (place & L.PLACE_MASK)


def _in_the_way(where: Path, count: int, place: str, last: str, least: str) -> Misuse:
    many, them = ("message is", "it") if count == 1 else ("messages are", "them")
    what = f"in the way: {count} {many} {place}, the last of them {last}"
    return Misuse(f"{where}: {what}; receive or cancel {them}, or give {least}")


# ---------------------------------------------------------------- the new kernel


def carry_over(old: Old, new: Options, advance: Callable[[int], None]) -> mmap.mmap:
    """The new kernel in private memory, whole but for the words that say on which storage it is."""
    files = len(new.data_files)
    image = private_memory(new.kernel_bytes)
    view = memoryview(image).cast("Q")
    header = new.regions()
    view[: L.HEADER_WORDS] = old.words[: L.HEADER_WORDS]
    for word, value in header.items():
        view[word] = value
    for at, size in CARRIED:
        if old.words[at] == 0:  # an older layout without this region: it begins empty
            continue
        view[view[at] : view[at] + size] = old.words[old.words[at] : old.words[at] + size]
    _carry_slots(old, view, advance)
    words = Words(image, "the new kernel")
    try:
        kernel = Kernel(words)
        _stack_vacant(old, kernel, min(old.options.slots_most + 1 + files, header[L.H_SLOTS]))
        kernel.ring.resize(new.data_bytes // L.UNIT_BYTES)
        words.raw(L.H_DATA_UNITS, new.data_bytes // L.UNIT_BYTES)
        derive(kernel, old, new)
        words.commit()
    finally:
        words.close()
        view.release()
    return image


def _carry_slots(old: Old, view: memoryview, advance: Callable[[int], None]) -> None:
    """Those that both have, some at a time: this is the most of the work."""
    piece = CHUNK_BYTES // L.WORD_BYTES
    end = min(old.words[L.H_SLOTS], view[L.H_SLOTS]) * L.SLOT_WORDS
    to, start = view[L.H_SLOTS_AT], old.words[L.H_SLOTS_AT]
    for at in range(0, end, piece):
        stop = min(at + piece, end)
        view[to + at : to + stop] = old.words[start + at : start + stop]
        advance((stop - at) * L.WORD_BYTES)


def _stack_vacant(old: Old, kernel: Kernel, once: int) -> None:
    """The stack of vacant slots, without those that are cut off and with those that are there again.

    A slot below ``once`` may have been in the table before it was made smaller, and there may be records of it: it gets
    the highest number that was given, so that no restore takes one of them for a message.
    """
    words, slots, fresh = kernel.words, kernel.slots, old.words[L.H_FRESH]
    if slots < fresh:
        words.raw(L.H_FRESH, slots)
        _chain(kernel, [slot for slot in old.chain(L.H_VACANT) if slot < slots], 0)
    elif once > max(fresh, old.words[L.H_SLOTS]):
        words.raw(L.H_FRESH, once)
        number = old.words[L.H_NUMBER_NEXT] - 1
        for slot in range(fresh, once):
            words.raw(kernel.slots_at + slot * L.SLOT_WORDS, kernel.word_of(slot, number, L.STATE_VACANT))
        _chain(kernel, list(range(fresh, once)), old.words[L.H_VACANT])


def _chain(kernel: Kernel, slots: list[int], rest: int) -> None:
    """A stack of these slots, on top of what there is."""
    for slot, below in zip(slots, [*slots[1:], rest], strict=False):  # none at all has no last one
        kernel.words.raw(kernel.slots_at + slot * L.SLOT_WORDS + L.S_CHAIN, below)
    kernel.words.raw(L.H_VACANT, slots[0] if slots else rest)


def _write_kernel(file: Path, image: mmap.mmap, advance: Callable[[int], None]) -> None:
    """Beside the old one, on disk before anybody can hear of it. What is zero is so in a new file."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)
    allocate(file, len(image), zero=False, progress=None)
    fd = open_file(file, os.O_RDWR)
    try:
        with memoryview(image) as data, data.cast("Q") as view:
            for word, value in zip(IDENTITY, identity_of(fd), strict=True):
                view[word] = value
        for at in range(0, len(image), CHUNK_BYTES):
            piece = image[at : at + CHUNK_BYTES]
            if any(piece):
                write_all(fd, piece, at)
            advance(len(piece))
        sync_file(fd)
    finally:
        os.close(fd)
    sync_directory(file.parent)


# ---------------------------------------------------------------- changing places


def change(
    where: Path, *, slots: int | None, data_bytes: int | None, name: Name, busy_s: float, progress: Progress | None
) -> Options | None:
    """Give the queue these sizes and this version's layout; its new options, or None if it has both already.

    Nobody may have it open, and the caller has seen to it that nothing is left half-done or to be restored.
    """
    with locked(where, busy_s) as clients:
        options = read_options(where)
        new = with_sizes(options, slots=slots, data_bytes=data_bytes)
        with _old_kernel(where, options) as old:
            refuse_others(where, options, clients)
            if not outdated(old.words) and (new.slots, new.data_bytes) == (options.slots, options.data_bytes):
                return None
            refuse_what_does_not_fit(old, new, name, where)
            grown = max(new.data_bytes - options.data_bytes, 0)
            meter = _Meter(progress, new.kernel_bytes + min(options.slots, new.slots) * L.SLOT_BYTES + grown)
            aside = _aside(where, new)
            try:
                _write_kernel(aside, carry_over(old, new, meter.advance), meter.advance)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
                raise
        write_options(where, new, NEXT)  # from here on it is the new one
        _switch(where, new, options, meter.advance)
        return new


def check(where: Path, *, slots: int | None, data_bytes: int | None, name: Name, busy_s: float) -> None:
    """``Misuse`` if ``change`` would refuse these sizes."""
    with locked(where, busy_s):
        options = read_options(where)
        new = with_sizes(options, slots=slots, data_bytes=data_bytes)
        with _old_kernel(where, options) as old:
            refuse_what_does_not_fit(old, new, name, where)


def is_cut_short(where: Path) -> bool:
    """Whether a change is decided and not complete. Who may not look is told so by whatever comes next."""
    return os.path.exists(where / NEXT)


def finish(where: Path, busy_s: float) -> None:
    """Complete a change that somebody was killed in. Usually there is none, which is one look."""
    if not is_cut_short(where):
        return
    with locked(where, busy_s):
        if is_cut_short(where):  # else another one was first
            new = parse((where / NEXT).read_bytes(), str(where), str(where / NEXT))
            _switch(where, new, read_options(where), lambda size_bytes: None)


def sweep(where: Path, busy_s: float) -> None:
    """Remove the kernel that one has left who was killed before it was decided."""
    try:
        aside = _aside(where, read_options(where))
    except PenstockError:  # to be repaired itself
        return
    if aside.exists():
        with locked(where, busy_s):
            if not is_cut_short(where):
                os.unlink(aside)


def _switch(where: Path, new: Options, before: Options, advance: Callable[[int], None]) -> None:
    """Data, kernel, ``queue.json``: each is the new one already if this was cut short behind it."""
    aside = _aside(where, new)
    file, size_bytes = where / new.data_files[-1][0], new.data_files[-1][1]
    if file.stat().st_size != size_bytes:
        try:
            lengthen(file, size_bytes, advance)
        except OSError:  # a full disk: back to what there was, which needs no room
            lengthen(file, before.data_files[-1][1])
            os.unlink(where / NEXT)
            sync_directory(where)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            raise
    else:
        _sync(file)  # whoever gave it this size may have been killed before that
    if aside.exists():
        _rename(aside, kernel_of(where, new))
    _rename(where / NEXT, where / QUEUE_JSON)


def _sync(file: Path) -> None:
    fd = open_file(file, os.O_RDONLY)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def _rename(source: Path, target: Path) -> None:
    rig.effect(rig.RENAME, str(source))
    os.rename(source, target)
    sync_directory(target.parent)


def _aside(where: Path, options: Options) -> Path:
    file = kernel_of(where, options)
    return file.with_name(f"{file.name}-next")


class _Meter:
    def __init__(self, progress: Progress | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def advance(self, size_bytes: int) -> None:
        self._done_bytes = min(self._done_bytes + size_bytes, self._total_bytes)
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes)


@contextlib.contextmanager
def _old_kernel(where: Path, options: Options) -> Iterator[Old]:
    fd = open_file(kernel_of(where, options), os.O_RDONLY)  # not for writing: we would be somebody who has it open
    try:
        with mmap.mmap(fd, options.kernel_bytes, access=mmap.ACCESS_READ) as mapping:
            view = memoryview(mapping).cast("Q")
            try:
                if any(view[word] for word in AT_REST) or identity_of(fd) != tuple(view[word] for word in IDENTITY):
                    raise QueueInUse(str(where), "somebody used it just now; try again")
                yield Old(view, options, where)
            finally:
                view.release()
    finally:
        os.close(fd)
