"""``penstock report``: a page about what became of messages. What is in it is ``penstock.spark.report``'s."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import NO_QUEUE, USAGE, Failure
from penstock.cli.options import Json, examples
from penstock.cli.output import say, say_json
from penstock.cli.values import moment, span_s

EXAMPLES = examples(
    "penstock report orders",
    "penstock report /var/lib/queues -o today.html --since 24h",
    "penstock report orders --since 2030-01-02T00:00:00Z --json",
)


def _since_s(text: str) -> float:
    """A span before now, or a time."""
    try:
        return time.time() - span_s(text)
    except typer.BadParameter:
        return moment(text).timestamp()


def report(
    where: Annotated[
        Path,
        typer.Argument(metavar="QUEUE|ROOT", help="A queue, a macro queue, or a folder of queues.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only what ended since then: 24h, 7d, or a time.", show_default="all"),
    ] = None,
    json: Json = False,
) -> int:
    """Write an HTML page from the history of queues: throughput, waiting time, lateness, retries, slowest messages.

    A Spark job on this machine reads the history, which a queue keeps if its option history_bytes says so. The page is
    one file that needs nothing else.
    """
    since_s = None if since is None else _since_s(since)
    if not where.is_dir():
        raise Failure(f"{where}: there is no queue, and no folder with queues", NO_QUEUE)
    if not output.absolute().parent.is_dir():
        raise Failure(f"{output}: there is no such folder", USAGE)
    try:
        # By its name, and here: the program does not depend on Spark's libraries, and they are slow to import.
        write_report = importlib.import_module("penstock.spark.report").write_report
    except ImportError as error:
        raise Failure(f"a report needs {error.name}: pip install 'penstock[spark]'", USAGE) from error
    found = write_report(where, output, since_s=since_s)
    if json:
        say_json({"page": str(output), "outcomes": found.outcomes, "results": found.results})
    elif found.outcomes:
        say(f"{output}: {found.outcomes:,} outcomes")
    else:
        say(f"{output}: there is no history here{'' if since is None else ' since then'}")
    return 0
