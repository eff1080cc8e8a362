"""Owns what people see while it runs: a table that changes, in a terminal; elsewhere a line every other second."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from .director import RUNNING, Course
from .plan import DESTINATIONS, INBOUND, ROUTES, TOTALS

PLAIN_EVERY_S = 2.0
RATE_OVER_S = 2.0
BAR_WIDTH = 44
SOURCES = {**{queue: kind for kind, queue in ROUTES.items()}, TOTALS: "sale, by shop and window"}


@contextlib.contextmanager
def live_view() -> Iterator[Callable[[Course], None]]:
    if sys.stdout.isatty():
        try:
            from rich.live import Live
        except ImportError:
            pass
        else:
            with Live(refresh_per_second=8) as live:
                yield lambda course: live.update(picture(course))
            return
    yield Plain()


def rates(course: Course) -> tuple[float, float]:
    """Messages a second, put and done, over the last seconds."""
    now = course.samples[-1]
    before = next((sample for sample in course.samples if sample.at_s > now.at_s - RATE_OVER_S), now)
    span_s = max(now.at_s - before.at_s, 0.001)
    return (now.put - before.put) / span_s, (now.done - before.done) / span_s


class Plain:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._told = 0

    def __call__(self, course: Course) -> None:
        for at_s, what in course.events[self._told :]:
            print(f"{at_s - course.start_s:5.1f} s  ** {what}", flush=True)
        self._told = len(course.events)
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PLAIN_EVERY_S
        now = course.samples[-1]
        put, done = rates(course)
        print(
            f"{now.at_s - course.start_s:5.1f} s  put {now.put} ({put:.0f}/s)  through {now.done} ({done:.0f}/s)  "
            f"backlog {now.backlog}  spark {course.spark}",
            flush=True,
        )


def picture(course: Course) -> Any:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    now = course.samples[-1]
    put, done = rates(course)
    inbound = now.queues[INBOUND]
    alive = course.spark == RUNNING
    figures = Table.grid(padding=(0, 2))
    for _ in range(2):
        figures.add_column(justify="left", style="dim")
        figures.add_column(justify="right")
    figures.add_row("put", f"{now.put} of {course.messages}", "a second", f"{put:.0f}")
    figures.add_row("through", f"{now.done}", "a second", f"{done:.0f}")
    figures.add_row("waiting for Spark", f"{inbound.waiting}", "claimed by it", f"{inbound.claimed}")
    figures.add_row("Spark", Text(course.spark, style="green" if alive else "bold red"), "", "")

    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("queue")
    table.add_column("gets")
    for name in ("messages", "waiting", "batch", "rows", "ms"):
        table.add_column(name, justify="right")
    progress = {query["name"]: query for query in course.queries} if alive else {}
    for name in DESTINATIONS:
        query = progress.get(name, {})
        last = [str(query[field]) if query.get("batch") is not None else "-" for field in ("batch", "rows", "took_ms")]
        table.add_row(name, SOURCES[name], str(now.queues[name].puts), str(now.queues[name].waiting), *last)

    told = Text(
        "\n".join(f"{at_s - course.start_s:5.1f} s  {what}" for at_s, what in course.events[-6:]), style="yellow"
    )
    return Panel(
        Group(_bar(now.put, now.done, course.messages), figures, Text(), table, Text(), told),
        title=f"penstock: {course.messages} messages through Spark, {now.at_s - course.start_s:.0f} s",
        expand=False,
    )


def _bar(put: int, done: int, messages: int) -> Any:
    from rich.text import Text

    through = done * BAR_WIDTH // messages
    on_the_way = max(put * BAR_WIDTH // messages - through, 0)
    bar = Text("━" * through, style="green")
    bar.append("━" * on_the_way, style="yellow")
    bar.append("━" * (BAR_WIDTH - through - on_the_way), style="dim")
    return bar


def summary(account: dict[str, Any]) -> str:
    """The account, as text."""
    names = ("put", "routed", "delivered", "duplicates", "lost")
    lines = ["", f"{'type':<10}{'to queue':<12}" + "".join(f"{name:>12}" for name in names)]
    for line in account["types"]:
        lines.append(f"{line['type']:<10}{line['queue']:<12}" + "".join(f"{line[name]:>12}" for name in names))
    lines.append(f"{'all':<22}" + "".join(f"{account[name]:>12}" for name in names))
    late = account["latency_ms"]
    lines += ["", f"sales of {account['windows']} windows of a shop, summed up in {account['updates']} updates"]
    if late:
        lines.append(f"due to delivered: median {late['median']} ms, 99 % within {late['p99']} ms, kills included")
    lines += ["", *(f"{event['at_s']:5.1f} s  {event['what']}" for event in account["events"]), ""]
    if account["ok"]:
        return "\n".join([*lines, "every message came through once: none lost, none doubled"])
    return "\n".join([*lines, "IT DOES NOT ADD UP:", *account["faults"]])
