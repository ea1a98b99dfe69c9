"""Makes the report of an audit from its tables: the figures as JSON, and the HTML page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from disque_trio.spark.audit.queue_minutes import PERCENTILES
from disque_trio.spark.audit.rules import KINDS
from disque_trio.spark.audit.stages import read_jobs
from disque_trio.spark.audit.store import Manifest, Store, StoreError
from disque_trio.spark.report.page import page

Json: TypeAlias = Any  # rows as they are written to the file

POINTS = 240  # of a line over the whole time
MOST_FINDINGS = 100  # of each kind
MOST_QUEUES = 6
MOST_ROWS = 20
MOST_HOURS = 24 * 14
_STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
_HOUR = 3_600_000
_FEW = 6


def make_report(spark: SparkSession, audit: Path) -> dict[str, Json]:
    """The numbers of the report on the current version of an audit.

    Raises:
        StoreError: there is no audit at that path.
    """
    store = Store(audit)
    current = store.current
    if current is None:
        raise StoreError(f"no audit at {audit}")
    return _Report(spark, current, store.manifest).numbers()


def write_report(numbers: Mapping[str, Json], html: Path | None, file: Path | None) -> None:
    """Write the page, the numbers, or both."""
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(numbers), "utf-8")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", "utf-8")


class _Report:
    """The numbers, each with a query of its own over the tables."""

    def __init__(self, spark: SparkSession, path: Path, manifest: Manifest) -> None:
        self._manifest = manifest
        self._jobs = read_jobs(spark, path / "jobs")
        self._minutes = spark.read.parquet(str(path / "queue_minutes")).drop("day")
        self._findings = spark.read.parquet(str(path / "findings")).drop("day")
        span = (manifest.last - manifest.first) / 1000
        step = next((step for step in _STEPS if span / step <= POINTS), _STEPS[-1])
        self._step = step * 1000

    def numbers(self) -> dict[str, Json]:
        manifest = self._manifest
        queues = self._queues()
        busiest = [row["queue"] for row in queues[:MOST_QUEUES]]
        reasons: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        for row in self._findings.groupBy("kind", "reason").count().collect():
            reasons[row["kind"]][row["reason"] or ""] = row["count"]
        return {
            "events": manifest.events,
            "dropped": manifest.dropped,
            "unknown": manifest.unknown,
            "first": manifest.first,
            "last": manifest.last,
            "nodes": manifest.nodes,
            "missing_nodes": manifest.missing_nodes,
            "missing_segments": manifest.missing_segments,
            "segments": len(manifest.segments),
            "settings": manifest.settings,
            "jobs": self._totals(),
            "findings": {kind: sum(counts.values()) for kind, counts in reasons.items()},
            "reasons": reasons,
            "findings_shown": self._shown(),
            "queues": queues,
            "step": self._step,
            "wait": self._times("wait_ms", "first_delivered"),
            "processing": self._times("processing_ms", "acked_at"),
            "depth": {queue: self._depth(queue) for queue in busiest},
            "deliveries": self._deliveries(),
            "hours": self._hours([row["queue"] for row in queues[:MOST_ROWS]]),
        }

    def _totals(self) -> dict[str, Json]:
        """Of all jobs."""
        if not self._manifest.jobs:
            return {"jobs": 0}
        ended = f.col("ended")
        row = self._jobs.agg(
            f.count("*").alias("jobs"),
            f.count_if(f.col("deliveries") > 0).alias("delivered"),
            f.count_if(f.col("deliveries") > 1).alias("delivered_again"),
            *[
                f.count_if(ended == how).alias(how)
                for how in ("acked", "dead", "cancelled", "expired", "deleted", "evicted")
            ],
            f.count_if(ended.isNull()).alias("open"),
            f.sum("size").alias("bytes"),
            *_percentiles("wait_ms", "wait"),
            *_percentiles("processing_ms", "processing"),
        ).first()
        assert row is not None
        return row.asDict()

    def _queues(self) -> list[dict[str, Json]]:
        """Of each queue, the busiest first."""
        minutes = self._minutes.groupBy("queue").agg(
            f.sum("delivered").alias("deliveries"),
            f.sum("requeued_retry").alias("retries"),
            f.sum("nacked").alias("nacks"),
            f.max("most_in_a_second").alias("most_in_a_second"),
            f.max("depth").alias("most_depth"),
            f.max_by("depth", "minute").alias("last_depth"),
        )
        jobs = self._jobs.groupBy("queue").agg(
            f.count("*").alias("jobs"),
            f.sum("size").alias("bytes"),
            *_percentiles("wait_ms", "wait"),
            *_percentiles("processing_ms", "processing"),
        )
        rows = jobs.join(minutes, "queue").orderBy(f.desc("jobs"), "queue").limit(1000)
        return [row.asDict() for row in rows.collect()]

    def _shown(self) -> list[dict[str, Json]]:
        """The first findings of each kind, as they stand in the table."""
        shown = []
        for kind in KINDS:
            rows = (
                self._findings.where(f.col("kind") == kind)
                .select("*", f.unix_millis("time").alias("ms"))
                .orderBy("time", "job")
                .limit(MOST_FINDINGS)
            )
            for row in rows.collect():
                found = row.asDict()
                found["time"] = found.pop("ms")
                shown.append(found)
        return shown

    def _times(self, name: str, when: str) -> list[list[Json]]:
        """Time, p50, p95, p99 of each step of time in which there is something."""
        percentiles = f.percentile_approx(name, [percent / 100 for percent in PERCENTILES])
        known = self._jobs.where(f.col(name).isNotNull())
        rows = _over_time(known, when, self._step, percentiles)
        return [[row["at"], *row["value"]] for row in rows]

    def _depth(self, queue: str) -> list[list[int]]:
        """The depth at the end of each minute in which it changed; of long times not of each."""
        minutes = self._minutes.where(f.col("queue").eqNullSafe(queue))
        rows = _over_time(minutes, "minute", max(self._step, 60_000), f.max("depth"))
        return [[row["at"], row["value"]] for row in rows]

    def _deliveries(self) -> list[list[Json]]:
        """How many jobs were delivered 0, 1, 2 … times; the last is "6 or more"."""
        times = f.least("deliveries", f.lit(_FEW))
        rows = self._jobs.groupBy(times.alias("times")).count().orderBy("times").collect()
        return [
            [f"{row['times']}{' or more' if row['times'] == _FEW else ''}", row["count"]]
            for row in rows
        ]

    def _hours(self, queues: list[str]) -> dict[str, Json]:
        """How many jobs of each queue were delivered in each hour: the last two weeks of them."""
        last = self._manifest.last - self._manifest.last % _HOUR
        first = max(self._manifest.first - self._manifest.first % _HOUR, last - MOST_HOURS * _HOUR)
        at = f.floor(f.unix_millis("minute") / _HOUR) * _HOUR
        rows = (
            self._minutes.where(at >= first)
            .where(f.col("queue").isin(queues))
            .groupBy("queue", at.alias("at"))
            .agg(f.sum("delivered").alias("delivered"))
            .collect()
        )
        cells = [[row["queue"], row["at"], row["delivered"]] for row in rows]
        return {"first": first, "last": last, "queues": queues, "delivered": sorted(cells)}


def _over_time(rows: DataFrame, when: str, step: int, value: Column) -> list[Row]:
    """``value`` of the rows in each ``step`` (ms) of the time in the column ``when``."""
    at = f.floor(f.unix_millis(when) / step) * step
    return rows.groupBy(at.alias("at")).agg(value.alias("value")).orderBy("at").collect()


def _percentiles(column: str, name: str) -> list[Column]:
    return [
        f.percentile_approx(column, percent / 100).alias(f"{name}_p{percent}")
        for percent in PERCENTILES
    ]
