"""Event logs as jobs and findings, without a Spark: the functions of the audit over whole logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disque_trio.spark.audit_clocks import Clocks, clocks_of, least_in, least_of
from disque_trio.spark.audit_events import Seen, read
from disque_trio.spark.audit_findings import clock_findings, found_in
from disque_trio.spark.audit_gaps import Gap, ends_of, gaps_of
from disque_trio.spark.audit_jobs import jobs_of
from disque_trio.spark.audit_judge import Finding, Rules
from disque_trio.spark.segments import Piece, find_segments


@dataclass
class Audited:
    """What an audit says. ``jobs``: rows of the table, by id."""

    nodes: list[str]
    jobs: dict[str, dict[str, Any]]
    findings: list[Finding]
    gaps: list[Gap]
    clocks: Clocks
    seen: Seen

    def found(self, kind: str) -> dict[str, set[str | None]]:
        """The findings of ``kind``: the reasons, by job."""
        jobs: dict[str, set[str | None]] = {}
        for finding in self.findings:
            if finding.kind == kind and finding.job is not None:
                jobs.setdefault(finding.job, set()).add(finding.reason)
        return jobs


def audited(logs: Sequence[Path], rules: Rules) -> Audited:
    """Audit the closed segments in the directories ``logs``."""
    files = find_segments([str(log) for log in logs], False)
    ends = {path.name: found for path in files if (found := ends_of(path, True)) is not None}
    nodes = list(dict.fromkeys(found.node for found in ends.values()))
    pieces = [Piece(str(path), 0, path.stat().st_size) for path in files]
    partial, seen = read(pieces, nodes)
    batch = jobs_of(partial, nodes).combine_chunks().to_batches()[0]
    clocks = clocks_of(least_in(least_of(batch).to_pylist()), len(nodes))
    gaps = gaps_of(ends, nodes)
    found = clock_findings(clocks, rules, nodes)
    found += found_in(batch, rules, nodes, clocks.ahead, seen.last, gaps, clocks.doubt)
    jobs = {row["id"]: row for row in batch.to_pylist()}
    return Audited(nodes, jobs, found, gaps, clocks, seen)
