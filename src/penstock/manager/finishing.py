"""Owns what becomes of messages that were got of a macro queue: ack, release and the like, each a matter of the member
that delivered it. Never decides where messages come from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.errors import LeaseLost, Misuse
from penstock.manager.members import Group, Members
from penstock.message import Message


class OfMembers(ABC):
    """What the parts of ``MacroQueue`` need of it."""

    _members: Members

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def _mine(self) -> Group: ...


class Finishing(OfMembers):
    """A part of ``MacroQueue``."""

    def _home(self, message: Any) -> Any:
        """The queue that delivered a message: one of ours, also one that is a member no longer."""
        homes, lost = self._by_home((message,))
        if lost is not None:
            raise lost
        return next(iter(homes.values()))[0]

    def _by_home(self, messages: Iterable[Message]) -> tuple[dict[int, tuple[Any, list[Message]]], LeaseLost | None]:
        """Messages by the queues that delivered them, and what to say of those that are not ours."""
        self._mine()
        ours = {id(member.queue) for member in self._members.opened()}
        found: dict[int, tuple[Any, list[Message]]] = {}
        lost = None
        for message in messages:
            if not isinstance(message, Message):
                raise Misuse(f"{message!r} is not a message")
            home = message._receiver
            if id(home) in ours:
                found.setdefault(id(home), (home, []))[1].append(message)
            else:
                lost = lost or LeaseLost(self.name, message.id)
        return found, lost

    def ack(self, message: Message, *, durable: bool = False) -> None:
        """Done with it: it leaves its member."""
        self._home(message).ack(message, durable=durable)

    def ack_many(self, messages: Iterable[Message], *, durable: bool = False) -> None:
        """All that are still ours; then ``LeaseLost`` if one was not."""
        homes, lost = self._by_home(messages)
        for home, some in homes.values():
            try:
                home.ack_many(some, durable=durable)
            except LeaseLost as error:
                lost = lost or error
        if lost is not None:
            raise lost

    def reply(self, message: Message, body: Any) -> None:
        """To whoever asked, and done with it."""
        self._home(message).reply(message, body)

    def release(self, message: Message, *, delay: Any = None) -> None:
        self._home(message).release(message, delay=delay)

    def fail(self, message: Message, error: BaseException | str | None = None, *, delay: Any = None) -> None:
        self._home(message).fail(message, error, delay=delay)

    def dead_letter(self, message: Message, reason: str, *, error: BaseException | str | None = None) -> None:
        """To the dead letters of its member."""
        self._home(message).dead_letter(message, reason, error=error)

    def move(self, message: Message, *, to: Any) -> None:
        """Into a queue of its own. A macro queue is none: which member it were, nobody could say after a kill."""
        if isinstance(to, Finishing):
            raise Misuse(f"{self.name}: messages are moved into a queue of its own, not into a macro queue")
        self._home(message).move(message, to=to)

    def extend(self, message: Message, seconds: float) -> None:
        self._home(message).extend(message, seconds)

    def unget(self, messages: Iterable[Message]) -> None:
        for home, some in self._by_home(messages)[0].values():
            home.unget(some)

    async def aack(self, message: Message, *, durable: bool = False) -> None:
        await self._home(message).aack(message, durable=durable)

    async def aack_many(self, messages: Iterable[Message], *, durable: bool = False) -> None:
        homes, lost = self._by_home(messages)
        for home, some in homes.values():
            try:
                await home.aack_many(some, durable=durable)
            except LeaseLost as error:
                lost = lost or error
        if lost is not None:
            raise lost

    async def areply(self, message: Message, body: Any) -> None:
        await self._home(message).areply(message, body)

    async def arelease(self, message: Message, *, delay: Any = None) -> None:
        await self._home(message).arelease(message, delay=delay)

    async def afail(self, message: Message, error: BaseException | str | None = None, *, delay: Any = None) -> None:
        await self._home(message).afail(message, error, delay=delay)

    async def aextend(self, message: Message, seconds: float) -> None:
        await self._home(message).aextend(message, seconds)
