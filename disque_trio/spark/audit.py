"""The audit: from the event logs of all nodes to tables of jobs, queues and findings.

A run reads the segments that no run before has read, and makes the next version of the tables
(`audit_store`). Jobs that got events move to the newest part of the table; other parts stay as
they are. What a run has not finished leaves no trace.
"""

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType

from disque_trio.spark.audit_clocks import differences, offsets, skews
from disque_trio.spark.audit_findings import Rules, as_batch, findings, skew_findings
from disque_trio.spark.audit_jobs import JOB_SCHEMA, event_rows, make_jobs, rows_of_jobs
from disque_trio.spark.audit_queues import MINUTE, queue_minutes
from disque_trio.spark.audit_store import Store, link_tree
from disque_trio.spark.audit_trace import CODES, MAX_NODES
from disque_trio.spark.events import read_events
from disque_trio.spark.segments import PACKED, find_segments

MAX_PARTS = 32
PARTITION_BYTES = 128 << 20  # of lines, that one task holds the jobs of
_PACKING = 10


@dataclass(frozen=True)
class Result:
    """What a run did.

    Attributes:
        path: of the current version of the tables.
        segments, events: that were new.
        jobs: rows of the jobs table.
        dropped, unknown: events of all runs that the logs say are missing, and that this program
            does not know.
        findings: how many of each kind.
    """

    path: Path
    segments: int
    events: int
    jobs: int
    dropped: int
    unknown: int
    findings: Counter[str]


class AuditError(Exception):
    """The logs are not what they should be; the text says which and why."""


def audit(
    spark: SparkSession,
    paths: Sequence[str],
    output: Path,
    rules: Rules | None = None,
    *,
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """Bring the tables in ``output`` up to date with the logs at ``paths``.

    Args:
        paths: directories, with all below them, or files; may have wildcards.
        output: a directory; is made if it is not there.
        progress: is told what is being done.

    Raises:
        FileNotFoundError: nothing is at one of ``paths``.
        StoreError: ``output`` is not what it should be, or another audit is writing there.
        AuditError: a log is not what it should be.
    """
    rules = rules or Rules()
    found = find_segments(paths, False)
    store = Store(output)
    with store.locked():
        run = _Run(spark, store, found, rules, progress)
        settings = {name: int(value) for name, value in asdict(rules).items()}
        if store.current is None or run.new or store.manifest.settings != settings:
            run.manifest.settings = settings
            run.make()
        return run.result()


def explain_audit(spark: SparkSession, paths: Sequence[str], output: Path) -> str:
    """How Spark makes jobs of the segments that are new."""
    run = _Run(spark, Store(output), find_segments(paths, False), Rules(), lambda text: None)
    if not run.new:
        return "no new segments"
    return run.plan()


class _Run:
    """One version in the making."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        found: Sequence[Path],
        rules: Rules,
        progress: Callable[[str], None],
    ) -> None:
        old = store.manifest
        self._spark = spark
        self._store = store
        self._rules = rules
        self._progress = progress
        self._events = 0
        self.manifest = replace(
            old, nodes=list(old.nodes), segments=dict(old.segments), parts=list(old.parts)
        )
        self.new: list[Path] = []
        for path in found:
            name = path.name.removesuffix(PACKED)  # the same events, whether packed or not
            if name not in self.manifest.segments:
                self.manifest.segments[name] = path.stat().st_size
                self.new.append(path)

    def make(self) -> None:
        """Write the version, and make it the current one."""
        place = self._store.begin()
        since = 0
        files = [path for path in self.new if path.stat().st_size]
        if files:
            since = self._jobs(files, place)
        else:
            self._keep(place, self.manifest.parts)
        (place / "jobs").mkdir(exist_ok=True)
        jobs = self._table(place / "jobs")
        self.manifest.jobs = jobs.count()
        self._progress(f"queues: {self.manifest.jobs} jobs")
        before = None
        if files and self._store.current is not None:
            before = self._spark.read.parquet(str(self._store.current / "queue_minutes"))
        minutes = queue_minutes(jobs, since if before is not None else 0, before)
        minutes.coalesce(1).sortWithinPartitions("queue", "minute").write.parquet(
            str(place / "queue_minutes")
        )
        self._progress("findings")
        self._findings(jobs, place)
        self._store.commit(place, self.manifest)

    def result(self) -> Result:
        """What came out of it."""
        path = self._store.current
        assert path is not None
        counts: Counter[str] = Counter()
        for row in (
            self._spark.read.parquet(str(path / "findings")).groupBy("kind").count().collect()
        ):
            counts[row["kind"]] = row["count"]
        manifest = self._store.manifest
        return Result(
            path=path,
            segments=len(self.new),
            events=self._events,
            jobs=manifest.jobs,
            dropped=manifest.dropped,
            unknown=manifest.unknown,
            findings=counts,
        )

    # ---- jobs ---------------------------------------------------------------------------------

    def _jobs(self, files: Sequence[Path], place: Path) -> int:
        """Write the jobs. Returns since when (ms, a whole minute) something is different."""
        size = sum(_weight(path) for path in files)
        self._progress(f"events: {len(files)} segments, {size >> 20} MB")
        self._learn_nodes(files)
        number = max(self.manifest.parts, default=0) + 1
        since = self._read(files, place / "jobs", size, number)
        new = [part for part in (number, number + 1) if _part(place / "jobs", part).exists()]
        old = self._store.current
        touched: list[int] = []
        if old is not None and self.manifest.parts:
            self._progress("jobs that have got more events")
            hits = (
                self._table(old / "jobs")
                .join(self._table(place / "jobs").select("id"), "id", "left_semi")
                .groupBy("part")
                .agg(f.min(f.unix_millis(f.least("acked_at", "ended_at"))).alias("over"))
                .collect()
            )
            touched = sorted(row["part"] for row in hits)
            since = min([since, *[row["over"] for row in hits if row["over"] is not None]])
            if len(self.manifest.parts) >= MAX_PARTS:  # many small files are slow to read
                touched = self.manifest.parts
        kept = [part for part in self.manifest.parts if part not in touched]
        if touched:
            new = self._merge(old, touched, place, number)
        self._keep(place, kept)
        self.manifest.parts = sorted([*kept, *new])
        return since - since % MINUTE

    def _read(self, files: Sequence[Path], place: Path, size: int, number: int) -> int:
        """Write what the new events alone say of jobs. Returns the time of the first event."""
        events = read_events(self._spark, *[path.resolve().as_uri() for path in files])
        known = f.concat_ws(":", "event", f.coalesce("reason", f.lit(""))).isin(list(CODES))
        dropped = f.col("event") == "dropped"
        seen = Observation("events")
        counts = [
            f.count("*").alias("events"),
            f.min("time_ms").alias("first"),
            f.max("time_ms").alias("last"),
            f.sum(f.when(dropped, f.col("count"))).alias("dropped"),
            f.count_if(~dropped & ~known).alias("unknown"),
            f.count_if(~f.col("node").isin(self.manifest.nodes)).alias("strange"),
        ]
        tasks = max(self._spark.sparkContext.defaultParallelism, -(-size // PARTITION_BYTES))
        rows = event_rows(events.observe(seen, *counts), self.manifest.nodes)
        jobs = make_jobs(rows, self.manifest.nodes, tasks)
        _in_parts(jobs, number).write.partitionBy("part").parquet(str(place))
        got: dict[str, Any]
        if any(place.glob("part=*")):
            got = seen.get
        else:  # Spark stops to look at a plan that turns out to be empty: nothing was observed
            row = events.agg(*counts).first()
            assert row is not None
            got = row.asDict()
        if got["strange"]:
            raise AuditError("a segment has events of other nodes than its first line is of")
        self._events = got["events"]
        manifest = self.manifest
        manifest.events += got["events"]
        manifest.dropped += got["dropped"] or 0
        manifest.unknown += got["unknown"]
        first = int(got["first"] or 0)
        manifest.first = min(manifest.first or first, first)
        manifest.last = max(manifest.last, got["last"] or 0)
        return first

    def plan(self) -> str:
        """That of the biggest part of the work."""
        self._learn_nodes(self.new)
        events = read_events(self._spark, *[path.resolve().as_uri() for path in self.new])
        jobs = make_jobs(event_rows(events, self.manifest.nodes), self.manifest.nodes, 1)
        with redirect_stdout(StringIO()) as text:
            jobs.explain("formatted")
        return text.getvalue()

    def _merge(
        self, old: Path | None, touched: Sequence[int], place: Path, number: int
    ) -> list[int]:
        """Write the jobs of the parts that are ``touched`` once more, with what is new in them.
        Returns the numbers of the parts."""
        assert old is not None
        delta = place / "delta"
        (place / "jobs").rename(delta)
        new = self._table(delta)
        affected = self._table(old / "jobs").where(f.col("part").isin(list(touched)))
        more = affected.join(new.select("id"), "id", "left_semi")
        rows = rows_of_jobs(new).unionByName(rows_of_jobs(more))
        tasks = self._spark.sparkContext.defaultParallelism
        merged = _in_parts(make_jobs(rows, self.manifest.nodes, tasks), number)
        others = affected.join(new.select("id"), "id", "left_anti")
        if len(touched) >= MAX_PARTS:
            others = _in_parts(others.drop("part"), number)
        merged.unionByName(others).write.partitionBy("part").parquet(str(place / "jobs"))
        shutil.rmtree(delta)
        return [int(path.name.partition("=")[2]) for path in (place / "jobs").glob("part=*")]

    def _keep(self, place: Path, parts: Sequence[int]) -> None:
        old = self._store.current
        for number in parts if old is not None else ():
            assert old is not None
            link_tree(_part(old / "jobs", number), _part(place / "jobs", number))

    def _table(self, path: Path) -> DataFrame:
        """The jobs at ``path``; there may be none."""
        schema = from_arrow_schema(JOB_SCHEMA).add("part", IntegerType())
        return self._spark.read.schema(schema).parquet(str(path))

    def _learn_nodes(self, files: Sequence[Path]) -> None:
        """Each segment is one node's: its first line says which."""
        for path in files:
            node = _node_of(path)
            if node is not None and node not in self.manifest.nodes:
                self.manifest.nodes.append(node)
        if len(self.manifest.nodes) > MAX_NODES:
            raise AuditError(f"events of more than {MAX_NODES} nodes")

    # ---- findings -----------------------------------------------------------------------------

    def _findings(self, jobs: DataFrame, place: Path) -> None:
        nodes = self.manifest.nodes
        between = skews(differences(jobs, self.manifest.jobs))
        ahead = offsets(between, len(nodes))
        found = findings(jobs, self._rules, nodes, ahead, self.manifest.last)
        clocks = as_batch(skew_findings(between, self._rules, nodes))
        if clocks.num_rows:
            found = found.unionByName(self._spark.createDataFrame(clocks.to_pandas(), found.schema))
        found.coalesce(1).sortWithinPartitions("kind", "time").write.parquet(
            str(place / "findings")
        )


def _in_parts(jobs: DataFrame, number: int) -> DataFrame:
    """Jobs that are complete are in one part, the others in the next one: most of what later
    events change is there."""
    return jobs.withColumn("part", f.when(f.col("complete"), number).otherwise(number + 1))


def _part(jobs: Path, number: int) -> Path:
    return jobs / f"part={number}"


def _weight(path: Path) -> int:
    """About how many bytes the lines of a segment are."""
    return path.stat().st_size * (_PACKING if path.name.endswith(PACKED) else 1)


def _node_of(path: Path) -> str | None:
    """Whose segment it is; None if no line says so."""
    with gzip.open(path) if path.name.endswith(PACKED) else path.open("rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("node"), str):
                return str(event["node"])
    return None
