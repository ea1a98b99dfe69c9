"""Building blocks of the report's page as HTML: names, times, tables."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from disque_trio import humanize

Numbers: TypeAlias = Mapping[str, Any]  # from report.make_report
LONGEST = 60  # the most characters of a name in a table
_LONGEST_HINT = 500  # the most characters in a tooltip; a name may have 64 KB
SHORT = 8  # characters of a node's id to show
MINUTE = 60_000
HOUR = 3_600_000
NONE = "<p class=none>None.</p>"


def name(queue: str | None) -> str:
    """The name of a queue, or of a client."""
    text = queue or "?"
    short = humanize.shortened(text, LONGEST)
    if text == short:
        return escape(text)
    return f"<span title='{escape(humanize.shortened(text, _LONGEST_HINT))}'>{escape(short)}</span>"


def queue_name(numbers: Numbers, queue: str | None) -> str:
    """The name of a queue. If the queue has plots, the name leads to them, by the queue's index."""
    drawn = numbers.get("series", {}).get("queues", {})
    if queue not in drawn:
        return name(queue)
    return f"<span data-queue={list(drawn).index(queue)}>{name(queue)}</span>"


def node_name(numbers: Numbers, node: str) -> str:
    """The short name of a node: the first characters of its id, and its address."""
    address = numbers.get("addresses", {}).get(node)
    return node[:SHORT] + (f" ({address})" if address else "")


def node_code(numbers: Numbers, node: str) -> str:
    """The short name of a node as HTML, with the full id as a tooltip."""
    return f"<code title='{escape(node)}'>{escape(node_name(numbers, node))}</code>"


def time(ms: int | None, pattern: str = "") -> str:
    """A time; the page's script shows it in the reader's zone."""
    if ms is None:
        return ""
    shown = humanize.moment(ms / 1000, pattern) if pattern else humanize.moment(ms / 1000)
    kept = f" data-f='{pattern}'" if pattern else ""
    return f"<time data-t={ms:d}{kept}>{shown}</time>"


def pair(row: Mapping[str, Any], name: str) -> str:
    """The 50th and 99th percentiles of a time."""
    low, high = row[f"{name}_p50"], row[f"{name}_p99"]
    return (
        "-"
        if low is None
        else f"{humanize.duration(low / 1000)} / {humanize.duration(high / 1000)}"
    )


def percentage(part: int | None, whole: int) -> str:
    """``part`` as a percentage of ``whole``."""
    return f"{100 * (part or 0) / whole:.2f}%" if whole else "-"


def step_name(ms: int) -> str:
    """The name of a time step: second, 5 s, minute."""
    return {1000: "second", MINUTE: "minute", HOUR: "hour"}.get(ms, humanize.duration(ms / 1000))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, hits: bool = True) -> str:
    """A table; on a small screen, each row is a card that has the heads, too.

    Args:
        heads: names of the columns. Those that begin with # have numbers; those that begin with =
            have long texts, which need a line for themselves on a card.
        rows: cells as HTML.
        hits: whether the page's filter searches the table.
    """
    styles = {"#": " class=n", "=": " class=w"}
    columns = [(escape(head.lstrip("#=")), styles.get(head[:1], "")) for head in heads]
    text = "".join(f"<th scope=col{style}>{head}</th>" for head, style in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{style} data-h='{head}'>{cell}</td>"
            for (head, style), cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<div class=scroll><table{' class=rows' * hits}><thead><tr>{text}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
