"""``penstock pipeline``: checks a pipeline, or runs it on Spark and tells of each batch."""

from __future__ import annotations

import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.exits import NOTHING, OK, USAGE, Failure, Terminated
from penstock.cli.options import Json, UntilEmpty, examples
from penstock.cli.output import flush, say, say_json
from penstock.cli.signals import Held
from penstock.cli.values import readable_bytes, size_bytes
from penstock.errors import PenstockError
from penstock.spark.pipelines import checking
from penstock.spark.pipelines.definition import BadPipeline, Mistake, load

if TYPE_CHECKING:
    from penstock.spark.ending import RunningJava
    from penstock.spark.pipelines.pipeline import Progress, Running

LOOK_S = 0.5
LAST_S = 10.0  # for a batch to see that its Java is gone: a thread of Arrow's that is left aborts the program
MEMORY = "spark.driver.memory"
MEMORY_LEAST_BYTES = 512 << 20  # Spark does not start with less than 450 MiB, of which Java keeps some to itself

EXAMPLES = examples(
    "penstock pipeline check orders.toml",
    "penstock pipeline check orders.toml --no-spark",
    "penstock pipeline run orders.toml",
    "penstock pipeline run orders.toml --until-empty --json",
)


class Action(StrEnum):
    """What to do."""

    run = "run"
    check = "check"


def pipeline(
    action: Annotated[
        Action,
        typer.Argument(
            help="check: find mistakes, and consume nothing. run: go on until it is stopped.", show_default=False
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, in TOML.", show_default=False)],
    until_empty: UntilEmpty = False,
    no_spark: Annotated[
        bool,
        typer.Option("--no-spark", help="To check: leave out what only Spark knows, expressions and schemas. Quick."),
    ] = False,
    master: Annotated[str, typer.Option(metavar="URL", help="Of Spark.")] = "local[*]",
    memory: Annotated[
        int | None,
        typer.Option(
            parser=size_bytes, metavar="SIZE", help="Of Java, such as 4g. Else 1g, Spark's own.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Run a pipeline on Spark: from source queues through steps into queues and tables; or check it.

    Functions are found from the folder of the file, and from the current one. A message that fails waits and comes
    again, and after its last attempt is a dead letter. Ctrl-C and SIGTERM let the batch that runs come to its end; a
    second one stops it at once. Started again it goes on where it was. What each batch was like goes to standard error;
    with --json to standard output. Mistakes that check finds are printed, one a line, with exit code 1.
    """
    if not file.is_file():
        raise Failure(f"{file}: there is no such file", USAGE)
    settings = {} if memory is None else {MEMORY: _java_memory(memory)}
    _find_functions(file)
    if action is Action.check:
        return _check(file, no_spark=no_spark, master=master, settings=settings, json=json)
    if no_spark:
        raise typer.BadParameter("--no-spark is for check")
    _run(file, master=master, settings=settings, until_empty=until_empty, json=json)
    return OK


def _java_memory(size_bytes: int) -> str:
    """As Java takes it."""
    there_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not MEMORY_LEAST_BYTES <= size_bytes <= there_bytes:
        raise typer.BadParameter(
            f"--memory must be from {readable_bytes(MEMORY_LEAST_BYTES)} to the {readable_bytes(there_bytes)} of this "
            f"machine, not {readable_bytes(size_bytes)}"
        )
    return f"{size_bytes >> 20}m"


def _find_functions(file: Path) -> None:
    """Here and in tasks."""
    folders = [str(file.absolute().parent), os.getcwd()]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))


# ---------------------------------------------------------------- checking


def _check(file: Path, *, no_spark: bool, master: str, settings: dict[str, str], json: bool) -> int:
    mistakes = _mistakes(file, None if no_spark else master, settings)
    for mistake in mistakes:
        if json:
            say_json({"file": str(file), **msgspec.structs.asdict(mistake)})
        else:
            say(f"{file}: {mistake}")
    if not mistakes and not json:
        say(f"{file}: no mistakes" + (" (expressions were not looked at)" if no_spark else ""))
    return NOTHING if mistakes else OK


def _mistakes(file: Path, master: str | None, settings: dict[str, str]) -> list[Mistake]:
    try:
        definition = load(file)
    except BadPipeline as bad:
        return bad.mistakes
    if master is None:
        return checking.mistakes_of(definition)
    from penstock.spark import Pipeline, running_java  # here: Spark is optional, and takes its time

    with running_java(f"check.{definition.name}", master=master, settings=settings) as java:
        found: list[Mistake] = java.told(lambda: Pipeline.load(file).check(java.spark))
    return found


# ---------------------------------------------------------------- running


def _run(file: Path, *, master: str, settings: dict[str, str], until_empty: bool, json: bool) -> None:
    """Until Ctrl-C or SIGTERM; with ``until_empty``, until nothing is due."""
    definition = load(file)
    mistakes = checking.mistakes_of(definition)  # before Spark is started
    if mistakes:
        raise BadPipeline(str(file), mistakes)
    checking.require_free(definition)
    from penstock.spark import running_java

    teller = Teller(json=json)
    with Held() as held, running_java(f"pipeline.{definition.name}", master=master, settings=settings) as java:
        while _followed(java.told(lambda: _started(file, java.spark, until_empty)), teller, held, java):
            pass


def _started(file: Path, spark: Any, until_empty: bool) -> Running:
    from penstock.spark import Pipeline

    return Pipeline.load(file).start(spark, available_now=until_empty)


def _followed(running: Running, teller: Teller, held: Held, java: RunningJava) -> bool:
    """Until it ends; whether it had messages."""
    try:
        while not java.told(lambda: running.wait(LOOK_S)):
            teller.tell(java.told(running.progress))
            held.interruptible(time.sleep, 0)
    except (KeyboardInterrupt, Terminated):
        java.told(lambda: _stopped(running, held))
        teller.tell(java.told(running.progress))
        raise
    except PenstockError:
        running.finish(LAST_S)
        raise
    found = java.told(running.progress)
    teller.tell(found)
    return bool(found)


def _stopped(running: Running, held: Held) -> None:
    """The batch that runs comes to its end, unless somebody is impatient."""
    held.forget()
    try:
        while not running.finish(LOOK_S):
            held.interruptible(time.sleep, 0)
    finally:
        running.stop(0)


class Teller:
    """Says what each batch was like, once."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._said: set[int] = set()

    def tell(self, progress: list[Progress]) -> None:
        for each in progress:
            if each.batch not in self._said:
                self._said.add(each.batch)
                self._say(each)

    def _say(self, each: Progress) -> None:
        if self._json:
            said: dict[str, Any] = {"event": "batch", **msgspec.structs.asdict(each)}
            say_json(said)
            flush()
            return
        led_to = [
            f"{count} {what}"
            for count, what in ((each.put, "put"), (each.rows, "rows"), (each.failed, "failed"), (each.dead, "dead"))
            if count
        ]
        late = f", {each.late_s:.1f} s late" if each.due else ""
        text = (
            f"batch {each.batch}: {each.messages} messages in {each.seconds:.1f} s ({each.messages_s:.0f}/s): "
            f"{', '.join(led_to) or 'nothing to put'}; {each.due} due{late}, {each.waiting} waiting"
        )
        print(text, file=sys.stderr, flush=True)
