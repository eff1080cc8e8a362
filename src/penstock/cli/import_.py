"""``penstock import``: put the messages of an export."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import DownloadColumn, TextColumn

import penstock
from penstock.cli.exits import USAGE, Failure, Terminated, code_of, line_of
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import complain, progress, say, say_json
from penstock.cli.signals import Held
from penstock.cli.values import Durability
from penstock.timequeue.exports import BadExport, Importer, PastTheEnd, Source, ends_whole

EXAMPLES = examples(
    "penstock import orders orders.jsonl",
    "penstock import orders orders.jsonl --create",
    "penstock import orders orders.jsonl --skip 1500",
    "zcat orders.jsonl.gz | penstock import orders",
    "penstock export orders | penstock import others --durability relaxed",
)


def import_(
    queue: QueuePath,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The export, or - for standard input.", show_default="-")
    ] = "-",
    skip: Annotated[int, typer.Option(min=0, metavar="COUNT", help="Leave out so many messages at the start.")] = 0,
    create: Annotated[
        bool, typer.Option("--create", help="Make the queue first, with the options of the exported one.")
    ] = False,
    durability: Annotated[Durability | None, typer.Option(help="Other than the queue's own.")] = None,
    json: Json = False,
) -> int:
    """Put the messages of an export, 500 at a time, each time all or none.

    They keep body, delivery time, priority, type, key, headers and their order, and get new ids. When it ends early,
    the error says how many are in and how to go on: with --skip.
    """
    with contextlib.ExitStack() as stack:
        stream, total_bytes = stack.enter_context(_source(file))
        found = None if create else stack.enter_context(penstock.open(queue))  # said at once if it is not there
        source = _read_header(stream, file)
        q = found or stack.enter_context(source.create(queue))
        importer = Importer(q, source, skip=skip, durability=durability.value if durability else None)
        try:
            _put_all(importer, stream, total_bytes)
        except penstock.ImportStopped as error:
            why = error.__cause__ or error
            where = f"{_name(file)}: " if isinstance(why, BadExport) else ""
            raise Failure(f"{where}{line_of(why)}; {_position(importer, skip)}", code_of(why)) from error
        except PastTheEnd as error:
            what = f"--skip {skip} is past the end: it has {error.messages} messages; nothing was put"
            raise Failure(f"{_name(file)}: {what}", USAGE) from error
        except (KeyboardInterrupt, Terminated):
            complain(f"interrupted; {_position(importer, skip)}")
            raise
        finally:
            if json:
                say_json({"path": q.name, "imported": importer.messages, "skipped": skip})
    if not json:
        say(f"{importer.messages} messages put")
    return 0


def _put_all(importer: Importer, stream: BinaryIO, total_bytes: int | None) -> None:
    with progress(TextColumn("{task.fields[messages]} messages"), DownloadColumn(binary_units=True)) as bar:
        task = bar.add_task("importing", total=total_bytes, messages=0)
        for batch in importer.batches():
            with Held():  # or the number of messages that are in would be a guess
                importer.put(batch)
            done_bytes = stream.tell() if total_bytes is not None else None
            bar.update(task, completed=done_bytes, messages=importer.messages)


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read_header(stream: BinaryIO, file: str) -> Source:
    try:
        return Source(stream)
    except BadExport as error:
        raise Failure(f"{_name(file)}: {line_of(error)}", USAGE) from error


def _position(importer: Importer, skip: int) -> str:
    if importer.messages == 0:
        return f"nothing was put, go on with --skip {skip}" if skip else "nothing was put"
    return f"{importer.position} messages are in, go on with --skip {importer.position}"


@contextlib.contextmanager
def _source(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The stream to read, with its size where that is known. A file is looked at from its end, too."""
    if file == "-":
        if sys.stdin is None:
            raise Failure("standard input is closed", USAGE)
        yield sys.stdin.buffer, None
        return
    with open(file, "rb") as stream:
        if not Path(file).is_file():
            yield stream, None
            return
        if not ends_whole(stream):
            raise Failure(f"{file}: cut short, or not an export: its last line has no number of messages", USAGE)
        yield stream, os.fstat(stream.fileno()).st_size
