"""Owns the table of options of ``format("penstock")``: names, meanings, defaults, and what their texts mean.

``docs/spark.md`` has the same table; a test compares them. Never opens a queue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.errors import Misuse
from penstock.store.claimfiles import check_name

READ = "read"
STREAM = "stream read"
WRITE = "write"

STATES = ("waiting", "scheduled", "pending", "all")
GONE = ("skip", "fail")
LOST = ("fail", "skip")

# Spark hands these of its own to a data source too.
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})


# Which queue is meant, in one of these ways.
WAYS = (("path",), ("root", "queue"))
PLACE = frozenset(name for way in WAYS for name in way)


class Option(msgspec.Struct, frozen=True):
    """An option; ``uses`` says for what it is. Without a default it must be given, but for those of ``PLACE``."""

    name: str
    uses: tuple[str, ...]
    default: str | None
    meaning: str
    parse: Callable[[str], Any]


def _path(value: str) -> str:
    """Absolute, here on the driver: executors have working directories of their own."""
    if not value:
        raise ValueError("must not be empty")
    return os.path.abspath(value)


def _name(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"must be one of {', '.join(values)}")
        return value.lower()

    return parse


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(value)

    return parse


def _yes_or_no(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ValueError("must be a number of seconds")
    return seconds


def _names(value: str) -> tuple[str, ...]:
    """``a, b`` or ``["a", "b"]``, where a name may have a comma."""
    if value.lstrip().startswith("["):
        try:
            return tuple(msgspec.json.decode(value, type=list[str]))
        except msgspec.DecodeError:
            raise ValueError("must be names with commas between them, or a JSON list of names") from None
    return tuple(name for name in (part.strip() for part in value.split(",")) if name)


OPTIONS = (
    Option(
        "path",
        (READ, STREAM, WRITE),
        None,
        "The directory of the queue or macro queue; also `load(path)`, `save(path)` and `start(path)`. A relative one "
        "counts from where the driver was started",
        _path,
    ),
    Option(
        "root",
        (READ, STREAM, WRITE),
        None,
        "The folder of a [manager](manager.md), with `queue`, instead of `path`",
        _path,
    ),
    Option(
        "queue",
        (READ, STREAM, WRITE),
        None,
        "The name or UUID of a queue or macro queue there. [What the manager says](#by-name) holds",
        _name,
    ),
    Option(
        "state",
        (READ,),
        "waiting",
        "Which messages: `waiting` (with no receiver, due or not), `scheduled` (those of them whose delivery time is "
        "still to come), `pending` (with a receiver, or in a claim), `all`",
        _one_of(STATES),
    ),
    Option(
        "onGone",
        (READ,),
        "skip",
        "A message that was in the snapshot and is removed and overwritten before it is read: `skip` leaves its row "
        "out, `fail` fails the read",
        _one_of(GONE),
    ),
    Option(
        "partitions",
        (READ, STREAM),
        "0",
        "Tasks to read with; 0: by the number and size of the messages and the processors of the driver",
        _whole(0, 100_000),
    ),
    Option(
        "pushFilters",
        (READ,),
        "false",
        "Leave messages out early by the query's filters; only for a DataFrame that is used once, with one filter "
        "([why](#filters))",
        _yes_or_no,
    ),
    Option(
        "receiver",
        (STREAM,),
        None,
        "The name under which the queue keeps the claims of this query: one query at a time has it, and a restarted "
        "one finds its claims by it",
        check_name,
    ),
    Option("maxRows", (STREAM,), "200000", "Most messages of a batch", _whole(1, 1_000_000_000)),
    Option(
        "maxBytes",
        (STREAM,),
        "268435456",
        "Most bytes on disk of a batch's messages together; the first may have more",
        _whole(1, 1 << 60),
    ),
    Option(
        "minRows",
        (STREAM,),
        "1",
        "Wait until so many messages are due before there is a batch, but not longer than `maxDelay`; not with "
        "`Trigger.AvailableNow`",
        _whole(1, 1_000_000_000),
    ),
    Option("maxDelay", (STREAM,), "60", "Seconds that a due message may wait for `minRows`", _seconds),
    Option(
        "types",
        (STREAM,),
        "",
        'Only messages of these types: `a, b` or `["a", "b"]`; all others stay for other receivers. '
        "[What it costs](#only-some-messages)",
        _names,
    ),
    Option("keys", (STREAM,), "", "Only messages with these keys, likewise", _names),
    Option(
        "claimTimeout",
        (STREAM,),
        "0",
        "Seconds after the query has claimed or acknowledged last after which, if it does not run, its claims are "
        "released by any process that has the queue open; 0: never",
        _seconds,
    ),
    Option(
        "onLostClaim",
        (STREAM,),
        "fail",
        "A batch of the checkpoint whose claim is not open any more, acknowledged or released, or has lost messages: "
        "`fail` stops the query and says why, `skip` goes on without what is not there. [See](#when-a-claim-is-lost)",
        _one_of(LOST),
    ),
    Option(
        "receiverWait",
        (STREAM,),
        "15",
        "Seconds to wait for another query of the same receiver to end before this one is refused; a killed driver's "
        "Python process lives on for some",
        _seconds,
    ),
    Option("batchRows", (READ, STREAM), "10000", "Most rows of an Arrow batch", _whole(1, 10_000_000)),
    Option(
        "timeout",
        (WRITE,),
        "0",
        "Seconds to wait for room in a full queue before the write fails",
        _seconds,
    ),
    Option(
        "busyTimeout",
        (READ, STREAM, WRITE),
        "10",
        "Seconds to wait for the queue's lock",
        _seconds,
    ),
)

_BY_NAME = {option.name.lower(): option for option in OPTIONS}


def names(use: str | None = None) -> str:
    """The names of all options, or of those for one use, for people."""
    return ", ".join(option.name for option in OPTIONS if use is None or use in option.uses)


def check(given: Mapping[str, str]) -> dict[str, Any]:
    """Refuse what is wrong whatever the options are for: unknown names, values that mean nothing, no queue named. What
    names the queue."""
    check_names(given)
    texts = {name.lower(): text for name, text in given.items() if name.lower() not in SPARKS_OWN}
    for name, text in texts.items():
        _parse_one(_BY_NAME[name], text)
    return _place(texts)


def _place(texts: Mapping[str, str], use: str | None = None) -> dict[str, Any]:
    """What names the queue; None for what is not given."""
    if tuple(option.name for option in OPTIONS if option.name in PLACE and option.name in texts) not in WAYS:
        named = [name for name in texts if name in PLACE]
        what = f"{' and '.join(sorted(named))} together name no queue" if named else "option path is missing"
        of = f"for a {use}" if use else "of penstock"
        raise Misuse(
            f"{what}: give path, or root and queue; the options {of} are {names(use)}",
        )
    return {name: _parse_one(_BY_NAME[name], texts[name]) if name in texts else None for name in PLACE}


def check_names(given: Mapping[str, str]) -> None:
    """Refuse unknown options."""
    unknown = sorted(name for name in given if name.lower() not in _BY_NAME and name.lower() not in SPARKS_OWN)
    if unknown:
        raise Misuse(f"unknown option {', '.join(unknown)}; the options of penstock are {names()}")


def parse(given: Mapping[str, str], use: str) -> dict[str, Any]:
    """What the options mean for this use, by their proper names; defaults are filled in."""
    check_names(given)
    texts = {name.lower(): value for name, value in given.items() if name.lower() not in SPARKS_OWN}
    for name in texts:
        if use not in _BY_NAME[name].uses:
            option = _BY_NAME[name]
            uses = " and ".join(option.uses)
            raise Misuse(f"option {option.name} is for {uses} only; the options for a {use} are {names(use)}")
    found = _place(texts, use)
    for option in OPTIONS:
        if use in option.uses and option.name not in PLACE:
            found[option.name] = _parse_one(option, texts.get(option.name.lower(), option.default), use)
    return found


def _parse_one(option: Option, text: str | None, use: str | None = None) -> Any:
    if text is None:
        of = f"for a {use}" if use else "of penstock"
        raise Misuse(f"option {option.name} is missing; the options {of} are {names(use)}")
    try:
        return option.parse(text)
    except Misuse as error:  # which says what was given
        raise Misuse(f"option {option.name}: {error}; {_plain(option.meaning)}") from None
    except ValueError as error:
        raise Misuse(f"option {option.name} {error}, not {text!r}; {_plain(option.meaning)}") from None


def _plain(meaning: str) -> str:
    """Without Markdown's links.

    >>> _plain("One filter ([why](#filters))")
    'One filter (why: docs/spark.md#filters)'
    """
    return re.sub(r"\[([^]]*)\]\((#[^)]*)\)", r"\1: docs/spark.md\2", meaning)


def table() -> str:
    """The table of the documentation."""
    rows = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = f"`{option.default}`"
        if option.default is None:
            default = "(`path`, or `root` and `queue`)" if option.name in PLACE else "(required)"
        rows.append(f"| `{option.name}` | {', '.join(option.uses)} | {default} | {option.meaning} |")
    return "\n".join(rows)
