"""Owns what people see while it runs: a table that changes, in a terminal; elsewhere a line every other second."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from .account import COLUMNS
from .director import REPORTING, RUNNING, Course, left
from .plan import DEAD, INVOICES, LANES, MAIL, SALES, SHIPPING, TOTALS

PLAIN_EVERY_S = 2.0
RATE_OVER_S = 2.0
BAR_WIDTH = 56
EVENTS_SHOWN = 6
WHAT = {
    **{lane: f"orders and payments, priority {priority}" for lane, priority in LANES.items()},
    SHIPPING: "a parcel for each order",
    INVOICES: "a receipt for each payment",
    MAIL: "reminders whose time came",
    SALES: "orders to sum up",
    TOTALS: "sums by lane and window",
    DEAD: "what failed too often",
}


@contextlib.contextmanager
def live_view() -> Iterator[Callable[[Course], None]]:
    if sys.stdout.isatty():
        try:
            from rich.live import Live
        except ImportError:
            pass
        else:
            with Live(refresh_per_second=4) as live:
                yield lambda course: live.update(picture(course))
            return
    yield Plain()


def rates(course: Course) -> tuple[float, float]:
    """Messages a second, put and out, over the last seconds."""
    now = course.samples[-1]
    before = next((sample for sample in course.samples if sample.at_s > now.at_s - RATE_OVER_S), now)
    span_s = max(now.at_s - before.at_s, 0.001)
    return (now.put - before.put) / span_s, (now.out - before.out) / span_s


class Plain:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._told = 0

    def __call__(self, course: Course) -> None:
        for at_s, what in course.events[self._told :]:
            print(f"{at_s - course.start_s:5.1f} s  ** {what}", flush=True)
        self._told = len(course.events)
        if time.monotonic() < self._next_s or course.spark == REPORTING:  # nothing moves any more
            return
        self._next_s = time.monotonic() + PLAIN_EVERY_S
        now = course.samples[-1]
        put, out = rates(course)
        lanes = " ".join(f"{lane} {left(now.queues[lane])}" for lane in LANES)
        print(
            f"{now.at_s - course.start_s:5.1f} s  put {now.put} ({put:.0f}/s)  out {now.out} ({out:.0f}/s)  "
            f"{lanes}  mail {now.queues[MAIL].puts}  dead {left(now.queues[DEAD])}  Spark {course.spark}",
            flush=True,
        )


def picture(course: Course) -> Any:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    now = course.samples[-1]
    put, out = rates(course)
    figures = Table.grid(padding=(0, 2))
    for _ in range(2):
        figures.add_column(justify="left", style="dim")
        figures.add_column(justify="right")
    figures.add_row("put", f"{now.put} of {course.messages}", "a second", f"{put:.0f}")
    figures.add_row("out", f"{now.out}", "a second", f"{out:.0f}")
    alive = course.spark == RUNNING
    figures.add_row("Spark", Text(course.spark, style="green" if alive else "bold red"), "last batch", _batch(course))

    table = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("queue", "has"):
        table.add_column(name)
    for name in ("messages", "in it now", "claimed"):
        table.add_column(name, justify="right")
    for name, what in WHAT.items():
        stats = now.queues[name]
        table.add_row(name, what, str(stats.puts), str(left(stats)), str(stats.claimed))
        if name in (list(LANES)[-1], TOTALS):
            table.add_section()

    events = course.events[-EVENTS_SHOWN:]
    told = Text("\n".join(f"{at_s - course.start_s:5.1f} s  {what}" for at_s, what in events), style="yellow")
    return Panel(
        Group(_bar(now.put, now.out, course.messages), figures, Text(), table, Text(), told),
        title=f"penstock: {course.messages} orders and payments, {now.at_s - course.start_s:.0f} s",
        expand=False,
    )


def _batch(course: Course) -> str:
    """Of the scripts."""
    last = next((query for query in course.queries if query["name"].startswith("scripts")), None)
    if course.spark != RUNNING or last is None or last["batch"] is None:
        return "-"
    return f"{last['rows']} messages in {last['took_ms'] / 1000:.1f} s"


def _bar(put: int, out: int, messages: int) -> Any:
    from rich.text import Text

    through = min(out * BAR_WIDTH // messages, BAR_WIDTH)
    on_the_way = max(put * BAR_WIDTH // messages - through, 0)
    bar = Text("━" * through, style="green")
    bar.append("━" * on_the_way, style="yellow")
    bar.append("━" * (BAR_WIDTH - through - on_the_way), style="dim")
    return bar


def summary(account: dict[str, Any]) -> str:
    """The account, as text."""
    lines = ["", f"{'type':<15}{'to queue':<11}" + "".join(f"{name:>12}" for name in COLUMNS)]
    for line in account["types"]:
        lines.append(f"{line['type']:<15}{line['queue']:<11}" + "".join(f"{line[name]:>12}" for name in COLUMNS))
    lines.append(f"{'all':<26}" + "".join(f"{account[name]:>12}" for name in COLUMNS))
    lines += ["", *said(account), ""]
    lines += [f"{event['at_s']:5.1f} s  {event['what']}" for event in account["events"]]
    if account["ok"]:
        return "\n".join([*lines, "", "every message was applied once: none lost, none doubled"])
    return "\n".join([*lines, "", "IT DOES NOT ADD UP:", *account["faults"]])


def said(account: dict[str, Any]) -> list[str]:
    """The rest of the account, in sentences."""
    timers = account["reminders"]
    lines = [
        f"{account['customers']} customers, whose contexts have what was put: each order and each payment once",
        f"{account['retries']} calls of the bank failed and came again, with an attempt counted",
        f"{timers['set']} reminders set: {timers['fired']} fired, {timers['cancelled']} cancelled by a payment, "
        f"{timers['replaced']} replaced by that of a later order",
        *(f"{count} dead letters: {error}" for error, count in account["letters"].items()),
        f"{account['windows']} windows of a lane summed up, in {account['updates']} updates",
    ]
    late = {lane: found for lane, found in account["latency_ms"].items() if found}
    if late:
        each = ", ".join(f"{lane} {found['median'] / 1000:.1f} s" for lane, found in late.items())
        lines.append(f"from due to shipped, median, kills included: {each}")
    return lines
