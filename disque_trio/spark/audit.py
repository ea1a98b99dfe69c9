"""The audit: from the event logs of all nodes to tables of jobs, queues and findings.

A run reads the segments that no run before has read, and makes the next version of the tables
(`audit_store`). Jobs that got events move to the newest part of the table; other parts stay as
they are. What a run has not finished leaves no trace.
"""

import gzip
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType

from disque_trio.spark.audit_aof import are_all, find_aofs, held, judged
from disque_trio.spark.audit_clocks import (
    LEAST_COLUMNS,
    LEAST_SCHEMA,
    clocks_of,
    least_in,
    least_of,
)
from disque_trio.spark.audit_events import PACKING, Seen, weight
from disque_trio.spark.audit_findings import (
    FINDING_SCHEMA,
    NEEDED,
    as_batch,
    clock_findings,
    found_in,
)
from disque_trio.spark.audit_gaps import Ends, ends_of, gaps_of
from disque_trio.spark.audit_jobs import JOB_SCHEMA
from disque_trio.spark.audit_judge import Rules
from disque_trio.spark.audit_queues import MINUTE, queue_minutes
from disque_trio.spark.audit_stages import (
    jobs_written,
    part_of,
    partial_of_jobs,
    partial_of_segments,
    scan,
    write_jobs,
)
from disque_trio.spark.audit_store import COMPRESSED, Store, link_tree
from disque_trio.spark.audit_trace import MAX_NODES
from disque_trio.spark.segments import PACKED, find_segments

MAX_PARTS = 32
BUCKET_BYTES = 128 << 20  # of lines, that one task holds the jobs of


@dataclass(frozen=True)
class Result:
    """What a run did.

    Attributes:
        path: of the current version of the tables.
        segments, events: that were new.
        jobs: rows of the jobs table.
        dropped, unknown, damaged: events of all runs that the logs say are missing, that this
            program does not know; and lines that are no events.
        findings: how many of each kind. reasons: likewise, of each kind and reason.
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
    held: int | None = None
    unlogged: int | None = None


class AuditError(Exception):
    """The logs are not what they should be; the text says which and why."""


def audit(
    spark: SparkSession,
    paths: Sequence[str],
    output: Path,
    rules: Rules | None = None,
    *,
    aofs: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """Bring the tables in ``output`` up to date with the logs at ``paths``.

    Args:
        paths: directories, with all below them, or files; may have wildcards.
        output: a directory; is made if it is not there.
        aofs: append-only files of all nodes, or directories with them; those of another run do not
            count.
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
        run = _Run(spark, store, found, rules, progress, find_aofs(aofs))
        settings = {name: int(value) for name, value in asdict(rules).items()}
        different = store.manifest.settings != settings or store.manifest.aofs or run.aofs
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
    """One version in the making."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        found: Sequence[Path],
        rules: Rules,
        progress: Callable[[str], None],
        aofs: Sequence[Path] = (),
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
        )
        self.new = self._unread(found)

    def _unread(self, found: Sequence[Path]) -> list[Path]:
        """The segments that are not in the manifest; they are noted there. A segment is known by
        its name, wherever it lies, and whether it is compressed or not."""
        paths: dict[str, Path] = {}
        new = []
        for path in found:
            name = path.name.removesuffix(PACKED)
            other = paths.setdefault(name, path)
            if other is not path:
                if other.parent != path.parent and not other.samefile(path):
                    raise AuditError(f"two segments have one name: {other} and {path}")
                continue  # it has just been compressed
            size = COMPRESSED if path.name.endswith(PACKED) else path.stat().st_size
            known = self.manifest.segments.get(name)
            if known is None:
                self.manifest.segments[name] = size
                new.append(path)
            elif COMPRESSED not in (known, size) and known != size:
                raise AuditError(
                    f"{path} had {known} bytes when it was read, and has {size}: it was not"
                    " complete; an audit into another directory reads all anew"
                )
        return new

    def make(self) -> None:
        """Write the version, and make it the current one."""
        place = self._store.begin()
        since = 0
        (place / "jobs").mkdir()
        if any(path.stat().st_size for path in self.new):
            since = self._jobs(place)
        else:
            self._keep(place, self.manifest.parts)
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
        partial = partial_of_segments(self._spark, self.new, self.manifest.nodes, buckets)
        seen = write_jobs(partial, self.manifest.nodes, buckets, place / "jobs", number)
        self._saw(seen)
        since = seen.first
        touched: list[int] = []
        old = self._store.current
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
            if touched:
                self._merge(old / "jobs", touched, place, number)
        self._keep(place, [part for part in self.manifest.parts if part not in touched])
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
        partial = partial_of_jobs(self._spark, files, buckets)
        write_jobs(partial, self.manifest.nodes, buckets, place / "jobs", number)
        shutil.rmtree(delta)

    def _buckets(self, size: int) -> int:
        """How many, for ``size`` bytes of lines."""
        return max(self._spark.sparkContext.defaultParallelism, -(-size // BUCKET_BYTES))

    def _saw(self, seen: Seen) -> None:
        if seen.strange:
            raise AuditError("a segment has events of other nodes than its first line is of")
        manifest = self.manifest
        if seen.dropped or seen.damaged:
            self._learn_ends(True)
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
        partial = partial_of_segments(self._spark, self.new, self.manifest.nodes, buckets)
        jobs = jobs_written(partial, self.manifest.nodes, buckets, self._store.directory, 1)
        with redirect_stdout(StringIO()) as text:
            jobs.explain("formatted")
        return text.getvalue()

    def _keep(self, place: Path, parts: Sequence[int]) -> None:
        old = self._store.current
        for number in parts if old is not None else ():
            assert old is not None
            link_tree(part_of(old / "jobs", number), part_of(place / "jobs", number))

    def _table(self, path: Path) -> DataFrame:
        """The jobs at ``path``; there may be none."""
        schema = from_arrow_schema(JOB_SCHEMA).add("part", IntegerType())
        return self._spark.read.schema(schema).parquet(str(path))

    def _learn_nodes(self) -> None:
        """Each segment is one node's: its first line says which."""
        self._learn_ends(False)
        for path in self.new:
            ends = self.manifest.ends.get(path.name.removesuffix(PACKED))
            if ends is not None and Ends(*ends).node not in self.manifest.nodes:
                self.manifest.nodes.append(Ends(*ends).node)
        if len(self.manifest.nodes) > MAX_NODES:
            raise AuditError(f"events of more than {MAX_NODES} nodes")

    def _learn_ends(self, thorough: bool) -> None:
        """Where the logs begin and end; ``thorough``: something is missing in them."""
        for path in self.new:
            try:
                ends = ends_of(path, thorough)
            except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
                raise AuditError(f"{path}: damaged: {problem}") from problem
            if ends is not None:
                self.manifest.ends[path.name.removesuffix(PACKED)] = list(ends)

    # ---- findings -----------------------------------------------------------------------------

    def _findings(self, files: Sequence[Path], place: Path) -> None:
        nodes = self.manifest.nodes
        ends = {name: Ends(*fields) for name, fields in self.manifest.ends.items()}
        gaps = gaps_of(ends, nodes)
        least = scan(self._spark, files, LEAST_COLUMNS, least_of, LEAST_SCHEMA).collect()
        clocks = clocks_of(least_in([row.asDict() for row in least]), len(nodes))
        rules, end = self._rules, self.manifest.last

        def judge(batch: pa.RecordBatch) -> pa.RecordBatch:
            return as_batch(found_in(batch, rules, nodes, clocks.ahead, end, gaps, clocks.doubt))

        found = scan(self._spark, files, NEEDED, judge, FINDING_SCHEMA)
        apart = as_batch(clock_findings(clocks, rules, nodes))
        if apart.num_rows:
            found = found.unionByName(self._spark.createDataFrame(apart.to_pandas(), found.schema))
        if self.aofs:
            found = judged(found, self._hold(place), end, are_all(self.aofs, nodes))
        found.repartition(1).sortWithinPartitions("kind", "time").write.parquet(
            str(place / "findings")
        )

    def _hold(self, place: Path) -> DataFrame:
        """Write what the append-only files have."""
        self._progress(f"{len(self.aofs)} append-only files")
        path = str(place / "held")
        held(self._spark, self.aofs, self._table(place / "jobs")).write.parquet(path)
        table = self._spark.read.parquet(path)
        counts = table.groupBy("logged").agg(f.count_distinct("job").alias("jobs")).collect()
        jobs = {row["logged"]: row["jobs"] for row in counts}
        self._held, self._unlogged = sum(jobs.values()), jobs.get(False, 0)
        return table
