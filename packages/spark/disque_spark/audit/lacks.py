"""What the logs of an audit lack, and whether that is known to hide something.

Everything that tells people or programs what an audit did not see (the command, its exit status,
the numbers, the page) uses this list. A lack is a *hole* if something should be done about it. The
others only bound what the audit says: in time, or to what other logs show.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from disque_trio.humanize import count as number

NO_TIME = -1
FRESH = 86_400_000  # ms; a node touches the file that it writes more often than that

# ---- kinds ------------------------------------------------------------------------------------

NODE = "node"  # the log of a node of the cluster is not here
GONE = "gone"  # the same, and the user knows
SEGMENT = "segment"  # a segment between others is missing, or has lost lines
EMPTY = "empty"  # a segment has no line that says whose it is
LEFT_OPEN = "left-open"  # a segment was never closed, and is not being written any more
UNREAD = "unread"  # a file is a segment by its name, but has a form that cannot be read
OFF = "switched-off"  # the node went on without a log
NO_STOP = "no-stop"  # the log ends, and nothing says that the node stopped or goes on
DROPPED = "dropped"  # the node dropped events
DAMAGED = "damaged"  # lines are not events
UNKNOWN = "unknown"  # events are of kinds of a newer version
KILLED = "killed"  # the node was killed, and the last lines before that may be missing
EARLIER = "earlier"  # the log begins with a later segment
LATE = "switched-on-late"  # the node ran before its log was switched on
GOES_ON = "goes-on"  # the node still writes its log
LINES = "lines"  # where lines are missing; DROPPED and DAMAGED say how many

HOLES = frozenset(
    (NODE, SEGMENT, EMPTY, LEFT_OPEN, UNREAD, OFF, NO_STOP, DROPPED, DAMAGED, UNKNOWN)
)
_ONCE = (KILLED, OFF)  # several of one node are told together


class Lack(NamedTuple):
    """Something that the logs lack.

    Attributes:
        kind: see above.
        node: id of the node, or its prefix if no line has the whole id; "": of all nodes.
        since, until: the time that is not covered, ms by the node's clock; NO_TIME: from the
            beginning, or without an end.
        segment: the segment that is missing, or was not read.
        count: lines, events or times; -1: unknown, or there is nothing to count.
    """

    kind: str
    node: str = ""
    since: int = NO_TIME
    until: int = NO_TIME
    segment: str = ""
    count: int = -1

    @property
    def is_hole(self) -> bool:
        """Whether something should be done about it."""
        return self.kind in HOLES


class Still(NamedTuple):
    """A segment that is open, or was left open.

    Attributes:
        node: id of its node, or the prefix of the id.
        segment: its name.
        written: when it was written last, ms.
        is_last: whether no closed segment of its node comes after it.
    """

    node: str
    segment: str
    written: int
    is_last: bool


# ---- making the list --------------------------------------------------------------------------


def counted(dropped: int, damaged: int, unknown: int) -> list[Lack]:
    """The lacks that are known by their numbers."""
    numbers = ((DROPPED, dropped), (DAMAGED, damaged), (UNKNOWN, unknown))
    return [Lack(kind, count=count) for kind, count in numbers if count]


def in_period(holes: Iterable[Lack], first: int) -> list[Lack]:
    """Those of the lacks of single logs that are not over before ``first`` (ms), several of one
    kind and node as one."""
    found: list[Lack] = []
    places: dict[tuple[str, str], int] = {}
    for hole in holes:
        if hole.kind == LINES or NO_TIME < hole.until < first:
            continue
        key = (hole.kind, hole.node)
        if hole.kind not in _ONCE or hole.until == NO_TIME or key not in places:
            if hole.kind in _ONCE and hole.until != NO_TIME:
                places[key] = len(found)
                hole = hole._replace(count=1)
            found.append(hole)
            continue
        before = found[places[key]]
        found[places[key]] = before._replace(
            since=min(before.since, hole.since),
            until=max(before.until, hole.until),
            count=before.count + 1,
        )
    return found


def with_ends(
    found: Iterable[Lack],
    stills: Sequence[Still],
    lasts: Mapping[str, int],
    now: int,
    grown: Collection[str] = (),
) -> list[Lack]:
    """The lacks, after it is clear which logs go on.

    Args:
        found: the lacks of single logs.
        stills: the open segments.
        lasts: time of the last event of each node, ms.
        now: when the files were looked at, ms.
        grown: nodes whose logs have grown since the audit looked before.
    """
    running = {still.node for still in stills if still.is_last and still.written >= now - FRESH}
    left = [still for still in stills if still.node not in running or not still.is_last]
    dead = {still.node for still in left}
    lacks: list[Lack] = []
    for lack in found:
        if lack.kind == NO_STOP and lack.node in {*running, *dead}:
            continue
        if lack.kind == NO_STOP and lack.node in grown:
            lack = lack._replace(kind=GOES_ON)
        if lack.kind == NODE and lack.node in {*running, *dead}:
            continue
        lacks.append(lack)
    lacks += [Lack(GOES_ON, node, lasts.get(node, NO_TIME)) for node in sorted(running)]
    lacks += [
        Lack(LEFT_OPEN, still.node, lasts.get(still.node, NO_TIME), segment=still.segment)
        for still in sorted(left)
    ]
    return lacks


# ---- what follows from it ---------------------------------------------------------------------


def period(lacks: Iterable[Lack], first: int, last: int) -> tuple[int, int]:
    """The part of the time from ``first`` to ``last`` (ms) of which all logs tell that have both a
    beginning and an end."""
    begin, end = first, last
    for lack in lacks:
        if lack.kind in (EARLIER, LATE):
            begin = max(begin, lack.until)
        elif lack.since != NO_TIME and lack.kind != GONE and lack.until == NO_TIME:
            end = min(end, lack.since)
    return (begin, end) if begin < end else (first, last)


def seen_nodes(lacks: Iterable[Lack], with_logs: int) -> str:
    """The nodes that the audit saw: ``2 of 3 nodes``."""
    without = sum(lack.kind in (NODE, GONE) for lack in lacks)
    nodes = "node" if with_logs + without == 1 else "nodes"
    return (
        f"{number(with_logs)} of {number(with_logs + without)} {nodes}"
        if without
        else (f"{number(with_logs)} {nodes}")
    )


def sentence(
    lack: Lack,
    node: Callable[[str], str] = str,
    moment: Callable[[int], str] = str,
    name: Callable[[str], str] = str,
) -> str:
    """What is lacking, for people, without a full stop.

    Args:
        node, moment, name: format the id of a node, a time (ms), and the name of a segment.
    """
    kind, whose, since, until, segment, count = lack
    of = node(whose) if whose else ""
    begin = moment(since) if since != NO_TIME else ""
    end = moment(until) if until != NO_TIME else ""
    file = name(segment)
    match kind:
        case "node":
            return f"node {of} appears in the logs, but its own log is missing"
        case "gone":
            return f"node {of} was removed, and its log is not here"
        case "segment" if count >= 0:
            lines = "1 line" if count == 1 else f"{number(count)} lines"
            return f"{lines} of segment {file} {'is' if count == 1 else 'are'} missing"
        case "segment":
            return f"segment {file} is missing"
        case "empty":
            return f"segment {file} is empty"
        case "left-open":
            up_to = f"; the log of node {of} is judged up to {begin}" if begin else ""
            return f"segment {file} was left open, and is not read{up_to}"
        case "unread":
            return f"file {file} is not read: only .jsonl and .jsonl.gz can be"
        case "switched-off" if not end:
            return f"the log of node {of} was switched off at {begin}"
        case "switched-off":
            times = f"{number(count)} times " if count > 1 else ""
            return f"the log of node {of} was switched off {times}between {begin} and {end}"
        case "no-stop":
            return (
                f"the log of node {of} ends without a stop, at {begin}: the node was killed, or the"
                " rest of its log is not here"
            )
        case "dropped":
            return f"{number(count)} events are missing: the logs say that they were dropped"
        case "damaged":
            return f"{number(count)} lines in the logs are not events"
        case "unknown":
            return f"{number(count)} events are of kinds that this version does not know"
        case "killed":
            gaps = "a gap" if count <= 1 else f"{number(count)} gaps"
            return f"the log of node {of} has {gaps} between {begin} and {end}: it was killed"
        case "earlier":
            return f"earlier segments of node {of} are gone: its log begins at {end}"
        case "switched-on-late":
            return f"node {of} runs since {begin}, but its log was switched on at {end}"
        case "goes-on" if begin:
            return f"judged up to {begin}; the log of node {of} goes on"
        case "goes-on":
            return f"the log of node {of} has only begun, and is not read yet"
    raise ValueError(f"unknown kind of lack: {kind}")
