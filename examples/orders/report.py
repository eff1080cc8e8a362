"""Owns the report: one page that needs nothing else. First the account and the course of this run, then what Penstock
itself says of its queues, from their history, as ``penstock report`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import Any

from penstock.spark import page
from penstock.spark.figures import Figures

from .account import COLUMNS
from .director import Course, left
from .plan import LANES, WINDOW_S
from .plots import Series, Span, over_time
from .view import said

STYLE = """
:root { --put: #2f6fd6; --out: #1b9e77; --express: #d1495b; --normal: #b07d10; --bulk: #2f6fd6; --dead: #d1495b }
@media (prefers-color-scheme: dark) { :root {
  --put: #6ea3f5; --out: #4cc9a0; --express: #f07b8b; --normal: #dba937; --bulk: #6ea3f5; --dead: #f07b8b } }
.verdict { display: inline-block; border-radius: 99px; padding: 3px 14px; margin-top: 12px; color: #fff;
  font-weight: 600 }
.good { background: #16805f } .bad { background: #c23347 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.put { stroke: var(--put) } .out { stroke: var(--out) } .express { stroke: var(--express) }
.normal { stroke: var(--normal) } .bulk { stroke: var(--bulk) }
i.put { background: var(--put) } i.out { background: var(--out) } i.express { background: var(--express) }
i.normal { background: var(--normal) } i.bulk { background: var(--bulk) }
.dead { fill: var(--dead); opacity: .1 } .kill { stroke: var(--dead); stroke-dasharray: 4 3 }
svg text.killed { fill: var(--dead); paint-order: stroke; stroke: var(--card); stroke-width: 4px }
tr.sum td { font-weight: 620 } ul { margin: 8px 0 0; padding-left: 20px } li { overflow-wrap: anywhere }
h2.part { font-size: 20px; margin: 40px 0 0 } h2.part + p { margin: 3px 0 0; color: var(--muted) }
"""
LOST_LINES = "A process that is killed takes up to a second of its lines with it, so that these counts may be lower."


def written(course: Course, account: dict[str, Any], history: Figures | None) -> str:
    """The page. ``history`` is what Spark has found in that of the queues, if it came so far."""
    when = datetime.fromtimestamp(course.start_s).strftime("%d %B %Y, %H:%M")
    verdict = ("good", "every message once") if account["ok"] else ("bad", "it does not add up")
    header = (
        f"<p>Penstock</p><h1>Orders in three lanes, scripts on Spark, and two kills</h1>"
        f"<p>{when} · {account['seconds']:.0f} seconds</p>"
        f'<span class="verdict {verdict[0]}">{verdict[1]}</span>'
    )
    return page.document(
        title="Penstock: orders through scripts on Spark",
        header=header,
        body="\n".join([_tiles(account), *_course(course), _types(account), *_lists(account), _windows(course)])
        + _history(history),
        footer="Made by python -m examples.orders.",
        style=STYLE,
    )


def _tiles(account: dict[str, Any]) -> str:
    late = account["latency_ms"]["express"]
    shown = [
        ("Put", f"{account['put']:,}", "orders and payments"),
        ("Out", f"{account['out']:,}", "as parcels, receipts or dead letters"),
        ("Duplicates", account["duplicates"], "of messages and follow-ups"),
        ("Lost", account["lost"], "of what was confirmed"),
        ("Retries", account["retries"], "that succeeded in the end"),
        ("Express", f"{late['median'] / 1000:.1f} s" if late else page.NONE, "median from due to shipped"),
    ]
    tiles = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{what}</small></dd></div>" for name, value, what in shown)
    return f'<dl class="tiles">{tiles}</dl>'


def _course(course: Course) -> list[str]:
    seconds = course.samples[-1].at_s - course.start_s
    spans = [
        Span(dead.from_s - course.start_s, (dead.to_s or course.samples[-1].at_s) - course.start_s, dead.who)
        for dead in course.deaths
    ]
    account = course.account
    flow = [
        Series("put by the shops", _each_second(account.put_at, course.start_s, seconds), "put"),
        Series("out, at the back offices", _each_second(account.out_at, course.start_s, seconds), "out"),
    ]
    lanes = [
        Series(lane, [(each.at_s - course.start_s, left(each.queues[lane])) for each in course.samples], lane)
        for lane in LANES
    ]
    return [
        _section(
            "Messages a second",
            "From each kill until its victim works again the time is shaded.",
            over_time(flow, spans, seconds, "Messages a second"),
        ),
        _section(
            "In the lanes",
            "Messages that wait, are not due yet, or are claimed by Spark. The reminders that are set are in bulk.",
            over_time(lanes, spans, seconds, "Messages in each lane"),
        ),
    ]


def _section(title: str, what: str, body: str) -> str:
    return f"<section><h2>{title}</h2><p>{what}</p>{body}</section>"


def _each_second(moments: Iterable[tuple[float, int]], start_s: float, seconds: float) -> list[tuple[float, float]]:
    counts: Counter[int] = Counter()
    for at_s, count in moments:
        counts[int(at_s - start_s)] += count
    return [(second + 0.5, counts[second]) for second in range(int(seconds) + 1)]


def _types(account: dict[str, Any]) -> str:
    """Each message is in one of the lines."""
    rows = [_row(line["type"], line["queue"], line) for line in account["types"]]
    rows.append(_row("all", page.NONE, account))
    head = [("type", ""), ("to queue", ""), *((name, "n") for name in COLUMNS)]
    what = "From the journals of producers and back offices, message by message, and from the contexts."
    text = page.table("The account", what, head, rows)
    start = text.rindex("<tr>")
    return f'{text[:start]}<tr class="sum">{text[start + len("<tr>") :]}'


def _row(kind: str, queue: str, counts: dict[str, Any]) -> list[str]:
    numbers = [page.cell(name, f"{counts[name]:,}", "n") for name in COLUMNS]
    return [page.cell("", kind, "name"), page.cell("to queue", queue), *numbers]


def _lists(account: dict[str, Any]) -> list[str]:
    events = [f"{event['at_s']:.1f} s: {event['what']}" for event in account["events"]]
    found = [
        ("Contexts, timers, dead letters, sums", "As they are at the end.", said(account)),
        ("What happened", "In seconds since the start.", events),
        ("Faults", "What does not add up.", account["faults"]),
    ]
    return [
        _section(title, what, f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>")
        for title, what, lines in found
        if lines
    ]


def _windows(course: Course) -> str:
    """Windows down, lanes across."""
    last = {window: max(updates, key=lambda tally: tally.count) for window, updates in course.account.totals.items()}
    rows = []
    for start_s in sorted({window.start_s for window in last}):
        of_lane = {window.lane: tally for window, tally in last.items() if window.start_s == start_s}
        cells = [
            page.cell(lane, f"{tally.count:,}<br><small>{tally.cents / 100:,.2f}</small>" if tally else "", "n")
            for lane in LANES
            for tally in [of_lane.get(lane)]
        ]
        rows.append([page.cell("", datetime.fromtimestamp(start_s).strftime("%H:%M:%S"), "name"), *cells])
    what = "Orders and their sum, as a second query of Spark's has published them last; compared with what was put."
    head = [("from", ""), *((lane, "n") for lane in LANES)]
    return page.table(f"Sold by lane, in windows of {WINDOW_S} seconds", what, head, rows)


def _history(history: Figures | None) -> str:
    if history is None:
        return ""
    return (
        '<h2 class="part">What the queues remember</h2>'
        f"<p>By penstock report, from the history of all queues. {LOST_LINES}</p>{page.sections(history)}"
    )
