"""Owns backups: a queue at another place with all that a queue in use holds. Never changes what it copies."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Callable, Iterator

import msgspec

from penstock.errors import Corrupt
from penstock.store import layout as L
from penstock.store import record
from penstock.store.bodyfiles import PIECE_BYTES, BodyReader, copy_in
from penstock.store.directory import create_directory
from penstock.store.files import LocalFiles, body_name
from penstock.store.findings import Finding
from penstock.store.hashes import Hashes
from penstock.store.options import Options
from penstock.store.picture import Picture, make_kernel
from penstock.store.words import Words
from penstock.timequeue.arguments import BUSY_S, queue_path
from penstock.timequeue.clients import TOMBSTONE, Client
from penstock.timequeue.copying import Copied, copy_out, finding_of, open_body, take_picture
from penstock.timequeue.timequeue import TimeQueue


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
        self._reader = Hashes(options.signature)
        self._hashes: dict[int, tuple[int, int]] = {}  # of slots whose message has a type or a key
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
        files.sync_bodies(
            files.body_names()
        )  # only now: the less time between the two looks, the less is gone in the second
        files.sync_data()
        self._make_kernel(files, start, end)

    def _copy(self, files: LocalFiles, start: Picture, slot: int) -> None:
        copied = copy_out(self._client, start, slot)
        if copied.fault is None and not start.is_whole(slot):
            copied.fault = f"the identity word of slot {slot} is damaged"
        if copied.fault is None and copied.spilled_bytes:
            self._copy_body(files, copied)
        if copied.fault is not None:
            self._faults.append(copied)
            return
        data = self._record(copied)
        files.write(copied.unit, data)
        self._kept[slot] = copied.spilled_bytes
        if start.info(slot) >> L.FLAGS_SHIFT & L.FLAG_CLASSED and self._reader.read(copied.meta):
            self._hashes[slot] = self._reader.type_hash, self._reader.key_hash
        self.advance(L.units(len(data) - L.RECORD_BYTES) * L.UNIT_BYTES)

    def _copy_body(self, files: LocalFiles, copied: Copied) -> None:
        reader = open_body(self._client.files, copied)
        if reader is None:
            return
        name = body_name(copied.number, copied.slot)
        with reader:
            try:
                copy_in(files, name, self._pieces(reader), sync=False)
            except Corrupt as error:
                files.remove_body(name)
                copied.fault = f"a damaged file {error.path}: {error.found}"

    def _pieces(self, reader: BodyReader) -> Iterator[bytes]:
        while piece := reader.read(PIECE_BYTES):
            yield piece
            self.advance(len(piece))

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
        header = self._options.regions()
        header[L.H_UUID], header[L.H_UUID + 1] = self._options.uuid_words
        kept = list(self._kept)
        self._pending = sum(start.state(slot) in (L.STATE_PENDING, L.STATE_CLAIMED) for slot in kept)
        self._used_units = sum(start.place(slot)[1] for slot in kept)
        words = Words(files.kernel, files.kernel_path)
        try:
            make_kernel(
                words,
                header,
                units,
                start=start,
                end=end,
                kept=kept,
                spilled_bytes=sum(self._kept.values()),
                hashes=self._hashes,
            )
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
            findings=[finding_of(self._client.files, copied) for copied in self._faults],
        )
