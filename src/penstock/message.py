"""Owns Message, what travels: one delivery, or a look at one. Never touches a file."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.codec import CODEC_BYTES, Meta, decode_body, decode_meta
from penstock.errors import Corrupt, PenstockError

if TYPE_CHECKING:
    from types import TracebackType

WAITING = "waiting"
PENDING = "pending"
DONE = "done"
LOST = "lost"  # its lease ended while a consumer held it: another receiver may have it

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


class Receiver(Protocol):
    """What a message needs of the queue that delivered it."""

    @property
    def name(self) -> str: ...
    def message_id(self, slot: int, number: int) -> str: ...
    def ack(self, message: Message, *, durable: bool = False) -> None: ...
    def reply(self, message: Message, body: Any) -> None: ...
    def send_receipts(self, messages: Iterable[Message]) -> None: ...
    def release(self, message: Message, *, delay: float | timedelta | None = None) -> None: ...
    def fail(
        self, message: Message, error: BaseException | str | None = None, *, delay: float | timedelta | None = None
    ) -> None: ...
    def dead_letter(self, message: Message, reason: str, *, error: BaseException | str | None = None) -> None: ...
    def move(self, message: Message, *, to: Any) -> None: ...
    def give_up(self, message: Message, reason: str) -> None: ...
    def finish_move(self, message: Message) -> bool: ...
    def extend(self, message: Message, seconds: float) -> None: ...
    async def aack(self, message: Message, *, durable: bool = False) -> None: ...
    async def areply(self, message: Message, body: Any) -> None: ...
    async def arelease(self, message: Message, *, delay: float | timedelta | None = None) -> None: ...
    async def afail(
        self, message: Message, error: BaseException | str | None = None, *, delay: float | timedelta | None = None
    ) -> None: ...
    async def aextend(self, message: Message, seconds: float) -> None: ...


class Stored(Protocol):
    """A body that is a file of its own, and is not read before somebody wants it."""

    @property
    def length(self) -> int: ...
    def read(self, message: Message) -> bytes: ...
    def open(self, message: Message) -> io.BufferedIOBase: ...


class Message:
    """One delivery of a message (from ``get``), or a look at one (from ``browse``).

    As a context manager, ``with`` or ``async with``, it is acknowledged when the block ends. When the block raises an
    Exception, it has failed; interrupted, it is released.
    """

    __slots__ = (
        "_body",
        "_codec",
        "_data",
        "_meta",
        "_meta_bytes",
        "_receiver",
        "_special",
        "_stored",
        "attempts",
        "body_bytes",
        "deliver_us",
        "enqueued_us",
        "last_attempt_us",
        "lease_us",
        "number",
        "owner",
        "priority",
        "slot",
        "state",
    )

    # Made by ``new_message``: without a constructor's fifteen arguments, of which the compiled core makes no objects.
    _receiver: Receiver
    _codec: int
    _meta_bytes: bytes
    _meta: Meta | None
    _body: Any
    _data: bytes | None  # None: it is a file that nobody has read yet
    _stored: Stored | None
    body_bytes: int
    _special: bool  # its meta says more than type, key and headers
    slot: int
    number: int
    attempts: int
    deliver_us: int
    enqueued_us: int
    priority: int
    last_attempt_us: int
    lease_us: int
    owner: int
    state: str

    @property
    def id(self) -> str:
        """Unique across queues, and the same for the message's whole life, wherever it is moved to."""
        if self._special and self.meta.o is not None:
            return self.meta.o
        return self._receiver.message_id(self.slot, self.number)

    @property
    def queue(self) -> str:
        """The name of the queue that it is in: its path."""
        return self._receiver.name

    @property
    def body(self) -> Any:
        """What was put: bytes, str, or a JSON value. ``data`` has the bytes as stored, ``open`` streams them."""
        if self._codec == CODEC_BYTES:
            return self.data
        if self._body is None:
            self._body = decode_body(self._codec, self.data)
        return self._body

    @property
    def data(self) -> bytes:
        """The bytes of the body, ``body_bytes`` of them. A large one is a file: read now, before the message goes."""
        if self._data is None:
            assert self._stored is not None
            self._data = self._stored.read(self)
        return self._data

    def open(self) -> io.BufferedIOBase:
        """The bytes of the body as a file to read, which need not all be in memory.

        Open it before the message is acknowledged; what is open can be read to its end. Whoever reads the last byte
        gets ``Corrupt`` if they are not those that were put.
        """
        if self._data is not None:
            return io.BytesIO(self._data)
        assert self._stored is not None
        return self._stored.open(self)

    @property
    def meta(self) -> Meta:
        if self._meta is None:
            try:
                self._meta = decode_meta(self._meta_bytes)
            except msgspec.DecodeError as error:
                raise Corrupt(self.id, offset=0, expected="type, key and headers", found=str(error)) from error
        return self._meta

    @property
    def type(self) -> str | None:
        return self.meta.t

    @property
    def key(self) -> str | None:
        return self.meta.k

    @property
    def headers(self) -> dict[str, str]:
        return self.meta.h or {}

    @property
    def enqueued_at(self) -> datetime:
        return to_datetime(self.enqueued_us)

    @property
    def deliver_at(self) -> datetime:
        return to_datetime(self.deliver_us)

    @property
    def last_attempt_at(self) -> datetime | None:
        return to_datetime(self.last_attempt_us) if self.last_attempt_us else None

    @property
    def lease_ends_at(self) -> datetime | None:
        """When this delivery's lease ends, by the wall clock at the time it was taken or extended."""
        return to_datetime(self.lease_us) if self.lease_us else None

    @property
    def expires_at(self) -> datetime | None:
        """From when on it is not delivered any more."""
        return to_datetime(self.meta.x) if self.meta.x is not None else None

    @property
    def dedup_id(self) -> str | None:
        return self.meta.d

    @property
    def max_attempts(self) -> int | None:
        """Its own limit, where it was put with one."""
        return self.meta.a

    @property
    def own_lease_s(self) -> float | None:
        """Its own lease, where it was put with one; a dead letter's does not count."""
        if not self._special or self.meta.l is None or self.meta.r is not None:
            return None
        return self.meta.l / 1e6

    @property
    def reason(self) -> str | None:
        """Of a dead letter: why it is one."""
        return self.meta.r

    @property
    def error(self) -> str | None:
        """Of a dead letter: the last error."""
        return self.meta.e

    @property
    def history(self) -> list[tuple[datetime, str]]:
        """Of a dead letter: the last errors with their times, the oldest first."""
        return [(to_datetime(at_us), text) for at_us, text in self.meta.y or ()]

    @property
    def attempts_before(self) -> int:
        """Of a message that was moved: how often it was delivered where it came from."""
        return self.meta.n or 0

    @property
    def came_from(self) -> str | None:
        """Of a message that was moved: the path of the queue that it came from."""
        return self.meta.f

    @property
    def wants_reply(self) -> bool:
        """Whether somebody waits for ``reply``. An ``ack`` is a reply of None."""
        return self._special and self.meta.q is not None and self.meta.q[0] == "r"

    def ack(self, *, durable: bool = False) -> None:
        """Done with it: it leaves the queue; with ``durable`` on disk too, when this returns."""
        self._receiver.ack(self, durable=durable)

    def reply(self, body: Any) -> None:
        """Answer it, and be done with it: the reply is stored for whoever asked, then the message is acknowledged."""
        self._receiver.reply(self, body)

    def release(self, *, delay: float | timedelta | None = None) -> None:
        """Give it back, now or after ``delay`` seconds."""
        self._receiver.release(self, delay=delay)

    def fail(self, error: BaseException | str | None = None, *, delay: float | timedelta | None = None) -> None:
        """It could not be dealt with: give it back, for as long as the backoff says, or for ``delay`` seconds. What
        went wrong is kept, and goes with it if it becomes a dead letter."""
        self._receiver.fail(self, error, delay=delay)

    def dead_letter(self, reason: str, *, error: BaseException | str | None = None) -> None:
        """Give up on it: it goes to the dead-letter queue, or where those are deleted, away."""
        self._receiver.dead_letter(self, reason, error=error)

    def move(self, *, to: Any) -> None:
        """Into another queue, given as one or by its path. It is there before it is gone here, and once."""
        self._receiver.move(self, to=to)

    def extend(self, seconds: float) -> None:
        """Ask for ``seconds`` more from now."""
        self._receiver.extend(self, seconds)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state != PENDING:  # acked or released inside the block
            return
        if error is None:
            self.ack()
            return
        try:
            if isinstance(error, Exception):
                # A damaged body comes back after a lease's time: it is not in everybody's way.
                self.fail(error, delay=self._lease_s() if isinstance(error, Corrupt) else None)
            else:  # interrupted: the message is not to blame
                self.release()
        except PenstockError as late:  # the block's own error is the one to raise
            error.add_note(str(late))

    async def aack(self, *, durable: bool = False) -> None:
        """``ack`` for coroutines."""
        await self._receiver.aack(self, durable=durable)

    async def areply(self, body: Any) -> None:
        """``reply`` for coroutines."""
        await self._receiver.areply(self, body)

    async def arelease(self, *, delay: float | timedelta | None = None) -> None:
        """``release`` for coroutines."""
        await self._receiver.arelease(self, delay=delay)

    async def afail(self, error: BaseException | str | None = None, *, delay: float | timedelta | None = None) -> None:
        """``fail`` for coroutines."""
        await self._receiver.afail(self, error, delay=delay)

    async def aextend(self, seconds: float) -> None:
        """``extend`` for coroutines."""
        await self._receiver.aextend(self, seconds)

    async def __aenter__(self) -> Message:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state != PENDING:
            return
        if error is None:
            await self.aack()
            return
        try:
            if isinstance(error, Exception):
                await self.afail(error, delay=self._lease_s() if isinstance(error, Corrupt) else None)
            else:
                await self.arelease()
        except PenstockError as late:
            error.add_note(str(late))

    def _lease_s(self) -> float:
        return max(self.lease_us - self.last_attempt_us, 0) / 1e6

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a message belongs to the queue object that got it: pass on its body or its id")

    def __repr__(self) -> str:
        return f"<Message {self.id} priority={self.priority} attempts={self.attempts}>"


def new_message(
    receiver: Receiver,
    slot: int,
    number: int,
    attempts: int,
    deliver_us: int,
    enqueued_us: int,
    priority: int,
    codec: int,
    meta: bytes,
    data: bytes,
    last_attempt_us: int,
    lease_us: int,
    owner: int,
    state: str,
    stored: Stored | None = None,
) -> Message:
    """``data`` is the body, or with ``stored`` only what the record says of it."""
    message = Message.__new__(Message)
    message._receiver = receiver
    message._codec = codec
    message._meta_bytes = meta
    message._meta = None
    message._body = None
    message._special = False
    message.slot = slot
    message.number = number
    message.attempts = attempts
    message.deliver_us = deliver_us
    message.enqueued_us = enqueued_us
    message.priority = priority
    message._data = data if stored is None else None
    message._stored = stored
    message.body_bytes = len(data) if stored is None else stored.length
    message.last_attempt_us = last_attempt_us
    message.lease_us = lease_us
    message.owner = owner
    message.state = state
    return message
