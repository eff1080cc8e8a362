"""Owns which messages a worker works on next: of each key one at a time, in the order of its queue, and alone what was
delivered before. Where keys may come from several queues, a key's lock is held from here on until the worker is done
with it. Never runs a script.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from penstock.errors import LeaseLost, Misuse, QueueInactive
from penstock.manager import MacroQueue
from penstock.manager.managed import ManagedQueue
from penstock.message import Message
from penstock.scripts.folder import Folder, KeyLocks
from penstock.timequeue import TimeQueue

LOOK_S = 0.02  # between looks at the lock of a key that another worker has: doubled each time in vain
LOOK_S_MAX = 0.25


class Taking:
    """The messages that one worker has in hand."""

    def __init__(self, folder: Folder, input: ManagedQueue, *, batch: int, lease_s: float | None) -> None:
        self._input = input
        self._inner: Any = input._inner
        self._batch = batch
        self._lease_s = lease_s
        self._parked: list[Message] = []  # another worker has their key
        self._look_s = LOOK_S
        self._careful = False
        self._most = batch  # fewer where scripts take long
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()  # queues that have exclusive keys
        self.batch: list[Message] = []
        for home in self.homes():
            _require_exclusive(home)
        self._locks = KeyLocks(folder) if isinstance(self._inner, MacroQueue) else None

    def homes(self) -> list[TimeQueue]:
        """The queues that messages come from."""
        return homes_of(self._input)

    def in_hand(self) -> list[Message]:
        return [*self.batch, *self._parked]

    @property
    def waits(self) -> bool:
        """Whether there are messages whose key another worker has."""
        return bool(self._parked)

    # ------------------------------------------------------------ taking

    def take(self, wait_s: float) -> list[Message]:
        """The next messages to work on, each of another key; none after so many seconds."""
        parked, self._parked = self._parked, []
        self.batch = [message for message in parked if self._admit(message)]
        if not (self._careful and self.batch):
            self.batch += self._get(0.0 if self.batch else wait_s)
        self.batch = self._one_by_one(self.batch)
        if self.batch or not self._parked:
            self._look_s = LOOK_S
        return self.batch

    def _get(self, wait_s: float) -> list[Message]:
        most = 1 if self._careful else self._most
        if self._parked and not self.batch:
            wait_s, self._look_s = self._look_s, min(self._look_s * 2, LOOK_S_MAX)
        try:
            found: list[Message] = self._input.get_many(most, wait=wait_s, lease=self._lease_s)
        except QueueInactive:
            time.sleep(wait_s)
            return []
        if not found:
            self._careful = False
        for message in found:
            if message._receiver not in self._known:
                self._require(message._receiver, found)
        return [message for message in found if self._admit(message)]

    def _require(self, home: Any, found: list[Message]) -> None:
        try:
            _require_exclusive(home)
        except Misuse:
            self._input.unget(found)
            raise
        self._known.add(home)

    def _admit(self, message: Message) -> bool:
        """Whether it can be worked on now. Else it is kept: so its queue gives nobody the next of its key."""
        if self._locks is None or message.key is None or self._locks.take(message.key):
            return True
        receiver: Any = message._receiver
        if receiver._consumer.holds(message):  # else its lease ended, and somebody else has it
            self._parked.append(message)
        return False

    def _one_by_one(self, ready: list[Message]) -> list[Message]:
        """A message that was delivered before may have killed its worker: it is worked on alone, so that others are not
        charged with an attempt for it."""
        first = next((n for n, message in enumerate(ready) if message.attempts > 1), None)
        self._careful = first == 0
        if first is None or len(ready) == 1:
            return ready
        begun, rest = ready[: max(first, 1)], ready[max(first, 1) :]
        self._unget(rest)
        return begun

    def _unget(self, messages: list[Message]) -> None:
        """Others may have them, and their keys."""
        self._input.unget(messages)
        if self._locks is not None:
            for message in messages:
                if message.key is not None:
                    self._locks.leave(message.key)

    # ------------------------------------------------------------ the end

    def enough(self, begun: int) -> None:
        """There was time for so many of the batch only: the others are for the next, or for another worker."""
        rest, self.batch = self.batch[begun:], self.batch[:begun]
        self._most = max(begun, 1)
        self._unget(rest)

    def finished(self) -> None:
        """The batch is done with: others may have its keys. The next one may be larger, up to what was asked for."""
        if len(self.batch) >= self._most:
            self._most = min(self._most * 2, self._batch)
        self.batch = []
        if self._locks is not None:
            self._locks.leave_all()

    def give_back(self) -> None:
        """All that is in hand, uncounted."""
        in_hand = self.in_hand()
        self._parked = []
        try:
            if in_hand:
                self._input.unget(in_hand)
        except LeaseLost:
            pass
        self.finished()

    def close(self) -> None:
        self.give_back()
        if self._locks is not None:
            self._locks.close()


def _require_exclusive(queue: TimeQueue) -> None:
    if not queue._mine().options.exclusive_keys:
        raise Misuse(
            f"{queue.name}: an input of scripts needs exclusive_keys, which keep the messages of a key in order; make "
            f"the queue with exclusive_keys=True (penstock create --exclusive-keys)"
        )


def homes_of(input: ManagedQueue) -> list[TimeQueue]:
    """The queues that messages of an input come from."""
    inner: Any = input._inner
    if isinstance(inner, MacroQueue):
        inner._mine()
        return [member.queue for member in inner._members.opened()]
    return [inner]
