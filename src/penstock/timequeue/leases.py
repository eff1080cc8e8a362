"""Owns the second half of a message's life: claim, copy out, then ack, release or extend; and what comes back.

A delivery is (slot, number, attempts) of one owner. Each call checks it under the lock, so that a late owner's ack
harms nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from penstock.errors import Corrupt, LeaseLost, Misuse
from penstock.message import DONE, PENDING, Message, Receiver, new_message
from penstock.store import layout as L
from penstock.store import record
from penstock.store.classes import Choice
from penstock.store.hashes import hash_of
from penstock.store.kernel import Delivery
from penstock.store.outcomes import ACKED, FAILED, Outcomes, texts
from penstock.timequeue.clients import DEAD_LOOK_US, RETURNED_A_TURN_MAX, Client
from penstock.timequeue.notify import sleep_s
from penstock.timequeue.retries import fate
from penstock.timequeue.spilled import Spilled

VERDICTS_MAX = 256  # metas that differ each time are not worth keeping


class Wanted:
    """The types and keys that a receiver wants: one of each, where there are any. Without either it wants nothing."""

    def __init__(self, types: tuple[str, ...], keys: tuple[str, ...], choice: Choice) -> None:
        self.types = types
        self.keys = keys
        self.choice = choice
        self.verdicts: dict[bytes, bool] = {}  # by meta: that of one type or key is often the same

    def is_met(self, message: Message) -> bool:
        """By the text itself: two may have the same hash."""
        verdict = self.verdicts.get(message._meta_bytes)
        if verdict is None:
            verdict = (not self.types or message.type in self.types) and (not self.keys or message.key in self.keys)
            if len(self.verdicts) < VERDICTS_MAX:
                self.verdicts[message._meta_bytes] = verdict
        return verdict


def wanted(types: tuple[str, ...], keys: tuple[str, ...], secret: int) -> Wanted:
    choice = Choice([hash_of(one, secret, False) for one in types], [hash_of(one, secret, True) for one in keys])
    return Wanted(types, keys, choice)


class Look:
    """What a receiver found in one turn: deliveries, or how to sleep until there may be some."""

    __slots__ = ("again", "deliveries", "lease_us", "now_us", "seen", "sleep_s")

    def __init__(
        self, deliveries: list[Delivery], now_us: int, lease_us: int, seen: int, sleep_s: float, again: bool
    ) -> None:
        self.deliveries = deliveries
        self.now_us = now_us
        self.lease_us = lease_us
        self.seen = seen
        self.sleep_s = sleep_s
        self.again = again  # something came back: look once more


def _checked(message: Any) -> Message:
    if not isinstance(message, Message):
        raise Misuse(f"{message!r} is not a message")
    return message


class Consumer:
    """Gets messages for one client."""

    def __init__(self, client: Client, receiver: Receiver) -> None:
        self._client = client
        self._kernel = client.kernel
        self._files = client.files
        self._receiver = receiver
        self._max_attempts = client.options.max_attempts or 0
        self._known = False  # whether the client's entry says that it consumes
        self._retried = False  # whether the last ack was of messages that were delivered before

    def receive(self, most: int, wait_s: float | None, lease_us: int, wanted: Wanted | None = None) -> list[Message]:
        """Up to ``most`` messages, as soon as there is one; none after ``wait_s`` seconds (None: never give up)."""
        deadline = None if wait_s is None or wait_s == 0 else time.monotonic() + wait_s
        timed_out: int | None = None
        left_s = wait_s
        unmet: list[Message] = []
        try:
            while True:
                look = self.look(most, lease_us, left_s, timed_out, wanted)
                timed_out = None
                if look.deliveries:
                    found = self.messages(look)
                    if wanted is not None:
                        found = self._met(found, wanted, unmet)
                    if found:
                        return found
                elif look.again:
                    continue
                elif left_s == 0:
                    return []
                else:
                    if unmet:
                        self._give_back_all(unmet)
                    timed_out = None if self._client.receivers.sleep(look.seen, look.sleep_s) else look.seen
                if deadline is not None:
                    left_s = max(deadline - time.monotonic(), 0.0)
        finally:
            if unmet:
                self._give_back_all(unmet)

    def _met(self, messages: list[Message], wanted: Wanted, unmet: list[Message]) -> list[Message]:
        """Those that were wanted. Others have the hash of one that was: they are kept out of the way until the end of
        the search."""
        found = []
        for message in messages:
            if wanted.is_met(message):
                found.append(message)
            else:
                unmet.append(message)
        return found

    def _give_back_all(self, messages: list[Message]) -> None:
        while messages:
            with contextlib.suppress(LeaseLost):
                self.release(messages.pop(), 0)

    def look(
        self, most: int, lease_us: int, left_s: float | None, timed_out: int | None, wanted: Wanted | None = None
    ) -> Look:
        """One turn: take what is due; if nothing is, look for dead owners, and arm if the caller wants to wait.

        ``left_s`` is how long it would wait: None for ever, 0 not at all. ``timed_out`` is the bell's value that it
        armed with, if its sleep ended by itself.
        """
        return self._client.turn(self._look, most, lease_us, left_s, timed_out, wanted)

    def look_at_once(self, most: int, lease_us: int, wanted: Wanted | None = None) -> Look:
        """The same for an event loop, without arming: ``QueueBusy`` if the lock is not free."""
        look: Look = self._client.turn_at_once(self._look, (most, lease_us, 0, None, wanted))
        return look

    def sleep(self, seen: int, seconds: float) -> bool:
        """Armed with this value of the bell. False when the time ran out."""
        return bool(self._client.receivers.sleep(seen, seconds))

    def has_trees(self) -> bool:
        """Else only the records say of what types and keys messages are."""
        return self._kernel.trees_at != 0

    def stand_down(self, seen: int, chooses: bool = False) -> None:
        """A receiver that armed when the bell had this value, and wants nothing any more."""
        self._client.turn(self._stand_down, seen, chooses)

    def _stand_down(self, seen: int, chooses: bool) -> None:
        if self._kernel.get(L.H_WAKE) == seen and chooses:
            self._kernel.sleepers.disarm_choosing(seen)
        elif self._kernel.get(L.H_WAKE) == seen:
            self._kernel.sleepers.disarm(L.H_WAKE, seen)
        else:  # perhaps it was our sleep that was ended for what is due
            self._kernel.pass_on(self._client.clock.wall_us())

    def _look(
        self, most: int, lease_us: int, left_s: float | None, timed_out: int | None, wanted: Wanted | None
    ) -> Look:
        kernel = self._kernel
        client = self._client
        if timed_out is not None:
            if wanted is None:
                kernel.sleepers.disarm(L.H_WAKE, timed_out)
            else:
                kernel.sleepers.disarm_choosing(timed_out)
        now_us = client.clock.wall_us()
        boot_us = client.clock.boot_us()
        if kernel.measuring.is_tick(now_us):
            kernel.measuring.advance(now_us, boot_us)
        if not self._known:
            self._known = True
            client.table.note(client.index, L.CLIENT_CONSUMES)
        next_lease_us = kernel.order.next_lease_us()
        if next_lease_us and next_lease_us <= boot_us:
            kernel.expire(boot_us, now_us, RETURNED_A_TURN_MAX)
        if boot_us - client.looked_us > DEAD_LOOK_US and client.return_from_dead() >= RETURNED_A_TURN_MAX:
            client.looked_us = 0  # there is more: all of it comes back before anything is taken, to keep the order
            return Look([], now_us, lease_us, 0, 0.0, True)
        choice = None if wanted is None else wanted.choice
        deliveries = kernel.claim_many(choice, most, now_us, boot_us + lease_us, client.index, client.owner)
        if not deliveries and client.return_from_dead():
            client.looked_us = 0
            return Look([], now_us, lease_us, 0, 0.0, True)
        if deliveries or left_s == 0:
            return Look(deliveries, now_us, lease_us, 0, 0.0, False)
        nap_s = sleep_s(
            now_us=now_us,
            boot_us=boot_us,
            next_due_us=kernel.order.next_due_us() if wanted is None else kernel.classes.next_us,
            next_lease_us=kernel.order.next_lease_us(),
            left_s=left_s,
        )
        seen = kernel.sleepers.arm(L.H_WAKE) if wanted is None else kernel.sleepers.arm_choosing()
        return Look(deliveries, now_us, lease_us, seen, nap_s, False)

    def messages(self, look: Look) -> list[Message]:
        """Copy out what was claimed. A delivery whose lease ended meanwhile is somebody else's and is left out; so is
        one of a message that has expired or was delivered too often, which is done with here."""
        owner = self._client.owner
        found = []
        damaged = None
        try:
            for delivery in look.deliveries:
                damaged = delivery
                message = self.read(delivery, look.now_us, look.now_us + look.lease_us, owner, PENDING)
                if message is not None and (
                    (message.attempts == 1 and not message._special) or self._is_due(message, look.now_us)
                ):
                    found.append(message)
        except Corrupt:
            # The damaged one comes back after a lease's time: it is not in everybody's way, nor in the next process's.
            self._client.turn(self._give_back, look.deliveries, damaged, look.lease_us)
            raise
        except BaseException:
            self._client.turn(self._give_back, look.deliveries, None, 0)
            raise
        return found

    def must_read_files(self, look: Look) -> bool:
        """Whether a body has a file of its own, which may have to come from the disk, or a message may have to be moved
        to another queue."""
        for delivery in look.deliveries:
            if self._kernel.spilled(delivery.slot) or 0 < self._max_attempts < delivery.attempts:
                return True
            if delivery.attempts > 1 and self._client.begun.any():
                return True
            if (self._kernel.field(delivery.slot, L.S_INFO) >> L.FLAGS_SHIFT) & L.FLAG_SPECIAL:
                return True
        return False

    def give_back(self, look: Look) -> None:
        """What was taken and not yet copied out."""
        self._client.turn(self._give_back, look.deliveries, None, 0)

    def _is_due(self, message: Message, now_us: int) -> bool:
        """Whether a message with limits, or one that was delivered before, is to be delivered. If it is, its own lease
        begins; if not, it is given up, or moved to where somebody who died was moving it."""
        if message.attempts > 1 and self._receiver.finish_move(message):
            return False
        reason = fate(message, self._max_attempts, now_us)
        if reason is not None:
            self._receiver.give_up(message, reason)
            return False
        if message._special and message.meta.l is not None and message.meta.r is None:
            try:
                self.extend(message, message.meta.l)
            except LeaseLost:  # it ended while others were given up
                return False
        return True

    def _give_back(self, deliveries: list[Delivery], damaged: Delivery | None, delay_us: int) -> None:
        """Nobody has a handle on them: they would be lost to everybody until the lease ends."""
        now_us = self._client.clock.wall_us()
        owner = self._client.owner
        for delivery in deliveries:
            if self._kernel.holds(delivery.slot, delivery.number, delivery.attempts, owner):
                if delivery is damaged:
                    self._kernel.release(delivery.slot, self._client.index, now_us + delay_us, now_us)
                else:
                    self._kernel.unclaim(delivery.slot, self._client.index, now_us)

    def read(self, delivery: Delivery, attempt_us: int, lease_us: int, owner: int, state: str) -> Message | None:
        """The message of a delivery, copied out and checked; None if the slot has moved on meanwhile. A body that is a
        file stays there: only its length is checked now."""
        slot = delivery.slot
        number = delivery.number
        unit = delivery.place >> L.PLACE_SHIFT
        parts = record.Parts()
        self._files.read_record(parts, unit, delivery.place & L.PLACE_MASK, self._client.signature, number, slot)
        fault = parts.fault
        stored = None
        if parts.flags & L.FLAG_SPILLED:
            stored = Spilled(self._client, number, slot, parts.body)
            fault = stored.fault()
        there = self._kernel.state(slot)
        if (
            self._kernel.number(slot) != number
            or self._kernel.attempts(slot) != delivery.attempts
            or (there != L.STATE_WAITING and there != L.STATE_PENDING and there != L.STATE_CLAIMED)
        ):
            return None  # gone, or another delivery: what was copied may be somebody else's record
        if fault is not None:
            path, offset = self._files.place_of(unit)
            raise Corrupt(path, offset=offset, expected=f"the record of message {number}", found=fault)
        message = new_message(
            self._receiver,
            slot,
            number,
            delivery.attempts,
            delivery.deliver_us,
            parts.enqueued_us,
            parts.priority,
            parts.codec,
            parts.meta,
            parts.body,
            attempt_us,
            lease_us,
            owner,
            state,
            stored,
        )
        message._special = parts.flags & L.FLAG_SPECIAL != 0
        return message

    def take(self, slot: int, number: int, lease_us: int) -> Message | None:
        """Deliver one message that waits, due or not; None if it does not wait any more."""
        found = self._client.turn(self._take, slot, number, lease_us)
        if found is None:
            return None
        now_us = self._client.clock.wall_us()
        return self.read(found, now_us, now_us + lease_us, self._client.owner, PENDING)

    def _take(self, slot: int, number: int, lease_us: int) -> Delivery | None:
        kernel = self._kernel
        if slot >= kernel.slots or kernel.number(slot) != number or kernel.state(slot) != L.STATE_WAITING:
            return None
        now_us = self._client.clock.wall_us()
        lease_end_us = self._client.clock.boot_us() + lease_us
        kernel.claim(slot, now_us, lease_end_us, self._client.index, self._client.owner)
        return kernel.delivery(slot)

    # ------------------------------------------------------------ what becomes of a delivery; each is one turn

    def _held(self, message: Message) -> bool:
        return message._receiver is self._receiver and self._kernel.holds(
            message.slot, message.number, message.attempts, self._client.owner
        )

    def _require(self, message: Message) -> None:
        if not self._held(message):
            raise LeaseLost(self._client.name, message.id)

    def ack(self, messages: Iterable[Message]) -> None:
        """Acknowledge those that are still ours; then, if any was not, say which. Who waits for that is told first:
        killed in between, it is delivered, and told, again."""
        if self.has_special(messages):
            self._receiver.send_receipts(messages)
        self.remove(messages, L.T_ACKS)

    def has_special(self, messages: Iterable[Message]) -> bool:
        """Whether somebody may wait for the acknowledgement of one of these."""
        for given in messages:  # noqa: SIM110 (compiled, a generator would cost more than the loop)
            if _checked(given)._special:
                return True
        return False

    def holds(self, message: Message) -> bool:
        """Whether it is ours at this moment. Takes no lock."""
        return self._held(message)

    def remove(self, messages: Iterable[Message], statistic: int, result: int = ACKED, text: bytes = b"") -> None:
        """``ack``, counted as ``statistic`` says; ``result`` and ``text`` are for the history. What was noted of
        failures goes too."""
        self._retried = False
        try:
            self._client.turn(self._ack, messages, statistic, result, text)
        finally:
            self._write_history()
            if self._retried:
                for message in messages:
                    if isinstance(message, Message) and message.state == DONE and message.attempts > 1:
                        self._client.failures.forget(message.number, message.slot)

    def release(self, message: Message, delay_us: int) -> None:
        self._client.turn(self._release, _checked(message), delay_us)

    def fail(self, message: Message, delay_us: int, error: str | None) -> None:
        """``release`` of one that could not be dealt with."""
        kept = self._client.outcomes is not None
        self._client.turn(self._fail, _checked(message), delay_us, texts("", error) if kept else b"")
        self._write_history()

    def park(self, message: Message, delay_us: int) -> None:
        """Give it back for later: the queue that it was to be moved to does not take it."""
        self._client.turn(self._park, message, delay_us)

    def extend(self, message: Message, span_us: int) -> None:
        self._client.turn(self._extend, _checked(message), span_us)

    def keep(self, message: Message, span_us: int) -> None:
        """``extend``, unless it is ours for longer."""
        self._client.turn(self._keep, _checked(message), span_us)

    def unget(self, messages: list[Message]) -> None:
        """Nobody was given these to work on: back to their places, those that are still ours."""
        for start in range(0, len(messages), RETURNED_A_TURN_MAX):
            self._client.turn(self._unget, messages[start : start + RETURNED_A_TURN_MAX])

    # ------------------------------------------------------------ the same for an event loop; QueueBusy: by a thread

    def ack_at_once(self, messages: Iterable[Message]) -> None:
        self._client.turn_at_once(self._ack, (messages, L.T_ACKS, ACKED, b""))  # the background writes its history

    def release_at_once(self, message: Message, delay_us: int) -> None:
        self._client.turn_at_once(self._release, (_checked(message), delay_us))

    def extend_at_once(self, message: Message, span_us: int) -> None:
        self._client.turn_at_once(self._extend, (_checked(message), span_us))

    # ------------------------------------------------------------ inside a turn

    def _park(self, message: Message, delay_us: int) -> None:
        self._require(message)
        self._kernel.count(L.T_PARKED, 1)
        self._release(message, delay_us)

    def _ack(self, messages: Iterable[Message], statistic: int, result: int, text: bytes) -> None:
        kernel = self._kernel
        now_us = self._client.done_us()
        outcomes = self._client.outcomes
        lost = None
        for given in messages:
            message = _checked(given)
            if not self._held(message):
                lost = lost or message
                continue
            spilled_bytes = message.body_bytes if kernel.spilled(message.slot) else 0
            if statistic == L.T_ACKS:
                kernel.ack(message.slot, self._client.index, spilled_bytes, now_us)
            else:
                kernel.remove(message.slot, self._client.index, spilled_bytes, statistic)
            message.state = DONE
            if outcomes is not None:
                self._note(outcomes, message, now_us, result, text)
            if message.attempts > 1:
                self._retried = True
        kernel.commit()
        if lost is not None:
            raise LeaseLost(self._client.name, lost.id)

    def _release(self, message: Message, delay_us: int) -> None:
        self._require(message)
        now_us = self._client.clock.wall_us()
        self._client.advance_rates(now_us)
        deliver_us = now_us + delay_us if delay_us else 0
        self._kernel.release(message.slot, self._client.index, deliver_us, now_us)
        message.state = DONE

    def _fail(self, message: Message, delay_us: int, text: bytes) -> None:
        self._release(message, delay_us)
        if self._client.outcomes is not None:
            self._note(self._client.outcomes, message, self._client.clock.wall_us(), FAILED, text)

    def _note(self, outcomes: Outcomes, message: Message, done_us: int, result: int, text: bytes) -> None:
        outcomes.note(
            message.number,
            message.slot,
            message.enqueued_us,
            message.deliver_us,
            message.last_attempt_us,
            done_us if done_us else self._client.clock.wall_us(),
            message.attempts,
            message.priority,
            result,
            message._meta_bytes,
            text,
        )

    def note_gone(self, messages: list[Message], result: int, text: bytes = b"") -> None:
        """In the turn in which they were removed without a delivery, or left their claim."""
        if self._client.outcomes is not None:
            for message in messages:
                self._note(self._client.outcomes, message, 0, result, text)

    def _write_history(self) -> None:
        """What is full of it, outside the lock."""
        outcomes = self._client.outcomes
        if outcomes is not None and outcomes.sealed:
            self._client.history.write()  # type: ignore[union-attr]

    def _unget(self, messages: list[Message]) -> None:
        now_us = self._client.clock.wall_us()
        for given in messages:
            message = _checked(given)
            if self._held(message):
                self._kernel.unclaim(message.slot, self._client.index, now_us)
                message.state = DONE
                message.attempts = 0  # the next delivery has as many: it is not this one's to answer

    def _keep(self, message: Message, span_us: int) -> None:
        self._require(message)
        if self._kernel.field(message.slot, L.S_LEASE_US) < self._client.clock.boot_us() + span_us:
            self._extend(message, span_us)

    def _extend(self, message: Message, span_us: int) -> None:
        self._require(message)
        self._kernel.extend(message.slot, self._client.clock.boot_us() + span_us)
        message.lease_us = self._client.clock.wall_us() + span_us
