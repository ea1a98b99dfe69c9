"""Computes the numbers of a report from the tables of an audit, in one process, without Spark."""

import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.queue_minutes import MINUTE
from disque_spark.audit.rules import KINDS
from disque_spark.audit.waits import UNSURE, waiting_of
from disque_spark.files import Location, Place, location
from disque_spark.report import series as sr
from disque_spark.report.compare import before_of
from disque_spark.report.lives import Nodes, life_of
from disque_spark.report.page import page
from disque_spark.report.remarkable import remarkable
from disque_spark.report.tables import FINDINGS, JOBS, MINUTES, Sums, Tables, ms
from disque_spark.report.whole import Whole, headline

Json: TypeAlias = Any  # values as they are written to the file
MOST_FINDINGS = 100  # findings of each kind
MOST_QUEUES = 1600
DEEPEST = 6  # queues in the plot of depths
DRAWN = 40  # queues that have plots of their own
MOST_WORST = 10
_FEW = 6
_ENDS = ("acked", "dead", "cancelled", "expired", "deleted", "evicted")
_JOB = (
    *("id", "queue", "size", "delay", "deliveries", "nacks_said", "wait_ms", "processing_ms"),
    *("first_delivered", "acked_at", "ended_at", "ended", "first_event", "last_event", "trace"),
)
_WORST = {"deliveries": 1, "nacks_said": 0, "wait_ms": 0, "processing_ms": 0}  # and least values


def make_report(
    audit: Place,
    before: Mapping[str, Json] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, Json]:
    """The numbers of a report on the current version of an audit.

    Args:
        before: numbers of an earlier report to compare with; if they are of this version, what they
            were compared with is used.
        progress: called with what is being computed.
        settings: settings for remote file systems, as Spark has them.

    Raises:
        StoreError: there is no audit at that path.
        ComparisonError: ``before`` is not a report.
    """
    numbers = _Report(Tables(location(audit, settings)), progress).numbers()
    numbers["before"] = None if before is None else before_of(before, numbers)
    return numbers


def write_report(numbers: Mapping[str, Json], html: Place | None, file: Place | None) -> None:
    """Write the page, the numbers, or both. If both, the page has a link to the numbers."""
    if html is not None:
        link = None if file is None else _link(location(html), location(file))
        location(html).write_bytes(page(numbers, link).encode())
    if file is not None:
        text = json.dumps(numbers, ensure_ascii=False) + "\n"
        location(file).write_bytes(text.encode())


def _link(html: Location, file: Location) -> str:
    """The link from the page to the file."""
    return file.name if html.parent == file.parent else str(file)


class _Report:
    """Computes the numbers. Jobs and minutes are read once, a file at a time, and the jobs whose
    histories are shown once more."""

    def __init__(self, tables: Tables, progress: Callable[[str], None]) -> None:
        self._tables = tables
        self._manifest = manifest = tables.manifest
        self._progress = progress
        self._span = manifest.last - manifest.first
        self._step = step = sr.step_of(self._span, sr.POINTS)
        self._minutes = sr.Minutes(step)
        self._times = {name: sr.Durations(name, step) for name in sr.TIMES}
        self._by_queue = Sums(("queue",), {"jobs": "sum", "bytes": "sum"})
        self._ends = Sums(("ended", "times"), {"jobs": "sum"})
        self._nodes = Nodes([*manifest.nodes, *manifest.without_logs])
        self._worst: dict[str, list[dict[str, Json]]] = {name: [] for name in _WORST}

    def numbers(self) -> dict[str, Json]:
        manifest = self._manifest
        self._progress("reading the findings")
        columns = ("kind", "reason", "job", "queue", "time", "nodes", "detail", "would_decide")
        findings = self._tables.all(FINDINGS, columns)
        findings = findings.set_column(4, "time", ms(findings.column("time")))
        whole = Whole(findings)
        self._progress("reading the minutes")
        for rows in self._tables.rows(MINUTES, sr.Minutes.columns):
            self._minutes.add(rows)
        first, last = manifest.first, manifest.last
        peaks = self._minutes.peaks(first, last) if self._step > sr.FINE else []
        fine = sr.ShortSteps(sr.FINE, peaks)
        short = sr.ShortSteps(self._step, [(first, last)] if self._step < MINUTE else [])
        done = 0
        for rows in self._tables.rows(JOBS, _JOB):
            self._progress(f"reading the jobs, {done:,} of {manifest.jobs:,}")
            whole.add(rows)
            self._add(rows)
            fine.add(rows)
            short.add(rows)
            done += rows.num_rows
        self._progress("summing up")
        steps = short.table() if self._step < MINUTE else self._minutes.steps.table()
        queues, every = self._queues(findings)
        deepest = sorted(queues, key=lambda row: -(row["most_depth"] or 0))[:DEEPEST]
        drawn = remarkable(queues, DRAWN)
        own_step = max(self._step, sr.step_of(self._span, sr.MOST_CELLS // max(len(drawn), 1)))
        reasons, jobs_found = _reasons(findings)
        shown = _shown(findings)
        totals, deliveries = self._totals()
        if totals["jobs"]:
            totals["young"] = whole.young
        ids = {found["job"] for found in shown if found["job"] is not None}
        ids |= {row["id"] for rows in self._worst.values() for row in rows}
        return {
            "version": manifest.version,
            "events": manifest.events,
            "dropped": manifest.dropped,
            "unknown": manifest.unknown,
            "damaged": manifest.damaged,
            "first": manifest.first,
            "last": manifest.last,
            "nodes": manifest.nodes,
            "addresses": manifest.addresses,
            "lacks": [lack._asdict() for lack in manifest.lacks(time.time_ns() // 1_000_000)],
            "segments": len(manifest.segments),
            "settings": manifest.settings,
            "headline": headline(found := whole.numbers(manifest.end)),
            "whole": found,
            # Files say which of these their nodes still have.
            "unsure": 0 if manifest.aofs else waiting_of(manifest.waits, UNSURE).jobs,
            "jobs": totals,
            "findings": {kind: sum(counts.values()) for kind, counts in reasons.items()},
            "finding_jobs": jobs_found,
            "reasons": reasons,
            "findings_shown": shown,
            "queues": queues,
            "queues_in_all": every,
            "step": self._step,
            "rates": sr.rates(steps),
            "peaks": {"step": sr.FINE, "windows": peaks, "rates": sr.rates(fine.table())},
            **{name: sr.rows_of(found.percentiles(["at"])) for name, found in self._times.items()},
            "depth": sr.depths(steps, [row["queue"] for row in deepest]),
            "series": sr.of_queues(steps, list(self._times.values()), drawn, own_step),
            "deliveries": deliveries,
            "worst": self._worst,
            "lives": self._lives(ids),
            "by_node": self._nodes.rows(),
            "clients": manifest.clients,
        }

    def _add(self, jobs: pa.RecordBatch) -> None:
        """Count some jobs."""
        ones = pa.array([1] * jobs.num_rows)
        column = jobs.column
        for durations in self._times.values():
            durations.add(jobs)
        self._by_queue.add({"queue": column("queue"), "jobs": ones, "bytes": column("size")})
        times = pc.min_element_wise(column("deliveries"), _FEW)
        self._ends.add({"ended": column("ended"), "times": times, "jobs": ones})
        self._nodes.add(column("trace"))
        wanted = ["id", "queue", "deliveries", "nacks_said", "wait_ms", "processing_ms", "ended"]
        for order, least in _WORST.items():
            mine = jobs.select(wanted).filter(pc.greater(column(order), least))
            best = pc.select_k_unstable(
                mine, MOST_WORST, [(order, "descending"), ("id", "ascending")]
            )
            rows = [*self._worst[order], *mine.take(best).to_pylist()]
            rows.sort(key=lambda row: (-row[order], row["id"]))
            self._worst[order] = rows[:MOST_WORST]

    def _totals(self) -> tuple[dict[str, Json], list[list[Json]]]:
        """The totals of all jobs, and how many were delivered 0, 1, 2, … times; the last row is "6
        or more"."""
        if not self._manifest.jobs:
            return {"jobs": 0}, []
        by_end: dict[Any, Any] = dict(sr.rows_of(self._ends.table(["ended"])))
        by_times: dict[Any, Any] = dict(sr.rows_of(self._ends.table(["times"]).sort_by("times")))
        jobs = sum(by_end.values())
        totals = {
            "jobs": jobs,
            "delivered": jobs - by_times.get(0, 0),
            "delivered_again": sum(count for times, count in by_times.items() if times > 1),
            **{how: by_end.get(how, 0) for how in _ENDS},
            "open": by_end.get(None, 0),
            "bytes": pc.sum(self._by_queue.table().column("bytes")).as_py(),
        }
        totals |= dict.fromkeys(sr.OF_TIMES)
        for found in self._times.values():
            for row in found.percentiles(["at"], sr.EVER).drop_columns("at").to_pylist():
                totals |= row
        more = f"{_FEW} or more"
        return totals, [
            [more if times == _FEW else str(times), count] for times, count in by_times.items()
        ]

    def _queues(self, findings: pa.Table) -> tuple[list[dict[str, Json]], int]:
        """A row for each remarkable queue, the busiest first; and the number of all queues."""
        rows = self._by_queue.table().join(self._minutes.by_queue(), "queue", join_type="inner")
        for found in self._times.values():
            rows = rows.join(found.percentiles(["queue"]), "queue")
        about = findings.group_by("queue", use_threads=False).aggregate([("job", "count_distinct")])
        rows = rows.join(about.rename_columns(["queue", "found"]), "queue")
        rows = rows.sort_by([("jobs", "descending"), ("queue", "ascending")]).to_pylist()
        chosen = set(remarkable(rows, MOST_QUEUES))
        return [row for row in rows if row["queue"] in chosen], len(rows)

    def _lives(self, ids: Collection[str]) -> dict[str, Json]:
        """The histories of some jobs."""
        wanted = pa.array(sorted(ids), pa.string())
        lives: dict[str, Json] = {}
        for rows in self._tables.rows(JOBS, ("id", "queue", "trace")) if ids else ():
            for row in rows.filter(pc.is_in(rows.column("id"), value_set=wanted)).to_pylist():
                lives[row["id"]] = life_of(row["queue"], row["trace"])
        return lives


def _reasons(findings: pa.Table) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """The number of findings of each kind and reason; and the number of jobs with a finding of each
    kind, and of any kind (key ``""``)."""
    reasons: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    counts = findings.group_by(["kind", "reason"], use_threads=False).aggregate([([], "count_all")])
    for row in counts.to_pylist():
        reasons[row["kind"]][row["reason"] or ""] = row["count_all"]
    by_kind = findings.group_by("kind", use_threads=False).aggregate([("job", "count_distinct")])
    jobs = {row["kind"]: row["job_count_distinct"] for row in by_kind.to_pylist()}
    every = pc.count_distinct(findings.column("job")).as_py()
    return reasons, {kind: jobs.get(kind, 0) for kind in KINDS} | {"": every}


def _shown(findings: pa.Table) -> list[dict[str, Json]]:
    """The first findings of each kind, as rows of the table."""
    found: list[dict[str, Json]] = []
    for kind in KINDS:
        mine = findings.filter(pc.equal(findings.column("kind"), kind))
        order = [("time", "ascending"), ("job", "ascending")]
        found += mine.sort_by(order).slice(0, MOST_FINDINGS).to_pylist()
    return found
