"""``penstock check``: is every byte of a queue what it must be?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import NOTHING, OK
from penstock.cli.options import BUSY_S, Busy, Json, QueuePath, examples
from penstock.cli.output import say, say_json
from penstock.timequeue import Finding, check_queue

EXAMPLES = examples("penstock check orders", "penstock check orders --json", "penstock check orders --quick")


def check(
    queue: QueuePath,
    quick: Annotated[bool, typer.Option("--quick", help="The index alone, without reading every body.")] = False,
    busy: Busy = BUSY_S,
    json: Json = False,
) -> int:
    """Check a queue and print each finding with its file and byte offset; exit code 1 if there are any."""
    found = check_queue(queue, deep=not quick, busy_s=busy)
    end = f"{len(found)} findings; see penstock repair" if found else "fine"
    report(queue, found, json=json, ok=not found, end=end)
    return NOTHING if found else OK


def report(queue: Path, found: Sequence[Finding], *, json: bool, ok: bool, end: str) -> None:
    if json:
        findings = [{"path": one.path, "offset": one.offset, "what": one.what} for one in found]
        say_json({"path": os.path.abspath(queue), "ok": ok, "findings": findings})
        return
    for one in found:
        say(f"{one.path}:{one.offset}: {one.what}")
    say(f"{queue}: {end}")
