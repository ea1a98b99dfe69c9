"""Stack samples of a profiler, and their picture: a flame graph.

Stacks are lines of text: frames from the outermost to the innermost separated by semicolons, a
space, and a count. py-spy writes this with ``--format raw``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path

import disque_trio
from disque_trio import svg

Stack = tuple[str, ...]

WIDTH = 1200  # pixels
ROW = 17
MARGIN = 10
HEAD = 46
LEAST = 0.25  # pixels; a narrower box is left out
CHARACTER = 6.6  # pixels per character
STYLE = "svg{font:11px monospace}"

ENGINE = "serve"
WORKER, WAITING = "WorkerThread._work", "PyThread_acquire_lock"
_OURS, _COMPILED, _LIBRARY, _SYSTEM = "ours", "compiled", "library", "system"
COLOURS = {
    _OURS: ("#f2b45c", "the node, in Python"),
    _COMPILED: ("#e0765a", "the node, compiled"),
    _LIBRARY: ("#b9c98f", "Python's libraries"),
    _SYSTEM: ("#9db8d2", "the interpreter and the C library"),
}
OURS = tuple(
    f"{entry.name}/" if entry.is_dir() else f"{entry.name})"
    for entry in Path(disque_trio.__file__).parent.iterdir()
)
_FRAME = re.compile(r"(?P<name>.*?) \((?P<file>[^()]*?)(?::\d+)?\)$")
_MYPYC = re.compile(r"CPy(?:Def|Py)_(?P<name>.+)")
_ADDRESS = re.compile(r"0x[0-9a-f]+$")


def read_stacks(lines: Iterable[str]) -> Counter[Stack]:
    """The stacks in a profiler's text, with counts. Stacks of the engine begin with its loop, and
    lines of one function are merged. Threads that wait for work are left out.

    Raises:
        ValueError: a line is not a stack.
    """
    found: Counter[Stack] = Counter()
    for line in lines:
        text, _, count = line.rstrip().rpartition(" ")
        if not text:
            raise ValueError(f"not a stack: {line!r}")
        stack = _collapse(text.split(";"))
        if not (stack[-1].startswith(WAITING) and any(WORKER in frame for frame in stack)):
            found[stack] += int(count)
    return found


def _collapse(frames: list[str]) -> Stack:
    collapsed: list[str] = []
    for frame in frames:
        name = _frame_name(frame)
        if not name or (collapsed and collapsed[-1] == name):
            continue  # mypyc compiles one function to two, which look the same
        collapsed.append(name)
        if name.startswith(ENGINE):
            del collapsed[:-1]
    return tuple(collapsed) or ("?",)


def _frame_name(frame: str) -> str:
    """The displayed name of a frame: ``Engine.turn (respserver/io/engine.py)``; empty to omit
    it."""
    match = _FRAME.match(frame)
    name, file = (match["name"], match["file"]) if match else (frame, "")
    if _ADDRESS.match(name) or file.endswith(".h"):
        return ""  # code in a header belongs to the function that includes it
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
    ours = any(f"({part}" in name for part in OURS)
    return _OURS if ours else _LIBRARY


class _Box:
    """A frame in the tree: its count, and what it called."""

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
    """A flame graph as SVG. Callees are below their callers, with widths proportional to their
    counts; boxes have tooltips.

    Raises:
        ValueError: there is nothing to draw.
    """
    root = _tree(stacks)
    if not root.count:
        raise ValueError("no stacks")
    height = HEAD + (_depth(root) - 1) * ROW + MARGIN
    parts = [svg.text(MARGIN, 18, title, font_size=14)]
    x = float(MARGIN)
    for colour, text in COLOURS.values():
        parts.append(svg.tag("rect", x=x, y=27, width=10, height=10, fill=colour))
        parts.append(svg.text(x + 14, 36, text))
        x += 34 + len(text) * CHARACTER
    scale = (WIDTH - 2 * MARGIN) / root.count
    _draw_called(root, MARGIN, HEAD, scale, root.count, parts)
    return svg.picture(WIDTH, height, title, parts, style=STYLE, fill="#ffffff")


def _draw_called(box: _Box, x: float, y: int, scale: float, total: int, parts: list[str]) -> None:
    ordered = sorted(box.called.items(), key=lambda item: (-item[1].count, item[0]))
    for name, called in ordered:
        width = called.count * scale
        if width >= LEAST:
            share = 100 * called.count / total
            hint = svg.tag("title", escape(f"{name}: {share:.1f}%"))
            fill = COLOURS[_kind(name)][0]
            shape = svg.tag("rect", x=x, y=y, width=width, height=ROW - 1, rx=1, fill=fill)
            fits = int((width - 4) / CHARACTER)
            shown = name if len(name) <= fits else name[: fits - 1] + "…"
            label = svg.text(x + 2, y + 12, shown) if fits >= 3 else ""
            parts.append(svg.tag("g", hint + shape + label))
            _draw_called(called, x, y + ROW, scale, total, parts)
        x += width


def shares(stacks: Counter[Stack], most: int) -> list[tuple[str, float]]:
    """The functions in which most stacks end, and their shares."""
    ends: Counter[str] = Counter()
    for stack, count in stacks.items():
        ends[stack[-1]] += count
    total = stacks.total()
    return [(name, count / total) for name, count in ends.most_common(most)]
