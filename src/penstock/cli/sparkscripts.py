"""Owns ``penstock scripts run --spark``: starts the app as a query, tells of each batch, and stops it in order."""

from __future__ import annotations

import json as json_format
import os
import sys
import time
from pathlib import Path
from typing import Any

from penstock.cli.exits import USAGE, Failure, Terminated
from penstock.cli.output import flush, say
from penstock.cli.scriptworker import load
from penstock.cli.signals import Held
from penstock.cli.worker import line
from penstock.errors import PenstockError

LOOK_S = 0.5


def run_on_spark(
    name: str,
    root: Path,
    *,
    master: str,
    partitions: int | None,
    retry_delay: float | None,
    until_empty: bool,
    json: bool,
) -> None:
    """Until Ctrl-C or SIGTERM; with ``until_empty``, until nothing is due."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))  # for tasks
    try:
        app = load(name)
    except Exception as error:
        raise Failure(f"{name}: {line(error)}", USAGE) from error
    from penstock.spark import run_scripts, session  # here: Spark is optional, and takes its time

    teller = Teller(json=json)
    spark = session(f"scripts.{app.name}", master=master)
    with Held() as held:  # Spark does not bear to be interrupted while it is asked
        try:
            while True:
                query = run_scripts(
                    app, root, spark=spark, available_now=until_empty, partitions=partitions, retry_delay=retry_delay
                )
                try:
                    rows = _follow(query, teller, held)
                finally:
                    query.stop()
                if not rows:
                    return
        finally:
            spark.stop()


def _follow(query: Any, teller: Teller, held: Held) -> int:
    """Until it ends; how many messages it had."""
    try:
        while not query.awaitTermination(LOOK_S):
            teller.tell(query.recentProgress)
            held.interruptible(time.sleep, 0)
    except (KeyboardInterrupt, Terminated):
        query.stop()
        teller.tell(query.recentProgress)
        raise
    except Exception as error:  # one of Spark's, with the trace of another language
        from penstock.spark import reason_of

        raise PenstockError(reason_of(error)) from error
    teller.tell(query.recentProgress)
    return sum(each["numInputRows"] for each in query.recentProgress)


class Teller:
    """Says what each batch was like, once."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._said: set[tuple[str, int]] = set()

    def tell(self, progress: list[dict[str, Any]]) -> None:
        for each in progress:
            batch = (each["runId"], each["batchId"])
            if batch not in self._said and each["numInputRows"]:
                self._said.add(batch)
                self._say(each)

    def _say(self, each: dict[str, Any]) -> None:
        took_ms = each["durationMs"].get("triggerExecution", 0)
        waiting = _waiting(each["sources"][0].get("latestOffset"))
        if self._json:
            said = {"event": "batch", "batch": each["batchId"], "messages": each["numInputRows"], "ms": took_ms}
            say(json_format.dumps(said | waiting))
            flush()
        else:
            rest = "".join(f", {count} {name}" for name, count in waiting.items())
            text = f"batch {each['batchId']}: {each['numInputRows']} messages in {took_ms / 1000:.1f} s{rest}"
            print(text, file=sys.stderr, flush=True)


def _waiting(offset: Any) -> dict[str, int]:
    """What the source says of its backlog, which Spark gives as it likes."""
    found = json_format.loads(offset) if isinstance(offset, str) else offset
    return {name: found[name] for name in ("due", "waiting") if isinstance(found, dict) and name in found}
