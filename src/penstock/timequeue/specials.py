"""Owns what a message may bring beside the usual: expiry, dedup id, its own limits; checked, and made into fields of
its meta. Never locks, never touches the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from penstock.errors import Misuse
from penstock.interface import Special
from penstock.store import layout as L
from penstock.store.backoff import checked
from penstock.store.keys import dedup_keys
from penstock.store.options import Options
from penstock.timequeue.arguments import check_seconds
from penstock.timequeue.puts import Draft, Extra, to_us

ATTEMPTS_MAX = 1_000_000
DEDUP_ID_BYTES_MAX = 1024
WINDOW_S_MAX = 366 * 86_400.0


NAMES = tuple(Special.__annotations__)


def check_attempts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= ATTEMPTS_MAX:
        raise Misuse(f"max_attempts must be a whole number from 1 to {ATTEMPTS_MAX}, not {value!r}")
    return value


def check_window(value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return min(check_seconds("dedup_window", seconds, zero=False), WINDOW_S_MAX)


class Specials:
    """Makes them for the puts of one queue."""

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._name = name
        self._key = dedup_keys(options.signature)
        self._window_us = int(options.dedup_window_s * 1_000_000)

    def of(self, given: Mapping[str, Any], now_us: int) -> Extra | None:
        """Of the options of a call; None if none of them is given."""
        if len(given) == 1 and self._options.dedup_entries:  # most often: next to nothing to check
            dedup_id = given.get("dedup_id")
            if dedup_id.__class__ is str and dedup_id.isascii() and 0 < len(dedup_id) <= DEDUP_ID_BYTES_MAX:
                return self._known_by(dedup_id, now_us + self._window_us, {}, 0)
        for name in given:
            if name not in NAMES:
                raise TypeError(f"put got an unexpected keyword argument {name!r}")
        if all(value is None for value in given.values()):
            return None
        return self._make(given, now_us)

    def of_draft(self, draft: Draft, now_us: int) -> Extra | None:
        given = {name: value for name in NAMES if (value := getattr(draft, name)) is not None}
        return self._make(given, now_us) if given else None

    def _make(self, given: Mapping[str, Any], now_us: int) -> Extra:
        fields: dict[str, Any] = {}
        expires_at, ttl = given.get("expires_at"), given.get("ttl")
        if expires_at is not None or ttl is not None:
            fields["x"] = _expires_us(expires_at, ttl, now_us)
        if given.get("max_attempts") is not None:
            fields["a"] = check_attempts(given["max_attempts"])
        if given.get("backoff") is not None:
            backoff = checked(given["backoff"])
            fields["b"] = (backoff.first, backoff.factor, backoff.most, backoff.jitter)
        if given.get("lease") is not None:
            fields["l"] = int(check_seconds("lease", given["lease"], zero=False) * 1_000_000)
        if given.get("dedup_id") is None:
            if given.get("dedup_window") is not None:
                raise Misuse("a dedup_window is that of a dedup_id")
            return Extra(fields, L.FLAG_SPECIAL)
        return self._remembered(fields, given["dedup_id"], given.get("dedup_window"), now_us)

    def _remembered(self, fields: dict[str, Any], dedup_id: Any, window: Any, now_us: int) -> Extra:
        try:
            possible = isinstance(dedup_id, str) and 0 < len(dedup_id.encode()) <= DEDUP_ID_BYTES_MAX
        except UnicodeEncodeError:
            possible = False
        if not possible:
            raise Misuse(f"dedup_id must be a str of 1 to {DEDUP_ID_BYTES_MAX} bytes, not {dedup_id!r}")
        if self._options.dedup_entries == 0:
            raise Misuse(
                f"{self._name}: this queue remembers no dedup ids: it was made by an earlier version, or with "
                f"dedup_entries=0; `penstock upgrade` makes one that does"
            )
        window_s = self._options.dedup_window_s if window is None else check_window(window)
        return self._known_by(dedup_id, now_us + int(window_s * 1_000_000), fields, L.FLAG_SPECIAL if fields else 0)

    def of_answer(self, dedup_id: str | None, until_us: int) -> Extra:
        """Of an answer, which expires at that time, and is stored once until then if it has a dedup id."""
        if dedup_id is None:
            return Extra({"x": until_us}, L.FLAG_SPECIAL)
        return self._known_by(dedup_id, until_us, {"x": until_us}, L.FLAG_SPECIAL)

    def _known_by(self, dedup_id: str, until_us: int, fields: dict[str, Any], flags: int) -> Extra:
        fields["d"] = dedup_id
        fields["u"] = until_us
        return Extra(fields, flags | L.FLAG_REMEMBERED, self._key(dedup_id), until_us)


def _expires_us(expires_at: Any, ttl: Any, now_us: int) -> int:
    if expires_at is not None and ttl is not None:
        raise Misuse("give expires_at or ttl, not both")
    try:
        moment_us = to_us(expires_at, ttl, now_us)
    except Misuse as error:
        text = str(error).replace("deliver_at", "expires_at").replace("delay", "ttl")
        raise Misuse(text.replace("delivery time", "time")) from None
    return moment_us or now_us  # a ttl of 0: it has expired
