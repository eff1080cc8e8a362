"""Owns Backoff: how long a message that failed waits before it is delivered again. Pure; never reads a clock, and its
chance comes from the message's number, so that it needs no state and a test can know it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.errors import Misuse
from penstock.store import layout as L

LONGEST_S = 30 * 86_400.0  # a message that waits longer for its next attempt is meant for a dead-letter queue

Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]


class Backoff(msgspec.Struct, frozen=True):
    """After the first failed attempt ``first`` seconds, after each further one ``factor`` times as long, at most
    ``most``; of each delay a share of up to ``jitter`` is left out by chance, so that many do not come back at once.

    >>> wait = Backoff.exponential(1, most=60)
    >>> [wait.delay_us(attempts, 7) // 1_000_000 for attempts in (1, 2, 3, 8)]
    [1, 2, 4, 60]
    """

    first: Seconds
    factor: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 1.0
    most: Seconds = LONGEST_S
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0

    @classmethod
    def constant(cls, seconds: float, *, jitter: float = 0.0) -> Backoff:
        return checked(cls(seconds, 1.0, LONGEST_S, jitter))

    @classmethod
    def exponential(
        cls, first: float = 1.0, factor: float = 2.0, most: float = 3600.0, *, jitter: float = 0.0
    ) -> Backoff:
        return checked(cls(first, factor, most, jitter))

    def delay_us(self, attempts: int, number: int) -> int:
        """How long message ``number`` waits that was delivered ``attempts`` times."""
        delay_s = min(self.first, self.most)
        left = max(attempts, 1) - 1
        while left and 0 < delay_s < self.most and self.factor > 1:
            delay_s = min(delay_s * self.factor, self.most)
            left -= 1
        chance = (((number + attempts * L.MIX_SLOT) * L.MIX_NUMBER) & L.MASK64) / 2.0**64
        return round(delay_s * (1.0 - self.jitter * chance) * 1_000_000)


def checked(given: object) -> Backoff:
    """A number of seconds, or a Backoff, whose figures are possible."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = Backoff(given)
    if not isinstance(given, Backoff):
        raise Misuse(f"backoff must be a number of seconds or a penstock.Backoff, not {given!r}")
    try:
        return msgspec.convert(msgspec.to_builtins(given), Backoff)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise Misuse(
            f"{given!r} is no backoff: first and most are seconds from 0 to {LONGEST_S:.0f}, factor is from 1 to "
            f"1000, jitter one from 0 to 1"
        ) from error
