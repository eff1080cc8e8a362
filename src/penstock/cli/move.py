"""``penstock move``: move waiting messages to another queue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn

from penstock.cli.exits import NOTHING, OK
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, OnlyKeys, OnlyTypes, QueuePath, examples
from penstock.cli.output import progress, say, say_json

EXAMPLES = examples(
    "penstock move orders orders-2",
    "penstock move orders slow --type report --limit 1000",
    "penstock move orders.dead archive --reason expired --json",
)


def move(
    queue: QueuePath,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The directory of the queue to move to.")],
    type: OnlyTypes = None,
    key: OnlyKeys = None,
    reason: Annotated[str | None, typer.Option(help="Only dead letters with this reason.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many.")] = None,
    json: Json = False,
) -> int:
    """Move messages that wait in QUEUE, due or not, to another queue. They keep their ids, and each is stored once.

    Messages that are with a receiver stay. Interrupted, those that were moved are there, the others here. Exit code 1
    if there was none.
    """
    with open_queue(queue) as q, open_queue(target) as other, progress(MofNCompleteColumn()) as bar:
        task = bar.add_task("moving", total=q.qsize())
        moved = q.move_all(
            to=other,
            type=type or None,
            key=key or None,
            reason=reason,
            limit=limit,
            progress=lambda done: bar.update(task, completed=done),
        )
        left = q.qsize()
    if json:
        say_json({"moved": moved, "left": left})
    else:
        say(f"{moved} messages moved, {left} left")
    return OK if moved else NOTHING
