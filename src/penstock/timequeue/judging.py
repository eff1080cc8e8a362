"""Owns carrying out the verdicts of a claim that is committed: messages of it that fail, or become dead letters.

Each leaves its claim in one transaction, after what has to be elsewhere first. So whoever dies on the way leaves the
others in the claim, and the next receiver of the name reads the same verdicts. Whatever cannot be done now lets the
message wait: none is acknowledged, and none is in the way of the others. Never reads or writes the verdicts' file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.errors import Corrupt, LeaseLost
from penstock.message import DONE, Message
from penstock.store import layout as L
from penstock.store.claiming import Claiming
from penstock.store.outcomes import FAILED, texts
from penstock.store.verdictfiles import Kept, KeptAnswer, KeptDead, KeptFailed
from penstock.timequeue.clients import Client
from penstock.timequeue.holder import Holder
from penstock.timequeue.retries import MAX_ATTEMPTS, PARKED_US, backoff_us, limit_of

log = logging.getLogger("penstock")

Turn = Callable[..., Any]  # a turn at the lock in which the receiver still has its name


class Giving(Protocol):
    """What of a queue is needed to give a claimed message up."""

    def _mine(self) -> Client: ...
    def read_claimed(self, slot: int, owner: int) -> Message | None: ...
    def give_up_claimed(self, message: Message, reason: str, error: str | None, holder: Holder) -> None: ...
    def note_claimed(self, message: Message, result: int, text: bytes) -> None: ...


def ends_otherwise(verdicts: Iterable[Kept]) -> bool:
    """Whether a message of the claim is not acknowledged."""
    return any(not isinstance(verdict, KeptAnswer) for verdict in verdicts)


class Judging:
    """The messages of one receiver's claims, each as long as it is in one: see ``Holder``."""

    def __init__(self, queue: Giving, claiming: Claiming, entry: int, turn: Turn) -> None:
        self._queue = queue
        self._client = queue._mine()
        self._kernel = self._client.kernel
        self._claiming = claiming
        self._entry = entry
        self._turn = turn

    def carry_out(self, claim: int, verdicts: Iterable[Kept]) -> None:
        """Those whose messages are still in this claim; what is said of others has come true."""
        for verdict in verdicts:
            if self._is_in(claim, verdict.slot, verdict.number):
                if isinstance(verdict, KeptFailed):
                    self._fail(verdict)
                elif isinstance(verdict, KeptDead):
                    self._bury(verdict)

    def _is_in(self, claim: int, slot: int, number: int) -> bool:
        """Takes no lock: nobody but us moves them."""
        return self._claiming.holds(self._entry, slot, number) and self._claiming.claim_of(slot) == claim

    def _fail(self, verdict: KeptFailed) -> None:
        """As ``TimeQueue.fail``."""
        options = self._client.options
        message = self._read(verdict)
        if message is not None and 0 < limit_of(message, options.max_attempts or 0) <= message.attempts:
            self._queue.give_up_claimed(message, MAX_ATTEMPTS, verdict.error, self)
            return
        self._note(verdict)
        if verdict.delay_us is not None:
            wait_us = verdict.delay_us
        elif message is not None:
            wait_us = backoff_us(message, options.backoff) or verdict.plain_us
        else:
            attempts = self._kernel.attempts(verdict.slot)
            wait_us = options.backoff.delay_us(attempts, verdict.number) if options.backoff is not None else 0
            wait_us = wait_us or verdict.plain_us
        self._turn(self._put_off, verdict.slot, verdict.number, wait_us, message, verdict.error)

    def _bury(self, verdict: KeptDead) -> None:
        message = self._read(verdict)
        if message is not None:
            self._queue.give_up_claimed(message, verdict.reason, verdict.error, self)
            return
        self._note(verdict)
        self._turn(self._park, verdict.slot, verdict.number, PARKED_US)

    def _read(self, verdict: KeptFailed | KeptDead) -> Message | None:
        """None where that is not possible: it waits then, and whoever gets it next sees to it."""
        try:
            return self._queue.read_claimed(verdict.slot, self._claiming.owner(self._entry))
        except (Corrupt, OSError) as error:
            log.warning("%s: a message waits, since it cannot be read: %s", self._client.name, error)
            return None

    def _note(self, verdict: KeptFailed | KeptDead) -> None:
        """Its error, once: whoever died may have noted it."""
        if verdict.error is None:
            return
        failures, slot, number = self._client.failures, verdict.slot, verdict.number
        before = failures.read(number, slot)
        since_us = self._kernel.field(slot, L.S_ATTEMPT_US)
        if not (before and before[-1][1] == verdict.error and before[-1][0] >= since_us > 0):
            failures.note(number, slot, self._client.clock.wall_us(), verdict.error)

    # ------------------------------------------------------------ as the holder of what is moved

    def holds(self, message: Message) -> bool:
        return self._claiming.holds(self._entry, message.slot, message.number)

    def keep(self, message: Message, span_us: int) -> None:
        """A claim has no end of its own."""
        self._turn(self._require, message)

    def remove(self, messages: Iterable[Message], statistic: int, result: int, text: bytes) -> None:
        for message in messages:
            self._turn(self._remove, message, statistic, result, text)
            if message.attempts > 1:
                self._client.failures.forget(message.number, message.slot)

    def park(self, message: Message, delay_us: int) -> None:
        self._turn(self._park, message.slot, message.number, delay_us)
        message.state = DONE

    # ------------------------------------------------------------ inside a turn

    def _require(self, message: Message) -> None:
        if not self.holds(message):
            raise LeaseLost(self._client.name, message.id)

    def _remove(self, message: Message, statistic: int, result: int, text: bytes) -> None:
        self._require(message)
        self._client.done_us()
        spilled_bytes = message.body_bytes if self._kernel.spilled(message.slot) else 0
        self._claiming.remove(self._entry, message.slot, spilled_bytes, statistic)
        self._queue.note_claimed(message, result, text)
        message.state = DONE

    def _park(self, slot: int, number: int, delay_us: int) -> None:
        if self._claiming.holds(self._entry, slot, number):
            self._kernel.count(L.T_PARKED, 1)
            self._put_off(slot, number, delay_us)

    def _put_off(
        self, slot: int, number: int, delay_us: int, message: Message | None = None, error: str | None = None
    ) -> None:
        if self._claiming.holds(self._entry, slot, number):
            now_us = self._client.clock.wall_us()
            self._client.advance_rates(now_us)
            self._claiming.put_off(self._entry, slot, now_us + delay_us if delay_us else 0, now_us)
            if message is not None:
                self._queue.note_claimed(message, FAILED, texts("", error))
