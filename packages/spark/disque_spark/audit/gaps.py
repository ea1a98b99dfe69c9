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

from disque_spark.audit.lacks import (
    EARLIER,
    KILLED,
    LATE,
    LINES,
    NO_STOP,
    NO_TIME,
    OFF,
    Lack,
)
from disque_spark.audit.lacks import (
    SEGMENT as LOST_SEGMENT,
)
from disque_spark.files import Location
from disque_spark.segments import LOOK, opened
from disque_trio.eventlog.schema import DROPPED, SEGMENT, STARTED, STOPPED, SWITCHED_OFF

FOR_EVER = 1 << 62
_ABOUT_FILE = b'"event":"segment"'
_NAME = re.compile(r"-(\d+)-(\d+)\.jsonl")


class Head(NamedTuple):
    """The header of a segment.

    Attributes:
        node: id of the node.
        name: name of the segment, whatever the file's name is; "": the header does not say.
        after: name of the segment before it; "": the header does not say.
        events: number of lines in that one, without its header; -1: the header does not say.
        run: id of the node's run; "": the header does not say.
        up, since: since when the node runs, and logs without a stop, ms; NO_TIME: likewise.
    """

    node: str
    name: str = ""
    after: str = ""
    events: int = -1
    run: str = ""
    up: int = NO_TIME
    since: int = NO_TIME


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
        off: pairs of times between which the log was switched off, within the segment.
        reason: why the log stops; "": it does not, or does not say why.
        run, up, since: see ``Head``.
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
    off: Sequence[Sequence[int]] = ()
    reason: str = ""
    run: str = ""
    up: int = NO_TIME
    since: int = NO_TIME


class Stretch(NamedTuple):
    """A summary of some consecutive lines of a segment.

    Attributes:
        first, last, started, stopped: as in ``Ends``; NO_TIME: no line is an event.
        missing: as ``dropped`` in ``Ends``; NO_TIME: from before these lines, or until after them.
        lines: number of complete lines, including those that are not events.
        off, reason: as in ``Ends``.
    """

    first: int = NO_TIME
    last: int = NO_TIME
    started: bool = False
    stopped: bool = False
    missing: Sequence[Sequence[int]] = ()
    lines: int = 0
    off: Sequence[Sequence[int]] = ()
    reason: str = ""


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
    name, after, run = (str(event.get(key) or "") for key in ("name", "after", "run"))
    events, up, since = (
        value if isinstance(value := event.get(key), int) else NO_TIME
        for key in ("events", "up", "since")
    )
    return Head(node, name, after, events, run, up, since)


def nodes_in(block: bytes) -> set[str]:
    """The ids of the nodes of the cluster, as some lines of a log name them."""
    found: set[str] = set()
    at = -1
    while (at := block.find(_ABOUT_FILE, at + 1)) >= 0:
        end = block.find(b"\n", at)
        line = block[block.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(block)]
        nodes = event_of(line).get("nodes")
        if isinstance(nodes, list):
            found.update(node for node in nodes if isinstance(node, str))
    return found


def stretch_of(lines: Iterable[bytes]) -> Stretch:
    """The summary of lines of which some are damaged. Does not count lines."""
    first: dict[str, object] = {}
    last: dict[str, object] = {}
    missing: list[tuple[int, int]] = []
    off: list[tuple[int, int]] = []
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
        if last and event["event"] == STARTED:
            off.append((_time(last), _time(event)))
        first = first or event
        last = event
        damaged = False
    if damaged:
        missing.append((_time(last), NO_TIME))
    started, stopped = first.get("event") == STARTED, last.get("event") == STOPPED
    reason = str(last.get("reason") or "") if stopped else ""
    return Stretch(_time(first), _time(last), started, stopped, missing, 0, off, reason)


def joined(one: Stretch, other: Stretch) -> Stretch:
    """The summary of both, where ``other`` follows ``one``."""
    missing = [(start, other.first if end == NO_TIME else end) for start, end in one.missing] + [
        (one.last if start == NO_TIME else start, end) for start, end in other.missing
    ]
    begin = one if one.first != NO_TIME else other
    end = other if other.last != NO_TIME else one
    lines = one.lines + other.lines
    off = [*one.off, *other.off]
    if other.started and one.first != NO_TIME:
        off.append((one.last, other.first))
    return Stretch(
        begin.first, end.last, begin.started, end.stopped, missing, lines, off, end.reason
    )


def ends_of(head: Head, stretches: Iterable[Stretch]) -> Ends | None:
    """The summary of a segment from those of all its lines; None if no line is an event."""
    whole = reduce(joined, stretches, Stretch())
    first, last, started, stopped, missing, lines, off, reason = whole
    if first == NO_TIME:
        return None
    dropped = [
        (first if start == NO_TIME else start, last if end == NO_TIME else end)
        for start, end in missing
    ]
    lines -= bool(head.name)  # without the header
    return Ends(
        *(head.node, first, last, started, stopped, dropped),
        *(head.after, head.events, lines, tuple(off), reason),
        *(head.run, head.up, head.since),
    )


def read_before(head: Head, ends: Ends | None) -> Stretch:
    """The summary of the lines of a segment that an earlier run has read. ``ends``: what that run
    made of them; None if no line was an event."""
    first = bool(head.name)  # the header, which counts here
    if ends is None:
        return Stretch(lines=int(first))
    lines = ends.lines + first
    return Stretch(
        *(ends.first, ends.last, ends.started, ends.stopped),
        *(ends.dropped, lines, ends.off, ends.reason),
    )


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
    places = {node: place for place, node in enumerate(nodes)}
    return [
        Gap(places[one.node], max(one.since, 0), FOR_EVER if one.until == NO_TIME else one.until)
        for one in holes_of(segments, nodes, names, past)
    ]


def holes_of(
    segments: Mapping[str, Ends],
    nodes: Sequence[str],
    names: Collection[str] = (),
    past: Mapping[str, Before] | None = None,
) -> list[Lack]:
    """What each log of ``nodes`` lacks, log by log. The arguments are those of ``gaps_of``."""
    logs: dict[str, list[tuple[tuple[int, int], Ends]]] = {}
    for name, ends in segments.items():
        logs.setdefault(ends.node, []).append((order_of(name), ends))
    holes: list[Lack] = []
    for node in nodes:
        before: Ends | None = None
        old = (past or {}).get(node[:8])
        if old is not None and old.gap:
            holes.append(Lack(EARLIER, node, until=old.gap))
        for _, ends in sorted(logs.get(node, ())):
            lines = lacking(ends, segments, names)
            if before is not None:
                holes += _between(before, ends, lines)
            elif old is None:  # otherwise, the log before was audited, and dropped
                holes += _at_first(ends, lines)
            holes += [_hole(LINES, node, one, other) for one, other in ends.dropped]
            holes += [_hole(OFF, node, one, other) for one, other in ends.off]
            before = ends
        if before is not None and not before.stopped:
            holes.append(Lack(NO_STOP, node, before.last))
        elif before is not None and before.reason == SWITCHED_OFF:
            holes.append(Lack(OFF, node, before.last))
    return holes


def _at_first(ends: Ends, lines: int) -> list[Lack]:
    """What is lacking before the first segment of a log, if the one before it lacks ``lines``."""
    if lines or not ends.started:  # the log before has been removed
        segment = ends.after if lines else ""
        # The gap begins at the beginning: nothing says that the log of an earlier run was whole.
        return [Lack(EARLIER, ends.node, NO_TIME, ends.first - 1, segment, lines or -1)]
    if NO_TIME < ends.up < ends.first:
        return [Lack(LATE, ends.node, ends.up, ends.first)]
    return []


def _between(before: Ends, ends: Ends, lines: int) -> list[Lack]:
    """What is lacking between two segments of a log, if the one before ``ends`` lacks ``lines``."""
    node = ends.node
    if lines:
        return [_hole(LOST_SEGMENT, node, before.last, ends.first, ends.after, lines)]
    if not ends.started:
        return []
    if not before.stopped:
        return [_hole(KILLED, node, before.last, ends.first)]
    ran_on = NO_TIME < ends.up < before.last or (ends.run != "" and ends.run == before.run)
    if before.reason == SWITCHED_OFF or (not before.reason and ran_on):
        return [_hole(OFF, node, before.last, ends.first)]
    if NO_TIME < ends.up < ends.first:
        return [_hole(LATE, node, max(ends.up, before.last), ends.first)]
    return []


def _hole(kind: str, node: str, one: int, other: int, segment: str = "", amount: int = -1) -> Lack:
    # The clock may have been set back meanwhile.
    return Lack(kind, node, min(one, other), max(one, other), segment, amount)


def starts_of(segments: Mapping[str, Ends], nodes: Sequence[str]) -> list[tuple[int, int]]:
    """The nodes (indexes) that began to write a log, and when, ms by their clocks."""
    places = {node: place for place, node in enumerate(nodes)}
    return sorted(
        (places[ends.node], ends.first)
        for ends in segments.values()
        if ends.started and ends.node in places
    )


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
