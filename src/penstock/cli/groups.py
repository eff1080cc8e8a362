"""``penstock groups``: the keys of waiting messages, and how many each has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock import Group
from penstock.cli.opening import open_any
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import show_all, table, when

EXAMPLES = examples(
    "penstock groups mails",
    "penstock groups mails --by age --limit 10",
    "penstock groups mails --json | jq -r .key",
)


class By(StrEnum):
    """What comes first."""

    size = "size"
    age = "age"


def groups(
    queue: QueuePath,
    by: Annotated[
        By, typer.Option(help="size: the largest first. age: the one with the oldest message first.")
    ] = By.size,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="No more than this many.")] = None,
    json: Json = False,
) -> int:
    """List the keys of waiting messages, with how many each has, how many of them are due, and since when."""
    rows = table("key", "waiting", "due", "oldest", "", numbers=("waiting", "due"), whole=("oldest",))
    with open_any(queue) as q:
        show_all(rows, q.groups(by=by.value, limit=limit), json, _cells, nothing="no groups")
    return 0


def _cells(group: Group) -> list[str]:
    return [group.key, str(group.waiting), str(group.due), when(group.oldest_at), "busy" if group.busy else ""]
