"""``penstock scripts``: runs the workers of an app of scripts, and shows its contexts."""

from __future__ import annotations

import json as json_format
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.exits import NO_QUEUE, NOTHING, OK, USAGE, Failure
from penstock.cli.options import Json, Lease, RetryDelay, UntilEmpty, examples
from penstock.cli.output import flush, say
from penstock.cli.signals import code_of
from penstock.cli.sparkscripts import run_on_spark
from penstock.cli.work import Pool, Process
from penstock.scripts.contexts import shown
from penstock.scripts.folder import SLOTS_MAX, Folder
from penstock.scripts.worker import BATCH, BATCH_MAX

EXAMPLES = examples(
    "penstock scripts run shop.scripts:app --root queues --workers 4",
    "penstock scripts run shop.scripts:app --root queues --until-empty --json",
    "penstock scripts run shop.scripts:app --root queues --spark",
    "penstock scripts contexts shop --root queues",
    "penstock scripts contexts shop --root queues --key example.com",
)


class Action(StrEnum):
    """What to do."""

    run = "run"
    contexts = "contexts"


class ScriptsPool(Pool):
    """The workers of an app. They report batches, not messages."""

    program = "penstock.cli.scriptworker"

    def _hear(self, process: Process, report: dict[str, Any]) -> None:
        if report["event"] == "batch":
            process.crashes = 0
            self.counts["done"] += report["done"]
            self._log(report.pop("event"), process, quiet=True, **report)
        elif report["event"] == "failed":
            self.counts["failed"] += 1
            text = f"message {report['id']} of key {report['key']!r} failed: {report['error']}"
            self._log(report.pop("event"), process, text=text, **report)
        else:
            super()._hear(process, report)


def scripts(
    action: Annotated[
        Action,
        typer.Argument(help="run: be the workers of an app. contexts: show what it keeps.", show_default=False),
    ],
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP",
            help="To run: MODULE:APP, found from the current directory. For its contexts: the app's name.",
            show_default=False,
        ),
    ],
    root: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the queues.")] = Path("."),
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, max=SLOTS_MAX, help="Processes that share the work.")
    ] = 1,
    batch: Annotated[
        int, typer.Option(min=1, max=BATCH_MAX, help="Messages that a worker takes, and stores, together.")
    ] = BATCH,
    lease: Lease = None,
    retry_delay: RetryDelay = None,
    until_empty: UntilEmpty = False,
    spark: Annotated[bool, typer.Option("--spark", help="As a streaming query of Spark's; see the docs.")] = False,
    master: Annotated[str, typer.Option(metavar="URL", help="Of Spark.")] = "local[*]",
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="On Spark: in how many parts the contexts are, from the first time on.", show_default=False
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only the context of this key.", show_default=False)] = None,
    json: Json = False,
) -> int:
    """Run the workers of an app of scripts, or show its contexts.

    Each message changes its context, and has its follow-ups, once, whoever is killed. Ctrl-C and SIGTERM let every
    worker finish the script that runs, store what is done and give back the rest; a second one stops them at once. The
    log goes to standard error; with --json to standard output. Contexts are printed as lines of JSON.
    """
    if not root.is_dir():
        raise Failure(f"{root}: there is no such folder of queues (--root)", NO_QUEUE)
    if action is Action.contexts:
        return _contexts(root, app, key)
    if key is not None:
        raise typer.BadParameter("--key is for contexts")
    if spark:
        if workers != 1 or batch != BATCH or lease is not None:
            raise typer.BadParameter("--workers, --batch and --lease are for workers; leave out --spark")
        run_on_spark(
            app,
            root,
            master=master,
            partitions=partitions,
            retry_delay=retry_delay,
            until_empty=until_empty,
            json=json,
        )
        return OK
    if partitions is not None:
        raise typer.BadParameter("--partitions is for --spark")
    orders = {
        "root": str(root.absolute()),
        "function": app,
        "batch": batch,
        "lease": lease,
        "retry_delay": retry_delay,
        "until_empty": until_empty,
        "once": False,
        "quiet_stdout": json,
    }
    pool = ScriptsPool(orders, workers, None, json)
    pool.run()
    if pool.unusable is not None:
        raise Failure(pool.unusable, USAGE)
    if pool.ended_by is not None:
        return code_of(pool.ended_by)
    return OK


def _contexts(root: Path, app: str, key: str | None) -> int:
    if ":" in app:
        raise Failure(f"{app}: contexts are found by the app's name, as in App({app.partition(':')[2]!r})", USAGE)
    found = False
    for context in shown(Folder(root.absolute(), app), key):
        found = True
        timers = {type: at.isoformat() for type, at in context["timers"].items()}
        say(json_format.dumps({**context, "timers": timers}))
    flush()
    return OK if found or key is None else NOTHING
