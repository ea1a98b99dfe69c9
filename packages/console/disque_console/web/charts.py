"""Charts of the last hour, as SVG. Colours are in the style sheet: classes ``c0`` to ``c3``."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from disque_trio import humanize, svg
from disque_trio.overview.series import Point, Series

WIDTH: Final = 640
HEIGHT: Final = 190
LEFT: Final = 46
RIGHT: Final = 10
TOP: Final = 10
BOTTOM: Final = 24
POINTS: Final = 180
BANDS: Final = 60
SPANS: Final = (240.0, 1200.0)  # s that a chart shows while its history is short


@dataclass(frozen=True, slots=True)
class Line:
    """A line: its title, and the name of its values in the series."""

    title: str
    name: str


def chart(
    series: Series | None,
    lines: Sequence[Line],
    now: float,
    label: str,
    shown: Callable[[float | None], str] = humanize.rate,
) -> Markup:
    """A chart of values of ``series`` in the hour up to ``now`` (s), or less if the history is
    shorter. ``label`` is its text alternative."""
    span, step = _extent(series, now)
    points = (
        [] if series is None else series.points(now, math.ceil(series.step * series.count / step))
    )
    names = () if series is None else (*series.sums, *series.levels)
    columns = [names.index(line.name) for line in lines] if series is not None else []
    highest = max(
        (point.values[column] or 0.0 for point in points for column in columns), default=0.0
    )
    ticks = svg.ticks(highest, 0.0 if shown is humanize.rate else 1.0)
    box = (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)
    panel = svg.Panel(box, (now - span, now), (0.0, ticks[-1]))
    parts = panel.axis([(value, humanize.short(value)) for value in ticks])
    for quarter in range(5):
        ago = span * (4 - quarter) / 4
        words = f"\N{MINUS SIGN}{round(ago / 60)} min" if ago else "now"
        parts.append(panel.label(now - ago, words, BOTTOM - 6, WIDTH))
    for number, column in enumerate(columns):
        path = svg.line(_places(panel, points, column, step))
        if path:
            parts.append(svg.tag("path", d=path, class_=f"line c{number}"))
    parts += _bands(panel, points, columns, lines, now, span, shown)
    return Markup(svg.picture(WIDTH, HEIGHT, label, parts))


def _extent(series: Series | None, now: float) -> tuple[float, float]:
    """The number of seconds shown, and the seconds per point."""
    if series is None:
        return 3600.0, 3600.0
    whole = series.step * series.count
    known = whole if series.empty else now - series.since + series.step
    span = next((span for span in SPANS if known <= span < whole), whole)
    return span, series.step * max(1, math.ceil(span / series.step / POINTS))


def _places(
    panel: svg.Panel, points: Sequence[Point], column: int, step: float
) -> Iterator[tuple[float, float] | None]:
    """Where a line goes: through the ends of its steps, and from the beginning of the first one, so
    that an isolated step is visible."""
    joined = False
    for point in points:
        value = point.values[column]
        if value is None:
            yield None
        else:
            if not joined:
                yield panel.x(point.start), panel.y(value)
            yield panel.x(point.start + step), panel.y(value)
        joined = value is not None


def _bands(
    panel: svg.Panel,
    points: Sequence[Point],
    columns: Sequence[int],
    lines: Sequence[Line],
    now: float,
    span: float,
    shown: Callable[[float | None], str],
) -> list[str]:
    """Invisible areas with the values under the mouse as titles."""
    parts = []
    start, width = now - span, span / BANDS
    last: dict[int, Point] = {}
    for point in points:
        last[int((point.start - start) // width)] = point
    for number, point in sorted(last.items()):
        if not 0 <= number < BANDS:
            continue
        left = panel.x(start + number * width)
        right = panel.x(start + (number + 1) * width)
        ago = humanize.duration(max(0.0, now - point.start))
        values = ", ".join(
            f"{line.title} {shown(point.values[column])}"
            for line, column in zip(lines, columns, strict=True)
        )
        hint = f"{ago} ago: {values}"
        height = HEIGHT - TOP - BOTTOM
        parts.append(svg.area(left, TOP, right - left, height, hint, class_="band"))
    return parts
