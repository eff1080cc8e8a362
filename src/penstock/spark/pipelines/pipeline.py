"""Owns ``Pipeline``: defined step by step or read from a file, checked, and started as one streaming query. Never looks
into a message.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.spark import finding
from penstock.spark.collected import collected
from penstock.spark.pipelines import checking, plan, tables
from penstock.spark.pipelines import definition as D
from penstock.spark.pipelines.batches import Counts, PipelineBatches, RunScript
from penstock.spark.pipelines.place import PipelinePlace
from penstock.spark.scripting.place import PARTS, PIPELINE_PARTS, Place, receiver_of
from penstock.spark.scripting.query import called, marks_in, settled
from penstock.spark.scripting.results import Result, decode, uuid_of
from penstock.spark.scripting.rows import COLUMNS
from penstock.spark.sessions import session
from penstock.timequeue import backlogs

LOOK_S = 0.05
STOP_S = 60.0  # for the batch that runs to be over
WAITS_MOST = 200  # more than Spark keeps the progress of


class Progress(msgspec.Struct, frozen=True):
    """A batch, and what waits behind it."""

    batch: int
    messages: int
    put: int
    rows: int
    failed: int
    dead: int
    seconds: float
    messages_s: float
    due: int
    waiting: int
    late_s: float  # since when the oldest message that is due has been


class Waits(NamedTuple):
    """The backlog of all sources."""

    due: int
    waiting: int
    late_s: float


class Pipeline:
    """Source queues, steps, and sink queues and tables. Each call adds a step and returns the pipeline:

    ``Pipeline("orders", root="queues", source="orders").parse("item string, n int").filter("json.n > 0").put("sold")``
    """

    def __init__(
        self,
        name: str,
        *,
        root: str | os.PathLike[str],
        source: str | Iterable[str],
        max_attempts: int | None = None,
        retry_delay: float | None = None,
        max_rows: int = D.MAX_ROWS,
        wait: float = D.WAIT_S,
        **options: Any,
    ) -> None:
        self._where = name
        given = {
            "name": name,
            "root": os.path.abspath(root),
            "sources": [source] if isinstance(source, str) else list(source),
            "max_attempts": max_attempts,
            "retry_delay": retry_delay,
            "max_rows": max_rows,
            "wait": wait,
            "options": {name: str(value) for name, value in options.items()},
            "steps": (),
        }
        mistakes: list[D.Mistake] = []
        made = D.converted(given, D.Definition, None, mistakes)
        if made is None:
            raise D.BadPipeline(str(name), mistakes)
        self._definition = made

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pipeline:
        """From a file; ``BadPipeline`` if it is not one of a pipeline."""
        definition = D.load(Path(path))
        made = cls(definition.name, root=definition.root, source=definition.sources)
        made._where, made._definition = str(path), definition
        return made

    @property
    def definition(self) -> D.Definition:
        return self._definition

    def _with(self, kind: type[D.Step], **given: Any) -> Pipeline:
        called = D.title(len(self._definition.steps) + 1, kind.kind, given.get("name"))
        mistakes = D.not_options(kind, given, called)
        step = D.converted(given, kind, called, mistakes) if not mistakes else None
        if step is None:
            raise D.BadPipeline(self._where, mistakes)
        self._definition = msgspec.structs.replace(self._definition, steps=(*self._definition.steps, step))
        return self

    def parse(self, schema: str, *, into: str = "json", name: str | None = None) -> Pipeline:
        """The body as JSON of this schema, as the column ``into`` of expressions."""
        return self._with(D.Parse, parse=schema, into=into, name=name)

    def filter(self, expression: str, *, name: str | None = None) -> Pipeline:
        """Messages for which it is not true are acknowledged, and go no further."""
        return self._with(D.Filter, filter=expression, name=name)

    def call(self, function: D.Function, **options: Any) -> Pipeline:
        """Call a function with each message. None: it goes on as it is; else as what was returned: a body, or a
        ``penstock.Draft``. Options: ``retries``, ``retry_wait``, ``time_limit``, ``name``."""
        return self._with(D.Call, call=function, **options)

    def group(self, function: D.Function, *, by: str = "key", **options: Any) -> Pipeline:
        """Call a function with a key and the list of its messages in the batch; what it returns, a body or a ``Draft``
        or a list of these, goes on in their place. Options as of ``call``."""
        return self._with(D.Group, group=function, by=by, **options)

    def put(self, queue: str, *, name: str | None = None) -> Pipeline:
        """Into a queue."""
        return self._with(D.Put, put=queue, name=name)

    def route(
        self,
        choices: Mapping[str, str],
        *,
        otherwise: str | None = None,
        unmatched: str = D.FAIL,
        name: str | None = None,
    ) -> Pipeline:
        """Into the queue of the first expression that is true, else into ``otherwise``; without that a message fails,
        or with ``unmatched="pass"`` goes on without being put."""
        ways = [{"when": when, "to": to} for when, to in choices.items()]
        return self._with(D.Route, route=ways, otherwise=otherwise, unmatched=unmatched, name=name)

    def table(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Iterable[str] = ("*",),
        format: str = "parquet",
        when: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Pipeline:
        """A row in a table of files."""
        given = {name: str(value) for name, value in options.items()}
        place = os.fspath(path) if "://" in os.fspath(path) else os.path.abspath(path)
        return self._with(
            D.Table, table=place, columns=tuple(columns), format=format, when=when, options=given, name=name
        )

    def script(self, app: Any, *, partitions: int = PIPELINE_PARTS, name: str | None = None) -> Pipeline:
        """The scripts of an app, as the last step."""
        return self._with(D.Script, script=app, partitions=partitions, name=name)

    # ------------------------------------------------------------ checking and running

    def check(self, spark: SparkSession | None = None) -> list[D.Mistake]:
        """What is wrong with it; expressions and tables only if there is a session to ask. Nothing is consumed."""
        found = checking.mistakes_of(self._definition)
        if spark is None or D.mistakes_of(self._definition):
            return found
        return found + plan.mistakes_of(self._definition, spark)

    def start(self, spark: SparkSession | None = None, *, available_now: bool = False) -> Running:
        """Start it as a streaming query. With ``available_now`` it ends when what was due is done."""
        mistakes = checking.mistakes_of(self._definition)
        if not mistakes:
            checking.require_free(self._definition)
            spark = spark or session(receiver_of(self._definition.name))
            mistakes = plan.mistakes_of(self._definition, spark)
        if mistakes:
            raise D.BadPipeline(self._where, mistakes)
        assert spark is not None
        return Running(self._definition, spark, available_now=available_now)

    def run(self, spark: SparkSession | None = None) -> list[Progress]:
        """Until nothing is due; what its batches were like."""
        running = self.start(spark, available_now=True)
        try:
            running.wait()
        finally:
            running.stop()
        return running.progress()

    def __repr__(self) -> str:
        return f"<Pipeline {self._definition.name} of {len(self._definition.steps)} steps>"


class Running:
    """A pipeline that was started. ``query`` is Spark's own."""

    def __init__(self, definition: D.Definition, spark: SparkSession, *, available_now: bool) -> None:
        self._definition = definition
        self._spark = spark
        self._place = PipelinePlace(definition.root, definition.name)
        self._id = self._place.settle(definition.sources).id
        self._plan = plan.Plan(definition)
        self._plan.steps(spark.createDataFrame([], COLUMNS))
        run_script, app = (None, "") if definition.script is None else self._script(definition.script)
        self._batches = PipelineBatches(definition, self._place, self._write, run_script, app)
        self._batches.put_left()
        self._turn = threading.Lock()  # of a batch: whoever stops waits for it
        self._waits: dict[int, Waits | None] = {}  # behind the last batches, by Spark's numbers
        self._holds = False  # whether the turn is that of whoever stops
        rows = reduce(DataFrame.unionAll, [self._source(source) for source in definition.sources])
        writer = rows.writeStream.foreachBatch(self._each).queryName(receiver_of(definition.name))
        writer = writer.option("checkpointLocation", str(self._place.checkpoint))
        self.query = (writer.trigger(availableNow=True) if available_now else writer).start()

    def _source(self, source: str) -> DataFrame:
        given = checking.source_options(self._definition, source)
        return self._spark.readStream.format("penstock").schema(COLUMNS).options(**given).load()

    def _each(self, frame: DataFrame, number: int) -> None:
        def outcomes(serial: int, known: set[str]) -> list[Any]:
            return collected(self._plan.outcomes(_without(frame, known) if known else frame))

        self._begin(frame)
        try:
            frame.sparkSession.conf.set(plan.NOT_AHEAD, "false")  # the query's own session
            self._batches.run(number, outcomes, lambda: marks_in(frame))
            self._waits[number] = self._backlog()
            while len(self._waits) > WAITS_MOST:
                del self._waits[min(self._waits)]
        finally:
            self._turn.release()

    def _backlog(self) -> Waits | None:
        """What waits behind the batch now. Only for people: a batch does not fail by it."""
        try:
            found = [backlogs.look(path) for path in self._paths()]
        except (PenstockError, OSError):
            return None
        oldest_us = min((each.oldest_us for each in found if each.due), default=0)
        late_s = max(time.time() - oldest_us / 1e6, 0.0) if oldest_us else 0.0
        return Waits(sum(each.due for each in found), sum(each.waiting for each in found), late_s)

    def _paths(self) -> Iterator[str]:
        for source in self._definition.sources:
            yield from finding.queues_of(
                finding.path_of({"path": None, "root": self._definition.root, "queue": source})
            )

    def _begin(self, frame: DataFrame) -> None:
        """A batch, unless the query is being stopped: then Spark interrupts whatever is asked of it, sooner or later.
        To return would be to say that the batch is done."""
        while not self._turn.acquire(timeout=LOOK_S):
            frame.limit(0).count()

    def _script(self, step: D.Script) -> tuple[RunScript, str]:
        """What runs them; the app's name."""
        app = checking.app_of(step)
        place = Place(self._definition.root, app.name)
        kept = settled(place, PARTS, step.partitions, receiver_of(self._definition.name), step.partitions)
        files = [str(place.part(number)) for number in range(kept.partitions)]

        def run(rows: pa.Table, serial: int) -> list[Result]:
            frame = self._spark.createDataFrame(rows)
            found = collected(called(frame, app, str(place.folder.root), files, serial))
            return [each for row in found for each in decode(row["results"])]

        return run, app.name

    def _write(self, place: str, batch: str, rows: pa.Table) -> None:
        step = next((each for each in self._definition.tables if each.table == place), None)
        if step is None:
            raise PenstockError(
                f"{place}: rows of batch {batch} wait to be written there, and the pipeline has no such table any "
                f"more; start it once with this step"
            )
        tables.write(self._spark, step, f"{self._definition.name}-{self._id}-{batch}", rows)

    # ------------------------------------------------------------ for whoever started it

    def wait(self, timeout: float | None = None) -> bool:
        """Until it has ended; False if it has not within so many seconds. Its error, if it ended with one."""
        if timeout is None:
            self.query.awaitTermination()
            return True
        return bool(self.query.awaitTermination(timeout))

    def finish(self, timeout: float) -> bool:
        """Let the batch that runs come to its end and begin no other; False if it has not within so many seconds."""
        if not self._holds:
            self._holds = self._turn.acquire(timeout=timeout)
        return self._holds

    def stop(self, timeout: float = STOP_S) -> None:
        """Let the batch that runs come to its end, for so many seconds, and stop. Started again it goes on."""
        if self.query.isActive:
            self.finish(timeout)
        self.query.stop()

    def progress(self) -> list[Progress]:
        """The last batches that had messages."""
        counts, waits = self._batches.counts, self._waits
        found = [each for each in self.query.recentProgress if each["numInputRows"]]
        return [
            _progress(each, counts.get(each["batchId"], Counts()), waits.get(each["batchId"]) or _reported(each))
            for each in found
        ]


def _without(frame: DataFrame, known: set[str]) -> DataFrame:
    """But for messages of these queues."""
    paths = [row["queue"] for row in collected(frame.select("queue").distinct())]
    return frame.filter(~F.col("queue").isin(*(path for path in paths if uuid_of(path) in known)))


def _progress(each: Any, counted: Counts, waits: Waits) -> Progress:
    seconds = each["durationMs"].get("triggerExecution", 0) / 1000
    messages = counted.messages or each["numInputRows"]
    return Progress(
        batch=each["batchId"],
        messages=messages,
        put=counted.put,
        rows=counted.rows,
        failed=counted.failed,
        dead=counted.dead,
        seconds=seconds,
        messages_s=round(messages / seconds, 1) if seconds else 0.0,
        due=waits.due,
        waiting=waits.waiting,
        late_s=round(waits.late_s, 3),
    )


def _reported(each: Any) -> Waits:
    """What the sources said when the batch began."""
    said = [_offset(source.get("latestOffset")) for source in each["sources"]]
    return Waits(
        sum(each.get("due", 0) for each in said),
        sum(each.get("waiting", 0) for each in said),
        max((each.get("oldestDueMs", 0) for each in said), default=0) / 1000,
    )


def _offset(said: Any) -> dict[str, Any]:
    """Spark gives it as it likes."""
    found = msgspec.json.decode(said) if isinstance(said, str) else said
    return found if isinstance(found, dict) else {}
