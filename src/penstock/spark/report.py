"""Owns the figures of a report: a Spark job over the history of queues. How they look is ``page.py``'s."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark import page
from penstock.spark.figures import (
    DECADE_STEPS,
    ENDED,
    SERIES,
    Distribution,
    Failure,
    Figures,
    Group,
    Moment,
    Slow,
    time_step_s,
)
from penstock.spark.outcomes import history

GROUPS_MOST = 12  # rows of a table
SLOWEST_MOST = 12
FAILURES_MOST = 6
SHORTEST_S = 1e-6
ACCURACY = 10_000  # of percentiles: one in so many


def write_report(
    where: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    since_s: float | None = None,
    spark: SparkSession | None = None,
) -> Figures:
    """Write the page about a queue, a macro queue or all queues of a root; what it says. ``since_s``: what ended from
    then on, in seconds since 1970."""
    found = figures(history(where, spark), title=str(Path(where).resolve()), since_s=since_s)
    text = page.html(found)
    Path(file).write_text(text, encoding="utf-8")
    return found


def figures(outcomes: DataFrame, *, title: str, since_s: float | None = None) -> Figures:
    """What there is to say about these outcomes."""
    made_s = time.time()
    if since_s is not None:
        outcomes = outcomes.where(F.col("done_at") >= F.lit(datetime.fromtimestamp(since_s, UTC)))
    kept = outcomes.persist()
    try:
        return _figures(kept, Figures(title=title, made_s=made_s, since_s=since_s))
    finally:
        kept.unpersist()


def _figures(outcomes: DataFrame, empty: Figures) -> Figures:
    ends = outcomes.groupBy("result").agg(
        F.count("*").alias("count"),
        F.min(_epoch("done_at")).alias("first_s"),
        F.max(_epoch("done_at")).alias("last_s"),
    )
    results = ends.collect()
    if not results:
        return empty
    first_s, last_s = min(row.first_s for row in results), max(row.last_s for row in results)
    step_s = time_step_s(last_s - first_s)
    delivered = outcomes.where("attempts = 1 and taken_at is not null")  # once for each message that was delivered
    return Figures(
        title=empty.title,
        made_s=empty.made_s,
        since_s=empty.since_s,
        first_s=first_s,
        last_s=last_s,
        step_s=step_s,
        results={row.result: row["count"] for row in results},
        moments=_moments(outcomes, step_s),
        waiting=_distribution(delivered, "waiting_s"),
        lateness=_distribution(delivered, "lateness_s"),
        service=_distribution(outcomes.where("result in ('acked', 'failed')"), "service_s"),
        types=_groups(outcomes, "type"),
        keys=_groups(outcomes.where("key is not null"), "key"),
        queues=_groups(outcomes, "queue", most=1000),
        slowest=_slowest(outcomes),
        failures=_failures(outcomes),
    )


def _epoch(column: str) -> Column:
    return F.unix_micros(F.col(column)) / 1e6


def _moments(outcomes: DataFrame, step_s: int) -> list[Moment]:
    of_step = outcomes.select((F.floor(_epoch("done_at") / step_s) * step_s).alias("start_s"), _series().alias("ended"))
    found: dict[float, dict[str, int]] = {}
    for row in of_step.groupBy("start_s", "ended").count().collect():
        found.setdefault(float(row.start_s), dict.fromkeys(SERIES, 0))[row.ended] = row["count"]
    return [Moment(start_s, counts) for start_s, counts in sorted(found.items())]


def _series() -> Column:
    chosen = F.lit("gone")
    for result, name in ENDED.items():
        chosen = F.when(F.col("result") == result, name).otherwise(chosen)
    return chosen


def _percentiles(column: str | Column, *of: float) -> Column:
    return F.percentile_approx(column, list(of), ACCURACY)


def _distribution(outcomes: DataFrame, column: str) -> Distribution:
    there = outcomes.where(F.col(column).isNotNull())
    row: Any = there.agg(
        F.count("*").alias("count"),
        F.mean(column).alias("mean_s"),
        F.max(column).alias("max_s"),
        _percentiles(column, 0.5, 0.9, 0.99).alias("at"),
    ).first()
    if not row["count"]:
        return Distribution()
    step = F.floor(F.log10(F.greatest(F.col(column), F.lit(SHORTEST_S))) * DECADE_STEPS)
    steps = {int(each.step): each["count"] for each in there.groupBy(step.alias("step")).count().collect()}
    p50_s, p90_s, p99_s = row["at"]
    return Distribution(row["count"], row.mean_s, p50_s, p90_s, p99_s, row.max_s, dict(sorted(steps.items())))


def _groups(outcomes: DataFrame, column: str, most: int = GROUPS_MOST) -> list[Group]:
    """Those with the most retries, and then those with the most messages."""
    ended = F.col("result") != "failed"
    waited = F.when((F.col("attempts") == 1) & F.col("taken_at").isNotNull(), F.col("waiting_s"))
    found = outcomes.groupBy(F.col(column).alias("name")).agg(
        F.count_if(F.col("result") == "acked").alias("done"),
        F.count_if(F.col("result") == "failed").alias("failed"),
        F.sum(F.when(ended & (F.col("attempts") > 1), F.col("attempts") - 1).otherwise(0)).alias("retries"),
        F.count_if(~F.col("result").isin(list(ENDED))).alias("gone"),
        _percentiles(waited, 0.5, 0.99).alias("at"),
    )
    rows = found.orderBy(F.desc("retries"), F.desc("failed"), F.desc("done"), "name").limit(most).collect()
    return [Group(row.name, row.done, row.failed, row.retries, row.gone, *(row["at"] or (None, None))) for row in rows]


def _slowest(outcomes: DataFrame) -> list[Slow]:
    due_s = F.greatest(_epoch("enqueued_at"), _epoch("deliver_at"))
    # A retry is due anew; how long its message took is from the put, or from when it was first due, which is not known.
    since_s = F.when(F.col("attempts") > 1, _epoch("enqueued_at")).otherwise(due_s)
    ended = outcomes.where("taken_at is not null and result != 'failed'")
    rows = (
        ended.withColumn("ended_s", _epoch("done_at"))
        .withColumn("total_s", F.greatest(F.col("ended_s") - since_s, F.lit(0.0)))
        .orderBy(F.desc("total_s"), "id")
        .limit(SLOWEST_MOST)
        .collect()
    )
    return [
        Slow(
            id=row.id,
            queue=Path(row.queue).name,
            type=row.type,
            key=row.key,
            result=row.result,
            attempts=row.attempts,
            ended_s=row.ended_s,
            total_s=row.total_s,
            late_s=row.lateness_s,
            service_s=row.service_s,
        )
        for row in rows
    ]


def _failures(outcomes: DataFrame) -> list[Failure]:
    text = F.coalesce(F.col("error"), F.col("reason"))
    wrong = outcomes.where("result in ('failed', 'dead-lettered', 'dropped')").where(text.isNotNull())
    rows = wrong.groupBy(F.substring(text, 1, 160).alias("text")).count().orderBy(F.desc("count"), "text")
    return [Failure(row.text, row["count"]) for row in rows.limit(FAILURES_MOST).collect()]
