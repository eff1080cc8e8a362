"""``penstock redrive``: bring dead letters back."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn

import penstock
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
        dead = _dead_letters(q)
        task = bar.add_task("bringing back", total=_size(dead))
        moved = q.redrive(
            type=type or None,
            key=key or None,
            reason=reason,
            limit=limit,
            progress=lambda done: bar.update(task, completed=done),
        )
        left = _size(dead)
    if json:
        say_json({"moved": moved, "left": left})
    else:
        say(f"{moved} dead letters brought back, {left} left")
    return OK if moved else NOTHING


def _dead_letters(q: Any) -> list[penstock.TimeQueue]:
    """Where they are; a macro queue has as many places as its members."""
    found = q.dead_letters()
    return found if isinstance(found, list) else [] if found is None else [found]


def _size(several: list[penstock.TimeQueue]) -> int:
    return sum(queue.qsize() for queue in several)
