"""``penstock create``: make a queue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn, TransferSpeedColumn

import penstock
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import progress, say, say_json
from penstock.cli.values import Durability, Expired, count, octal, readable_bytes, size_bytes, span_s
from penstock.store.backoff import LONGEST_S, Backoff
from penstock.timequeue.making import DATA_BYTES, DEDUP_WINDOW_S, HISTORY_AGE_S, LEASE_S, SLOTS, SPILL_BYTES

LARGE_BYTES = 256 << 20  # below, it is done before a bar could be read

EXAMPLES = examples(
    "penstock create orders",
    "penstock create orders --slots 1M --data-bytes 2G --durability relaxed",
    "penstock create orders --max-attempts 5 --backoff 1s --backoff-factor 2 --backoff-most 10m",
    "penstock create orders --exclusive-keys",
    "penstock create orders --history-bytes 64M --history-age 30d",
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
    max_attempts: Annotated[
        int | None, typer.Option(min=1, help="Deliveries of a message before it is a dead letter.", show_default=False)
    ] = None,
    backoff: Annotated[
        float | None,
        typer.Option(parser=span_s, metavar="TIME", help="How long a message that failed waits.", show_default=False),
    ] = None,
    backoff_factor: Annotated[float, typer.Option(help="Each time so many times as long.")] = 1.0,
    backoff_most: Annotated[
        float, typer.Option(parser=span_s, metavar="TIME", help="But at most.", show_default="30d")
    ] = LONGEST_S,
    backoff_jitter: Annotated[float, typer.Option(help="The share of it that is left to chance.")] = 0.0,
    dead_letter: Annotated[
        str, typer.Option(help="Where dead letters go: beside (QUEUE.dead), delete, or the path of a queue.")
    ] = "beside",
    expired: Annotated[Expired, typer.Option(help="What becomes of messages that have expired.")] = Expired.drop,
    dedup_window: Annotated[
        float,
        typer.Option(parser=span_s, metavar="TIME", help="How long dedup ids are remembered.", show_default="5m"),
    ] = DEDUP_WINDOW_S,
    dedup_entries: Annotated[
        int | None, typer.Option(parser=count, metavar="COUNT", help="How many of them.", show_default="as slots")
    ] = None,
    history_bytes: Annotated[
        int,
        typer.Option(
            parser=size_bytes,
            metavar="SIZE",
            help="Keep what became of messages in files of so much together: 64M.",
            show_default="none",
        ),
    ] = 0,
    history_age: Annotated[
        float, typer.Option(parser=span_s, metavar="TIME", help="And for how long.", show_default="7d")
    ] = HISTORY_AGE_S,
    exclusive_keys: Annotated[
        bool, typer.Option("--exclusive-keys", help="Of each key deliver one message at a time, in order.")
    ] = False,
    data_dir: Annotated[
        list[Path] | None, typer.Option(help="Spread the data over these directories (repeat).", show_default=False)
    ] = None,
    kernel_dir: Annotated[
        Path | None, typer.Option(help="Keep the index in this directory.", show_default=False)
    ] = None,
    mode: Annotated[
        int | None,
        typer.Option(parser=octal, metavar="MODE", help="The rights of its files: 600, 660.", show_default="by umask"),
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
            max_attempts=max_attempts,
            backoff=None if backoff is None else Backoff(backoff, backoff_factor, backoff_most, backoff_jitter),
            dead_letter=dead_letter,
            expired=expired.value,
            dedup_window=dedup_window,
            dedup_entries=dedup_entries,
            history_bytes=history_bytes,
            history_age=history_age,
            exclusive_keys=exclusive_keys,
            data_dirs=data_dir or (),
            kernel_dir=kernel_dir,
            mode=mode,
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
                "exclusive_keys": exclusive_keys,
            }
        )
    else:
        say(f"{stats.path}: {stats.slots} slots, {readable_bytes(stats.data_bytes)} for data, {durability.value}")
    return 0
