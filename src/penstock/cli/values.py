"""Owns what a word on the command line means: sizes, counts, spans of time, moments, headers. Pure.

An option's default comes through its parser too, as the number that it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum

import typer

_NUMBER = re.compile(r"(\d[\d_]*(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)", re.ASCII)

_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}
_SECONDS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class Durability(StrEnum):
    commit = "commit"
    relaxed = "relaxed"


class Model(StrEnum):
    """What a put waits for."""

    one_way = "one-way"
    queued = "queued-acknowledged"
    acknowledged = "acknowledged"
    two_way = "two-way"


class Expired(StrEnum):
    """What becomes of messages that have expired. Its members are also those that ``create`` takes."""

    drop = "drop"
    dead_letter = "dead_letter"


class State(StrEnum):
    waiting = "waiting"
    pending = "pending"
    all = "all"


class Kind(StrEnum):
    """What a body is put as, and so what a receiver's ``message.body`` will be."""

    bytes = "bytes"
    text = "text"
    json = "json"


def _split(text: str | float, what: str) -> tuple[str, str]:
    match = _NUMBER.fullmatch(str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not {what}")
    return match[1].replace("_", ""), match[2]


def size_bytes(text: str | int) -> int:
    """
    >>> size_bytes("64M"), size_bytes("1.5GiB"), size_bytes("4096")
    (67108864, 1610612736, 4096)
    """
    what = "a size such as 4096, 64M or 2G"
    number, unit = _split(text, what)
    unit = unit.upper().removesuffix("IB") if len(unit) == 3 else unit.upper().removesuffix("B")
    if unit not in _BINARY:
        raise typer.BadParameter(f"{text!r} is not {what}")
    return _whole(float(number) * _BINARY[unit] if "." in number else int(number) * _BINARY[unit], text)


def count(text: str | int) -> int:
    """
    >>> count("1_000_000"), count("50k")
    (1000000, 50000)
    """
    what = "a number such as 1000, 50k or 1M"
    number, unit = _split(text, what)
    if unit not in _DECIMAL:
        raise typer.BadParameter(f"{text!r} is not {what}")
    return _whole(float(number) * _DECIMAL[unit] if "." in number else int(number) * _DECIMAL[unit], text)


def octal(text: str | int) -> int:
    """Rights of files, as chmod takes them.

    >>> octal("660") == 0o660
    True
    """
    try:
        return text if isinstance(text, int) else int(text, 8)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a mode such as 600 or 660") from None


def _whole(value: float | int, text: str | int) -> int:
    if value != int(value):
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(value)


def span_s(text: str | float) -> float:
    """
    >>> span_s("1.5"), span_s("250ms"), span_s("2h")
    (1.5, 0.25, 7200.0)
    """
    what = "a span of time such as 1.5, 250ms, 30s, 5m, 2h or 1d"
    number, unit = _split(text, what)
    if unit not in _SECONDS:
        raise typer.BadParameter(f"{text!r} is not {what}")
    seconds = float(number) * _SECONDS[unit]
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{text!r} is too long")
    return seconds


def moment(text: str) -> datetime:
    """
    >>> moment("2030-01-02T03:04:05Z") == moment("2030-01-02 05:04:05+02:00") == moment("1893553445")
    True
    """
    try:
        return datetime.fromtimestamp(float(text), tz=UTC)
    except (OverflowError, OSError):
        raise typer.BadParameter(f"{text!r} is out of range") from None
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2030-01-02T09:00:00Z, 2030-01-02T09:00+02:00 or epoch seconds"
        ) from None
    if found.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone: append Z, or an offset such as +02:00")
    return found


def headers(pairs: list[str] | None) -> dict[str, str] | None:
    """
    >>> headers(["a=b", "c=d=e"])
    {'a': 'b', 'c': 'd=e'}
    """
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not name=value", param_hint="'--header'")
        found[name] = value
    return found or None


def readable_s(seconds: float) -> str:
    """
    >>> readable_s(0.25), readable_s(42.4), readable_s(150), readable_s(3700), readable_s(200_000)
    ('0.2s', '42s', '2m30s', '1h01m', '2d07h')
    """
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{seconds // 60:.0f}m{seconds % 60 // 1:02.0f}s"
    if seconds < 86_400:
        return f"{seconds // 3600:.0f}h{seconds % 3600 // 60:02.0f}m"
    return f"{seconds // 86_400:.0f}d{seconds % 86_400 // 3600:02.0f}h"


def short_s(seconds: float) -> str:
    """As ``readable_s``, also for what takes no time to speak of.

    >>> short_s(0), short_s(0.0000075), short_s(0.00025), short_s(0.0123), short_s(1.25), short_s(150)
    ('0 µs', '8 µs', '250 µs', '12.3 ms', '1.25 s', '2m30s')
    """
    for unit, scale in (("µs", 1e6), ("ms", 1e3), ("s", 1.0)):
        if seconds * scale < (60 if unit == "s" else 999.5):
            return f"{seconds * scale:.0f} {unit}" if unit == "µs" else f"{seconds * scale:.3g} {unit}"
    return readable_s(seconds)


def failures(failed: Mapping[str, str]) -> str:
    """Why members of a macro queue are passed over, in a line.

    >>> failures({"a": "damaged", "b": "not there"})
    'a: damaged; b: not there'
    """
    return "; ".join(f"{name}: {' '.join(why.split())}" for name, why in failed.items())


def readable_bytes(size: float) -> str:
    """
    >>> readable_bytes(0), readable_bytes(1 << 20), readable_bytes(1500)
    ('0 B', '1 MiB', '1.465 KiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
