"""Owns the contexts of an app as a table, and their way from workers to Spark. Never changes one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import Misuse, QueueNotFound
from penstock.message import to_datetime
from penstock.scripts import App
from penstock.scripts.calling import Kept
from penstock.scripts.contexts import read
from penstock.scripts.store import Store
from penstock.spark.bykeys import parts_of
from penstock.spark.scripting import stateful
from penstock.spark.scripting.batchstore import BatchStore
from penstock.spark.scripting.place import PARTS, PARTS_MAX, PIPELINE_PARTS, STATEFUL, Place, receiver_of
from penstock.spark.scripting.stateful import STATE, decode_timers
from penstock.spark.sessions import session
from penstock.timequeue.arguments import BUSY_S

COLUMNS = "key string, state string, timers map<string, timestamp>"
AT_ONCE = 2000  # contexts in an Arrow batch

_ARROW = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("state", pa.string()),
        pa.field("timers", pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))),
    ]
)


def contexts(app: App[Any] | str, root: str | os.PathLike[str], *, spark: SparkSession | None = None) -> DataFrame:
    """The contexts of an app, of workers or on Spark: key, state as JSON, and the timers that are set.

    ``from_json(state, ...)`` makes columns of the state. Each part of the keys is read at one moment.
    """
    name = app.name if isinstance(app, App) else app
    place = Place(root, name)
    place.folder.require_root()
    spark = spark or session(name)
    settings = place.settings()
    if settings is not None and settings.engine == STATEFUL:
        return _of_state(spark, place)
    files = place.folder.stores()
    if not files and settings is None:
        raise QueueNotFound(f"{place.folder.path}: no context of an app {name!r} has been stored here yet")
    if not files:
        return spark.createDataFrame([], COLUMNS)
    paths = spark.createDataFrame([(str(path),) for path in files], "path string")
    return paths.repartition(len(files), "path").mapInArrow(_read_all, COLUMNS)


def _read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            some: list[tuple[str, Kept]] = []
            for each in read(path):
                some.append(each)
                if len(some) == AT_ONCE:
                    yield _arrow(some)
                    some = []
            if some:
                yield _arrow(some)


def _arrow(some: list[tuple[str, Kept]]) -> pa.RecordBatch:
    columns = [
        [key for key, _ in some],
        [kept.state.decode() for _, kept in some],
        [[(name, to_datetime(timer.at_us)) for name, timer in kept.timers.items()] for _, kept in some],
    ]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _of_state(spark: SparkSession, place: Place) -> DataFrame:
    """Out of Spark's state: as of the last batch that is done."""
    stateful.prepare(spark)
    read_state = spark.read.format("statestore").option("path", str(place.checkpoint)).option("stateVarName", STATE)
    timers = F.udf(lambda packed: _timers(packed), "map<string, timestamp>")  # Spark reads the hints of functions
    found = read_state.load()
    return found.select(
        F.col("key.key").alias("key"),
        F.decode(F.col("value.state"), "UTF-8").alias("state"),
        timers("value.timers").alias("timers"),
    )


def _timers(packed: Any) -> dict[str, datetime]:
    return {
        name: datetime.fromtimestamp(timer.at_us / 1e6, UTC) for name, timer in decode_timers(bytes(packed)).items()
    }


# ---------------------------------------------------------------- from workers to Spark


def move_contexts(
    app: App[Any],
    root: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    partitions: int | None = None,
    pipeline: str | None = None,
) -> int:
    """Give the contexts that workers have stored to Spark; how many. No worker may run, and none may have left anything
    to be done: run one until the input is empty. From then on workers are refused. Killed on the way, it begins anew.

    They are for ``run_scripts``, or for the step of the pipeline of this name.
    """
    if partitions is not None and not (partitions.__class__ is int and 1 <= partitions <= PARTS_MAX):
        raise Misuse(f"partitions must be a whole number from 1 to {PARTS_MAX}, not {partitions!r}")
    place = Place(root, app.name)
    folder = place.folder
    folder.require_root()
    folder.require_no_spark()
    folder.require()
    spark = spark or session(app.name)
    count_of = partitions or (PIPELINE_PARTS if pipeline is not None else spark.sparkContext.defaultParallelism)
    with place.nobody_works(), contextlib.closing(Store(folder.store, busy_s=BUSY_S)) as store:
        if left := store.slots():
            raise Misuse(
                f"{folder.store}: workers have left messages that are done and not acknowledged yet, or follow-ups to "
                f"put (slots {left}); finish them: app.run(root, until_empty=True)"
            )
        keys = [key for key, _ in store.all_contexts()]
        parts = dict(zip(keys, parts_of(keys, count_of).tolist(), strict=True))
        aside = place.prepare()
        for number in range(count_of):
            with contextlib.closing(BatchStore(aside.part(number), busy_s=BUSY_S)) as made:
                mine = ((key, kept) for key, kept in store.all_contexts() if parts[key] == number)
                made.take_in(mine, time.time_ns() // 1000)
        aside.settle_on(PARTS, count_of, app.input if pipeline is None else receiver_of(pipeline), count_of)
        aside.take_place(place)
    return len(keys)
