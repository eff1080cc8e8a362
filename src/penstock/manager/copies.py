"""Owns copies to all members of a macro queue: all get a message, or none, whoever is killed on the way.

One process at a time copies, by the lock of the macro queue's directory. It takes room in every member first: in each
the message is *being filled*, and seen by nobody. Then it writes down what is copied where, in the macro queue's own
directory: that file is the decision. Only then the members publish, each as a numbered batch that it takes once.
Without the file what is being filled is given back, by whoever comes by, as after any put that died. With it, whoever
has the macro queue open next puts what is missing: a member that has the number already says so. Never has two locks of
members at the same time.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.codec import decode_body, encode_body
from penstock.errors import BatchTooLarge, BodyTooLarge, Misuse, PenstockError, QueueBusy
from penstock.manager.directory import Entry as Found
from penstock.manager.directory import FileDirectory
from penstock.manager.membership import COPIES_MAX
from penstock.store import rig
from penstock.store.backoff import Backoff
from penstock.store.directory import replace_file
from penstock.store.files import LOCK, Lock, open_file, write_all
from penstock.store.publishing import NO_ENTRY, Publishing
from penstock.timequeue import TimeQueue, forking
from penstock.timequeue.clients import Client
from penstock.timequeue.once import AlreadyPublished, OncePut
from penstock.timequeue.puts import Draft, Entry, to_us

DECISION = "copy"
SPECIALS = ("type", "key", "headers", "dedup_id", "max_attempts", "lease")  # as they are

log = logging.getLogger("penstock")

Each = TypeVar("Each")


class Kept(msgspec.Struct, frozen=True):
    """A message of a decision: encoded, its times absolute."""

    codec: int
    data: bytes
    options: dict[str, Any]


class Place(msgspec.Struct, frozen=True):
    """A member that a copy goes to. It may have another name by now, and its name be that of another queue."""

    name: str
    uuid: str


class Decision(msgspec.Struct, frozen=True):
    """What is copied where, and as whose batch: the file ``copy``."""

    publisher: str
    number: int
    members: list[Place]
    sync: bool
    messages: list[Kept]


class Sealed(msgspec.Struct, frozen=True):
    """The file: with a check, since of one that was never synced a power loss may leave a part, or zeros inside."""

    check: int
    data: bytes


_unseal = msgspec.msgpack.Decoder(Sealed).decode
_decode = msgspec.msgpack.Decoder(Decision).decode
_encode = msgspec.msgpack.Encoder().encode


class Elsewhere(Exception):
    """What went wrong in a member further on. As an error of its own, so that a put that has room does not take it for
    a lack of room or disk that it could mend, and go on without the others. Never seen by a caller of the queue."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class CopyPut(OncePut):
    """The put into one member. When it has room there, the next member's turn comes; this one goes on after it."""

    def __init__(self, client: Client, name: str, number: int, *, wait_s: float, then: Callable[[], None]) -> None:
        super().__init__(client, name, number, wait_s=wait_s)
        self._then = then
        self.has_room = False

    def announce(self, slot: int, number: int, count: int, sync: bool) -> None:
        super().announce(slot, number, count, sync)
        if not self.has_room:  # else it is tried again, after the disk was full
            self.has_room = True
            try:
                self._then()
            except Exception as error:
                raise Elsewhere(error) from error


class Copies:
    """The copies of one macro queue, made by one of its objects."""

    def __init__(self, path: Path, uuid: str, *, busy_s: float) -> None:
        self._file = path / DECISION
        self._path = path
        self._busy_s = busy_s
        self.publisher = f"macro-{uuid}"
        self._mutex = threading.Lock()

    def put(
        self, queues: Sequence[tuple[str, TimeQueue]], drafts: Sequence[Draft], durability: str | None, now_us: int
    ) -> list[list[Entry]]:
        """All of them into each of these members, or none anywhere; the entries of each. An error means none."""
        if len(queues) > COPIES_MAX:
            raise Misuse(f"{self._path}: copies go to {COPIES_MAX} members at most, not {len(queues)}")
        ordered = in_order(queues, lambda each: each[1])
        sync = any(queue._is_synced(durability) for _, queue in queues)
        with self._alone():
            self._finish([queue for _, queue in queues])
            decision = Decision(
                publisher=self.publisher,
                number=max(_last(queue, self.publisher) for _, queue in queues) + 1,
                members=[Place(name, uuid_of(queue)) for name, queue in ordered],
                sync=sync,
                messages=[kept(draft, now_us) for draft in drafts],
            )
            copying = _Copying(self, decision, ordered)
            copying.run()
            if not copying.unfinished:
                self._forget()
        entries = dict(zip((name for name, _ in ordered), copying.entries, strict=True))
        return [entries[name] for name, _ in queues]

    def is_unfinished(self) -> bool:
        return self._file.exists()

    def finish(self, queues: Sequence[TimeQueue]) -> None:
        """Complete what one that died has decided, unless somebody is about it. What cannot be completed now stays.
        ``queues`` are those that are open already."""
        if not self.is_unfinished():
            return
        try:
            with self._alone(wait_s=0.0):
                self._finish(queues)
        except (PenstockError, OSError) as error:
            log.debug("%s: a copy to all members cannot be completed yet: %s", self._path, error)

    def _finish(self, queues: Sequence[TimeQueue]) -> None:
        """Of a decision: put it wherever it is missing. An error leaves it as it is, for the next one."""
        decision = self._read()
        if decision is None:
            return
        opened = {uuid_of(queue): queue for queue in queues}
        first: Exception | None = None
        for member in decision.members:
            try:
                self._complete(decision, member, opened.get(member.uuid))
            except (PenstockError, OSError) as error:  # no reason for those that follow to wait
                first = first or error
        if first is not None:
            raise first
        self._forget()

    def _complete(self, decision: Decision, member: Place, known: TimeQueue | None) -> None:
        durability = "commit" if decision.sync else "relaxed"
        with self._opened(decision, member, known) as queue:
            if queue is None:
                log.warning("%s: %s is gone, and does not get a copy that was decided", self._path, member.name)
                return
            try:
                make = functools.partial(entries_of, queue, decision)
                queue.put_entries_once(decision.publisher, decision.number, make, None, durability)
            except (BatchTooLarge, BodyTooLarge) as error:  # it was made smaller since, and nothing will change that
                log.error("%s: %s does not get a copy that was decided: %s", self._path, member.name, error)

    @contextlib.contextmanager
    def _opened(self, decision: Decision, member: Place, known: TimeQueue | None) -> Iterator[TimeQueue | None]:
        """A member of a decision, also one that was removed or renamed since; None if it is gone for good."""
        entry = None if known is not None else self._find(member)
        if entry is None:
            yield known
            return
        with TimeQueue(entry.place, busy_s=self._busy_s) as queue:
            # Another UUID has a stranger of its name, or the same queue in a copy of the root: that one knows us.
            is_it = uuid_of(queue) == member.uuid or _knows(queue, decision.publisher)
            yield queue if is_it else None

    def _find(self, member: Place) -> Found | None:
        """By its name first: a queue that is damaged does not say its UUID, and is not gone."""
        files = FileDirectory(self._path.parent)
        named = files.find(member.name)
        if named is not None and named.macro is not None:
            named = None
        if named is not None and named.uuid in (member.uuid, None):
            return named
        return files.find_uuid(member.uuid) or named

    # ------------------------------------------------------------ the file

    def decide(self, decision: Decision) -> None:
        said = _encode(decision)
        data = _encode(Sealed(zlib.crc32(said), said))
        if decision.sync:
            replace_file(self._file, data)
            return
        aside = self._file.with_name(f"{DECISION}.new")
        fd = open_file(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data, 0)
        finally:
            os.close(fd)
        rig.effect(rig.RENAME, str(aside))
        os.rename(aside, self._file)

    def _read(self) -> Decision | None:
        """None if there is none. Of those that can be torn nobody was promised anything: a decision to sync is on disk
        as a whole before it has its name, a relaxed one is renamed without a sync, and no kill tears it."""
        try:
            sealed = _unseal(self._file.read_bytes())
            if zlib.crc32(sealed.data) == sealed.check:
                return _decode(sealed.data)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            pass
        log.warning("%s: torn, as by a power loss: what was to be copied is not known, and it is dropped", self._file)
        self._forget()
        return None

    def _forget(self) -> None:
        """Not synced: one that is back after a power loss is found to be done everywhere."""
        rig.effect(rig.UNLINK, str(self._file))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file)

    @contextlib.contextmanager
    def _alone(self, wait_s: float | None = None) -> Iterator[None]:
        """One process, and one thread of it, at a time."""
        patience_s = self._busy_s if wait_s is None else wait_s
        mutex = self._mutex
        if not mutex.acquire(timeout=patience_s):
            raise QueueBusy(str(self._path), waited_s=patience_s)
        try:
            with forking.locked(lambda: Lock(self._path / LOCK, str(self._path), patience_s)):
                yield
        finally:
            mutex.release()

    def after_fork_in_child(self) -> None:
        self._mutex = threading.Lock()


class _Copying:
    """One copy on its way. Before the decision an error ends all; after it, it ends nothing."""

    def __init__(self, copies: Copies, decision: Decision, queues: Sequence[tuple[str, TimeQueue]]) -> None:
        self._copies = copies
        self._decision = decision
        self._queues = queues
        self._decided = False
        self.entries = [entries_of(queue, decision) for _, queue in queues]
        self.unfinished = False

    def run(self) -> None:
        self._into(0)

    def _into(self, n: int) -> None:
        """Room in member ``n``, then in all that follow, then the decision; and back on the way each publishes."""
        if n == len(self._queues):
            self._copies.decide(self._decision)
            self._decided = True
            return
        name, queue = self._queues[n]
        try:
            self._put(n, queue)
        except AlreadyPublished:
            raise Misuse(f"{name}: somebody else publishes there as {self._copies.publisher!r}") from None
        except (PenstockError, OSError) as error:
            if not self._decided:
                raise
            self.unfinished = True
            log.warning("%s: a copy that is decided comes later: %s", name, error)

    def _put(self, n: int, queue: TimeQueue) -> None:
        once = CopyPut(
            queue._mine(),
            self._copies.publisher,
            self._decision.number,
            wait_s=queue._busy_s,
            then=lambda: self._into(n + 1),
        )
        try:
            with once:
                queue._put(self.entries[n], None, "commit" if self._decision.sync else "relaxed", once)
        except Elsewhere as elsewhere:
            raise elsewhere.error from None
        if not once.has_room:  # it had all of them already, by their dedup ids
            self._into(n + 1)


# ---------------------------------------------------------------- messages, written down and back


def kept(draft: Draft, now_us: int) -> Kept:
    """A draft as it is to be put later as well: what counts from now is said as a time."""
    codec, data = encode_body(draft.body)
    options: dict[str, Any] = {name: value for name in SPECIALS if (value := getattr(draft, name)) is not None}
    options["priority"] = draft.priority
    deliver_us = to_us(draft.deliver_at, draft.delay, now_us)
    if deliver_us:
        options["deliver_at"] = deliver_us / 1e6
    if draft.expires_at is not None or draft.ttl is not None:
        options["expires_at"] = (to_us(draft.expires_at, draft.ttl, now_us) or now_us) / 1e6
    if draft.dedup_window is not None:
        window = draft.dedup_window
        options["dedup_window"] = window if isinstance(window, int | float) else window.total_seconds()
    if draft.backoff is not None:
        options["backoff"] = msgspec.to_builtins(draft.backoff)
    return Kept(codec, data, options)


def entries_of(queue: TimeQueue, decision: Decision) -> list[Entry]:
    return list(queue._entries([draft_of(message) for message in decision.messages], {}))


def draft_of(message: Kept) -> Draft:
    """The way back."""
    options = dict(message.options)
    if isinstance(options.get("backoff"), dict):
        options["backoff"] = Backoff(**options["backoff"])
    return Draft(body=decode_body(message.codec, message.data), **options)


def _last(queue: TimeQueue, publisher: str) -> int:
    """The last copy that a member has."""
    client = queue._mine()
    return client.turn(_look_up, Publishing(client.kernel), publisher)


def _look_up(publishing: Publishing, publisher: str) -> int:
    entry = publishing.find(publisher)
    return -1 if entry == NO_ENTRY else publishing.last(entry)


def _knows(queue: TimeQueue, publisher: str) -> bool:
    client = queue._mine()
    return client.turn(Publishing(client.kernel).find, publisher) != NO_ENTRY


def in_order(several: Iterable[Each], queue_of: Callable[[Each], TimeQueue]) -> list[Each]:
    """In which room is taken: the same for all who copy, by the UUIDs. Who has room in one member may wait in another
    for whoever is putting a message of the same dedup id, and never the other way round."""
    return sorted(several, key=lambda each: uuid_of(queue_of(each)))


def uuid_of(queue: TimeQueue) -> str:
    return queue._mine().options.uuid
