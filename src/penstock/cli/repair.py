"""``penstock repair``: put right what check finds, keeping every message that can be kept."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.check import report
from penstock.cli.exits import NOTHING, OK
from penstock.cli.options import BUSY_S, Busy, Json, QueuePath, examples
from penstock.timequeue import repair_queue

EXAMPLES = examples("penstock repair orders --dry-run", "penstock repair orders")


def repair(
    queue: QueuePath,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done; exit code 1 if anything.")
    ] = False,
    busy: Busy = BUSY_S,
    json: Json = False,
) -> int:
    """Repair a damaged queue and print what was put right."""
    found = repair_queue(queue, dry_run=dry_run, busy_s=busy)
    if not found:
        end = "fine, nothing to do"
    else:
        end = f"{len(found)} {'to put right' if dry_run else 'put right'}"
    ok = not found or not dry_run
    report(queue, found, json=json, ok=ok, end=end)
    return OK if ok else NOTHING
