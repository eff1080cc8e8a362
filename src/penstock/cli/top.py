"""``penstock top``: what queues hold and do, again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import penstock
from penstock.cli.exits import NO_QUEUE, OK, Failure, code_of, line_of
from penstock.cli.ls import queues
from penstock.cli.opening import glance_any
from penstock.cli.options import Json, examples
from penstock.cli.output import flush, pause, say, say_json
from penstock.cli.screen import Screen, fit, pad, width_of
from penstock.cli.values import readable_bytes, readable_s, short_s, span_s
from penstock.manager.macrostats import MacroStats
from penstock.timequeue.measures import between

BUSY_S = 1.0  # one queue that is stuck shall not hold up the others

EXAMPLES = examples(
    "penstock top orders invoices",
    "penstock top /var/lib/queues",
    "penstock top --interval 5s",
    "penstock top orders --once",
    "penstock top orders --json | jq '.queues[0].waiting'",
)

RATES = ("puts", "gets", "acks", "retries", "syncs")


def top(
    queue: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[QUEUE]...", help="Queues, or folders of queues; without any, all below here."),
    ] = None,
    interval: Annotated[
        float, typer.Option(parser=span_s, metavar="TIME", help="How often to look: 500ms, 2s.", show_default="2s")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and end.")] = False,
    json: Json = False,
) -> int:
    """Show depth, rates and age of queues, and who is at them; in place on a terminal, until Ctrl-C. Of a folder, all
    queues in it and below.

    oldest is how long the message that is due for the longest has been due; late is the same for the one that would be
    delivered next, which priorities may put first ("in 5s": nothing is due yet). retries are messages that came back:
    released, lease ended, receiver died. holders are clients that have messages, and receivers that have claims. wait99
    and late99 are how long 99 in 100 of the messages delivered since the last look waited, and were late, at most.
    """
    if interval <= 0:
        raise typer.BadParameter("the interval must be more than 0")
    if not queue and next(queues(Path()), None) is None:
        raise Failure(f"{Path().absolute()}: there are no queues below this folder", NO_QUEUE)
    watched = [Watch(path, named=named) for path, named in _found(queue or [Path()]).items()]
    for watch in watched:
        watch.begin()
    with Screen(active=not json) as screen:
        while True:
            pause(interval)
            _show([watch.look() for watch in watched], screen, json)
            flush()
            if once:
                return OK


def _found(paths: list[Path]) -> dict[Path, bool]:
    """Queues as they are, and for a folder those in it and below; with whether it was named itself. A folder without
    any is there too, for its error."""
    found: dict[Path, bool] = {}
    for path in paths:
        for each in (list(queues(path)) if path.is_dir() else []) or [path]:
            found[each] = found.get(each, False) or each == path
    return found


# ---------------------------------------------------------------- looking


class Watch:
    """One queue, opened for every look: so nobody finds it in use by us, and one that has gone is noticed."""

    def __init__(self, path: Path, *, named: bool) -> None:
        self._path = path
        self._named = named
        self._members: list[str] = []  # of a macro queue, those that the figures are of
        self._counts: dict[str, int] = {}
        self._before: penstock.Stats | None = None
        self._at_s = 0.0

    def begin(self) -> None:
        """The first look. A queue that was named and cannot be looked at is an error, and not a line."""
        try:
            self._note(glance_any(self._path, busy_s=BUSY_S).stats)
        except (penstock.PenstockError, OSError) as error:
            if self._named:
                raise Failure(line_of(error), code_of(error)) from error

    def look(self) -> dict[str, Any]:
        try:
            stats, holders = glance_any(self._path, busy_s=BUSY_S)
        except (penstock.PenstockError, OSError) as error:
            self._counts, self._before = {}, None
            return {"path": os.path.abspath(self._path), "error": line_of(error)}
        return {**_figures(stats), "holders": holders, **self._note(stats)}

    def _note(self, stats: penstock.Stats) -> dict[str, float | None]:
        """What happened a second since the last look."""
        now_s = time.monotonic()
        members = list(stats.members) if isinstance(stats, MacroStats) else []
        if members != self._members:  # what those have done that were not looked at before was not done since
            self._members, self._counts, self._before = members, {}, None
        counts = {
            "puts": stats.puts,
            "gets": stats.gets,
            "acks": stats.acks,
            "retries": stats.releases + stats.expired + stats.returned,
            "syncs": stats.syncs,
        }
        before, span_s = self._counts, max(now_s - self._at_s, 1e-6)
        self._counts, self._at_s = counts, now_s
        rates = {f"{name}_per_s": _rate(counts[name], before.get(name), span_s) for name in RATES}
        last, self._before = self._before or stats, stats
        return rates | {
            "waiting_p99_s": between(last.waiting_time, stats.waiting_time).p99_s,
            "lateness_p99_s": between(last.lateness, stats.lateness).p99_s,
        }


def _rate(now: int, before: int | None, span_s: float) -> float | None:
    return None if before is None or now < before else round((now - before) / span_s, 3)


def _figures(stats: penstock.Stats) -> dict[str, Any]:
    now = time.time()
    others = [client for client in stats.clients if client["pid"] != os.getpid()]
    return {
        "path": stats.path,
        "waiting": stats.waiting,
        "pending": stats.pending,
        "claimed": stats.claimed,
        "slots": stats.slots,
        "stored_bytes": stats.used_bytes + stats.spilled_bytes,
        "data_bytes": stats.data_bytes,
        "oldest_s": _since(stats.oldest_due_at, now),
        "late_s": _since(stats.late_at, now),
        "next_due_in_s": max(stats.next_due_at - now, 0.0) if stats.next_due_at and stats.late_at is None else None,
        "puts": stats.puts,
        "gets": stats.gets,
        "acks": stats.acks,
        "retries": stats.releases + stats.expired + stats.returned,
        "syncs": stats.syncs,
        "clients": len(others),
        "owners": [{"pid": client["pid"], "holds": client["holds"]} for client in others if client["holds"]],
        "sync_failed": stats.sync_failed,
    } | ({"members": list(stats.members), "failed": stats.failed} if isinstance(stats, MacroStats) else {})


def _since(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(now - at, 0.0), 6)


# ---------------------------------------------------------------- showing


class Column(NamedTuple):
    name: str
    cell: Callable[[dict[str, Any]], str]
    rank: int  # on a narrow terminal those with the highest go first


def _per_s(name: str) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        rate = row[f"{name}_per_s"]
        return "-" if rate is None else f"{rate:.1f}" if 0 < rate < 10 else f"{rate:.0f}"

    return cell


def _span(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: "-" if row[name] is None else readable_s(row[name])


def _short(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: "-" if row[name] is None else short_s(row[name]).replace(" ", "")


def _late(row: dict[str, Any]) -> str:
    return f"in {readable_s(row['next_due_in_s'])}" if row["next_due_in_s"] is not None else _span("late_s")(row)


COLUMNS = (
    Column("queue", lambda row: str(row["path"]), 0),
    Column("waiting", lambda row: str(row["waiting"]), 0),
    Column("pending", lambda row: str(row["pending"] + row["claimed"]), 3),
    Column("put/s", _per_s("puts"), 1),
    Column("get/s", _per_s("gets"), 4),
    Column("ack/s", _per_s("acks"), 1),
    Column("oldest", _span("oldest_s"), 2),
    Column("late", _late, 5),
    Column("retry/s", _per_s("retries"), 6),
    Column("retries", lambda row: str(row["retries"]), 8),
    Column("clients", lambda row: str(row["clients"]), 7),
    Column("holders", lambda row: str(row["holders"]), 9),
    Column("sync/s", _per_s("syncs"), 10),
    Column("wait99", _short("waiting_p99_s"), 12),
    Column("late99", _short("lateness_p99_s"), 13),
    Column("stored", lambda row: readable_bytes(row["stored_bytes"]), 11),
)


def _show(rows: list[dict[str, Any]], screen: Screen, json: bool) -> None:
    at = time.time()
    if json:
        say_json({"at": at, "queues": rows})
        return
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    lines = table(rows, screen.columns)
    if screen.live:
        totals = f"{len(rows)} queues, {waiting_in(rows)} messages wait"
        screen.draw([fit(f"penstock top  {clock}  {totals}  (Ctrl-C ends)", screen.columns), *lines])
    else:
        for line in lines if screen.first else lines[1:]:
            say(f"{clock if line is not lines[0] else 'time    '}  {line}")


def waiting_in(rows: list[dict[str, Any]]) -> int:
    """Messages of a macro queue are those of its members, which are counted where they are shown themselves."""
    shown = {row["path"] for row in rows}
    return sum(row.get("waiting", 0) for row in rows if not shown.intersection(_members(row)))


def _members(row: dict[str, Any]) -> list[str]:
    """Their paths: they are in the folder that it is in."""
    return [os.path.join(os.path.dirname(row["path"]), name) for name in row.get("members", ())]


def table(rows: list[dict[str, Any]], width: int) -> list[str]:
    """A line for each queue below a line of names, no longer than ``width``: what does not fit is left out, by rank."""
    good = [row for row in rows if "error" not in row]
    shown = {column: [column.name, *(column.cell(row) for row in good)] for column in COLUMNS}
    for column in sorted(COLUMNS, key=lambda column: -column.rank):
        if column.rank and sum(_width(cells) + 2 for cells in shown.values()) - 2 > width:
            del shown[column]
    others = sum(_width(cells) + 2 for column, cells in shown.items() if column.name != "queue")
    names = shown[COLUMNS[0]]
    name_width = max(min(_width(names), width - others), 1)
    lines = []
    for i in range(len(good) + 1):
        cells = [cells[i].rjust(_width(cells)) for column, cells in shown.items() if column.name != "queue"]
        lines.append(fit("  ".join([pad(fit(names[i], name_width, end=True), name_width), *cells]), width))
    errors = iter([fit(row["error"], width) for row in rows if "error" in row])
    fine = iter(lines[1:])
    return [lines[0], *(next(errors) if "error" in row else next(fine) for row in rows)]


def _width(cells: list[str]) -> int:
    return max(map(width_of, cells))
