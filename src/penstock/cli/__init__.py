"""The command line, ``penstock``: one file a command. Calls what any program can call, and knows nothing of the bytes
of a queue."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_MISSING = "penstock: the command line needs typer and rich; they come with the extra `cli`: pip install '.[cli]'"

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code. The library itself needs neither typer nor rich."""
    try:
        try:
            from penstock.cli.app import run
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("typer", "rich"):
                raise
            print(_MISSING, file=sys.stderr)
            return 2
        return run(arguments)
    except KeyboardInterrupt:  # before or after the part that has something to clean up
        return 130
