"""The histograms as a picture: how long a cycle takes, by the part of all cycles that take longer.

Both axes are logarithmic, so that one cycle in ten thousand has as much room as every second one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tools.bench.latency.histogram import Histogram
from tools.bench.latency.situations import HALF, LEVELS, Finding
from tools.bench.latency.tables import AIM_P99

WIDTH = 960
PANEL_WIDTH, PANEL_HEIGHT = 450, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 34
TITLE_HEIGHT = 44
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


def plot(found: Sequence[Finding]) -> str:
    """A panel for each way to keep the file, with a line for each load, and one with half the load
    in all situations."""
    panels = []
    for level in LEVELS:
        lines = [
            (f"{one.load:.0%} of the peak rate", one.measured.load.cycles)
            for one in found
            if one.situation == level
        ]
        panels.append((f"appendfsync: {level}" if level != LEVELS[0] else "no file", lines))
    half = [
        (one.situation, one.measured.load.cycles)
        for one in found
        if one.load == HALF and one.situation not in LEVELS[1:]
    ]
    panels.append(("half load, while something else goes on", half))
    panels = [(title, lines) for title, lines in panels if lines]
    longest = max(one.worst for _, lines in panels for _, one in lines)
    shortest = min(one.percentile(0.5) for _, lines in panels for _, one in lines)
    low = math.floor(math.log10(min(shortest, SHORTEST)))
    high = max(math.ceil(math.log10(longest)), low + 1)
    parts = [
        _text(LEFT, 22, "time of a full cycle (ADDJOB, GETJOB, ACKJOB) by percentile", 15, "bold"),
        _text(LEFT, 38, "dashed: the aim for 99% at half load", 11, "faint"),
    ]
    for number, (title, lines) in enumerate(panels):
        x = LEFT + number % 2 * (PANEL_WIDTH + 12)
        y = TITLE_HEIGHT + number // 2 * PANEL_HEIGHT + TOP
        parts += _panel(x, y, title, lines, (low, high))
    height = TITLE_HEIGHT + (len(panels) + 1) // 2 * PANEL_HEIGHT + 8
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" role="img" '
        'aria-label="Time of a cycle by percentile, in all situations">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def points(found: Histogram) -> list[tuple[float, float]]:
    """The line of a histogram: parts of all cycles, and the time (s) that such a part is above;
    from all of them to the rarest that the picture shows, or that there are."""
    rarest = max(RAREST, 1 / found.total)
    steps = [rarest ** (number / MOST_POINTS) for number in range(1, MOST_POINTS + 1)]
    return [(part, found.percentile(1 - part)) for part in steps]


def _panel(
    x: float,
    y: float,
    title: str,
    lines: Sequence[tuple[str, Histogram]],
    decades: tuple[int, int],
) -> list[str]:
    low, high = decades
    width = PANEL_WIDTH - LEFT - RIGHT
    height = PANEL_HEIGHT - TOP - BOTTOM

    def across(part: float) -> float:
        return x + width * math.log10(part) / math.log10(RAREST)

    def up(seconds: float) -> float:
        share = (math.log10(max(seconds, 10**low)) - low) / (high - low)
        return y + height * (1 - share)

    made = [_text(x, y - 8, title, 12, "bold")]
    for decade in range(low, high + 1):
        at = up(10**decade)
        made.append(_line(x, at, x + width, at, "grid"))
        made.append(_text(x - 5, at + 4, _time(decade), 10, "faint", "end"))
    for part, name in PARTS:
        at = across(part)
        made.append(_line(at, y, at, y + height, "grid"))
        made.append(_text(at, y + height + 14, name, 10, "faint", "middle"))
    made.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}"/>')
    aim = up(AIM_P99)
    made.append(
        f'<line x1="{x}" y1="{aim:.1f}" x2="{x + width}" y2="{aim:.1f}" class="grid" '
        'stroke-dasharray="5 4" style="stroke-opacity:1"/>'
    )
    for number, (name, found) in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in points(found))
        made.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        at = y + 14 + 14 * number
        made.append(f'<rect x="{x + 8}" y="{at - 8}" width="14" height="4" fill="{color}"/>')
        made.append(_text(x + 27, at - 2, name, 11))
    return made


def _time(decade: int) -> str:
    if decade < -3:
        return f"{10 ** (decade + 6):g} µs"
    return f"{10 ** (decade + 3):g} ms" if decade < 0 else f"{10**decade:g} s"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, size: int, kind: str = "", anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if kind == "bold" else ""
    faint = ' class="faint"' if kind == "faint" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight}{faint}>'
        f"{escape(text)}</text>"
    )
