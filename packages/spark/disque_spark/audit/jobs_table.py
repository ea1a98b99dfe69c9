"""Merges new events into the table ``jobs``, and updates the minutes that they change.

Jobs of the table that got new events are looked up by their ids: among open jobs, and among those
whose last event is not long before the new ones. Older files are searched only for jobs whose
creation time is not in any line: others cannot be there.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import stages
from disque_spark.audit.engine import BUCKET, Engine, Step, Tasks, packed, unpacked
from disque_spark.audit.hashes import hashes_of
from disque_spark.audit.judging import clocks
from disque_spark.audit.manifest import (
    DAY,
    DEPTHS,
    JOBS,
    MINUTES,
    TICKS,
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
    divided,
    jobs_written,
    partial_of_jobs,
    partial_of_segments,
    write_jobs,
)
from disque_spark.audit.store import Store
from disque_spark.files import Location
from disque_spark.options import batch_of
from disque_spark.parquet import parquet_file
from disque_spark.segments import PACKING

BUCKET_BYTES = 128 << 20  # size of the lines whose jobs one task holds
MAX_SMALL = 16  # small files of a day before they are merged
SMALL_BYTES = 4 << 20  # a file of a full bucket is larger than this
MAX_MINUTE_FILES = 32  # files of minutes of a day before they are merged
SLACK = 3_600_000  # ms that nodes' clocks may be apart, if nothing is known about them
MOST_DAYS = 400  # days whose depths are written at once
BUCKET_IDS = 1 << 20  # ids that are looked up together

# Ids of new jobs (``file`` -1), with whether they were certainly created lately, and of old ones.
_LOOKED = pa.schema([(BUCKET, pa.int32()), ("file", pa.int32()), ("ids", pa.binary())])
# The old files that have new jobs. ``strange``: new jobs, not created lately, that are in none.
_FOUND = pa.schema([("file", pa.int32()), ("strange", pa.int64())])
_NONE = -1
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

    def __init__(self, engine: Engine, store: Store, manifest: Manifest, stamp: str) -> None:
        self._engine = engine
        self._store = store
        self._manifest = manifest
        self._place = stages.Target(store.place(JOBS), store.place(TICKS), stamp)
        self._stamp = stamp
        self.looked_up: list[str] = []
        self.rewritten: list[str] = []
        self.counted: list[str] = []

    def buckets(self, size: int) -> int:
        """The number of buckets for ``size`` bytes of lines."""
        return max(self._engine.cores, -(-size // BUCKET_BYTES))

    def written(self, segments: Sequence[Location], size: int) -> Written:
        """Write the jobs of ``segments``, which have ``size`` bytes of lines, not yet merged with
        the table."""
        tasks, step = self.plan(segments, size)
        return write_jobs(self._engine, tasks, step)

    def plan(self, segments: Sequence[Location], size: int) -> tuple[Tasks, Step]:
        """How ``written`` does that."""
        nodes, buckets = self._manifest.nodes, self.buckets(size)
        tasks = partial_of_segments(segments, nodes, buckets)
        return tasks, jobs_written(nodes, buckets, self._place)

    def _write(self, partial: Tasks, buckets: int) -> Written:
        step = jobs_written(self._manifest.nodes, buckets, self._place)
        return write_jobs(self._engine, partial, step)

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
        delta = [(day, part) for day in new.parts for part in new.parts[day]]
        # The ctime of a job is the same in all lines, whatever the node's clock, so a file that has
        # such a job is near, too. Files with jobs that lack it are open.
        made = (new.seen.first - self._slack()) * 1_000_000
        found, strange = self._look_up(delta, first, made)
        if rest and strange:
            found |= self._look_up(delta, rest, made)[0]
        return [named for named in parts if named[1].file in found]

    def _look_up(
        self, delta: Sequence[Named], old: Sequence[Named], made: int
    ) -> tuple[set[str], int]:
        """Look up the jobs of the files ``delta`` in ``old`` ones. Returns the names of those that
        have some, and how many jobs that were not created after ``made`` (a ctime) are in none."""
        self.looked_up += [part.file for _, part in old]
        names = [part.file for _, part in old]
        rows = sum(part.rows for _, part in (*delta, *old))
        buckets = max(self._engine.cores, -(-rows // BUCKET_IDS))
        ids = _ids_of(list(map(self._path, delta)), buckets, made)
        if old:
            ids = ids.plus(_ids_of(list(map(self._path, old)), buckets))
        found = self._engine.rows(ids, Step(buckets, _found_in, _FOUND))
        files = pc.unique(found.column("file")).to_pylist()
        strange = pc.sum(found.column("strange")).as_py() or 0
        return {names[file] for file in files if file != _NONE}, strange

    def _slack(self) -> int:
        """The most ms that the clocks of nodes are apart, as far as is known."""
        ahead = clocks(self._manifest).ahead
        return SLACK + 2 * (max(ahead, default=0) - min(ahead, default=0))

    def _merged(
        self, new: Written, touched: Sequence[Named], older: Sequence[Location]
    ) -> tuple[int, Written]:
        """Rewrite the jobs of touched files, with their new events. Returns the time (ms) from
        which on minutes change, and what was written."""
        delta = [self._path((day, part)) for day in new.parts for part in new.parts[day]]
        old = [*map(self._path, touched), *older]
        self.rewritten += [path.name for path in old]
        buckets = self.buckets(PACKING * sum(path.size() for path in [*delta, *old]))
        rows = partial_of_jobs(old, buckets)
        if delta:
            rows = rows.plus(partial_of_jobs(delta, buckets, old=False))
        merged = self._write(rows, buckets)
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
        written = self._write(partial_of_jobs(paths, buckets), buckets)
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
        written = list(queue_minutes(self._engine, files, self.buckets(size), since, kept, target))
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


def _ids_of(files: Sequence[Location], buckets: int, made: int | None = None) -> Tasks:
    """The ids of the jobs in some files, in buckets.

    Args:
        made: None: the files are old ones. Otherwise, they are new, and jobs whose ctime is at
            least this were created lately.
    """
    groups = stages.in_groups(files)
    numbers = {path: number for number, path in enumerate(files)}

    def task(group: int) -> Iterator[pa.RecordBatch]:
        for path in groups[group]:
            file = numbers[path] if made is None else _NONE
            columns = ["id"] if made is None else ["id", "ctime"]
            with parquet_file(path) as parquet:
                for batch in parquet.iter_batches(stages.ROWS, columns=columns):
                    ids = pa.table([batch.column("id")], names=["id"])
                    if made is not None:
                        born = pc.fill_null(pc.greater_equal(batch.column("ctime"), made), False)
                        ids = ids.append_column("born", born)
                    parts = divided(ids, hashes_of(batch.column("id")), buckets)
                    yield batch_of(
                        [(bucket, file, packed(mine)) for bucket, mine in parts], _LOOKED
                    )

    return Tasks(len(groups), task, _LOOKED)


def _found_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The old files that have some of the new jobs; both are in ``batches``."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    new = [unpacked(row["ids"]) for row in rows if row["file"] == _NONE]
    if not new:
        return
    delta = pa.concat_tables(new)
    ids = delta.column("id").combine_chunks()
    known = np.zeros(len(ids), bool)
    files = set()
    for row in rows:
        if row["file"] != _NONE:
            there = pc.is_in(ids, unpacked(row["ids"]).column("id").combine_chunks()).to_numpy(
                False
            )
            if there.any():
                files.add(row["file"])
                known |= there
    strange = int(np.count_nonzero(~known & ~delta.column("born").to_numpy()))
    yield batch_of([(_NONE, strange), *((file, 0) for file in sorted(files))], _FOUND)


def day_name(number: int) -> str:
    """The name of a day, from its number since 1970."""
    return day_of(number * DAY)
