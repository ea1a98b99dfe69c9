"""Draws plots as SVG."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from disque_trio import humanize, svg

COLOURS = 6  # classes c0 to c5 of the style sheet, which also differ in their dashes
FEW = 60  # a line with no more points than this has dots
_APART = 1.5  # distance between lines at 0
WIDTH = 760
HEIGHT = 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 34
_TICK_SECONDS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400)
_LABELS = 8  # the most labels below a plot
_LONG_LABELS = 6  # the most labels that have a day
_DAY = 86400  # s
_MS = 1000
_ROUND_MS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 864_000_000)
_POWERS = [10.0**power for power in range(16)]


class Line(NamedTuple):
    """A line of a plot; a point is a time (ms) and a value, or None where there is a gap."""

    name: str
    points: Sequence[tuple[int, float | None]]


def line_plot(
    lines: Sequence[Line],
    title: str,
    *,
    log: bool = False,
    times: bool = False,
    span: tuple[int, int] | None = None,
    id: str = "",
) -> str:
    """A plot of values over time.

    Args:
        log: whether the axis is logarithmic.
        times: whether the values are ms.
        span: the period to show, ms; extended to include all points.
        id: id of the plot in the page.
    """
    points = [(at, value) for line in lines for at, value in line.points if value is not None]
    if not points:
        return "<p class=none>Nothing to show.</p>"
    places: list[int] = [*(at for at, _ in points), *(span or ())]
    first, last = min(places), max(places)
    if first == last:
        first, last = first - 30 * _MS, last + 30 * _MS
    values = [value for _, value in points]
    most = max(values)
    if log:
        ticks = svg.log_ticks(min(values), most, _ROUND_MS if times else _POWERS)
    else:
        ticks = svg.ticks(most, float(most == int(most)))  # integers need no fractions
    box = (_LEFT, _TOP, WIDTH - _RIGHT, HEIGHT - _BOTTOM)
    panel = svg.Panel(box, (first, last), (ticks[0], ticks[-1]), "y" if log else "")
    shown = (lambda tick: humanize.duration(tick / _MS)) if times else humanize.short
    parts = panel.axis([(tick, shown(tick)) for tick in ticks])
    for at, format in _moments(first, last):
        words = humanize.moment(at / _MS, format)
        parts.append(panel.label(at, words, 22, WIDTH, data_t=at, data_f=format))
    for place, line in enumerate(lines[:COLOURS]):
        parts += _drawn(line, panel, place)
    picture = svg.picture(WIDTH, HEIGHT, title, parts) + legend([line.name for line in lines])
    readout = "<p class=readout aria-live=polite></p>"
    return f"<figure id='plot-{escape(id)}'>{picture}{readout}</figure>" if id else picture


def _drawn(line: Line, panel: svg.Panel, place: int) -> list[str]:
    points = [
        None if value is None else (panel.x(at), panel.y(value) - (0 if value else _APART * place))
        for at, value in line.points
    ]
    parts = [svg.tag("path", d=svg.line(points), class_=f"line c{place}")]
    few = len(points) <= FEW
    for before, point, after in zip([None, *points], points, [*points[1:], None], strict=False):
        # A point alone between gaps would be invisible without a dot.
        if point is not None and (few or (before is None and after is None)):
            parts.append(svg.tag("circle", cx=point[0], cy=point[1], r=2.2, class_=f"f{place}"))
    return parts


def bar_plot(bars: Sequence[tuple[str, int]], title: str) -> str:
    """A bar for each name, with its value, on a logarithmic scale, as small values matter most."""
    if not bars:
        return "<p class=none>Nothing to show.</p>"
    row, left, room = 26, 130, WIDTH - 240
    most = max(max(value for _, value in bars), 2)
    parts = []
    for place, (name, value) in enumerate(bars):
        length = max(math.log(value + 1) / math.log(most + 1) * room, 1)
        words = humanize.count(value)
        parts += svg.bar(left, 7 + place * row, length, row - 8, name, words, class_="f0")
    return f"<figure>{svg.picture(WIDTH, row * len(bars) + 8, title, parts)}</figure>"


def legend(names: Sequence[str]) -> str:
    """The legend of colours and dashes."""
    items = []
    for place, name in enumerate(names[:COLOURS]):
        key = svg.tag("path", d="M0 4H26", class_=f"line c{place}")
        items.append(f"<span>{svg.tag('svg', key, viewBox='0 0 26 8', aria_hidden='true')}")
        items[-1] += f"{escape(humanize.shortened(name, 40))}</span>"
    return f"<p class=legend>{''.join(items)}</p>"


def _moments(first: int, last: int) -> list[tuple[int, str]]:
    """The times to write below a plot, and their formats."""
    span = (last - first) / _MS
    most = _LABELS if span < _DAY else _LONG_LABELS
    step = next((step for step in _TICK_SECONDS if span / step <= most), None)
    if step is None:
        step = math.ceil(span / most / _DAY) * _DAY
    format = "%H:%M:%S" if step < 60 else "%H:%M" if span < _DAY else "%m-%d %H:%M"
    if step >= _DAY:
        format = "%m-%d"
    step *= _MS
    start = -(-first // step) * step
    return [(at, format) for at in range(start, last + 1, step)]
