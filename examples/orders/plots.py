"""Owns drawing lines over seconds, with the times in which somebody was dead. Never knows what is drawn; axes and sizes
are those of Penstock's own reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from penstock.spark import charts
from penstock.spark.charts import BOTTOM, LEFT, RIGHT, TOP

HEIGHT = 230
LABEL_PX = 60  # between two words below a plot, at least
STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300)


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    style: str  # a class of the page's style sheet


@dataclass(frozen=True)
class Span:
    """A time in which somebody was dead."""

    from_s: float
    to_s: float
    label: str


def over_time(series: Sequence[Series], spans: Sequence[Span], seconds: float, title: str) -> str:
    """Lines over seconds; spans are shaded, and marked at their beginning."""
    scale = charts.ticks(max((y for each in series for _, y in each.points), default=0))

    def draw(width: int, height: int) -> str:
        room_x, room_y = width - LEFT - RIGHT, height - TOP - BOTTOM

        def x(at_s: float) -> float:
            return LEFT + room_x * min(max(at_s / seconds, 0), 1)

        parts = charts.across(width, height, scale, "")
        for span in spans:
            parts += _span(x(span.from_s), x(span.to_s), room_y)
        for each in series:
            line = " ".join(f"{x(at_s):.1f},{TOP + room_y * (1 - y / scale[-1]):.1f}" for at_s, y in each.points)
            parts.append(f'<polyline class="line {each.style}" points="{line}"/>')
        for row, span in enumerate(spans):  # they take turns in height, since two may be near each other
            place = f'x="{x(span.from_s) + 5:.1f}" y="{TOP + 13 + 15 * (row % 2)}"'
            parts.append(f'<text class="killed" {place}>{escape(span.label)}</text>')
        most = max(int(room_x // LABEL_PX), 1)
        step_s = next((step for step in STEPS_S if seconds / step <= most), STEPS_S[-1])
        for at_s in range(0, int(seconds) + 1, step_s):
            parts.append(f'<text x="{x(at_s):.1f}" y="{height - 6}" text-anchor="middle">{at_s} s</text>')
        return charts.svg(width, height, parts, title)

    items = "".join(f'<span><i class="{each.style}"></i>{escape(each.name)}</span>' for each in series)
    return charts.twice(draw, height=HEIGHT) + f'<div class="legend">{items}</div>'


def _span(x: float, end: float, room_y: float) -> list[str]:
    return [
        f'<rect class="dead" x="{x:.1f}" y="{TOP}" width="{max(end - x, 1):.1f}" height="{room_y}"/>',
        f'<line class="kill" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + room_y}"/>',
    ]
