"""Shared by plots of times: a panel with a logarithmic upright time axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from disque_trio import humanize, svg

COLORS = ("#2f81c1", "#d97706", "#c0392b", "#7d5bbe")

# A picture cannot know the colours of the page around it, only whether the page is dark.
STYLE = (
    "text{fill:#1e293b}.faint{fill:#64748b}.rule{stroke:#94a3b8;stroke-opacity:.35}"
    ".frame{stroke:#64748b;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e2e8f0}.faint{fill:#94a3b8}}"
)
FAINT = {"class_": "faint", "font_size": 10}


def decades(shortest: float, longest: float) -> svg.Span:
    """The powers of ten (s) at which an axis for these times begins and ends."""
    low = math.floor(math.log10(shortest))
    return 10.0**low, 10.0 ** max(math.ceil(math.log10(longest)), low + 1)


def ground(
    panel: svg.Panel, title: str, axis: svg.Span, marks: Iterable[tuple[float, str]]
) -> list[str]:
    """Everything but the data. ``axis``: from decades; ``marks``: values on the axis across, with
    names."""
    times = [axis[0] * 10.0**n for n in range(round(math.log10(axis[1] / axis[0])) + 1)]
    parts = [svg.text(panel.left, panel.top - 8, title, font_size=12, font_weight="bold")]
    parts += panel.axis([(time, humanize.duration(time)) for time in times], **FAINT)
    for value, name in marks:
        x = panel.x(value)
        parts.append(svg.tag("line", class_="rule", x1=x, y1=panel.top, x2=x, y2=panel.bottom))
        parts.append(panel.label(value, name, 14, math.inf, **FAINT))
    size = {"width": panel.right - panel.left, "height": panel.bottom - panel.top}
    return [*parts, svg.tag("rect", class_="frame", x=panel.left, y=panel.top, **size)]


def legend(
    panel: svg.Panel, names: Sequence[str], across: float = 8, down: float = 14
) -> list[str]:
    """A legend with ``names`` in the order of COLORS, in the corner or elsewhere."""
    parts = []
    for number, name in enumerate(names):
        x, y = panel.left + across, panel.top + down + 14 * number
        color = COLORS[number % len(COLORS)]
        parts.append(svg.tag("rect", x=x, y=y - 8, width=14, height=4, fill=color))
        parts.append(svg.text(x + 19, y - 2, name, font_size=11))
    return parts
