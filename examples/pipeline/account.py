"""Owns the account: what the journals say was put, delivered and summed up, and what of it does not add up.

Never looks at a queue; what the queues have counted is told to it. Nothing is assumed: a message counts as delivered if
a consumer has written it down, under the number that its producer gave it.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from .plan import COUNTED, INBOUND, ROUTES, TOTALS, WINDOW_S
from .producers import Event

NAMED_MOST = 5  # messages that a fault names


class Window(NamedTuple):
    start_s: int
    shop: str


class Total(NamedTuple):
    """Of the sales of one shop in one window. ``check`` is the sum of the numbers of the messages."""

    sales: int = 0
    cents: int = 0
    check: int = 0


@dataclass(frozen=True)
class Line:
    """The account of one type."""

    type: str
    queue: str
    put: int
    routed: int  # messages that the destination queue took; of what is counted, the sales that are in a total
    delivered: int  # different ones that a consumer has seen
    duplicates: int
    lost: int


@dataclass(frozen=True)
class Held:
    """What a queue has counted itself, and what is left in it."""

    puts: int
    left: int


@dataclass
class Account:
    put: dict[int, Event] = field(default_factory=dict)
    put_twice: list[int] = field(default_factory=list)
    found_published: int = 0  # batches that a restarted producer tried again, and the queue had them
    delivered: dict[str, Counter[int]] = field(default_factory=lambda: {queue: Counter() for queue in ROUTES.values()})
    delivered_ids: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    totals: dict[Window, list[Total]] = field(default_factory=lambda: defaultdict(list))
    late_s: list[float] = field(default_factory=list)
    # What happened when, for the view and the plots: moment and number of messages.
    put_at: list[tuple[float, int]] = field(default_factory=list)
    done_at: list[tuple[float, int]] = field(default_factory=list)

    # ------------------------------------------------------------ what the journals say

    def add(self, journal: str, line: dict[str, Any]) -> None:
        who, _, which = journal.partition("-")
        if who == "producer":
            self._add_put(line)
        elif which == TOTALS:
            self._add_totals(line)
        elif who == "consumer":
            self._add_delivered(which, line)

    def _add_put(self, line: dict[str, Any]) -> None:
        self.found_published += line["again"]
        for fields in line["events"]:
            event = Event(**fields)
            if event.n in self.put:
                self.put_twice.append(event.n)
            self.put[event.n] = event
        self.put_at.append((line["at_s"], len(line["events"])))

    def _add_delivered(self, queue: str, line: dict[str, Any]) -> None:
        for message in line["messages"]:
            self.delivered[queue][message["n"]] += 1
            self.delivered_ids[message["id"]] += 1
            self.late_s.append(max(line["at_s"] - message["due_us"] / 1e6, 0.0))
            event = self.put.get(message["n"])
            if event is not None and (ROUTES.get(event.type), event.type, event.shop, event.cents) != (
                queue,
                message["type"],
                message["shop"],
                message["cents"],
            ):
                self.wrong.append(f"{event} came to {queue} as {message}")
        self.done_at.append((line["at_s"], len(line["messages"])))

    def _add_totals(self, line: dict[str, Any]) -> None:
        before = self.counted
        for message in line["messages"]:
            total = Total(message["sales"], message["cents"], message["check"])
            self.totals[Window(message["start_s"], message["shop"])].append(total)
        self.done_at.append((line["at_s"], self.counted - before))

    # ------------------------------------------------------------ what follows

    @property
    def counted(self) -> int:
        """Sales that are in a total."""
        return sum(max(updates).sales for updates in self.totals.values())

    @property
    def done(self) -> int:
        return sum(len(numbers) for numbers in self.delivered.values()) + self.counted

    def expected_totals(self) -> dict[Window, Total]:
        """What the sales that were put sum up to."""
        expected: dict[Window, Total] = defaultdict(Total)
        for event in self.put.values():
            if event.type == COUNTED:
                start_s = event.at_ms // 1000 // WINDOW_S * WINDOW_S
                sales, cents, check = expected[window := Window(start_s, event.shop)]
                expected[window] = Total(sales + 1, cents + event.cents, check + event.n)
        return expected

    def lines(self, held: dict[str, Held]) -> list[Line]:
        by_type = Counter(event.type for event in self.put.values())
        lines = []
        for kind, queue in ROUTES.items():
            seen = self.delivered[queue]
            lost = sum(event.n not in seen for event in self.put.values() if event.type == kind)
            duplicates = sum(seen.values()) - len(seen)
            lines.append(Line(kind, queue, by_type[kind], held[queue].puts, len(seen), duplicates, lost))
        return [*lines, self._counted_line(by_type[COUNTED])]

    def _counted_line(self, put: int) -> Line:
        """A sale that is counted twice, or an update that is published twice, is a duplicate."""
        expected = self.expected_totals()
        lost = duplicates = 0
        for window in expected.keys() | self.totals.keys():
            updates = self.totals.get(window, [Total()])
            beyond = max(updates).sales - expected.get(window, Total()).sales
            lost += max(-beyond, 0)
            duplicates += max(beyond, 0) + len(updates) - len({update.sales for update in updates})
        return Line(COUNTED, TOTALS, put, self.counted, self.counted, duplicates, lost)

    def faults(self, messages: int, held: dict[str, Held]) -> list[str]:
        """What is not as it must be; nothing, if all went well."""
        return [*self._faults_of_messages(messages), *self._faults_of_totals(), *self._faults_of_queues(held)]

    def _faults_of_messages(self, messages: int) -> Iterator[str]:
        if len(self.put) != messages:
            yield f"{len(self.put)} of {messages} messages were put"
        seen = sum(self.delivered.values(), Counter())
        routed = {event.n for event in self.put.values() if event.type in ROUTES}
        yield from _named("put twice", self.put_twice)
        yield from _named("put and never delivered", routed - seen.keys())
        yield from _named("delivered more than once", [n for n, times in seen.items() if times > 1])
        yield from _named("delivered and never put", seen.keys() - routed)
        yield from _named("delivered again under the same id", [i for i, n in self.delivered_ids.items() if n > 1])
        yield from _named("delivered to the wrong place or changed", self.wrong)

    def _faults_of_totals(self) -> Iterator[str]:
        expected = self.expected_totals()
        for window in sorted(expected.keys() | self.totals.keys()):
            updates = self.totals.get(window, [Total()])
            if max(updates) != expected.get(window, Total()):
                yield f"{window}: the total is {max(updates)}, the sales put make {expected.get(window)}"
            if len({update.sales for update in updates}) != len(updates):
                yield f"{window}: an update was published more than once: {sorted(updates)}"

    def _faults_of_queues(self, held: dict[str, Held]) -> Iterator[str]:
        """The queues count for themselves."""
        seen = {queue: sum(numbers.values()) for queue, numbers in self.delivered.items()}
        seen[TOTALS] = sum(len(updates) for updates in self.totals.values())
        seen[INBOUND] = len(self.put)
        for queue, count in seen.items():
            if held[queue].puts != count:
                yield f"queue {queue} took {held[queue].puts} messages, the journals have {count}"
            if held[queue].left:
                yield f"{held[queue].left} messages are left in queue {queue}"

    def as_json(self, messages: int, held: dict[str, Held]) -> dict[str, Any]:
        lines = self.lines(held)
        faults = self.faults(messages, held)
        sums = {
            name: sum(getattr(line, name) for line in lines)
            for name in ("put", "routed", "delivered", "duplicates", "lost")
        }
        return {
            "ok": not faults,
            **sums,
            "types": [asdict(line) for line in lines],
            "windows": len(self.totals),
            "updates": sum(len(updates) for updates in self.totals.values()),
            "batches_found_published": self.found_published,
            "latency_ms": self._latency_ms(),
            "queues": {queue: asdict(each) for queue, each in held.items()},
            "faults": faults,
        }

    def _latency_ms(self) -> dict[str, float]:
        if not self.late_s:
            return {}
        late_ms = sorted(late * 1000 for late in self.late_s)
        p99 = late_ms[min(int(len(late_ms) * 0.99), len(late_ms) - 1)]
        return {"median": round(statistics.median(late_ms)), "p99": round(p99), "most": round(late_ms[-1])}


def _named(what: str, which: Any) -> Iterator[str]:
    found = sorted(which)
    if found:
        more = f" and {len(found) - NAMED_MOST} more" if len(found) > NAMED_MOST else ""
        yield f"{len(found)} {what}: {', '.join(map(str, found[:NAMED_MOST]))}{more}"
