"""Owns the models of a put: what it waits for, and what a message says of whoever waits for an answer to it. Pure: it
touches no queue and no clock.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from penstock.errors import Misuse
from penstock.message import Message
from penstock.store import layout as L
from penstock.timequeue.arguments import check_durability, check_seconds
from penstock.timequeue.puts import Extra

QUEUED = "queued-acknowledged"  # stored; and on disk, as the queue's durability says
ONE_WAY = "one-way"  # stored, and on disk soon
ACKNOWLEDGED = "acknowledged"  # a receiver has acknowledged it
TWO_WAY = "two-way"  # a receiver has replied
MODELS = (QUEUED, ONE_WAY, ACKNOWLEDGED, TWO_WAY)
WAYS = frozenset({"model", "wait", "reply_ttl"})  # what a put may be given of all this

REPLY_TTL_S = 3600.0  # an asker that was restarted is back by then
REPLY_TTL_S_MAX = 366 * 86_400.0

WANTS_RECEIPT = "a"  # as the meta of a message has it
WANTS_REPLY = "r"
BY_NUMBER = ""  # the name of an asker who waits for this one answer only, and knows the question's id


class Way(NamedTuple):
    """How a put is to be made."""

    model: str
    wait: bool
    reply_ttl_us: int
    durability: str | None

    @property
    def asks(self) -> bool:
        """Whether somebody is to answer."""
        return self.model in (ACKNOWLEDGED, TWO_WAY)

    def extra(self, extra: Extra | None, asker: str) -> Extra | None:
        """What the message says beside ``extra``."""
        if not self.asks:
            return extra
        wants = WANTS_REPLY if self.model == TWO_WAY else WANTS_RECEIPT
        asked = {"q": (wants, asker, self.reply_ttl_us)}
        if extra is None:
            return Extra(asked, L.FLAG_SPECIAL)
        return Extra({**extra.fields, **asked}, extra.flags | L.FLAG_SPECIAL, extra.key, extra.until_us)


def check_model(model: Any) -> str:
    if not isinstance(model, str) or model not in MODELS:
        raise Misuse(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    return model


def way_of(model: str | None, wait: bool, reply_ttl: float | timedelta | None, durability: str | None) -> Way:
    """
    >>> way_of("one-way", True, None, None).durability
    'relaxed'
    """
    chosen = QUEUED if model is None else check_model(model)
    if wait.__class__ is not bool:
        raise Misuse(f"wait must be True or False, not {wait!r}; how long is timeout=")
    if durability is not None:
        check_durability(durability)
    if chosen == ONE_WAY:
        if durability == "commit":
            raise Misuse(f"a put of the model {ONE_WAY} does not wait for the disk; {QUEUED} does")
        durability = "relaxed"
    if reply_ttl is not None and chosen not in (ACKNOWLEDGED, TWO_WAY):
        raise Misuse(f"a reply_ttl is for the models {ACKNOWLEDGED} and {TWO_WAY}")
    return Way(chosen, wait, int(_ttl_s(reply_ttl) * 1_000_000), durability)


def _ttl_s(reply_ttl: float | timedelta | None) -> float:
    if reply_ttl is None:
        return REPLY_TTL_S
    seconds = reply_ttl.total_seconds() if isinstance(reply_ttl, timedelta) else reply_ttl
    return min(check_seconds("reply_ttl", seconds, zero=False), REPLY_TTL_S_MAX)


def is_question(message: Message) -> bool:
    """Whether somebody waits for an answer to it."""
    return message._special and message.meta.q is not None


def wants_receipt(message: Message) -> bool:
    """Whether acknowledging it is an answer. Of a dead letter it is not: somebody who tidies up has done nothing."""
    return is_question(message) and message.meta.r is None
