"""Owns batches that are put once: a publisher numbers them, and a number that is published is never published again.

The kernel remembers a publisher's last number with the batch itself, so that no kill comes between. For a power loss a
file says, before anything of a batch is written, which message is its first: a restore looks whether that one came to
be. An attempt that died must not come back after the next one: its end is on disk before that begins. One call at a
time has a publisher's name, by a lock that the system drops with its process. Never encodes a message.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from types import TracebackType

import msgspec

from penstock.errors import Misuse, PublisherBusy, TooManyPublishers
from penstock.store import layout as L
from penstock.store import publishfiles
from penstock.store.publishfiles import PublishFiles, State
from penstock.store.publishing import NO_ENTRY, NUMBER_MAX, Publishing
from penstock.timequeue.clients import Client

RETRY_S = 0.02


class PublisherInfo(msgspec.Struct, frozen=True):
    """A publisher, for people."""

    publisher: str
    last: int | None  # number of the last batch that is published
    seen_at: float | None


class AlreadyPublished(Exception):
    """Somebody else has published this batch since; never seen by a caller of the queue."""


class OncePut:
    """One call of ``put_once``."""

    def __init__(self, client: Client, name: str, number: int, *, wait_s: float) -> None:
        if number.__class__ is not int or not 0 <= number <= NUMBER_MAX:
            raise Misuse(f"the number of a batch must be a whole number from 0 to {NUMBER_MAX}, not {number!r}")
        self._client = client
        self._name = publishfiles.check_name(name)
        self._number = number
        self._wait_s = wait_s
        self._publishing = Publishing(client.kernel)
        self._files = PublishFiles(client.path, name, client.signature)
        self._entry = NO_ENTRY
        self._fd = -1

    def __enter__(self) -> OncePut:
        self._fd = locked(self._client, self._files, self._name, self._wait_s)
        _under_way.add(self)
        try:
            self._enter()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _enter(self) -> None:
        """A publisher that has no file is new: its name is on disk before its first number can be, and what an earlier
        one of its name may have left there is gone."""
        self._entry = self._client.turn(self._make)
        if self._files.read() is None:
            self._client.syncs.sync_index()
            self._files.write(State(last=self._last()))

    def _make(self) -> int:
        entry = self._publishing.make(self._name)
        if entry == NO_ENTRY:
            raise TooManyPublishers(self._client.name, limit=L.PUBLISHERS)
        self._publishing.seen(entry, self._client.clock.wall_us())
        return entry

    def _last(self) -> int:
        return self._client.turn(self._publishing.last, self._entry)

    def is_done(self) -> bool:
        """Whether this batch, or a later one, is published."""
        return self._number <= self._last()

    # ------------------------------------------------------------ called on the way of a put

    def announce(self, slot: int, number: int, count: int, sync: bool) -> None:
        """Nothing of the batch is written yet. From here on a power loss may bring it back as a whole: the file knows
        it then."""
        self._bury_earlier()
        if sync:
            self._files.write(State(self._last(), self._number, slot, number, count))

    def _bury_earlier(self) -> None:
        """An attempt that was given up may be on disk as a whole. That it was given up must be, too."""
        state = self._files.read()
        if state is None or state.batch <= self._last():
            return
        deadline = time.monotonic() + self._wait_s
        while not self._client.turn(self._is_given_up, state):
            if time.monotonic() >= deadline:
                raise PublisherBusy(self._client.name, self._name)
            time.sleep(RETRY_S)
        self._client.syncs.sync_index()

    def _is_given_up(self, state: State) -> bool:
        kernel = self._client.kernel
        self._client.return_from_dead()
        return kernel.number(state.slot) != state.number or kernel.state(state.slot) != L.STATE_FILLING

    def due(self) -> tuple[int, int]:
        """Under the lock, in the transaction that publishes: the entry and what it is to remember."""
        publishing = self._publishing
        if publishing.find(self._name) != self._entry or publishing.last(self._entry) >= self._number:
            raise AlreadyPublished
        return publishing.at(self._entry), publishing.word_of(self._entry, self._number)

    def remember(self) -> None:
        """A batch without messages."""
        self._client.turn(self._remember)

    def _remember(self) -> None:
        with contextlib.suppress(AlreadyPublished):
            self._client.kernel.remember(*self.due())


def locked(client: Client, files: PublishFiles, name: str, wait_s: float) -> int:
    """A publisher's lock; ``PublisherBusy`` if somebody else has it, and still has it after so many seconds."""
    deadline = time.monotonic() + wait_s
    while (fd := files.lock()) < 0:
        if time.monotonic() >= deadline:
            raise PublisherBusy(client.name, name)
        time.sleep(RETRY_S)
    return fd


# ---------------------------------------------------------------- for operators


def publishers(client: Client) -> list[PublisherInfo]:
    """Every publisher that the queue remembers."""
    publishing = Publishing(client.kernel)
    return client.turn(_look, publishing)


def _look(publishing: Publishing) -> list[PublisherInfo]:
    found = []
    for name, entry in sorted(publishing.names().items()):
        last = publishing.last(entry)
        found.append(PublisherInfo(name, last if last >= 0 else None, publishing.seen_us(entry) / 1e6 or None))
    return found


def forget(client: Client, name: str, *, wait_s: float) -> bool:
    """Forget a publisher and its numbers, for good; False if there is none. The file goes first: without it the kernel
    alone knows the number, until it does not either."""
    files = PublishFiles(client.path, name, client.signature)
    publishing = Publishing(client.kernel)
    if client.turn(publishing.find, name) == NO_ENTRY and not files.exists():
        return False
    fd = locked(client, files, name, wait_s)
    try:
        files.forget()
        known = client.turn(_free, publishing, name)
        client.syncs.sync_index()
        files.remove()
    finally:
        os.close(fd)
    return known


def _free(publishing: Publishing, name: str) -> bool:
    entry = publishing.find(name)
    if entry != NO_ENTRY:
        publishing.free(entry)
    return entry != NO_ENTRY


# ---------------------------------------------------------------- fork: a lock stays with the process that took it

_under_way: weakref.WeakSet[OncePut] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Only close: the lock belongs to the description, which the parent has as well."""
    for once in list(_under_way):
        with contextlib.suppress(OSError):
            once.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
