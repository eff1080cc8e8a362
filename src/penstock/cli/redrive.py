"""``penstock redrive``: bring dead letters back."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn

from penstock.cli.exits import NOTHING, OK
from penstock.cli.opening import open_any
from penstock.cli.options import Json, OnlyKeys, OnlyTypes, QueuePath, examples
from penstock.cli.output import progress, say, say_json

EXAMPLES = examples(
    "penstock redrive orders",
    "penstock redrive orders --reason max_attempts --type order --limit 100",
    "penstock redrive orders --json | jq .moved",
)


def redrive(
    queue: QueuePath,
    type: OnlyTypes = None,
    key: OnlyKeys = None,
    reason: Annotated[str | None, typer.Option(help="Only those with this reason: max_attempts, expired, ...")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many.")] = None,
    json: Json = False,
) -> int:
    """Bring back the dead letters of QUEUE from the queue that they went to. They start anew, without attempts.

    Interrupted, those that were brought back stay; the others are where they were. Exit code 1 if there was none.
    """
    with open_any(queue) as q, progress(MofNCompleteColumn()) as bar:
        dead = q.dead_letters()
        task = bar.add_task("bringing back", total=dead.qsize() if dead is not None else 0)
        moved = q.redrive(
            type=type or None,
            key=key or None,
            reason=reason,
            limit=limit,
            progress=lambda done: bar.update(task, completed=done),
        )
        left = dead.qsize() if dead is not None else 0
    if json:
        say_json({"moved": moved, "left": left})
    else:
        say(f"{moved} dead letters brought back, {left} left")
    return OK if moved else NOTHING
