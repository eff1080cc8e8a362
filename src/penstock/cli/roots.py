"""Owns the arguments of commands that serve a whole root over the network, and what they check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import NO_QUEUE, Failure
from penstock.cli.output import flush, say, say_json

RootPath = Annotated[Path, typer.Argument(metavar="[ROOT]", help="The folder with the queues.", show_default="here")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")]


def check_root(root: Path) -> None:
    if not root.is_dir():
        raise Failure(f"{root}: {'not a folder' if root.exists() else 'there is no such folder'}", NO_QUEUE)
    if (root / "queue.json").exists():
        raise Failure(f"{root}: this is a queue; give the folder that it is in", NO_QUEUE)


def tell(what: str, address: str, json: bool) -> None:
    """Where something is served, for people or programs; at once, also into a pipe."""
    if json:
        say_json({"address": address})
    else:
        say(f"{what} at {address} (Ctrl-C ends it)")
    flush()
