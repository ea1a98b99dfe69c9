#!/usr/bin/env python3
"""Writes what is generated from the code in docs/, and the alerts for Prometheus in config/.

Owns ``PAGES``: which file has the tables of which parameters or conditions. They are at its end,
after a comment. ``make docs`` writes them all; a test checks that the committed files are up to
date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from disque_bananaq import settings as bananaq
from disque_trio.config import SECTIONS, TABLE, Param
from disque_trio.health.table import CONDITIONS, NODE, QUEUE, Condition

ROOT = Path(__file__).resolve().parent.parent


def page(path: str) -> str:
    """The complete text of the file at ``path``: its own text up to the comment, and what is
    generated.

    Raises:
        ValueError: the comment is missing.
    """
    source, generated = PAGES[path]
    said = f"`make docs` writes all below from {source}."
    comment = f"<!-- {said} -->\n" if path.endswith(".md") else f"# {said}\n"
    text, found, _ = (ROOT / path).read_text(encoding="utf-8").partition(comment)
    if not found:
        raise ValueError(f"{path} has no line {comment.strip()!r}")
    return text + comment + generated()


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


# ---- conditions ---------------------------------------------------------------------------------

_SCOPES = {NODE: "Of a node", QUEUE: "Of a queue"}


def _conditions() -> str:
    """The tables of conditions."""
    parts = []
    for scope, title in _SCOPES.items():
        parts.append(f"\n## {title}\n\n")
        parts.append("| kind | severity | it means | what to do | alert |\n")
        parts.append("| --- | --- | --- | --- | --- |\n")
        parts += [_condition(one) for one in CONDITIONS.values() if one.scope == scope]
    return "".join(parts)


def _condition(condition: Condition) -> str:
    means = f"{condition.title[0].upper()}{condition.title[1:]}. {condition.cause}"
    alert = f"`{condition.alert}`" + (f", after {condition.lasts}" if condition.lasts else "")
    words = (f"`{condition.kind}`", condition.severity, means, condition.cure, alert)
    return f"| {' | '.join(words)} |\n"


def _alerts() -> str:
    """A group of alerts, as the file for Prometheus writes them."""
    parts = ["  - name: disque-conditions\n", "    rules:\n"]
    parts += [_alert(condition) for condition in CONDITIONS.values()]
    return "".join(parts)


def _alert(condition: Condition) -> str:
    expression = condition.expr or "\nor ".join(
        f'max by (job, instance) ({server}_alarm{{kind="{condition.kind}"}}) > 0'
        for server in condition.servers
    )
    summary = condition.summary or f"{{{{ $labels.instance }}}}: {condition.title}"
    lines = [f"      - alert: {condition.alert}"]
    if "\n" in expression:
        lines.append("        expr: |")
        lines += [f"          {line}" for line in expression.splitlines()]
    else:
        lines.append(f"        expr: {expression}")
    if condition.lasts:
        lines.append(f"        for: {condition.lasts}")
    lines.append(f"        labels: {{ severity: {condition.severity} }}")
    lines.append("        annotations:")
    lines.append(f"          summary: {json.dumps(summary)}")
    lines.append(f"          description: {json.dumps(_plain(condition.cause))}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """``text`` without what only a page can show."""
    return re.sub(r" ?\(\[[^\]]*\]\([^)]*\)\)", "", text).replace("`", "")


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "docs/configuration.md": (
        "disque_trio/config/table.py",
        partial(_tables, SECTIONS, TABLE),
    ),
    "packages/bananaq/docs/bananaq-configuration.md": (
        "disque_bananaq/settings.py",
        partial(_tables, bananaq.SECTIONS, bananaq.TABLE),
    ),
    "docs/conditions.md": ("disque_trio/health/table.py", _conditions),
    "config/prometheus-alerts.yml": ("disque_trio/health/table.py", _alerts),
}
"""For each file: the module with the table, and what makes the text after the comment."""


def main() -> None:
    """Write all files."""
    for path in PAGES:
        (ROOT / path).write_text(page(path), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
