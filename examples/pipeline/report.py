"""Owns the report: one page that needs nothing else, with the plots, the sums and the account of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Any

from .director import Course
from .plan import SHOPS, WINDOW_S
from .plots import Series, Span, histogram, over_time

LATENCY_STEPS_MS = (250, 500, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000, 40_000)

STYLE = """
:root { --ink: #1b2430; --soft: #66717f; --line: #dfe4ea; --page: #f5f7f9; --card: #fff;
        --put: #2f6fd6; --done: #1b9e77; --backlog: #b07d10; --dead: #d1495b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ef; --soft: #98a4b3; --line: #303a47; --page: #12171e; --card: #1a212b;
          --put: #6ea3f5; --done: #4cc9a0; --backlog: #dba937; --dead: #f07b8b; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 17px; margin: 0 0 10px }
p { margin: 4px 0 12px; color: var(--soft) }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 22px;
          margin: 18px 0 }
.figures { display: flex; flex-wrap: wrap; gap: 14px; margin: 18px 0 }
.figures div { flex: 1 1 110px; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
               padding: 12px 16px; color: var(--soft) }
.figures b { display: block; font-size: 24px; color: var(--ink); font-variant-numeric: tabular-nums }
.verdict { display: inline-block; border-radius: 99px; padding: 3px 14px; color: #fff; font-weight: 600 }
.good { background: #16805f } .bad { background: #c23347 }
.account th:nth-child(2), .account td:nth-child(2) { text-align: left }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500 } th:first-child, td:first-child { text-align: left }
tr:last-child td { border-bottom: 0 } tr.sum td { font-weight: 600 } td.name { text-align: left }
small { color: var(--soft) }
svg { width: 100%; height: auto; display: block } svg text { font: 12px system-ui, sans-serif }
.tick, .value { fill: var(--soft) } .grid { stroke: var(--line) }
.line { fill: none; stroke-width: 2; stroke-linejoin: round } .area { opacity: .18 } .bar { fill: var(--put) }
.put { stroke: var(--put) } .done { stroke: var(--done) } .backlog { stroke: var(--backlog) }
polygon.backlog { fill: var(--backlog); stroke: none }
.dead { fill: var(--dead); opacity: .1 } .kill { stroke: var(--dead); stroke-dasharray: 4 3 }
.killed { fill: var(--dead) }
.legend { margin: 6px 0 0 56px } .legend span { margin-right: 22px }
.legend i { display: inline-block; width: 18px; height: 3px; vertical-align: middle; margin-right: 7px }
i.put { background: var(--put) } i.done { background: var(--done) } i.backlog { background: var(--backlog) }
ul { margin: 0; padding-left: 20px }
"""


def page(course: Course, account: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(course.start_s).strftime("%d %B %Y, %H:%M")
    verdict = (
        '<span class="verdict good">every message once</span>'
        if account["ok"]
        else '<span class="verdict bad">it does not add up</span>'
    )
    seconds = course.samples[-1].at_s - course.start_s
    spans = _spans(course, seconds)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Penstock: a pipeline on Spark</title><style>{STYLE}</style>
<main>
<h1>A pipeline on Spark, between queues</h1>
<p>{when} · {seconds:.0f} seconds</p>
{verdict}
{_figures(account)}
<section><h2>Messages a second</h2>
<p>Put by the shops, and through: delivered to a back office, or counted in a total. Shaded: somebody is dead.</p>
{over_time(_throughput(course, seconds), spans, seconds, "messages a second")}</section>
<section><h2>Waiting for Spark</h2>
<p>Messages in the inbound queue: waiting, not due yet, or claimed.</p>
{over_time([_backlog(course)], spans, seconds, "messages")}</section>
<section><h2>From due to delivered</h2>
<p>Routed messages only, those that waited for a killed Spark included.</p>
{histogram(_latencies(course.account.late_s), "messages")}</section>
<section class="account"><h2>The account</h2>
<p>From the journals of producers and consumers, message by message, and from the queues' own counts.</p>
{_types(account)}</section>
<section><h2>Sales by shop in windows of {WINDOW_S} seconds</h2>
<p>Number and sum as Spark has published them last; each was compared with the sales that were put.</p>
{_windows(course)}</section>
<section><h2>What happened</h2>
<ul>{"".join(f"<li>{event['at_s']:.1f} s: {escape(event['what'])}</li>" for event in account["events"])}</ul></section>
{_faults(account)}
</main></html>
"""


def _figures(account: dict[str, Any]) -> str:
    late = account["latency_ms"]
    shown = [
        (account["put"], "put"),
        (account["delivered"], "delivered or counted"),
        (account["duplicates"], "duplicates"),
        (account["lost"], "lost"),
        (f"{late['median']} ms" if late else "-", "median latency"),
    ]
    return f'<div class="figures">{"".join(f"<div><b>{value}</b>{name}</div>" for value, name in shown)}</div>'


def _types(account: dict[str, Any]) -> str:
    names = ("put", "routed", "delivered", "duplicates", "lost")
    rows = [[line["type"], line["queue"], *(line[name] for name in names)] for line in account["types"]]
    rows.append(["all", "", *(account[name] for name in names)])
    return _table(["type", "queue", *names], rows, sum_row=True)


def _windows(course: Course) -> str:
    """Windows down, shops across."""
    last = {window: max(updates) for window, updates in course.account.totals.items()}
    rows = []
    for start_s in sorted({window.start_s for window in last}):
        of_shop = {window.shop: total for window, total in last.items() if window.start_s == start_s}
        cells = [f"{of_shop[shop].sales}<br><small>{of_shop[shop].cents / 100:,.2f}</small>" if shop in of_shop else ""
                 for shop in SHOPS]  # fmt: skip
        rows.append([datetime.fromtimestamp(start_s).strftime("%H:%M:%S"), *cells])
    return _table(["from", *SHOPS], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], *, sum_row: bool = False) -> str:
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    if sum_row:
        lines[-1] = lines[-1].replace("<tr>", '<tr class="sum">')
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{''.join(lines)}</table>"


def _faults(account: dict[str, Any]) -> str:
    if account["ok"]:
        return ""
    faults = "".join(f"<li>{escape(fault)}</li>" for fault in account["faults"])
    return f"<section><h2>Faults</h2><ul>{faults}</ul></section>"


# ---------------------------------------------------------------- what is drawn


def _throughput(course: Course, seconds: float) -> list[Series]:
    put = _each_second(course.account.put_at, course.start_s, seconds)
    done = _each_second(course.account.done_at, course.start_s, seconds)
    return [Series("put", put, "put"), Series("through", done, "done")]


def _each_second(moments: Iterable[tuple[float, int]], start_s: float, seconds: float) -> list[tuple[float, float]]:
    counts: Counter[int] = Counter()
    for at_s, count in moments:
        counts[int(at_s - start_s)] += count
    return [(second + 0.5, counts[second]) for second in range(int(seconds) + 1)]


def _backlog(course: Course) -> Series:
    points = [(sample.at_s - course.start_s, sample.backlog) for sample in course.samples]
    return Series("in the inbound queue", points, "backlog", filled=True)


def _spans(course: Course, seconds: float) -> list[Span]:
    """From each kill until its victim works again."""
    return [
        Span(dead.from_s - course.start_s, (dead.to_s or course.start_s + seconds) - course.start_s, dead.who)
        for dead in course.deaths
    ]


def _latencies(late_s: Sequence[float]) -> list[tuple[str, int]]:
    bars = []
    below = 0.0
    for step in (*LATENCY_STEPS_MS, float("inf")):
        count = sum(below <= late * 1000 < step for late in late_s)
        bars.append((_label(step) if step != float("inf") else f"over {_label(below)[2:]}", count))
        below = step
    while bars and not bars[-1][1]:
        bars.pop()
    return bars


def _label(step_ms: float) -> str:
    return f"< {step_ms:g} ms" if step_ms < 1000 else f"< {step_ms / 1000:g} s"
