"""The tables. Prints; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from bench.plan import BEST, BYTES, DURABLE, PRODUCERS_MORE, RATE, SECONDS, SHARE, TITLES, UNITS, Sizes, targets_for
from bench.results import OURS, Figure, Results, Verdict, percentile


def machine_note(machine: dict[str, Any], skipped: list[str]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    lines = [
        f"Penstock {machine['penstock']}, {machine['core']} core; "
        f"{', '.join(DURABLE)} durable, everything else with relaxed durability",
        f"{machine['processor']}, {machine['cores']} cores (load {machine['load_before']:.1f} before the run), "
        f"Linux {machine['kernel']}, {machine['file_system']}",
        f"Python {machine['python']}, {versions}",
    ]
    if machine["core"] == "interpreted":
        lines.append("The targets are for the compiled core.")
    if skipped:
        lines.append(f"Not installed, so left out: {', '.join(skipped)}")
    return "\n".join(lines)


def tables(results: Results, sizes: Sizes) -> str:
    parts = [_group_table(results, scenario, size, sizes) for scenario, size in results.groups()]
    if results.sharing:
        parts.append(_sharing_table(results))
    if results.depth:
        parts.append(_depth_table(results, sizes))
    if results.syncing:
        parts.append(_syncing_table(results, sizes))
    if results.scripts:
        parts.append(_scripts_table(results, sizes))
    if results.memory:
        parts.append(_memory_note(results, sizes))
    if results.restores:
        parts.append(_restore_table(results, sizes))
    verdicts = results.verdicts()
    if verdicts:
        parts.append(_targets_table(verdicts))
    return "\n\n".join(parts)


def title(scenario: str, sizes: Sizes) -> str:
    return TITLES[scenario].format(**asdict(sizes))


def _group_table(results: Results, scenario: str, size: int, sizes: Sizes) -> str:
    timed = UNITS[scenario] == SECONDS
    show = SHOWN[UNITS[scenario]]
    rows = []
    for name in results.systems(scenario, size):
        figure = results.figure(scenario, size, name)
        assert figure is not None
        row = [name, show(figure.median), f"{show(figure.low)} – {show(figure.high)}"]
        if timed:
            row.append(duration(percentile(results.delays[scenario, size, name], 0.99)))
        rows.append(row + _comparison(results, scenario, size, name))
    head = ["", "median", "lowest – highest round"] + (["p99 of all"] if timed else [])
    return _table(f"{scenario}  {title(scenario, sizes)}, {body(size)}", [*head, f"{OURS} is", "target", ""], rows)


def _comparison(results: Results, scenario: str, size: int, name: str) -> list[str]:
    """Ratio, target and verdict, as far as there are any."""
    reference = None if name == OURS else name
    target = next((t for t in targets_for(scenario, size) if t.reference == reference), None)
    if reference is None:
        ours = results.figure(scenario, size, OURS)
        return (
            ["", f"<= {SHOWN[UNITS[scenario]](target.factor)}", yes(target.met(ours.median))] if target and ours else []
        )
    ratio = results.ratio(scenario, size, reference)
    if ratio is None:
        return []
    if target is None:
        return [factor(ratio.median)]
    sign = ">=" if target.at_least else "<="
    return [factor(ratio.median), f"{sign} {factor(target.factor)}", yes(target.met(ratio.median))]


def _sharing_table(results: Results) -> str:
    rows = []
    for verdict in results.verdicts():
        if verdict.scenario == "m" and (not verdict.reference or verdict.reference == BEST):
            name = f"rate to the {BEST}" if verdict.reference else verdict.subject
            rows.append([name, _spread(verdict.value, number), f">= {number(verdict.target)}", yes(verdict.met)])
    heads = ["", "median (range)", "target", ""]
    return _table(f"m  what 16 producers share, and {PRODUCERS_MORE} of them, {body(200)}", heads, rows)


def _depth_table(results: Results, sizes: Sizes) -> str:
    targets = {verdict.subject: verdict for verdict in results.verdicts() if verdict.scenario == "j"}
    rows = []
    for name, (deep, shallow, ratio) in results.depth_figures().items():
        verdict = targets[name]
        rows.append(
            [
                name,
                duration(deep.median),
                duration(shallow.median),
                factor(ratio.median),
                f"{factor(ratio.low)} – {factor(ratio.high)}",
                f"<= {factor(verdict.target)}",
                yes(verdict.met),
            ]
        )
    heads = ["", f"{sizes.deep:,}", "1,000 (open: 0)", "ratio", "lowest – highest round", "target", ""]
    return _table(f"j  {title('j', sizes)}, {body(200)}", heads, rows)


def _syncing_table(results: Results, sizes: Sizes) -> str:
    rows = [
        [what, rate(leader.median), rate(syncer.median), _spread(ratio, factor)]
        for what, (leader, syncer, ratio) in results.syncing_figures().items()
    ]
    heads = ["", "leader scheme", "component", "ratio (range)"]
    return _table(f"7  {title('7', sizes)}, {body(200)}", heads, rows)


def _scripts_table(results: Results, sizes: Sizes) -> str:
    targets = {verdict.subject: verdict for verdict in results.verdicts() if verdict.scenario == "9"}
    rows = []
    for what, (theirs, ours, ratio) in results.scripts_figures().items():
        verdict = targets[what]
        target = [f">= {factor(verdict.target)}", yes(verdict.met)]
        rows.append([what, rate(theirs.median), rate(ours.median), _spread(ratio, factor), *target])
    heads = ["", "transformWithState", "scripts", "ratio (range)", "target", ""]
    return _table(f"9  {title('9', sizes)}, {body(200)}", heads, rows)


def _memory_note(results: Results, sizes: Sizes) -> str:
    memory = results.memory
    assert memory is not None
    verdict = next(verdict for verdict in results.verdicts() if verdict.scenario == "k")
    row = [
        OURS,
        size_of(memory["peak_bytes"]),
        size_of(memory["before_bytes"]),
        f"{memory['times_full']} times",
        f"{memory['streamed_bytes'] / memory['seconds'] / 1e6:,.0f} MB/s",
        f"<= {size_of(verdict.target)}",
        yes(verdict.met),
    ]
    heads = ["", "highest RssAnon", "before", "queue was full", "streamed with", "target", ""]
    return _table(f"k  {title('k', sizes)}", heads, [row])


def _restore_table(results: Results, sizes: Sizes) -> str:
    verdicts = [verdict for verdict in results.verdicts() if verdict.scenario == "o" and verdict.reference]
    rows = []
    for verdict, (restore, reading, ratio, anonymous) in zip(verdicts, results.restores.values(), strict=True):
        rows.append(
            [
                verdict.subject,
                duration(restore.median),
                duration(reading.median),
                factor(ratio.median),
                f"{factor(ratio.low)} – {factor(ratio.high)}",
                size_of(anonymous),
                f"<= {factor(verdict.target)}",
                yes(verdict.met),
            ]
        )
    heads = ["", "restore", "reading", "ratio", "lowest – highest round", "highest RssAnon", "target", ""]
    return _table(f"o  {title('o', sizes)}", heads, rows)


TARGET_HEADS = ["", "body", "ratio", "median (range)", "target", ""]


def _targets_table(verdicts: list[Verdict]) -> str:
    met = sum(verdict.met for verdict in verdicts)
    return _table(f"Targets: {met} of {len(verdicts)} reached", TARGET_HEADS, _target_rows(verdicts))


def markdown(verdicts: list[Verdict]) -> str:
    """The targets as docs/performance.md has them."""
    heads = ["", "what", "body", "against", "measured", "asked", ""]
    rows = [heads, ["---"] * len(heads)]
    for verdict in verdicts:
        subject, size, value, target = _judged(verdict)
        bound = "at least" if verdict.at_least else "at most"
        short = "" if verdict.met else "**short**"
        rows.append([verdict.scenario, subject, size, verdict.reference or "", value, f"{bound} {target}", short])
    return "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)


def _target_rows(verdicts: list[Verdict]) -> list[list[str]]:
    rows = []
    for verdict in verdicts:
        subject, size, value, target = _judged(verdict)
        reference = f"to {verdict.reference}" if verdict.reference else ""
        sign = ">=" if verdict.at_least else "<="
        rows.append([f"{verdict.scenario}  {subject}", size, reference, value, f"{sign} {target}", yes(verdict.met)])
    return rows


def _judged(verdict: Verdict) -> tuple[str, str, str, str]:
    """What it is about, the size of its bodies, what was measured, and what is to be reached."""
    show = factor if verdict.reference else PLAIN.get(verdict.scenario, duration)
    subject = verdict.subject.partition(",")[0] if verdict.scenario in "ghpu1" else verdict.subject
    size = body(verdict.body_bytes) if verdict.body_bytes else ""
    return subject, size, _spread(verdict.value, show), show(verdict.target)


def _spread(figure: Figure, show: Any) -> str:
    if figure.rounds == 1:
        return show(figure.median)
    return f"{show(figure.median)} ({show(figure.low)} – {show(figure.high)})"


def _table(heading: str, heads: list[str], rows: Iterable[list[str]]) -> str:
    full = [row + [""] * (len(heads) - len(row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *full, strict=True)]

    def line(cells: list[str]) -> str:
        first, *others = cells
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return "  ".join([first.ljust(widths[0]), *padded]).rstrip()

    return "\n".join([heading, *(f"   {line(cells)}" for cells in [heads, *full])])


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def factor(value: float) -> str:
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def body(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def size_of(value: float) -> str:
    return f"{value / 1e6:.0f} MB"


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def yes(met: bool) -> str:
    return "yes" if met else "NO"


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


SHOWN = {RATE: rate, SECONDS: duration, SHARE: percent, BYTES: size_of}
# How a figure that is compared with nothing is shown, where it is no duration.
PLAIN = {"k": size_of, "m": number, "o": size_of, "q": percent}
