"""The picture of docs/sync.md: the leader scheme and the synchronization component side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.plot import short
from bench.results import Results

LEADER = "#5fa8d3"
SYNCER = "#d1495b"
BAR = 0.4


def draw_syncing(results: Results, path: Path, machine: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    figures = results.syncing_figures()
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10.5})
    figure, panel = pyplot.subplots(figsize=(9, 1.4 + 0.5 * len(figures)), layout="constrained")
    for at, (leader, syncer, ratio) in enumerate(figures.values()):
        for value, colour, offset in ((leader, LEADER, -BAR / 2), (syncer, SYNCER, BAR / 2)):
            panel.barh(at + offset, value.median, height=BAR * 0.9, color=colour)
            panel.plot([value.low, value.high], [at + offset, at + offset], color="#222222", linewidth=1, alpha=0.6)
        label = f"{short(leader.median)} and {short(syncer.median)}: {ratio.median:.2f}x"
        where = (max(leader.high, syncer.high), at)
        panel.annotate(label, where, xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5)
    panel.set_yticks(range(len(figures)), list(figures))
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.margins(x=0.2)
    panel.grid(axis="x", color="#e3e3e3", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    handles = [Patch(color=LEADER, label="leader scheme"), Patch(color=SYNCER, label="synchronization component")]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    figure.supxlabel(
        f"durable messages a second, more is better (log scale); medians, lines from the lowest to the highest round\n"
        f"{machine['cores']} cores, {machine['file_system']}, Python {machine['python']}, {machine['core']} core",
        fontsize=9,
        color="#555555",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, facecolor="white")
    pyplot.close(figure)
