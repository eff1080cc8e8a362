"""``penstock cancel``: remove waiting messages by their ids."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.exits import NOTHING, OK
from penstock.cli.opening import open_any
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import say, say_json

EXAMPLES = examples(
    "penstock cancel orders 5c1b2f0e9a3d4476-2-1",
    "penstock cancel orders $(penstock put orders hello)",
)


def cancel(
    queue: QueuePath,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids that put printed.", show_default=False)],
    json: Json = False,
) -> int:
    """Remove waiting messages. Exit code 1 if one was not waiting: gone, unknown, or with a receiver."""
    missed = 0
    with open_any(queue) as q:
        for message_id in ids:
            q.check_id(message_id)  # a word that is no id: before anything is removed
        for message_id in ids:
            cancelled = q.cancel(message_id)
            missed += not cancelled
            if json:
                say_json({"id": message_id, "cancelled": cancelled})
            else:
                say(f"{message_id} {'cancelled' if cancelled else 'is not waiting'}")
    return NOTHING if missed else OK
