"""Charts of the last hours, as SVG. Colours are in the style sheet: classes ``c0`` to ``c3``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from disque_trio import humanize, svg
from disque_trio.overview.history import RANGES, SHARES, History, Range, quantiles, times_of
from disque_trio.overview.series import Point

WIDTH: Final = 640
HEIGHT: Final = 210
LEFT: Final = 64
RIGHT: Final = 10
TOP: Final = 34
BOTTOM: Final = 24
BANDS: Final = 90
DURATIONS: Final = (
    *(0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0),
    *(3_600.0, 21_600.0, 86_400.0, 518_400.0),
)
"""Marks of the axis of durations, in s."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line: its title, and the name of its values in the history."""

    title: str
    name: str


@dataclass(frozen=True, slots=True)
class Unit:
    """What an axis shows. name: above it. shown: a value as text. least: the smallest distance of
    two marks. log: whether the axis is logarithmic."""

    name: str
    shown: Callable[[float | None], str]
    least: float = 0.0
    log: bool = False


PER_SECOND: Final = Unit("jobs/s", humanize.rate)
JOBS: Final = Unit("jobs", humanize.short, 1.0)
DURATION: Final = Unit("", humanize.duration, log=True)


def range_named(name: str) -> Range:
    """One of ``RANGES``; the shortest if there is none of this name."""
    return next((each for each in RANGES if each.name == name), RANGES[0])


def chart(
    history: History | None,
    span: Range,
    lines: Sequence[Line],
    now: float,
    label: str,
    unit: Unit = PER_SECOND,
) -> Markup:
    """A chart of values of ``history`` in the time up to ``now`` (s). ``label`` is its text
    alternative."""
    points: Sequence[Point] = ()
    if history is not None:
        points = history.ranges[span.name].points([line.name for line in lines], now)
    return _drawn(points, span, [line.title for line in lines], now, label, unit)


def times_chart(history: History | None, span: Range, times: str, now: float, label: str) -> Markup:
    """A chart of the quantiles of one of ``TIMES`` in each step."""
    points = []
    if history is not None:
        series = history.ranges[span.name]
        steps = times_of(series, times, now)
        starts = series.starts(now)
        points = [
            Point(start, tuple(quantiles(step).values()))
            for start, step in zip(starts, steps, strict=False)
        ]
    return _drawn(points, span, list(SHARES), now, label, DURATION)


def _drawn(
    points: Sequence[Point],
    span: Range,
    titles: Sequence[str],
    now: float,
    label: str,
    unit: Unit,
) -> Markup:
    # It ends with the step, so that little moves until the next one.
    end = (now // span.step + 1) * span.step
    known = [value for point in points for value in point.values if value is not None]
    box = (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)
    if unit.log:
        least = min(known, default=DURATIONS[1])
        marks = svg.log_ticks(least, max(known, default=DURATIONS[3]), DURATIONS)
        panel = svg.Panel(box, (end - span.seconds, end), (marks[0], marks[-1]), "y")
    else:
        marks = svg.ticks(max(known, default=0.0), unit.least)
        panel = svg.Panel(box, (end - span.seconds, end), (0.0, marks[-1]))
    parts = panel.axis([(value, _mark(value, unit)) for value in marks])
    if unit.name:
        parts.append(svg.text(LEFT - 6, 15, unit.name, text_anchor="end"))
    for place in range(round(span.seconds / span.mark) + 1):
        ago = span.seconds - place * span.mark
        whole = f"{ago / 3_600:g} h" if span.mark >= 3_600 else f"{ago / 60:g} min"
        words = f"\N{MINUS SIGN}{whole}" if ago else "now"
        parts.append(panel.label(end - ago, words, BOTTOM - 6, WIDTH))
    for column in range(len(titles)):
        path = svg.line(_bends(_places(panel, points, column, span.step)))
        if path:
            parts.append(svg.tag("path", d=path, class_=f"line c{column}"))
    parts += _bands(panel, points, titles, end, now, span, unit)
    return Markup(svg.picture(WIDTH, HEIGHT, label, parts))


def _mark(value: float, unit: Unit) -> str:
    return unit.shown(value) if unit.log else humanize.short(value)


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


def _bends(
    places: Iterable[tuple[float, float] | None],
) -> Iterator[tuple[float, float] | None]:
    """The places of a line without those in the middle of level parts."""
    before: list[tuple[float, float] | None] = []
    for place in places:
        level = {known and round(known[1], 1) for known in (*before, place)}
        if len(before) == 2 and len(level) == 1:
            before[1] = place
            continue
        if len(before) == 2:
            yield before.pop(0)
        before.append(place)
    yield from before


def _bands(
    panel: svg.Panel,
    points: Sequence[Point],
    titles: Sequence[str],
    end: float,
    now: float,
    span: Range,
    unit: Unit,
) -> list[str]:
    """Areas with the values under the mouse as titles, and a line that appears there."""
    parts = []
    width = span.seconds / BANDS
    last = {
        int((point.start - end + span.seconds) // width): point
        for point in points
        if any(value is not None for value in point.values)
    }
    for number, point in sorted(last.items()):
        left = panel.x(end - span.seconds + number * width)
        right = panel.x(end - span.seconds + (number + 1) * width)
        x = panel.x(point.start + span.step)
        ago = humanize.duration(max(0.0, now - point.start - span.step / 2))
        values = ", ".join(
            f"{title} {unit.shown(value)}"
            for title, value in zip(titles, point.values, strict=True)
        )
        line = svg.tag("path", d=f"M{x:.0f} {TOP}V{HEIGHT - BOTTOM}", class_="cursor")
        hint = f"{ago} ago: {values}" + (f" {unit.name}" if unit.name else "")
        size = right - left, HEIGHT - TOP - BOTTOM
        parts.append(svg.tag("g", svg.area(left, TOP, *size, hint) + line, class_="band"))
    return parts
