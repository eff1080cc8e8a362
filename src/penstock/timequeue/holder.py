"""Owns what whoever has a message can do with it, as far as those need it who give it up or move it. Never does it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from penstock.message import Message


class Holder(Protocol):
    """Whose a message is: a consumer's by its lease, or a receiver's by its claim."""

    def holds(self, message: Message) -> bool: ...
    def keep(self, message: Message, span_us: int) -> None: ...
    def remove(self, messages: Iterable[Message], statistic: int, result: int, text: bytes) -> None: ...
    def park(self, message: Message, delay_us: int) -> None: ...
