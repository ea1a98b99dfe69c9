"""Charts of the last hour, as SVG. Colours are in the style sheet: classes ``c0`` to ``c3``."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from disque_trio import humanize
from disque_trio.overview.series import Point, Series
from disque_trio.svg import picture, tag, text

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
    top, ticks = scale(highest, 0.0 if shown is humanize.rate else 1.0)
    frame = _Frame(now - span, now, top)
    parts = [*_grid(frame, ticks, span, shown)]
    for number, column in enumerate(columns):
        path = _path(frame, points, column, step)
        if path:
            parts.append(tag("path", d=path, class_=f"line c{number}"))
    parts += _bands(frame, points, columns, lines, now, span, shown)
    drawing = picture(WIDTH, HEIGHT, label, parts)
    return Markup(drawing)


def _extent(series: Series | None, now: float) -> tuple[float, float]:
    """The number of seconds shown, and the seconds per point."""
    if series is None:
        return 3600.0, 3600.0
    whole = series.step * series.count
    known = whole if series.empty else now - series.since + series.step
    span = next((span for span in SPANS if known <= span < whole), whole)
    return span, series.step * max(1, math.ceil(span / series.step / POINTS))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Maps moments to x and values to y."""

    start: float
    end: float
    top: float

    def x(self, moment: float) -> float:
        part = (moment - self.start) / (self.end - self.start)
        return LEFT + max(0.0, min(1.0, part)) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)


def scale(highest: float, least: float = 0.0) -> tuple[float, list[float]]:
    """A round number above ``highest``, and the ticks up to it, at least ``least`` apart."""
    if highest <= 0:
        return 1.0, [0.0, 1.0]
    rough = max(highest / 4, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    marks = max(1, math.ceil(highest / step - 1e-9))
    return step * marks, [step * number for number in range(marks + 1)]


def _grid(
    frame: _Frame, ticks: Sequence[float], span: float, shown: Callable[[float | None], str]
) -> list[str]:
    parts = []
    whole = all(value.is_integer() and value < 10 for value in ticks)
    for value in ticks:
        y = frame.y(value)
        parts.append(tag("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, class_="rule"))
        parts.append(
            text(LEFT - 6, y + 4, f"{value:.0f}" if whole else shown(value), text_anchor="end")
        )
    for quarter in range(5):
        moment = frame.start + span * quarter / 4
        minutes = round(span * (4 - quarter) / 4 / 60)
        anchor = "end" if quarter == 4 else "middle" if quarter else "start"
        words = "now" if quarter == 4 else f"\N{MINUS SIGN}{minutes} min"
        parts.append(text(frame.x(moment), HEIGHT - 6, words, text_anchor=anchor))
    return parts


def _path(frame: _Frame, points: Sequence[Point], column: int, step: float) -> str:
    words: list[str] = []
    joined = False
    for point in points:
        value = point.values[column]
        if value is None:
            joined = False
            continue
        x = frame.x(min(point.start + step, frame.end))
        if not joined:
            # Make an isolated step visible.
            words.append(f"M{frame.x(point.start):.1f} {frame.y(value):.1f}")
        words.append(f"L{x:.1f} {frame.y(value):.1f}")
        joined = True
    return "".join(words)


def _bands(
    frame: _Frame,
    points: Sequence[Point],
    columns: Sequence[int],
    lines: Sequence[Line],
    now: float,
    span: float,
    shown: Callable[[float | None], str],
) -> list[str]:
    """Invisible areas with the values under the mouse as titles."""
    parts = []
    width = span / BANDS
    last: dict[int, Point] = {}
    for point in points:
        last[int((point.start - frame.start) // width)] = point
    for number, point in sorted(last.items()):
        if not 0 <= number < BANDS:
            continue
        left = frame.x(frame.start + number * width)
        right = frame.x(frame.start + (number + 1) * width)
        ago = humanize.duration(max(0.0, now - point.start))
        values = ", ".join(
            f"{line.title} {shown(point.values[column])}"
            for line, column in zip(lines, columns, strict=True)
        )
        title = tag("title", f"{ago} ago: {values}")
        height = HEIGHT - TOP - BOTTOM
        parts.append(
            tag("rect", title, x=left, y=TOP, width=right - left, height=height, class_="band")
        )
    return parts
