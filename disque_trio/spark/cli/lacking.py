"""Says in lines of text what an audit could not know."""

from collections.abc import Iterator

from disque_trio.spark.audit.gaps import NO_TIME
from disque_trio.spark.audit.run import Result
from disque_trio.spark.report.plots import moment


def lacking(result: Result) -> Iterator[str]:
    """What the logs of an audit lack, a line each."""
    if result.dropped:
        yield f"{result.dropped} events are missing in the logs"
    if result.unknown:
        yield f"{result.unknown} events are of kinds that this version does not know"
    if result.damaged:
        yield f"{result.damaged} lines in the logs are no events"
    for node in result.missing_nodes:
        yield f"node {node} is named in the logs and has no log here"
    for node in result.gone:
        yield f"node {node} was taken out and has no log here"
    for name, lines in sorted(result.missing_segments.items()):
        what = f"{lines} lines of segment {name} are" if lines >= 0 else f"segment {name} is"
        yield f"{what} missing"
    for node, one in sorted(result.silences.items()):
        if one.since != NO_TIME:
            yield f"the log of node {node} begins only at {moment(one.since)} UTC"
        if one.gaps:
            gaps = "a gap" if one.gaps == 1 else f"{one.gaps} gaps"
            yield (
                f"the log of node {node} has {gaps} between {moment(one.first)} and"
                f" {moment(one.last)} UTC"
            )
        if one.until != NO_TIME:
            yield f"the log of node {node} ends already at {moment(one.until)} UTC"
