"""What a run of the audit found, in numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disque_spark.audit.lacks import NODE, SEGMENT, Lack
from disque_spark.audit.rules import HELD, NEVER_DELIVERED, SERIOUS
from disque_spark.files import Location


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        path: path of the current version of the tables.
        segments, events: number of new segments and events.
        jobs: number of rows of the table ``jobs``.
        dropped: events of all runs that were dropped, according to the logs.
        unknown: events of all runs of kinds that this version does not know.
        damaged: lines of all runs that are not events.
        findings: number of findings of each kind.
        reasons: number of findings of each kind and reason.
        lacks: what the logs lack.
        nodes: number of nodes with logs.
        first: time of the first event, ms.
        copies: number of files that are copies of segments under other names, and are ignored.
        last: time of the last event, ms.
        held: number of jobs in append-only files; None: no such files were given.
        unlogged: number of those that are not in the logs; None: likewise.
    """

    path: Path | Location
    segments: int
    events: int
    jobs: int
    dropped: int
    unknown: int
    damaged: int
    findings: Counter[str]
    reasons: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    lacks: Sequence[Lack] = ()
    nodes: int = 0
    first: int = 0
    copies: int = 0
    last: int = 0
    held: int | None = None
    unlogged: int | None = None

    @property
    def serious(self) -> int:
        """The number of findings about jobs that were not done, or that nodes did not treat as
        promised. A job that waits for its first delivery, according to a node's append-only file,
        does not count. For a job that was delivered, the file does not show that it was queued
        again."""
        waiting = self.reasons[NEVER_DELIVERED, HELD]
        return sum(self.findings[kind] for kind in SERIOUS) - waiting

    @property
    def missing_nodes(self) -> list[str]:
        """The ids of nodes that should have a log here."""
        return [lack.node for lack in self.lacks if lack.kind == NODE]

    @property
    def missing_segments(self) -> dict[str, int]:
        """Missing or incomplete segments that others refer to, by name, with the number of missing
        lines (-1: unknown)."""
        return {lack.segment: lack.amount for lack in self.lacks if lack.kind == SEGMENT}

    @property
    def is_partial(self) -> bool:
        """Whether the logs have holes about which something should be done."""
        return any(lack.is_hole for lack in self.lacks)

    @property
    def is_whole(self) -> bool:
        """Whether the logs show all that their nodes did."""
        return not self.lacks
