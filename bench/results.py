"""Samples and what they say: medians, spreads, ratios, verdicts. Pure: measures and prints nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.plan import (
    BEST,
    DEPTH_TARGETS,
    MEMORY_TARGET_BYTES,
    PAUSE_TARGET_S,
    RAW,
    RESTORE_TARGET,
    RESTORE_TARGET_BYTES,
    SCRIPTS_TARGET,
    SHARING_TARGETS,
    SYNCER_PRODUCERS,
    SYNCER_TARGET,
    TITLES,
    UNITS,
    Target,
    targets_for,
)

OURS = "Penstock"


@dataclass(frozen=True)
class Figure:
    """The median of the rounds and their extremes."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: list[float]) -> Figure:
        return cls(median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Verdict:
    """One target, and whether it was reached. ``value`` is a ratio, or seconds or bytes where nothing is compared."""

    scenario: str
    subject: str
    body_bytes: int | None
    reference: str | None
    value: Figure
    target: float
    at_least: bool
    met: bool


def percentile(values: list[float], part: float) -> float:
    """The smallest value that ``part`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def single_puts_of(producers: int) -> str:
    """
    >>> single_puts_of(1), single_puts_of(64)
    ('1 producer, single', '64 producers, single')
    """
    return f"{producers} producer{'' if producers == 1 else 's'}, single"


class Results:
    def __init__(self) -> None:
        # (scenario, size of the body, system) to {round: value}
        self.samples: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
        # The single delays of h, i and l, of all rounds together
        self.delays: dict[tuple[str, int, str], list[float]] = defaultdict(list)
        # operation to {round: (deep, shallow)}
        self.depth: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
        # what many producers share, to {round: value}
        self.sharing: dict[str, dict[int, float]] = defaultdict(dict)
        # what was put by how many, with which options, to {round: (leader scheme, synchronization component)}
        self.syncing: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
        # how many keys, to {round: (transformWithState, scripts)}
        self.scripts: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
        # of each way, how long puts of coroutines held their event loop, each time
        self.pauses: dict[str, list[float]] = defaultdict(list)
        self.memory: dict[str, Any] | None = None
        # order and kernel to restore, reading and their ratio, and the most anonymous memory in bytes
        self.restores: dict[str, tuple[Figure, Figure, Figure, float]] = {}

    def add(self, scenario: str, body_bytes: int, system: str, round_number: int, value: float) -> None:
        self.samples[scenario, body_bytes, system][round_number] = value

    def add_delays(self, scenario: str, body_bytes: int, system: str, round_number: int, delays: list[float]) -> None:
        self.delays[scenario, body_bytes, system] += delays
        self.add(scenario, body_bytes, system, round_number, median(delays))

    def add_depth(self, round_number: int, operations: dict[str, tuple[float, float]]) -> None:
        for name, pair in operations.items():
            self.depth[name][round_number] = pair

    def add_sharing(self, round_number: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.sharing[name][round_number] = value

    def add_syncing(self, round_number: int, what: str, rates: tuple[float, float]) -> None:
        self.syncing[what][round_number] = rates

    def syncing_figures(self) -> dict[str, tuple[Figure, Figure, Figure]]:
        """For each: leader scheme, synchronization component, and the second's ratio to the first."""
        return _compared(self.syncing)

    def add_scripts(self, round_number: int, what: str, rates: tuple[float, float]) -> None:
        self.scripts[what][round_number] = rates

    def scripts_figures(self) -> dict[str, tuple[Figure, Figure, Figure]]:
        """For each: transformWithState, scripts, and the second's ratio to the first."""
        return _compared(self.scripts)

    def figure(self, scenario: str, body_bytes: int, system: str) -> Figure | None:
        found = self.samples.get((scenario, body_bytes, system))
        return Figure.of(list(found.values())) if found else None

    def ratio(self, scenario: str, body_bytes: int, reference: str) -> Figure | None:
        """Penstock to a reference: the median of the rounds' ratios, since what disturbs a round disturbs both."""
        ours = self.samples.get((scenario, body_bytes, OURS), {})
        theirs = self._theirs(scenario, body_bytes, reference)
        common = [ours[number] / theirs[number] for number in ours if number in theirs]
        return Figure.of(common) if common else None

    def _theirs(self, scenario: str, body_bytes: int, reference: str) -> dict[int, float]:
        if reference != BEST:
            return self.samples.get((scenario, body_bytes, reference), {})
        best: dict[int, float] = {}
        for name in self.systems(scenario, body_bytes):
            if name not in (OURS, RAW):
                for number, value in self.samples[scenario, body_bytes, name].items():
                    best[number] = max(value, best.get(number, value))
        return best

    def groups(self) -> list[tuple[str, int]]:
        """The scenarios and sizes that were measured, in order."""
        return sorted({(scenario, size) for scenario, size, _ in self.samples})

    def systems(self, scenario: str, body_bytes: int) -> list[str]:
        return [name for letter, size, name in self.samples if (letter, size) == (scenario, body_bytes)]

    def depth_figures(self) -> dict[str, tuple[Figure, Figure, Figure]]:
        """For each operation: deep, shallow, and the ratio of the two."""
        return {
            name: (
                Figure.of([deep for deep, _ in rounds.values()]),
                Figure.of([shallow for _, shallow in rounds.values()]),
                Figure.of([deep / shallow for deep, shallow in rounds.values()]),
            )
            for name, rounds in self.depth.items()
        }

    def verdicts(self) -> list[Verdict]:
        found = []
        for scenario, body_bytes in self.groups():
            for target in targets_for(scenario, body_bytes):
                found += self._verdict(target, body_bytes)
        for name, rounds in self.sharing.items():
            found.append(_judge(Target("m", None, SHARING_TARGETS[name]), name, None, Figure.of(list(rounds.values()))))
        for name, (_, _, ratio) in self.depth_figures().items():
            target = Target(
                "j", "1,000 waiting" if name != "open" else "an empty one", DEPTH_TARGETS[name], at_least=False
            )
            found.append(_judge(target, name, None, ratio))
        for what, (_, _, ratio) in self.syncing_figures().items():
            if what == single_puts_of(SYNCER_PRODUCERS):
                found.append(_judge(Target("7", "the leader scheme", SYNCER_TARGET), what, None, ratio))
        for what, (_, _, ratio) in self.scripts_figures().items():
            found.append(_judge(Target("9", "transformWithState", SCRIPTS_TARGET), what, None, ratio))
        for way, pauses in self.pauses.items():
            target = Target("7", None, PAUSE_TARGET_S, at_least=False)
            found.append(
                _judge(
                    target,
                    f"p99 of how long a put holds an event loop, {way}",
                    None,
                    Figure.of([percentile(pauses, 0.99)]),
                )
            )
        if self.memory:
            peak = Figure.of([self.memory["peak_bytes"]])
            found.append(
                _judge(Target("k", None, MEMORY_TARGET_BYTES, at_least=False), "memory of its own", None, peak)
            )
        for name, (_, _, ratio, _) in self.restores.items():
            target = Target("o", "reading", RESTORE_TARGET, at_least=False)
            found.append(_judge(target, f"restore: {name}", None, ratio))
        if self.restores:
            most = Figure.of([max(anonymous for *_, anonymous in self.restores.values())])
            found.append(
                _judge(
                    Target("o", None, RESTORE_TARGET_BYTES, at_least=False), "restore: memory of its own", None, most
                )
            )
        return found

    def _verdict(self, target: Target, body_bytes: int) -> list[Verdict]:
        if target.reference:
            value = self.ratio(target.scenario, body_bytes, target.reference)
        else:
            value = self.figure(target.scenario, body_bytes, OURS)
        return [_judge(target, TITLES[target.scenario], body_bytes, value)] if value else []

    def as_json(self) -> dict[str, Any]:
        return {
            "scenarios": [self._group_json(scenario, size) for scenario, size in self.groups()],
            "depth": {
                name: {"deep_s": asdict(deep), "shallow_s": asdict(shallow), "ratio": asdict(ratio)}
                for name, (deep, shallow, ratio) in self.depth_figures().items()
            },
            "sharing": {
                name: asdict(Figure.of(list(rounds.values()))) | {"samples": list(rounds.values())}
                for name, rounds in self.sharing.items()
            },
            "syncing": {
                what: {"leader": asdict(leader), "syncer": asdict(syncer), "ratio": asdict(ratio)}
                for what, (leader, syncer, ratio) in self.syncing_figures().items()
            },
            "scripts": {
                what: {"transform_with_state": asdict(theirs), "scripts": asdict(ours), "ratio": asdict(ratio)}
                for what, (theirs, ours, ratio) in self.scripts_figures().items()
            },
            "pauses_s": {
                way: {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": max(found)}
                for way, found in self.pauses.items()
            },
            "memory": self.memory,
            "restores": {
                name: {"restore_s": asdict(restore), "read_s": asdict(reading), "ratio": asdict(ratio)}
                | {"anonymous_bytes": anonymous}
                for name, (restore, reading, ratio, anonymous) in self.restores.items()
            },
            "targets": [asdict(verdict) for verdict in self.verdicts()],
        }

    def _group_json(self, scenario: str, size: int) -> dict[str, Any]:
        systems = {}
        for name in self.systems(scenario, size):
            key = (scenario, size, name)
            systems[name] = asdict(Figure.of(list(self.samples[key].values())))
            systems[name]["samples"] = list(self.samples[key].values())
            if key in self.delays:
                systems[name]["p99"] = percentile(self.delays[key], 0.99)
        return {"scenario": scenario, "body_bytes": size, "unit": UNITS[scenario], "systems": systems}


def _compared(pairs: dict[str, dict[int, tuple[float, float]]]) -> dict[str, tuple[Figure, Figure, Figure]]:
    return {
        what: (
            Figure.of([first for first, _ in rounds.values()]),
            Figure.of([second for _, second in rounds.values()]),
            Figure.of([second / first for first, second in rounds.values()]),
        )
        for what, rounds in pairs.items()
    }


def _judge(target: Target, subject: str, body_bytes: int | None, value: Figure) -> Verdict:
    return Verdict(
        target.scenario,
        subject,
        body_bytes,
        target.reference,
        value,
        target.factor,
        target.at_least,
        target.met(value.median),
    )
