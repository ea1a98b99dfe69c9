"""A plot of latencies: the duration of a cycle, by the fraction of cycles that take longer.

Both axes are logarithmic, so that one cycle in ten thousand gets as much room as every second one.
"""

from __future__ import annotations

from collections.abc import Sequence

from disque_trio import svg
from tools.bench.load import percentile
from tools.bench.plots import COLORS, STYLE, decades, ground, legend

Times = Sequence[float]
TITLE = "Time of a cycle by percentile, in all situations"
WIDTH = 960
PANEL_WIDTH, PANEL_HEIGHT = 450, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 34
TITLE_HEIGHT = 44
HALF = 0.5
SHORTEST = 1e-4  # s, the highest start of the axis
RAREST = 1e-4  # the last fraction on the axis
MOST_POINTS = 60
PARTS = ((0.5, "50%"), (0.1, "90%"), (0.01, "99%"), (0.001, "99.9%"), (0.0001, "99.99%"))


def plot(found: Sequence[tuple[str, float, Times]], levels: Sequence[str], aim: float) -> str:
    """A panel for each of ``levels``, with a line for each load, and one for half load in all
    situations.

    Args:
        found: situation, load and sorted times (s). aim: a time to mark.
    """
    panels = [
        (
            f"appendfsync: {level}" if level != levels[0] else "no file",
            [
                (f"{load:.0%} of the peak rate", times)
                for name, load, times in found
                if name == level
            ],
        )
        for level in levels
    ]
    half = [(name, times) for name, load, times in found if load == HALF and name not in levels[1:]]
    panels.append(("half load, while something else goes on", half))
    panels = [(title, lines) for title, lines in panels if lines]
    everything = [times for _, lines in panels for _, times in lines]
    shortest = min(percentile(times, 0.5) for times in everything)
    axis = decades(min(shortest, SHORTEST), max(times[-1] for times in everything))
    title = "time of a full cycle (ADDJOB, GETJOB, ACKJOB) by percentile"
    parts = [
        svg.text(LEFT, 22, title, font_size=15, font_weight="bold"),
        svg.text(LEFT, 38, "dashed: the aim for 99% at half load", font_size=11, class_="faint"),
    ]
    for number, (title, lines) in enumerate(panels):
        x = LEFT + number % 2 * (PANEL_WIDTH + 12)
        y = TITLE_HEIGHT + number // 2 * PANEL_HEIGHT + TOP
        parts += _panel(x, y, title, lines, axis, aim)
    height = TITLE_HEIGHT + (len(panels) + 1) // 2 * PANEL_HEIGHT + 8
    return svg.picture(WIDTH, height, TITLE, parts, style=STYLE)


def points(times: Times) -> list[tuple[float, float]]:
    """The line for sorted times: fractions of the cycles, and the time (s) that each fraction
    exceeds; from all cycles to the rarest in the plot, or in the data."""
    rarest = max(RAREST, 1 / len(times))
    steps = [rarest ** (number / MOST_POINTS) for number in range(1, MOST_POINTS + 1)]
    return [(part, percentile(times, 1 - part)) for part in steps]


def _panel(
    x: float,
    y: float,
    title: str,
    lines: Sequence[tuple[str, Times]],
    axis: svg.Span,
    aim: float,
) -> list[str]:
    box = (x, y, x + PANEL_WIDTH - LEFT - RIGHT, y + PANEL_HEIGHT - TOP - BOTTOM)
    panel = svg.Panel(box, (1.0, RAREST), axis, "xy")
    made = ground(panel, title, axis, PARTS)
    made.append(panel.rule(aim, stroke_dasharray="5 4", style="stroke-opacity:1"))
    for number, (_, times) in enumerate(lines):
        path = svg.line((panel.x(part), panel.y(time)) for part, time in points(times))
        color = COLORS[number % len(COLORS)]
        made.append(svg.tag("path", d=path, fill="none", stroke=color, stroke_width=2))
    return made + legend(panel, [name for name, _ in lines])
