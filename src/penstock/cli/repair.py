"""``penstock repair``: put right what check finds, keeping every message that can be kept."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer
from rich.progress import DownloadColumn, TransferSpeedColumn

from penstock import Corrupt, NotAQueue
from penstock.cli.check import report
from penstock.cli.exits import NOTHING, OK
from penstock.cli.options import BUSY_S, Busy, Json, QueuePath, examples
from penstock.cli.output import progress
from penstock.timequeue import check_queue, repair_queue, restore_queue

EXAMPLES = examples(
    "penstock repair orders --dry-run", "penstock repair orders", "penstock repair orders --after-power-loss"
)


def repair(
    queue: QueuePath,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done; exit code 1 if anything.")
    ] = False,
    after_power_loss: Annotated[
        bool,
        typer.Option(
            "--after-power-loss", help="Make the index anew from the records, even if nothing is seen to be wrong."
        ),
    ] = False,
    busy: Busy = BUSY_S,
    json: Json = False,
) -> int:
    """Repair a damaged queue and print what was put right. Nobody else may have the queue open."""
    with progress(DownloadColumn(binary_units=True), TransferSpeedColumn()) as bar:
        task = bar.add_task("reading", total=None)

        def advance(done_bytes: int, total_bytes: int) -> None:
            bar.update(task, completed=done_bytes, total=total_bytes)

        if after_power_loss:
            with contextlib.suppress(Corrupt, NotAQueue):  # which are to be repaired
                check_queue(queue, deep=False, busy_s=busy)  # refuses what only a newer Penstock understands
        work = restore_queue if after_power_loss else repair_queue
        found = work(queue, dry_run=dry_run, busy_s=busy, progress=advance)
    if not found:
        end = "restored, nothing was wrong" if after_power_loss and not dry_run else "fine, nothing to do"
    else:
        end = f"{len(found)} {'to put right' if dry_run else 'put right'}"
    ok = not found or not dry_run
    report(queue, found, json=json, ok=ok, end=end)
    return OK if ok else NOTHING
