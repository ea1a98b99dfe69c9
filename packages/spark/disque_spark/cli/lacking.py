"""Describes, as lines of text, what the audit saw, and what is missing in its logs."""

from collections.abc import Iterator

from disque_spark.audit.lacks import period, seen_nodes, sentence
from disque_spark.audit.result import Result
from disque_trio import humanize


def lacking(result: Result) -> Iterator[str]:
    """Yield a line for each thing that is missing."""
    for lack in result.lacks:
        yield sentence(lack, moment=_moment)


def judged(result: Result) -> str:
    """The nodes and the time that the audit judged."""
    begin, end = period(result.lacks, result.first, result.last)
    nodes = seen_nodes(result.lacks, result.nodes)
    return f"judged: {nodes}, from {_moment(begin)} to {_moment(end)}"


def _moment(time: int) -> str:
    return f"{humanize.moment(time / 1000)} UTC"
