"""Adds jobs again: those that a filter selects from an archive or from append-only files.

At least once: if the process dies, it may have added jobs that are not yet recorded as done.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from disque_spark.append_only import find_files
from disque_spark.archive import read_archive
from disque_spark.audit.manifest import FINDINGS, JOBS
from disque_spark.audit.tables import read_table
from disque_spark.client import Arg
from disque_spark.datasources.aof import read_all
from disque_spark.files import Place, location, settings_of
from disque_spark.notes import note, noted
from disque_spark.sink.adder import Adder
from disque_trio.job_options import ScheduleOptions, encode
from disque_trio.respclient.login import Login

CHUNK = 200  # the most jobs added at once
_TICKS = 10  # chunks a second, if a rate is given


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
        login: how to log in.
        queue: queue to add all jobs to; None: each job's own queue.
        options: options of ADDJOB.
        timeout: ms that ADDJOB waits for its copies.
        rate: the most jobs to add per second; None: no limit.
        done: list of ids of added jobs (see ``notes``); jobs in it are not added again.
        failover: seconds to look for a node when none answers.
    """

    nodes: Sequence[str]
    login: Login | None = None
    queue: str | None = None
    options: ScheduleOptions = field(default_factory=ScheduleOptions)
    timeout: int = 5000
    rate: float | None = None
    done: Place | None = None
    failover: float = 30.0


@dataclass
class ReplayCounts:
    """Counts of the selected jobs.

    Attributes:
        added: jobs added; in a dry run, those that would be.
        without_body: jobs that cannot be added, for lack of a body.
        already: jobs that an earlier run had added.
        refused: jobs refused, by the text of the error.
        queues: jobs added, by queue.
    """

    added: int = 0
    without_body: int = 0
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)


def replay(
    jobs: DataFrame,
    target: Target,
    *,
    limit: int | None = None,
    dry_run: bool = False,
    outcome: ReplayCounts | None = None,
    whole: Callable[[], AbstractContextManager[None]] = nullcontext,
    progress: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> ReplayCounts:
    """Add jobs again, each with a new id.

    Args:
        jobs: columns id, queue, body.
        limit: the most jobs to add, not counting those without a body or added before.
        dry_run: only count.
        outcome: counts to add to; a caller that passes it still has them after an exception.
        whole: context manager for adding a chunk and recording it, which must not be interrupted.
        progress: called now and then with a line about the progress.
        sleep, clock: as in the module ``time``.

    Raises:
        WireError: no node can be reached.
    """
    outcome = ReplayCounts() if outcome is None else outcome
    before = _noted(target.done)
    chosen = islice(_not_added_before(jobs, before, outcome), limit)
    if dry_run:
        for row in chosen:
            outcome.added += 1
            outcome.queues[target.queue or row["queue"]] += 1
        return outcome
    chunk = CHUNK if target.rate is None else max(1, min(CHUNK, int(target.rate / _TICKS)))
    due = clock()
    with closing(Adder(target.nodes, target.login, failover=target.failover)) as adder:
        while rows := list(islice(chosen, chunk)):
            if target.rate is not None:
                early = due - clock()
                if early > 0:
                    sleep(early)
                # Time lost is not made up for.
                due = max(due, clock()) + len(rows) / target.rate
            with whole():
                _add(adder, rows, target, outcome)
            progress(f"{outcome.added} jobs added")
    return outcome


def _not_added_before(jobs: DataFrame, before: set[str], outcome: ReplayCounts) -> Iterator[Row]:
    for row in jobs.toLocalIterator(prefetchPartitions=True):
        if row["body"] is None:
            outcome.without_body += 1
        elif row["id"] in before:
            outcome.already += 1
        else:
            yield row


def _add(adder: Adder, rows: Sequence[Row], target: Target, outcome: ReplayCounts) -> None:
    options = encode(target.options)
    requests: list[tuple[Arg, ...]] = [
        ("ADDJOB", target.queue or row["queue"], bytes(row["body"]), target.timeout, *options)
        for row in rows
    ]
    refused = dict(adder.add(requests))
    outcome.refused.update(refused.values())
    added = [row for place, row in enumerate(rows) if place not in refused]
    outcome.added += len(added)
    outcome.queues.update(target.queue or row["queue"] for row in added)
    if target.done is not None and added:
        _note(target.done, [row["id"] for row in added])


def _note(done: Place, ids: Sequence[str]) -> None:
    """Record the ids of added jobs."""
    note(location(done), [json.dumps(id).encode() for id in ids])


def _noted(done: Place | None) -> set[str]:
    """The ids of jobs that earlier runs have added. The last line may be partial, if a run died."""
    ids = set()
    for line in noted(location(done)) if done is not None else ():
        try:
            ids.add(str(json.loads(line)))
        except ValueError:
            continue
    return ids
