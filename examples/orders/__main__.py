"""The main job: shops put orders and payments into three lanes, which a macro queue collects; scripts on Spark keep a
context for each customer, with timers and with a bank that does not always answer; back offices take what follows. A
producer and the Spark driver are killed on the way. At the end every message is accounted for.

    python -m examples.orders                                    # or: make run
    python -m examples.orders --messages 50000 --seconds 60 --dir /tmp/shop
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock.spark import java
from penstock.spark.figures import Figures

from . import report
from .children import ROOT
from .director import Director, Failed
from .plan import DEAD, LANES, ORDER, ORDERS, SHIPPING, Folder
from .producers import Event
from .shop import app
from .view import live_view, summary

STOPPED = 130  # as a shell says for Ctrl-C
STOPPING = (signal.SIGINT, signal.SIGTERM)  # whoever ends us, nobody is left behind


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=_at_least(100), default=12_000, help="in all (default: 12000)")
    parser.add_argument("--seconds", type=_at_least(5, float), default=30.0, help="in which they are put (30)")
    parser.add_argument("--producers", type=_at_least(1), default=3, help="processes that put them (3)")
    parser.add_argument("--dir", type=Path, help="where everything is kept (default: build/orders-<time>)")
    options = parser.parse_args(arguments)
    if options.dir is None:
        options.dir = ROOT / "build" / time.strftime("orders-%Y%m%d-%H%M%S")
    elif options.dir.exists() and (not options.dir.is_dir() or any(options.dir.iterdir())):
        parser.error(f"{options.dir} is not an empty folder")
    if options.producers * 20 > options.messages:
        parser.error(f"{options.messages} messages are too few for {options.producers} producers: 20 for each at least")
    return options


def _at_least(least: float, kind: type = int) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        number = kind(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return number

    return value


def missing() -> str | None:
    """What is not there for Spark, and what to do."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not installed: use `make run`, or pip install 'penstock[cli,spark]'"
    try:
        java.find()
    except java.NoJava as error:
        return str(error)
    return None


def run(options: argparse.Namespace, folder: Folder) -> int:
    # Of Spark, for a while only. Not in the folder: it has sockets, whose paths must be short.
    scratch = Path(tempfile.mkdtemp(prefix="penstock-"))
    director = Director(
        folder, scratch, messages=options.messages, producers=options.producers, seconds=options.seconds
    )
    try:
        with live_view() as show:
            director.run(show)
    finally:
        director.end()
        shutil.rmtree(scratch, ignore_errors=True)
    account = written(director, folder)
    print(summary(account))
    print(what_is_there(folder), flush=True)
    return 0 if account["ok"] else 1


def written(director: Director, folder: Folder) -> dict[str, Any]:
    course = director.course
    account = course.account.as_json(course.messages, director.found())
    account["events"] = [{"at_s": round(at_s - course.start_s, 1), "what": what} for at_s, what in course.events]
    account["seconds"] = round(time.time() - course.start_s, 1)
    folder.account.write_text(json.dumps(account, indent=2) + "\n")
    history = msgspec.json.decode(folder.figures.read_bytes(), type=Figures) if folder.figures.exists() else None
    folder.report.write_text(report.written(course, account, history))
    return account


def what_is_there(folder: Folder) -> str:
    """Everything stays: how to look at it, and how to go on."""
    core, python, root = (_short(path) for path in (Path(penstock.__file__).parents[1], sys.executable, folder.root))
    path = core if core == str(ROOT) else f"{core}:{_short(ROOT)}"
    order = Event(-1, ORDER, "me", next(iter(LANES)), 500, int(time.time() * 1000))
    put = f"--as json '{json.dumps(order.draft().body)}' --type {order.type} --key {order.customer}"
    return f"""
The report is {_short(folder.report)}
Queues, contexts, checkpoints, journals and logs are beside it. To look, and to go on:
  export PYTHONPATH={path}
  {python} -m penstock stat {root}/queues/{ORDERS}
  {python} -m penstock peek {root}/queues/{DEAD} --limit 1 --json
  {python} -m penstock scripts contexts {app.name} --root {root}/queues | head -3
  {python} -m penstock put {root}/queues/{order.lane} {put}
  {python} -m examples.orders.driver {root} &     # Spark goes on where it was; kill %1 ends it
  {python} -m penstock get {root}/queues/{SHIPPING} --timeout 60"""


def _short(path: str | Path) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)


def stop(*_: object) -> None:
    """Once: what follows ends all processes, and is not to be stopped by somebody impatient."""
    for each in STOPPING:
        signal.signal(each, lambda *_: None)
    raise KeyboardInterrupt


def main() -> int:
    options = parse()
    why_not = missing()
    if why_not is not None:
        print(f"penstock: {why_not}", file=sys.stderr)
        return 1
    folder = Folder(options.dir.resolve())
    folder.make()
    for each in STOPPING:
        signal.signal(each, stop)
    try:
        return run(options, folder)
    except KeyboardInterrupt:
        print(f"\nstopped; what there is so far is in {_short(folder.root)}", flush=True)
        return STOPPED
    except Failed as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
