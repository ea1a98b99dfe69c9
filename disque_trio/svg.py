"""Draws SVG as text: elements, whole pictures, and the scales, axes, lines and bars of charts.

Colours are those of a style sheet, or attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

Span = tuple[float, float]
_HALF_LABEL = 46  # more than half the width of a label
_STEPS = (1, 2, 5, 10)
_LETTERS = {"font_size": 11}


def tag(name: str, content: str | None = None, /, **attributes: object) -> str:
    """An element; ``content`` is markup, or None.

    Underscores in the names of attributes become hyphens; one at the end is dropped (``class_``).
    Floats get one decimal. An attribute that is None is left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.1f}" if isinstance(value, float) else escape(str(value))
            words.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    start = " ".join(words)
    return f"<{start}/>" if content is None else f"<{start}>{content}</{name}>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """Text at a position."""
    return tag("text", escape(words), x=float(x), y=float(y), **attributes)


def area(x: float, y: float, width: float, height: float, hint: str, **attributes: object) -> str:
    """A rectangle with a tooltip."""
    place = {"x": x, "y": y, "width": width, "height": height}
    return tag("rect", tag("title", escape(hint)), **place, **attributes)


def bar(
    x: float, y: float, length: float, height: int, name: str, value: str, **attributes: object
) -> list[str]:
    """A bar that begins at ``x``, with its name to the left and its value to the right."""
    base = y + 0.75 * height
    return [
        text(x - 6, base, name, text_anchor="end", **_LETTERS),
        tag("rect", x=float(x), y=float(y), width=float(length), height=height, **attributes),
        text(x + length + 5, base, value, **_LETTERS),
    ]


def line(points: Iterable[tuple[float, float] | None]) -> str:
    """The ``d`` of a path through ``points``; None: a gap."""
    words = []
    pen = "M"
    for point in points:
        if point is None:
            pen = "M"
        else:
            words.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
            pen = "L"
    return "".join(words)


def picture(
    width: int, height: int, label: str, parts: Iterable[str], *, style: str = "", fill: str = ""
) -> str:
    """A whole SVG file: ``label`` describes it, ``fill`` is the colour of the background."""
    ground = [tag("rect", width=width, height=height, fill=fill)] if fill else []
    sheet = [tag("style", style)] if style else []
    body = "\n".join([*sheet, *ground, *parts])
    return (
        tag(
            "svg",
            f"\n{body}\n",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
            font_family="sans-serif",
            role="img",
            aria_label=label,
        )
        + "\n"
    )


def ticks(most: float, least_step: float = 0.0) -> list[float]:
    """0 and about four round numbers, at least ``least_step`` apart, the last one at least
    ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    rough = max(most / 4, least_step)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * step for step in _STEPS if power * step >= rough * 0.999)
    return [step * place for place in range(max(1, math.ceil(most / step - 1e-9)) + 1)]


def log_ticks(least: float, most: float, known: Sequence[float]) -> list[float]:
    """The part of ``known``, which are ascending, from below ``least`` to above ``most``: two or
    more."""
    low = max([place for place, value in enumerate(known) if value <= least], default=0)
    high = next((place for place, value in enumerate(known) if value >= most), len(known) - 1)
    low = min(low, len(known) - 2)
    return list(known[low : max(high, low + 1) + 1])


class Panel:
    """The part of a picture in which values are drawn.

    Args:
        box: its left, top, right and bottom.
        across: the values at its left and right edges.
        up: the values at its bottom and top.
        log: the axes that are logarithmic: ``x``, ``y``, both or none. Values beyond an edge are
            drawn at it.
    """

    def __init__(
        self, box: tuple[float, float, float, float], across: Span, up: Span, log: str = ""
    ) -> None:
        self.left, self.top, self.right, self.bottom = box
        self._across, self._up, self._log = across, up, log

    def x(self, value: float) -> float:
        """The position of a value on the axis across."""
        part = _share(value, *self._across, "x" in self._log)
        return self.left + part * (self.right - self.left)

    def y(self, value: float) -> float:
        """The position of a value on the upright axis."""
        return self.bottom - _share(value, *self._up, "y" in self._log) * (self.bottom - self.top)

    def rule(self, value: float, **attributes: object) -> str:
        """A line across the panel."""
        y = self.y(value)
        known = {"class_": "rule", **attributes}
        return tag("line", x1=float(self.left), y1=y, x2=float(self.right), y2=y, **known)

    def axis(self, marks: Iterable[tuple[float, str]], **attributes: object) -> list[str]:
        """Lines across the panel, with their values at the left."""
        parts = []
        for value, words in marks:
            beside = {"text_anchor": "end", **attributes}
            parts += [self.rule(value), text(self.left - 6, self.y(value) + 4, words, **beside)]
        return parts

    def label(self, value: float, words: str, down: float, edge: float, **more: object) -> str:
        """A text below a value of the axis across. One that would stick out of the picture, which
        ends at ``edge``, ends there."""
        x = self.x(value)
        near = x > edge - _HALF_LABEL
        known = {"text_anchor": "end" if near else "middle", **more}
        return text(edge if near else x, self.bottom + down, words, **known)


def _share(value: float, low: float, high: float, log: bool) -> float:
    if log:
        if value <= 0:
            return 0.0
        value, low, high = math.log(value), math.log(low), math.log(high)
    return max(0.0, min(1.0, (value - low) / (high - low)))
