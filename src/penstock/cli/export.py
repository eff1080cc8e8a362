"""``penstock export``: the messages of a queue as lines of JSON, without taking them out."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import MofNCompleteColumn

import penstock
from penstock.cli.exits import DAMAGED, OK
from penstock.cli.options import Json, QueuePath, examples
from penstock.cli.output import complain, progress, say, say_json
from penstock.cli.values import State
from penstock.timequeue import Finding

SHOWN_EVERY = 256  # messages: showing each would take longer than writing it

EXAMPLES = examples(
    "penstock export orders orders.jsonl",
    "penstock export orders | gzip > orders.jsonl.gz",
    "penstock export orders --state waiting | jq -r 'select(.type == \"order\") | .id'",
)


def export(
    queue: QueuePath,
    file: Annotated[
        str,
        typer.Argument(metavar="[FILE]", help="A new file, or - for standard output.", show_default="-"),
    ] = "-",
    state: Annotated[State, typer.Option(help="Which messages.")] = State.all,
    json: Json = False,
) -> int:
    """Write the messages of a queue, which may be in use, as JSON: one a line, in the order they were put.

    The first line says what was exported, the last how many there are. Bodies are in base64. Nothing is taken out; what
    is removed meanwhile is left out. A damaged message is reported and left out: exit code 6.
    """
    findings: list[Finding] = []
    with penstock.open(queue) as q, _sink(file) as out:
        exported = penstock.export_messages(q, state=state.value, findings=findings)
        # A bar and the lines on one screen would write over each other.
        with progress(MofNCompleteColumn(), show=not out.isatty()) as bar:
            task = bar.add_task("exporting", total=exported.total)
            for line in exported.lines():
                out.write(line)
                if exported.messages % SHOWN_EVERY == 0:
                    bar.update(task, completed=exported.messages)
    for one in findings:
        complain(f"{one.path}:{one.offset}: {one.what}; left out")
    if file != "-":
        if json:
            say_json(
                {
                    "path": os.path.abspath(file),
                    "messages": exported.messages,
                    "gone": exported.gone,
                    "findings": [{"path": one.path, "offset": one.offset, "what": one.what} for one in findings],
                }
            )
        else:
            say(f"{file}: {exported.messages} messages")
    return DAMAGED if findings else OK


@contextlib.contextmanager
def _sink(file: str) -> Iterator[BinaryIO]:
    """Where the lines go. The system gives the error of a write without the name of the file, or with that of the one
    aside, which nobody knows."""
    try:
        with _opened(file) as out:
            yield out
    except OSError as error:
        if not isinstance(error, penstock.PenstockError) and error.filename in (None, str(_aside(Path(file)))):
            error.filename = "standard output" if file == "-" else file
        raise


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there under its name when it is whole and on disk."""
    path = Path(file)
    if file == "-":
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif path.exists() and not path.is_file():  # a pipe or a device
        with open(path, "wb") as out:
            yield out
    else:
        with _new_file(path) as out:
            yield out


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name or 'export'}.{os.getpid()}")


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    aside = _aside(path)
    try:
        with open(aside, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.rename(aside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        raise
