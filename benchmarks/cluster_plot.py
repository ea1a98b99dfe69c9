"""A plot of what a job costs in clusters of growing size."""

from __future__ import annotations

from collections.abc import Sequence

from disque_trio import svg
from tools.bench.plots import COLORS, STYLE, legend

TITLE = "CPU time of all nodes for a job, by the number of nodes"
WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 62, 48
LEGEND = 210  # its width, above the panel


def plot(lines: Sequence[tuple[str, Sequence[tuple[int, float]]]], note: str) -> str:
    """A line for each kind of cluster.

    Args:
        lines: their names, and for each number of nodes the CPU time a job (µs).
        note: says what the jobs are.
    """
    counts = sorted({count for _, points in lines for count, _ in points})
    marks = svg.ticks(max(cost for _, points in lines for _, cost in points))
    panel = svg.Panel(
        (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM), (0, counts[-1]), (0.0, marks[-1])
    )
    parts = [
        svg.text(LEFT, 22, TITLE, font_size=15, font_weight="bold"),
        svg.text(LEFT, 38, note, font_size=11, class_="faint"),
        *panel.axis([(value, f"{value:g} µs") for value in marks], font_size=11),
        *(panel.label(count, str(count), 16, WIDTH, font_size=11) for count in counts),
    ]
    for number, (_, points) in enumerate(lines):
        path = svg.line((panel.x(count), panel.y(cost)) for count, cost in points)
        color = COLORS[number % len(COLORS)]
        parts.append(svg.tag("path", d=path, fill="none", stroke=color, stroke_width=2))
    parts += legend(panel, [name for name, _ in lines], panel.right - panel.left - LEGEND, -20)
    middle = (panel.left + panel.right) / 2
    parts.append(
        svg.text(middle, HEIGHT - 12, "nodes", font_size=11, class_="faint", text_anchor="middle")
    )
    return svg.picture(WIDTH, HEIGHT, TITLE, parts, style=STYLE)
