"""Owns what is stored of a batch of Spark's, in SQLite: for a part of the keys their contexts and what their scripts
led to; for the driver what is to be put. A batch that is stored is never worked on again. Never calls a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.errors import PenstockError
from penstock.scripts.calling import Kept
from penstock.scripts.store import SCHEMA, Post, Rooms, Store
from penstock.spark.scripting.results import Marks, decode_marks, encode_marks


class Batch(msgspec.Struct, frozen=True):
    """One that is stored. Its ``serial`` is ours: Spark's numbers begin anew with a new checkpoint."""

    serial: int
    marks: Marks
    results: bytes
    query: str = ""  # the checkpoint's, and its number there: for the driver
    number: int = 0
    # The last of each queue that this batch has nothing of, whose claim may be open: what an earlier checkpoint had and
    # this one has not come across yet; and what this one had, which comes again only if it is lost.
    pending: Marks = {}
    passed: Marks = {}

    @property
    def last(self) -> Marks:
        """Of each queue."""
        return {**self.pending, **self.passed, **self.marks}


class BatchStore(Store):
    """The contexts of a part of the keys, or the driver's outbox; and the last batch."""

    schema = (
        SCHEMA
        + """
CREATE TABLE IF NOT EXISTS batch (
    serial INTEGER PRIMARY KEY, marks BLOB NOT NULL, results BLOB NOT NULL, query TEXT NOT NULL,
    number INTEGER NOT NULL, pending BLOB NOT NULL, passed BLOB NOT NULL);
"""
    )

    def batch(self) -> Batch | None:
        """The last one."""
        with self._told():
            return self._batch()

    def _batch(self) -> Batch | None:
        question = "SELECT serial, marks, results, query, number, pending, passed FROM batch"
        found = self._db.execute(question).fetchone()
        if found is None:
            return None
        serial, marks, results, query, number, pending, passed = found
        return Batch(serial, decode_marks(marks), results, query, number, decode_marks(pending), decode_marks(passed))

    def keep_batch(self, batch: Batch, contexts: Mapping[str, Kept | None], now_us: int) -> Batch:
        """A batch of a part, with the contexts that it changed; the one that counts, which is another attempt's if that
        was first."""
        with self._told(), self._transaction():
            last = self._batch()
            if last is not None and last.serial >= batch.serial:
                return last
            self._keep(list(contexts.items()), now_us)
            self._note(batch)
        return batch

    def post_batch(self, batch: Batch, slot: int, posts: Iterable[Post], now_us: int, rooms: Rooms) -> None:
        """A batch of the driver, with all that is to be put for it."""
        with self._told(), self._transaction():
            last = self._batch()
            if batch.serial != (1 if last is None else last.serial + 1):
                raise PenstockError(f"{self._path}: another driver has stored batch {batch.serial} meanwhile")
            self._tidy()
            self._post(slot, posts, now_us, rooms)
            self._note(batch)
        self._tidied()

    def _note(self, batch: Batch) -> None:
        self._db.execute("DELETE FROM batch")
        marks, pending, passed = (encode_marks(each) for each in (batch.marks, batch.pending, batch.passed))
        said = (batch.serial, marks, batch.results, batch.query, batch.number, pending, passed)
        self._db.execute("INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?)", said)

    def take_in(self, contexts: Iterable[tuple[str, Kept]], now_us: int) -> None:
        """Contexts from elsewhere."""
        with self._told(), self._transaction():
            self._keep(list(contexts), now_us)
