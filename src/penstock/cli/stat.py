"""``penstock stat``: what a queue holds and has done, and who is at it; or all queues of a folder."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import penstock
from penstock.cli.opening import open_any
from penstock.cli.options import Json, examples
from penstock.cli.output import console, say_json, table
from penstock.cli.values import failures, readable_bytes, short_s
from penstock.manager import ManagerStats, QueueManager
from penstock.manager.directory import is_entry
from penstock.manager.macrostats import MacroStats
from penstock.timequeue.measures import WINDOWS

EXAMPLES = examples(
    "penstock stat orders",
    "penstock stat orders --json | jq .lateness.p99_s",
    "penstock stat /var/lib/queues",
    "penstock stat /var/lib/queues --json | jq .total.waiting",
)

SPANS = ("waiting_time", "lateness", "service_time")


def stat(
    queue: Annotated[
        Path, typer.Argument(metavar="QUEUE", help="The queue's directory, or a folder of queues.", show_default=False)
    ],
    json: Json = False,
) -> int:
    """Show all figures of a queue and its living clients; or a line for each queue of a folder, and their totals.

    waiting_time is from put to the first delivery, lateness from when a message was due to its delivery, service_time
    from delivery to acknowledgement. Rates are events a second, over the last second, minute and 15 minutes.
    """
    if queue.is_dir() and not is_entry(queue):
        with QueueManager(queue) as manager:
            found = manager.stats()
        if found.queues:
            _show_all(found, json)
            return 0
    with open_any(queue) as q:
        _show(q.stats(), json)
    return 0


# ---------------------------------------------------------------- one queue


def _show(stats: penstock.Stats, json: bool) -> None:
    figures: dict[str, Any] = msgspec.to_builtins(stats)
    if json:
        say_json(figures)
        return
    clients, rates = figures.pop("clients"), figures.pop("rates")
    spans = {name: figures.pop(name) for name in SPANS}
    if "members" in figures:  # of a macro queue: all of theirs are in --json
        figures["members"] = ", ".join(figures["members"])
        figures["failed"] = failures(figures["failed"]) or None
    rows = table("what", "value", whole=("what",))
    rows.show_header = False
    for name, value in figures.items():
        rows.add_row(name, _readable(name, value))
    console().print(rows)
    _show_spans(spans)
    _show_rates(rates)
    _show_clients(clients)


def _show_spans(spans: dict[str, Any]) -> None:
    columns = ("count", "mean", "p50", "p90", "p99", "max")
    rows = table("", *columns, numbers=columns, whole=("",))
    for name, span in spans.items():
        times = [span[f"{column}_s"] for column in columns[1:]]
        rows.add_row(name, str(span["count"]), *("-" if each is None else short_s(each) for each in times))
    console().print()
    console().print(rows)


def _show_rates(rates: dict[str, dict[str, float]]) -> None:
    rows = table("rates", *WINDOWS, numbers=WINDOWS, whole=("rates",))
    for name, means in rates.items():
        rows.add_row(f"{name}/s", *(_rate(means[window]) for window in WINDOWS))
    console().print()
    console().print(rows)


def _show_clients(clients: list[dict[str, int]]) -> None:
    numbers = ("client", "pid", "holds")
    rows = table("client", "pid", "holds", "does", "since", "", numbers=numbers, whole=("since",))
    for client in clients:
        does = [name for name in ("produces", "consumes") if client[name]]
        rows.add_row(
            str(client["client"]),
            str(client["pid"]),
            str(client["holds"]),
            ", ".join(does) or "-",
            _local(client["since_us"] / 1e6),
            "this command" if client["pid"] == os.getpid() else "",
        )
    console().print()
    console().print(rows)


def _readable(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return f"{value} ({readable_bytes(value)})" if value >= 1024 else str(value)
    if name.endswith("_at"):
        return _local(value) if value is not None else "-"
    if name.endswith("_s"):
        return short_s(value) if value is not None else "-"
    return str(value)


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="milliseconds")


def _rate(mean: float) -> str:
    return f"{mean:.0f}" if mean >= 100 else f"{mean:.3g}"


# ---------------------------------------------------------------- all of a folder


def _show_all(found: ManagerStats, json: bool) -> None:
    if json:
        say_json(msgspec.to_builtins(found))
        return
    numbers = ("waiting", "pending", "depth", "puts", "put/s", "ack/s", "dead", "wait p99", "late p99", "clients")
    rows = table("queue", "state", *numbers, "", numbers=numbers, whole=("queue",))
    for each in found.queues.values():
        state = str(each.state) if each.active or each.error else "inactive"
        if each.stats is None:
            rows.add_row(each.name, state, *[""] * len(numbers), each.error)
        else:
            failed = each.stats.failed if isinstance(each.stats, MacroStats) else {}
            rows.add_row(each.name, state, *_cells(each.stats), failures(failed))
    rows.add_row(f"{len(found.queues)} queues", "", *_cells(found.total), "", style="bold")
    console().print(rows)


def _cells(stats: penstock.Stats) -> list[str]:
    late = (stats.waiting_time.p99_s, stats.lateness.p99_s)
    return [
        str(stats.waiting),
        str(stats.pending + stats.claimed),
        str(stats.slots),
        str(stats.puts),
        _rate(stats.rates["puts"]["1m"]),
        _rate(stats.rates["acks"]["1m"]),
        str(stats.dead_lettered),
        *("-" if each is None else short_s(each) for each in late),
        str(len(stats.clients)),
    ]
