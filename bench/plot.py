"""The picture of the README: rates by scenario, one panel for each size of the bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.plan import DURABLE, RATE, UNITS
from bench.report import body
from bench.results import OURS, Figure, Results

# Penstock stands out, what keeps messages on disk is blue and green, what does not is grey.
COLOURS = {
    OURS: "#d1495b",
    "LMDB": "#2e6f95",
    "SQLite": "#5fa8d3",
    "SQLite NORMAL": "#a9cfe6",
    "SQLite FULL": "#5f7fd3",
    "litequeue": "#8fc0a9",
    "litequeue FULL": "#5f9c80",
    "Redis": "#9b72aa",
    "raw file": "#c9b458",
    "pyzmq": "#7a7a7a",
    "mp.Queue": "#b5b5b5",
}
LABELS = {
    "SQLite": "SQLite (synchronous OFF)",
    "SQLite NORMAL": "SQLite (synchronous NORMAL)",
    "SQLite FULL": "SQLite (synchronous FULL)",
    "litequeue FULL": "litequeue (synchronous FULL)",
    "Redis": "Redis (appendfsync always)",
    "raw file": "raw file (no queue)",
    "pyzmq": "pyzmq (not durable)",
    "mp.Queue": "mp.Queue (not durable)",
}
NAMES = {
    "a": "put",
    "b": "put,\nbatches of 1000",
    "c": "get + ack",
    "d": "get + ack,\nbatches of 1000",
    "e": "2 → 2 processes",
    "f": "2 → 2 processes,\nbatches of 100",
    "g": "scheduled\ninsert",
    "l": "durable put",
    "m": "durable put,\n16 processes",
    "n": "durable put,\nbatches of 1000",
}
BAR = 1.0
GAP = 1.2  # between two scenarios


def draw(results: Results, path: Path, machine: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    groups = [(scenario, size) for scenario, size in results.groups() if UNITS[scenario] == RATE or scenario in DURABLE]
    sizes = sorted({size for _, size in groups})
    scenarios = sorted({scenario for scenario, _ in groups})
    if not groups:
        raise ValueError("no scenario that has a rate was measured, so there is nothing to draw")
    rows = sum(len(_systems(results, scenario, sizes)) for scenario in scenarios) + GAP * len(scenarios)
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10.5, "svg.fonttype": "none"})
    figure, panels = pyplot.subplots(
        1, len(sizes), figsize=(10.5, 1.6 + 0.185 * rows), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for panel, size in zip(panels[0], sizes, strict=True):
        _panel(panel, results, scenarios, sizes, size)
    used = [name for name in COLOURS if any(name in results.systems(*group) for group in groups)]
    handles = [Patch(color=COLOURS[name], label=LABELS.get(name, name)) for name in used]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=10)
    figure.supxlabel(
        f"messages a second, more is better (log scale); medians, lines from the lowest to the highest round\n"
        f"{machine['cores']} cores, {machine['file_system']}, Python {machine['python']}, {machine['core']} core, "
        f"relaxed durability unless it says durable",
        fontsize=9,
        color="#555555",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, facecolor="white")
    pyplot.close(figure)


def _systems(results: Results, scenario: str, sizes: list[int]) -> list[str]:
    present = {name for size in sizes for name in results.systems(scenario, size)}
    return [name for name in COLOURS if name in present]


def _panel(panel: Any, results: Results, scenarios: list[str], sizes: list[int], size: int) -> None:
    at = 0.0
    ticks, names = [], []
    for scenario in scenarios:
        systems = _systems(results, scenario, sizes)
        ticks.append(at + BAR * (len(systems) - 1) / 2)
        names.append(NAMES[scenario])
        for name in systems:
            _bar(panel, results, scenario, size, name, at)
            at += BAR
        at += GAP
    panel.set_xscale("log")
    panel.set_yticks(ticks, names)
    panel.set_ylim(at - GAP - BAR / 2 + 0.4, -BAR / 2 - 0.4)
    panel.margins(x=0.12)
    panel.set_title(f"bodies of {body(size)}", fontsize=11)
    panel.grid(axis="x", color="#e3e3e3", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(axis="both", length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


def _bar(panel: Any, results: Results, scenario: str, size: int, name: str, at: float) -> None:
    figure = results.figure(scenario, size, name)
    if figure is None:
        return
    if UNITS[scenario] != RATE:  # seconds for one put
        figure = Figure(1 / figure.median, 1 / figure.high, 1 / figure.low, figure.rounds)
    panel.barh(at, figure.median, height=BAR * 0.86, color=COLOURS[name])
    panel.plot([figure.low, figure.high], [at, at], color="#222222", linewidth=1, alpha=0.6)
    panel.annotate(
        short(figure.median),
        (max(figure.high, figure.median), at),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        fontweight="bold" if name == OURS else "normal",
        color="#222222",
    )


def short(value: float) -> str:
    """
    >>> short(237_400), short(8_230), short(1_870_000)
    ('237k', '8.2k', '1.9M')
    """
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    return f"{value / 1e3:.0f}k" if value >= 1e4 else f"{value / 1e3:.1f}k"
