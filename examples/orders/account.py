"""Owns the account: what the journals say was put and delivered, what the contexts and the dead letters say of it at
the end, and what of it does not add up.

Never looks at a queue; what is found there is told to it. Nothing is assumed: a message counts as put if its producer
was told so, as applied if its customer's context has it, and as out if a back office has written it down, under the
number that its producer gave it.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, NamedTuple

from .plan import ATTEMPTS_MAX, DEAD, INVOICES, LANES, MAIL, ORDER, PAYMENT, SHIPPING, TOTALS, WINDOW_S
from .producers import Event
from .shop import Customer, Tally, Timers, failures

NAMED_MOST = 5  # messages that a fault names
REFUSED = "refused order"
REFUSAL = "ValueError: an order for nothing"  # what the script says of one
FOLLOW_UPS = {ORDER: SHIPPING, PAYMENT: INVOICES}
COLUMNS = ("put", "applied", "out", "duplicates", "lost")


class Window(NamedTuple):
    start_s: int
    lane: str


@dataclass(frozen=True)
class Seen:
    """A follow-up, as the back office has seen it."""

    n: int
    customer: str
    cents: int
    at_s: float


@dataclass(frozen=True)
class Letter:
    """A dead letter."""

    n: int
    reason: str
    error: str
    attempts: int


@dataclass(frozen=True)
class Held:
    """What a queue has counted itself, and what is left in it."""

    puts: int
    left: int


@dataclass
class Found:
    """What there is at the end, in the contexts and in the queues."""

    contexts: dict[str, Customer]
    timers: dict[str, list[str]]  # of customers that have some set still
    letters: list[Letter]
    held: dict[str, Held]


@dataclass(frozen=True)
class Line:
    """The account of one type."""

    type: str
    queue: str
    put: int
    applied: int  # in the contexts of the customers
    out: int  # different ones that a back office has seen, or that are dead letters
    duplicates: int
    lost: int


@dataclass
class Account:
    put: dict[int, Event] = field(default_factory=dict)
    put_twice: list[int] = field(default_factory=list)
    found_published: int = 0  # batches of a lane that a restarted producer tried again, and the lane had them
    seen: dict[str, dict[int, list[Seen]]] = field(
        default_factory=lambda: {queue: defaultdict(list) for queue in FOLLOW_UPS.values()}
    )
    seen_ids: Counter[str] = field(default_factory=Counter)
    mails: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # customer: which of its mails
    totals: dict[Window, list[Tally]] = field(default_factory=lambda: defaultdict(list))
    # What happened when, for the view and the plots: moment and number of messages.
    put_at: list[tuple[float, int]] = field(default_factory=list)
    out_at: list[tuple[float, int]] = field(default_factory=list)

    # ------------------------------------------------------------ what the journals say

    def add(self, journal: str, line: dict[str, Any]) -> None:
        who, _, which = journal.partition("-")
        if who == "producer":
            self._add_put(line)
            return
        self.seen_ids.update(message["id"] for message in line["messages"])
        if which == MAIL:
            for mail in line["messages"]:
                self.mails[mail["customer"]][mail["nth"]] += 1
        elif which == TOTALS:
            for each in line["messages"]:
                tally = Tally(each["count"], each["cents"], each["check"])
                self.totals[Window(each["start_s"], each["lane"])].append(tally)
        else:
            self._add_seen(which, line)

    def _add_put(self, line: dict[str, Any]) -> None:
        self.found_published += line["again"]
        for fields in line["events"]:
            event = Event(**fields)
            if event.n in self.put:
                self.put_twice.append(event.n)
            self.put[event.n] = event
        self.put_at.append((line["at_s"], len(line["events"])))

    def _add_seen(self, queue: str, line: dict[str, Any]) -> None:
        for message in line["messages"]:
            seen = Seen(message["n"], message["customer"], message["cents"], line["at_s"])
            self.seen[queue][seen.n].append(seen)
        self.out_at.append((line["at_s"], len(line["messages"])))

    # ------------------------------------------------------------ what follows from them

    @property
    def out(self) -> int:
        """Messages that have come out again as a follow-up."""
        return sum(len(numbers) for numbers in self.seen.values())

    @property
    def counted(self) -> int:
        """Orders that are in a total."""
        return sum(_last(updates).count for updates in self.totals.values())

    @property
    def mailed(self) -> int:
        return sum(mails.total() for mails in self.mails.values())

    def good(self, kind: str) -> dict[int, Event]:
        """What was put of a type, and is to be applied."""
        return {n: event for n, event in self.put.items() if event.type == kind and not event.is_poison}

    def poison(self) -> dict[int, Event]:
        return {n: event for n, event in self.put.items() if event.is_poison}

    def expected_contexts(self) -> dict[str, Customer]:
        """What the messages that were put make of the customers, but for the reminders: those depend on the time."""
        expected: dict[str, Customer] = defaultdict(Customer)
        for n, event in self.good(ORDER).items():
            expected[event.customer].ordered.add(n, event.cents)
        for n, event in self.good(PAYMENT).items():
            expected[event.customer].paid.add(n, event.cents)
            expected[event.customer].retries += failures(n)
        return expected

    def expected_totals(self) -> dict[Window, Tally]:
        """What the orders that were put sum up to."""
        expected: dict[Window, Tally] = defaultdict(Tally)
        for n, event in self.good(ORDER).items():
            expected[Window(event.at_ms // 1000 // WINDOW_S * WINDOW_S, event.lane)].add(n, event.cents)
        return expected

    # ------------------------------------------------------------ the lines

    def lines(self, found: Found) -> list[Line]:
        letters = Counter(letter.n for letter in found.letters)
        poison = self.poison()
        refused = Line(
            REFUSED, DEAD, len(poison), 0, len(letters), letters.total() - len(letters), len(poison.keys() - letters)
        )
        return [self._line(ORDER, "ordered", found), self._line(PAYMENT, "paid", found), refused]

    def _line(self, kind: str, of: str, found: Found) -> Line:
        """What is lost or doubled on the way into the contexts, or on the way out, whichever is more."""
        queue = FOLLOW_UPS[kind]
        put, seen = self.good(kind), self.seen[queue]
        expected = self.expected_contexts()
        beyond = [
            getattr(found.contexts.get(name, Customer()), of).count - getattr(expected.get(name, Customer()), of).count
            for name in expected.keys() | found.contexts.keys()
        ]
        applied = sum(getattr(customer, of).count for customer in found.contexts.values())
        doubled_out = sum(len(times) - 1 for times in seen.values())
        duplicates = max(doubled_out, sum(max(each, 0) for each in beyond))
        lost = max(len(put.keys() - seen.keys()), sum(max(-each, 0) for each in beyond))
        return Line(kind, queue, len(put), applied, len(seen), duplicates, lost)

    def reminders(self, found: Found) -> Timers:
        """Of all customers together."""
        made = (astuple(customer.reminders) for customer in found.contexts.values())
        return Timers(*(sum(each) for each in zip(*made, strict=True))) if found.contexts else Timers()

    # ------------------------------------------------------------ the faults

    def faults(self, messages: int, found: Found) -> list[str]:
        """What is not as it must be; nothing, if all went well."""
        return [
            *self._faults_of_messages(messages),
            *self._faults_of_contexts(found),
            *self._faults_of_reminders(found),
            *self._faults_of_letters(found),
            *self._faults_of_totals(),
            *self._faults_of_queues(found),
        ]

    def _faults_of_messages(self, messages: int) -> Iterator[str]:
        if len(self.put) != messages:
            yield f"{len(self.put)} of {messages} messages were put"
        yield from _named("put twice", self.put_twice)
        for kind, queue in FOLLOW_UPS.items():
            put, seen = self.good(kind), self.seen[queue]
            yield from _named(f"{kind}s put and never seen in {queue}", put.keys() - seen.keys())
            yield from _named(f"{kind}s seen in {queue} and never put", seen.keys() - put.keys())
            yield from _named(f"{kind}s seen in {queue} more than once", [n for n in seen if len(seen[n]) > 1])
            changed = [n for n in put.keys() & seen.keys() if _differs(put[n], seen[n])]
            yield from _named(f"{kind}s seen in {queue} and not as they were put", changed)
        yield from _named("delivered again under the same id", [i for i, times in self.seen_ids.items() if times > 1])

    def _faults_of_contexts(self, found: Found) -> Iterator[str]:
        expected = self.expected_contexts()
        for name in sorted(expected.keys() | found.contexts.keys()):
            is_one, must = found.contexts.get(name, Customer()), expected.get(name, Customer())
            for what in ("ordered", "paid", "retries"):
                if getattr(is_one, what) != getattr(must, what):
                    yield f"{name}, {what}: {getattr(is_one, what)} in the context, {getattr(must, what)} was put"

    def _faults_of_reminders(self, found: Found) -> Iterator[str]:
        """Each order sets one, and each is replaced, cancelled or fired; each that fired is a mail."""
        for name, customer in sorted(found.contexts.items()):
            timers = customer.reminders
            if timers.set != customer.ordered.count or timers.set != timers.replaced + timers.cancelled + timers.fired:
                yield f"{name}: {customer.ordered.count} orders, {timers}"
            if self.mails.get(name, Counter()) != Counter(range(1, timers.fired + 1)):
                yield f"{name}: {timers.fired} reminders, mails {sorted(self.mails.get(name, Counter()).elements())}"
        yield from _named("customers have mail and no context", self.mails.keys() - found.contexts.keys())
        yield from _named("customers have a timer left", found.timers)

    def _faults_of_letters(self, found: Found) -> Iterator[str]:
        letters = Counter(letter.n for letter in found.letters)
        poison = self.poison()
        yield from _named("orders for nothing that are no dead letters", poison.keys() - letters.keys())
        yield from _named("dead letters that are no orders for nothing", letters.keys() - poison.keys())
        yield from _named("dead letters more than once", [n for n, times in letters.items() if times > 1])
        for letter in found.letters:
            if (letter.reason, letter.error, letter.attempts) != ("max_attempts", REFUSAL, ATTEMPTS_MAX):
                yield f"not as it must be: {letter}"

    def _faults_of_totals(self) -> Iterator[str]:
        expected = self.expected_totals()
        for window in sorted(expected.keys() | self.totals.keys()):
            updates = self.totals.get(window, [Tally()])
            if _last(updates) != expected.get(window, Tally()):
                yield f"{window}: the total is {_last(updates)}, the orders put make {expected.get(window)}"
            if len({update.count for update in updates}) != len(updates):
                yield f"{window}: an update was published more than once: {updates}"

    def _faults_of_queues(self, found: Found) -> Iterator[str]:
        """The queues count for themselves."""
        seen = {queue: sum(map(len, numbers.values())) for queue, numbers in self.seen.items()}
        seen[MAIL] = self.mailed
        seen[TOTALS] = sum(len(updates) for updates in self.totals.values())
        for queue, count in seen.items():
            if found.held[queue].puts != count:
                yield f"queue {queue} took {found.held[queue].puts} messages, the journals have {count}"
        # The lanes have the timers, too; one that was replaced in the batch that set it was never put.
        timers = sum(found.held[lane].puts for lane in LANES) - len(self.put)
        reminders = self.reminders(found)
        if not reminders.fired <= timers <= reminders.set:
            yield f"the lanes took {timers} messages more than were put; reminders: {reminders}"
        for queue, held in found.held.items():
            if queue != DEAD and held.left:
                yield f"{held.left} messages are left in queue {queue}"

    # ------------------------------------------------------------ all of it

    def as_json(self, messages: int, found: Found) -> dict[str, Any]:
        lines = self.lines(found)
        faults = self.faults(messages, found)
        return {
            "ok": not faults,
            **{name: sum(getattr(line, name) for line in lines) for name in COLUMNS},
            "types": [asdict(line) for line in lines],
            "customers": len(found.contexts),
            "retries": sum(customer.retries for customer in found.contexts.values()),
            "reminders": asdict(self.reminders(found)),
            "letters": Counter(letter.error for letter in found.letters),
            "windows": len(self.totals),
            "updates": sum(len(updates) for updates in self.totals.values()),
            "batches_found_published": self.found_published,
            "latency_ms": {lane: _latency_ms(self.late_s(lane)) for lane in LANES},
            "queues": {queue: asdict(each) for queue, each in found.held.items()},
            "faults": faults,
        }

    def late_s(self, lane: str) -> list[float]:
        """For each order of a lane: from when it was due to when it was in the warehouse."""
        return [
            max(seen.at_s - self.put[n].due_s, 0.0)
            for n, times in self.seen[SHIPPING].items()
            for seen in times
            if n in self.put and self.put[n].lane == lane
        ]


def _last(updates: Iterable[Tally]) -> Tally:
    return max(updates, key=lambda tally: tally.count)


def _differs(event: Event, times: list[Seen]) -> bool:
    return any((seen.customer, seen.cents) != (event.customer, event.cents) for seen in times)


def _latency_ms(late_s: list[float]) -> dict[str, int]:
    if not late_s:
        return {}
    late_ms = sorted(late * 1000 for late in late_s)
    p99 = late_ms[min(int(len(late_ms) * 0.99), len(late_ms) - 1)]
    return {"median": round(statistics.median(late_ms)), "p99": round(p99), "most": round(late_ms[-1])}


def _named(what: str, which: Iterable[Any]) -> Iterator[str]:
    found = sorted(which)
    if found:
        more = f" and {len(found) - NAMED_MOST} more" if len(found) > NAMED_MOST else ""
        yield f"{len(found)} {what}: {', '.join(map(str, found[:NAMED_MOST]))}{more}"
