"""Fits arbitrary text into the cells of a terminal."""

from collections.abc import Iterable
from unicodedata import category, east_asian_width

from disque_trio.overview.names import shown

CUT = "~"
"""Marks where text was cut off."""


def cells(text: str) -> int:
    """How many cells ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def fit(text: str, width: int) -> str:
    """As much of ``text`` as fits into ``width`` cells, with invisible characters escaped."""
    if width <= 0:
        return ""
    # Combining accents take no cells, but there may be a million of them.
    text = shown(text[: 4 * width + 4])
    if cells(text) <= width and len(text) <= 4 * width:
        return text
    taken, used = [], len(CUT)
    for char in text[: 4 * width]:
        used += _cells_of(char)
        if used > width:
            break
        taken.append(char)
    return "".join(taken) + CUT


def wrap(parts: Iterable[str], width: int, gap: str = "   ") -> list[str]:
    """Lines of ``width`` cells with ``parts``; a part is only broken if it is longer than a
    line."""
    lines: list[str] = []
    for part in parts:
        fitting = fit(part, width)
        if lines and cells(lines[-1]) + len(gap) + cells(fitting) <= width:
            lines[-1] += gap + fitting
        else:
            lines.append(fitting)
    return lines


def _cells_of(char: str) -> int:
    if category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
