"""``penstock upgrade``: the layout of this version for a queue that an older one made."""

from __future__ import annotations

from penstock.cli.opening import Changing
from penstock.cli.options import BUSY_S, Busy, Json, QueuePath, examples
from penstock.cli.resize import report
from penstock.timequeue import upgrade_queue

EXAMPLES = examples("penstock upgrade orders", "penstock upgrade orders --json | jq .changed")


def upgrade(queue: QueuePath, busy: Busy = BUSY_S, json: Json = False) -> int:
    """Bring a queue to the layout of this version, or say that it has it. Nobody else may have it open.

    Everything in it stays. Killed at any time, the queue has the old layout or the new one. Older versions of Penstock
    may not open it any more.
    """
    with Changing("upgrading") as changing:
        found = upgrade_queue(queue, busy_s=busy, progress=changing)
    report(found, json=json, unchanged="the queue is current")
    return 0
