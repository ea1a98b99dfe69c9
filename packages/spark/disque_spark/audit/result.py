"""What a run of the audit found, in numbers."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disque_spark.audit.lacks import NODE, SEGMENT, Lack
from disque_spark.audit.rules import HELD, NEVER_DELIVERED, SERIOUS, WAITING, WAITING_LETTER
from disque_spark.audit.waits import UNSURE, Waiting, Waits, waiting_of
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
        waits: the jobs that are in queues at the end of the logs, whether these are findings or
            not.
        settings: the thresholds of the findings.
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
    waits: Waits = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)

    @property
    def waiting(self) -> Waiting:
        """The jobs that wait in queues."""
        return waiting_of(self.waits, WAITING)

    @property
    def letters(self) -> Waiting:
        """The dead letters that wait in queues."""
        return waiting_of(self.waits, WAITING_LETTER)

    @property
    def unsure(self) -> Waiting:
        """Those of both that their nodes, which were started again since, may have lost."""
        return waiting_of(self.waits, UNSURE)

    def fails(self, kinds: Collection[str] = ()) -> bool:
        """Whether there is anything that ``--check`` fails on: serious findings, missing lines, or
        findings of ``kinds``. Jobs that wait count among these however long they do, if the rules
        do not say how long they may."""
        more = any(self.findings[kind] for kind in kinds)
        waiting = WAITING in kinds and not self.settings.get("waiting") and self.waiting.jobs > 0
        return bool(self.serious or self.is_partial or more or waiting)

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
