"""Owns the ids of messages as a program sees them: those of a batch, and taking one apart. Never looks into a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from penstock.errors import Misuse
from penstock.timequeue.puts import Entry

if TYPE_CHECKING:
    from penstock.timequeue.columns import Columns


class MessageIds(Sequence[str]):
    """The ids of a batch, in order. Made when looked at: a batch of a thousand seldom needs a thousand strings."""

    def __init__(self, prefix: str, entries: list[Entry] | Columns) -> None:
        self._prefix = prefix
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> MessageIds: ...
    def __getitem__(self, index: int | slice) -> str | MessageIds:
        if isinstance(index, slice):
            return MessageIds(self._prefix, self._entries[index])
        return self._entries[index].id(self._prefix)

    def __repr__(self) -> str:
        return f"<MessageIds of {len(self)}>"


def taken_apart(message_id: str, prefix: str, name: str) -> tuple[int, int]:
    """Slot and number of a message of the queue of this name, whose ids have this prefix."""
    try:
        tag, slot, number = message_id.split("-")
        found = int(slot, 16), int(number, 16)
    except (ValueError, AttributeError, TypeError):
        raise Misuse(f"{message_id!r} is not a message id") from None
    if tag + "-" != prefix:
        raise Misuse(f"{message_id} is a message of another queue than {name}")
    return found
