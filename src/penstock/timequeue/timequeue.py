"""Owns TimeQueue, the queue as a program sees it: put, get, ack, claims. Each call is the client's own. Looks into one
are ``inside.py``'s.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Unpack

from penstock.errors import LeaseLost, Misuse, QueueEmpty, QueueFull
from penstock.interface import MessageOptions, Names, PutOptions
from penstock.message import PENDING, Message
from penstock.store import layout as L
from penstock.timequeue import coroutines, fileputs
from penstock.timequeue import groups as known_groups
from penstock.timequeue import receivers as known
from penstock.timequeue.answers import Answers
from penstock.timequeue.arguments import (
    check_durability,
    check_most,
    check_names,
    check_seconds,
    check_several,
    delay_us,
)
from penstock.timequeue.asking import Asking
from penstock.timequeue.claims import Receiver
from penstock.timequeue.clients import Client
from penstock.timequeue.columns import ColumnPuts, Columns
from penstock.timequeue.consumers import PREFETCH, QueueConsumer
from penstock.timequeue.handles import Handle
from penstock.timequeue.holder import Holder
from penstock.timequeue.ids import MessageIds
from penstock.timequeue.inside import Inside
from penstock.timequeue.leases import Consumer, Wanted
from penstock.timequeue.leases import wanted as chosen_of
from penstock.timequeue.models import WAYS, Way, way_of
from penstock.timequeue.moving import Moves, wanted
from penstock.timequeue.once import AlreadyPublished, OncePut
from penstock.timequeue.producer import Once, Producer
from penstock.timequeue.puts import Draft, Entry, entries, entry
from penstock.timequeue.receivers import ClaimInfo, ReceiverInfo
from penstock.timequeue.retries import MAX_ATTEMPTS, backoff_us, limit_of, text_of
from penstock.timequeue.specials import Specials
from penstock.timequeue.walking import receive_walking

WANTED_MAX = 256  # types and keys that are remembered


class TimeQueue(Inside):
    """A queue in a directory, shared by any number of threads and processes.

    >>> import penstock
    >>> q = penstock.create(path)
    >>> q.put("hello")  # doctest: +ELLIPSIS
    '...'
    >>> with q.get(timeout=1) as message:
    ...     print(message.body)
    hello
    """

    def _equip(self, client: Client) -> None:
        self._producer = Producer(client)
        self._consumer = Consumer(client, self)
        self._specials = Specials(client.options, client.name)
        self._moves = Moves(self)
        self._answers = Answers(self)
        self._asking: Asking | None = None  # made by the first put that is more than stored
        self._making = threading.Lock()  # while that is made
        self._wanted: dict[Any, Wanted] = {}  # what was asked for before: workers ask for the same again and again
        self._lease_s = client.options.lease_s
        self._sync = client.options.durability == "commit"

    def _unequip(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.close()
        self._moves.close()
        self._answers.close()

    # ------------------------------------------------------------ putting

    def put(
        self,
        body: Any,
        *,
        deliver_at: float | datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int = 0,
        type: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        durability: str | None = None,
        **special: Unpack[PutOptions],
    ) -> Any:
        """Put a message; when this returns it is confirmed. Its id.

        ``QueueFull`` at once if there is no room, or when there was none for ``timeout`` seconds. Of a message with a
        ``dedup_id`` that was put before, the id of that one. See ``Special`` for the further options.

        ``model`` says what it waits for: "queued-acknowledged", that it is stored; "one-way", the same, but not for the
        disk; "acknowledged", that a receiver has acknowledged it; "two-way", a receiver's reply, whose body it returns.
        For the last two ``timeout`` is how long it waits at all, None: for ever, then ``NoAnswer``; and ``reply_ttl``
        is how long an answer is kept that nobody collects. With ``wait=False`` it returns a ``Handle`` at once.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> id = q.put({"order": 7}, delay=0.01, priority=3, type="order", key="example.com", headers={"a": "b"})
        >>> message = q.get(timeout=1)
        >>> message.body, message.priority, message.key, message.id == id
        ({'order': 7}, 3, 'example.com', True)
        """
        now_us = 0 if delay is None else self._clock.wall_us()
        extra = way = None
        if special:
            if not WAYS.isdisjoint(special):
                way = self._way(special, durability)
            extra = self._specials.of(special, self._clock.wall_us()) if special else None
        if way is not None:
            extra = way.extra(extra, self._asks().asker(way))
        item = entry(body, now_us, deliver_at, delay, priority, type, key, headers, extra)
        if way is not None:
            return self._asks().put(item, way, timeout)
        self._put([item], timeout, durability)
        return item.id(self._id_prefix)

    def _way(self, given: Any, durability: str | None) -> Way:
        """Taken out of what a put was given."""
        return way_of(given.pop("model", None), given.pop("wait", True), given.pop("reply_ttl", None), durability)

    def _asks(self) -> Asking:
        self._mine()
        if self._asking is None:
            with self._making:
                if self._asking is None:
                    self._asking = Asking(self, self._answers)
        return self._asking

    put_file = fileputs.put_file
    aput_file = fileputs.aput_file

    def put_many(
        self,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        durability: str | None = None,
        model: str | None = None,
        wait: bool = True,
        reply_ttl: float | timedelta | None = None,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """Put all of them or none; their ids. A ``Draft`` among the bodies brings its own options.

        ``model``, ``wait`` and ``reply_ttl`` as in ``put``: it waits for the answers to all, and returns what ``put``
        would for each, in order; or one ``Handle`` for all.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> ids = q.put_many([b"a", penstock.Draft(body=b"b", priority=9)])
        >>> [m.body for m in q.get_many(10)]
        [b'b', b'a']
        """
        check_several("put_many", bodies, "; put takes one")
        if model is None and wait is True and reply_ttl is None:
            return self.put_entries(self._entries(bodies, options), timeout, durability)
        way = way_of(model, wait, reply_ttl, durability)
        return self._asks().put_many(self._entries(bodies, options, way), way, timeout)

    def answer(self, message_id: str) -> Handle:
        """A handle on the answer to a question that was put with ``model="acknowledged"`` or ``"two-way"`` before, by
        this process or one that is gone: ``answer(id).result(timeout)``. Each answer is given once."""
        self.check_id(message_id)
        return self._asks().question(message_id)

    def put_once(
        self,
        publisher: str,
        number: int,
        bodies: Iterable[Any],
        *,
        timeout: float | None = None,
        durability: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageIds | None:
        """``put_many`` of a publisher's numbered batch, which is published once: None, and nothing is put, if the queue
        remembers this number of this publisher or a higher one. So whoever does not know whether a call came through,
        since something died, calls again with the same number. Numbers of a publisher grow, from 0 or more.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> len(q.put_once("nightly", 7, [b"a", b"b"]))
        2
        >>> q.put_once("nightly", 7, [b"a", b"b"]) is None, q.qsize()
        (True, 2)
        """
        check_several("put_once", bodies)
        make = functools.partial(self._entries, bodies, options)
        return self.put_entries_once(publisher, number, make, timeout, durability)

    def put_entries_once(
        self,
        publisher: str,
        number: int,
        make: Callable[[], list[Entry] | Columns],
        timeout: float | None = None,
        durability: str | None = None,
    ) -> MessageIds | None:
        """``put_once`` of entries or columns, which are made only if they are to be put."""
        with OncePut(self._mine(), publisher, number, wait_s=self._busy_s) as once:
            if once.is_done():
                return None
            items = make()
            if not items:
                once.remember()
                return MessageIds(self._id_prefix, items)
            try:
                self._put_batch(items, timeout, durability, once)
            except AlreadyPublished:
                return None
        return MessageIds(self._id_prefix, items)

    def put_entries(
        self, items: list[Entry] | Columns, timeout: float | None = None, durability: str | None = None
    ) -> MessageIds:
        """``put_many`` of entries, or of columns."""
        if items:
            self._put_batch(items, timeout, durability)
        return MessageIds(self._id_prefix, items)

    def _put_batch(
        self, items: list[Entry] | Columns, timeout: float | None, durability: str | None, once: Once | None = None
    ) -> None:
        if isinstance(items, Columns):
            if ColumnPuts(self._mine(), self._producer).put(items, self._is_synced(durability), once):
                return
            items = items.entries()
        self._put(items, timeout, durability, once)

    def _entries(
        self, bodies: Iterable[Any], options: MessageOptions, way: Way | None = None, *, several: bool = True
    ) -> list[Entry]:
        common = Draft(body=None, **options)
        if common.dedup_id is not None:
            raise Misuse("a dedup_id is that of one message: give each a penstock.Draft with its own")
        extra_of = self._specials.of_draft
        if way is not None and way.asks:
            asker, asked = self._asks().asker(way, several=several), way
            return entries(
                common, bodies, self._clock.wall_us(), lambda draft, now_us: asked.extra(extra_of(draft, now_us), asker)
            )
        return entries(common, bodies, self._clock.wall_us(), extra_of)

    def _is_synced(self, durability: str | None) -> bool:
        if durability is None:
            return self._sync
        return check_durability(durability) == "commit"

    def _put(self, items: list[Entry], timeout: float | None, durability: str | None, once: Once | None = None) -> None:
        self._mine()
        sync = self._is_synced(durability)
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        try:
            self._producer.put(items, sync, True, once)
        except QueueFull:
            if timeout is None or not self._producer.may_try_again(items):
                raise
            self._put_when_room(items, timeout, sync, once)

    def _put_together(self, items: list[Entry], sync: bool) -> None:
        self._mine()
        self._producer.put(items, sync, False)

    def _put_when_room(self, items: list[Entry], timeout: float, sync: bool, once: Once | None = None) -> None:
        self._mine()
        self._producer.put_when_room(items, timeout, sync, once)

    # ------------------------------------------------------------ getting

    def get(
        self,
        timeout: float | None = None,
        *,
        block: bool = True,
        lease: float | None = None,
        type: str | Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
    ) -> Message:
        """The next message that is due; waits for one, up to ``timeout`` seconds, then raises ``QueueEmpty``.

        It is ours for ``lease`` seconds; then, or when this process dies, somebody else gets it. ``type`` and ``key``,
        each one or several, are what it must have; all others stay, and are not looked at.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> ids = [q.put(n, type="odd" if n % 2 else "even") for n in range(4)]
        >>> q.get(type="odd").body, q.get(type=["odd", "even"]).body
        (1, 0)
        """
        found = self._receive(
            1,
            (0.0 if not block else None if timeout is None else check_seconds("timeout", timeout)),
            lease,
            type,
            key,
        )
        if not found:
            raise QueueEmpty(self.name)
        return found[0]

    def get_many(
        self,
        most: int,
        *,
        wait: float = 0.0,
        lease: float | None = None,
        type: str | Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
        group: str | None = None,
    ) -> list[Message]:
        """Up to ``most`` messages that are due, as soon as there is one; none after ``wait`` seconds: an empty list.

        ``type`` and ``key`` as in ``get``. ``group`` takes messages of one key: "largest", of the one with the most
        messages that are due, or "oldest", of the one that has been due longest.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> ids = [q.put(n, key="a.example" if n < 2 else "b.example") for n in range(5)]
        >>> [m.body for m in q.get_many(100, group="largest")], [m.body for m in q.get_many(100, key="a.example")]
        ([2, 3, 4], [0, 1])
        """
        most = check_most(most)
        if group is None:
            return self._receive(most, check_seconds("wait", wait), lease, type, key)
        order = known_groups.check_order(group, type, key)
        client = self._mine()
        lease_us = self._lease_us(lease)
        return known_groups.receive(client, self._consumer, order, most, check_seconds("wait", wait), lease_us)

    def _lease_us(self, lease: float | None) -> int:
        return int((self._lease_s if lease is None else check_seconds("lease", lease, zero=False)) * 1_000_000)

    @property
    def lease_s(self) -> float:
        """How long a message that is got is ours, by default."""
        return float(self._lease_s)

    def _receive(self, most: int, wait_s: float | None, lease: float | None, type: Any, key: Any) -> list[Message]:
        client = self._mine()
        lease_us = self._lease_us(lease)
        if type is None and key is None:
            return self._consumer.receive(most, wait_s, lease_us, None)
        chosen = self._chosen(type, key)
        if client.kernel.trees_at == 0:
            return receive_walking(client, self._consumer, chosen, most, wait_s, lease_us)
        return self._consumer.receive(most, wait_s, lease_us, chosen)

    def _chosen(self, type: Any, key: Any) -> Wanted:
        chosen = self._wanted.get((type, key)) if _is_name(type) and _is_name(key) else None
        if chosen is None:
            chosen = chosen_of(check_names("type", type), check_names("key", key), self._mine().signature)
            if _is_name(type) and _is_name(key) and len(self._wanted) < WANTED_MAX:
                self._wanted[type, key] = chosen
        return chosen

    # ------------------------------------------------------------ what becomes of a delivery

    def ack(self, message: Message, *, durable: bool = False) -> None:
        """Done with it: it leaves the queue. ``LeaseLost`` if it is not ours any more.

        After a power loss it may be back, unless an index sync came between; ``durable`` waits for one.
        """
        client = self._mine()
        self._consumer.ack((message,))
        if durable:
            client.syncs.sync_index()

    def ack_many(self, messages: Iterable[Message], *, durable: bool = False) -> None:
        """All that are still ours; then ``LeaseLost`` if one was not."""
        client = self._mine()
        self._consumer.ack(list(messages))
        if durable:
            client.syncs.sync_index()

    def reply(self, message: Message, body: Any) -> None:
        """Answer a message of the model two-way, and be done with it. The reply is stored before the message leaves the
        queue: killed in between, it is delivered again, and the second reply is dropped. ``Misuse`` if nobody waits for
        one; ``LeaseLost`` if it is not ours any more."""
        self._mine()
        self._answers.reply(message, body)
        self._consumer.remove((message,), L.T_ACKS)

    def send_receipts(self, messages: Iterable[Message]) -> None:
        """Tell those who wait for it that these are acknowledged, before they are."""
        self._answers.send_receipts(messages)

    def may_have_questions(self) -> bool:
        """Whether anybody has asked here, or something came from where somebody may have."""
        return self._answers.any() or self._has_moved_in()

    def tell_claimed(self, special: list[tuple[int, int]], replies: dict[tuple[int, int], tuple[int, bytes]]) -> None:
        """``send_receipts`` for messages of a claim, by slot and number; some have a reply, by codec and bytes."""
        self._answers.send_receipts_of(special, replies)

    def read_claimed(self, slot: int, owner: int) -> Message | None:
        """A message of a claim, for its receiver."""
        kernel = self._mine().kernel
        return self._consumer.read(kernel.delivery(slot), kernel.field(slot, L.S_ATTEMPT_US), 0, owner, PENDING)

    def give_up_claimed(self, message: Message, reason: str, error: str | None, holder: Holder) -> None:
        """A message of a claim becomes a dead letter; if its new queue does not take it, it waits here."""
        self._moves.give_up_claimed(message, reason, error, holder)

    def note_claimed(self, message: Message, result: int, text: bytes) -> None:
        """For the history: how a message has left its claim. In the turn in which it did."""
        self._consumer.note_gone([message], result, text)

    def sync_index(self) -> None:
        """Bring everything to disk that was changed until now. By itself it happens every ``index_sync_ms``."""
        self._mine().syncs.sync_index()

    def release(self, message: Message, *, delay: float | timedelta | None = None) -> None:
        """Give it back: to its old place, or after ``delay``."""
        self._mine()
        self._consumer.release(message, delay_us(delay))

    def unget(self, messages: Iterable[Message]) -> None:
        """Give back what was got and not begun: to its old place, and without counting as an attempt.

        What is not ours any more is left out. A message that somebody has begun to work on is to be released.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> ids = q.put_many(["a", "b"])
        >>> q.unget(q.get_many(2))
        >>> q.get().body, q.get().attempts
        ('a', 1)
        """
        self._mine()
        self._consumer.unget(list(messages))

    def fail(
        self, message: Message, error: BaseException | str | None = None, *, delay: float | timedelta | None = None
    ) -> None:
        """It could not be dealt with: it waits for as long as the backoff says, its own or the queue's, or for
        ``delay``. After its last attempt it is a dead letter instead. The error is kept for that."""
        client = self._mine()
        text = None if error is None else text_of(error)
        wait_us = None if delay is None else delay_us(delay)
        limit = limit_of(message, client.options.max_attempts or 0)
        if 0 < limit <= message.attempts:
            self._moves.give_up(message, MAX_ATTEMPTS, text)
            return
        if text is not None:
            client.failures.note(message.number, message.slot, self._clock.wall_us(), text)
        wait_us = backoff_us(message, client.options.backoff) if wait_us is None else wait_us
        self._consumer.fail(message, wait_us, text)

    def dead_letter(self, message: Message, reason: str, *, error: BaseException | str | None = None) -> None:
        """Give up on it: it goes to the dead-letter queue, with the reason and what is known of its errors. If that
        does not take it (``QueueFull``, say), it is still ours."""
        self._mine()
        if not isinstance(reason, str):
            raise Misuse(f"a reason is a str, not {reason!r}")
        self._moves.dead_letter(message, text_of(reason), None if error is None else text_of(error))

    def move(self, message: Message, *, to: TimeQueue | str | os.PathLike[str]) -> None:
        """Into another queue. It is on disk there before it leaves this one, and stored once, whoever dies on the
        way. Its id stays the same. If the other queue does not take it, it is still ours."""
        self._mine()
        self._moves.move(message, to)

    def give_up(self, message: Message, reason: str) -> None:
        """A delivery that is not made: dropped or dead-lettered, as the queue's options say."""
        self._mine()
        with contextlib.suppress(LeaseLost):  # then it is somebody else's by now
            self._moves.give_up(message, reason)

    def finish_move(self, message: Message) -> bool:
        """Whether somebody who died was moving this message, which was just delivered: then it is moved, or waits."""
        return self._moves.finish(message)

    def dead_letters(self) -> TimeQueue | None:
        """The queue that dead letters go to, open; None if there have been none, or if they are deleted."""
        self._mine()
        return self._moves.dead_letters(make_it=False)

    def redrive(
        self,
        *,
        type: Names | None = None,
        key: Names | None = None,
        reason: Names | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Bring dead letters back: all that are there now, or those of a type, key or reason, one or several of each.
        They start anew, without attempts. How many; ``progress`` is told on the way."""
        dead = self.dead_letters()
        if dead is None:
            return 0
        dead._mine()
        return dead._moves.move_many(self, wanted(type, key, reason), limit=limit, progress=progress, revive=True)

    def move_all(
        self,
        *,
        to: TimeQueue | str | os.PathLike[str],
        type: Names | None = None,
        key: Names | None = None,
        reason: Names | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """``move`` all messages that wait here now, due or not, or those of a type, key or reason; how many."""
        self._mine()
        target = self._moves.target(to)
        return self._moves.move_many(target, wanted(type, key, reason), limit=limit, progress=progress, revive=False)

    def extend(self, message: Message, seconds: float) -> None:
        """Keep it for ``seconds`` from now."""
        self._mine()
        self._consumer.extend(message, int(check_seconds("seconds", seconds, zero=False) * 1_000_000))

    def consumer(
        self,
        prefetch: int = PREFETCH,
        *,
        wait: float | None = None,
        lease: float | None = None,
        type: str | Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
    ) -> QueueConsumer:
        """A loop over messages, for threads and for coroutines (``async with``, ``async for``).

        Asking for the next message acknowledges the one before, and nothing else does: a loop that is left by an
        exception, ``break`` or ``return`` gives the message in hand back, unless it was acknowledged before. Up to
        ``prefetch`` messages are taken at once; their leases are extended while work goes on, and what was not started
        goes back at the end of the block. The loop ends when no message came for ``wait`` seconds; None: never.
        ``type`` and ``key`` as in ``get``.

        >>> import penstock
        >>> q = penstock.create(path)
        >>> ids = q.put_many(["a", "b", "c"])
        >>> with q.consumer(wait=0) as consumer:
        ...     for message in consumer:
        ...         print(message.body)
        a
        b
        c
        """
        wait_s = None if wait is None else check_seconds("wait", wait)
        lease_s = self._lease_us(lease) / 1e6
        types, keys = check_names("type", type), check_names("key", key)
        return QueueConsumer(self, prefetch=prefetch, wait_s=wait_s, lease_s=lease_s, types=types, keys=keys)

    # ------------------------------------------------------------ the same for coroutines

    aput = coroutines.aput
    aput_many = coroutines.aput_many
    aget = coroutines.aget
    aget_many = coroutines.aget_many
    aack = coroutines.aack
    aack_many = coroutines.aack_many
    areply = coroutines.areply
    arelease = coroutines.arelease
    afail = coroutines.afail
    aextend = coroutines.aextend

    # ------------------------------------------------------------ claims

    def receiver(self, name: str, *, wait: float = 0.0, timeout: float | None = None) -> Receiver:
        """Become the receiver of this name, whose claims outlive every process: see ``Receiver``.

        ``ReceiverBusy`` if somebody else is, and still is after ``wait`` seconds. ``timeout`` seconds after it has
        claimed or committed last, if it is not there, anybody may release its claims. 0: never, as it is at first;
        None: as it was said last.
        """
        timeout_s = None if timeout is None else check_seconds("timeout", timeout)
        return Receiver(self, name, wait_s=check_seconds("wait", wait), timeout_s=timeout_s)

    def receivers(self) -> list[ReceiverInfo]:
        """All names that have been receivers, with and without claims."""
        return known.receivers(self._mine())

    def forget_receiver(self, name: str) -> None:
        """Free the name of a receiver that will not come back. ``Misuse`` if it has open claims."""
        known.forget(self, name)

    def claims(self) -> list[ClaimInfo]:
        """The open claims of all receivers."""
        return known.open_claims(self._mine())


def _is_name(value: Any) -> bool:
    return value is None or value.__class__ is str
