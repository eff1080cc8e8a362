"""Owns the steps of a pipeline as columns of a DataFrame: each message is a row that goes on, has ended, or has failed
with its error. An expression that cannot be computed for a message fails that message and no other. Also says what is
wrong with expressions, before anything runs. Never reads a queue.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from penstock.scripts.context import TIMER as TIMER_HEADER
from penstock.spark.pipelines import tasks as T
from penstock.spark.pipelines.calling import Function
from penstock.spark.pipelines.definition import (
    PASS,
    Call,
    Calling,
    Definition,
    Filter,
    Group,
    Mistake,
    Parse,
    Put,
    Route,
    Step,
    Table,
    named,
)
from penstock.spark.pipelines.items import DELIVER
from penstock.spark.schema import COLUMNS as SHOWN
from penstock.spark.schema import text_body
from penstock.spark.scripting.rows import COLUMNS

CORRUPT = "_corrupt"
VALUE = "value"
READING = {
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "maxStringLen": str(2**31 - 1),  # of a text, which is as long as a body may be; 20,000,000 by default
    "maxNestingDepth": "1001",  # by default 1,000, and ours is one around it
}
ORIGIN = "struct<queue: string, id: string, number: bigint, attempts: int>"
SENT = (
    "array<struct<to: string, codec: int, body: binary, type: string, key: string, priority: int, "
    "headers: map<string, string>, deliver_us: bigint>>"
)

# What several expressions have in common is not computed ahead of them: it would be outside of what keeps their errors.
NOT_AHEAD = "spark.sql.subexpressionElimination.enabled"


class StepError(Exception):
    """A step that Spark refuses, before anything runs."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake


class Plan:
    """The steps of one pipeline."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._parsed: list[str] = []
        self.tables: dict[str, Table] = {}  # by column
        self._end = f"end {uuid.uuid4().hex}"
        self._functions: dict[str, Function] = {}  # by step: a function is pickled once

    def steps(self, rows: DataFrame) -> DataFrame:
        """All of them; ``StepError`` at the first that Spark refuses."""
        frame = self.begun(rows)
        for step, called in zip(self._definition.steps, self._definition.titles(), strict=True):
            frame = self.step(frame, step, called)
        return frame

    def outcomes(self, rows: DataFrame) -> DataFrame:
        """What they come to: see ``tasks.OUTPUT``."""
        frame = self.steps(rows)
        definition, script = self._definition, self._definition.script is not None
        finish = T.Finish(
            definition.root, definition.sources[0], definition.max_attempts, list(self.tables), script=script
        )
        kept = [T.ORIGINS, T.BY, T.ERROR, T.LIVE, T.TIMER, T.SENT, *self.tables]
        return frame.select(*kept, *(COLUMNS.fieldNames() if script else ())).mapInArrow(finish, T.OUTPUT)

    def begun(self, rows: DataFrame) -> DataFrame:
        """Messages as they are before the first step."""
        self._parsed, self.tables = [], {}
        timer = F.lit(False)
        if self._definition.script is not None:
            timer = F.coalesce(F.col("headers").getItem(TIMER_HEADER).isNotNull(), F.lit(False))
        origin = F.struct("queue", "id", "number", "attempts").cast(ORIGIN)
        return (
            rows.select(*COLUMNS.fieldNames())
            .withColumn(T.TIMER, timer)
            .withColumn(T.LIVE, ~F.col(T.TIMER))
            .withColumn(T.ERROR, F.lit(None).cast("string"))
            .withColumn(T.ORIGINS, F.array(origin))
            .withColumn(T.BY, F.lit(None).cast("binary"))
            .withColumn(T.SENT, F.array().cast(SENT))
            .withColumn(DELIVER, F.lit(None).cast("bigint"))
        )

    def step(self, frame: DataFrame, step: Step, called: str) -> DataFrame:
        if isinstance(step, Parse):
            return self._parse(frame, step, called)
        if isinstance(step, Filter):
            return self._filter(frame, step, called)
        if isinstance(step, Call):
            return _mapped(frame, T.CallEach(called, self._function(step, step.call, called), self._parsed))
        if isinstance(step, Group):
            return self._group(frame, step, called)
        if isinstance(step, Put):
            return _sent(frame, F.lit(step.put))
        if isinstance(step, Route):
            return self._route(frame, step, called)
        if isinstance(step, Table):
            return self._table(frame, step, called)
        return frame  # a script: it comes when all else is decided

    def _function(self, step: Calling, function: Any, called: str) -> Function:
        if called not in self._functions:
            self._functions[called] = function_of(step, function)
        return self._functions[called]

    def _parse(self, frame: DataFrame, step: Parse, called: str) -> DataFrame:
        schema = _asked(called, "parse", lambda: StructType.fromDDL(step.parse))
        if step.into in COLUMNS.fieldNames():
            raise StepError(Mistake(f"a message has a column {step.into} already", called, "into"))
        if not schema.fields:
            raise StepError(Mistake("a schema has fields", called, "parse"))
        parsed = _asked(called, "parse", lambda: frame.withColumn("_read", self._read(schema)))
        parsed = parsed.withColumn("_parsed", F.col("_read")[VALUE])
        needed = [field.name for field in schema if not field.nullable]
        missing = [F.when(F.col("_parsed")[name].isNull(), F.lit(name)) for name in needed]
        read = F.col("_read")
        wrong = F.when(
            read[VALUE].isNull() | read[self._end].isNull() | read[CORRUPT].isNotNull(),
            F.lit(f"{called}: the body is not JSON of this schema: {step.parse}"),
        )
        if missing:
            first = F.coalesce(*missing)
            wrong = wrong.when(first.isNotNull(), F.concat(F.lit(f"{called}: the body has no "), first))
        failed = _failed(parsed, wrong)
        self._parsed = [*(each for each in self._parsed if each != step.into), step.into]
        there = F.when(F.col(T.LIVE), F.col("_parsed"))
        return failed.withColumn(step.into, there).drop("_read", "_parsed")

    def _read(self, schema: StructType) -> Column:
        """The body as a value among others: of a text Spark reads the first value, and does not look for more behind
        it. Here the end must be reached, which has a name that no body can know."""
        wanted = StructType(
            [StructField(VALUE, schema), StructField(self._end, BooleanType()), StructField(CORRUPT, StringType())]
        )
        text = F.concat(F.lit(f'{{"{VALUE}":'), text_body(), F.lit(f',"{self._end}":true}}'))
        return F.from_json(text, wanted, READING)

    def _filter(self, frame: DataFrame, step: Filter, called: str) -> DataFrame:
        judged = self._judged(frame, "_true", step.filter, called, "filter")
        failed = _failed(judged, _not_computed(F.col("_true"), step.filter, called))
        return failed.withColumn(T.LIVE, F.col(T.LIVE) & _is_true(F.col("_true"))).drop("_true")

    def _judged(self, frame: DataFrame, column: str, expression: str, called: str, option: str) -> DataFrame:
        """With a column that says whether it is true: see ``_guarded``."""
        found = _asked(called, option, lambda: self._shown(frame).select(F.expr(expression).alias("is")))
        self._of_one_row(frame, F.expr(expression), called, option)
        kind = found.schema["is"].dataType.simpleString()
        if kind != "boolean":
            raise StepError(Mistake(f"{expression!r} is of type {kind}, not true or false", called, option))
        return frame.withColumn(column, F.when(F.col(T.LIVE), _guarded(F.expr(expression))))

    def _of_one_row(self, frame: DataFrame, value: Column, called: str, option: str) -> None:
        """Refuse what is not said of a message alone: aggregates, windows, and what makes several rows of one. Spark
        refuses the same where rows are filtered."""
        try:
            self._shown(frame).where(value.isNotNull())
        except AnalysisException as error:
            if error.getCondition() != "INVALID_WHERE_CONDITION":
                raise StepError(Mistake(words_of(error), called, option)) from None
            reason = "an expression is of one message: it can have no aggregates, windows or generators"
            raise StepError(Mistake(reason, called, option)) from None

    def _shown(self, frame: DataFrame) -> DataFrame:
        """What expressions may name."""
        return frame.select(*SHOWN.fieldNames(), *self._parsed)

    def _group(self, frame: DataFrame, step: Group, called: str) -> DataFrame:
        _asked(called, "by", lambda: self._shown(frame).select(F.expr(step.by).cast("string")))
        self._of_one_row(frame, F.expr(step.by), called, "by")
        by = _guarded(F.concat(F.lit("="), F.expr(step.by).cast("string")))
        keyed = frame.withColumn(T.BY, F.when(F.col(T.LIVE), F.when(by != F.lit(b"null"), by)))
        ordered = keyed.repartition(T.BY).sortWithinPartitions(
            T.BY, F.desc("priority"), "deliver_at", "number", "queue"
        )
        return _mapped(ordered, T.CallGroups(called, self._function(step, step.group, called), self._parsed))

    def _route(self, frame: DataFrame, step: Route, called: str) -> DataFrame:
        """The column ``_to``: the queue's name; or, behind a ``!``, which choice could not be computed."""
        names = [f"_choice_{n}" for n in range(len(step.route))]
        way = F.when(~F.col(T.LIVE), F.lit(None).cast("string"))
        for name, choice in zip(names, step.route, strict=True):
            frame = self._judged(frame, name, choice.when, called, "route")
            wrong = F.lit(f"!{called}: {choice.when!r} cannot be computed for this message")
            way = way.when(F.col(name).isNull(), wrong).when(_is_true(F.col(name)), F.lit(f"={choice.to}"))
        if step.otherwise is not None:
            way = way.otherwise(F.lit(f"={step.otherwise}"))
        elif step.unmatched != PASS:
            way = way.otherwise(F.lit(f"!{called}: none of its choices is true"))
        chosen = frame.withColumn("_to", way).drop(*names)
        failed = _failed(chosen, F.when(F.col("_to").startswith("!"), F.expr("substring(_to, 2)")))
        return _sent(failed, F.when(F.col("_to").startswith("="), F.expr("substring(_to, 2)"))).drop("_to")

    def _table(self, frame: DataFrame, step: Table, called: str) -> DataFrame:
        column = T.column_of(len(self.tables))
        if step.when is not None:
            frame = self._judged(frame, "_true", step.when, called, "when")
            frame = _failed(frame, _not_computed(F.col("_true"), step.when, called))
        else:
            frame = frame.withColumn("_true", F.lit(b"true"))
        fields = _asked(called, "columns", lambda: [each for name in step.columns for each in self._columns(name)])
        _asked(called, "columns", lambda: self._shown(frame).select(*fields))
        for field in fields:
            self._of_one_row(frame, field, called, "columns")
        wanted = F.col(T.LIVE) & _is_true(F.col("_true"))
        judged = frame.withColumn("_row", F.when(wanted, _guarded(F.struct(*fields).cast("string"))))
        failed = _failed(judged, F.when(wanted, _not_computed(F.col("_row"), ", ".join(step.columns), called)))
        made = failed.withColumn(column, F.when(F.col("_row").isNotNull(), F.struct(*fields)))
        self.tables[column] = step
        return made.drop("_true", "_row")

    def _columns(self, name: str) -> list[Column]:
        if name.strip() == "*":
            return [F.col(each) for each in (*SHOWN.fieldNames(), *self._parsed)]
        return [F.expr(name)]


def _asked(called: str, option: str, question: Callable[[], Any]) -> Any:
    """What Spark makes of an option; its refusal in a line."""
    try:
        return question()
    except PySparkException as error:
        raise StepError(Mistake(words_of(error), called, option)) from None


def words_of(error: Exception) -> str:
    """What Spark says first, without its numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return said.partition("] ")[2].partition(" SQLSTATE")[0] or said


def function_of(step: Calling, function: Any) -> Function:
    """A function on its way to a task."""
    return Function(
        function if isinstance(function, str) else cloudpickle.dumps(function),
        named(function),
        step.retries,
        step.retry_wait,
        step.time_limit,
    )


def _guarded(value: Column) -> Column:
    """What it is as text, ``null`` where it is null, in bytes; null where it cannot be computed. Of Spark's functions
    that try, this is one that tries its argument, too."""
    return F.try_to_binary(F.coalesce(value.cast("string"), F.lit("null")), F.lit("utf-8"))


def _is_true(judged: Column) -> Column:
    return F.coalesce(judged == F.lit(b"true"), F.lit(False))


def _not_computed(judged: Column, expression: str, called: str) -> Column:
    return F.when(judged.isNull(), F.lit(f"{called}: {expression!r} cannot be computed for this message"))


def _failed(frame: DataFrame, error: Column) -> DataFrame:
    """Those that go on and for which there is an error do not go on."""
    return frame.withColumn(T.ERROR, F.coalesce(T.ERROR, F.when(F.col(T.LIVE), error))).withColumn(
        T.LIVE, F.col(T.LIVE) & F.col(T.ERROR).isNull()
    )


def _sent(frame: DataFrame, to: Column) -> DataFrame:
    """Put as it is now; not where there is no queue."""
    message = F.struct(
        to.alias("to"), "codec", "body", "type", "key", "priority", "headers", F.col(DELIVER).alias("deliver_us")
    )
    more = F.concat(F.col(T.SENT), F.array(message))
    return frame.withColumn(T.SENT, F.when(F.col(T.LIVE) & to.isNotNull(), more).otherwise(F.col(T.SENT)))


def _mapped(frame: DataFrame, work: Any) -> DataFrame:
    nullable = StructType([StructField(field.name, field.dataType) for field in frame.schema])
    return frame.mapInArrow(work, nullable)


# ---------------------------------------------------------------- before anything runs


def mistakes_of(definition: Definition, spark: SparkSession) -> list[Mistake]:
    """What Spark refuses, step by step; and tables that cannot be written in their format."""
    plan = Plan(definition)
    frame = plan.begun(spark.createDataFrame([], COLUMNS))
    with _unlogged():
        return _refused(spark, plan, frame, definition)


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """What Spark refuses is told by us; it would log it, too."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _refused(spark: SparkSession, plan: Plan, frame: DataFrame, definition: Definition) -> list[Mistake]:
    found = []
    for step, called in zip(definition.steps, definition.titles(), strict=True):
        tables = set(plan.tables)
        try:
            frame = plan.step(frame, step, called)
            for column in plan.tables.keys() - tables:
                _try_table(spark, frame.schema[column].dataType, plan.tables[column], called)
        except StepError as error:
            found.append(error.mistake)
            if isinstance(step, Parse):  # what names its column would be refused, too
                break
    return found


def _try_table(spark: SparkSession, schema: StructType, step: Table, called: str) -> None:
    """An empty one, elsewhere."""
    with tempfile.TemporaryDirectory(prefix="penstock-pipeline-") as folder:
        empty = spark.createDataFrame([], schema)
        _asked(called, "table", lambda: written(empty, step).save(f"{folder}/table"))


def written(rows: DataFrame, step: Table) -> Any:
    """A writer of a table's rows: one file, since a batch is small."""
    return rows.coalesce(1).write.format(step.format).options(**step.options).mode("overwrite")
