"""Runs the audit: from the event logs of all nodes to tables of jobs, queues and findings.

A run reads the segments that no run before has read, and makes the next version of the tables
(``store``). Jobs that got events move to the newest part of the table; other parts stay as
they are. What a run has not finished leaves no trace.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from disque_trio.spark.audit.classify import Logs
from disque_trio.spark.audit.clocks import (
    LEAST_COLUMNS,
    LEAST_SCHEMA,
    clocks_of,
    least_in,
    least_of,
)
from disque_trio.spark.audit.findings import (
    FINDING_SCHEMA,
    NEEDED,
    as_batch,
    clock_findings,
    found_in,
)
from disque_trio.spark.audit.gaps import FOR_EVER, Gap, ends_of, gaps_of
from disque_trio.spark.audit.held import are_all, find_aofs, held, with_held_jobs
from disque_trio.spark.audit.partial_jobs import Notes, Seen
from disque_trio.spark.audit.queue_minutes import MINUTE, queue_minutes
from disque_trio.spark.audit.rules import HELD, NEVER_DELIVERED, SERIOUS, Rules
from disque_trio.spark.audit.stages import (
    jobs_written,
    part_of,
    partial_of_jobs,
    partial_of_segments,
    read_jobs,
    scan,
    write_jobs,
)
from disque_trio.spark.audit.store import Store, link_tree
from disque_trio.spark.audit.trace import MAX_NODES
from disque_trio.spark.audit.unread import AuditError, Segments
from disque_trio.spark.segments import PACKING, SegmentError, find_segments, weight
from disque_trio.spark.session import told

MAX_PARTS = 32
BUCKET_BYTES = 128 << 20  # of lines, that one task holds the jobs of


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        path: of the current version of the tables.
        segments, events: that were new.
        jobs: rows of the jobs table.
        dropped, unknown, damaged: events of all runs that the logs say are missing, that this
            program does not know; and lines that are no events.
        findings: how many of each kind. reasons: likewise, of each kind and reason.
        missing_nodes: ids of nodes that are named in the logs, and have no log here, but for those
            that are gone.
        missing_segments: names of segments that are named in others, and are not here or not
            whole, and how many lines are missing (-1: nobody says).
        copies: files that are copies of segments under other names; they do not count.
        held, unlogged: jobs that append-only files have, and those of them that the logs do not;
            None: no such files were given.
    """

    path: Path
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
    copies: int = 0
    held: int | None = None
    unlogged: int | None = None

    @property
    def serious(self) -> int:
        """How many findings are of jobs that nobody has done, or that nodes have not treated as
        promised. What waits for its first delivery, as a node's file says, is none of them; of a
        job that was delivered the file does not say that it is queued again."""
        waiting = self.reasons[NEVER_DELIVERED, HELD]
        return sum(self.findings[kind] for kind in SERIOUS) - waiting

    @property
    def is_partial(self) -> bool:
        """Whether logs are missing that the others name: what is in them nobody knows."""
        return bool(self.missing_nodes or self.missing_segments)


def audit(
    spark: SparkSession,
    paths: Sequence[str],
    output: Path,
    rules: Rules | None = None,
    *,
    aofs: Sequence[str] = (),
    gone: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """Bring the tables in ``output`` up to date with the logs at ``paths``.

    Args:
        paths: directories, with all below them, or files; may have wildcards.
        output: a directory; is made if it is not there.
        aofs: append-only files of all nodes, or directories with them; those of another run do not
            count.
        gone: ids of nodes that were taken out for good, and whose logs and files nobody has; those
            of earlier runs count.
        progress: is told what is being done.

    Raises:
        FileNotFoundError: nothing is at one of ``paths`` or ``aofs``.
        StoreError: ``output`` is not what it should be, or another audit is writing there.
        AuditError: a log is not what it should be.
    """
    rules = rules or Rules()
    found = find_segments(paths, False)
    store = Store(output)
    with store.locked():
        if not found and store.current is None:
            raise AuditError(f"no closed segment at {', '.join(paths)}")
        run = _Run(spark, store, found, rules, progress, find_aofs(aofs), gone)
        settings = {name: int(value) for name, value in asdict(rules).items()}
        different = store.manifest.settings != settings or store.manifest.aofs or run.aofs
        different = different or store.manifest.gone != run.manifest.gone
        if store.current is None or run.new or different:
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
    """The run that makes one version."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        found: Sequence[Path],
        rules: Rules,
        progress: Callable[[str], None],
        aofs: Sequence[Path] = (),
        gone: Sequence[str] = (),
    ) -> None:
        old = store.manifest
        self.aofs = aofs
        self._spark = spark
        self._store = store
        self._rules = rules
        self._progress = progress
        self._events = 0
        self._held: int | None = None
        self._unlogged: int | None = None
        self.manifest = replace(
            old,
            nodes=list(old.nodes),
            segments=dict(old.segments),
            parts=list(old.parts),
            ends=dict(old.ends),
            aofs=len(aofs),
            peers=list(old.peers),
            gone=sorted({*old.gone, *gone}),
        )
        self._segments = Segments(found, old.segments)
        self.manifest.segments |= self._segments.sizes
        self.new = sorted(self._segments.new)

    def make(self) -> None:
        """Write the version, and make it the current one."""
        place = self._store.begin()
        since = 0
        (place / "jobs").mkdir()
        if any(path.stat().st_size for path in self.new):
            since = self._jobs(place)
        else:
            self._link_parts(place, self.manifest.parts)
        self._progress(f"queues: {self.manifest.jobs} jobs")
        before = None
        if self.new and self._store.current is not None:
            before = self._spark.read.parquet(str(self._store.current / "queue_minutes"))
        files = sorted(place.glob("jobs/*/*.parquet"))
        buckets = self._spark.sparkContext.defaultParallelism
        minutes = queue_minutes(
            self._spark, files, buckets, since if before is not None else 0, before
        )
        minutes.coalesce(1).sortWithinPartitions("queue", "minute").write.parquet(
            str(place / "queue_minutes")
        )
        self._progress("findings")
        self._findings(files, place)
        self._store.commit(place, self.manifest)

    def result(self) -> Result:
        """What came out of it."""
        path = self._store.current
        assert path is not None
        reasons: Counter[tuple[str, str | None]] = Counter()
        for batch in ds.dataset(path / "findings").to_batches(columns=["kind", "reason"]):
            reasons.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        counts: Counter[str] = Counter()
        for (kind, _), count in reasons.items():
            counts[kind] += count
        manifest = self._store.manifest
        return Result(
            path=path,
            segments=len(self.new),
            events=self._events,
            jobs=manifest.jobs,
            dropped=manifest.dropped,
            unknown=manifest.unknown,
            damaged=manifest.damaged,
            findings=counts,
            reasons=reasons,
            missing_nodes=manifest.missing_nodes,
            missing_segments=manifest.missing_segments,
            copies=self._segments.copies,
            held=self._held,
            unlogged=self._unlogged,
        )

    # ---- jobs ---------------------------------------------------------------------------------

    def _jobs(self, place: Path) -> int:
        """Write the jobs. Returns since when (ms, a whole minute) something is different."""
        self._learn_nodes()
        size = sum(weight(path) for path in self.new)
        self._progress(f"events: {len(self.new)} segments, {size >> 20} MB")
        number = max(self.manifest.parts, default=0) + 1
        buckets = self._buckets(size)
        rows = partial_of_segments(self._spark, self.new, self.manifest.nodes, buckets)
        try:
            seen, notes = write_jobs(rows, self.manifest.nodes, buckets, place / "jobs", number)
        except PySparkException as failure:
            if SegmentError.__name__ not in str(failure):
                raise
            raise AuditError(told(failure)) from None
        self._note(seen, notes)
        since = seen.first
        touched: list[int] = []
        old = self._store.current
        if old is not None and self.manifest.parts:
            self._progress("jobs that have got more events")
            hits = (
                read_jobs(self._spark, old / "jobs")
                .join(read_jobs(self._spark, place / "jobs").select("id"), "id", "left_semi")
                .groupBy("part")
                .agg(f.min(f.unix_millis(f.least("acked_at", "ended_at"))).alias("over"))
                .collect()
            )
            touched = sorted(row["part"] for row in hits)
            since = min([since, *[row["over"] for row in hits if row["over"] is not None]])
            if len(self.manifest.parts) >= MAX_PARTS:  # many small files are slow to read
                touched = self.manifest.parts
            if touched:
                self._merge(old / "jobs", touched, place, number)
        self._link_parts(place, [part for part in self.manifest.parts if part not in touched])
        self.manifest.parts = sorted(
            int(path.name.partition("=")[2]) for path in (place / "jobs").iterdir()
        )
        self.manifest.jobs = sum(
            pq.read_metadata(file).num_rows for file in place.glob("jobs/*/*.parquet")
        )
        return since - since % MINUTE

    def _merge(self, old: Path, touched: Sequence[int], place: Path, number: int) -> None:
        """Write the jobs of the parts that are ``touched`` once more, with what is new in them."""
        delta = place / "delta"
        (place / "jobs").rename(delta)
        files = sorted(delta.glob("*/*.parquet"))
        for part in touched:
            files += sorted(part_of(old, part).glob("*.parquet"))
        buckets = self._buckets(PACKING * sum(path.stat().st_size for path in files))
        rows = partial_of_jobs(self._spark, files, buckets)
        write_jobs(rows, self.manifest.nodes, buckets, place / "jobs", number)
        shutil.rmtree(delta)

    def _buckets(self, size: int) -> int:
        """How many, for ``size`` bytes of lines."""
        return max(self._spark.sparkContext.defaultParallelism, -(-size // BUCKET_BYTES))

    def _note(self, seen: Seen, notes: Notes) -> None:
        if seen.strange:
            raise AuditError("a segment has events of other nodes than its first line is of")
        manifest = self.manifest
        manifest.peers = sorted(notes.peers.union(manifest.peers))
        for path, stretches in notes.segments().items():
            name, head = self._segments.new[Path(path)]
            ends = ends_of(head, stretches) if head is not None else None
            if ends is not None:
                manifest.ends[name] = list(ends)
        self._events = seen.events
        manifest.events += seen.events
        manifest.dropped += seen.dropped
        manifest.unknown += seen.unknown
        manifest.damaged += seen.damaged
        if seen.events:
            manifest.first = min(manifest.first or seen.first, seen.first)
            manifest.last = max(manifest.last, seen.last)

    def plan(self) -> str:
        """That of the biggest part of the work."""
        self._learn_nodes()
        buckets = self._buckets(sum(weight(path) for path in self.new))
        rows = partial_of_segments(self._spark, self.new, self.manifest.nodes, buckets)
        jobs = jobs_written(rows, self.manifest.nodes, buckets, self._store.directory, 1)
        with redirect_stdout(StringIO()) as text:
            jobs.explain("formatted")
        return text.getvalue()

    def _link_parts(self, place: Path, parts: Sequence[int]) -> None:
        old = self._store.current
        if old is None:
            return
        for number in parts:
            link_tree(part_of(old / "jobs", number), part_of(place / "jobs", number))

    def _learn_nodes(self) -> None:
        """Each segment is one node's: its first line says which."""
        for path in self.new:
            head = self._segments.new[path].head
            if head is not None and head.node not in self.manifest.nodes:
                self.manifest.nodes.append(head.node)
        if len(self.manifest.nodes) > MAX_NODES:
            raise AuditError(f"events of more than {MAX_NODES} nodes")

    # ---- findings -----------------------------------------------------------------------------

    def _findings(self, files: Sequence[Path], place: Path) -> None:
        nodes, missing = self.manifest.nodes, self.manifest.without_logs
        everyone = [*nodes, *missing]
        gaps = gaps_of(self.manifest.all_ends(), nodes, self.manifest.segments)
        gaps += [Gap(number, 0, FOR_EVER) for number in range(len(nodes), len(everyone))]
        bounds = partial(least_of, whole=not missing)
        least = scan(self._spark, files, LEAST_COLUMNS, bounds, LEAST_SCHEMA).collect()
        clocks = clocks_of(least_in([row.asDict() for row in least]), len(nodes))
        rules, end = self._rules, self.manifest.last
        logs = Logs(everyone, [*clocks.ahead, *[0] * len(missing)], end, gaps, clocks.doubt)

        def classify(batch: pa.RecordBatch) -> pa.RecordBatch:
            return as_batch(found_in(batch, rules, logs))

        found = scan(self._spark, files, NEEDED, classify, FINDING_SCHEMA)
        apart = as_batch(clock_findings(clocks, rules, nodes))
        if apart.num_rows:
            found = found.unionByName(self._spark.createDataFrame(apart.to_pandas(), found.schema))
        if self.aofs:
            found = with_held_jobs(
                found, self._hold(place), end, are_all(self.aofs, self.manifest.holders)
            )
        found.repartition(1).sortWithinPartitions("kind", "time").write.parquet(
            str(place / "findings")
        )

    def _hold(self, place: Path) -> DataFrame:
        """Write what the append-only files have."""
        self._progress(f"{len(self.aofs)} append-only files")
        path = str(place / "held")
        held(self._spark, self.aofs, read_jobs(self._spark, place / "jobs")).write.parquet(path)
        table = self._spark.read.parquet(path)
        counts = table.groupBy("logged").agg(f.count_distinct("job").alias("jobs")).collect()
        jobs = {row["logged"]: row["jobs"] for row in counts}
        self._held, self._unlogged = sum(jobs.values()), jobs.get(False, 0)
        return table
