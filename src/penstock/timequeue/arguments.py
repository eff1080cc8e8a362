"""Owns what callers may give: seconds, the path of a queue, durability; checked before anything is tried."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from penstock.errors import Misuse
from penstock.store import layout as L

DURABILITIES = ("commit", "relaxed")
STATES = ("waiting", "pending", "all")  # of the messages that one looks at

BUSY_S = 10.0


def check_seconds(name: str, value: float, *, zero: bool = True) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # NaN is neither
        raise Misuse(f"{name} must be a number of seconds, not {value!r}")
    if not zero and value == 0:
        raise Misuse(f"{name} must be more than 0 seconds")
    return min(value, 1e9)


def delay_us(delay: float | timedelta | None) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0.0
    return int(check_seconds("delay", seconds) * 1_000_000)


def check_most(most: int) -> int:
    if most.__class__ is not int or most < 1:
        raise Misuse(f"the number of messages must be a whole number above 0, not {most!r}")
    return min(most, L.SLOTS_MAX)


def check_limit(limit: int | None) -> None:
    if limit is not None and (limit.__class__ is not int or limit < 0):
        raise Misuse(f"limit must be a whole number, not {limit!r}")


def check_state(state: str) -> None:
    if state not in STATES:
        raise Misuse(f"state must be waiting, pending or all, not {state!r}")


def queue_path(path: str | os.PathLike[str]) -> Path:
    name = path if isinstance(path, str) else path.__fspath__() if isinstance(path, os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise Misuse(f"the path of a queue must be a str or Path without null characters, not {path!r}")
    if name == "":
        raise Misuse("the path of the queue is empty")
    return Path(os.path.abspath(path))


def check_durability(durability: str) -> str:
    if durability not in DURABILITIES:
        raise Misuse(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    return durability


def check_names(name: str, value: str | Iterable[str] | None) -> tuple[str, ...]:
    """One or several types or keys; none where anything will do.

    >>> check_names("type", None), check_names("type", "a"), check_names("type", ["a", "b"])
    ((), ('a',), ('a', 'b'))
    """
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not names or not all(isinstance(one, str) for one in names):
        raise Misuse(f"{name} must be a str or several, not {value!r}")
    return tuple(dict.fromkeys(names))


def check_several(name: str, bodies: object, hint: str = "") -> None:
    """A body where several are meant would be put letter by letter."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise Misuse(f"{name} takes several bodies{hint}")
