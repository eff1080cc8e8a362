"""Owns records, the bytes of one message in a data file: built, checked, taken apart. Never touches a file."""

import struct
from typing import Any

try:
    import cython
except ImportError:
    from penstock.store import shadow as cython

from penstock.store import checksum
from penstock.store import layout as L

_SEVEN = struct.Struct("<7Q")


def crc32(data: bytes, start: int = 0) -> int:
    """The checksum of ``zlib.crc32``."""
    return checksum.crc32(data, len(data), start)


def _word(data: Any, index: int) -> int:
    if cython.compiled:
        return cython.cast("const unsigned long long*", data)[index]  # type: ignore[no-any-return]
    return int.from_bytes(data[index * 8 : index * 8 + 8], "little")


def _placed(check: int, unit: int) -> int:
    """A checksum so far, mixed with the record's place: a record inside somebody's body is at another place."""
    return check ^ ((unit ^ (unit >> 32)) & L.MASK32)


def _kinds(info: int, meta_bytes: int) -> int:
    """The last word of a head, but for its checksum."""
    kind = (info & 0xF) | ((info >> L.CODEC_SHIFT) & 0xF) << 4
    flags = (info >> L.FLAGS_SHIFT) & 0xFF
    return meta_bytes | (flags << 16) | (kind << 24)


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
    """A whole record. ``body_check`` is the checksum of meta and body, made before the place was known."""
    where = slot | (batch << 32)
    length = len(body)
    sizes = index | (length << 32)
    last = _kinds(info, len(meta))
    seed = _placed(body_check, unit)
    if cython.compiled:
        return _assemble(signature, number, enqueued_us, deliver_us, where, sizes, last, seed, meta, body)
    head = _SEVEN.pack(signature, number, enqueued_us, deliver_us, where, sizes, last)[: L.RECORD_BYTES - 4]
    return b"".join((head, checksum.crc32(head, len(head), seed).to_bytes(4, "little"), meta, body))


def build_at(
    to: Any,
    at: int,
    signature: int,
    number: int,
    enqueued_us: int,
    deliver_us: int,
    slot: int,
    batch: int,
    index: int,
    info: int,
    meta: Any,
    meta_bytes: int,
    body: Any,
    body_bytes: int,
    unit: int,
) -> None:
    """``build`` into memory of the caller, so many bytes behind its start. Pointers in the compiled core."""
    if not cython.compiled:
        check = crc32(body, crc32(meta))
        made = build(signature, number, enqueued_us, deliver_us, slot, batch, index, info, meta, body, check, unit)
        to[at : at + len(made)] = made
        return
    check = checksum.crc32(meta, meta_bytes, 0) if meta_bytes else 0
    seed = _placed(checksum.crc32(body, body_bytes, check), unit)
    where = slot | (batch << 32)
    sizes = index | (body_bytes << 32)
    words = cython.cast("unsigned long long*", to + at)
    _set_head(words, signature, number, enqueued_us, deliver_us, where, sizes, _kinds(info, meta_bytes), seed)
    copy(to + at + L.RECORD_BYTES, meta, meta_bytes)  # type: ignore[name-defined] # noqa: F821
    copy(to + at + L.RECORD_BYTES + meta_bytes, body, body_bytes)  # type: ignore[name-defined] # noqa: F821


def _assemble(
    w0: int, w1: int, w2: int, w3: int, w4: int, w5: int, w6: int, seed: int, meta: bytes, body: bytes
) -> bytes:
    """The compiled core's way: written once, straight into the new bytes object. The names are C's, see record.pxd."""
    data = new_bytes(cython.NULL, L.RECORD_BYTES + len(meta) + len(body))  # type: ignore[name-defined] # noqa: F821
    words = cython.cast("unsigned long long*", start_of(data))  # type: ignore[name-defined] # noqa: F821
    _set_head(words, w0, w1, w2, w3, w4, w5, w6, seed)
    copy(start_of(data) + L.RECORD_BYTES, start_of(meta), len(meta))  # type: ignore[name-defined] # noqa: F821
    copy(start_of(data) + L.RECORD_BYTES + len(meta), start_of(body), len(body))  # type: ignore[name-defined] # noqa: F821
    return data  # type: ignore[no-any-return]


def _set_head(words: Any, w0: int, w1: int, w2: int, w3: int, w4: int, w5: int, w6: int, seed: int) -> None:
    words[0] = w0
    words[1] = w1
    words[2] = w2
    words[3] = w3
    words[4] = w4
    words[5] = w5
    words[6] = w6
    check = checksum.crc32(cython.cast("const unsigned char*", words), L.RECORD_BYTES - 4, seed)
    words[6] = w6 | (cython.cast("unsigned long long", check) << 32)


class Parts:
    """A record taken apart."""

    enqueued_us: int
    flags: int
    priority: int
    codec: int
    meta: bytes
    body: bytes
    fault: str | None

    def clear(self, fault: str | None) -> None:
        self.enqueued_us = self.flags = self.priority = self.codec = 0
        self.meta = self.body = b""
        self.fault = fault

    def read(self, data: Any, size: int, signature: int, number: int, slot: int, unit: int) -> bool:
        """Take apart the bytes that should be the record of this message; False if ``fault`` says what is wrong.

        In the compiled core ``data`` is a pointer into the mapping: nothing is copied but meta and body.
        """
        if size < L.RECORD_BYTES:
            self.clear(f"{size} bytes")
            return False
        last = _word(data, L.R_META_CHECK)
        where = _word(data, L.R_SLOT_BATCH)
        body_at = L.RECORD_BYTES + (last & L.META_BYTES_MAX)
        end = body_at + (_word(data, L.R_INDEX_LENGTH) >> 32)
        if _word(data, L.R_SIGNATURE) != signature:
            self.clear("no signature")
            return False
        if _word(data, L.R_NUMBER) != number or where & L.MASK32 != slot:
            self.clear(f"message {_word(data, L.R_NUMBER)} of slot {where & L.MASK32}")
            return False
        if end > size:
            self.clear(f"a length of {end} bytes")
            return False
        payload = data[L.RECORD_BYTES : end]
        seed = _placed(crc32(payload), unit)
        check = checksum.crc32(data, L.RECORD_BYTES - 4, seed)
        if check != last >> 32:
            self.clear(f"checksum {check:08x} instead of {last >> 32:08x}")
            return False
        self.fault = None
        self.enqueued_us = _word(data, L.R_ENQUEUED_US)
        self.flags = (last >> 16) & 0xFF
        self.priority = (last >> 24) & 0xF
        self.codec = (last >> 28) & 0xF
        if body_at > L.RECORD_BYTES:
            self.meta = data[L.RECORD_BYTES : body_at]
            self.body = data[body_at:end]
        else:
            self.meta = b""
            self.body = payload
        return True

    def read_bytes(self, data: bytes, signature: int, number: int, slot: int, unit: int) -> bool:
        if cython.compiled:
            return self.read(cython.cast("const unsigned char*", data), len(data), signature, number, slot, unit)
        return self.read(data, len(data), signature, number, slot, unit)


def fault(data: bytes, signature: int, number: int, slot: int, unit: int) -> str | None:
    """What is wrong with the bytes that should be the record of this message; None if nothing is."""
    parts = Parts()
    parts.read_bytes(data, signature, number, slot, unit)
    return parts.fault
