"""Stacks as a sampling profiler counts them, and their picture: a flame graph.

Stacks come as text, one a line: frames from the outermost to the innermost with semicolons in
between, a space, and how often the stack was seen. py-spy writes that with ``--format raw``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from html import escape

Stack = tuple[str, ...]

WIDTH = 1200  # of the picture, pixels
ROW = 17
MARGIN = 10
HEAD = 46
LEAST = 0.25  # pixels; a narrower box is left out
CHARACTER = 6.6  # pixels that one takes

ENGINE = "serve"
WORKER, WAITING = "WorkerThread._work", "PyThread_acquire_lock"
_OURS, _COMPILED, _LIBRARY, _SYSTEM = "ours", "compiled", "library", "system"
COLOURS = {
    _OURS: ("#f2b45c", "the node, in Python"),
    _COMPILED: ("#e0765a", "the node, compiled"),
    _LIBRARY: ("#b9c98f", "Python's libraries"),
    _SYSTEM: ("#9db8d2", "the interpreter and the C library"),
}
_FRAME = re.compile(r"(?P<name>.*?) \((?P<file>[^()]*?)(?::\d+)?\)$")
_MYPYC = re.compile(r"CPy(?:Def|Py)_(?P<name>.+)")
_ADDRESS = re.compile(r"0x[0-9a-f]+$")


def read_stacks(lines: Iterable[str]) -> Counter[Stack]:
    """The stacks in a profiler's text, how often each was seen; those of the engine begin with
    its loop, and lines of one function are one frame. Threads that wait for work are left out.

    Raises:
        ValueError: a line is none of a stack.
    """
    found: Counter[Stack] = Counter()
    for line in lines:
        text, _, count = line.rstrip().rpartition(" ")
        if not text:
            raise ValueError(f"no stack: {line!r}")
        stack = _collapse(text.split(";"))
        if not (stack[-1].startswith(WAITING) and any(WORKER in frame for frame in stack)):
            found[stack] += int(count)
    return found


def _collapse(frames: list[str]) -> Stack:
    collapsed: list[str] = []
    for frame in frames:
        name = _frame_name(frame)
        if not name or (collapsed and collapsed[-1] == name):
            continue  # the two functions that mypyc makes of one look the same
        collapsed.append(name)
        if name.startswith(ENGINE):
            del collapsed[:-1]
    return tuple(collapsed) or ("?",)


def _frame_name(frame: str) -> str:
    """How a frame is shown: ``Engine.turn (server/engine.py)``; empty: not at all."""
    match = _FRAME.match(frame)
    name, file = (match["name"], match["file"]) if match else (frame, "")
    if _ADDRESS.match(name) or file.endswith(".h"):
        return ""  # what a header has is a part of the function that it was written into
    compiled = _MYPYC.match(name)
    if compiled is not None:
        return compiled["name"].replace("___", ".") + " (compiled)"
    if file.startswith("disque_trio/"):
        file = file.removeprefix("disque_trio/")
    return f"{name} ({file})" if file else name


def _kind(name: str) -> str:
    if name.endswith("(compiled)"):
        return _COMPILED
    if not name.endswith(".py)"):
        return _SYSTEM
    parts = ("server/", "core/", "commands/", "protocol/", "aof/", "cluster/", "eventlog/")
    ours = any(f"({part}" in name for part in (*parts, "bananaq/"))
    return _OURS if ours else _LIBRARY


class _Box:
    """A frame below others: how often it was seen, and what it called."""

    __slots__ = ("called", "count")

    def __init__(self) -> None:
        self.count = 0
        self.called: dict[str, _Box] = {}


def _tree(stacks: Counter[Stack]) -> _Box:
    root = _Box()
    for stack, count in stacks.items():
        box = root
        box.count += count
        for name in stack:
            box = box.called.setdefault(name, _Box())
            box.count += count
    return root


def _depth(box: _Box) -> int:
    return 1 + max(map(_depth, box.called.values()), default=0)


def draw(stacks: Counter[Stack], title: str) -> str:
    """A flame graph as SVG. What was called stands below its caller, as wide as it was often
    seen; a box says more when the pointer rests on it.

    Raises:
        ValueError: there is nothing to draw.
    """
    root = _tree(stacks)
    if not root.count:
        raise ValueError("no stacks")
    height = HEAD + (_depth(root) - 1) * ROW + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="18" font-size="14">{escape(title)}</text>',
    ]
    x = float(MARGIN)
    for colour, text in COLOURS.values():
        parts.append(f'<rect x="{x:.0f}" y="27" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14:.0f}" y="36">{escape(text)}</text>')
        x += 34 + len(text) * CHARACTER
    scale = (WIDTH - 2 * MARGIN) / root.count
    _draw_called(root, MARGIN, HEAD, scale, root.count, parts)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _draw_called(box: _Box, x: float, y: float, scale: float, total: int, parts: list[str]) -> None:
    ordered = sorted(box.called.items(), key=lambda item: (-item[1].count, item[0]))
    for name, called in ordered:
        width = called.count * scale
        if width >= LEAST:
            share = 100 * called.count / total
            parts.append(
                f"<g><title>{escape(name)}: {share:.1f}%</title>"
                f'<rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{ROW - 1}" '
                f'rx="1" fill="{COLOURS[_kind(name)][0]}"/>'
            )
            fits = int((width - 4) / CHARACTER)
            if fits >= 3:
                shown = name if len(name) <= fits else name[: fits - 1] + "…"
                parts.append(f'<text x="{x + 2:.1f}" y="{y + 12:.0f}">{escape(shown)}</text>')
            parts.append("</g>")
            _draw_called(called, x, y + ROW, scale, total, parts)
        x += width


def shares(stacks: Counter[Stack], most: int) -> list[tuple[str, float]]:
    """The functions in which the most stacks end, and their shares of all."""
    ends: Counter[str] = Counter()
    for stack, count in stacks.items():
        ends[stack[-1]] += count
    total = stacks.total()
    return [(name, count / total) for name, count in ends.most_common(most)]
