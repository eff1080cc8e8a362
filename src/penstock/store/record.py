"""Owns records, the bytes of one message in a data file: built, checked, taken apart. Never touches a file."""

import zlib

from penstock.store import layout as L

crc32 = zlib.crc32
_head = L.RECORD_HEAD.pack
_unpack = L.RECORD.unpack_from


def build(
    signature: int,
    number: int,
    enqueued_us: int,
    deliver_us: int,
    slot: int,
    batch: int,
    index: int,
    info: int,
    meta: bytes,
    body: bytes,
    body_check: int,
    unit: int,
) -> bytes:
    """A whole record. ``body_check`` is the checksum of meta and body, made before the place was known.

    The checksum covers the record's own place, so that a record inside somebody's body is not one.
    """
    flags = (info >> L.FLAGS_SHIFT) & 0xFF
    kind = (info & 0xF) | ((info >> L.CODEC_SHIFT) & 0xF) << 4
    length = len(body)
    head = _head(signature, number, enqueued_us, deliver_us, slot, batch, index, length, len(meta), flags, kind)
    check = crc32(head, body_check ^ ((unit ^ (unit >> 32)) & L.MASK32))
    return b"".join((head, check.to_bytes(4, "little"), meta, body))


def fault(data: bytes, signature: int, number: int, slot: int, unit: int) -> str | None:
    """What is wrong with the bytes that should be the record of this message; None if nothing is."""
    if len(data) < L.RECORD_BYTES:
        return f"{len(data)} bytes"
    head = _unpack(data)
    if head[0] != signature:
        return "no signature"
    if head[1] != number or head[4] != slot:
        return f"message {head[1]} of slot {head[4]}"
    end = L.RECORD_BYTES + head[8] + head[7]
    if end > len(data):
        return f"a length of {end} bytes"
    check = crc32(data[: L.RECORD_HEAD.size], crc32(data[L.RECORD_BYTES : end]) ^ ((unit ^ (unit >> 32)) & L.MASK32))
    if check != head[11]:
        return f"checksum {check:08x} instead of {head[11]:08x}"
    return None
