"""Owns reading the messages of a claim, of which none may be missing, in the tasks of a stream. Never claims or
acknowledges one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.spark.reader import MessageReader
from penstock.spark.snapshot import Place
from penstock.store import gather as G
from penstock.store.claimfiles import ClaimFiles

NEW_CHECKPOINT = "start with a new checkpoint: it takes the open claims first"
SKIP = "with the option onLostClaim=skip the query goes on without them"


class PartOfClaim(InputPartition):
    """Some messages of a claim, by their places in it: the task reads their references from the claim's file."""

    def __init__(self, place: Place, receiver: str, claim: int, first: int, end: int) -> None:
        super().__init__(None)
        self.place = place
        self.receiver = receiver
        self.claim = claim
        self.first = first
        self.end = end


def claimed_reader(part: PartOfClaim, given: dict[str, Any], schema: StructType) -> ClaimedReader:
    """One for a claim, by the options of its stream."""
    return ClaimedReader(
        part.place,
        schema,
        conditions=[],
        batch_rows=given["batchRows"],
        fail_if_gone=given["onLostClaim"] != "skip",
    )


class ClaimedReader(MessageReader):
    """Reads messages of a claim, of which none may be missing."""

    def read_part(self, part: PartOfClaim) -> Iterator[pa.RecordBatch]:
        return self.read_rows(self.references(part))

    def references(self, part: PartOfClaim) -> Any:
        """Those of a part, as the claim's file has them."""
        files = ClaimFiles(Path(part.place.path), part.receiver, self._options().signature)
        found = files.read(part.claim, part.first, part.end)
        if not found and self._fail_if_gone:
            raise self._gone(f"{part.place.path}: claim {part.claim} of receiver {part.receiver}")
        return np.frombuffer(found, dtype=np.uint64).reshape(-1, G.REFERENCE_WORDS)

    def _gone(self, message: str) -> PenstockError:
        return PenstockError(
            f"{message} was claimed and is not in the queue any more: its claim was released or acknowledged, or it "
            f"was removed by a repair, while the query was not there. What to do: {SKIP}; or {NEW_CHECKPOINT}"
        )
