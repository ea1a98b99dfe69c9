"""Pieces of the report's page as markup: names, times, tables."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from disque_trio.spark.report.plots import duration, moment, number, shortened

Numbers: TypeAlias = Mapping[str, Any]  # what report.make_report gives

LONGEST = 60  # characters of a name in a table
_LONGEST_HINT = 500  # of one under the mouse; a name may have 64 KB
SHORT = 8  # of the id of a node
MINUTE = 60_000
_WIDE = 5  # columns; on a small screen these are moved under it
HOUR = 3_600_000
NONE = "<p class=none>None.</p>"


def name(queue: str | None) -> str:
    """The name of a queue, or of a client."""
    text = "?" if queue is None else queue
    short = shortened(text, LONGEST)
    if text == short:
        return escape(text)
    return f"<span title='{escape(shortened(text, _LONGEST_HINT))}'>{escape(short)}</span>"


def queue_name(numbers: Numbers, queue: str | None) -> str:
    """That of a queue, which leads to its plots if it has some: by its place among these."""
    drawn = numbers.get("series", {}).get("queues", {})
    if queue not in drawn:
        return name(queue)
    return f"<span data-queue={list(drawn).index(queue)}>{name(queue)}</span>"


def node_name(numbers: Numbers, node: str) -> str:
    """How a node is called: the first characters of its id, and its address."""
    address = numbers.get("addresses", {}).get(node)
    return node[:SHORT] + (f" ({address})" if address else "")


def node_code(numbers: Numbers, node: str) -> str:
    """The same as markup; the whole id under the mouse."""
    return f"<code title='{escape(node)}'>{escape(node_name(numbers, node))}</code>"


def time(ms: int | None) -> str:
    """A moment; the page can show it as local time."""
    return "" if ms is None else f"<time data-t={ms:d}>{moment(ms)}</time>"


def pair(row: Mapping[str, Any], name: str) -> str:
    """The percentiles 50 and 99 of a time."""
    low, high = row[f"{name}_p50"], row[f"{name}_p99"]
    return "-" if low is None else f"{duration(low)} / {duration(high)}"


def percentage(part: int | None, whole: int) -> str:
    """How much of it."""
    return f"{100 * (part or 0) / whole:.2f}%" if whole else "-"


def counted(count: int, what: str) -> str:
    """1 job, 2 jobs."""
    return f"{number(count)} {what}" + ("" if count == 1 else "s")


def jobs(count: int) -> str:
    """So many of them."""
    return counted(count, "job")


def period(first: int, last: int) -> str:
    """From when to when, as short as it is clear."""
    time = "%H:%M" if last - first >= 600_000 else "%H:%M:%S"
    same = moment(first, "%F") == moment(last, "%F")
    return f"{moment(first, '%F ' + time)} to {moment(last, time if same else '%F ' + time)}"


def step_name(ms: int) -> str:
    """A step of time: second, 5 s, minute."""
    return {1000: "second", MINUTE: "minute", HOUR: "hour"}.get(ms, duration(ms))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, hits: bool = True) -> str:
    """A table; columns whose name begins with # hold numbers. Cells are markup.

    Args:
        hits: whether the filter looks there.
    """
    classes = [" class=n" if head.startswith("#") else "" for head in heads]
    text = "".join(
        f"<th scope=col{style}>{escape(head.removeprefix('#'))}</th>"
        for style, head in zip(classes, heads, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{style}>{cell}</td>" for style, cell in zip(classes, row, strict=True))
        + "</tr>"
        for row in rows
    )
    kinds = ["rows"] * hits + ["wide"] * (len(heads) >= _WIDE)
    kind = f" class='{' '.join(kinds)}'" if kinds else ""
    return (
        f"<div class=scroll><table{kind}><thead><tr>{text}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
