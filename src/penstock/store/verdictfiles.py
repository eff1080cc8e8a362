"""Owns what a file of verdicts says: how some messages of a claim end otherwise than by an acknowledgement.

Bytes in, verdicts out, and back. Never touches the disk: that is ``claimfiles.py``'s; never knows what becomes of them.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from penstock.store.record import crc32

MAGIC = 0x314452564B545350  # "PSTKVRD1"
HEAD = struct.Struct("<QQQQ")  # magic, the queue's secret, number of the claim, verdicts
CHECK = struct.Struct("<Q")  # CRC-32 of all before it


class KeptFailed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """It waits, for as long as the backoff says or for ``delay_us``, or was delivered often enough. Without a backoff
    it waits for ``plain_us``."""

    slot: int
    number: int
    error: str | None
    delay_us: int | None
    plain_us: int = 0


class KeptDead(msgspec.Struct, frozen=True, array_like=True, tag="dead"):
    """It becomes a dead letter."""

    slot: int
    number: int
    reason: str
    error: str | None


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True, tag="answered"):
    """Whoever asked gets this."""

    slot: int
    number: int
    codec: int
    body: bytes


Kept: TypeAlias = KeptFailed | KeptDead | KeptAnswer


class Unreadable(Exception):
    """What was expected, and what is there."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Kept]).decode


def pack(signature: int, claim: int, verdicts: list[Kept]) -> bytes:
    """
    >>> verdicts = [KeptFailed(3, 7, "no", None), KeptAnswer(4, 8, 0, b"yes")]
    >>> unpack(pack(1, 2, verdicts), 1, 2) == verdicts
    True
    """
    head = HEAD.pack(MAGIC, signature, claim, len(verdicts))
    body = _encode(verdicts)
    return head + body + CHECK.pack(crc32(body, crc32(head)))


def unpack(data: bytes, signature: int, claim: int) -> list[Kept]:
    """``Unreadable`` if these are not the verdicts of this claim."""
    if len(data) < HEAD.size + CHECK.size:
        raise Unreadable("the verdicts of a claim", f"{len(data)} bytes")
    magic, whose, number, count = HEAD.unpack_from(data)
    end = len(data) - CHECK.size
    if magic != MAGIC:
        raise Unreadable("the verdicts of a claim", "something else")
    if CHECK.unpack_from(data, end)[0] != crc32(data[:end]):
        raise Unreadable("the checksum of what is there", "another one")
    if whose != signature:
        raise Unreadable("verdicts of this queue", "those of another queue")
    if number != claim:
        raise Unreadable(f"verdicts of claim {claim}", f"those of claim {number}")
    try:
        found = _decode(data[HEAD.size : end])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"{count} verdicts", str(error)) from error
    if len(found) != count:
        raise Unreadable(f"{count} verdicts", f"{len(found)} of them")
    return found
