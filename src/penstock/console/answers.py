"""Owns what the page is told of queues: what a watch has seen, as values for JSON. Pure, but for the looks at messages,
each of which opens a queue for its time.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.console.history import FIELDS, Sample
from penstock.console.messages import details, summary
from penstock.console.watching import BUSY_S, Seen, Watch
from penstock.errors import Corrupt, Misuse, QueueNotFound
from penstock.manager import State
from penstock.message import Message
from penstock.timequeue import Stats
from penstock.timequeue.looking import Look

ROWS_MAX = 200  # of queues in one answer
MESSAGES_MAX = 100
SKIP_MAX = 100_000  # messages that are passed over to show later ones; each is a look under the queue's lock
SEARCHED_MAX = 10_000  # messages among which one is looked for that was moved here
LOOKS_MAX = 2  # at a time: however many pages are open, queues feel no more than this
SPARK_S = 300.0
SPARK_POINTS = 60
PLOT_POINTS = 360
SPAN_S_MIN = 60.0
SPAN_S_MAX = 86_400.0
STATES = ("waiting", "pending", "dead")

_looks = threading.BoundedSemaphore(LOOKS_MAX)


# ---------------------------------------------------------------- queues


def overview(watch: Watch, *, find: str, sort: str, skip: int, limit: int) -> dict[str, Any]:
    """A part of the list of queues, and figures of all of them."""
    every = watch.all()
    by_place = {seen.info.place: seen for seen in every}
    found = [seen for seen in every if matches(seen, find)]
    shown = ordered(found, sort, by_place)[skip : skip + min(limit, ROWS_MAX)]
    return {
        "root": str(watch.root),
        "interval_s": watch.interval_s,
        "started_at": watch.started_at,
        "error": watch.error,
        "totals": totals(every),
        "found": len(found),
        "skip": skip,
        "queues": [{**row(seen, by_place), "spark": _spark(watch, seen)} for seen in shown],
    }


def matches(seen: Seen, find: str) -> bool:
    """Whether a queue is meant by what was typed: a part of its name, or its state."""
    words = find.lower().split()
    return all(word in seen.info.name.lower() or word == state_of(seen) for word in words)


def state_of(seen: Seen) -> str:
    """For everybody: open is what somebody has opened, in whichever process."""
    if seen.state == State.CONFIGURED and seen.stats is not None and people_of(seen.stats):
        return str(State.OPEN)
    return seen.state


def people_of(stats: Stats) -> list[dict[str, int]]:
    """The clients of a queue without us; one that has several members of a macro queue open is one."""
    found: dict[int, dict[str, int]] = {}
    for client in stats.clients:
        if client["pid"] != os.getpid():
            known = found.setdefault(client["pid"], {**client, "holds": 0})
            known["holds"] += client["holds"]
            known["since_us"] = min(known["since_us"], client["since_us"])
    return list(found.values())


def row(seen: Seen, by_place: dict[str, Seen]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": seen.info.name,
        "kind": seen.info.kind,
        "state": state_of(seen),
        "error": seen.error,
        "at": seen.at,
        "dead_of": seen.dead_of,
        "members": seen.members,
    }
    stats = seen.stats
    if stats is not None:
        told |= {
            "waiting": stats.waiting,
            "pending": stats.pending + stats.claimed,
            "slots": stats.slots,
            "stored_bytes": stats.used_bytes + stats.spilled_bytes,
            "data_bytes": stats.data_bytes,
            "oldest_s": seen.oldest_s,
            "late_s": seen.late_s,
            "next_due_at": stats.next_due_at,
            "rates": seen.rates,
            "clients": len(people_of(stats)),
            "holders": seen.holders,
            "dead": dead_count(seen, by_place),
            "sync_failed": stats.sync_failed,
        }
    return told


def dead_count(seen: Seen, by_place: dict[str, Seen]) -> int | None:
    """Dead letters that lie there; None if that is not known."""
    counts = [_letters_at(place, by_place) for place in seen.dead]
    return None if None in counts else sum(count or 0 for count in counts)


def _letters_at(place: str, by_place: dict[str, Seen]) -> int | None:
    letters = by_place.get(place)
    if letters is None:
        return None if os.path.exists(place) else 0
    return None if letters.stats is None else letters.stats.waiting


def totals(every: Sequence[Seen]) -> dict[str, Any]:
    """Of all queues, each counted once. Dead letters are counted as such, and not as messages that wait."""
    usual = [seen for seen in every if not seen.dead_of and not seen.members]
    figures = [seen.stats for seen in usual if seen.stats is not None]
    oldest = [seen.oldest_s for seen in usual if seen.oldest_s is not None]
    return {
        "queues": len(every),
        "failed": sum(seen.error is not None for seen in every),
        "waiting": sum(each.waiting for each in figures),
        "pending": sum(each.pending + each.claimed for each in figures),
        "puts": sum(seen.rates.get("puts", 0.0) for seen in usual),
        "acks": sum(seen.rates.get("acks", 0.0) for seen in usual),
        "oldest_s": max(oldest, default=None),
        "dead": sum(seen.stats.waiting for seen in every if seen.dead_of and seen.stats is not None),
    }


BY_NAME = "name"  # as they are found

Measure = Callable[[Seen, dict[str, Seen]], float]

SORTS: dict[str, Measure] = {
    "waiting": lambda seen, _: -1 if seen.stats is None else seen.stats.waiting,
    "pending": lambda seen, _: -1 if seen.stats is None else seen.stats.pending + seen.stats.claimed,
    "puts": lambda seen, _: seen.rates.get("puts", -1.0),
    "acks": lambda seen, _: seen.rates.get("acks", -1.0),
    "oldest": lambda seen, _: -1.0 if seen.oldest_s is None else seen.oldest_s,
    "dead": lambda seen, by_place: -1 if seen.stats is None else dead_count(seen, by_place) or 0,
}


def ordered(found: Sequence[Seen], sort: str, by_place: dict[str, Seen]) -> list[Seen]:
    """By name, or by a figure with the highest first; ``-`` before it turns it round."""
    backwards, name = sort.startswith("-"), sort.removeprefix("-")
    if name == BY_NAME:
        return list(reversed(found)) if backwards else list(found)
    measure = SORTS.get(name)
    if measure is None:
        raise Misuse(f"sort must be one of {', '.join((BY_NAME, *SORTS))}, not {name[:40]!r}")
    return sorted(found, key=lambda seen: measure(seen, by_place), reverse=not backwards)


def _spark(watch: Watch, seen: Seen) -> list[float | None]:
    samples = watch.history(seen.info.name).between(seen.at - SPARK_S, seen.at + 1.0, most=SPARK_POINTS)
    return [number(sample.waiting) for sample in samples]


def number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else round(value, 3)


def queue(watch: Watch, name: str) -> dict[str, Any]:
    """All that is known of one."""
    seen = _seen(watch, name)
    by_place = {each.info.place: each for each in watch.all()}
    letters = [by_place[place].info.name for place in seen.dead if place in by_place]
    stats: dict[str, Any] = {} if seen.stats is None else msgspec.to_builtins(seen.stats)
    stats.pop("clients", None)
    return {
        **row(seen, by_place),
        "uuid": seen.info.uuid,
        "place": seen.info.place,
        "interval_s": watch.interval_s,
        "options": msgspec.to_builtins(seen.info.options if seen.info.macro is None else seen.info.macro),
        "stats": stats,
        "people": [] if seen.stats is None else people_of(seen.stats),
        "dead_queues": letters,
    }


def history(watch: Watch, name: str, *, span_s: float) -> dict[str, Any]:
    """Columns of samples up to now, for plots. While fewer are known the span is shorter, so that they can be seen."""
    end = _seen(watch, name).at
    samples = watch.history(name).between(end - span_s, end + 1.0, most=PLOT_POINTS)
    known_s = end - samples[0].at if samples else 0.0
    shown_s = min(span_s, max(known_s, SPAN_S_MIN))
    return {"end": end, "asked_s": span_s, "span_s": shown_s, "interval_s": watch.interval_s, **columns(samples)}


def columns(samples: Sequence[Sample]) -> dict[str, list[float | None]]:
    return {field: [number(getattr(sample, field)) for sample in samples] for field in FIELDS}


def _seen(watch: Watch, name: str) -> Seen:
    seen = watch.find(name)
    if seen is None:
        raise QueueNotFound(f"{name}: no such queue")
    return seen


# ---------------------------------------------------------------- messages


def _place(watch: Watch, name: str, state: str) -> str | None:
    """Where the messages of this state are; None if there can be none."""
    seen = _seen(watch, name)
    if seen.info.macro is not None:
        raise Misuse(f"{name}: the messages of a macro queue are in its members: {', '.join(seen.members)}")
    if state != "dead":
        return seen.info.place
    return next((place for place in seen.dead if os.path.exists(place)), None)


def messages(watch: Watch, name: str, *, state: str, skip: int, limit: int) -> dict[str, Any]:
    """Some messages of a queue, or of its dead letters; one more is looked for, to know whether there are more."""
    place = _place(watch, name, state)
    if place is None:
        return {"state": state, "skip": 0, "more": False, "error": None, "messages": []}
    most = max(1, min(limit, MESSAGES_MAX))
    first = max(0, min(skip, SKIP_MAX))
    found: list[dict[str, Any]] = []
    error = None
    with _looks, Look(place, busy_s=BUSY_S) as look:
        try:
            for message in look.browse(state="waiting" if state == "dead" else state, limit=most + 1, skip=first):
                found.append(summary(message, look.message_id(message.slot, message.number)))
        except Corrupt as damage:  # those before it are good
            error = str(damage)
    more = len(found) > most
    return {"state": state, "skip": first, "more": more, "error": error, "messages": found[:most]}


def message(watch: Watch, name: str, id: str, *, state: str) -> dict[str, Any]:
    """One message with its body."""
    place = _place(watch, name, state)
    if place is None:
        raise QueueNotFound(f"{name}: it has no dead letters")
    with _looks, Look(place, busy_s=BUSY_S) as look:
        found: Message | None = look.find(id, among=SEARCHED_MAX)
        if found is None:
            return {"error": f"{name}: no such message, or not any more: {id}", "gone": True, "id": id}
        return details(found, look.message_id(found.slot, found.number))
