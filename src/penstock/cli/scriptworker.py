"""Owns one process of ``penstock scripts run``: imports the app and is one of its workers until it is told to stop.

Started by the pool as ``python -m penstock.cli.scriptworker``, with its orders as JSON. Reports as ``worker.py`` does,
with a line for each batch, and one for each message that failed. Never prints.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import msgspec

from penstock.cli.worker import UNUSABLE, Report, line, serve
from penstock.errors import Corrupt, Misuse, QueueNotFound, WrongFormat
from penstock.scripts import App, Worker
from penstock.scripts.naming import named
from penstock.scripts.worker import NAP_S


def load(name: str) -> App[Any]:
    found = named(name)
    if not isinstance(found, App):
        raise TypeError(f"{name} is of type {type(found).__name__}, not a penstock.scripts.App")
    return found


class ScriptWorker:
    def __init__(self, orders: dict[str, Any], report: Report) -> None:
        self._orders = orders
        self._report = report
        self._stopped = False
        self._worker: Worker | None = None

    def stop(self, *_: object) -> None:
        self._stopped = True
        if self._worker is not None:
            self._worker.stop()

    def run(self) -> int:
        orders = self._orders
        try:
            app = load(orders["function"])
        except BaseException as error:
            self._report("unusable", error=line(error), trace=traceback.format_exc())
            return UNUSABLE
        try:
            worker = app.worker(
                orders["root"],
                batch=orders["batch"],
                lease=orders["lease"],
                retry_delay=orders["retry_delay"],
                report=self._report,
            )
        except (Misuse, QueueNotFound, WrongFormat, Corrupt) as error:  # starting again would not help
            self._report("unusable", error=str(error), trace=traceback.format_exc())
            return UNUSABLE
        with worker:
            self._worker = worker
            self._report("ready")
            self._work(worker, orders["until_empty"])
        self._report("finished")
        return 0

    def _work(self, worker: Worker, until_empty: bool) -> None:
        while not self._stopped:
            before = msgspec.structs.asdict(worker.counts)
            if worker.step(0.0 if until_empty else NAP_S):
                counts = msgspec.structs.asdict(worker.counts)
                self._report("batch", **{name: count - before[name] for name, count in counts.items()})
            elif until_empty and not worker.waits:
                return


if __name__ == "__main__":
    sys.exit(serve(ScriptWorker))
