"""Computes the numbers of a report from the tables of an audit, with Spark."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from itertools import accumulate
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from disque_spark.audit.manifest import FINDINGS, JOBS, MINUTES, Manifest
from disque_spark.audit.queue_minutes import PERCENTILES
from disque_spark.audit.rules import KINDS
from disque_spark.audit.store import Store, StoreError
from disque_spark.audit.tables import read_table
from disque_spark.files import Location, Place, location, settings_of
from disque_spark.report.compare import before_of
from disque_spark.report.lives import Lives
from disque_spark.report.page import page
from disque_spark.report.remarkable import ORDERS, remarkable
from disque_spark.report.series import Series
from disque_spark.terminal import Part

T = TypeVar("T")
Json: TypeAlias = Any  # values as they are written to the file
POINTS = 240  # the most points of a line over the whole time
MOST_FINDINGS = 100  # findings of each kind
MOST_QUEUES = 1000  # the busiest queues
MORE_QUEUES = 100  # the first queues by each other order
DEEPEST = 6  # queues in the plot of depths
DRAWN = 40  # queues that have plots of their own
MOST_ROWS = 20
MOST_HOURS = 24 * 14
_STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
_PARTITIONS = "spark.sql.shuffle.partitions"
_LEAST_PARTITIONS, _JOBS_OF_A_TASK = 2, 100_000
_HOUR = 3_600_000
_FEW = 6
# The parts to compute, in order, and their approximate shares of the time.
_PARTS = {
    "queues": 1,
    "reasons": 1,
    "findings": 1,
    "jobs that stand out": 1,
    "all jobs": 1,
    "jobs with findings": 1,
    "rates": 1,
    "waiting": 1,
    "processing": 1,
    "depths": 1,
    "plots of queues": 1,
    "deliveries": 1,
    "hours": 1,
    "lives": 1,
    "nodes": 1,
}
_ENDS = ("acked", "dead", "cancelled", "expired", "deleted", "evicted")


def make_report(
    spark: SparkSession,
    audit: Place,
    before: Mapping[str, Json] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Json]:
    """The numbers of a report on the current version of an audit.

    Args:
        before: numbers of an earlier report to compare with; if they are of this version, what they
            were compared with is used.
        progress: called with what is being computed.

    Raises:
        StoreError: there is no audit at that path.
        ComparisonError: ``before`` is not a report.
    """
    place = location(audit, settings_of(spark))
    store = Store(place)
    if store.current is None:
        raise StoreError(f"no audit at {audit}")
    with _few_tasks(spark, store.manifest.jobs):
        numbers = _Report(spark, place, store.manifest, progress).numbers()
    numbers["before"] = None if before is None else before_of(before, numbers)
    return numbers


@contextmanager
def _few_tasks(spark: SparkSession, jobs: int) -> Iterator[None]:
    """Limit the number of shuffle partitions during the block, according to the number of jobs.
    With few jobs, Spark's default of 200 takes most of the time, since Spark does not coalesce
    cached partitions."""
    usual = spark.conf.get(_PARTITIONS)
    assert usual is not None
    wanted = max(_LEAST_PARTITIONS, jobs // _JOBS_OF_A_TASK)
    spark.conf.set(_PARTITIONS, str(min(int(usual), wanted)))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, usual)


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
    """Computes the numbers, with a query for each."""

    def __init__(
        self,
        spark: SparkSession,
        audit: Place,
        manifest: Manifest,
        progress: Callable[[str], None],
    ) -> None:
        self._manifest = manifest
        self._progress = progress
        tables = (read_table(spark, audit, name).drop("day") for name in (JOBS, MINUTES, FINDINGS))
        self._jobs, self._minutes, self._findings = tables
        span = (manifest.last - manifest.first) / 1000
        step = next((step for step in _STEPS if span / step <= POINTS), _STEPS[-1])
        self._step = step * 1000
        self._lives = Lives(spark, self._jobs, [*manifest.nodes, *manifest.without_logs])

    def numbers(self) -> dict[str, Json]:
        manifest = self._manifest
        of = self._part
        queues, every = of("queues", self._queues)
        reasons = of("reasons", self._reasons)
        shown = of("findings", self._shown)
        worst = of("jobs that stand out", self._worst)
        series = Series(self._jobs, self._minutes, self._step)
        deepest = sorted(queues, key=lambda row: -(row["most_depth"] or 0))[:DEEPEST]
        deep_names = [row["queue"] for row in deepest]
        busy_names = [row["queue"] for row in queues[:MOST_ROWS]]
        drawn = remarkable(queues, DRAWN)
        lives = {found["job"] for found in shown} | {
            row["id"] for rows in worst.values() for row in rows
        }
        ids = {job for job in lives if job is not None}
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
            "missing_nodes": manifest.missing_nodes,
            "missing_segments": manifest.missing_segments,
            "gone": manifest.missing_and_gone,
            "silences": {node: one._asdict() for node, one in manifest.silences.items()},
            "segments": len(manifest.segments),
            "settings": manifest.settings,
            "jobs": of("all jobs", self._totals),
            "findings": {kind: sum(counts.values()) for kind, counts in reasons.items()},
            "finding_jobs": of("jobs with findings", self._found_jobs),
            "reasons": reasons,
            "findings_shown": shown,
            "queues": queues,
            "queues_in_all": every,
            "step": self._step,
            "rates": of("rates", series.rates),
            "wait": of("waiting", lambda: self._times("wait_ms", "first_delivered")),
            "processing": of("processing", lambda: self._times("processing_ms", "acked_at")),
            "depth": of("depths", lambda: series.depths(deep_names)),
            "series": of("plots of queues", lambda: series.of_queues(drawn)),
            "deliveries": of("deliveries", self._deliveries),
            "hours": of("hours", lambda: self._hours(busy_names)),
            "worst": worst,
            "lives": of("lives", lambda: self._lives.of(ids)),
            "by_node": of("nodes", self._lives.by_node),
            "clients": manifest.clients,
        }

    def _part(self, name: str, make: Callable[[], T]) -> T:
        """Report what is being computed, and how much of the whole is done; then compute it."""
        ends = dict(zip(_PARTS, accumulate(_PARTS.values()), strict=True))
        whole = sum(_PARTS.values())
        begin = (ends[name] - _PARTS[name]) / whole
        self._progress(Part(f"page: {name}", begin, ends[name] / whole))
        return make()

    def _reasons(self) -> dict[str, dict[str, int]]:
        """The number of findings of each kind and reason."""
        reasons: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        for row in self._findings.groupBy("kind", "reason").count().collect():
            reasons[row["kind"]][row["reason"] or ""] = row["count"]
        return reasons

    def _totals(self) -> dict[str, Json]:
        """The totals of all jobs."""
        if not self._manifest.jobs:
            return {"jobs": 0}
        ended = f.col("ended")
        row = self._jobs.agg(
            f.count("*").alias("jobs"),
            f.count_if(f.col("deliveries") > 0).alias("delivered"),
            f.count_if(f.col("deliveries") > 1).alias("delivered_again"),
            *[f.count_if(ended == how).alias(how) for how in _ENDS],
            f.count_if(ended.isNull()).alias("open"),
            f.sum("size").alias("bytes"),
            *_percentiles("wait_ms", "wait"),
            *_percentiles("processing_ms", "processing"),
        ).first()
        assert row is not None
        found = self._findings.select(f.col("job").alias("id")).distinct()
        young = self._jobs.where(ended.isNull()).join(found, "id", "left_anti").count()
        return {**row.asDict(), "young": young}

    def _found_jobs(self) -> dict[str, int]:
        """The number of jobs with a finding of each kind, and of any kind (key ``""``)."""
        jobs = f.count_distinct("job").alias("jobs")
        counts = {
            row["kind"]: row["jobs"] for row in self._findings.groupBy("kind").agg(jobs).collect()
        }
        any_kind = self._findings.agg(jobs).first()
        assert any_kind is not None
        return {kind: counts.get(kind, 0) for kind in KINDS} | {"": any_kind["jobs"]}

    def _queues(self) -> tuple[list[dict[str, Json]], int]:
        """A row for each remarkable queue, the busiest first; and the number of all queues."""
        depth = f.col("depth")
        if "most_depth" in self._minutes.columns:  # tables of older versions do not have it
            depth = f.greatest(depth, "most_depth")
        minutes = self._minutes.groupBy("queue").agg(
            f.sum("delivered").alias("deliveries"),
            f.sum("requeued_retry").alias("retries"),
            f.sum("nacked").alias("nacks"),
            f.max("most_in_a_second").alias("most_in_a_second"),
            f.max(depth).alias("most_depth"),
            f.max_by("depth", "minute").alias("last_depth"),
        )
        jobs = self._jobs.groupBy("queue").agg(
            f.count("*").alias("jobs"),
            f.sum("size").alias("bytes"),
            *_percentiles("wait_ms", "wait"),
            *_percentiles("processing_ms", "processing"),
        )
        found = self._findings.groupBy("queue").agg(f.count_distinct("job").alias("found"))
        every = jobs.join(minutes, "queue").join(found, "queue", "left").cache()
        parts = [
            every.orderBy(f.desc_nulls_last(name), "queue").limit(most)
            for name, most in zip(ORDERS, (MOST_QUEUES, *[MORE_QUEUES] * 6), strict=True)
        ]
        rows = reduce(DataFrame.union, parts).distinct().orderBy(f.desc("jobs"), "queue")
        queues = [row.asDict() for row in rows.collect()]
        count = every.count()
        every.unpersist()
        return queues, count

    def _shown(self) -> list[dict[str, Json]]:
        """The first findings of each kind, as rows of the table."""
        place = f.row_number().over(Window.partitionBy("kind").orderBy("time", "job"))
        first = self._findings.withColumn("place", place).where(f.col("place") <= MOST_FINDINGS)
        found = [row.asDict() for row in first.withColumn("time", f.unix_millis("time")).collect()]
        found.sort(key=lambda row: (KINDS.index(row["kind"]), row.pop("place")))
        return found

    def _worst(self) -> dict[str, list[dict[str, Json]]]:
        """The jobs that were delivered most often, handed back most often, and so on."""
        columns = ("id", "queue", "deliveries", "nacks_said", "wait_ms", "processing_ms", "ended")
        least = {"deliveries": 1, "nacks_said": 0, "wait_ms": 0, "processing_ms": 0}
        parts = [
            self._jobs.where(f.col(name) > more)
            .select(f.lit(name).alias("order"), *columns)
            .orderBy(f.desc(name), "id")
            .limit(MOST_ROWS // 2)
            for name, more in least.items()
        ]
        worst: dict[str, list[dict[str, Json]]] = {name: [] for name in least}
        for row in reduce(DataFrame.union, parts).collect():
            found = row.asDict()
            worst[found.pop("order")].append(found)
        for order in worst:
            worst[order].sort(key=itemgetter("id"))
            worst[order].sort(key=itemgetter(order), reverse=True)
        return worst

    def _times(self, name: str, when: str) -> list[list[Json]]:
        """Time, p50, p95 and p99 of each time step that has jobs."""
        percentiles = f.percentile_approx(name, [percent / 100 for percent in PERCENTILES])
        known = self._jobs.where(f.col(name).isNotNull())
        at = f.floor(f.unix_millis(when) / self._step) * self._step
        rows = known.groupBy(at.alias("at")).agg(percentiles.alias("value")).orderBy("at").collect()
        return [[row["at"], *row["value"]] for row in rows]

    def _deliveries(self) -> list[list[Json]]:
        """How many jobs were delivered 0, 1, 2, … times; the last row is "6 or more"."""
        times = f.least("deliveries", f.lit(_FEW))
        rows = self._jobs.groupBy(times.alias("times")).count().orderBy("times").collect()
        return [
            [f"{row['times']}{' or more' if row['times'] == _FEW else ''}", row["count"]]
            for row in rows
        ]

    def _hours(self, queues: list[str]) -> dict[str, Json]:
        """How many jobs of each queue were delivered in each hour of the last two weeks."""
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


def _percentiles(column: str, name: str) -> list[Column]:
    return [
        f.percentile_approx(column, percent / 100).alias(f"{name}_p{percent}")
        for percent in PERCENTILES
    ]
