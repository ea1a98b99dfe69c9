"""What is new in an audit since it was told last: findings, and figures of queues.

Pure: knows rows, no files and no receivers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Row = dict[str, Any]  # of a table; times in ms

MINUTE = 60_000  # ms
MOST_ROWS = 1000  # of a kind in a notice
MOST_TOLD = 100_000  # findings that are remembered; others count only
_SHORT = ("kind", "reason", "job", "queue")


@dataclass
class Told:
    """What a receiver knows.

    Attributes:
        findings: those that stand, by their keys, in short.
        until: the figures of all minutes before this one were told, ms.
    """

    findings: dict[str, Row] = field(default_factory=dict)
    until: int = 0

    def as_json(self) -> list[object]:
        """As it is kept between two runs."""
        return [self.findings, self.until]

    @classmethod
    def of(cls, kept: object) -> Self:
        """What was kept. Raises ValueError: it is not that."""
        match kept:
            case [dict(findings), int(until)]:
                return cls(findings, until)
        raise ValueError("not what a watch keeps")


@dataclass(frozen=True)
class Notice:
    """What a receiver is told at once.

    Attributes:
        time: of the last event that was looked at, ms.
        found: findings that are new. gone: findings that were told and do not stand any more, in
            short: their time was too early, or a log said later what had happened.
        queues: rows of ``queue_minutes``, of minutes that are over.
        more: of each of these how many rows there are beside those that are named.
        standing: how many findings there are now, by kind.
        missing_nodes, missing_segments: as in the result of an audit.
    """

    time: int
    found: Sequence[Row]
    gone: Sequence[Row]
    queues: Sequence[Row]
    more: Mapping[str, int]
    standing: Mapping[str, int]
    missing_nodes: Sequence[str] = ()
    missing_segments: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.found or self.gone or self.queues)

    def document(self) -> Row:
        """As JSON has it. ``id`` is that of its contents: who gets it twice can tell."""
        contents: Row = {
            "time": self.time,
            "found": list(self.found),
            "gone": list(self.gone),
            "queues": list(self.queues),
            "more": dict(self.more),
            "standing": dict(self.standing),
            "missing_nodes": list(self.missing_nodes),
            "missing_segments": list(self.missing_segments),
        }
        packed = json.dumps(contents, sort_keys=True).encode()
        return {"id": hashlib.sha256(packed).hexdigest()[:32], **contents}


def key_of(finding: Row) -> str:
    """What makes a finding the same in the next audit: not its time, nor the words about it."""
    nodes = [] if finding["job"] is not None else sorted(finding["nodes"] or ())
    what = [finding["kind"], finding["reason"], finding["job"], nodes]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20]


def compare(
    told: Told,
    findings: Iterable[Row],
    minutes: Iterable[Row],
    until: int,
    missing_nodes: Sequence[str] = (),
    missing_segments: Sequence[str] = (),
) -> tuple[Notice, Told]:
    """What is to be told, and what the receiver knows after that.

    Args:
        findings: all that are to be told and stand now, rows of ``findings``.
        minutes: rows of ``queue_minutes`` from ``told.until`` on.
        until: the time of the last event, ms.
    """
    standing = {key_of(finding): finding for finding in findings}
    known = {key: short for key, short in told.findings.items() if key in standing}
    gone = [short for key, short in told.findings.items() if key not in standing]
    new = []
    for key, finding in sorted(standing.items(), key=lambda item: item[1]["time"] or 0):
        if key not in known and len(known) < MOST_TOLD:
            known[key] = {name: finding[name] for name in _SHORT}
            new.append(finding)
    over = max(until - until % MINUTE, told.until)
    figures = [row for row in minutes if told.until <= row["minute"] < over]
    figures.sort(key=lambda row: (row["minute"], -_busy(row)))
    lists = {"found": new, "gone": gone, "queues": figures}
    notice = Notice(
        time=until,
        found=new[:MOST_ROWS],
        gone=gone[:MOST_ROWS],
        queues=figures[:MOST_ROWS],
        more={name: max(len(rows) - MOST_ROWS, 0) for name, rows in lists.items()},
        standing=Counter(finding["kind"] for finding in standing.values()),
        missing_nodes=missing_nodes,
        missing_segments=missing_segments,
    )
    return notice, Told(known, over)


def _busy(row: Row) -> int:
    return sum(row[name] or 0 for name in ("added", "delivered", "depth"))
