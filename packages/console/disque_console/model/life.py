"""The history of a job in event logs, and which files may contain it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

SLACK: Final = 10.0  # s by which nodes' clocks may differ, and files may lag
_NAME: Final = re.compile(
    r"(?P<name>events-(?P<node>[0-9a-f]{1,8})-(?P<start>\d{1,16})-(?P<number>\d{1,9})\.jsonl)"
    r"(?P<end>|\.gz|\.open)"
)
_LAST: Final = 253_000_000_000_000  # ms: datetime ends with the year 9999
_ENDS: Final = ("", ".gz", ".open")  # in order of preference, if files have the same lines


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """A line about the job.

    Attributes:
        time: s since the epoch, by the clock of the node.
        node: its id. by: the client or node that caused it, or empty.
        until: the end of a pause (s since the epoch), or None.
    """

    time: float
    node: str
    event: str
    reason: str = ""
    queue: str = ""
    by: str = ""
    nacks: int = 0
    deliveries: int = 0
    until: float | None = None


@dataclass(slots=True)
class Life:
    """The history of a job.

    Attributes:
        events: in order of time.
        files, size: how many files were read, and their uncompressed size in bytes.
        left: how many files were not read to the end.
        stopped: why reading stopped; empty if all files were read.
        problem: why events may be missing; empty if nothing went wrong.
    """

    events: list[LifeEvent]
    files: int = 0
    size: int = 0
    left: int = 0
    stopped: str = ""
    problem: str = ""


def read_event(line: bytes, id: str) -> LifeEvent | None:
    """Read a line; None if it is about another job, or incomplete."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("id") != id:
        return None

    def word(name: str) -> str:
        value = fields.get(name)
        return value if isinstance(value, str) else ""

    def number(name: str) -> int:
        value = fields.get(name)
        return value if isinstance(value, int) and 0 <= value < _LAST else 0

    return LifeEvent(
        time=number("time") / 1000,
        node=word("node"),
        event=word("event"),
        reason=word("reason"),
        queue=word("queue"),
        by=word("client") or word("peer"),
        nacks=number("nacks"),
        deliveries=number("deliveries"),
        until=number("until") / 1000 if "until" in fields else None,
    )


def files_of(names: Iterable[str], since: float | None) -> list[str]:
    """The files that may contain events of a job created at ``since`` (s), in reading order: from
    that time on, or newest first if it is unknown (None)."""
    found: dict[str, tuple[str, int, int, str]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        node, plain = match["node"], match["name"]
        entry = (node, int(match["start"]), int(match["number"]), name)
        other = found.get(plain)
        if other is None or _rank(name) < _rank(other[3]):
            found[plain] = entry
    in_order = sorted(found.values())
    wanted: list[tuple[int, int, str]] = []
    for at, (node, start, number, name) in enumerate(in_order):
        following = in_order[at + 1] if at + 1 < len(in_order) else None
        ends = following[1] / 1000 if following and following[0] == node else None
        if since is None or ends is None or ends >= since - SLACK:
            wanted.append((start, number, name))
    wanted.sort(reverse=since is None)
    return [name for _, _, name in wanted]


def _rank(name: str) -> int:
    return max(at for at, end in enumerate(_ENDS) if name.endswith(end))
