"""Adds jobs again: those that a filter selects from an archive or from append-only files.

Spark's tasks add them through the sink, with keys made of their old ids: a job is added once,
however often tasks or the whole replay are repeated while the nodes keep the keys.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from disque_spark.append_only import find_files
from disque_spark.archive import read_archive
from disque_spark.audit.manifest import FINDINGS, JOBS
from disque_spark.audit.tables import read_table
from disque_spark.datasources.aof import read_all
from disque_spark.defaults import DAY, EXACTLY_ONCE
from disque_spark.files import Place, location, settings_of
from disque_spark.options import batch_of
from disque_spark.plain import plain
from disque_spark.sink.writer import Sink
from disque_trio.job_options import ScheduleOptions

NO_QUEUE = "no queue is known; name one to add the jobs to"
TICKS = 10  # chunks a second, if a rate is given
_ADDED, _REFUSED, _WITHOUT_BODY, _ALREADY = "added", "refused", "without body", "already"
_OUTCOME = "outcome string, name string, jobs long"


class ReplayError(Exception):
    """Jobs cannot be replayed; the text says why."""


@dataclass(frozen=True)
class Choice:
    """Selects the jobs. At least one of the first two fields must be set: an audit has no bodies.

    Attributes:
        archive: a table written by ``archive``.
        aof: append-only files, or directories of them.
        audit: the output directory of an audit. ``where`` can use the columns of its table
            ``jobs``, and ``findings``, an array with the kinds of findings on the job.
        where: a filter in SQL.
        catalog: properties of the catalog, if the archive is an Iceberg table.
    """

    archive: Path | str | None = None
    aof: Sequence[str] = ()
    audit: Place | None = None
    where: str = "true"
    catalog: Mapping[str, str] = field(default_factory=dict)

    def jobs(self, spark: SparkSession) -> DataFrame:
        """The selected jobs: columns id, queue, body; body is null if it was not found.

        Raises:
            FileNotFoundError, StoreError, ArchiveError: a file, audit or archive does not exist.
            ReplayError: neither ``archive`` nor ``aof`` is set.
        """
        bodies = self._bodies(spark)
        if self.audit is None:
            rows = bodies
        else:
            known = [name for name in bodies.columns if name not in ("id", "body")]
            bodies = bodies.withColumnsRenamed({name: f"body_{name}" for name in known})
            rows = audited(spark, self.audit).join(bodies, "id", "left")
            # A log that begins in the middle of a job's life may not name the queue.
            rows = rows.withColumn("queue", f.coalesce("queue", "body_queue"))
        return rows.where(self.where).select("id", "queue", "body").dropDuplicates(["id"])

    def _bodies(self, spark: SparkSession) -> DataFrame:
        found = []
        if self.archive is not None:
            found.append(read_archive(spark, self.archive, self.catalog))
        if self.aof:
            # Including jobs that have been deleted since, if the file still has them.
            records = read_all(spark, find_files(self.aof, settings_of(spark)))
            found.append(records.where("body is not null").dropDuplicates(["id"]))
        if not found:
            raise ReplayError("an archive or append-only files are needed, for the bodies of jobs")
        if len(found) == 1:
            return found[0]
        archived, loaded = found
        return archived.unionByName(loaded, True).dropDuplicates(["id"])


def audited(spark: SparkSession, directory: Place) -> DataFrame:
    """The jobs of an audit, with the kinds of findings on each in the column ``findings``.

    Raises:
        StoreError: there is no audit.
    """
    findings = (
        read_table(spark, directory, FINDINGS)
        .where("job is not null")
        .groupBy(f.col("job").alias("id"))
        .agg(f.collect_set("kind").alias("findings"))
    )
    jobs = read_table(spark, directory, JOBS).drop("trace", "day")
    empty = f.array().cast("array<string>")
    return jobs.join(findings, "id", "left").withColumn("findings", f.coalesce("findings", empty))


@dataclass(frozen=True)
class Target:
    """The destination of the jobs.

    Attributes:
        nodes: addresses ``host:port``.
        connection: how to log in: options of the data source ``disque``.
        queue: queue to add all jobs to; None: each job's own queue.
        options: options of ADDJOB.
        mode: as for the sink: ``exactly-once``, or ``at-least-once`` for nodes without UNIQUE.
        unique_for: seconds for which the nodes keep a job's key, and add it only once.
        rate: the most jobs to add per second, which one task then does; None: no limit.
        done: the list of ids that an earlier version wrote; these jobs are not added.
        failover: seconds to look for a node when none answers.
    """

    nodes: Sequence[str]
    connection: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    options: ScheduleOptions = field(default_factory=ScheduleOptions)
    mode: str = EXACTLY_ONCE
    unique_for: int = DAY
    rate: float | None = None
    done: Place | None = None
    failover: int = 30

    def sink_options(self) -> dict[str, str]:
        """The options of the sink that adds the jobs."""
        given = {name: str(value) for name, value in self.options.items() if value is not None}
        more = {} if self.queue is None else {"queue": self.queue}
        if self.mode == EXACTLY_ONCE:
            more["uniqueFor"] = str(self.unique_for)
        return {
            **self.connection,
            **given,
            **more,
            "nodes": ",".join(self.nodes),
            "mode": self.mode,
            "onRefused": "drop",
            "failover": str(self.failover),
        }


@dataclass
class ReplayCounts:
    """Counts of the selected jobs.

    Attributes:
        added: jobs added, by this replay or by an earlier one with the same keys; in a dry run,
            those that would be.
        without_body: jobs that cannot be added, for lack of a body.
        already: jobs that are in the list ``done``.
        refused: jobs refused, by the text of the first such error.
        queues: jobs added, by queue.
    """

    added: int = 0
    without_body: int = 0
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)


def replay(
    jobs: DataFrame, target: Target, *, limit: int | None = None, dry_run: bool = False
) -> ReplayCounts:
    """Add jobs again, each with a new id.

    Args:
        jobs: columns id, queue, body.
        limit: the most jobs to add, not counting those without a body and those in ``done``: the
            first ones by id, so that a repeat adds the same ones.
        dry_run: only count.

    Raises:
        OptionError: an option has no meaning.
        PySparkException: a task failed: no node can be reached, for instance, or the nodes do not
            support UNIQUE.
    """
    rows = _sorted_out(jobs, target, limit)
    if dry_run:
        found = rows.groupBy("outcome", f.col("queue").alias("name")).agg(
            f.count("*").alias("jobs")
        )
    else:
        ready = rows.select("body", *([] if target.queue is not None else ["queue"]), "unique")
        sink = Sink(ready.schema, target.sink_options(), False)
        if target.rate is not None:
            rows = rows.coalesce(1)
        each = rows.mapInArrow(_adding(sink, ready.columns, target.rate), _OUTCOME)
        found = each.groupBy("outcome", "name").agg(f.sum("jobs").alias("jobs"))
    counts = ReplayCounts()
    for outcome, name, count in found.collect():
        if outcome == _ADDED:
            counts.added += count
            counts.queues[target.queue or name] += count
        elif outcome == _REFUSED:
            counts.refused[name or NO_QUEUE] += count
        elif outcome == _ALREADY:
            counts.already += count
        else:
            counts.without_body += count
    return counts


def _sorted_out(jobs: DataFrame, target: Target, limit: int | None) -> DataFrame:
    """The jobs with their ``outcome``, which is ``added`` for those to add, and the key for
    them."""
    outcome = f.when(f.col("body").isNull(), _WITHOUT_BODY)
    if target.done is not None:
        before = _noted(jobs.sparkSession, target.done).withColumn("before", f.lit(True))
        jobs = jobs.join(before, "id", "left")
        outcome = outcome.when(f.col("before"), _ALREADY)
    if target.queue is None:
        outcome = outcome.when(f.col("queue").isNull(), _REFUSED)
    rows = jobs.withColumn("outcome", outcome.otherwise(_ADDED))
    if limit is not None:
        some = rows.where(f.col("outcome") == _ADDED).orderBy("id").limit(limit)
        rows = rows.where(f.col("outcome") != _ADDED).unionByName(some)
    key = f.concat(f.lit("replay/"), "id")
    if target.mode != EXACTLY_ONCE:
        key = f.lit(None).cast("string")
    return rows.select("outcome", "queue", "body", key.alias("unique"))


def _adding(
    sink: Sink, columns: Sequence[str], rate: float | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that adds the jobs of a task, and yields how many had which outcome."""

    @plain
    def add(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        counts: Counter[tuple[str, str]] = Counter()

        def ready() -> Iterator[pa.RecordBatch]:
            for rows in batches:
                outcomes = rows.column("outcome")
                counts.update((outcome, "") for outcome in outcomes.to_pylist())
                yield rows.filter(pc.equal(outcomes, _ADDED)).select(columns)

        added = sink.write(ready() if rate is None else paced(ready(), rate))
        del counts[_ADDED, ""]  # not all of them
        counts.update({(_ADDED, str(queue)): count for queue, count in added.queues.items()})
        counts.update({(_REFUSED, added.errors[code]): n for code, n in added.refused.items()})
        kinds = {"outcome": pa.string(), "name": pa.string(), "jobs": pa.int64()}
        rows = [(*key, count) for key, count in counts.items() if count]
        return [batch_of(rows, pa.schema(kinds.items()))]

    return lambda batches: iter(add(batches))


def paced(
    batches: Iterable[pa.RecordBatch],
    rate: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in chunks, at most ``rate`` rows a second. Lost time is not made up for.

    Args:
        sleep, clock: as in the module ``time``.
    """
    most = max(1, int(rate / TICKS))
    due = clock()
    for rows in batches:
        for start in range(0, rows.num_rows, most):
            chunk = rows.slice(start, most)
            early = due - clock()
            if early > 0:
                sleep(early)
            due = max(due, clock()) + chunk.num_rows / rate
            yield chunk


def _noted(spark: SparkSession, done: Place) -> DataFrame:
    """The ids, each once, in the list of an earlier version: a file of JSON strings, one a line, or
    a directory of such files. The last line may be partial, if a run died."""
    place = location(done, settings_of(spark))
    if not place.exists():
        return spark.createDataFrame([], "id string")
    id = f.regexp_extract("value", '^"([^"]+)"$', 1).alias("id")
    return spark.read.text(place.uri).select(id).where("id != ''").distinct()
