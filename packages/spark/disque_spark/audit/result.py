"""What a run of the audit found, in numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disque_spark.audit.gaps import Silence
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
        missing_nodes: ids of nodes that appear in the logs, but have no log here and are not in
            ``gone``.
        missing_segments: missing or incomplete segments that others refer to, by name, with the
            number of missing lines (-1: unknown).
        gone: ids of nodes without logs that are known to have been removed for good.
        silences: what existing logs do not cover, by node.
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
    missing_nodes: Sequence[str] = ()
    missing_segments: Mapping[str, int] = field(default_factory=dict)
    gone: Sequence[str] = ()
    silences: Mapping[str, Silence] = field(default_factory=dict)
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
    def is_partial(self) -> bool:
        """Whether lines that should be here are missing or unreadable."""
        missing = self.missing_nodes or self.missing_segments
        return bool(missing or self.dropped or self.damaged or self.unknown)

    @property
    def is_whole(self) -> bool:
        """Whether the logs are complete for the time they cover."""
        return not (self.is_partial or self.gone or self.silences)
