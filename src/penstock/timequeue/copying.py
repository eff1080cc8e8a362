"""Owns reading the messages of a queue in use for a copy of it, a backup or an export. Never changes what it copies.

A copy begins with a picture of the index, taken under the lock, and goes on without it: a record stays where it is as
long as its message lives. What was removed meanwhile may have been overwritten while it was read; so a second look,
under the lock again, decides what is left out. What is in a copy was in the queue at the start, and was still there
when it had been copied.
"""

from __future__ import annotations

import os

import msgspec

from penstock.errors import Corrupt, QueueClosed
from penstock.store import layout as L
from penstock.store import record
from penstock.store.bodyfiles import BodyReader
from penstock.store.files import LocalFiles, body_name, private_memory
from penstock.store.findings import Finding
from penstock.store.picture import Picture
from penstock.timequeue.clients import Client


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
    spilled_bytes: int = 0  # of the file that its body is
    check: int = 0  # that file's checksum
    fault: str | None = None

    @property
    def body_bytes(self) -> int:
        return self.spilled_bytes or len(self.body)


def take_picture(client: Client) -> Picture:
    """The kernel at one moment. The memory for it is there before the lock is taken: copying the kernel of a million
    slots takes 20 ms then, and five times as long otherwise."""
    kernel = client.files.kernel
    image = private_memory(len(kernel), touched=True)
    client.turn(image.__setitem__, slice(0, len(kernel)), kernel)
    return Picture(image, client.files.kernel_path)


def copy_out(client: Client, picture: Picture, slot: int) -> Copied:
    """Copy a message out and check the copy; a body that is a file stays there. Without the lock: what it finds counts
    only if the message is still there afterwards."""
    unit, units = picture.place(slot)
    copied = Copied(
        slot,
        picture.number(slot),
        unit,
        picture.field(slot, L.S_DELIVER_US),
        picture.info(slot),
        picture.state(slot) in (L.STATE_PENDING, L.STATE_CLAIMED),
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
        _check_parts(copied, parts, units)
    return copied


def _check_parts(copied: Copied, parts: record.Parts, units: int) -> None:
    wanted = L.units(len(parts.meta) + len(parts.body))
    ready = copied.info >> L.FLAGS_SHIFT & L.FLAG_READY
    if units != wanted:
        copied.fault = f"{wanted} units, where its slot says {units}"
    elif parts.flags & L.FLAG_SPILLED:
        copied.spilled_bytes, copied.check = L.SPILL.unpack(copied.body)
    # What a release has changed since is in the slot; all else is in the record, which is checked.
    flags = parts.flags & ~L.FLAG_READY | ready
    attempts = copied.info >> L.ATTEMPTS_SHIFT << L.ATTEMPTS_SHIFT
    copied.info = attempts | parts.priority | parts.codec << L.CODEC_SHIFT | flags << L.FLAGS_SHIFT


def open_body(files: LocalFiles, copied: Copied) -> BodyReader | None:
    """The body of a message whose body is a file; None if it is not right, and ``fault`` says so. What is read of it is
    checked at its end."""
    name = body_name(copied.number, copied.slot)
    path = files.body_path(name)
    try:
        fd = files.open_body(name)
    except FileNotFoundError:
        copied.fault = f"no file {path}"
        return None
    if os.fstat(fd).st_size != copied.spilled_bytes:
        os.close(fd)
        copied.fault = f"a damaged file {path}"
        return None
    return BodyReader(fd, path, length=copied.spilled_bytes, check=copied.check)


def read_data(files: LocalFiles, copied: Copied) -> bytes:
    """All bytes of a message's body; nothing if ``fault`` says that they are not right."""
    if copied.fault is not None or not copied.spilled_bytes:
        return copied.body
    reader = open_body(files, copied)
    if reader is None:
        return b""
    with reader:
        try:
            return reader.readall()
        except Corrupt as error:
            copied.fault = f"a damaged file {error.path}: {error.found}"
            return b""


def finding_of(files: LocalFiles, copied: Copied) -> Finding:
    try:
        path, offset = files.place_of(copied.unit)
    except Corrupt as error:
        path, offset = error.path, error.offset
    return Finding(path, offset, f"message {copied.number}: {copied.fault}")
