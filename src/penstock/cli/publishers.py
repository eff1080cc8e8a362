"""``penstock publishers``: whose batches are put once, and forgetting them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

import penstock
from penstock.cli.exits import NOTHING, OK, USAGE, Failure
from penstock.cli.opening import open_queue
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import say, say_json, show_all, table, when
from penstock.timequeue.once import PublisherInfo

EXAMPLES = examples(
    "penstock publishers ls orders",
    "penstock publishers ls orders --json",
    "penstock publishers forget orders 5c0f7a52-93b1-4a37-8a51-0a4f9c6f1f0e",
)


class Action(StrEnum):
    """What to do."""

    ls = "ls"
    forget = "forget"


def publishers(
    action: Annotated[
        Action, typer.Argument(help="ls: list them. forget: no longer know their numbers.", show_default=False)
    ],
    queue: QueuePath,
    publisher: Annotated[str | None, typer.Argument(metavar="PUBLISHER", help="Only this one.")] = None,
    json: Json = False,
) -> int:
    """List those whose batches are put once, such as Spark's streaming queries, with the last number of each; or forget
    one that never comes again. If it does come again, its last batch may be put twice."""
    with open_queue(queue) as q:
        if action is Action.ls:
            return _list(q, publisher, json)
        if publisher is None:
            raise Failure("which publisher is to be forgotten?", USAGE)
        if not q.forget_publisher(publisher):
            raise Failure(f"{q.name}: there is no publisher {publisher!r}", NOTHING)
    if json:
        say_json({"publisher": publisher, "forgotten": True})
    else:
        say(f"publisher {publisher} is forgotten")
    return OK


def _list(queue: penstock.TimeQueue, publisher: str | None, json: bool) -> int:
    rows = table("publisher", "last batch", "last seen", numbers=("last batch",), whole=("publisher", "last seen"))
    found = [each for each in queue.publishers() if publisher in (None, each.publisher)]
    show_all(rows, found, json, _cells, nothing="no publishers")
    return OK


def _cells(each: PublisherInfo) -> list[str]:
    return [each.publisher, "-" if each.last is None else str(each.last), when(each.seen_at)]
