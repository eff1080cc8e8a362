"""Owns the store of an app: contexts, what is to be put (the outbox) and which messages are done, in one SQLite file.

A batch of messages is one transaction: their contexts, their follow-ups and that they are done are on disk together
when it returns. Whoever finds a message done does nothing but acknowledge it. Never puts or acknowledges anything.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.codec import encode_meta
from penstock.errors import Corrupt, Misuse, PenstockError, QueueBusy, WrongFormat
from penstock.manager.copies import Kept as KeptMessage
from penstock.scripts.calling import Kept
from penstock.scripts.context import Timer
from penstock.store import rig
from penstock.store.files import sync_directory
from penstock.timequeue import forking

FORMAT = 1
RECORD_BYTES = 256  # what a record says beside body, type, key and headers, as a rule
ASKED_AT_ONCE = 500  # values in one question: SQLite has a limit of 999 in old builds

SCHEMA = """
CREATE TABLE IF NOT EXISTS context (
    key TEXT PRIMARY KEY, state BLOB NOT NULL, timers BLOB NOT NULL, changed_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (
    id TEXT PRIMARY KEY, slot INTEGER NOT NULL, queue TEXT NOT NULL, place INTEGER NOT NULL, number INTEGER NOT NULL,
    codec INTEGER, reply BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS done_by_slot ON done (slot, queue);
CREATE TABLE IF NOT EXISTS outbox (
    slot INTEGER NOT NULL, number INTEGER NOT NULL, queue TEXT NOT NULL, via TEXT, messages BLOB NOT NULL,
    PRIMARY KEY (slot, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS placed (
    key TEXT NOT NULL, type TEXT NOT NULL, timer TEXT NOT NULL, queue TEXT NOT NULL, message TEXT NOT NULL,
    PRIMARY KEY (key, type)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS slot (slot INTEGER PRIMARY KEY, number INTEGER NOT NULL);
"""


class Posted(msgspec.Struct, frozen=True, array_like=True):
    """A message of the outbox."""

    message: KeptMessage
    timer: str | None


Post = tuple[str, str | None, Posted]  # queue, the macro queue that it was chosen of, message


class Row(msgspec.Struct, frozen=True):
    """Messages of the outbox that go to one queue together, as a publisher's batch of this number."""

    slot: int
    number: int
    queue: str
    via: str | None  # the macro queue that this member was chosen of: another one will do
    messages: list[Posted]


class Done(msgspec.Struct, frozen=True):
    """A message that is done, perhaps not acknowledged yet: where it lies, and the reply that is to be sent."""

    id: str
    queue: str  # its UUID
    place: int
    number: int
    answer: tuple[int, bytes] | None


class Change(msgspec.Struct, frozen=True):
    """What one message leads to, ready to be stored."""

    done: Done
    key: str
    seen: Kept | None  # what its script was given
    kept: Kept | None
    posts: list[Post]
    unset: list[str]
    is_ours: Callable[[], bool]  # whether the message is still this worker's


class Placed(msgspec.Struct, frozen=True):
    """The message of a timer, to be cancelled when the timer is."""

    key: str
    type: str
    timer: str
    queue: str
    message: str


_encode = msgspec.msgpack.Encoder().encode
_decode_posted = msgspec.msgpack.Decoder(list[Posted]).decode
_decode_timers = msgspec.msgpack.Decoder(dict[str, Timer]).decode

Rooms = Callable[[str], tuple[int, int]]  # of a queue: how many messages, and how many bytes, are put at once


# By file, connections that were open when this process was forked. SQLite takes the parent's locks for its own here:
# who opened the file again would have none, and lose what it stores when the parent closes. They are never closed.
_inherited: dict[str, list[sqlite3.Connection]] = {}


class Store:
    """The file, opened by one worker, or by somebody who only looks."""

    schema = SCHEMA

    def __init__(self, path: Path, *, busy_s: float, read_only: bool = False) -> None:
        self._path = path
        self._busy_s = busy_s
        self._file = os.path.realpath(path)
        if not read_only and self._file in _inherited:
            raise Misuse(f"{path}: it was open when this process was forked; fork first, and make workers then")
        mode = "ro" if read_only else "rwc"
        try:
            with forking.opening():
                self._db = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode={mode}",
                    uri=True,
                    timeout=busy_s,
                    isolation_level=None,
                    check_same_thread=False,
                )
                self._is_open = True
                forking.note(self)
        except sqlite3.Error as error:
            raise PenstockError(f"{path}: the contexts cannot be opened: {error}") from error
        try:
            with self._told():
                self._prepare(read_only)
        except BaseException:
            self.close()
            raise
        self._published: list[Row] = []  # to be removed with the next transaction
        self._placed: list[Placed] = []
        self._unset: list[Placed] = []  # found by the transaction that is under way
        self._stale: list[Placed] = []

    def _prepare(self, read_only: bool) -> None:
        if not read_only:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # a transaction that is over is on disk
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise WrongFormat(f"{self._path}: contexts of format {found}; this version knows {FORMAT}")
        if not read_only and found != FORMAT:
            with self._transaction():
                for statement in self.schema.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={FORMAT}")
            sync_directory(self._path.parent)  # it has its name for good

    def close(self) -> None:
        if self._is_open:
            self._db.close()
            self._is_open = False

    def _after_fork_in_child(self) -> None:
        if self._is_open:
            self._is_open = False
            _inherited.setdefault(self._file, []).append(self._db)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise QueueBusy(
                    str(self._path), waited_s=self._busy_s, holder="another worker is in a transaction, perhaps stopped"
                ) from error
            raise PenstockError(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(
                str(self._path),
                offset=0,
                expected="contexts, in SQLite",
                found=str(error),
                remedy="restore a copy of it",
            ) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        rig.effect(rig.WRITE, str(self._path))
        try:  # an interrupt that came while it waited is raised when it has begun
            self._db.execute("BEGIN IMMEDIATE")
            yield
            rig.effect(rig.SYNC, str(self._path))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # else SQLite has ended it, or it is committed
                self._db.execute("ROLLBACK")
            raise

    # ------------------------------------------------------------ contexts

    def contexts(self, keys: Sequence[str]) -> dict[str, Kept]:
        """Those of these keys that there are."""
        with self._told():
            rows = self._asked("SELECT key, state, timers FROM context WHERE key IN", keys)
            return {key: Kept(state, _decode_timers(timers)) for key, state, timers in rows}

    def all_contexts(self) -> Iterator[tuple[str, Kept]]:
        """By key. What is changed meanwhile is not seen."""
        with self._told():
            for key, state, timers in self._db.execute("SELECT key, state, timers FROM context ORDER BY key"):
                yield key, Kept(state, _decode_timers(timers))

    def count(self) -> int:
        with self._told():
            (found,) = self._db.execute("SELECT count(*) FROM context").fetchone()
            return int(found)

    def _asked(self, question: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(values), ASKED_AT_ONCE):
            some = values[start : start + ASKED_AT_ONCE]
            yield from self._db.execute(f"{question} ({','.join('?' * len(some))})", some)

    # ------------------------------------------------------------ what is done

    def any_done(self) -> bool:
        with self._told():
            return self._db.execute("SELECT 1 FROM done LIMIT 1").fetchone() is not None

    def done(self, ids: Sequence[str]) -> dict[str, Done]:
        """Those of these messages that are done."""
        with self._told():
            found = self._asked("SELECT id, queue, place, number, codec, reply FROM done WHERE id IN", ids)
            return {row[0]: _done(row) for row in found}

    def done_by(self, slot: int, queue: str, limit: int) -> list[Done]:
        """Messages of one queue that a worker has done."""
        question = "SELECT id, queue, place, number, codec, reply FROM done WHERE slot = ? AND queue = ? LIMIT ?"
        with self._told():
            return [_done(row) for row in self._db.execute(question, (slot, queue, limit))]

    def forget_done(self, ids: Iterable[str]) -> None:
        """Their messages are gone for good: nobody will ask."""
        with self._told(), self._transaction():
            self._tidy()
            self._db.executemany("DELETE FROM done WHERE id = ?", [(each,) for each in ids])
        self._tidied()

    def slots(self) -> list[int]:
        """Those that have left something: messages to put, or to be known as done."""
        with self._told():
            question = "SELECT DISTINCT slot FROM done UNION SELECT DISTINCT slot FROM outbox"
            return [slot for (slot,) in self._db.execute(question)]

    # ------------------------------------------------------------ one batch

    def apply(
        self, slot: int, changes: Sequence[Change], now_us: int, rooms: Rooms
    ) -> tuple[set[str], list[Row], list[Placed]]:
        """All that these messages lead to, on disk when it returns; the ids of those that count, what is to be put for
        them, and the messages of timers that are set no longer. A message that is done already, or is not ours any
        more, does not count: somebody else has done it, or will. Nor does one whose context is not the one that its
        script was given: a worker that was stopped in here, past its lease, has stored what it did to it.

        Asked inside the transaction, which one worker at a time has: whoever gets a message after its lease ended sees
        here what was decided before.
        """
        with self._told(), self._transaction():
            known = {
                row[0] for row in self._asked("SELECT id FROM done WHERE id IN", [each.done.id for each in changes])
            }
            there = {
                key: Kept(state, _decode_timers(timers))
                for key, state, timers in self._asked(
                    "SELECT key, state, timers FROM context WHERE key IN", [each.key for each in changes]
                )
            }
            counted = [
                each
                for each in changes
                if each.done.id not in known and there.get(each.key) == each.seen and each.is_ours()
            ]
            self._tidy()
            self._keep([(each.key, each.kept) for each in counted], now_us)
            self._db.executemany(
                "INSERT INTO done VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (each.id, slot, each.queue, each.place, each.number, *(each.answer or (None, None)))
                    for each in (change.done for change in counted)
                ],
            )
            placed = [each for change in counted for each in self._unplaced(change)]
            rows = self._post(slot, (post for each in counted for post in each.posts), now_us, rooms)
        self._tidied()
        return {each.done.id for each in counted}, rows, placed

    def _keep(self, kept: Sequence[tuple[str, Kept | None]], now_us: int) -> None:
        self._db.executemany(
            "INSERT INTO context VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
            "SET state = excluded.state, timers = excluded.timers, changed_us = excluded.changed_us",
            [(key, each.state, _encode(each.timers), now_us) for key, each in kept if each is not None],
        )
        self._db.executemany("DELETE FROM context WHERE key = ?", [(key,) for key, each in kept if each is None])

    def _unplaced(self, change: Change) -> list[Placed]:
        if not change.unset and change.kept is not None:
            return []
        question = "SELECT key, type, timer, queue, message FROM placed WHERE key = ?"
        found = [Placed(*row) for row in self._db.execute(question, (change.key,))]
        gone = [each for each in found if change.kept is None or each.timer in change.unset]
        self._db.executemany("DELETE FROM placed WHERE key = ? AND type = ?", [(each.key, each.type) for each in gone])
        return gone

    def _post(self, slot: int, posts: Iterable[Post], now_us: int, rooms: Rooms) -> list[Row]:
        together: dict[tuple[str, str | None], list[Posted]] = {}
        for queue, via, posted in posts:
            together.setdefault((queue, via), []).append(posted)
        if not together:
            return []
        number = self._next(slot, now_us)
        rows = []
        for (queue, via), messages in together.items():
            for some in parts(messages, *rooms(queue)):
                rows.append(Row(slot, number, queue, via, some))
                number += 1
        self._add(rows)
        return rows

    def _add(self, rows: list[Row]) -> None:
        self._db.executemany(
            "INSERT INTO outbox VALUES (?, ?, ?, ?, ?)",
            [(each.slot, each.number, each.queue, each.via, _encode(each.messages)) for each in rows],
        )
        last = max(each.number for each in rows)
        self._db.execute("INSERT OR REPLACE INTO slot VALUES (?, ?)", (rows[0].slot, last))

    def _next(self, slot: int, now_us: int) -> int:
        """Numbers grow with time: those of a store that was restored from an old copy are above all that it has used
        since, which the queues remember."""
        found = self._db.execute("SELECT number FROM slot WHERE slot = ?", (slot,)).fetchone()
        return max(now_us >> 6, 0 if found is None else found[0] + 1)

    # ------------------------------------------------------------ the outbox

    def outbox(self, slot: int) -> list[Row]:
        """What is to be put, in order."""
        question = "SELECT slot, number, queue, via, messages FROM outbox WHERE slot = ? ORDER BY number"
        gone = {(each.slot, each.number) for each in self._published}
        with self._told():
            found = [
                Row(slot, number, queue, via, _decode_posted(messages))
                for _, number, queue, via, messages in self._db.execute(question, (slot,))
            ]
        return [row for row in found if (row.slot, row.number) not in gone]

    def reroute(self, row: Row, queue: str, now_us: int) -> Row:
        """To another member: as a new number, since that one may know higher ones."""
        with self._told(), self._transaction():
            moved = Row(row.slot, self._next(row.slot, now_us), queue, row.via, row.messages)
            self._db.execute("DELETE FROM outbox WHERE slot = ? AND number = ?", (row.slot, row.number))
            self._add([moved])
        return moved

    def published(self, row: Row, ids: Sequence[str] | None) -> None:
        """It is in its queue, and on disk there: noted with the next transaction. Who is killed before that has it put
        again, and the queue knows its number."""
        self._published.append(row)
        for posted, message in zip(row.messages, ids or (), strict=False):
            if posted.timer is not None:
                options = posted.message.options
                self._placed.append(Placed(options["key"], options["type"], posted.timer, row.queue, message))

    def tidy(self) -> None:
        """Now, since there is nothing else to do."""
        if self._published:
            with self._told(), self._transaction():
                self._tidy()
            self._tidied()

    def _tidy(self) -> None:
        self._db.executemany(
            "DELETE FROM outbox WHERE slot = ? AND number = ?", [(row.slot, row.number) for row in self._published]
        )
        if self._placed:
            self._place()

    def _place(self) -> None:
        """Where the messages of timers are. Another worker may have cancelled or replaced a timer since, not knowing
        of its message: it is to go now, and what is known of the new one stays."""
        asked = self._asked("SELECT key, timers FROM context WHERE key IN", list({each.key for each in self._placed}))
        standing = {timer.id for _, timers in asked for timer in _decode_timers(timers).values()}
        self._unset = [each for each in self._placed if each.timer not in standing]
        self._db.executemany(
            "INSERT OR REPLACE INTO placed VALUES (?, ?, ?, ?, ?)",
            [
                (each.key, each.type, each.timer, each.queue, each.message)
                for each in self._placed
                if each.timer in standing
            ],
        )

    def _tidied(self) -> None:
        self._stale += self._unset
        self._published, self._placed, self._unset = [], [], []

    def stale(self) -> list[Placed]:
        """Messages of timers that were unset before it was known where they are: to be cancelled. Told once."""
        found, self._stale = self._stale, []
        return found


def _done(row: tuple[Any, ...]) -> Done:
    id, queue, place, number, codec, reply = row
    return Done(id, queue, place, number, None if codec is None else (codec, reply))


def stored_bytes(message: KeptMessage) -> int:
    """About what it takes in a queue: headers may be longer than the body."""
    said = encode_meta(*(message.options.get(name) for name in ("type", "key", "headers")))
    return len(message.data) + len(said) + RECORD_BYTES


def parts(messages: list[Posted], most: int, most_bytes: int) -> Iterator[list[Posted]]:
    """What is put at once: so many messages and bytes at most, that a queue which is not empty may take them."""
    some: list[Posted] = []
    size_bytes = 0
    for each in messages:
        each_bytes = stored_bytes(each.message)
        size_bytes += each_bytes
        if some and (len(some) >= most or size_bytes > most_bytes):
            yield some
            some, size_bytes = [], each_bytes
        some.append(each)
    if some:
        yield some
