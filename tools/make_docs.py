#!/usr/bin/env python3
"""Writes the tables in docs/ that are generated from the code.

Owns ``PAGES``: which page has the tables of which parameters. They are at its end, after a comment.
``make docs`` writes them all; a test checks that the committed pages are up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from disque_bananaq import settings as bananaq
from disque_trio.config import SECTIONS, TABLE, Param

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "docs/configuration.md": ("disque_trio/config/table.py", SECTIONS, TABLE),
    "packages/bananaq/docs/bananaq-configuration.md": (
        "disque_bananaq/settings.py",
        bananaq.SECTIONS,
        bananaq.TABLE,
    ),
}
"""For each page: the module with its tables, the introductions of the sections, and the
parameters."""


def page(path: str) -> str:
    """The complete text of the page at ``path``: its own text up to the comment, and the tables.

    Raises:
        ValueError: the comment is missing.
    """
    source, sections, table = PAGES[path]
    comment = f"<!-- `make docs` writes all below from {source}. -->\n"
    text, found, _ = (ROOT / path).read_text(encoding="utf-8").partition(comment)
    if not found:
        raise ValueError(f"{path} has no line {comment.strip()!r}")
    return text + comment + _tables(sections, table)


def _tables(sections: Mapping[str, str], table: Mapping[str, Param]) -> str:
    parts = []
    for section, intro in sections.items():
        parts.append(f"\n### {section}\n\n{intro}\n\n")
        parts.append("| Name | Value | Default | Changed by | What it does |\n")
        parts.append("| --- | --- | --- | --- | --- |\n")
        parts += [_row(param) for param in table.values() if param.section == section]
    return "".join(parts)


def _row(param: Param) -> str:
    value = param.type.expected
    if param.unit and param.unit not in value and param.unit != "bytes":
        value += f", {param.unit}"
    default = f"`{param.default}`" if param.default else "empty"
    changed_by = "SET" if param.settable else "file" if param.file_only else "restart"
    if param.protected:
        changed_by += ", protected"
    return f"| `{param.name}` | {value} | {default} | {changed_by} | {param.help} |\n"


def main() -> None:
    """Write all pages."""
    for path in PAGES:
        (ROOT / path).write_text(page(path), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
