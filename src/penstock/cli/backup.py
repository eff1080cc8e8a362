"""``penstock backup``: a consistent copy of a queue that may be in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn, TransferSpeedColumn

import penstock
from penstock.cli.exits import DAMAGED, OK
from penstock.cli.options import BUSY_S, Busy, Json, QueuePath, examples
from penstock.cli.output import complain, progress, say, say_json
from penstock.cli.values import readable_bytes

SHOWN_BYTES = 1 << 20  # between two looks at the bar: showing it for every message would take longer than copying

EXAMPLES = examples(
    "penstock backup orders /backup/orders-monday",
    "penstock backup orders /backup/orders --json",
    "penstock backup orders orders-for-tests --new-identity",
)


def backup(
    queue: QueuePath,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Where to make it; nothing may be there.", show_default=False)
    ],
    new_identity: Annotated[
        bool, typer.Option("--new-identity", help="A queue of its own, with a new UUID and new message ids.")
    ] = False,
    busy: Busy = BUSY_S,
    json: Json = False,
) -> int:
    """Copy a queue, which may be in use, to a new one of the same sizes.

    The copy has every message that was there at the start and was not removed meanwhile; what was with a receiver
    waits in it. It replaces the original when that is lost: UUID and message ids are the same. Don't use both; for a
    second queue beside the first, give --new-identity. A damaged message is reported and left out: exit code 6.
    """
    with progress(DownloadColumn(binary_units=True), TransferSpeedColumn()) as bar:
        task = bar.add_task("copying", total=None)
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal shown
            if done - shown >= SHOWN_BYTES or done == total:
                shown = done
                bar.update(task, completed=done, total=total)

        made = penstock.backup(
            queue,
            target,
            new_identity=new_identity,
            busy_s=busy,
            progress=show,
        )
    for one in made.findings:
        complain(f"{one.path}:{one.offset}: {one.what}; left out")
    if json:
        say_json(
            {
                "path": made.path,
                "uuid": made.uuid,
                "messages": made.messages,
                "pending": made.pending,
                "used_bytes": made.used_bytes,
                "spilled_bytes": made.spilled_bytes,
                "gone": made.gone,
                "findings": [{"path": one.path, "offset": one.offset, "what": one.what} for one in made.findings],
            }
        )
    else:
        say(f"{made.path}: {made.messages} messages, {readable_bytes(made.used_bytes + made.spilled_bytes)}")
    return DAMAGED if made.findings else OK
