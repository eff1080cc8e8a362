"""``penstock resize``: other sizes for a queue that nobody has open."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from penstock.cli.opening import Changing
from penstock.cli.options import BUSY_S, Busy, Json, QueuePath, examples
from penstock.cli.output import say, say_json
from penstock.cli.values import count, readable_bytes, size_bytes
from penstock.timequeue import Sizes, resize_queue

EXAMPLES = examples(
    "penstock resize orders --slots 1M",
    "penstock resize orders --data-bytes 8G --json",
    "penstock resize orders --slots 10k --data-bytes 64M",
)


def resize(
    queue: QueuePath,
    slots: Annotated[
        int | None,
        typer.Option(parser=count, metavar="COUNT", help="How many messages it holds at most: 1000, 50k, 1M."),
    ] = None,
    data_bytes: Annotated[
        int | None, typer.Option(parser=size_bytes, metavar="SIZE", help="Room for their bodies: 64M, 2G.")
    ] = None,
    busy: Busy = BUSY_S,
    json: Json = False,
) -> int:
    """Make a queue larger or smaller. Nobody else may have it open.

    Messages keep their ids, order, times and attempts, and receivers their claims. What is not given stays as it is. A
    smaller size is refused while a message is in what would be cut off. Killed at any time, the queue has the old sizes
    or the new ones.
    """
    if slots is None and data_bytes is None:
        raise typer.BadParameter("give --slots, --data-bytes or both")
    with Changing("resizing") as changing:
        found = resize_queue(queue, slots=slots, data_bytes=data_bytes, busy_s=busy, progress=changing)
    report(found, json=json, unchanged="it has these sizes already")
    return 0


def report(found: Sizes, *, json: bool, unchanged: str) -> None:
    if json:
        say_json(msgspec.to_builtins(found))
        return
    sizes = f"{found.slots} slots, {readable_bytes(found.data_bytes)} of data"
    say(f"{found.path}: {sizes if found.changed else f'{unchanged}: {sizes}'}")
