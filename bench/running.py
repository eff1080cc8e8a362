"""Owns the order of a run: rounds, and in each round every scenario with every system, in a rotating order."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench import restore_speed
from bench.plan import (
    BODY_SIZES,
    CLASSES,
    MACROS,
    ONE_SIZE,
    PRODUCERS,
    PRODUCERS_MORE,
    SCRIPT_KEYS,
    SHARING_TARGETS,
    SPARK,
    SYNCER_PRODUCERS,
    Sizes,
    count_for,
)
from bench.report import body
from bench.results import OURS, Results, single_puts_of
from bench.scenarios import (
    asking,
    consuming,
    durable,
    keeping,
    memory,
    processes,
    remembering,
    scripting,
    spark,
    syncing,
    throughput,
    timing,
)
from bench.scenarios.classes import BODY_BYTES as CLASSED_BYTES
from bench.scenarios.classes import Classes
from bench.scenarios.depth import Depth
from bench.scenarios.macros import BODY_BYTES as MACRO_BYTES
from bench.scenarios.macros import MacroQueues
from bench.scenarios.scheduled import Scheduled
from bench.systems.interface import System

# Scenarios that are measured together, as one needs the other's work.
TOGETHER = ("ac", "bd", "e", "f", "g", "h", "i", "l", "m", "n")


class Run:
    def __init__(self, systems: list[type[System]], sizes: Sizes, wanted: set[str], below: Path) -> None:
        self.systems = systems
        self.sizes = sizes
        self.wanted = wanted
        self.below = below
        self.results = Results()
        self._start = time.monotonic()
        self._scheduled: dict[tuple[str, int], Scheduled] = {}
        self._depth: Depth | None = None
        self._classes: Classes | None = None
        self._macros: MacroQueues | None = None

    def all(self) -> Results:
        for number in range(self.sizes.rounds):
            self._round(number)
        for prepared in self._scheduled.values():
            prepared.finish()
        if self._depth:
            self._depth.finish()
        if self._classes:
            self._classes.finish()
        if self._macros:
            self._macros.finish()
        if "k" in self.wanted:
            self._say("memory: streaming")
            self.results.memory = memory.stream(self.below, stream_bytes=int(self.sizes.stream_gb * 1e9))
        if "o" in self.wanted:
            self._restore()
        if self.wanted & set(SPARK):
            self._spark()
        return self.results

    def _spark(self) -> None:
        """Last, since the session stays in this process: nothing is forked from it any more."""
        why = spark.missing()
        if why:
            self._say(f"{', '.join(SPARK)}: left out: {why}")
            return
        run = spark.SparkRun(self._directory("spark"))
        try:
            if self.wanted & (set(SPARK) - {"9"}):
                self._say("Spark: warming up")
                run.warm_up(with_sink="s" in self.wanted)
                for number in range(self.sizes.rounds):
                    self._spark_round(run, number)
            if "9" in self.wanted:
                self._spark_scripts(run)
            if "u" in self.wanted:
                self._say("u")
                for system, value in run.memory(self.sizes.spark_backlog).items():
                    self.results.add("u", 16, system, 0, value)
        finally:
            run.close()

    def _spark_round(self, run: spark.SparkRun, number: int) -> None:
        for size in BODY_SIZES:
            rows = self.sizes.spark_rows[size]
            for letters, measure in (("pqr", run.streams), ("s", run.to_queue)):
                if self.wanted & set(letters):
                    self._say(f"round {number + 1} of {self.sizes.rounds}: {', '.join(letters)} with {body(size)}")
                    for (letter, system), value in measure(rows, size).items():
                        if letter in self.wanted:
                            self.results.add(letter, size, system, number, value)
        if "t" in self.wanted:
            self._say(f"round {number + 1} of {self.sizes.rounds}: t")
            for system, delays in run.single(self.sizes.spark_turns).items():
                self.results.add_delays("t", 200, system, number, delays)

    def _spark_scripts(self, run: spark.SparkRun) -> None:
        from bench.scenarios.totals import TotalsRun

        totals = TotalsRun(run.session, self._directory("totals"))
        self._say("9: warming up")
        totals.warm_up()
        for number in range(self.sizes.rounds):
            for keys in SCRIPT_KEYS:
                what = f"{keys:,} keys"
                self._say(f"round {number + 1} of {self.sizes.rounds}: 9, {what}")
                rates = totals.round(number, rows=self.sizes.script_rows, keys=keys)
                self.results.add_scripts(number, what, rates)

    def _restore(self) -> None:
        for order in restore_speed.ORDERS:
            self._say(f"o: restoring, {order}")
            rounds, messages = self.sizes.rounds, self.sizes.restored
            for row in restore_speed.measure(self.below, order=order, rounds=rounds, messages=messages):
                self.results.restores[row.name] = (*row.wall(), row.anonymous_bytes)

    def _round(self, number: int) -> None:
        for letters in TOGETHER:
            if not self.wanted & set(letters):
                continue
            for size in ONE_SIZE.get(letters, BODY_SIZES):
                self._say(f"round {number + 1} of {self.sizes.rounds}: {', '.join(letters)} with {body(size)}")
                taking = [system for system in self.systems if set(letters) & set(system.scenarios) & self.wanted]
                turn = number % max(len(taking), 1)
                if letters == "l":
                    self._latency(taking, size, number)
                    continue
                for system in taking[turn:] + taking[:turn]:
                    self._measure(letters, size, system, number)
        self._alone(number)
        if "7" in self.wanted:
            self._syncing(number)
        if "j" in self.wanted:
            self._say(f"round {number + 1} of {self.sizes.rounds}: j")
            if self._depth is None:
                self._depth = Depth(self._directory("depth"), deep=self.sizes.deep)
            self.results.add_depth(number, self._depth.round())
        if self.wanted & set(CLASSES):
            self._classed(number)
        if "5" in self.wanted:
            self._asked(number)
        if self.wanted & set(MACROS):
            self._macro(number)

    def _asked(self, number: int) -> None:
        """Penstock alone."""
        self._say(f"round {number + 1} of {self.sizes.rounds}: 5")
        below = self._directory(f"asking-{number}")
        for system, delays in asking.round_trips(below, count=self.sizes.wake_ups).items():
            self.results.add_delays("5", asking.BODY_BYTES, system, number, delays)

    def _macro(self, number: int) -> None:
        self._say(f"round {number + 1} of {self.sizes.rounds}: {', '.join(sorted(self.wanted & set(MACROS)))}")
        if self._macros is None:
            below = self._directory("macros")
            self._macros = MacroQueues(below, wake_ups=self.sizes.wake_ups, wanted=self.wanted)
        for (letter, system), seconds in self._macros.round(number).items():
            self.results.add_delays(letter, MACRO_BYTES, system, number, seconds)

    def _classed(self, number: int) -> None:
        self._say(f"round {number + 1} of {self.sizes.rounds}: {', '.join(sorted(self.wanted & set(CLASSES)))}")
        if self._classes is None:
            self._classes = Classes(self._directory("classes"), deep=self.sizes.deep, wanted=self.wanted)
        for (letter, system), seconds in self._classes.round().items():
            self.results.add_delays(letter, CLASSED_BYTES, system, number, seconds)

    def _alone(self, number: int) -> None:
        """Penstock alone, in two ways."""
        for size in BODY_SIZES:
            pairs = (
                ("v", consuming.consumer, self.sizes.batched[size]),
                ("w", consuming.coroutines, self.sizes.single),
                ("z", remembering.with_dedup_ids, self.sizes.single),
                ("6", keeping.with_statistics, self.sizes.single),
                ("0", keeping.with_history, self.sizes.single),
                ("8", scripting.with_a_script, self.sizes.single),
            )
            for letter, measure, count in pairs:
                if letter in self.wanted:
                    self._say(f"round {number + 1} of {self.sizes.rounds}: {letter} with {body(size)}")
                    for system, value in measure(self.below, count=count, body_bytes=size).items():
                        self.results.add(letter, size, system, number, value)

    def _syncing(self, number: int) -> None:
        """Both ways in turns: singly, in batches, and with other options of the component."""
        turns: list[tuple[str, int, int, list[str]]] = []
        for producers in syncing.PRODUCERS:
            single = single_puts_of(producers)
            turns.append((single, producers, 1, []))
            turns.append((single.replace("single", f"batches of {syncing.BATCH}"), producers, syncing.BATCH, []))
        for options in syncing.OPTIONS:
            turns.append((f"{single_puts_of(SYNCER_PRODUCERS)}, {' '.join(options)}", SYNCER_PRODUCERS, 1, options))
        for what, producers, batch, options in turns:
            self._say(f"round {number + 1} of {self.sizes.rounds}: 7, {what}")
            rates = [
                syncing.rate(
                    self.below,
                    producers=producers,
                    batch=batch,
                    seconds=self.sizes.producing_s
                    if batch == 1
                    else min(self.sizes.producing_s, syncing.BATCHED_S_MAX),
                    body_bytes=200,
                    options=way,
                )
                for way in (None, options)
            ]
            self.results.add_syncing(number, what, (rates[0], rates[1]))
        for way, given in syncing.WAYS.items():
            self.results.pauses[way] += syncing.pauses(
                self.below, seconds=self.sizes.producing_s, body_bytes=200, options=given
            )

    def _measure(self, letters: str, size: int, kind: type[System], number: int) -> None:
        system = kind()
        if letters in "hi":
            measure = timing.lateness if letters == "h" else timing.wake_up
            count = self.sizes.timed if letters == "h" else self.sizes.wake_ups
            for letter, delays in measure(system, self.below, count=count, body_bytes=size).items():
                self.results.add_delays(letter, size, kind.name, number, delays)
            return
        for letter, value in self._rates(letters, size, system, number).items():
            if letter in self.wanted:
                self.results.add(letter, size, kind.name, number, value)

    def _latency(self, kinds: list[type[System]], size: int, number: int) -> None:
        """All systems take turns."""
        systems = [kind() for kind in kinds]
        turns = self.sizes.durable_turns
        found = durable.latency(systems, self.below, turns=turns, body_bytes=size, first=number)
        for name, delays in found.items():
            self.results.add_delays("l", size, name, number, delays)

    def _many(self, kind: type[System], size: int, number: int) -> float:
        """The rate of 16 producers. Penstock's are counted in more ways, and are 64 as well."""
        seconds = self.sizes.producing_s
        found = durable.many(kind(), self.below, producers=PRODUCERS, seconds=seconds, body_bytes=size)
        if kind.name == OURS:
            more = durable.many(kind(), self.below, producers=PRODUCERS_MORE, seconds=seconds, body_bytes=size)
            values = (found.puts_a_sync or 0.0, found.least_share, more.rate / found.rate)
            self.results.add_sharing(number, dict(zip(SHARING_TARGETS, values, strict=True)))
        return found.rate

    def _rates(self, letters: str, size: int, system: System, number: int) -> dict[str, float]:
        sizes = self.sizes
        if letters == "ac":
            count = count_for(system.name, "a", sizes.single)
            return throughput.single(system, self.below, count=count, body_bytes=size)
        if letters == "bd":
            count = count_for(system.name, "b", sizes.batched[size])
            return throughput.batched(system, self.below, count=count, body_bytes=size)
        if letters == "e":
            count = count_for(system.name, "e", sizes.processes_single)
            return processes.end_to_end(system, self.below, count=count, body_bytes=size, batch=False)
        if letters == "f":
            count = count_for(system.name, "f", sizes.processes_batched[size])
            return processes.end_to_end(system, self.below, count=count, body_bytes=size, batch=True)
        if letters == "m":
            return {"m": self._many(type(system), size, number)}
        if letters == "n":
            return {"n": durable.batches(system, self.below, count=sizes.durable_batched[size], body_bytes=size)}
        return self._prepared(system, size).round()

    def _prepared(self, system: System, size: int) -> Scheduled:
        key = (system.name, size)
        if key not in self._scheduled:
            self._scheduled[key] = Scheduled(
                system,
                self._directory(f"scheduled-{len(self._scheduled)}"),
                waiting=self.sizes.waiting,
                inserts=self.sizes.inserts,
                rounds=self.sizes.rounds,
                body_bytes=size,
            )
        return self._scheduled[key]

    def _directory(self, name: str) -> Path:
        path = self.below / name
        path.mkdir()
        return path

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start:4.0f} s] {text}", file=sys.stderr, flush=True)
