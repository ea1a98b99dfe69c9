"""A plot of how long one tenant's jobs wait while another tenant has many in the queue."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.tenants_load import Waited
from disque_trio import svg
from tools.bench.plots import COLORS, STYLE, decades, ground, legend

TITLE = "How long the jobs of a quiet tenant wait beside a noisy one"
WIDTH, HEIGHT = 960, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 74, 50
MARKS = 8  # on the time axis, about
STEPS = (1, 2, 5)
DOT = 4
LEGEND = 140  # its width, above the panel


def plot(found: Sequence[tuple[str, Sequence[Waited]]], jobs: int) -> str:
    """A dot for each job of the quiet tenant, by when it was added.

    Args:
        found: the names of the kinds of queue, with the results; jobs: of the noisy tenant.
    """
    waits = [one.wait for _, quiet in found for one in quiet]
    axis = decades(min(waits), max(waits))
    times = [one.added for _, quiet in found for one in quiet]
    first, last = min(*times, 0.0), max(*times, 1.0)
    box = (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)
    panel = svg.Panel(box, (first, last), axis, "y")
    marks = [(at, f"{at:g} s") for at in _marks(first, last)]
    parts = [
        svg.text(LEFT, 24, TITLE, font_size=15, font_weight="bold"),
        svg.text(
            LEFT,
            42,
            f"a dot: one of its jobs. At 0 s the other tenant adds {jobs:,} jobs to the same queue",
            font_size=11,
            class_="faint",
        ),
        *ground(panel, "from added to delivered", axis, marks),
    ]
    for number, (_, quiet) in enumerate(found):
        # A line of length 0 with round ends is a dot.
        dots = " ".join(f"M{panel.x(one.added):.1f} {panel.y(one.wait):.1f}h0" for one in quiet)
        color = COLORS[number % len(COLORS)]
        parts.append(
            svg.tag("path", d=dots, stroke=color, stroke_width=DOT, stroke_linecap="round")
        )
    parts += legend(panel, [name for name, _ in found], panel.right - panel.left - LEGEND, -20)
    middle = (panel.left + panel.right) / 2
    parts.append(
        svg.text(
            middle,
            HEIGHT - 14,
            "when the job was added",
            font_size=11,
            class_="faint",
            text_anchor="middle",
        )
    )
    return svg.picture(WIDTH, HEIGHT, TITLE, parts, style=STYLE)


def _marks(first: float, last: float) -> list[float]:
    """Round times from ``first`` to ``last``."""
    unit = 10.0**-6
    while True:
        for step in STEPS:
            if (last - first) / (step * unit) <= MARKS:
                return [
                    n * step * unit
                    for n in range(-MARKS, MARKS + 1)
                    if first <= n * step * unit <= last
                ]
        unit *= 10
