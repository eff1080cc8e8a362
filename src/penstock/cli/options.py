"""Owns the arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.values import span_s

QueuePath = Annotated[Path, typer.Argument(metavar="QUEUE", help="The queue's directory.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
OnlyTypes = Annotated[
    list[str] | None, typer.Option("--type", help="Only messages of this type (repeat).", show_default=False)
]
OnlyKeys = Annotated[
    list[str] | None, typer.Option("--key", help="Only messages with this key (repeat).", show_default=False)
]
Busy = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="How long to wait for the queue's lock.", min=0.0),
]

RetryDelay = Annotated[
    float | None,
    typer.Option(
        parser=span_s,
        metavar="TIME",
        help="A message that failed waits so long. Else as long as its backoff says, or 1 s without one.",
        show_default=False,
    ),
]
Lease = Annotated[
    float | None,
    typer.Option(parser=span_s, metavar="TIME", help="Of each message; extended while it is worked on."),
]
UntilEmpty = Annotated[bool, typer.Option("--until-empty", help="End when no message is due.")]

BUSY_S = 10.0


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\n".join(["Examples:", *(f"$ {line}" for line in lines)])
