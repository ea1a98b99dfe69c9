"""The life of a job, as event logs tell it, and which of their files may tell of it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

SLACK: Final = 10.0  # s that clocks of nodes may differ, and files may be behind
_NAME: Final = re.compile(
    r"(?P<name>events-(?P<node>[0-9a-f]{1,8})-(?P<start>\d{1,16})-(?P<number>\d{1,9})\.jsonl)"
    r"(?P<end>|\.gz|\.open)"
)
_ENDS: Final = ("", ".gz", ".open")  # of two files with the same lines the first is read


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """A line about the job.

    Attributes:
        time: s since the epoch, by the clock of the node.
        node: its id. by: the client or the node that caused it; empty: none did.
        until: s since the epoch; None: it is no pause.
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
    """What was found.

    Attributes:
        events: in the order of their times.
        files, size: how many were read, and their bytes (those of the lines).
        left: how many files were not read to their end.
        stopped: why; empty: all were read.
        problem: why there may be more; empty: nothing went wrong.
    """

    events: list[LifeEvent]
    files: int = 0
    size: int = 0
    left: int = 0
    stopped: str = ""
    problem: str = ""


def read_event(line: bytes, id: str) -> LifeEvent | None:
    """A line of a log; None: it is about something else, or not whole."""
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
        return value if isinstance(value, int) else 0

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
    """The files that may tell of a job that was made at ``since`` (s), in the order in which to
    read them: from then on; the newest first where it is not known when that was (None)."""
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
