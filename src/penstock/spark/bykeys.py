"""Owns splitting the messages of a batch by their keys: all of a key are in one part, the same one for good. Decided
where batches are planned, by a look at the heads of the records; a task is told a bit for each message. Never reads a
body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark import schema as S
from penstock.spark.claimed import ClaimedReader, PartOfClaim, claimed_reader
from penstock.spark.snapshot import Place

SEED = 42  # of Spark's hash(), and what it is of a null

_ARROW = to_arrow_schema(S.BY_KEYS, timezone="UTC")


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """The messages of a claim that are of one part of the keys: a bit for each that the claim has."""

    place: Place
    receiver: str
    claim: int
    first: int
    end: int
    count: int
    bits: bytes

    def references(self, reader: ClaimedReader) -> Any:
        """Of these messages, read from the claim's file."""
        rows = reader.references(PartOfClaim(self.place, self.receiver, self.claim, self.first, self.end))
        return rows[np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), count=len(rows)).astype(bool)]


class Pieces(msgspec.Struct, frozen=True, array_like=True):
    """The messages of one part of the keys that are in a batch."""

    part: int
    pieces: list[Piece]


decode_pieces = msgspec.msgpack.Decoder(Pieces).decode
_encode = msgspec.msgpack.Encoder().encode


class PartOfKeys(InputPartition):
    """What a task is given: pieces, and how many messages they have."""

    def __init__(self, pieces: bytes, count: int) -> None:
        super().__init__(None)
        self.pieces = pieces
        self.count = count


def is_wanted(schema: StructType) -> bool:
    """Whether somebody asked for the column that is made here."""
    return S.CLAIMS in schema.fieldNames()


def split(claims: Sequence[PartOfClaim], given: dict[str, Any]) -> list[PartOfKeys]:
    """Claims, each in one piece, as parts of which each has some messages; never more of them than were asked for."""
    found: dict[int, list[Piece]] = {}
    for claim in claims:
        reader = claimed_reader(claim, given, S.BY_KEYS)
        keys, which = reader.keys(reader.references(claim))
        parts = parts_of(keys, max(given["partitions"], 1))[which]
        for part, count in enumerate(np.bincount(parts).tolist()):
            if count:
                bits = np.packbits(parts == part).tobytes()
                piece = Piece(claim.place, claim.receiver, claim.claim, claim.first, claim.end, count, bits)
                found.setdefault(part, []).append(piece)
    return [
        PartOfKeys(_encode(Pieces(part, found[part])), sum(piece.count for piece in found[part]))
        for part in sorted(found)
    ]


def read(part: PartOfKeys) -> Iterator[pa.RecordBatch]:
    """In a task: a row for each message; only the first one says anything."""
    ends: Any = np.full(part.count + 1, len(part.pieces), dtype=np.int32)
    ends[0] = 0
    there: Any = np.zeros(-(-part.count // 8), dtype=np.uint8)
    there[0] = 1
    column = pa.Array.from_buffers(pa.binary(), part.count, [pa.py_buffer(x) for x in (there, ends, part.pieces)])
    yield pa.RecordBatch.from_arrays([column], schema=_ARROW)


# ---------------------------------------------------------------- which part a key is of


def parts_of(keys: Sequence[str | None], count: int) -> Any:
    """As ``pmod(hash(key), count)`` says it in Spark.

    >>> parts_of(["a", "b", None], 7).tolist()
    [3, 2, 0]
    """
    hashes: Any = np.full(len(keys), SEED, dtype=np.uint32)
    by_length: dict[int, list[tuple[int, bytes]]] = {}
    for place, key in enumerate(keys):
        if key is not None:
            data = key.encode()
            by_length.setdefault(len(data), []).append((place, data))
    for length, some in by_length.items():
        letters = np.frombuffer(b"".join(data for _, data in some), dtype=np.uint8).reshape(len(some), length)
        hashes[[place for place, _ in some]] = _hashed(letters)
    return hashes.view(np.int32).astype(np.int64) % count


def _hashed(letters: Any) -> Any:
    """Murmur3 of texts of one length, a row each; the last bytes that are no word are each taken for one, with a sign,
    which is Spark's own way."""
    count, length = letters.shape
    whole = length // 4
    words: Any = np.ascontiguousarray(letters[:, : 4 * whole]).view("<u4") if whole else letters[:, :0]
    rest = letters[:, 4 * whole :].view(np.int8).astype(np.int32).view(np.uint32)
    made: Any = np.full(count, SEED, dtype=np.uint32)
    for word in (*words.T, *rest.T):
        word = _turned(word.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        made = _turned(made ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    made ^= np.uint32(length)
    made = (made ^ (made >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    made = (made ^ (made >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return made ^ (made >> np.uint32(16))


def _turned(words: Any, bits: int) -> Any:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
