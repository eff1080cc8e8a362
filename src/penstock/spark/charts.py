"""Owns the plots of a report, as SVG text: axes, bars, words. Pure. Colours are classes that the page gives meaning.

Each plot is drawn twice, for a wide and for a narrow window, so that its words keep their size; the page shows one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from html import escape

from penstock.spark.figures import DECADE_STEPS, SERIES, STEPS_S, Distribution, Moment, step_start_s

WIDE, NARROW, HALF = 1000, 330, 480
TOP, BOTTOM, LEFT, RIGHT = 10, 24, 46, 27
SHORTEST_PX = 1.5  # what is there can be seen
LABEL_PX = 56  # between two words below a plot, at least

UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("day", 86_400.0))


def rate_unit(most_a_second: float) -> tuple[str, float]:
    """A unit in which a rate is a number that people say, and its seconds.

    >>> rate_unit(250.0), rate_unit(0.5), rate_unit(0.001)
    (('s', 1.0), ('min', 60.0), ('h', 3600.0))
    """
    for name, seconds in UNITS:
        if most_a_second * seconds >= 1:
            return name, seconds
    return UNITS[-1]


def ticks(most: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to the first that is not below the most.

    >>> ticks(7.3), ticks(1000), ticks(0)
    ([0, 2, 4, 6, 8], [0, 250, 500, 750, 1000], [0, 1])
    """
    if most <= 0:
        return [0, 1]
    raw = most / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    found = [round(i * step, 10) for i in range(math.ceil(most / step - 1e-9) + 1)]
    return [int(each) if each == int(each) else each for each in found]


def amount(value: float) -> str:
    """
    >>> amount(0), amount(12), amount(0.25), amount(12_500), amount(3_000_000)
    ('0', '12', '0.25', '12.5k', '3M')
    """
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


def span(seconds: float) -> str:
    """
    >>> span(0), span(2.5e-6), span(0.0123), span(1.5), span(90), span(5400), span(200_000)
    ('0', '2.5 µs', '12.3 ms', '1.5 s', '1.5 min', '1.5 h', '2.31 d')
    """
    if seconds == 0:
        return "0"
    for unit, size_s, most in (
        ("µs", 1e-6, 999.5),
        ("ms", 1e-3, 999.5),
        ("s", 1.0, 60),
        ("min", 60, 60),
        ("h", 3600, 48),
    ):
        if seconds / size_s < most:
            return f"{seconds / size_s:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


def decade(seconds: float) -> str:
    """A power of ten.

    >>> decade(1e-6), decade(0.1), decade(100.0), decade(10_000.0)
    ('1 µs', '100 ms', '100 s', '10,000 s')
    """
    return span(seconds) if seconds < 60 else f"{seconds:,.0f} s"


def twice(draw: Callable[[int, int], str], *, wide: int = WIDE, height: int = 220) -> str:
    return (
        f'<div class="plot wide">{draw(wide, height)}</div>'
        f'<div class="plot narrow">{draw(NARROW, min(height, 190))}</div>'
    )


def svg(width: int, height: int, parts: list[str], title: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def across(width: int, height: int, scale: list[float], unit: str) -> list[str]:
    """Lines across for the values of the axis at the left, with their numbers."""
    room = height - TOP - BOTTOM
    parts = []
    for value in scale:
        y = TOP + room * (1 - value / scale[-1])
        kind = "base" if value == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{amount(value)}{unit}</text>')
    return parts


def over_time(moments: Sequence[Moment], step_s: int, title: str) -> tuple[str, str]:
    """Stacked bars of what ended in each step, and the unit of their height: messages a second, minute or hour."""
    unit, unit_s = rate_unit(max(sum(each.counts.values()) for each in moments) / step_s)
    most = max(sum(each.counts.values()) for each in moments) / step_s * unit_s
    scale = ticks(most)
    first_s = moments[0].start_s
    steps = round((moments[-1].start_s - first_s) / step_s) + 1

    def draw(width: int, height: int) -> str:
        room_x, room_y = width - LEFT - RIGHT, height - TOP - BOTTOM
        step_px = room_x / max(steps, 6)
        gap_px = min(step_px * 0.2, 3)
        parts = across(width, height, scale, "")
        for moment in moments:
            x = LEFT + (moment.start_s - first_s) / step_s * step_px
            y = TOP + float(room_y)
            for name in SERIES:
                rate = moment.counts[name] / step_s * unit_s
                if rate > 0:
                    tall = max(room_y * rate / scale[-1], SHORTEST_PX)
                    y -= tall
                    parts.append(
                        f'<rect class="{name}" x="{x + gap_px / 2:.1f}" y="{y:.1f}" '
                        f'width="{step_px - gap_px:.1f}" height="{tall:.1f}"/>'
                    )
            said = ", ".join(f"{moment.counts[name]} {name}" for name in SERIES if moment.counts[name])
            when = clock(moment.start_s, step_s)
            parts.append(
                f'<rect class="over" x="{x:.1f}" y="{TOP}" width="{step_px:.1f}" height="{room_y}">'
                f"<title>{escape(f'{when}: {said}')}</title></rect>"
            )
        parts += _hours(first_s, steps, step_s, step_px, width, height)
        return svg(width, height, parts, title)

    return twice(draw, height=240), unit


def _hours(first_s: float, steps: int, step_s: int, step_px: float, width: int, height: int) -> list[str]:
    """Round times below the bars, as many as have room."""
    short = step_s * steps <= 86_400
    label_px = LABEL_PX if short else LABEL_PX * 1.8
    every_s = next((each for each in STEPS_S if each % step_s == 0 and each / step_s * step_px >= label_px), 0)
    every_s = every_s or math.ceil(label_px / step_px) * step_s
    zone_s = (datetime.fromtimestamp(first_s).astimezone().utcoffset() or timedelta()).total_seconds()
    parts = []
    for step in range(steps):
        at_s = first_s + step * step_s
        x = LEFT + step * step_px
        if (at_s + zone_s) % every_s == 0 and x + label_px / 2 <= width:
            base = height - BOTTOM
            parts.append(f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>')
            when = clock(at_s, every_s, short=short)
            parts.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{when}</text>')
    return parts


def clock(at_s: float, step_s: float, *, short: bool = False) -> str:
    """A time of this machine's zone, as exact as the step is."""
    at = datetime.fromtimestamp(at_s)
    exact = "%H:%M:%S" if step_s < 60 else "%H:%M"
    if step_s >= 86_400:
        return at.strftime("%d %b")
    return at.strftime(exact if short else f"%d %b {exact}")


def distribution(found: Distribution, title: str) -> str:
    """Bars by length of time, on a scale of powers of ten; their heights are shares of all."""
    low = min(found.steps) // DECADE_STEPS * DECADE_STEPS
    high = max(max(found.steps) // DECADE_STEPS * DECADE_STEPS + DECADE_STEPS, low + 2 * DECADE_STEPS)
    shares = {step: count / found.count * 100 for step, count in found.steps.items()}
    scale = ticks(max(shares.values()))

    def draw(width: int, height: int) -> str:
        room_x, room_y = width - LEFT - RIGHT, height - TOP - BOTTOM
        step_px = room_x / (high - low)
        parts = across(width, height, scale, " %")
        for step, share in shares.items():
            tall = max(room_y * share / scale[-1], SHORTEST_PX)
            x = LEFT + (step - low) * step_px
            said = (
                f"{span(step_start_s(step))} to {span(step_start_s(step + 1))}: {found.steps[step]:,} ({share:.3g} %)"
            )
            parts.append(
                f'<rect class="share" x="{x + 1:.1f}" y="{TOP + room_y - tall:.1f}" '
                f'width="{max(step_px - 2, 1):.1f}" height="{tall:.1f}"><title>{escape(said)}</title></rect>'
            )
        every = max(math.ceil(LABEL_PX / (step_px * DECADE_STEPS)), 1) * DECADE_STEPS
        for step in range(low, high + 1, every):
            x = LEFT + (step - low) * step_px
            parts.append(f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + room_y}" y2="{TOP + room_y + 4}"/>')
            label = decade(step_start_s(step))
            parts.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{label}</text>')
        return svg(width, height, parts, title)

    return twice(draw, wide=HALF, height=190)
