"""Scripts on Spark (9): a count and a sum for each key, as an app of scripts and as plain ``transformWithState``.

Both have the same messages, in queues of their own that are made anew for every stream, and take turns in one session;
rates are counted as in ``bench.scenarios.spark``. What they have at the end is compared with what was put. Spark's own
has the settings that it needs and otherwise Spark's defaults, and only the columns that it uses. Spark's workers import
this module, which needs ``penstock[spark]``.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock
from bench.scenarios.measuring import check, scratch
from bench.scenarios.spark import BATCHES, PUT_AT_ONCE, Progress, rate
from bench.systems.penstock_queue import RECORD_EXTRA_BYTES
from penstock.scripts import App, Context, ScriptMessage
from penstock.spark import run_scripts
from penstock.spark.scripting import stateful

WARM_UP_ROWS = 5_000
WARM_UP_KEYS = 1_000
INPUT = "entries"
BODY_BYTES = 200
NOTE = "a benchmark of scripts, whose entries are about as long as this one is, " * 2
STATE = "total"
OUTPUT = "key string, count long, amount long"
SETTINGS = {**stateful.SETTINGS, "spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}

Totals = dict[str, tuple[int, int]]  # of each key: how many entries, and the sum of their amounts

# ---------------------------------------------------------------- ours


@dataclass
class Total:
    count: int = 0
    amount: int = 0


app = App("totals", input=INPUT, context=Total)


@app.script("entry")
def entry(context: Context[Total], message: ScriptMessage) -> None:
    context.state.count += 1
    context.state.amount += message.body["amount"]


# ---------------------------------------------------------------- Spark's own


class Adding(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState(STATE, "count long, amount long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        count, amount = self._total.get() if self._total.exists() else (0, 0)
        for row in rows:
            count += 1
            amount += json.loads(row.body)["amount"]
        self._total.update((count, amount))
        yield Row(key=key[0], count=count, amount=amount)

    def close(self) -> None:
        pass


# ---------------------------------------------------------------- both


class TotalsRun:
    """The session of a run, and where its queues are."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def warm_up(self) -> None:
        self.round(0, rows=WARM_UP_ROWS, keys=WARM_UP_KEYS)

    def round(self, number: int, *, rows: int, keys: int) -> tuple[float, float]:
        """Messages a second of ``transformWithState``, and of scripts."""
        rates = {}
        turns = (self._theirs, self._ours)
        for turn in turns if number % 2 else reversed(turns):
            with scratch(self._folder) as root:
                totals = _filled(root, rows * BATCHES, keys, random.Random(number))
                batches, found = turn(root, rows)
                check(found == totals, f"9: {len(found)} sums of {len(totals)} keys are not what was put")
                rates[turn] = rate(batches)
        return rates[self._theirs], rates[self._ours]

    def _ours(self, root: Path, rows: int) -> tuple[list[Progress], Totals]:
        query = run_scripts(app, root, spark=self._spark, available_now=True, max_rows=rows)
        batches = _batches(query)
        return batches, {key: (total.count, total.amount) for key, total in app.contexts(root).items()}

    def _theirs(self, root: Path, rows: int) -> tuple[list[Progress], Totals]:
        checkpoint = str(root / "checkpoint")
        with self._settings():
            stream = self._spark.readStream.format("penstock").option("receiver", "bench").option("maxRows", rows)
            adding = (
                stream.load(str(root / INPUT))
                .select("key", "body")
                .groupBy("key")
                .transformWithState(
                    statefulProcessor=Adding(), outputStructType=OUTPUT, outputMode="Update", timeMode="None"
                )
            )
            writer = adding.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
            batches = _batches(writer.trigger(availableNow=True).start())
            state = self._spark.read.format("statestore").option("path", checkpoint).option("stateVarName", STATE)
            found = state.load().select("key.key", "value.count", "value.amount").collect()
        return batches, {key: (count, amount) for key, count, amount in found}

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        """For the block alone: scripts, and other scenarios, are measured without them."""
        conf = self._spark.conf
        before = {name: conf.get(name, None) for name in SETTINGS}
        for name, value in SETTINGS.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, was in before.items():
                conf.unset(name) if was is None else conf.set(name, was)


def _filled(root: Path, messages: int, keys: int, rng: random.Random) -> Totals:
    """A queue with so many entries of so many keys, in any order; what they come to."""
    totals: Totals = {}
    with penstock.QueueManager(root) as manager:
        manager.create(
            INPUT, depth=messages, data_bytes=messages * (BODY_BYTES + 2 * RECORD_EXTRA_BYTES), durability="relaxed"
        )
        with manager.open(INPUT) as queue:
            for start in range(0, messages, PUT_AT_ONCE):
                drafts = []
                for number in range(start, min(start + PUT_AT_ONCE, messages)):
                    key, amount = f"account {rng.randrange(keys)}", rng.randrange(1000)
                    count, total = totals.get(key, (0, 0))
                    totals[key] = (count + 1, total + amount)
                    body = {"number": number, "account": key, "amount": amount, "note": NOTE}
                    drafts.append(penstock.Draft(body=body, type="entry", key=key))
                queue.put_many(drafts)
            queue.sync_index()  # what was put is not part of the first claim's sync
    return totals


def _batches(query: Any) -> list[Progress]:
    """Those of a stream that runs to its end, without the first."""
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    check(len(batches) == BATCHES, f"9: a stream had {len(batches)} batches, not {BATCHES}")
    return batches[1:]
