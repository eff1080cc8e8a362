"""Owns what becomes of messages that fail: whether one is still to be delivered, how long it waits for the next
attempt, what is kept of an error. Decides only; never locks, never touches the queue.
"""

from __future__ import annotations

from penstock.message import Message
from penstock.store.backoff import Backoff
from penstock.store.failures import TEXT_MAX

EXPIRED = "expired"
MAX_ATTEMPTS = "max_attempts"
PARKED_US = 60 * 1_000_000  # how long a message waits whose dead-letter queue did not take it


def limit_of(message: Message, max_attempts: int) -> int:
    """How often it is delivered at most: its own limit, or else the queue's; 0: any number of times."""
    if not message._special:
        return max_attempts
    if message.meta.r is not None:  # a dead letter: its limits were those of another queue
        return max_attempts
    return message.meta.a or max_attempts


def fate(message: Message, max_attempts: int, now_us: int) -> str | None:
    """Why a message that was just claimed is not to be delivered; None if it is."""
    if message._special and message.meta.x is not None and message.meta.x <= now_us and message.meta.r is None:
        return EXPIRED
    limit = limit_of(message, max_attempts)
    return MAX_ATTEMPTS if 0 < limit < message.attempts else None


def backoff_us(message: Message, backoff: Backoff | None) -> int:
    """How long it waits after this attempt, by its own backoff or else the queue's."""
    if message._special and message.meta.b is not None and message.meta.r is None:
        backoff = Backoff(*message.meta.b)
    return backoff.delay_us(message.attempts, message.number) if backoff is not None else 0


def text_of(error: BaseException | str) -> str:
    """An error in a line, as it is kept.

    >>> text_of(KeyError("a"))
    "KeyError: 'a'"
    """
    text = error if isinstance(error, str) else f"{error.__class__.__name__}: {error}"
    return text.encode("utf-8", "replace").decode()[:TEXT_MAX]
