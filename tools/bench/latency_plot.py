"""A picture of latencies: how long a cycle takes, by the part of all cycles that take longer.

Both axes are logarithmic, so that one cycle in ten thousand has as much room as every second one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from disque_trio import svg
from tools.bench.load import percentile

Times = Sequence[float]
TITLE = "Time of a cycle by percentile, in all situations"
WIDTH = 960
PANEL_WIDTH, PANEL_HEIGHT = 450, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 34
TITLE_HEIGHT = 44
HALF = 0.5
SHORTEST = 1e-4  # s, where the axis begins at the latest
RAREST = 1e-4  # the last part that the axis shows
MOST_POINTS = 60
COLORS = ("#2f81c1", "#d97706", "#c0392b", "#7d5bbe")
PARTS = ((0.5, "50%"), (0.1, "90%"), (0.01, "99%"), (0.001, "99.9%"), (0.0001, "99.99%"))

# A picture cannot know the colours of the page around it, but whether it is dark.
STYLE = (
    "text{fill:#1e293b}.faint{fill:#64748b}.grid{stroke:#94a3b8;stroke-opacity:.35}"
    ".frame{stroke:#64748b;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e2e8f0}.faint{fill:#94a3b8}}"
)


def plot(found: Sequence[tuple[str, float, Times]], levels: Sequence[str], aim: float) -> str:
    """A panel for each of ``levels``, with a line for each load, and one with half the load in all
    situations.

    Args:
        found: situation, load and sorted times (s). aim: a time that is marked.
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
    low = math.floor(math.log10(min(shortest, SHORTEST)))
    high = max(math.ceil(math.log10(max(times[-1] for times in everything))), low + 1)
    title = "time of a full cycle (ADDJOB, GETJOB, ACKJOB) by percentile"
    parts = [
        svg.text(LEFT, 22, title, font_size=15, font_weight="bold"),
        svg.text(LEFT, 38, "dashed: the aim for 99% at half load", font_size=11, class_="faint"),
    ]
    for number, (title, lines) in enumerate(panels):
        x = LEFT + number % 2 * (PANEL_WIDTH + 12)
        y = TITLE_HEIGHT + number // 2 * PANEL_HEIGHT + TOP
        parts += _panel(x, y, title, lines, (low, high), aim)
    height = TITLE_HEIGHT + (len(panels) + 1) // 2 * PANEL_HEIGHT + 8
    return svg.picture(WIDTH, height, TITLE, parts, style=STYLE)


def points(times: Times) -> list[tuple[float, float]]:
    """The line of sorted times: parts of all cycles, and the time (s) that such a part is above;
    from all of them to the rarest that the picture shows, or that there are."""
    rarest = max(RAREST, 1 / len(times))
    steps = [rarest ** (number / MOST_POINTS) for number in range(1, MOST_POINTS + 1)]
    return [(part, percentile(times, 1 - part)) for part in steps]


def _panel(
    x: float,
    y: float,
    title: str,
    lines: Sequence[tuple[str, Times]],
    decades: tuple[int, int],
    aim: float,
) -> list[str]:
    low, high = decades
    width = PANEL_WIDTH - LEFT - RIGHT
    height = PANEL_HEIGHT - TOP - BOTTOM

    def across(part: float) -> float:
        return x + width * math.log10(part) / math.log10(RAREST)

    def up(seconds: float) -> float:
        share = (math.log10(max(seconds, 10**low)) - low) / (high - low)
        return y + height * (1 - share)

    def rule(at: float, **attributes: object) -> str:
        return svg.tag("line", class_="grid", x1=x, y1=at, x2=x + width, y2=at, **attributes)

    def faint(at: float, down: float, words: str, anchor: str) -> str:
        return svg.text(at, down, words, font_size=10, class_="faint", text_anchor=anchor)

    made = [svg.text(x, y - 8, title, font_size=12, font_weight="bold")]
    for decade in range(low, high + 1):
        at = up(10**decade)
        made += [rule(at), faint(x - 5, at + 4, _time(decade), "end")]
    for part, name in PARTS:
        at = across(part)
        made.append(svg.tag("line", class_="grid", x1=at, y1=y, x2=at, y2=y + height))
        made.append(faint(at, y + height + 14, name, "middle"))
    made.append(svg.tag("rect", class_="frame", x=x, y=y, width=width, height=height))
    made.append(rule(up(aim), stroke_dasharray="5 4", style="stroke-opacity:1"))
    for number, (name, times) in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in points(times))
        made.append(svg.tag("polyline", points=path, fill="none", stroke=color, stroke_width=2))
        at = y + 14 + 14 * number
        made.append(svg.tag("rect", x=x + 8, y=at - 8, width=14, height=4, fill=color))
        made.append(svg.text(x + 27, at - 2, name, font_size=11))
    return made


def _time(decade: int) -> str:
    if decade < -3:
        return f"{10 ** (decade + 6):g} µs"
    return f"{10 ** (decade + 3):g} ms" if decade < 0 else f"{10**decade:g} s"
