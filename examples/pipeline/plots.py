"""Owns drawing: lines over time and a histogram, as SVG text. Never knows what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 230
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 26, 34
TICKS = 4
TICKS_Y = HEIGHT - BOTTOM + 17


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    style: str  # a class of the page's style sheet
    filled: bool = False


@dataclass(frozen=True)
class Span:
    """A time in which somebody was dead."""

    from_s: float
    to_s: float
    label: str


def over_time(series: Sequence[Series], spans: Sequence[Span], seconds: float, unit: str) -> str:
    """Lines over seconds; spans are shaded, and marked at their beginning."""
    top = _round_up(max((y for each in series for _, y in each.points), default=0))
    parts = [_grid(top, unit)]
    for row, span in enumerate(spans):
        parts.append(_span(span, seconds, row))
    for each in series:
        places = [(_x(at_s, seconds), _y(value, top)) for at_s, value in each.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if each.filled and places:
            floor = _y(0, top)
            area = f"{places[0][0]:.1f},{floor} {line} {places[-1][0]:.1f},{floor}"
            parts.append(f'<polygon class="area {each.style}" points="{area}"/>')
        parts.append(f'<polyline class="line {each.style}" points="{line}"/>')
    step = _time_step(seconds)
    for n in range(int(seconds // step) + 1):
        x = _x(n * step, seconds)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{TICKS_Y}" text-anchor="middle">{n * step} s</text>')
    return _svg(parts) + _legend(series)


def histogram(bars: Sequence[tuple[str, int]], unit: str) -> str:
    """A bar for each label."""
    top = _round_up(max((count for _, count in bars), default=0))
    parts = [_grid(top, unit)]
    step = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    for n, (label, count) in enumerate(bars):
        x, y = LEFT + n * step + 3, _y(count, top)
        middle = x + step / 2 - 3
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{step - 6:.1f}" height="{_y(0, top) - y:.1f}"/>'
            f'<text class="tick" x="{middle:.1f}" y="{TICKS_Y}" text-anchor="middle">{escape(label)}</text>'
        )
        if count:
            parts.append(f'<text class="value" x="{middle:.1f}" y="{y - 5:.1f}" text-anchor="middle">{count}</text>')
    return _svg(parts)


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _legend(series: Sequence[Series]) -> str:
    items = "".join(f'<span><i class="{each.style}"></i>{escape(each.name)}</span>' for each in series)
    return f'<p class="legend">{items}</p>'


def _grid(top: float, unit: str) -> str:
    lines = []
    for n in range(TICKS + 1):
        value = top * n / TICKS
        y = _y(value, top)
        lines.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    return f'<text class="tick" x="{LEFT}" y="12">{escape(unit)}</text>' + "".join(lines)


def _span(span: Span, seconds: float, row: int) -> str:
    """The labels take turns in height, since two may be near each other."""
    x, end = _x(span.from_s, seconds), _x(span.to_s, seconds)
    bottom = HEIGHT - BOTTOM
    return (
        f'<rect class="dead" x="{x:.1f}" y="{TOP}" width="{max(end - x, 1):.1f}" height="{bottom - TOP}"/>'
        f'<line class="kill" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>'
        f'<text class="killed" x="{x + 5:.1f}" y="{TOP + 13 + 14 * (row % 2)}">{escape(span.label)}</text>'
    )


def _x(at_s: float, seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at_s / seconds, 0), 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5 or 8 times a power of ten: ticks are round numbers then."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 5, 8, 10) if power * step >= value)


def _time_step(seconds: float) -> int:
    return next((step for step in (1, 2, 5, 10, 20, 30, 60) if seconds / step <= 12), 300)
