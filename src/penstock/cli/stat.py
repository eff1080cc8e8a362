"""``penstock stat``: what a queue holds and has done, and who is at it."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

import msgspec

from penstock.cli.opening import open_any
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import console, say_json, table
from penstock.cli.values import readable_bytes

EXAMPLES = examples("penstock stat orders", "penstock stat orders --json | jq .waiting")


def stat(queue: QueuePath, json: Json = False) -> int:
    """Show all figures of a queue and its living clients."""
    with open_any(queue) as q:
        stats = q.stats()
    figures: dict[str, Any] = msgspec.to_builtins(stats)
    if json:
        say_json(figures)
        return 0
    clients = figures.pop("clients")
    if "members" in figures:  # of a macro queue: all of theirs are in --json
        figures["members"] = ", ".join(figures["members"])
        figures["failed"] = "; ".join(f"{name}: {why}" for name, why in figures["failed"].items()) or None
    rows = table("what", "value", whole=("what",))
    rows.show_header = False
    for name, value in figures.items():
        rows.add_row(name, _readable(name, value))
    console().print(rows)
    people = table("client", "pid", "holds", "since", "", numbers=("client", "pid", "holds"), whole=("since",))
    for client in clients:
        people.add_row(
            str(client["client"]),
            str(client["pid"]),
            str(client["holds"]),
            _local(client["since_us"] / 1e6),
            "this command" if client["pid"] == os.getpid() else "",
        )
    console().print()
    console().print(people)
    return 0


def _readable(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return f"{value} ({readable_bytes(value)})" if value >= 1024 else str(value)
    if name.endswith("_at"):
        return _local(value) if value is not None else "-"
    return str(value)


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="milliseconds")
