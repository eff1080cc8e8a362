"""Owns splitting the messages of a batch by their keys: all of a key are in one part, the same one for good. Decided
where batches are planned, by a look at the heads of the records; a task is told a bit for each message. What is to be
done with the messages of a part is said by the job that reads them: no row of theirs leaves the task. Never reads a
body.
"""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import SparkFiles, TaskContext, cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.spark import schema as S
from penstock.spark.claimed import ClaimedReader, PartOfClaim, claimed_reader
from penstock.spark.collected import collected
from penstock.spark.snapshot import Place

SEED = 42  # of Spark's hash(), and what it is of a null
WORK = "penstock.work"  # a property of jobs

Work = Callable[[bytes], bytes | None]  # of a task: what it is told of its part, and what it says to the driver

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
    return S.SAID in schema.fieldNames()


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
    """In a task: does what its job says."""
    yield rows(part.count, _work()(part.pieces))


def rows(count: int, said: bytes | None) -> pa.RecordBatch:
    """A row for each of so many messages, of which only the first says anything."""
    ends: Any = np.full(count + 1, len(said or b""), dtype=np.int32)
    ends[0] = 0
    there: Any = np.zeros(-(-count // 8), dtype=np.uint8)
    there[0] = said is not None
    buffers = [pa.py_buffer(each) for each in (there, ends, said or b"")]
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), count, buffers)], schema=_ARROW)


# ---------------------------------------------------------------- what is done with a part


def collect(frame: DataFrame, work: Work) -> list[bytes]:
    """In the driver: what this comes to for each part of a batch, where it says anything. It travels as a property of
    the job, so that a task that comes late does what it was made for, whatever batch it is by then."""
    context = frame.sparkSession.sparkContext
    includes = list(context._python_includes)
    said = pickle.dumps((includes, cloudpickle.dumps(work)))
    context.setLocalProperty(WORK, base64.b64encode(said).decode())
    try:
        return [row[S.SAID] for row in collected(frame)]
    finally:
        context.setLocalProperty(WORK, None)


def _work() -> Work:
    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty(WORK)
    if said is None:
        raise PenstockError(
            "nobody has said what is to be done with the messages of this part: it is a property of Spark's job, which "
            "does not come through where PYSPARK_PIN_THREAD=false is set"
        )
    includes, pickled = pickle.loads(base64.b64decode(said))
    for name in includes:  # archives of modules, which Spark gives to functions, but not to sources
        path = SparkFiles.get(name)
        if path not in sys.path:
            sys.path.insert(1, path)
    work: Work = pickle.loads(pickled)
    return work


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
