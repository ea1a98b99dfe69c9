"""Finds the periods in which a node's log may lack events.

A log says when the node began to write it (``started``), and at its end that it is complete
(``stopped``). A node that is killed does not write the latter, so there is a gap between its last
event and the next ``started``. There are also gaps where the log was switched off, where it says
that events were ``dropped``, where lines are damaged, where a segment has fewer lines than the next
one says, before the first event of a log that does not begin with ``started``, and after the last
event of a node that has not stopped.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

from disque_spark.files import Location
from disque_spark.segments import LOOK, opened
from disque_trio.eventlog.schema import DROPPED, SEGMENT, STARTED, STOPPED

FOR_EVER = 1 << 62
NO_TIME = -1
_NAME = re.compile(r"-(\d+)-(\d+)\.jsonl")


class Head(NamedTuple):
    """The header of a segment.

    Attributes:
        node: id of the node.
        name: name of the segment, whatever the file's name is; "": the header does not say.
        after: name of the segment before it; "": the header does not say.
        events: number of lines in that one, without its header; -1: the header does not say.
    """

    node: str
    name: str = ""
    after: str = ""
    events: int = -1


class Ends(NamedTuple):
    """A summary of a segment, for finding gaps.

    Attributes:
        node: id of the node.
        first, last: times of its first and last event, ms by the node's clock.
        started: whether it begins with ``started``.
        stopped: whether it ends with ``stopped``.
        dropped: pairs of times between which events were dropped or lines are damaged.
        after, events: see ``Head``.
        lines: number of its lines, as ``events`` of the next one counts them; -1: not counted.
    """

    node: str
    first: int
    last: int
    started: bool
    stopped: bool
    dropped: Sequence[Sequence[int]]
    after: str = ""
    events: int = -1
    lines: int = -1


class Stretch(NamedTuple):
    """A summary of some consecutive lines of a segment.

    Attributes:
        first, last, started, stopped: as in ``Ends``; NO_TIME: no line is an event.
        missing: as ``dropped`` in ``Ends``; NO_TIME: from before these lines, or until after them.
        lines: number of complete lines, including those that are not events.
    """

    first: int = NO_TIME
    last: int = NO_TIME
    started: bool = False
    stopped: bool = False
    missing: Sequence[Sequence[int]] = ()
    lines: int = 0


class Gap(NamedTuple):
    """The log of ``node`` (index in the audit's list) does not cover the time after ``start`` and
    before ``end``, ms by the node's clock; FOR_EVER: it ends at ``start``."""

    node: int
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether the node has no log at all."""
        return self.start == 0 and self.end == FOR_EVER


def head_of(place: Location) -> Head | None:
    """Read the header of a segment; None if no line says which node wrote it.

    Raises:
        EOFError, OSError, zlib.error: the file is compressed and damaged.
    """
    with opened(place, LOOK) as file:
        event = next((event for line in file if (event := event_of(line))), None)
    if event is None:
        return None
    node = str(event["node"])
    if event["event"] != SEGMENT:
        return Head(node)
    name, after, events = (event.get(key) for key in ("name", "after", "events"))
    return Head(node, str(name or ""), str(after or ""), events if isinstance(events, int) else -1)


def stretch_of(lines: Iterable[bytes]) -> Stretch:
    """The summary of lines of which some are damaged. Does not count lines."""
    first: dict[str, object] = {}
    last: dict[str, object] = {}
    missing: list[tuple[int, int]] = []
    damaged = False
    for line in lines:
        event = event_of(line)
        if not event:
            damaged = damaged or bool(line.strip())
            continue
        if event["event"] == SEGMENT:
            continue
        if damaged or event["event"] == DROPPED:
            missing.append((_time(last), _time(event)))
        first = first or event
        last = event
        damaged = False
    if damaged:
        missing.append((_time(last), NO_TIME))
    started, stopped = first.get("event") == STARTED, last.get("event") == STOPPED
    return Stretch(_time(first), _time(last), started, stopped, missing)


def joined(one: Stretch, other: Stretch) -> Stretch:
    """The summary of both, where ``other`` follows ``one``."""
    missing = [(start, other.first if end == NO_TIME else end) for start, end in one.missing] + [
        (one.last if start == NO_TIME else start, end) for start, end in other.missing
    ]
    begin = one if one.first != NO_TIME else other
    end = other if other.last != NO_TIME else one
    lines = one.lines + other.lines
    return Stretch(begin.first, end.last, begin.started, end.stopped, missing, lines)


def ends_of(head: Head, stretches: Iterable[Stretch]) -> Ends | None:
    """The summary of a segment from those of all its lines; None if no line is an event."""
    first, last, started, stopped, missing, lines = reduce(joined, stretches, Stretch())
    if first == NO_TIME:
        return None
    dropped = [
        (first if start == NO_TIME else start, last if end == NO_TIME else end)
        for start, end in missing
    ]
    lines -= bool(head.name)  # without the header
    return Ends(head.node, first, last, started, stopped, dropped, head.after, head.events, lines)


def read_before(head: Head, ends: Ends | None) -> Stretch:
    """The summary of the lines of a segment that an earlier run has read. ``ends``: what that run
    made of them; None if no line was an event."""
    first = bool(head.name)  # the header, which counts here
    if ends is None:
        return Stretch(lines=int(first))
    lines = ends.lines + first
    return Stretch(ends.first, ends.last, ends.started, ends.stopped, ends.dropped, lines)


def event_of(line: bytes) -> dict[str, object]:
    """An event that has everything needed here; empty if the line is not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(event, dict) or not isinstance(event.get("node"), str):
        return {}
    return event if isinstance(event.get("time"), int) and "event" in event else {}


def _time(event: dict[str, object]) -> int:
    time = event.get("time", NO_TIME)
    assert isinstance(time, int)
    return time


class Silence(NamedTuple):
    """The parts of the audited time that a node's log does not cover.

    Attributes:
        gaps: number of gaps between its lines.
        first, last: when the first gap begins and the last one ends, ms; NO_TIME: there is none.
        since: when the log begins, ms, if others begin earlier; otherwise NO_TIME.
        until: when the log ends, ms, if others go on; otherwise NO_TIME.
    """

    gaps: int = 0
    first: int = NO_TIME
    last: int = NO_TIME
    since: int = NO_TIME
    until: int = NO_TIME


def silences(
    gaps: Iterable[Gap], nodes: Sequence[str], first: int, last: int, slack: int
) -> dict[str, Silence]:
    """The parts of the time from ``first`` to ``last`` (ms) that logs do not cover, by node.

    Args:
        gaps: the gaps in the logs.
        nodes: ids of nodes.
        slack: ms; logs that begin or end within this time count as doing so together.
    """
    found: dict[str, Silence] = {}
    for gap in gaps:
        before = found.get(nodes[gap.node], Silence())
        if gap.is_whole or gap.end < first:
            continue
        if gap.end == FOR_EVER:
            if gap.start < last - slack:
                found[nodes[gap.node]] = before._replace(until=gap.start)
        elif gap.start == 0:
            if gap.end > first + slack:
                found[nodes[gap.node]] = before._replace(since=max(gap.end, before.since))
        else:
            begin = gap.start if before.first == NO_TIME else min(before.first, gap.start)
            end = max(before.last, gap.end)
            found[nodes[gap.node]] = Silence(
                before.gaps + 1, begin, end, before.since, before.until
            )
    return found


class Before(Protocol):
    """What is remembered of dropped segments: when their last gap ended, ms; 0: no gap."""

    @property
    def gap(self) -> int: ...


def gaps_of(
    segments: Mapping[str, Ends],
    nodes: Sequence[str],
    names: Collection[str] = (),
    past: Mapping[str, Before] | None = None,
) -> list[Gap]:
    """The gaps in the logs of ``nodes``.

    Args:
        segments: all their segments, by name.
        names: names of all segments, including those without events.
        past: what is remembered of segments before the first, by the prefixes of nodes' ids.
    """
    logs: dict[str, list[tuple[tuple[int, int], Ends]]] = {}
    for name, ends in segments.items():
        logs.setdefault(ends.node, []).append((order_of(name), ends))
    gaps: list[Gap] = []
    for place, node in enumerate(nodes):
        before: Ends | None = None
        old = (past or {}).get(node[:8])
        if old is not None and old.gap:
            gaps.append(Gap(place, 0, old.gap))
        for _, ends in sorted(logs.get(node, ())):
            torn = lacking(ends, segments, names) != 0
            if before is None:
                if old is not None:
                    pass  # the log before was audited, and dropped
                elif torn or not ends.started:  # the log before has been removed
                    gaps.append(Gap(place, 0, ends.first - 1))
            elif torn or (ends.started and not before.stopped):
                gaps.append(_gap(place, before.last, ends.first))
            gaps += [_gap(place, one, other) for one, other in ends.dropped]
            before = ends
        if before is not None and not before.stopped:
            gaps.append(Gap(place, before.last, FOR_EVER))
    return gaps


def missing_between(segments: Mapping[str, Ends], names: Collection[str] = ()) -> dict[str, int]:
    """The segments that are missing between others, or have lost lines, by name, with the number of
    missing lines (-1: unknown). Segments missing before all others do not count: they have been
    removed."""
    first: dict[str, tuple[int, int]] = {}
    for name, ends in segments.items():
        first[ends.node] = min(first.get(ends.node, order_of(name)), order_of(name))
    return {
        ends.after: lines
        for name, ends in segments.items()
        if (lines := lacking(ends, segments, names)) and order_of(name) > first[ends.node]
    }


def lacking(ends: Ends, segments: Mapping[str, Ends], names: Collection[str]) -> int:
    """How many lines of the segment before ``ends`` are missing; -1: all, but it is unknown how
    many there were."""
    if not ends.after:
        return 0
    before = segments.get(ends.after)
    if before is None:
        return ends.events if ends.after not in names else max(ends.events, 0)
    return max(ends.events - before.lines, 0) if before.lines >= 0 else 0


def order_of(name: str) -> tuple[int, int]:
    """The sort key of a segment among those of its node."""
    found = _NAME.search(name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _gap(node: int, one: int, other: int) -> Gap:
    # The clock may have been set back meanwhile.
    return Gap(node, min(one, other), max(one, other))
