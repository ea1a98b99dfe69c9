"""Where a node's log says nothing although something may have happened there.

A log says when the node began to write it (``started``), and at its end that it is complete
(``stopped``). A node that is killed does not say so: between its last event and the next
``started`` there is a gap. So is there where the log was switched off, where it says that events
were ``dropped``, where lines are damaged, before the first event of a node that does not begin
there, and behind the last event of a node that has not stopped.
"""

import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from disque_trio.spark.segments import PACKED

FOR_EVER = 1 << 62
_TAIL = 1 << 16  # bytes in which the last line is looked for
_MARK = re.compile(rb'"event": ?"(?:started|stopped|dropped)"')
_NAME = re.compile(r"-(\d+)-(\d+)\.jsonl")


class Ends(NamedTuple):
    """What has to be known of a segment.

    Attributes:
        node: id. first, last: times of its first and last line, ms by the node's clock.
        started: it begins with the node's saying that it begins to write.
        stopped: it ends with the node's saying that nothing is missing up to here.
        dropped: pairs of times, between which it says that events are missing, or lines are
            damaged.
    """

    node: str
    first: int
    last: int
    started: bool
    stopped: bool
    dropped: Sequence[Sequence[int]]


class Gap(NamedTuple):
    """The log of ``node`` (its place in the audit's list) says nothing of what was after ``start``
    and before ``end``, ms by the node's clock; FOR_EVER: it ends at ``start``."""

    node: int
    start: int
    end: int


def ends_of(path: Path, thorough: bool = False) -> Ends | None:
    """The ends of a segment; None when no line of it says whose it is.

    Args:
        thorough: look at all lines, for what they say that is missing, and for damaged ones.

    Raises:
        EOFError, OSError, zlib.error: it is compressed, and damaged.
    """
    packed = path.name.endswith(PACKED)
    with gzip.open(path) if packed else path.open("rb") as file:
        first = _event(file.readline())
        if packed or thorough or not first:
            file.seek(0)
            return _ends_in(file, thorough)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL, 0))
        lines = file.read().splitlines()
    last = next((event for line in reversed(lines) if (event := _event(line))), first)
    return _ends(first, last, [])


def _ends_in(lines: Iterable[bytes], thorough: bool) -> Ends | None:
    """The ends of a segment that is read from its beginning."""
    first: dict[str, object] = {}
    last: dict[str, object] = {}
    before = b""  # the line before, if it was not looked at
    missing: list[tuple[int, int]] = []
    damaged = False
    for line in lines:
        if first and not thorough and not _MARK.search(line):
            before = line if line.startswith(b"{") else before
            continue
        event = _event(line)
        if not event:
            damaged = damaged or not line.isspace()
            continue
        last = _event(before) or last or event
        if damaged or event["event"] == "dropped":
            missing.append((_time(last), _time(event)))
        first = first or event
        last = event
        before = b""
        damaged = False
    last = _event(before) or last
    if not first:
        return None
    if damaged:
        missing.append((_time(last), _time(last)))
    return _ends(first, last, missing)


def _ends(
    first: dict[str, object], last: dict[str, object], missing: list[tuple[int, int]]
) -> Ends:
    return Ends(
        str(first["node"]),
        _time(first),
        _time(last),
        first["event"] == "started",
        last["event"] == "stopped",
        missing,
    )


def _event(line: bytes) -> dict[str, object]:
    """An event that has all that is needed here; empty: the line is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(event, dict) or not isinstance(event.get("node"), str):
        return {}
    return event if isinstance(event.get("time"), int) and "event" in event else {}


def _time(event: dict[str, object]) -> int:
    time = event["time"]
    assert isinstance(time, int)
    return time


def gaps_of(segments: Mapping[str, Ends], nodes: Sequence[str]) -> list[Gap]:
    """The gaps in the logs of ``nodes``, of which these are all ``segments``, by name."""
    logs: dict[str, list[tuple[tuple[int, int], Ends]]] = {}
    for name, ends in segments.items():
        logs.setdefault(ends.node, []).append((_order(name), ends))
    gaps: list[Gap] = []
    for place, node in enumerate(nodes):
        before: Ends | None = None
        for _, ends in sorted(logs.get(node, ())):
            if before is None and not ends.started:  # what was before has been removed
                gaps.append(Gap(place, 0, ends.first - 1))
            elif before is not None and ends.started and not before.stopped:
                gaps.append(_gap(place, before.last, ends.first))
            gaps += [_gap(place, one, other) for one, other in ends.dropped]
            before = ends
        if before is not None and not before.stopped:
            gaps.append(Gap(place, before.last, FOR_EVER))
    return gaps


def _order(name: str) -> tuple[int, int]:
    """Where a segment belongs among those of its node."""
    found = _NAME.search(name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _gap(node: int, one: int, other: int) -> Gap:
    # The clock may have been set back meanwhile.
    return Gap(node, min(one, other), max(one, other))
