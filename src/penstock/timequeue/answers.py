"""Owns the answers to the questions of a queue: where they lie, how a receiver sends one, what one says.

They are messages of a queue of its own in the question queue's directory, which the first to ask or answer makes. An
answer is stored there before its question is acknowledged, under a dedup id that the question's id gives: whoever dies
in between leaves the question in the queue, it is delivered and answered again, and the second answer is dropped. Never
holds two queues' locks at once. Who waits for answers is ``collecting.py``'s.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.codec import decode_body
from penstock.errors import (
    BatchTooLarge,
    BodyTooLarge,
    Corrupt,
    GivenUp,
    LeaseLost,
    Misuse,
    NotAllowed,
    NotAQueue,
    PenstockError,
    QueueExists,
    QueueFull,
    QueueNotFound,
)
from penstock.message import DONE, PENDING, Message
from penstock.store import layout as L
from penstock.store.directory import mode_of
from penstock.store.options import DELETE
from penstock.timequeue import administration, forking
from penstock.timequeue.making import make
from penstock.timequeue.models import wants_receipt
from penstock.timequeue.moving import forget_keys
from penstock.timequeue.puts import Entry, entry

if TYPE_CHECKING:
    from penstock.timequeue.timequeue import TimeQueue

log = logging.getLogger("penstock")

REPLIES = "replies"  # the folder
SHARE = 4  # answers are there for a moment: they need only a part of the questions' room
SLOTS_LEAST = 1024
DATA_BYTES_LEAST = 1 << 20
SENT_AT_ONCE = 64  # of the receipts of a batch: stored together, with one sync
SETTLED_AT_ONCE = 32  # answers whose dedup ids are forgotten together
SWEEP_US = 1_000_000  # how often those that have expired are looked for, by whoever answers
SWEPT_MAX = 128  # and how many are looked at
EVICTED_AT_ONCE = 16  # the oldest, when there is no room
EVICTIONS_MAX = 64  # times that, for one that is as large as many others
YOUNG_US = 1_000_000  # an answer that lies there for longer is not being waited for: who is there collects at once
PATIENCE_S = 1.0  # so long whoever answers waits for room in which young answers lie
PATIENCE_S_LEAST = 0.05  # where nobody has collected any for long: to a living asker it is still a lot
PATIENCE_S_MOST = 5.0  # in all, where others are faster whenever there is room
ROOM_LOOK_S = 0.05

WHAT = "answer"  # a header of all but replies: which kind it is
RECEIPT = "acknowledged"
REASON = "reason"


class Answer(NamedTuple):
    """What came back: a reply's body, or that the message was acknowledged, or given up."""

    question: str
    what: str | None
    body: Any
    reason: str | None

    def result(self, queue: str) -> Any:
        """What the put of the question returns, or raises."""
        if self.what is None:
            return self.body
        if self.what == RECEIPT:
            return self.question
        raise GivenUp(queue, self.question, how=self.what, reason=self.reason)


def answer_of(message: Message) -> Answer:
    headers = message.headers
    what = headers.get(WHAT)
    return Answer(message.key or "", what, message.body if what is None else None, headers.get(REASON))


def best_of(messages: list[Message]) -> Message:
    """Of several answers to one question: it may have been given up and brought back."""
    return next((message for message in messages if message.headers.get(WHAT) in (None, RECEIPT)), messages[0])


def share_of(size: int, least: int) -> int:
    """Of the size that the questions have; as much, where that is little.

    >>> share_of(65_536, SLOTS_LEAST), share_of(64, SLOTS_LEAST)
    (16384, 64)
    """
    return max(size // SHARE, min(size, least))


class Patience:
    """How long to wait for room among the answers. A little while: those who wait collect theirs. Where nobody does,
    less and less, so that answers to those who are gone hold nobody up."""

    def __init__(self) -> None:
        self._most_s = PATIENCE_S
        self._collected = -1

    def rooms(self, box: TimeQueue) -> Iterator[bool]:
        """For each try that found no room: whether the next one is to wait for it; else the oldest must go."""
        started_s = since_s = time.monotonic()
        most_s = self._most_s
        while True:
            now_s = time.monotonic()
            collected = _collected(box)
            if collected != self._collected:
                self._collected, self._most_s, since_s = collected, PATIENCE_S, now_s
                most_s = PATIENCE_S
            in_vain = now_s >= since_s + most_s
            if in_vain:
                self._most_s = max(most_s / 4, PATIENCE_S_LEAST)
            late = in_vain or now_s >= started_s + PATIENCE_S_MOST
            yield not late and not _is_old(box, next(box.browse(limit=1), None))


class Answers:
    """The answers to the questions of one queue, for one queue object."""

    def __init__(self, queue: TimeQueue) -> None:
        self._queue = queue
        self._box: TimeQueue | None = None
        self.closing = False  # those who wait are being told so: nobody begins to wait
        self._sweep_us = 0
        self._patience = Patience()
        self._remembered: list[tuple[Message, int, int]] = []  # questions, and what their answers are remembered by
        self._mutex = threading.Lock()  # while the box is opened, and for what is remembered

    # ------------------------------------------------------------ where they lie

    def box(self) -> TimeQueue:
        """The queue of answers, open; made if there is none."""
        box = self._box
        if box is None or box.closed:
            with self._mutex:
                box = self._box
                if box is None or box.closed:
                    box = self._box = self._opened()
        return box

    def _opened(self) -> TimeQueue:
        queue = self._queue
        where = queue.path / REPLIES
        if not where.exists():
            options = queue._mine().options
            # A child of a fork meanwhile would keep the lock of what is being made.
            with forking.opening(), contextlib.suppress(QueueExists):  # somebody else was first
                make(
                    where,
                    slots=share_of(options.slots, SLOTS_LEAST),
                    data_bytes=share_of(options.data_bytes, DATA_BYTES_LEAST),
                    spill_bytes=options.spill_bytes,
                    durability=options.durability,
                    notify=options.notify,
                    index_sync_ms=options.index_sync_ms,
                    dead_letter=DELETE,
                    mode=mode_of(queue.path),
                )
        return queue.__class__(where, busy_s=queue._busy_s, clock=queue._clock)

    def any(self) -> bool:
        """Whether anybody has ever asked here."""
        return self._box is not None or (self._queue.path / REPLIES).exists()

    def close(self) -> None:
        box, self._box = self._box, None
        self.closing = False  # a queue object that could not be closed is used further
        if box is not None:
            with contextlib.suppress(PenstockError, OSError):
                box.close()

    # ------------------------------------------------------------ sending

    def reply(self, message: Message, body: Any) -> None:
        """Store the reply. The question is acknowledged by the caller."""
        if not isinstance(message, Message):
            raise Misuse(f"{message!r} is not a message")
        if not message.wants_reply:
            raise Misuse(f"{message.id}: nobody waits for a reply to it; acknowledge it")
        if not self._queue._consumer.holds(message):
            raise LeaseLost(self._queue.name, message.id)
        home = self._home(message)
        if home is not None:
            home._store([message], None, None, [body])

    def send_receipts(self, messages: Iterable[Message]) -> None:
        """Tell those who wait that these are being acknowledged: those of them that are still ours."""
        holds = self._queue._consumer.holds
        self._acknowledge([each for each in messages if wants_receipt(each) and each.state == PENDING and holds(each)])

    def send_receipts_of(
        self, claimed: list[tuple[int, int]], replies: dict[tuple[int, int], tuple[int, bytes]]
    ) -> None:
        """Likewise for messages of a claim, by slot and number; nobody else moves them. Who asked a damaged one is
        not told. Some have a reply, by codec and bytes."""
        kernel, read = self._queue._mine().kernel, self._queue._consumer.read
        found: list[Message] = []
        answered: list[tuple[Message, Any]] = []
        for slot, number in claimed:
            with contextlib.suppress(Corrupt):
                message = read(kernel.delivery(slot), 0, 0, 0, PENDING) if kernel.number(slot) == number else None
                reply = replies.get((slot, number))
                if message is not None and reply is not None and message.wants_reply:
                    answered.append((message, decode_body(*reply)))
                elif message is not None and wants_receipt(message):
                    found.append(message)
        self._send_replies(answered)
        self._acknowledge(found)

    def _send_replies(self, answered: list[tuple[Message, Any]]) -> None:
        """Of one that never fits, whoever waits for it is told so: the others are not to wait for that."""
        if not answered:
            return
        try:
            self._send([message for message, _ in answered], None, None, [body for _, body in answered])
        except BodyTooLarge as error:
            if len(answered) == 1:
                log.warning("%s: its reply cannot be stored: %s", answered[0][0].id, error)
                self.give_up((answered[0][0],), "dropped", str(error))
                return
            for one in answered:
                self._send_replies([one])

    def _acknowledge(self, asked: list[Message]) -> None:
        """An acknowledgement of a question that wants a reply is a reply of None."""
        for wants_reply in (False, True):
            some = [each for each in asked if each.wants_reply == wants_reply]
            if some:
                self._send(some, None if wants_reply else RECEIPT, None)

    def give_up(self, messages: Iterable[Message], how: str, reason: str | None = None) -> None:
        """Tell those who wait that these will not be answered, as far as we can."""
        asked = [message for message in messages if wants_receipt(message)]
        try:
            if asked:
                self._send(asked, how, reason)
        except (PenstockError, OSError) as error:
            log.warning("%s: who asked was not told that it was %s: %s", asked[0].id, how, error)

    def _send(
        self, questions: list[Message], what: str | None, reason: str | None, bodies: list[Any] | None = None
    ) -> None:
        homes: dict[Answers, list[tuple[Message, Any]]] = {}
        for question, body in zip(questions, bodies or [None] * len(questions), strict=True):
            home = self._home(question)
            if home is not None:
                homes.setdefault(home, []).append((question, body))
        for home, all_of_it in homes.items():
            for start in range(0, len(all_of_it), SENT_AT_ONCE):
                some = all_of_it[start : start + SENT_AT_ONCE]
                home._store([question for question, _ in some], what, reason, [body for _, body in some])

    def _home(self, question: Message) -> Answers | None:
        """Where it was asked: here, or where it was moved from; None if that is not there any more."""
        queue = self._queue
        if question.meta.o is None or question.id.startswith(queue._id_prefix):
            return self
        where = question.meta.w
        try:
            other = queue._moves.target(where) if where is not None else None
        except (QueueNotFound, NotAQueue, NotAllowed) as error:
            log.warning("%s: nobody can be given an answer to it: %s", question.id, error)
            return None
        if other is None or not question.id.startswith(other._id_prefix):
            log.warning("%s: the queue where it was asked is not there any more: nobody waits", question.id)
            return None
        home: Answers = other._answers
        return home

    def _store(self, questions: list[Message], what: str | None, reason: str | None, bodies: list[Any]) -> None:
        """Those of a batch together, or one by one where there is no room for that."""
        box = self.box()
        self._sweep(box)
        try:
            self._put(box, questions, what, reason, bodies)
        except (QueueFull, BatchTooLarge):
            if len(questions) == 1:
                raise
            for question, body in zip(questions, bodies, strict=True):
                self._put(box, [question], what, reason, [body])

    def _put(
        self, box: TimeQueue, questions: list[Message], what: str | None, reason: str | None, bodies: list[Any]
    ) -> None:
        known = True
        wait_s = None
        evictions = 0
        rooms = self._patience.rooms(box)
        while True:
            items = [
                self._entry(box, question, what, reason, body, known=known)
                for question, body in zip(questions, bodies, strict=True)
            ]
            try:
                box._put(items, wait_s, None)
                self._note(box, questions, items)
                return
            except QueueFull as error:
                wait_s = None
                if error.which == "dedup_entries" and known:  # twice is harmless: who has one answer wants no other
                    known = False
                elif next(rooms):
                    wait_s = ROOM_LOOK_S
                elif evictions == EVICTIONS_MAX or not _evict(box):
                    raise
                else:
                    evictions += 1

    def _entry(
        self, box: TimeQueue, question: Message, what: str | None, reason: str | None, body: Any, *, known: bool
    ) -> Entry:
        assert question.meta.q is not None
        _, asker, ttl_us = question.meta.q
        now_us = box._clock.wall_us()
        key = dedup_id = question.id
        headers = None
        if what is not None:
            headers = {WHAT: what, REASON: reason} if reason else {WHAT: what}
            if what != RECEIPT:  # brought back, it may be answered, or given up again
                dedup_id = f"{key} {question.number:x}"
        extra = box._specials.of_answer(dedup_id if known else None, now_us + ttl_us)
        return entry(body, now_us, None, None, 0, asker or None, key, headers, extra)

    def _note(self, box: TimeQueue, questions: list[Message], items: list[Entry]) -> None:
        """What is stored is remembered until its question is gone: then nobody answers it again. The last few are
        looked at when there are more, so that it costs next to nothing."""
        new = [(question, item.key, item.number) for question, item in zip(questions, items, strict=True) if item.key]
        with self._mutex:
            self._remembered += new
            if len(self._remembered) < SETTLED_AT_ONCE:
                return
            noted, self._remembered = self._remembered, []
        gone = [(key, number) for question, key, number in noted if question.state == DONE]
        client = box._mine()
        client.turn(forget_keys, client, gone)
        with self._mutex:  # others stay for a while; what was lost is remembered for its time
            self._remembered += [each for each in noted if each[0].state == PENDING][-SETTLED_AT_ONCE // 2 :]

    def forward(self, message: Message) -> None:
        """An answer that came to an asker who does not wait for it any more: whoever names the question may have it."""
        box = self.box()
        left_us = (message.meta.x or 0) - box._clock.wall_us()
        if left_us > 0:
            extra = box._specials.of_answer(None, message.meta.x or 0)
            item = entry(message.body, 0, None, None, 0, None, message.key, message.headers or None, extra)
            box._put([item], None, None)

    # ------------------------------------------------------------ room

    def _sweep(self, box: TimeQueue) -> None:
        """Of the oldest answers, those that have expired: when nobody collects, nobody else comes across them."""
        now_us = box._clock.wall_us()
        if abs(now_us - self._sweep_us) < SWEEP_US or not box.qsize():
            return
        self._sweep_us = now_us
        client, consumer = box._mine(), box._consumer
        for message in box.browse(limit=SWEPT_MAX):
            if message.meta.x is not None and message.meta.x <= now_us:
                client.turn(administration.cancel, client, message.slot, message.number, consumer, [])


def _collected(box: TimeQueue) -> int:
    """How many answers were ever collected."""
    kernel = box._mine().kernel
    return kernel.get(kernel.get(L.H_STATS_AT) + L.T_ACKS)


def _is_old(box: TimeQueue, answer: Message | None) -> bool:
    return answer is not None and box._clock.wall_us() - answer.enqueued_us >= YOUNG_US


def _evict(box: TimeQueue) -> bool:
    """Make room: the oldest answers go, and young ones only where all are. False if there are none. They count as
    dropped, not as collected."""
    before = box.qsize()
    oldest = box.get_many(EVICTED_AT_ONCE)  # those that have expired are gone with that
    young = [each for each in oldest if not _is_old(box, each)]
    going = [each for each in oldest if each not in young] or oldest
    if oldest:
        log.warning("%s: no room: %d answers that nobody has collected are gone", box.name, len(going))
        if going is not oldest:
            box.unget(young)
        with contextlib.suppress(LeaseLost):
            box._consumer.remove(going, L.T_DROPPED)
        if box._mine().kernel.get(L.H_KEPT):
            box.sync_index()
    return box.qsize() < before
