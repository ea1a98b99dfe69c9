"""Describes, as lines of text, what is missing in the logs of an audit."""

from collections.abc import Iterator

from disque_spark.audit.gaps import NO_TIME
from disque_spark.audit.result import Result
from disque_trio import humanize


def lacking(result: Result) -> Iterator[str]:
    """Yield a line for each thing that is missing."""
    if result.dropped:
        yield f"{result.dropped} events are missing in the logs"
    if result.unknown:
        yield f"{result.unknown} events are of kinds that this version does not know"
    if result.damaged:
        yield f"{result.damaged} lines in the logs are not events"
    for node in result.missing_nodes:
        yield f"node {node} appears in the logs, but its own log is missing"
    for node in result.gone:
        yield f"node {node} was removed, and its log is not here"
    for name, lines in sorted(result.missing_segments.items()):
        what = f"{lines} lines of segment {name} are" if lines >= 0 else f"segment {name} is"
        yield f"{what} missing"
    for node, one in sorted(result.silences.items()):
        if one.since != NO_TIME:
            since = humanize.moment(one.since / 1000)
            yield f"the log of node {node} does not begin until {since} UTC"
        if one.gaps:
            gaps = "a gap" if one.gaps == 1 else f"{one.gaps} gaps"
            yield (
                f"the log of node {node} has {gaps} between {humanize.moment(one.first / 1000)} and"
                f" {humanize.moment(one.last / 1000)} UTC"
            )
        if one.until != NO_TIME:
            yield f"the log of node {node} ends early, at {humanize.moment(one.until / 1000)} UTC"
