"""Owns how a report looks: one HTML page that needs nothing else, light and dark, wide and narrow. Pure.

What messages bring, such as types, keys and errors, is text in it and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from penstock.spark import charts
from penstock.spark.charts import span
from penstock.spark.figures import Distribution, Failure, Figures, Group, Slow

NONE = '<span class="none">–</span>'
WORDS = {"acked": "acknowledged", "failed": "failed attempts", "gone": "given up, expired, cancelled or moved"}

STYLE = """
:root { color-scheme: light dark;
  --bg: #f4f6f9; --card: #fff; --line: #e2e7ed; --ink: #15202b; --muted: #586675; --bar: #d9e6f5;
  --acked: #2a78c8; --failed: #d9822b; --gone: #b8445f; --share: #7b63c9; }
@media (prefers-color-scheme: dark) { :root {
  --bg: #0c1117; --card: #141b23; --line: #26313d; --ink: #e5ebf1; --muted: #97a5b4; --bar: #1d3247;
  --acked: #4b9be8; --failed: #f2a654; --gone: #f2879f; --share: #a08bea; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--bg); color: var(--ink); font-variant-numeric: tabular-nums;
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 48px }
h1 { font-size: 25px; line-height: 1.25; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere }
h2 { font-size: 16px; margin: 0 }
header p, section > p, footer { margin: 3px 0 0; color: var(--muted); overflow-wrap: anywhere }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px;
  margin-top: 16px; min-width: 0 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(138px, 1fr)); gap: 1px; margin: 20px 0 0;
  background: var(--line); border: 1px solid var(--line); border-radius: 12px; overflow: hidden }
.tiles div { background: var(--card); padding: 12px 16px }
dt { color: var(--muted); font-size: 13px } dd { margin: 0; font-size: 23px; font-weight: 620; line-height: 1.3 }
dd small { display: block; font-size: 12px; font-weight: 400; color: var(--muted) }
.two { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 16px }
.plot { margin-top: 12px } .narrow { display: none }
svg { display: block; width: 100%; height: auto } svg text { font-size: 12px; fill: var(--muted) }
.half svg text { font-size: 12.5px }
.grid { stroke: var(--line) } .base { stroke: var(--muted); stroke-opacity: .55 }
.acked { fill: var(--acked) } .failed { fill: var(--failed) } .gone { fill: var(--gone) } .share { fill: var(--share) }
.over { fill: transparent } .over:hover { fill: var(--muted); fill-opacity: .12 } .share:hover { fill-opacity: .75 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 20px; margin: 8px 0 0 46px; color: var(--muted); font-size: 13px }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px }
i.acked { background: var(--acked) } i.failed { background: var(--failed) } i.gone { background: var(--gone) }
.points { display: grid; grid-template-columns: repeat(5, 1fr); gap: 4px 8px; margin: 14px 0 0 }
.points dd { font-size: 15px; white-space: nowrap }
table { width: 100%; border-collapse: collapse; margin-top: 10px }
th, td { padding: 7px 10px; text-align: left; border-bottom: 1px solid var(--line); vertical-align: baseline }
th { color: var(--muted); font-weight: 500; font-size: 13px; white-space: nowrap }
th:first-child, td:first-child { padding-left: 0 } th:last-child, td:last-child { padding-right: 0 }
tbody tr:last-child td { border-bottom: 0 }
.n { text-align: right; white-space: nowrap } td.name { overflow-wrap: anywhere; min-width: 90px }
td.bar { width: 22% }
.bar i { display: block; height: 9px; border-radius: 3px; background: var(--failed); min-width: 2px }
.mono { font: 12.5px ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere }
span.mono { white-space: nowrap } .wrap { overflow-wrap: anywhere } .word { min-width: 84px }
.none, .faint { color: var(--muted) }
.empty { text-align: center; padding: 56px 20px } .empty b { display: block; font-size: 17px; margin-bottom: 6px }
code { font: 12.5px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere }
footer { margin-top: 22px; font-size: 12.5px }
@media (max-width: 900px) {
  table, tbody, td { display: block } thead { display: none }
  tbody tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); gap: 5px 12px; padding: 11px 0;
    border-bottom: 1px solid var(--line) }
  tbody tr:last-child { border-bottom: 0 }
  td, td.n, td:first-child, td:last-child { padding: 0; border: 0; text-align: left; white-space: normal;
    overflow-wrap: anywhere; min-width: 0 }
  td::before { content: attr(data-of); display: block; color: var(--muted); font-size: 12px; line-height: 1.35 }
  td.name, td.bar { grid-column: 1 / -1; width: auto } td.name { font-weight: 600 } td.bar:empty { display: none }
  td.name::before, td.bar::before { display: none } td.name .mono { white-space: normal }
  td.name .faint { font-weight: 400 } td.long { grid-column: span 2 }
}
@media (max-width: 760px) { .two { grid-template-columns: minmax(0, 1fr) } }
@media (max-width: 640px) {
  main { padding: 18px 12px 36px } section { padding: 14px 12px } h1 { font-size: 21px }
  .wide { display: none } .narrow { display: block }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)) } .tiles div { padding: 10px 12px } dd { font-size: 20px }
  .points { grid-template-columns: repeat(3, 1fr) } .legend { margin-left: 0 }
}
@media print { body { background: #fff } section { break-inside: avoid } }
"""


def html(found: Figures) -> str:
    """The whole page."""
    name = Path(found.title).name or found.title
    return document(
        title=f"{name}: Penstock report",
        header=f"<p>Penstock report</p><h1>{_text(name)}</h1><p>{_text(found.title)}</p>{_period(found)}",
        body=sections(found),
        footer=f"Made by penstock report on {_time(found.made_s)}. Times are those of {_zone(found.made_s)}.",
    )


def document(*, title: str, header: str, body: str, footer: str, style: str = "") -> str:
    """A page that looks like this, of anybody's parts. All but the title are HTML."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_text(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<main>
<header>{header}</header>
{body}
<footer>{footer}</footer>
</main>
</body>
</html>
"""


def sections(found: Figures) -> str:
    """All that there is to say, for a page of this style."""
    return _body(found) if found.outcomes else _empty(found)


def _body(found: Figures) -> str:
    parts = [_tiles(found), _throughput(found)]  # what is looked for most comes first
    parts.append(
        '<div class="two">'
        + _spread("Waiting time", "From the put to the first delivery.", found.waiting)
        + _spread("Lateness", "From when a message was due to its first delivery.", found.lateness)
        + "</div>"
    )
    service = _spread("Service time", "From the delivery to the acknowledgement or failure.", found.service)
    parts.append(f'<div class="two">{service}{_outcomes(found)}</div>')
    if len(found.queues) > 1:
        queues = [_renamed(each) for each in found.queues]
        parts.append(_groups("Queues", "Those with the most retries first.", "queue", queues))
    parts.append(
        _groups("Retries by type", "Deliveries beyond the first, by the type of the message.", "type", found.types)
    )
    if found.keys:
        parts.append(_groups("Retries by key", "Those with the most retries, then the busiest.", "key", found.keys))
    if found.failures:
        parts.append(_failures(found.failures))
    parts.append(_slowest(found.slowest, several=len(found.queues) > 1))
    return "\n".join(part for part in parts if part)


def _empty(found: Figures) -> str:
    since = f" since {_time(found.since_s)}" if found.since_s is not None else ""
    return (
        f'<section class="empty"><b>There is no history here{since}.</b>'
        "<p>A queue keeps one when its option history_bytes says how much: "
        "<code>penstock create QUEUE --history-bytes 64M</code>, or history_bytes in a penstock.toml.</p></section>"
    )


def _period(found: Figures) -> str:
    if not found.outcomes:
        return ""
    return f"<p>{_time(found.first_s)} to {_time(found.last_s)}</p>"


# ---------------------------------------------------------------- its parts


def _tiles(found: Figures) -> str:
    acked = found.results.get("acked", 0)
    unit, unit_s = charts.rate_unit(acked / _covered_s(found))
    dead = found.results.get("dead-lettered", 0) + found.results.get("dropped", 0)
    tiles = [
        (
            "Acknowledged",
            _whole(acked),
            f"{charts.amount(acked / _covered_s(found) * unit_s)} a {_said(unit)} on average",
        ),
        ("Waiting time", _middle(found.waiting), _worst(found.waiting)),
        ("Lateness", _middle(found.lateness), _worst(found.lateness)),
        ("Failed attempts", _whole(found.results.get("failed", 0)), _share(found.results.get("failed", 0), found)),
        ("Retries", _whole(found.retries), "deliveries beyond the first"),
        ("Given up", _whole(dead), f"and {_whole(found.results.get('expired', 0))} expired"),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>" for name, value, more in tiles)
    return f'<dl class="tiles">{shown}</dl>'


def _covered_s(found: Figures) -> float:
    return max(found.last_s - found.first_s, 1.0)


def _said(unit: str) -> str:
    return {"s": "second", "min": "minute", "h": "hour", "day": "day"}[unit]


def _middle(found: Distribution) -> str:
    return span(found.p50_s) if found.count else NONE


def _worst(found: Distribution) -> str:
    return f"median; 99 % within {span(found.p99_s)}" if found.count else "nothing was delivered"


def _share(count: int, found: Figures) -> str:
    return f"{count / found.outcomes * 100:.2g} % of all outcomes"


def _throughput(found: Figures) -> str:
    plot, unit = charts.over_time(found.moments, found.step_s, "Throughput over time")
    shown = [name for name in WORDS if any(each.counts[name] for each in found.moments)]
    legend = "".join(f'<span><i class="{name}"></i>{WORDS[name]}</span>' for name in shown)
    return (
        f"<section><h2>Throughput</h2><p>Messages a {_said(unit)}, by what became of them. A bar is "
        f'{_step(found.step_s)}.</p>{plot}<div class="legend">{legend}</div></section>'
    )


def _step(step_s: int) -> str:
    for name, seconds in (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if step_s % seconds == 0:
            count = step_s // seconds
            return f"one {name}" if count == 1 else f"{count} {name}s"
    return f"{step_s} seconds"


def _spread(name: str, what: str, found: Distribution) -> str:
    if not found.count:
        return f"<section><h2>{name}</h2><p>{what} Nothing was delivered.</p></section>"
    points = [
        ("50 %", found.p50_s),
        ("90 %", found.p90_s),
        ("99 %", found.p99_s),
        ("longest", found.max_s),
        ("mean", found.mean_s),
    ]
    shown = "".join(f"<div><dt>{label}</dt><dd>{span(value)}</dd></div>" for label, value in points)
    plot = charts.distribution(found, name)
    return (
        f'<section class="half"><h2>{name}</h2><p>{what} Share of {_whole(found.count)}.</p>{plot}'
        f'<dl class="points">{shown}</dl></section>'
    )


def _outcomes(found: Figures) -> str:
    rows = [
        [cell("", _text(result), "name"), cell("messages", _whole(count), "n"), cell("share", f"{share:.3g} %", "n")]
        for result, count in sorted(found.results.items(), key=lambda each: -each[1])
        for share in [count / found.outcomes * 100]
    ]
    what = f"{_whole(found.outcomes)} altogether; a message has one for each attempt that failed, and one at its end."
    return table("Outcomes", what, [("result", ""), ("count", "n"), ("share", "n")], rows)


def _renamed(group: Group) -> Group:
    return Group(Path(group.name or "").name, *[getattr(group, field) for field in Group.__struct_fields__[1:]])


def _groups(title: str, what: str, column: str, groups: Sequence[Group]) -> str:
    most = max((each.retries for each in groups), default=0)
    head = [(column, ""), ("", ""), ("retries", "n"), ("failed", "n"), ("acknowledged", "n"), ("other", "n"),
            ("median wait", "n"), ("99 % within", "n")]  # fmt: skip
    rows = []
    for each in groups:
        width = each.retries / most * 100 if most else 0
        bar = f'<i style="width: {width:.1f}%"></i>' if each.retries else ""
        name = f"no {column}" if each.name is None else each.name
        rows.append(
            [
                cell("", f'<span class="faint">{name}</span>' if each.name is None else _text(name), "name"),
                cell("", bar, "bar"),
                cell("retries", _whole(each.retries), "n"),
                cell("failed", _whole(each.failed), "n"),
                cell("acknowledged", _whole(each.done), "n"),
                cell("other", _whole(each.gone), "n"),
                cell("median wait", NONE if each.p50_s is None else span(each.p50_s), "n"),
                cell("99 % within", NONE if each.p99_s is None else span(each.p99_s), "n"),
            ]
        )
    return table(title, what, head, rows)


def _failures(failures: Sequence[Failure]) -> str:
    rows = [[cell("", _text(each.text), "name mono"), cell("times", _whole(each.count), "n")] for each in failures]
    return table(
        "What went wrong", "The errors and reasons that came most often.", [("error", ""), ("times", "n")], rows
    )


def _slowest(slowest: Sequence[Slow], *, several: bool) -> str:
    if not slowest:
        return ""
    head = [("message", ""), ("type", ""), ("key", ""), ("result", ""), ("attempts", "n"), ("late", "n"),
            ("service", "n"), ("total", "n"), ("ended", "n")]  # fmt: skip
    rows = []
    for each in slowest:
        place = f'<br><span class="faint">{_text(each.queue)}</span>' if several else ""
        rows.append(
            [
                cell("", f'<span class="mono">{_text(each.id)}</span>{place}', "name"),
                cell("type", _named(each.type), "word"),
                cell("key", _named(each.key), "long"),
                cell("result", _text(each.result)),
                cell("attempts", _whole(each.attempts), "n"),
                cell("late", NONE if each.late_s is None else span(each.late_s), "n"),
                cell("service", NONE if each.service_s is None else span(each.service_s), "n"),
                cell("total", f"<b>{span(each.total_s)}</b>", "n"),
                cell("ended", _time(each.ended_s, day=False), "n"),
            ]
        )
    what = "From when it was due, or after a retry from its put, to its end. Late and service are of the last attempt."
    return table("Slowest messages", what, head, rows)


# ---------------------------------------------------------------- words


def table(title: str, what: str, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> str:
    names = "".join(f'<th class="{kind}">{name}</th>' if kind else f"<th>{name}</th>" for name, kind in head)
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f"<section><h2>{title}</h2><p>{what}</p>"
        f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table></section>"
    )


def cell(of: str, value: str, kind: str = "") -> str:
    """``of`` is its column, which a narrow page says beside it. A span of its own: parts of it stay together there."""
    return f'<td class="{kind}" data-of="{of}">{value}</td>'


def _named(value: str | None) -> str:
    return NONE if value is None else f'<span class="wrap">{_text(value)}</span>'


def _text(value: str) -> str:
    return escape(value)


def _whole(value: int) -> str:
    return f"{value:,}"


def _time(at_s: float, *, day: bool = True) -> str:
    return datetime.fromtimestamp(at_s).strftime("%d %B %Y, %H:%M:%S" if day else "%d %b %H:%M:%S")


def _zone(at_s: float) -> str:
    at = datetime.fromtimestamp(at_s).astimezone()
    return f"the time zone UTC{at.strftime('%z')[:3]}:{at.strftime('%z')[3:]}"
