"""``penstock purge``: remove every waiting message."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import penstock
from penstock.cli.exits import NOTHING, OK, USAGE, Failure
from penstock.cli.opening import open_any
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import say, say_json

EXAMPLES = examples("penstock purge orders", "penstock purge orders --yes --json")


def purge(
    queue: QueuePath,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> int:
    """Remove every waiting message, due or not. Messages that are with a receiver stay. Asks on a terminal."""
    with open_any(queue) as q:
        if not yes and not _confirmed(q):
            return NOTHING
        removed = q.purge()
    if json:
        say_json({"removed": removed})
    else:
        say(f"{removed} messages removed")
    return OK


def _confirmed(queue: penstock.TimeQueue) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure("purge removes every waiting message; say --yes", USAGE)
    try:
        return typer.confirm(f"Remove {queue.qsize()} waiting messages of {queue.name}?", err=True)
    except typer.Abort:  # Ctrl-C or the end of the input: no answer
        sys.stderr.write("\n")
        raise KeyboardInterrupt from None
