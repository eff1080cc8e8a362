"""Owns ``run_scripts``: the streaming query that an app is on Spark, from its input to the driver's side of each batch.
Never looks into a message.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import Misuse, PenstockError
from penstock.scripts import App
from penstock.spark import bykeys, finding
from penstock.spark import options as O
from penstock.spark.collected import collected
from penstock.spark.schema import BY_KEYS, PART, SAID
from penstock.spark.scripting import stateful
from penstock.spark.scripting.batches import Batches
from penstock.spark.scripting.place import PARTS, PARTS_MAX, STATEFUL, Place, Settings
from penstock.spark.scripting.results import Mark, Marks, decode_marks, decode_worked, joined, uuid_of
from penstock.spark.scripting.rows import COLUMNS
from penstock.spark.scripting.tasks import OUTPUT, Marker, Task, TaskOfRows
from penstock.spark.scripting.whose import refuse_those_of_workers
from penstock.spark.sessions import session
from penstock.timequeue.arguments import check_seconds

MAX_ROWS = 100_000
WAIT_S = 30.0


def run_scripts(
    app: App[Any],
    root: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    available_now: bool = False,
    partitions: int | None = None,
    engine: str = PARTS,
    max_rows: int = MAX_ROWS,
    retry_delay: float | None = None,
    wait: float = WAIT_S,
    **options: Any,
) -> Any:
    """Start an app as a streaming query; the query.

    Its contexts are in the app's folder in the root, in as many parts as ``partitions`` says when it is started for the
    first time (else as many as Spark has cores). With ``available_now`` it ends when what was due is done. Further
    ``options`` are those of the source.
    """
    if not isinstance(app, App):
        raise Misuse(f"what runs on Spark is a penstock.scripts.App, not {app!r}")
    if engine not in (PARTS, STATEFUL):
        raise Misuse(f"engine must be {PARTS!r} or {STATEFUL!r}, not {engine!r}")
    if partitions is not None and not (partitions.__class__ is int and 1 <= partitions <= PARTS_MAX):
        raise Misuse(f"partitions must be a whole number from 1 to {PARTS_MAX}, not {partitions!r}")
    delay_s = None if retry_delay is None else check_seconds("retry_delay", retry_delay)
    wait_s = check_seconds("wait", wait)
    place = Place(root, app.name)
    place.folder.require_root()
    receiver = f"scripts.{app.name}"
    given = {"root": str(place.folder.root), "queue": app.input, "receiver": receiver, "maxRows": max_rows, **options}
    parsed = O.parse({name: str(value) for name, value in given.items() if value is not None}, O.STREAM)
    finding.path_of(parsed)
    spark = spark or session(app.name)
    settings = settled(place, engine, partitions, app.input, spark.sparkContext.defaultParallelism)
    skip = parsed["onLostClaim"] == "skip"
    batches = Batches(app, place, receiver, delay_s, wait_s, may_be_gone=skip)
    batches.put_left()
    stream = spark.readStream.format("penstock").options(**given)
    if engine == PARTS:
        # Each of the source's partitions is one part of the keys, whose task does what there is to do, where it reads.
        rows = stream.schema(BY_KEYS).option("partitions", settings.partitions).load().where(F.col(SAID).isNotNull())
        made = _in_parts(app, place, settings, rows, batches, fail_if_gone=not skip)
    else:
        made = _stateful(app, place, stream.schema(COLUMNS).load(), batches)
    writer = made.option("checkpointLocation", str(place.checkpoint)).queryName(f"scripts.{app.name}")
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def settled(place: Place, engine: str, partitions: int | None, input: str, cores: int) -> Settings:
    """How the contexts of an app are kept, from the first time on."""
    with contextlib.nullcontext() if place.folder.is_on_spark else place.nobody_works():
        refuse_those_of_workers(place.folder)
        return place.settle_on(engine, partitions, input, cores)


# ---------------------------------------------------------------- contexts in parts of ours


def _in_parts(
    app: App[Any], place: Place, settings: Settings, rows: DataFrame, batches: Batches, *, fail_if_gone: bool
) -> Any:
    files = [str(place.part(number)) for number in range(settings.partitions)]
    root = str(place.folder.root)

    def each(frame: DataFrame, number: int) -> None:
        def outcomes(serial: int, known: set[str]) -> list[Any]:
            task = Task(app, root, files, serial, known=known, fail_if_gone=fail_if_gone)
            return [msgspec.structs.asdict(decode_worked(said)) for said in bykeys.collect(frame, task)]

        batches.run(number, outcomes, lambda: _marks(frame, fail_if_gone))

    return rows.writeStream.foreachBatch(each)


def called(rows: DataFrame, app: App[Any], root: str, files: list[str], serial: int) -> DataFrame:
    """What the scripts of messages that are in rows come to, with their contexts in these files."""
    parts = len(files)
    # The same hash that Spark partitions by: a task has one part.
    parted = rows.withColumn(PART, F.expr(f"pmod(hash(key), {parts})")).repartition(parts, "key")
    ordered = parted.sortWithinPartitions(PART, F.desc("priority"), "deliver_at", "number", "queue")
    return ordered.mapInArrow(TaskOfRows(app, root, files, serial), OUTPUT)


def marks_in(frame: DataFrame) -> Marks:
    """By what the messages of a batch are known again, of rows that have all columns."""
    figures = (F.count("*"), F.min("id"), F.max("id"), F.sum("number"), F.sum("attempts"))
    rows = collected(frame.groupBy("queue").agg(*figures))
    return {uuid_of(queue): Mark(*rest) for queue, *rest in (row.values() for row in rows)}


def _marks(frame: DataFrame, fail_if_gone: bool) -> Marks:
    return joined(decode_marks(said) for said in bykeys.collect(frame, Marker(fail_if_gone=fail_if_gone)))


# ---------------------------------------------------------------- contexts in Spark's own state


def _stateful(app: App[Any], place: Place, rows: DataFrame, batches: Batches) -> Any:
    stateful.prepare(rows.sparkSession)
    found = stateful.outcomes(app, str(place.folder.root), rows)

    def each(frame: DataFrame, number: int) -> None:
        def outcomes(serial: int, known: set[str]) -> list[Any]:
            if known:  # its state was lost with its checkpoint
                raise PenstockError(
                    f"{place.checkpoint}: batch {number} has messages that were done with an earlier checkpoint, whose "
                    f"contexts are gone; see docs/scripts-on-spark.md#two-engines"
                )
            return collected(frame)

        batches.run(number, outcomes, lambda: stateful.marks(frame))

    return found.writeStream.foreachBatch(each)
