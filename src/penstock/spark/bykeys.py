"""Owns splitting the messages of a batch by their keys: all of a key are in one part, the same one for good. Decided
where batches are planned, by a look at the heads of the records; a task is told a bit for each message, and its rows
say where a record lies and nothing of what is in it. Never reads a body.
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
from penstock.spark.claimed import PartOfClaim, claimed_reader
from penstock.spark.reader import binary
from penstock.store import gather as G

SEED = 42  # of Spark's hash(), and what it is of a null
REFERENCE_BYTES = G.REFERENCE_WORDS * 8

_ARROW = to_arrow_schema(S.REFERENCES, timezone="UTC")
_encode = msgspec.msgpack.Encoder().encode


class PartOfKeys(InputPartition):
    """The messages of one part of the keys: claims, and of each a bit for every message that is of it."""

    def __init__(self, part: int) -> None:
        super().__init__(None)
        self.part = part
        self.claims: list[tuple[PartOfClaim, bytes]] = []


def is_wanted(schema: StructType) -> bool:
    """Whether somebody asked for the columns that are made here."""
    return S.PART in schema.fieldNames()


def split(claims: Sequence[PartOfClaim], given: dict[str, Any]) -> list[PartOfKeys]:
    """Claims, each in one piece, as parts of which each has some messages; never more of them than were asked for."""
    found: dict[int, PartOfKeys] = {}
    for claim in claims:
        reader = claimed_reader(claim, given, S.REFERENCES)
        keys, which = reader.keys(reader.references(claim))
        parts = parts_of(keys, max(given["partitions"], 1))[which]
        for part in np.unique(parts).tolist():
            some = found.setdefault(part, PartOfKeys(part))
            some.claims.append((claim, np.packbits(parts == part).tobytes()))
    return [found[part] for part in sorted(found)]


def read(part: PartOfKeys, given: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """In a task: a row for each message, with its reference."""
    for claim, bits in part.claims:
        rows = claimed_reader(claim, given, S.REFERENCES).references(claim)
        mine = rows[np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=len(rows)).astype(bool)]
        place = pa.scalar(_encode(claim.place), pa.binary())
        for start in range(0, len(mine), given["batchRows"]):
            some = mine[start : start + given["batchRows"]]
            ends = np.arange(len(some) + 1, dtype=np.int32) * np.int32(REFERENCE_BYTES)
            columns = [
                pa.repeat(pa.scalar(part.part, pa.int32()), len(some)),
                pa.repeat(place, len(some)),
                binary(some.tobytes(), ends),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)


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
