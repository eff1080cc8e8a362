"""``penstock create``: make a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn, TransferSpeedColumn

import penstock
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import progress, say, say_json
from penstock.cli.values import Durability, count, readable_bytes, size_bytes, span_s
from penstock.timequeue.opening import DATA_BYTES, LEASE_S, SLOTS, SPILL_BYTES

LARGE_BYTES = 256 << 20  # below, it is done before a bar could be read

EXAMPLES = examples(
    "penstock create orders",
    "penstock create orders --slots 1M --data-bytes 2G --durability relaxed",
    "penstock create orders --data-dir /disk1/queues --data-dir /disk2/queues",
)


def create(
    queue: QueuePath,
    slots: Annotated[
        int,
        typer.Option(
            parser=count,
            metavar="COUNT",
            help="How many messages it holds at most: 1000, 50k, 1M.",
            show_default="65536",
        ),
    ] = SLOTS,
    data_bytes: Annotated[
        int, typer.Option(parser=size_bytes, metavar="SIZE", help="Room for their bodies: 64M, 2G.", show_default="64M")
    ] = DATA_BYTES,
    spill_bytes: Annotated[
        int,
        typer.Option(
            parser=size_bytes, metavar="SIZE", help="Bodies above this get a file of their own.", show_default="256K"
        ),
    ] = SPILL_BYTES,
    lease: Annotated[
        float,
        typer.Option(
            parser=span_s, metavar="TIME", help="How long a receiver may keep a message: 30s, 5m.", show_default="60s"
        ),
    ] = LEASE_S,
    durability: Annotated[
        Durability,
        typer.Option(help="commit: a put returns when the message is on disk. relaxed: power loss may cost the last."),
    ] = Durability.commit,
    data_dir: Annotated[
        list[Path] | None, typer.Option(help="Spread the data over these directories (repeat).", show_default=False)
    ] = None,
    kernel_dir: Annotated[
        Path | None, typer.Option(help="Keep the index in this directory.", show_default=False)
    ] = None,
    json: Json = False,
) -> int:
    """Make a queue. Its sizes are its bounds: a full queue rejects, it never grows."""
    with progress(DownloadColumn(binary_units=True), TransferSpeedColumn(), show=data_bytes >= LARGE_BYTES) as bar:
        task = bar.add_task("allocating", total=data_bytes)
        made = penstock.create(
            queue,
            slots=slots,
            data_bytes=data_bytes,
            spill_bytes=spill_bytes,
            lease=lease,
            durability=durability.value,
            data_dirs=data_dir or (),
            kernel_dir=kernel_dir,
            progress=lambda done: bar.advance(task, done),
        )
    with made as q:
        stats = q.stats()
    if json:
        say_json(
            {
                "path": stats.path,
                "uuid": stats.uuid,
                "slots": stats.slots,
                "data_bytes": stats.data_bytes,
                "spill_bytes": spill_bytes,
                "lease_s": lease,
                "durability": durability.value,
            }
        )
    else:
        say(f"{stats.path}: {stats.slots} slots, {readable_bytes(stats.data_bytes)} for data, {durability.value}")
    return 0
