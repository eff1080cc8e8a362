"""Owns what is stored of a batch of Spark's, in SQLite: for a part of the keys their contexts and what their scripts
led to; for the driver what is to be put. A batch that is stored is never worked on again. Never calls a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.scripts.calling import Kept
from penstock.scripts.store import SCHEMA, Post, Rooms, Store
from penstock.spark.scripting.results import Mark


class Batch(msgspec.Struct, frozen=True):
    """One that is stored. Its ``serial`` is ours: Spark's numbers begin anew with a new checkpoint."""

    serial: int
    mark: Mark
    results: bytes
    query: str = ""  # the checkpoint's, and its number there: for the driver
    number: int = 0


class BatchStore(Store):
    """The contexts of a part of the keys, or the driver's outbox; and the last batch."""

    schema = (
        SCHEMA
        + """
CREATE TABLE IF NOT EXISTS batch (
    serial INTEGER PRIMARY KEY, count INTEGER NOT NULL, first TEXT NOT NULL, last TEXT NOT NULL,
    results BLOB NOT NULL, query TEXT NOT NULL, number INTEGER NOT NULL);
"""
    )

    def batch(self) -> Batch | None:
        """The last one."""
        with self._told():
            return self._batch()

    def _batch(self) -> Batch | None:
        found = self._db.execute("SELECT serial, count, first, last, results, query, number FROM batch").fetchone()
        return None if found is None else Batch(found[0], Mark(*found[1:4]), *found[4:])

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
            self._tidy()
            self._post(slot, posts, now_us, rooms)
            self._note(batch)
        self._tidied()

    def _note(self, batch: Batch) -> None:
        mark = batch.mark
        self._db.execute("DELETE FROM batch")
        said = (batch.serial, mark.count, mark.first, mark.last, batch.results, batch.query, batch.number)
        self._db.execute("INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?)", said)

    def rename_batch(self, batch: Batch) -> None:
        """The last one has another number, in another checkpoint."""
        with self._told(), self._transaction():
            self._note(batch)

    def take_in(self, contexts: Iterable[tuple[str, Kept]], now_us: int) -> None:
        """Contexts from elsewhere."""
        with self._told(), self._transaction():
            self._keep(list(contexts), now_us)
