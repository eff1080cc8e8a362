"""``penstock bench``: a few seconds' measurement on a given disk, in a queue that is gone afterwards."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import penstock
from penstock.cli.doctor import file_system
from penstock.cli.exits import NO_QUEUE, Failure
from penstock.cli.options import Json, examples
from penstock.cli.output import console, progress, say, say_json, table
from penstock.cli.values import Durability

BODY_BYTES = 200
BATCH = 1000
ROUND = {1: 1000, BATCH: 10 * BATCH}  # messages put before they are got again, by size of batch
SLOTS = max(ROUND.values())
DATA_BYTES = 16 << 20  # two units a message and a margin
LEASE_S = 3600.0
OPERATIONS = ("put", "get", "ack")

EXAMPLES = examples("penstock bench", "penstock bench /mnt/disk2 --seconds 10", "penstock bench --json")


class Figure(msgspec.Struct):
    operation: str
    batch: int
    durability: str
    messages: int = 0
    seconds: float = 0.0
    per_second: float = 0.0


def bench(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where to put the temporary queue.", show_default="here")
    ] = Path(),
    seconds: Annotated[float, typer.Option(min=0.1, max=3600.0, help="How long it takes, roughly.")] = 4.0,
    json: Json = False,
) -> int:
    """Measure put, get and ack on a disk, one process, single and in batches of 1000, bodies of 200 bytes.

    How long an ack takes does not depend on the durability; it is shown for both as a measure of the noise.
    """
    if not directory.is_dir():
        raise Failure(f"{directory}: there is no such folder", NO_QUEUE)
    if (directory / "queue.json").exists():  # a queue: on its disk, not in it
        directory = directory.resolve().parent
    found: list[Figure] = []
    with (
        progress(show=not json) as bar,
        tempfile.TemporaryDirectory(prefix=".penstock-bench-", dir=directory) as folder,
    ):
        task = bar.add_task("measuring", total=2 * len(ROUND))
        for durability in (Durability.relaxed.value, Durability.commit.value):
            with penstock.create(
                Path(folder) / durability, slots=SLOTS, data_bytes=DATA_BYTES, lease=LEASE_S, durability=durability
            ) as q:
                for batch in ROUND:
                    found += measure(q, batch, durability, seconds / (2 * len(ROUND)))
                    bar.advance(task)
    _show(found, directory, json=json)
    return 0


def measure(queue: penstock.TimeQueue, batch: int, durability: str, seconds: float) -> list[Figure]:
    """Rounds of putting, getting and acknowledging until the time is over; at least one."""
    figures = {name: Figure(name, batch, durability) for name in OPERATIONS}
    bodies = [os.urandom(BODY_BYTES) for _ in range(batch)]
    end = time.perf_counter() + seconds
    while True:
        # A put that waits for a slow disk shall not use up the time of the others.
        put_end = min(end, time.perf_counter() + seconds / 2)
        got: list[list[penstock.Message]] = []
        count = _timed(figures["put"], _put, queue, bodies, ROUND[batch], put_end)
        _timed(figures["get"], _get, queue, batch, count, got)
        _timed(figures["ack"], _ack, queue, got)
        if time.perf_counter() >= end:
            return list(figures.values())


def _timed(figure: Figure, work: Callable[..., int], *arguments: Any) -> int:
    start = time.perf_counter()
    count = work(*arguments)
    figure.seconds += time.perf_counter() - start
    figure.messages += count
    figure.per_second = figure.messages / figure.seconds if figure.seconds else 0.0
    return count


def _put(queue: penstock.TimeQueue, bodies: list[bytes], most: int, end: float) -> int:
    count = 0
    while count < most and (count == 0 or time.perf_counter() < end):
        if len(bodies) == 1:
            queue.put(bodies[0])
        else:
            queue.put_many(bodies)
        count += len(bodies)
    return count


def _get(queue: penstock.TimeQueue, batch: int, most: int, got: list[list[penstock.Message]]) -> int:
    count = 0
    while count < most:
        got.append([queue.get(block=False)] if batch == 1 else queue.get_many(batch))
        count += len(got[-1])
    return count


def _ack(queue: penstock.TimeQueue, got: list[list[penstock.Message]]) -> int:
    count = 0
    for messages in got:
        if len(messages) == 1:
            queue.ack(messages[0])
        else:
            queue.ack_many(messages)
        count += len(messages)
    return count


def _show(found: list[Figure], directory: Path, *, json: bool) -> None:
    kind = file_system("file system", directory).value
    if json:
        setting: dict[str, Any] = {
            "compiled": penstock.compiled,
            "file_system": kind,
            "body_bytes": BODY_BYTES,
            "results": msgspec.to_builtins(found),
        }
        say_json(setting)
        return
    core = "compiled" if penstock.compiled else "interpreted"
    say(f"penstock {penstock.__version__}, {core}, {kind}, bodies of {BODY_BYTES} bytes; messages a second")
    rows = table("", "relaxed", "commit", numbers=("relaxed", "commit"))
    for batch in ROUND:
        for name in OPERATIONS:
            by = {f.durability: f for f in found if f.batch == batch and f.operation == name}
            title = name if batch == 1 else f"{name}, {batch} at once"
            rows.add_row(title, *(f"{by[d].per_second:,.0f}" for d in ("relaxed", "commit")))
    console().print(rows)
