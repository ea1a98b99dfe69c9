"""The history of a job as SVG: a lane for each node. Everything that differs in colour also differs
in shape; colours are in the style sheet."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from markupsafe import Markup

from disque_console.model.lanes import Axis, Kind, Lane, LaneState, Mark, Span
from disque_console.model.life import LifeEvent
from disque_trio import humanize
from disque_trio.overview.names import shown
from disque_trio.svg import area, picture, tag, text

WIDTH: Final = 640
LEFT: Final = 14
RIGHT: Final = 18
LANE: Final = 58
TRACK: Final = 38  # from the top of a lane to its middle
BOTTOM: Final = 28
APART: Final = 96  # minimum distance between time labels
LANES: Final = 30
_THICK: Final[Mapping[LaneState, int]] = {
    LaneState.QUEUED: 4,
    LaneState.HAND: 14,
    LaneState.PAUSE: 8,
}
_SIZE: Final = 6.0  # of a mark, from its centre


def lifeline(lanes: Sequence[Lane], name: Callable[[str], str], label: str) -> Markup:
    """The picture. ``name`` returns the display name of a node; ``label`` is the text
    alternative."""
    lanes = lanes[:LANES]
    marks = [mark.time for lane in lanes for mark in lane.marks]
    ends = [moment for lane in lanes for span in lane.spans for moment in (span.start, span.end)]
    axis = Axis([*marks, *ends])
    height = LANE * len(lanes) + BOTTOM
    parts = _times(axis, height)
    for at, lane in enumerate(lanes):
        y = float(at * LANE + TRACK)
        parts.append(tag("line", x1=LEFT, y1=y, x2=WIDTH - RIGHT, y2=y, class_="rule"))
        parts.append(text(LEFT - 8, y - 19, shown(name(lane.node))))
        parts += [_span(axis, span, y) for span in lane.spans]
        for mark in lane.marks:
            parts += _mark(axis, mark, y)
    return Markup(picture(WIDTH, height, label, parts))


def _x(axis: Axis, time: float) -> float:
    return LEFT + axis.place(time) * (WIDTH - LEFT - RIGHT)


def _times(axis: Axis, height: int) -> list[str]:
    """Labels with the seconds since the first event, where there is room."""
    parts, last = [], -float(APART)
    for time in axis.times:
        x = _x(axis, time)
        if x - last < APART:
            continue
        last = x
        anchor = "start" if x < APART / 2 else "end" if x > WIDTH - APART / 2 else "middle"
        words = f"+{humanize.duration(time - axis.times[0])}" if time > axis.times[0] else "start"
        parts.append(tag("line", x1=x, y1=8, x2=x, y2=height - BOTTOM + 4, class_="rule"))
        parts.append(text(x, height - 6, words, text_anchor=anchor))
    return parts


def _span(axis: Axis, span: Span, y: float) -> str:
    left, right = _x(axis, span.start), _x(axis, span.end)
    thick = _THICK[span.state]
    took = humanize.duration(span.end - span.start)
    words = f"{span.state.value} for {took}" + (", end not found" if span.open else "")
    width, kind = max(right - left, 1.0), f"band while {_css(span.state)}"
    return area(left, y - thick / 2, width, thick, words, rx=2, class_=kind)


def _css(state: LaneState) -> str:
    return state.name.lower()


def _mark(axis: Axis, mark: Mark, y: float) -> list[str]:
    x = _x(axis, mark.time)
    lines = "\n".join(_words(event, axis.times[0]) for event in mark.events)
    shape = tag("path", d=_SHAPES[mark.kind](x, y), class_=f"mark {mark.kind.value}")
    return [shape, area(x - 9, y - 14, 18, 28, lines, class_="band")]


def _words(event: LifeEvent, begin: float) -> str:
    words = (
        f"{event.event} {humanize.moment(event.time)} UTC, +{humanize.duration(event.time - begin)}"
    )
    if event.reason:
        words += f", {event.reason}"
    return shown(words + (f", by {event.by:.80}" if event.by else ""))


def _polygon(*points: tuple[float, float]) -> Callable[[float, float], str]:
    """A closed shape around a centre."""

    def drawn(x: float, y: float) -> str:
        places = (f"{x + dx * _SIZE:.1f} {y + dy * _SIZE:.1f}" for dx, dy in points)
        return "M" + "L".join(places) + "Z"

    return drawn


def _cross(x: float, y: float) -> str:
    s = _SIZE - 1
    return f"M{x - s:.1f} {y - s:.1f}l{2 * s} {2 * s}M{x + s:.1f} {y - s:.1f}l{-2 * s} {2 * s}"


_SHAPES: Final[Mapping[Kind, Callable[[float, float], str]]] = {
    Kind.COMES: _polygon((-1, 0), (0, -1), (1, 0), (0, 1)),
    Kind.QUEUED: _polygon((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    Kind.TAKEN: _polygon((-0.8, -1), (1, 0), (-0.8, 1)),
    Kind.KEPT: _polygon((-0.25, -1.2), (0.25, -1.2), (0.25, 1.2), (-0.25, 1.2)),
    Kind.BACK: _polygon((0.8, -1), (-1, 0), (0.8, 1)),
    Kind.GOOD: _polygon((-1, -0.4), (-0.4, -1), (0.4, -1), (1, -0.4), (1, 0.4), (0.4, 1),
                        (-0.4, 1), (-1, 0.4)),
    Kind.BAD: _cross,
}  # fmt: skip
_LEGEND: Final = (
    (Kind.COMES, "arrived"), (Kind.QUEUED, "queued"), (Kind.TAKEN, "delivered"),
    (Kind.KEPT, "in progress, changed"), (Kind.BACK, "returned, paused"), (Kind.GOOD, "done"),
    (Kind.BAD, "other end"),
)  # fmt: skip


def legend(lanes: Sequence[Lane]) -> list[tuple[Markup, str]]:
    """The shapes in the picture, and their meanings."""
    there = {mark.kind for lane in lanes for mark in lane.marks}
    found = []
    for kind, words in _LEGEND:
        if kind in there:
            shape = tag("path", d=_SHAPES[kind](8, 8), class_=f"mark {kind.value}")
            size = {"viewBox": "0 0 16 16", "width": 14, "height": 14, "aria_hidden": "true"}
            found.append((Markup(tag("svg", shape, **size)), words))
    states = {span.state for lane in lanes for span in lane.spans}
    for state, thick in _THICK.items():
        if state in states:
            bar = tag("rect", x=0, y=8 - thick / 2, width=22, height=thick, rx=2,
                      class_=f"while {_css(state)}")  # fmt: skip
            size = {"viewBox": "0 0 22 16", "width": 20, "height": 14, "aria_hidden": "true"}
            found.append((Markup(tag("svg", bar, **size)), state.value))
    return found
