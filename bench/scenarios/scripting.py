"""What scripts cost (8): messages whose script does nothing, against get and ack of the same messages.

Both take turns in one process, each with a queue of its own with exclusive keys, so that whatever else the machine does
hits both; the median turn counts. The keys are as many as messages, and none has a context: it is looked for all the
same. "Through a macro queue" is the same script with an input of two members, where each key is locked while it is
worked on; "state changed" a script that changes its context, whose batches are on disk before they are acknowledged.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import penstock
from bench.scenarios.measuring import Stopwatch, bodies, check, scratch
from bench.systems.penstock_queue import RECORD_EXTRA_BYTES
from penstock.scripts import App, Context, ScriptMessage, Worker

TURN = 1000  # messages: five batches of a worker
OURS = "Penstock"
PLAIN = "get + ack"
MACRO = "through a macro queue"
STATE = "state changed"


def nothing(context: Context[Any], message: ScriptMessage) -> None:
    pass


def counts(context: Context[dict[str, int]], message: ScriptMessage) -> None:
    context.state["seen"] = context.state.get("seen", 0) + 1


def with_a_script(below: Path, *, count: int, body_bytes: int) -> dict[str, float]:
    """Messages a second."""
    drafts = [penstock.Draft(body=body, type="job", key=f"key {n}") for n, body in enumerate(bodies(TURN, body_bytes))]
    seconds: dict[str, list[float]] = {name: [] for name in (OURS, PLAIN, MACRO, STATE)}
    with scratch(below) as where, penstock.QueueManager(where) as manager:
        inputs = {OURS: "script", PLAIN: "plain", MACRO: "member", STATE: "state"}
        for name in (*inputs.values(), "other"):
            manager.create(
                name,
                depth=2 * TURN,
                data_bytes=2 * TURN * (body_bytes + 2 * RECORD_EXTRA_BYTES),
                durability="relaxed",
                exclusive_keys=True,
            )
        manager.create_macro("macro", ["member", "other"])
        queues = {name: penstock.open(where / queue) for name, queue in inputs.items()}
        apps = {OURS: App("script"), MACRO: App("macro"), STATE: App("state")}
        for name, app in apps.items():
            app.script("job")(counts if name == STATE else nothing)
        workers = {name: app.worker(where) for name, app in apps.items()}
        for turn in range(max(count // TURN, 1) + 1):
            for name in list(seconds) if turn % 2 else reversed(seconds):
                queues[name].put_many(drafts)
                with Stopwatch() as watch:
                    _work(workers.get(name), queues[name])
                if turn:  # the first warms up
                    seconds[name].append(watch.seconds)
        for name, queue in queues.items():
            check(queue.stats().acks == (max(count // TURN, 1) + 1) * TURN, f"{name}: not all were acknowledged")
            queue.close()
        for worker in workers.values():
            worker.close()
        check(len(apps[STATE].contexts(where)) == TURN, "contexts are missing")
    return {name: TURN / statistics.median(each) for name, each in seconds.items()}


def _work(worker: Worker | None, queue: penstock.TimeQueue) -> None:
    if worker is not None:
        worker.run(until_empty=True)
        return
    for _ in range(TURN):
        queue.get().ack()
