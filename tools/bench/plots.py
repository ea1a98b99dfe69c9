"""Shared by plots of times: a panel with a logarithmic vertical time axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from disque_trio import svg

COLORS = ("#2f81c1", "#d97706", "#c0392b", "#7d5bbe")

# A picture cannot know the colours of the page around it, only whether the page is dark.
STYLE = (
    "text{fill:#1e293b}.faint{fill:#64748b}.grid{stroke:#94a3b8;stroke-opacity:.35}"
    ".frame{stroke:#64748b;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e2e8f0}.faint{fill:#94a3b8}}"
)


def decades(shortest: float, longest: float) -> tuple[int, int]:
    """The powers of ten (s) at which an axis for these times begins and ends."""
    low = math.floor(math.log10(shortest))
    return low, max(math.ceil(math.log10(longest)), low + 1)


class Panel:
    """A panel at a position.

    Args:
        axis: the powers of ten (s) at which it begins and ends.
    """

    def __init__(
        self, x: float, y: float, width: float, height: float, axis: tuple[int, int]
    ) -> None:
        self.x = x
        self.y = y
        self.width = width
        self.height = height
        self._low, self._high = axis

    def up(self, seconds: float) -> float:
        """The y position of a time."""
        share = (math.log10(max(seconds, 10**self._low)) - self._low) / (self._high - self._low)
        return self.y + self.height * (1 - share)

    def ground(self, title: str, marks: Iterable[tuple[float, str]]) -> list[str]:
        """Everything but the data; ``marks``: positions on the horizontal axis, with names."""
        bottom = self.y + self.height
        parts = [svg.text(self.x, self.y - 8, title, font_size=12, font_weight="bold")]
        for decade in range(self._low, self._high + 1):
            at = self.up(10**decade)
            parts += [self.rule(at), _faint(self.x - 5, at + 4, time_name(decade), "end")]
        for at, name in marks:
            parts.append(svg.tag("line", class_="grid", x1=at, y1=self.y, x2=at, y2=bottom))
            parts.append(_faint(at, bottom + 14, name, "middle"))
        size = {"width": self.width, "height": self.height}
        parts.append(svg.tag("rect", class_="frame", x=self.x, y=self.y, **size))
        return parts

    def rule(self, at: float, **attributes: object) -> str:
        """A horizontal line."""
        ends = {"x1": self.x, "y1": at, "x2": self.x + self.width, "y2": at}
        return svg.tag("line", class_="grid", **ends, **attributes)

    def legend(self, names: Sequence[str], across: float = 8, down: float = 14) -> list[str]:
        """A legend with ``names`` in the order of COLORS, in the corner or elsewhere."""
        parts = []
        for number, name in enumerate(names):
            x, y = self.x + across, self.y + down + 14 * number
            color = COLORS[number % len(COLORS)]
            parts.append(svg.tag("rect", x=x, y=y - 8, width=14, height=4, fill=color))
            parts.append(svg.text(x + 19, y - 2, name, font_size=11))
        return parts


def _faint(at: float, down: float, words: str, anchor: str) -> str:
    return svg.text(at, down, words, font_size=10, class_="faint", text_anchor=anchor)


def time_name(decade: int) -> str:
    """A power of ten (s) for display."""
    if decade < -3:
        return f"{10 ** (decade + 6):g} µs"
    return f"{10 ** (decade + 3):g} ms" if decade < 0 else f"{10**decade:g} s"
