"""``penstock peek``: look at messages without taking them."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from penstock import BodyGone
from penstock.cli.opening import open_any
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import PREVIEW_BYTES, console, describe, preview, say_json, table
from penstock.cli.values import State

EXAMPLES = examples(
    "penstock peek orders",
    "penstock peek orders --limit 3 --json",
    "penstock peek orders --state pending",
)


def peek(
    queue: QueuePath,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many; 0 for all.")] = 10,
    state: Annotated[State, typer.Option(help="waiting, pending (with a receiver), or all.")] = State.waiting,
    json: Json = False,
) -> int:
    """Show messages in the order of delivery, without taking them."""
    with open_any(queue) as q:
        found = q.browse(state=state.value, limit=limit or None)
        if json:
            for message in found:
                with contextlib.suppress(BodyGone):  # it left the queue while we looked
                    say_json(describe(message))
            return 0
        rows = table(
            "id", "state", "deliver at", "prio", "tries", "type", "key", "bytes", "body",
            numbers=("prio", "tries", "bytes"), whole=("id", "state", "deliver at"),
        )  # fmt: skip
        for message in found:
            try:
                with message.open() as body:
                    start = body.read(PREVIEW_BYTES)
            except BodyGone:
                continue
            rows.add_row(
                message.id,
                message.state,
                message.deliver_at.astimezone().isoformat(sep=" ", timespec="milliseconds"),
                str(message.priority),
                str(message.attempts),
                preview((message.type or "").encode()),
                preview((message.key or "").encode()),
                str(message.body_bytes),
                preview(start, message.body_bytes),
            )
    if rows.row_count:
        console().print(rows)
    return 0
