"""Merges new events into the table ``jobs``, and updates the minutes that they change.

Jobs of the table that got new events are looked up by their ids: among open jobs, and among those
whose last event is not long before the new ones. Older files are searched only for jobs whose
creation time is not in any line: others cannot be there.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from disque_spark.audit import stages
from disque_spark.audit.jobs import JOB_SCHEMA
from disque_spark.audit.judging import clocks
from disque_spark.audit.manifest import (
    DAY,
    DEPTHS,
    JOBS,
    MINUTES,
    Day,
    Manifest,
    Minutes,
    Part,
    day_of,
    start_of,
)
from disque_spark.audit.minute_files import NO_MINUTE, Kept, Target, queue_minutes
from disque_spark.audit.queue_minutes import MINUTE, SECOND
from disque_spark.audit.stages import (
    Written,
    partial_of_jobs,
    partial_of_segments,
    write_jobs,
)
from disque_spark.audit.store import Store
from disque_spark.files import Location
from disque_spark.parquet import read_files
from disque_spark.segments import PACKING

BUCKET_BYTES = 128 << 20  # size of the lines whose jobs one task holds
MAX_SMALL = 16  # small files of a day before they are merged
SMALL_BYTES = 4 << 20  # a file of a full bucket is larger than this
MAX_MINUTE_FILES = 32  # files of minutes of a day before they are merged
SLACK = 3_600_000  # ms that nodes' clocks may be apart, if nothing is known about them
MOST_CORES = 1 << 16
MOST_DAYS = 400  # days whose depths are written at once

_IDS = pa.schema([JOB_SCHEMA.field("id")])
_BORN = pa.schema([JOB_SCHEMA.field(name) for name in ("id", "ctime")])
Named = tuple[str, Part]  # a day, and a file of it


class JobsTable:
    """The tables ``jobs`` and ``queue_minutes`` of a version under construction.

    Args:
        manifest: manifest of the version, which lists the files of the tables.
        stamp: prefix for names of new files.

    Attributes:
        looked_up: files in which ids were looked up.
        rewritten: files that were rewritten.
        counted: files from which minutes were computed.
    """

    def __init__(self, spark: SparkSession, store: Store, manifest: Manifest, stamp: str) -> None:
        self._spark = spark
        self._store = store
        self._manifest = manifest
        self._place = stages.Target(store.place(JOBS), stamp)
        self._stamp = stamp
        self._cores = 0
        self.looked_up: list[str] = []
        self.rewritten: list[str] = []
        self.counted: list[str] = []

    def buckets(self, size: int) -> int:
        """The number of buckets for ``size`` bytes of lines."""
        self._cores = self._cores or cores(self._spark)
        return max(self._cores, -(-size // BUCKET_BYTES))

    def partial(self, segments: Sequence[Location], size: int) -> DataFrame:
        """The partial jobs of ``segments``, which have ``size`` bytes of lines."""
        return partial_of_segments(self._spark, segments, self._manifest.nodes, self.buckets(size))

    def written(self, segments: Sequence[Location], size: int) -> Written:
        """Write the jobs of ``segments``, not yet merged with the table."""
        rows = self.partial(segments, size)
        return write_jobs(rows, self._manifest.nodes, self.buckets(size), self._place)

    def add(self, new: Written, older: Sequence[Location] = ()) -> None:
        """Merge what ``written`` returned into the tables.

        Args:
            older: files of jobs written by an older version, to be merged as well.
        """
        since = new.seen.first if new.seen.events else 0
        touched = self._touched(new)
        if touched or older:
            changed, new = self._merged(new, touched, older)
            since = 0 if older else min(since, changed)
        self._insert(new)
        self._count_minutes(0 if older else since - since % MINUTE)

    def _insert(self, new: Written) -> None:
        for day, parts in new.parts.items():
            self._manifest.days.setdefault(day, Day()).jobs += parts
            self._manifest.jobs += sum(part.rows for part in parts)
            self._changed(JOBS, day)

    def _remove(self, parts: Iterable[Named]) -> None:
        for day, part in parts:
            self._manifest.days[day].jobs.remove(part)
            self._manifest.jobs -= part.rows
            self._changed(JOBS, day)
            if part.found:
                self._changed("findings", day)

    def _changed(self, table: str, day: str) -> None:
        self._manifest.changed.append(f"{table}/{day}")

    def _path(self, named: Named) -> Location:
        day, part = named
        return self._store.place(JOBS, day) / part.file

    def _parts(self) -> list[Named]:
        return [(day, part) for day, files in self._manifest.days.items() for part in files.jobs]

    # ---- jobs already in the table ------------------------------------------------------------

    def _touched(self, new: Written) -> list[Named]:
        """The files with jobs that have new events."""
        parts = self._parts()
        if not parts or not new.parts:
            return []
        near = new.seen.first - 2 * self._slack()
        first = [named for named in parts if named[1].open or named[1].latest >= near]
        near_files = {part.file for _, part in first}
        rest = [named for named in parts if named[1].file not in near_files]
        files = [self._path((day, part)) for day in new.parts for part in new.parts[day]]
        # The ctime of a job is the same in all lines, whatever the node's clock, so a file that has
        # such a job is near, too. Files with jobs that lack it are open.
        made = f.floor(f.col("ctime") / 1_000_000)
        born = f.coalesce(made >= new.seen.first - self._slack(), f.lit(False))
        delta = read_files(self._spark, files, _BORN).select("id", born.alias("born"))
        found = (
            delta.join(self._ids(first), "id", "left")
            if first
            else delta.withColumn("file", f.lit(None).cast("string"))
        )
        strange = f.count_if(f.col("file").isNull() & ~f.col("born")).alias("strange")
        rows = found.groupBy("file").agg(strange).collect()
        names = {row["file"] for row in rows if row["file"] is not None}
        if rest and any(row["strange"] for row in rows):
            others = delta.where(~f.col("born")).join(self._ids(rest), "id")
            names.update(row["file"] for row in others.select("file").distinct().collect())
        return [named for named in parts if named[1].file in names]

    def _slack(self) -> int:
        """The most ms that the clocks of nodes are apart, as far as is known."""
        ahead = clocks(self._manifest).ahead
        return SLACK + 2 * (max(ahead, default=0) - min(ahead, default=0))

    def _ids(self, parts: Sequence[Named]) -> DataFrame:
        self.looked_up += [part.file for _, part in parts]
        return read_files(self._spark, list(map(self._path, parts)), _IDS, name="file")

    def _merged(
        self, new: Written, touched: Sequence[Named], older: Sequence[Location]
    ) -> tuple[int, Written]:
        """Rewrite the jobs of touched files, with their new events. Returns the time (ms) from
        which on minutes change, and what was written."""
        delta = [self._path((day, part)) for day in new.parts for part in new.parts[day]]
        old = [*map(self._path, touched), *older]
        self.rewritten += [path.name for path in old]
        buckets = self.buckets(PACKING * sum(path.size() for path in [*delta, *old]))
        rows = partial_of_jobs(self._spark, old, buckets)
        if delta:
            rows = rows.unionByName(partial_of_jobs(self._spark, delta, buckets, old=False))
        merged = write_jobs(rows, self._manifest.nodes, buckets, self._place)
        self._remove(touched)
        for path in delta:
            path.delete()
        return merged.since, merged

    def put_together(self, before: int) -> None:
        """Merge small files of a day if all their events are before ``before`` (ms)."""
        before -= 2 * self._slack()
        small: list[Named] = []
        for day, files in self._manifest.days.items():
            mine = [part for part in files.jobs if part.latest < before and part.size < SMALL_BYTES]
            if len(mine) > MAX_SMALL:
                small += [(day, part) for part in mine]
        if not small:
            return
        size = PACKING * sum(part.size for _, part in small)
        paths = list(map(self._path, small))
        self.rewritten += [path.name for path in paths]
        buckets = max(1, -(-size // BUCKET_BYTES))
        rows = partial_of_jobs(self._spark, paths, buckets)
        written = write_jobs(rows, self._manifest.nodes, buckets, self._place)
        self._remove(small)
        self._insert(written)

    # ---- minutes ------------------------------------------------------------------------------

    def _count_minutes(self, since: int) -> None:
        """Recompute the minutes from ``since`` (ms) on."""
        manifest = self._manifest
        since = max(since, manifest.keep_from)
        files = [self._path(named) for named in self._parts() if named[1].last >= since - SECOND]
        self.counted += [path.name for path in files]
        size = PACKING * sum(path.size() for path in files)
        kept, others = self._kept(since)
        last = manifest.last // DAY
        days = range(max((since or manifest.first) // DAY, last - MOST_DAYS), last + 1)
        target = Target(self._store.place(MINUTES), self._store.place(DEPTHS), self._stamp, days)
        written = list(queue_minutes(self._spark, files, self.buckets(size), since, kept, target))
        first = since - since % DAY
        for day, old in manifest.days.items():
            if start_of(day) < first:
                continue
            if old.minutes or old.depths:
                self._changed(MINUTES, day)
                self._changed(DEPTHS, day)
            old.minutes = others if start_of(day) == first else []
            old.depths = None
        for number in days:
            manifest.days.setdefault(day_name(number), Day()).depths = []
        for day, file, minute in written:
            files_of = manifest.days.setdefault(day, Day())
            if minute == NO_MINUTE:
                files_of.depths = [*(files_of.depths or []), file]
                self._changed(DEPTHS, day)
            else:
                files_of.minutes.append(Minutes(file, minute))
                self._changed(MINUTES, day)

    def _kept(self, since: int) -> tuple[Kept, list[Minutes]]:
        """What is known about minutes before ``since``, and the files of its day that stay."""
        days = self._manifest.days
        first = since - since % DAY
        place = {day: start_of(day) for day in days}
        today = next((days[day] for day in days if place[day] == first), Day())
        again = [minutes for minutes in today.minutes if minutes.last >= since]
        if len(today.minutes) > MAX_MINUTE_FILES:
            again = today.minutes
        others = [minutes for minutes in today.minutes if minutes not in again]
        ends = [day for day in days if place[day] < first and days[day].depths is not None]
        end = max(ends, default="")
        begin = place[end] if end else -1
        table = self._store.place(MINUTES)

        def paths(day: str, files: Iterable[Minutes]) -> list[Location]:
            return [table / f"day={day}" / minutes.file for minutes in files]

        today_name = day_name(first // DAY)
        before = [
            path
            for day in days
            if begin < place[day] < first
            for path in paths(day, days[day].minutes)
        ]
        depths = self._store.place(DEPTHS) / f"day={end}"
        deep = [depths / name for name in (days[end].depths or [])] if end else []
        kept = Kept(paths(today_name, again), [*paths(today_name, others), *before], deep)
        return kept, others


def cores(spark: SparkSession) -> int:
    """The number of Spark's cores, which is its default number of tasks."""
    tasks = spark.range(MOST_CORES).select(f.spark_partition_id().alias("task"))
    return int(tasks.agg(f.max("task")).collect()[0][0]) + 1


def day_name(number: int) -> str:
    """The name of a day, from its number since 1970."""
    return day_of(number * DAY)
