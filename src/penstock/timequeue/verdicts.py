"""Owns noting verdicts: that messages of an open claim end otherwise than by an acknowledgement when it is committed.

They are noted by whoever has worked on the messages, which need not be the receiver, nor in its process; they change
nothing about the claim. Carried out they are by ``judging.py``, when the claim is committed. Never takes the receiver's
lock: the file is there whole or not at all, and the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.codec import decode_body
from penstock.errors import BodyTooLarge, Corrupt, Misuse, NoSuchClaim, NoSuchReceiver
from penstock.message import PENDING, Message
from penstock.store import layout as L
from penstock.store.claimfiles import ClaimFiles
from penstock.store.claiming import NO_ENTRY, Claiming
from penstock.store.verdictfiles import Kept, KeptAnswer, KeptDead, KeptFailed
from penstock.timequeue.answers import DATA_BYTES_LEAST, share_of
from penstock.timequeue.arguments import delay_us
from penstock.timequeue.retries import text_of

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue

LOOKED_A_TURN_MAX = 1024  # messages whose claims are asked for under one lock


class Failed(msgspec.Struct, frozen=True):
    """As ``TimeQueue.fail``: it waits for as long as the backoff says or for ``delay_s``, counted from when the claim
    is committed; ``plain_s`` is for those without either; after its last attempt it is a dead letter instead."""

    id: str
    error: str | None = None
    delay_s: float | None = None
    plain_s: float = 0.0


class Dead(msgspec.Struct, frozen=True):
    """As ``TimeQueue.dead_letter``; but if the dead-letter queue does not take it, it waits here for a while."""

    id: str
    reason: str
    error: str | None = None


class Answered(msgspec.Struct, frozen=True):
    """As ``TimeQueue.reply``, with codec and bytes as ``penstock.codec.encode_body`` makes them."""

    id: str
    codec: int
    body: bytes


Verdict: TypeAlias = Failed | Dead | Answered
Place: TypeAlias = tuple[int, int]  # slot and number


def note(queue: TimeQueue, receiver: str, verdicts: Iterable[Verdict], *, claim: int | None = None) -> None:
    """What becomes of messages that this receiver has claimed, when their claim is committed. Those of a claim of which
    nothing is said are acknowledged. On disk when this returns.

    It takes the place of all that was noted for the same claims before. With ``claim`` they are for that one alone, and
    where there are none nothing is noted for it any more; without it, where there are none, for any open claim.

    ``Misuse`` if a message is in no open claim of the receiver, or if two are said of one: then nothing is noted.

    >>> import penstock
    >>> from penstock.timequeue import verdicts
    >>> q = penstock.create(path)
    >>> ids = q.put_many(["good", "bad"])
    >>> with q.receiver("report") as receiver:
    ...     claim = receiver.claim(10)
    ...     verdicts.note(q, "report", [verdicts.Failed(ids[1], "no such customer")])
    ...     receiver.commit(claim.number)
    >>> [(message.body, message.attempts) for message in q.browse()]
    [('bad', 1)]
    """
    _Noting(queue, receiver).note(list(verdicts), claim)


class _Noting:
    """One call of ``note``."""

    def __init__(self, queue: TimeQueue, receiver: str) -> None:
        self._queue = queue
        self._client = queue._mine()
        self._kernel = self._client.kernel
        self._claiming = Claiming(self._kernel)
        self._name = receiver
        self._files = ClaimFiles(self._client.path, receiver, self._client.signature)
        self._entry: int = self._client.turn(self._claiming.find, receiver)
        if self._entry == NO_ENTRY:
            raise NoSuchReceiver(self._client.name, receiver)
        committed = self._files.committed()
        self._open = [n for n in self._files.numbers() if n > committed and self._files.count(n)]

    def note(self, verdicts: Sequence[Verdict], claim: int | None) -> None:
        if claim is not None and claim not in self._open:
            raise NoSuchClaim(self._client.name, self._name, claim, "it is not open")
        places = self._places([_id_of(verdict) for verdict in verdicts])
        noted: dict[int, list[Kept]] = {number: [] for number in (self._open if claim is None else [claim])}
        if verdicts and claim is None:
            noted.clear()
        for verdict in verdicts:
            number, place = places[verdict.id]
            if claim is not None and number != claim:
                raise Misuse(f"{self._client.name}: message {verdict.id} is in claim {number}, not {claim}")
            noted.setdefault(number, []).append(self._kept(verdict, place))
        if sum(map(len, noted.values())) != len({place for _, place in places.values()}):
            raise Misuse(f"{self._client.name}: there is more than one verdict on a message")
        for number, kept in noted.items():
            if kept:
                self._write(number, kept)
            else:
                self._files.unjudge(number)

    def _write(self, claim: int, kept: list[Kept]) -> None:
        try:
            self._files.judge(claim, kept)
        except FileNotFoundError:
            raise NoSuchReceiver(self._client.name, self._name) from None
        if claim <= self._files.committed() or not self._files.count(claim):
            self._too_late(claim)

    def _too_late(self, claim: int) -> None:
        raise NoSuchClaim(self._client.name, self._name, claim, "it was committed or released meanwhile")

    # ------------------------------------------------------------ where they are

    def _places(self, ids: list[str]) -> dict[str, tuple[int, Place]]:
        """The claim that each message is in, and its place."""
        found: dict[str, tuple[int, Place]] = {}
        queue = self._queue
        ours = [(one, queue.parse_id(one)) for one in ids if queue.check_id(one)]  # others were put elsewhere and moved
        for start in range(0, len(ours), LOOKED_A_TURN_MAX):
            found.update(self._client.turn(self._claimed, ours[start : start + LOOKED_A_TURN_MAX]))
        missing = set(ids) - found.keys()
        if missing:
            found.update(self._moved_in(missing))
        for one in ids:
            if one not in found or found[one][0] not in self._open:
                raise Misuse(f"{self._client.name}: message {one} is in no open claim of receiver {self._name!r}")
        return found

    def _claimed(self, places: list[tuple[str, Place]]) -> dict[str, tuple[int, Place]]:
        claiming = self._claiming
        return {
            one: (claiming.claim_of(place[0]), place)
            for one, place in places
            if max(place) <= L.MASK64 and claiming.holds(self._entry, *place)  # an id may have any digits
        }

    def _moved_in(self, ids: set[str]) -> dict[str, tuple[int, Place]]:
        """Messages that were moved keep their ids and have other places: those of the claims are read."""
        found: dict[str, tuple[int, Place]] = {}
        for message in self._queue.browse(state="pending") if self._queue._has_moved_in() else ():
            place = message.slot, message.number
            if message._special and message.id in ids and self._claiming.holds(self._entry, *place):
                found[message.id] = (self._claiming.claim_of(message.slot), place)
        return found

    # ------------------------------------------------------------ what is said of them

    def _kept(self, verdict: Verdict, place: Place) -> Kept:
        """Checked here, while somebody can be told: whoever commits cannot help it."""
        if isinstance(verdict, Failed):
            wait_us = None if verdict.delay_s is None else delay_us(verdict.delay_s)
            return KeptFailed(*place, _text(verdict.error), wait_us, delay_us(verdict.plain_s))
        if isinstance(verdict, Dead):
            if not isinstance(verdict.reason, str):
                raise Misuse(f"a reason is a str, not {verdict.reason!r}")
            return KeptDead(*place, text_of(verdict.reason), _text(verdict.error))
        self._check_reply(verdict, place)
        return KeptAnswer(*place, verdict.codec, bytes(verdict.body))

    def _check_reply(self, verdict: Answered, place: Place) -> None:
        message = self._message(place)
        if message is None or not message.wants_reply:
            raise Misuse(f"{verdict.id}: nobody waits for a reply to it; acknowledge it")
        try:
            decode_body(verdict.codec, verdict.body)
        except (ValueError, TypeError) as error:
            raise Misuse(f"{verdict.id}: the reply is not what codec {verdict.codec!r} makes: {error}") from error
        if message.meta.o is None:  # else it goes to another queue
            limit = share_of(self._client.options.data_bytes, DATA_BYTES_LEAST)
            if len(verdict.body) + 2 * L.UNIT_BYTES > limit:
                raise BodyTooLarge(f"{self._client.name}/replies", body_bytes=len(verdict.body), limit_bytes=limit)

    def _message(self, place: Place) -> Message | None:
        slot, number = place
        delivery = self._kernel.delivery(slot)
        if delivery.number != number:
            return None
        try:
            return self._queue._consumer.read(delivery, 0, 0, 0, PENDING)
        except Corrupt:
            return None


def _id_of(verdict: Verdict) -> str:
    if not isinstance(verdict, Failed | Dead | Answered):
        raise Misuse(f"{verdict!r} is no verdict")
    return verdict.id


def _text(error: str | None) -> str | None:
    return None if error is None else text_of(error)
