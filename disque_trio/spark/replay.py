"""Adds jobs again: those that a filter selects from an archive or from append-only files.

At least once: when it dies, jobs may have been added that are not yet noted as done.
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

from disque_trio.respclient.login import Login
from disque_trio.spark.archive import read_archive
from disque_trio.spark.audit.manifest import FINDINGS, JOBS
from disque_trio.spark.audit.tables import read_table
from disque_trio.spark.client import Arg
from disque_trio.spark.datasources.aof import find_files, read_all
from disque_trio.spark.files import Place, location, settings_of
from disque_trio.spark.notes import note, noted
from disque_trio.spark.sink.adder import Adder

CHUNK = 200  # jobs that are added at once, without a rate
_TICKS = 10  # chunks a second, with one


class ReplayError(Exception):
    """Jobs cannot be replayed; the text says why."""


@dataclass(frozen=True)
class Choice:
    """Selects the jobs. At least one of the first two fields must be set: the audit has no bodies.

    Attributes:
        archive: a table that ``archive`` wrote.
        aof: append-only files, or directories of them.
        audit: the output directory of an audit: the columns of its table ``jobs`` can be used in
            ``where``, and ``findings``, an array of the kinds of findings on the job.
        where: a filter in SQL.
        catalog: properties of the catalog of an archive that is an Iceberg table.
    """

    archive: Path | str | None = None
    aof: Sequence[str] = ()
    audit: Place | None = None
    where: str = "true"
    catalog: Mapping[str, str] = field(default_factory=dict)

    def jobs(self, spark: SparkSession) -> DataFrame:
        """Columns id, queue, body; body is null where none was found.

        Raises:
            FileNotFoundError, StoreError, ArchiveError: something is not there.
            ReplayError: there is nowhere to take bodies from.
        """
        bodies = self._bodies(spark)
        if self.audit is None:
            rows = bodies
        else:
            known = [name for name in bodies.columns if name not in ("id", "body")]
            bodies = bodies.withColumnsRenamed({name: f"body_{name}" for name in known})
            rows = audited(spark, self.audit).join(bodies, "id", "left")
            # A log that begins in the middle of a job's life may not name it.
            rows = rows.withColumn("queue", f.coalesce("queue", "body_queue"))
        return rows.where(self.where).select("id", "queue", "body").dropDuplicates(["id"])

    def _bodies(self, spark: SparkSession) -> DataFrame:
        found = []
        if self.archive is not None:
            found.append(read_archive(spark, self.archive, self.catalog))
        if self.aof:
            # Those that were deleted since as well, if the file still has them.
            records = read_all(spark, find_files(self.aof, settings_of(spark)))
            found.append(records.where("body is not null").dropDuplicates(["id"]))
        if not found:
            raise ReplayError("bodies of jobs are in an archive or in append-only files: name one")
        if len(found) == 1:
            return found[0]
        archived, loaded = found
        return archived.unionByName(loaded, True).dropDuplicates(["id"])


def audited(spark: SparkSession, directory: Place) -> DataFrame:
    """The jobs of an audit, with the kinds of findings on each.

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
        nodes: ``host:port`` each. login: how to get into them.
        queue: instead of the one that they had.
        options: of ADDJOB: delay, retry, ttl, replicate, maxlen, priority.
        timeout: ms that an ADDJOB waits for its copies.
        rate: jobs a second at most; None: as fast as it goes.
        done: where is noted what was added (``notes``); what stands there is not added again.
        failover: seconds to look for a node when none answers.
    """

    nodes: Sequence[str]
    login: Login | None = None
    queue: str | None = None
    options: Mapping[str, int] = field(default_factory=dict)
    timeout: int = 5000
    rate: float | None = None
    done: Place | None = None
    failover: float = 30.0


@dataclass
class Outcome:
    """The outcome for the selected jobs.

    Attributes:
        added: jobs (of a dry run: that would be). refused: by the error's text.
        without_body: that cannot be added. already: that an earlier run has added.
        queues: how many of the added were for each queue.
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
    outcome: Outcome | None = None,
    whole: Callable[[], AbstractContextManager[None]] = nullcontext,
    progress: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Add jobs again, each under a new id.

    Args:
        jobs: columns id, queue, body.
        limit: at most so many, not counting those that cannot be added or have been.
        dry_run: only count.
        outcome: what to count in, for those who want to know when this is stopped.
        whole: entered to add a chunk and to note it: what must not be torn apart.
        progress: is told now and then.
        sleep, clock: of the time module.

    Raises:
        WireError: no node can be reached.
    """
    outcome = Outcome() if outcome is None else outcome
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
                # From now on: what was late is not made up for.
                due = max(due, clock()) + len(rows) / target.rate
            with whole():
                _add(adder, rows, target, outcome)
            progress(f"{outcome.added} jobs added")
    return outcome


def _not_added_before(jobs: DataFrame, before: set[str], outcome: Outcome) -> Iterator[Row]:
    for row in jobs.toLocalIterator(prefetchPartitions=True):
        if row["body"] is None:
            outcome.without_body += 1
        elif row["id"] in before:
            outcome.already += 1
        else:
            yield row


def _add(adder: Adder, rows: Sequence[Row], target: Target, outcome: Outcome) -> None:
    options: list[Arg] = [part for pair in target.options.items() for part in pair]
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
    """Note what was added."""
    note(location(done), [json.dumps(id).encode() for id in ids])


def _noted(done: Place | None) -> set[str]:
    """What earlier runs have added. The last line may be a half one, of a run that died."""
    ids = set()
    for line in noted(location(done)) if done is not None else ():
        try:
            ids.add(str(json.loads(line)))
        except ValueError:
            continue
    return ids
