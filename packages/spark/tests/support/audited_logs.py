"""Turns event logs into jobs and findings without Spark: the audit's functions over whole logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from disque_spark.audit.classify import Finding
from disque_spark.audit.clocks import Clocks, clocks_by_id, least_of, ranks_of
from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import clock_findings, judged
from disque_spark.audit.gaps import (
    FOR_EVER,
    Gap,
    ends_of,
    gaps_of,
    head_of,
    holes_of,
    starts_of,
)
from disque_spark.audit.jobs import jobs_of
from disque_spark.audit.lacks import SEGMENT
from disque_spark.audit.partial_jobs import Seen, read
from disque_spark.audit.rules import Rules
from disque_spark.audit.ticks import TICK_SCHEMA, tick_findings
from disque_spark.segments import Piece, find_segments
from packages.spark.tests.support.clock_rows import least_in


@dataclass
class Audited:
    """The result of an audit.

    Attributes:
        jobs: rows of the table, by id. missing: nodes whose logs are missing.
        missing_segments: names of missing segments. waits: jobs that are in queues at the end.
    """

    nodes: list[str]
    jobs: dict[str, dict[str, Any]]
    findings: list[Finding]
    gaps: list[Gap]
    clocks: Clocks
    seen: Seen
    missing: list[str]
    missing_segments: dict[str, int]
    waits: list[Finding]

    def found(self, kind: str) -> dict[str, set[str | None]]:
        """The findings of a ``kind``: reasons by job."""
        jobs: dict[str, set[str | None]] = {}
        for finding in self.findings:
            if finding.kind == kind and finding.job is not None:
                jobs.setdefault(finding.job, set()).add(finding.reason)
        return jobs


def audited(logs: Sequence[Path], rules: Rules) -> Audited:
    """Audit the closed segments in the directories ``logs``."""
    files = find_segments([str(log) for log in logs], False)
    heads = {path: head for path in files if (head := head_of(path)) is not None}
    nodes = list(dict.fromkeys(head.node for head in heads.values()))
    pieces = [Piece(path, 0, path.size()) for path in files]
    partial, seen, notes = read(pieces, nodes)
    batch = jobs_of(partial, nodes).combine_chunks().to_batches()[0]
    said = notes.segments()
    ends = {
        path.name: found
        for path, head in heads.items()
        if (found := ends_of(head, said[str(path)])) is not None
    }
    missing = sorted(notes.peers.difference(nodes))
    clocks = clocks_by_id(least_in(least_of(batch, not missing).to_pylist()), nodes)
    gaps = gaps_of(ends, nodes)
    gaps += [Gap(len(nodes) + place, 0, FOR_EVER) for place in range(len(missing))]
    ahead = [*clocks.ahead, *[0] * len(missing)]
    findings = clock_findings(clocks, rules, nodes)
    every = [*nodes, *missing]
    ranks, starts = ranks_of(every), starts_of(ends, nodes)
    known = Logs(every, ahead, seen.last, gaps, clocks.doubt, ranks, starts=starts)
    about = judged(batch, rules, known)
    findings += about.found
    findings += tick_findings(pa.concat_tables([TICK_SCHEMA.empty_table(), *notes.ticks]))
    jobs = {row["id"]: row for row in batch.to_pylist()}
    holes = holes_of(ends, nodes)
    parts = {hole.segment: hole.amount for hole in holes if hole.kind == SEGMENT}
    return Audited(nodes, jobs, findings, gaps, clocks, seen, missing, parts, about.waits)
