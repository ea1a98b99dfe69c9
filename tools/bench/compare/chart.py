"""A bar chart of the figures, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from tools.bench.compare.tables import LEVEL_TITLES, Figure, rate_text

WIDTH = 960
MARGIN = 16
TITLE_HEIGHT = 56
PANEL_TITLE_HEIGHT = 26
BAR_HEIGHT = 16
BAR_STEP = 20
PANEL_GAP = 14
LABEL_WIDTH = 190
VALUE_WIDTH = 78
OURS, THEIRS = "#c2410c", "#94a3b8"
INK, FAINT = "#1e293b", "#64748b"


def chart(found: Sequence[Figure]) -> str:
    """Rates on the left, CPU time on the right, a row of two panels for each setting. The first
    server of a setting stands out."""
    parts: list[str] = []
    half = (WIDTH - 2 * MARGIN) // 2
    at = TITLE_HEIGHT
    for (level, pipeline), group in groupby(found, lambda one: (one.level, one.pipeline)):
        figures = list(group)
        title = f"Synced: {LEVEL_TITLES[level]}. Pipelined by {pipeline}"
        parts.append(_text(MARGIN, at + 17, title, INK, 13, bold=True))
        at += PANEL_TITLE_HEIGHT
        rates = [(one.rate, rate_text(one)) for one in figures]
        costs = [(one.cpu_us, f"{one.cpu_us:.1f}") for one in figures]
        names = [one.label for one in figures]
        parts += _bars(MARGIN, at, half, names, rates)
        parts += _bars(MARGIN + half, at, half, names, costs)
        at += BAR_STEP * len(figures) + PANEL_GAP
    head = [
        _text(MARGIN, 24, "jobs a second (longer is better)", INK, 15, bold=True),
        _text(MARGIN + half, 24, "CPU µs a job (shorter is better)", INK, 15, bold=True),
        _text(
            MARGIN, 43, "a job: added, taken, acknowledged; +: generator at its limit", FAINT, 11
        ),
    ]
    lines = "\n".join(head + parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {at}" width="{WIDTH}" '
        f'height="{at}" font-family="sans-serif" role="img" '
        'aria-label="Jobs a second and CPU time a job of each server">\n'
        f'<rect width="{WIDTH}" height="{at}" fill="#ffffff"/>\n{lines}\n</svg>\n'
    )


def _bars(
    left: int, top: int, width: int, names: Sequence[str], bars: Sequence[tuple[float, str]]
) -> list[str]:
    longest = max(value for value, _ in bars) or 1.0
    room = width - LABEL_WIDTH - VALUE_WIDTH
    x = left + LABEL_WIDTH
    parts = []
    for number, (name, (value, text)) in enumerate(zip(names, bars, strict=True)):
        y = top + number * BAR_STEP
        size = max(1.0, room * value / longest)
        color = THEIRS if number else OURS
        parts.append(_text(x - 6, y + 12, name, INK, 11, anchor="end"))
        parts.append(
            f'<rect x="{x}" y="{y}" width="{size:.1f}" height="{BAR_HEIGHT}" fill="{color}"/>'
        )
        parts.append(_text(x + size + 4, y + 12, text, INK, 11))
    return parts


def _text(
    x: float, y: float, text: str, color: str, size: int, bold: bool = False, anchor: str = "start"
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" '
        f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
