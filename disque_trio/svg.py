"""Builds SVG as text: elements with attributes, and whole pictures."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


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
