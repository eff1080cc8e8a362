"""Owns exports: the messages of a queue in use as lines of JSON, and putting them from there into a queue again.

An import never takes a file for whole that is not; an export never changes the queue.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, BinaryIO, Literal

import msgspec

from penstock.codec import CODEC_BYTES, CODEC_JSON, CODEC_PICKLE, CODEC_STR, Meta, decode_body, decode_meta
from penstock.errors import Corrupt, ImportStopped, Misuse, PenstockError
from penstock.message import to_datetime
from penstock.store import layout as L
from penstock.store.backoff import Backoff
from penstock.store.findings import Finding
from penstock.store.options import BESIDE, DEDUP_WINDOW_S, HISTORY_AGE_S
from penstock.store.picture import LIVE
from penstock.timequeue.arguments import check_state
from penstock.timequeue.copying import Copied, copy_out, finding_of, read_data, take_picture
from penstock.timequeue.opening import create
from penstock.timequeue.puts import Entry, Extra, entry
from penstock.timequeue.timequeue import TimeQueue

EXPORT_FORMAT = 1
CODECS = {CODEC_BYTES: "bytes", CODEC_STR: "str", CODEC_JSON: "json", CODEC_PICKLE: "pickle"}

LOOKED_AGAIN_MAX = 256  # messages that an export reads between two turns at the lock
LOOKED_AGAIN_BYTES = 4 << 20  # and how much of them it keeps in memory
SPECIAL = ("x", "a", "b", "l", "d", "f", "n", "r", "e", "y")  # of a message's meta; new ids, and nothing remembered
IMPORTED_AT_ONCE_MAX = 500  # all or nothing
IMPORTED_BYTES = 8 << 20  # a batch ends early when its bodies are larger together


# ---------------------------------------------------------------- export


class Export(Iterator[dict[str, Any]]):
    """The messages of a queue as JSON objects, in the order in which they were put.

    ``total`` were there when it began, ``messages`` have come, ``gone`` were removed meanwhile and do not come.
    """

    def __init__(self, queue: TimeQueue, *, state: str = "all", findings: list[Finding] | None = None) -> None:
        check_state(state)
        states = {"waiting": (L.STATE_WAITING,), "pending": (L.STATE_PENDING, L.STATE_CLAIMED), "all": LIVE}[state]
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
        batch: list[tuple[Copied, bytes]] = []
        size_bytes = 0
        for slot in self._slots:
            copied = copy_out(self._client, self._picture, slot)
            batch.append((copied, read_data(self._client.files, copied)))
            size_bytes += copied.body_bytes
            if len(batch) >= LOOKED_AGAIN_MAX or size_bytes >= LOOKED_AGAIN_BYTES:
                yield from self._still_there(batch)
                batch, size_bytes = [], 0
        yield from self._still_there(batch)

    def _still_there(self, batch: list[tuple[Copied, bytes]]) -> Iterator[dict[str, Any]]:
        there = self._client.turn(self._look_again, batch)
        self.gone += len(batch) - len(there)
        for copied, data in there:
            if copied.fault is None:
                yield self._describe(copied, data)
                continue
            finding = finding_of(self._client.files, copied)
            if self._findings is None:
                raise Corrupt(finding.path, offset=finding.offset, expected="a whole record", found=finding.what)
            self.damaged += 1
            self._findings.append(finding)

    def _look_again(self, batch: list[tuple[Copied, bytes]]) -> list[tuple[Copied, bytes]]:
        kernel = self._client.kernel
        return [
            (copied, data)
            for copied, data in batch
            if kernel.number(copied.slot) == copied.number and kernel.state(copied.slot) in LIVE
        ]

    def _describe(self, copied: Copied, data: bytes) -> dict[str, Any]:
        meta = decode_meta(copied.meta)
        codec = copied.info >> L.CODEC_SHIFT & 0xF
        ready = copied.info >> L.FLAGS_SHIFT & L.FLAG_READY
        special = {name: value for name in SPECIAL if (value := getattr(meta, name)) is not None}
        return {
            "id": meta.o or self._queue.message_id(copied.slot, copied.number),
            "number": copied.number,
            "state": "pending" if copied.pending else "waiting",
            "enqueued_at_us": copied.enqueued_us,
            "deliver_at_us": None if ready else copied.deliver_us,
            "priority": copied.info & 0xF,
            "type": meta.t,
            "key": meta.k,
            "headers": meta.h or {},
            **({"special": special} if special else {}),
            "attempts": copied.info >> L.ATTEMPTS_SHIFT,
            "codec": CODECS.get(codec, str(codec)),
            "body": base64.b64encode(data).decode(),
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
    max_attempts: int | None = None
    backoff: Backoff | None = None
    dead_letter: str = BESIDE
    expired: Literal["drop", "dead_letter"] = "drop"
    dedup_window_s: float = DEDUP_WINDOW_S
    history_bytes: int = 0
    history_age_s: float = HISTORY_AGE_S
    dedup_entries: int | None = None  # an export of an earlier version does not say
    exclusive_keys: bool = False


class Header(msgspec.Struct, frozen=True):
    """The first line of an export."""

    penstock_export: int
    queue: str
    uuid: str
    exported_at: str
    options: SourceOptions | None = None


class _Line(msgspec.Struct):
    """A message of an export: what of it can be put. The rest tells people where it came from."""

    codec: Literal["bytes", "str", "json", "pickle"]
    body: bytes
    deliver_at_us: Annotated[int, msgspec.Meta(ge=1, lt=L.DELIVER_US_MAX)] | None
    priority: Annotated[int, msgspec.Meta(ge=0, lt=L.PRIORITIES)]
    type: str | None
    key: str | None
    headers: dict[str, str] | None
    special: Meta | None = None  # without type, key and headers


class _Trailer(msgspec.Struct):
    """The last line of an export."""

    messages: Annotated[int, msgspec.Meta(ge=0)]


_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(_Line)
_trailer = msgspec.json.Decoder(_Trailer)
_CODEC_OF = {name: codec for codec, name in CODECS.items()}
_TRAILER_BYTES_MAX = 256  # no message has so short a line


class BadExport(Misuse):
    """What was to be imported is not a whole export."""


class PastTheEnd(Misuse):
    """More messages were to be skipped than there are."""

    def __init__(self, *, skip: int, messages: int) -> None:
        super().__init__(f"skip={skip} is past the end of the export, which has {messages} messages; nothing was put")
        self.skip = skip
        self.messages = messages


class Source:
    """The lines of an export, taken apart and checked."""

    def __init__(self, lines: Iterable[bytes | str]) -> None:
        self._lines = iter(lines)
        self._line = 1  # its number, as editors count
        try:
            self.header = _header.decode(next(self._lines, b""))
        except msgspec.DecodeError:  # bytes that are not UTF-8 too
            raise BadExport("line 1: this is not an export of Penstock: its header is not there") from None
        if self.header.penstock_export != EXPORT_FORMAT:
            raise BadExport(
                f"line 1: an export of format {self.header.penstock_export}; this version reads format {EXPORT_FORMAT}"
            )

    def create(self, path: str | os.PathLike[str]) -> TimeQueue:
        """A new queue with the options of the one that was exported."""
        options = self.header.options
        if options is None:
            raise BadExport("the export does not say what queue to make: its header has no options")
        return create(
            path,
            slots=options.slots,
            data_bytes=options.data_bytes,
            spill_bytes=options.spill_bytes,
            lease=options.lease_s,
            durability=options.durability,
            notify=options.notify,
            index_sync_ms=options.index_sync_ms,
            max_attempts=options.max_attempts,
            backoff=options.backoff,
            dead_letter=options.dead_letter,
            expired=options.expired,
            dedup_window=options.dedup_window_s,
            history_bytes=options.history_bytes,
            history_age=options.history_age_s,
            dedup_entries=options.dedup_entries,
            exclusive_keys=options.exclusive_keys,
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
        raise BadExport(f"cut short after line {self._line}: the last line, with the number of messages, is not there")

    def _end(self, line: bytes | str) -> int | None:
        """What the last line says; None if this is another."""
        if len(line) <= _TRAILER_BYTES_MAX:
            with contextlib.suppress(msgspec.DecodeError):
                return _trailer.decode(line).messages
        return None

    def _check_end(self, seen: int, expected: int, skip: int) -> None:
        if seen != expected:
            raise BadExport(f"line {self._line}: {expected} messages should be here, {seen} are")
        if skip > seen:
            raise PastTheEnd(skip=skip, messages=seen)
        if next(self._lines, None) is not None:
            raise BadExport(f"line {self._line + 1}: something follows the last line")

    def _entry(self, line: bytes | str) -> Entry:
        try:
            found = _line.decode(line)
            body = decode_body(_CODEC_OF[found.codec], found.body)
            deliver_at = to_datetime(found.deliver_at_us) if found.deliver_at_us is not None else None
            extra = None
            if found.special is not None:
                fields = {name: value for name in SPECIAL if (value := getattr(found.special, name)) is not None}
                extra = Extra(fields, L.FLAG_SPECIAL) if fields else None
            return entry(body, 0, deliver_at, None, found.priority, found.type, found.key, found.headers, extra)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise BadExport(f"line {self._line}: {error}") from None


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
        except PastTheEnd:
            raise
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
