"""What the logs of an audit lack, and whether that is known to hide something.

Everything that tells people or programs what an audit did not see (the command, its exit status,
the numbers, the page) uses this list. A lack is a *hole* if something should be done about it. The
others only bound what the audit says: in time, or to what other logs show.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from disque_trio.humanize import count as number
from disque_trio.humanize import counted

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
        amount: lines, events or times; -1: unknown, or there is nothing to count.
    """

    kind: str
    node: str = ""
    since: int = NO_TIME
    until: int = NO_TIME
    segment: str = ""
    amount: int = -1

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


def numbered(dropped: int, damaged: int, unknown: int) -> list[Lack]:
    """The lacks that are known by their numbers."""
    numbers = ((DROPPED, dropped), (DAMAGED, damaged), (UNKNOWN, unknown))
    return [Lack(kind, amount=amount) for kind, amount in numbers if amount]


def in_period(holes: Iterable[Lack], first: int) -> list[Lack]:
    """Those of the lacks of single logs that are not over before the time from ``first`` (ms) on,
    several of one kind and node as one."""
    found: list[Lack] = []
    places: dict[tuple[str, str], int] = {}
    for hole in holes:
        if hole.kind == LINES or NO_TIME < hole.until < first - 1:
            continue
        key = (hole.kind, hole.node)
        if hole.kind not in _ONCE or hole.until == NO_TIME or key not in places:
            if hole.kind in _ONCE and hole.until != NO_TIME:
                places[key] = len(found)
                hole = hole._replace(amount=1)
            found.append(hole)
            continue
        before = found[places[key]]
        found[places[key]] = before._replace(
            since=min(before.since, hole.since),
            until=max(before.until, hole.until),
            amount=before.amount + 1,
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
        if lack.kind == NODE and lack.node in running:
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
    without = sum(
        lack.kind in (NODE, GONE) or (lack.kind == GOES_ON and lack.since == NO_TIME)
        for lack in lacks
    )
    nodes = "node" if with_logs + without == 1 else "nodes"
    return (
        f"{number(with_logs)} of {number(with_logs + without)} {nodes}"
        if without
        else (f"{number(with_logs)} {nodes}")
    )


_SENTENCES = {
    NODE: "node {node} appears in the logs, but its own log is missing",
    GONE: "node {node} was removed, and its log is not here",
    SEGMENT: "{lines} of segment {segment} {are} missing",
    EMPTY: "segment {segment} is empty",
    LEFT_OPEN: "segment {segment} of node {node} was left open, and is not read",
    UNREAD: "file {segment} is not read: only .jsonl and .jsonl.gz can be",
    OFF: "the log of node {node} was switched off {times}between {since} and {until}",
    NO_STOP: "the log of node {node} ends without a stop, at {since}: the node was killed, or the"
    " rest of its log is not here",
    DROPPED: "{events} {are} missing: the logs say that nodes dropped events",
    DAMAGED: "{lines} of the logs cannot be read",
    UNKNOWN: "{events} {are} of a kind that this version does not know",
    KILLED: "the log of node {node} has {gaps} between {since} and {until}: it was killed",
    EARLIER: "earlier segments of node {node} are gone: its log begins at {until}",
    LATE: "node {node} runs since {since}, but its log was switched on at {until}",
    GOES_ON: "judged up to {since}; the log of node {node} goes on",
}
_NOT_SWITCHED_ON = "the log of node {node} was switched off at {since}"
_WHOLE_SEGMENT = "segment {segment} is missing"
_JUST_BEGUN = "the log of node {node} has only begun, and is not read yet"


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
    amount = lack.amount
    text = _SENTENCES[lack.kind]
    if lack.kind == OFF and lack.until == NO_TIME:
        text = _NOT_SWITCHED_ON
    if lack.kind == GOES_ON and lack.since == NO_TIME:
        text = _JUST_BEGUN
    if lack.kind == SEGMENT and amount < 0:
        text = _WHOLE_SEGMENT
    return text.format(
        node=node(lack.node),
        since=moment(lack.since),
        until=moment(lack.until),
        segment=name(lack.segment),
        lines=counted(amount, "line"),
        events=counted(amount, "event"),
        are="is" if amount == 1 else "are",
        times=f"{number(amount)} times " if amount > 1 else "",
        gaps="a gap" if amount <= 1 else f"{number(amount)} gaps",
    )
