"""Owns consistent copies of a queue in use: backups, and exports that can be imported. Never changes what it copies.

A copy begins with a picture of the index, taken under the lock, and goes on without it: a record stays where it is as
long as its message lives. What was removed meanwhile may have been overwritten while it was read; so a second look,
under the lock again, decides what is left out. What is in a copy was in the queue at the start, and was still there
when it had been copied.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, BinaryIO, Literal

import msgspec

from penstock.codec import CODEC_BYTES, CODEC_JSON, CODEC_STR, decode_body, decode_meta
from penstock.errors import Corrupt, ImportStopped, Misuse, PenstockError, QueueClosed
from penstock.message import to_datetime
from penstock.store import layout as L
from penstock.store import record
from penstock.store.directory import create_directory
from penstock.store.files import LocalFiles, body_name, private_memory
from penstock.store.options import Options
from penstock.store.picture import LIVE, Picture, make_kernel
from penstock.store.recovery import Finding
from penstock.store.words import Words
from penstock.timequeue.clients import TOMBSTONE, Client
from penstock.timequeue.opening import create
from penstock.timequeue.puts import Entry, entry
from penstock.timequeue.timequeue import BUSY_S, TimeQueue, queue_path

EXPORT_FORMAT = 1
CODECS = {CODEC_BYTES: "bytes", CODEC_STR: "str", CODEC_JSON: "json"}

LOOKED_AGAIN_MAX = 256  # messages that an export reads between two turns at the lock
LOOKED_AGAIN_BYTES = 4 << 20  # and how much of them it keeps in memory
IMPORTED_AT_ONCE_MAX = 500  # all or nothing
IMPORTED_BYTES = 8 << 20  # a batch ends early when its bodies are larger together


# ---------------------------------------------------------------- reading what lives


class Copied(msgspec.Struct):
    """A message out of a picture, with what its record says; ``fault`` if that is not its record."""

    slot: int
    number: int
    unit: int
    deliver_us: int
    info: int
    pending: bool
    enqueued_us: int = 0
    batch: int = 1
    index: int = 0
    meta: bytes = b""
    body: bytes = b""
    spilled: bytes | None = None
    fault: str | None = None

    @property
    def data(self) -> bytes:
        return self.body if self.spilled is None else self.spilled


def take_picture(client: Client) -> Picture:
    """The kernel at one moment. The memory for it is there before the lock is taken: copying the kernel of a million
    slots takes 20 ms then, and five times as long otherwise."""
    kernel = client.files.kernel
    image = private_memory(len(kernel), touched=True)
    client.turn(image.__setitem__, slice(0, len(kernel)), kernel)
    return Picture(image, client.files.kernel_path)


def _copy(client: Client, picture: Picture, slot: int) -> Copied:
    """Copy a message out and check the copy. Without the lock: what it finds counts only if the message is still there
    afterwards."""
    unit, units = picture.place(slot)
    copied = Copied(
        slot,
        picture.number(slot),
        unit,
        picture.field(slot, L.S_DELIVER_US),
        picture.info(slot),
        picture.state(slot) == L.STATE_PENDING,
    )
    if client.closed:
        raise QueueClosed(f"{client.name}: this queue object was closed while it was copied")
    try:
        data = client.files.read(unit, units)
    except Corrupt as error:
        copied.fault = str(error)
        return copied
    parts = record.Parts()
    parts.read_bytes(data, client.signature, copied.number, slot, unit)
    copied.fault = parts.fault
    if parts.fault is None:
        head = L.RECORD.unpack_from(data)
        copied.enqueued_us, copied.batch, copied.index = parts.enqueued_us, head[5], head[6]
        copied.meta, copied.body = parts.meta, parts.body
        _check_parts(client.files, copied, parts, units)
    return copied


def _check_parts(files: LocalFiles, copied: Copied, parts: record.Parts, units: int) -> None:
    wanted = L.units(len(parts.meta) + len(parts.body))
    ready = copied.info >> L.FLAGS_SHIFT & L.FLAG_READY
    if units != wanted:
        copied.fault = f"{wanted} units, where its slot says {units}"
    elif parts.flags & L.FLAG_SPILLED:
        copied.spilled, copied.fault = _read_body(files, copied)
    # What a release has changed since is in the slot; all else is in the record, which is checked.
    flags = parts.flags & ~L.FLAG_READY | ready
    attempts = copied.info >> L.ATTEMPTS_SHIFT << L.ATTEMPTS_SHIFT
    copied.info = attempts | parts.priority | parts.codec << L.CODEC_SHIFT | flags << L.FLAGS_SHIFT


def _read_body(files: LocalFiles, copied: Copied) -> tuple[bytes | None, str | None]:
    name = body_name(copied.number, copied.slot)
    length, check = L.SPILL.unpack(copied.body)
    try:
        body = files.read_body(name)
    except FileNotFoundError:
        return None, f"no file {files.body_path(name)}"
    if len(body) != length or record.crc32(body) != check:
        return None, f"a damaged file {files.body_path(name)}"
    return body, None


def _finding(files: LocalFiles, copied: Copied) -> Finding:
    try:
        path, offset = files.place_of(copied.unit)
    except Corrupt as error:
        path, offset = error.path, error.offset
    return Finding(path, offset, f"message {copied.number}: {copied.fault}")


# ---------------------------------------------------------------- backup


class Backup(msgspec.Struct, frozen=True):
    """What became of a backup. ``gone`` were removed while it was made; ``findings`` are left out as damaged."""

    path: str
    uuid: str
    messages: int
    pending: int
    used_bytes: int
    spilled_bytes: int
    gone: int
    findings: list[Finding]


def backup(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    new_identity: bool = False,
    busy_s: float = BUSY_S,
    progress: Callable[[int, int], None] | None = None,
) -> Backup:
    """Make a queue at ``target`` of all that waits or is with a receiver in the queue at ``path``, which may be in use.

    The messages keep number, delivery time, priority, type, key, headers and attempts; all of them wait in the copy. A
    backup has the identity of its original, which it replaces when that is lost: the same UUID and message ids. Do not
    use both. With ``new_identity`` it is a queue of its own, and its messages have ids of their own. ``progress`` is
    told the bytes that are done and all there are.

    >>> import penstock
    >>> q = penstock.create(path)
    >>> id = q.put("hello")
    >>> penstock.backup(path, path.with_name("copy")).messages
    1
    >>> with penstock.open(path.with_name("copy")) as other:
    ...     other.get(block=False).id == id
    True
    """
    where = queue_path(target)
    with TimeQueue(path, busy_s=busy_s) as queue:
        client = queue._mine()
        options = _options_of_copy(client, new_identity)
        copier = _Copier(client, options, progress)
        file_bytes = [size for _, size in client.options.data_files]
        create_directory(
            where,
            options,
            lambda mapping, storage: None,
            data_dirs=[],
            file_bytes=file_bytes,
            progress=copier.advance,
            fill=copier.fill,
        )
        return copier.summary(str(where))


def _options_of_copy(client: Client, new_identity: bool) -> Options:
    """The same sizes and habits. Data files and kernel are in the copy's own directory."""
    options = msgspec.structs.replace(client.options, kernel_dir=None, data_files=[], home=None)
    if new_identity:
        options.uuid = str(uuid.uuid4())
        options.secret = secrets.token_hex(8)  # or records of one could be mistaken for the other's
    return options


class _Copier:
    """Fills the files of one backup."""

    def __init__(self, client: Client, options: Options, progress: Callable[[int, int], None] | None) -> None:
        self._client = client
        self._options = options
        self._signature = options.signature
        self._progress = progress
        self._total_bytes = client.files.data_units * L.UNIT_BYTES
        self._total_bytes += client.kernel.get(L.H_USED_UNITS) * L.UNIT_BYTES + client.kernel.get(L.H_SPILLED_BYTES)
        self._done_bytes = 0
        self._kept: dict[int, int] = {}  # slot and bytes of the spilled body
        self._faults: list[Copied] = []
        self._gone = self._pending = self._used_units = 0

    def advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(min(self._done_bytes, self._total_bytes), self._total_bytes)

    def fill(self, files: LocalFiles) -> None:
        start = take_picture(self._client)
        for slot in sorted(start.live(), key=start.place):  # as they lie on the disk
            self._copy(files, start, slot)
        end = take_picture(self._client)
        self._drop_gone(files, start, end)
        files.sync_bodies()  # only now: the less time between the two looks, the less is gone in the second
        files.sync_data()
        self._make_kernel(files, start, end)

    def _copy(self, files: LocalFiles, start: Picture, slot: int) -> None:
        copied = _copy(self._client, start, slot)
        if copied.fault is None and not start.is_whole(slot):
            copied.fault = f"the identity word of slot {slot} is damaged"
        if copied.fault is not None:
            self._faults.append(copied)
            return
        if copied.spilled is not None:
            files.write_body(body_name(copied.number, slot), copied.spilled, sync=False)
        data = self._record(copied)
        files.write(copied.unit, data)
        self._kept[slot] = len(copied.spilled or b"")
        self.advance(L.units(len(data) - L.RECORD_BYTES) * L.UNIT_BYTES + len(copied.spilled or b""))

    def _record(self, copied: Copied) -> bytes:
        """The same bytes as in the original, but for what a release has changed, and the secret of a new identity."""
        return record.build(
            self._signature,
            copied.number,
            copied.enqueued_us,
            copied.deliver_us,
            copied.slot,
            copied.batch,
            copied.index,
            copied.info,
            copied.meta,
            copied.body,
            record.crc32(copied.body, record.crc32(copied.meta)),
            copied.unit,
        )

    def _drop_gone(self, files: LocalFiles, start: Picture, end: Picture) -> None:
        for slot in [slot for slot in self._kept if not end.has(slot, start.number(slot))]:
            files.write(start.place(slot)[0], TOMBSTONE)
            if self._kept.pop(slot):
                files.remove_body(body_name(start.number(slot), slot))
            self._gone += 1
        there = [copied for copied in self._faults if end.has(copied.slot, copied.number)]
        self._gone += len(self._faults) - len(there)
        self._faults = there

    def _make_kernel(self, files: LocalFiles, start: Picture, end: Picture) -> None:
        units = [size // L.UNIT_BYTES for _, size in self._options.data_files]
        header = L.regions(self._options.slots + 1 + len(units))
        header[L.H_UUID], header[L.H_UUID + 1] = self._options.uuid_words
        kept = list(self._kept)
        self._pending = sum(start.state(slot) == L.STATE_PENDING for slot in kept)
        self._used_units = sum(start.place(slot)[1] for slot in kept)
        words = Words(files.kernel, files.kernel_path)
        try:
            make_kernel(words, header, units, start=start, end=end, kept=kept, spilled_bytes=sum(self._kept.values()))
        finally:
            words.close()
        files.sync_kernel()

    def summary(self, path: str) -> Backup:
        return Backup(
            path=path,
            uuid=self._options.uuid,
            messages=len(self._kept),
            pending=self._pending,
            used_bytes=self._used_units * L.UNIT_BYTES,
            spilled_bytes=sum(self._kept.values()),
            gone=self._gone,
            findings=[_finding(self._client.files, copied) for copied in self._faults],
        )


# ---------------------------------------------------------------- export


class Export(Iterator[dict[str, Any]]):
    """The messages of a queue as JSON objects, in the order in which they were put.

    ``total`` were there when it began, ``messages`` have come, ``gone`` were removed meanwhile and do not come.
    """

    def __init__(self, queue: TimeQueue, *, state: str = "all", findings: list[Finding] | None = None) -> None:
        states = {"waiting": (L.STATE_WAITING,), "pending": (L.STATE_PENDING,), "all": LIVE}.get(state)
        if states is None:
            raise Misuse(f"state must be waiting, pending or all, not {state!r}")
        self._queue = queue
        self._client = queue._mine()
        self._findings = findings
        self._picture = take_picture(self._client)
        self._slots = self._picture.live(states)
        self.started_us = self._client.clock.wall_us()
        self.total = len(self._slots)
        self.messages = self.gone = self.damaged = 0
        self._source = self._run()

    def __next__(self) -> dict[str, Any]:
        found = next(self._source)
        self.messages += 1
        return found

    def header(self) -> dict[str, Any]:
        """The first line of an export file: what was exported, and the options that make a queue like it."""
        options = self._client.options
        return {
            "penstock_export": EXPORT_FORMAT,
            "queue": self._queue.name,
            "uuid": options.uuid,
            "exported_at": to_datetime(self.started_us).isoformat(),
            "options": {name: getattr(options, name) for name in SourceOptions.__struct_fields__},
        }

    def lines(self) -> Iterator[bytes]:
        """The lines of an export file. The last has the count, so that a file that was cut short is noticed."""
        yield msgspec.json.encode(self.header()) + b"\n"
        for found in self:
            yield msgspec.json.encode(found) + b"\n"
        yield msgspec.json.encode({"messages": self.messages}) + b"\n"

    def _run(self) -> Iterator[dict[str, Any]]:
        batch: list[Copied] = []
        size_bytes = 0
        for slot in self._slots:
            copied = _copy(self._client, self._picture, slot)
            batch.append(copied)
            size_bytes += len(copied.data)
            if len(batch) >= LOOKED_AGAIN_MAX or size_bytes >= LOOKED_AGAIN_BYTES:
                yield from self._still_there(batch)
                batch, size_bytes = [], 0
        yield from self._still_there(batch)

    def _still_there(self, batch: list[Copied]) -> Iterator[dict[str, Any]]:
        there = self._client.turn(self._look_again, batch)
        self.gone += len(batch) - len(there)
        for copied in there:
            if copied.fault is None:
                yield self._describe(copied)
                continue
            finding = _finding(self._client.files, copied)
            if self._findings is None:
                raise Corrupt(finding.path, offset=finding.offset, expected="a whole record", found=finding.what)
            self.damaged += 1
            self._findings.append(finding)

    def _look_again(self, batch: list[Copied]) -> list[Copied]:
        kernel = self._client.kernel
        return [
            copied
            for copied in batch
            if kernel.number(copied.slot) == copied.number and kernel.state(copied.slot) in LIVE
        ]

    def _describe(self, copied: Copied) -> dict[str, Any]:
        meta = decode_meta(copied.meta)
        codec = copied.info >> L.CODEC_SHIFT & 0xF
        ready = copied.info >> L.FLAGS_SHIFT & L.FLAG_READY
        return {
            "id": self._queue.message_id(copied.slot, copied.number),
            "number": copied.number,
            "state": "pending" if copied.pending else "waiting",
            "enqueued_at_us": copied.enqueued_us,
            "deliver_at_us": None if ready else copied.deliver_us,
            "priority": copied.info & 0xF,
            "type": meta.t,
            "key": meta.k,
            "headers": meta.h or {},
            "attempts": copied.info >> L.ATTEMPTS_SHIFT,
            "codec": CODECS.get(codec, str(codec)),
            "body": base64.b64encode(copied.data).decode(),
        }


def export_messages(queue: TimeQueue, *, state: str = "all", findings: list[Finding] | None = None) -> Export:
    """The messages of a queue as JSON objects, for a file that ``import_messages`` reads; the queue may be in use.

    "waiting", "pending" or "all": those that were so when this was called, in the order in which they were put. Those
    that are removed before they were copied are left out. A damaged one raises ``Corrupt``; with a list for
    ``findings`` it is noted there and left out. ``lines()`` of what is returned gives the lines of a whole file.

    >>> import penstock
    >>> q = penstock.create(path)
    >>> id = q.put("hello", priority=3)
    >>> [(m["id"] == id, m["priority"], m["codec"], m["body"]) for m in penstock.export_messages(q)]
    [(True, 3, 'str', 'aGVsbG8=')]
    """
    return Export(queue, state=state, findings=findings)


# ---------------------------------------------------------------- import


class SourceOptions(msgspec.Struct, frozen=True):
    """Of the queue that was exported: what makes one like it."""

    slots: int
    data_bytes: int
    spill_bytes: int
    lease_s: float
    durability: str
    notify: Literal["futex", "file"]
    index_sync_ms: int = 10_000


class Header(msgspec.Struct, frozen=True):
    """The first line of an export."""

    penstock_export: int
    queue: str
    uuid: str
    exported_at: str
    options: SourceOptions | None = None


class _Line(msgspec.Struct):
    """A message of an export: what of it can be put. The rest tells people where it came from."""

    codec: Literal["bytes", "str", "json"]
    body: bytes
    deliver_at_us: Annotated[int, msgspec.Meta(ge=1, lt=L.DELIVER_US_MAX)] | None
    priority: Annotated[int, msgspec.Meta(ge=0, lt=L.PRIORITIES)]
    type: str | None
    key: str | None
    headers: dict[str, str] | None


class _Trailer(msgspec.Struct):
    """The last line of an export."""

    messages: Annotated[int, msgspec.Meta(ge=0)]


_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(_Line)
_trailer = msgspec.json.Decoder(_Trailer)
_CODEC_OF = {name: codec for codec, name in CODECS.items()}
_TRAILER_BYTES_MAX = 256  # no message has so short a line


class Source:
    """The lines of an export, taken apart and checked."""

    def __init__(self, lines: Iterable[bytes | str]) -> None:
        self._lines = iter(lines)
        self._line = 1  # its number, as editors count
        try:
            self.header = _header.decode(next(self._lines, b""))
        except msgspec.DecodeError:  # bytes that are not UTF-8 too
            raise Misuse("line 1: this is not an export of Penstock: its header is not there") from None
        if self.header.penstock_export != EXPORT_FORMAT:
            raise Misuse(
                f"line 1: an export of format {self.header.penstock_export}; this version reads format {EXPORT_FORMAT}"
            )

    def create(self, path: str | os.PathLike[str]) -> TimeQueue:
        """A new queue with the options of the one that was exported."""
        options = self.header.options
        if options is None:
            raise Misuse("the export does not say what queue to make: its header has no options")
        return create(
            path,
            slots=options.slots,
            data_bytes=options.data_bytes,
            spill_bytes=options.spill_bytes,
            lease=options.lease_s,
            durability=options.durability,
            notify=options.notify,
            index_sync_ms=options.index_sync_ms,
        )

    def batches(self, *, skip: int, most: int, most_bytes: int) -> Iterator[list[Entry]]:
        """Messages behind the first ``skip``, some at a time. The last ones come when the file is known to be whole."""
        seen = size_bytes = 0
        batch: list[Entry] = []
        for line in self._lines:
            self._line += 1
            expected = self._end(line)
            if expected is not None:
                self._check_end(seen, expected, skip)
                if batch:
                    yield batch
                return
            seen += 1
            if seen <= skip:
                continue
            if batch and (len(batch) >= most or size_bytes + len(line) > most_bytes):
                yield batch
                batch, size_bytes = [], 0
            batch.append(self._entry(line))
            size_bytes += len(line)
        raise Misuse(f"cut short after line {self._line}: the last line, with the number of messages, is not there")

    def _end(self, line: bytes | str) -> int | None:
        """What the last line says; None if this is another."""
        if len(line) <= _TRAILER_BYTES_MAX:
            with contextlib.suppress(msgspec.DecodeError):
                return _trailer.decode(line).messages
        return None

    def _check_end(self, seen: int, expected: int, skip: int) -> None:
        if seen != expected:
            raise Misuse(f"line {self._line}: {expected} messages should be here, {seen} are")
        if skip > seen:
            raise Misuse(f"{skip} messages cannot be skipped: there are {seen}")
        if next(self._lines, None) is not None:
            raise Misuse(f"line {self._line + 1}: something follows the last line")

    def _entry(self, line: bytes | str) -> Entry:
        try:
            found = _line.decode(line)
            body = decode_body(_CODEC_OF[found.codec], found.body)
            deliver_at = to_datetime(found.deliver_at_us) if found.deliver_at_us is not None else None
            return entry(body, 0, deliver_at, None, found.priority, found.type, found.key, found.headers)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Misuse(f"line {self._line}: {error}") from None


def ends_whole(file: BinaryIO) -> bool:
    """Whether the last line of a file is that of an export. Goes back to the start."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(size_bytes - _TRAILER_BYTES_MAX, 0))
    last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    file.seek(0)
    try:
        _trailer.decode(last)
    except msgspec.DecodeError:
        return False
    return True


class Imported(msgspec.Struct, frozen=True):
    """What became of an import: messages put, and those at the start that were to be skipped."""

    messages: int
    skipped: int


class Importer:
    """Puts the messages of an export and knows how many are in, whatever ends it."""

    def __init__(self, queue: TimeQueue, source: Source, *, skip: int = 0, durability: str | None = None) -> None:
        if skip.__class__ is not int or skip < 0:
            raise Misuse(f"skip must be a whole number, not {skip!r}")
        self._queue = queue
        self._source = source
        self._skip = skip
        self._durability = durability
        self.messages = 0

    @property
    def position(self) -> int:
        """Messages of the export that are in, with those that were skipped: what to skip to go on."""
        return self._skip + self.messages

    def batches(self) -> Iterator[list[Entry]]:
        stats = self._queue.stats()
        with self._stopping():
            yield from self._source.batches(
                skip=self._skip,
                most=min(IMPORTED_AT_ONCE_MAX, stats.slots),
                most_bytes=min(IMPORTED_BYTES, stats.data_bytes),
            )

    def put(self, batch: list[Entry]) -> None:
        with self._stopping():
            self._queue._put(batch, None, self._durability)
            self.messages += len(batch)

    def result(self) -> Imported:
        return Imported(messages=self.messages, skipped=self._skip)

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        try:
            yield
        except (PenstockError, OSError) as error:
            raise ImportStopped(self._queue.name, str(error), messages=self.position) from error


def import_messages(
    queue: TimeQueue,
    lines: Iterable[bytes | str],
    *,
    skip: int = 0,
    durability: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Put the messages of an export, 500 at a time, each time all or none.

    They keep their body, delivery time, priority, type, key, headers and order, and get new ids and numbers; those that
    were with a receiver wait. ``ImportStopped`` says how many are in; ``skip`` goes on behind them. ``progress`` is
    told after each batch how many it had.
    """
    importer = Importer(queue, Source(lines), skip=skip, durability=durability)
    for batch in importer.batches():
        importer.put(batch)
        if progress is not None:
            progress(len(batch))
    return importer.result()
