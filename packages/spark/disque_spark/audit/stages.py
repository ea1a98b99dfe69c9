"""The work on jobs as tasks and steps of an engine. They read and write files themselves; only a
few rows, which contain whole tables, pass from tasks to steps.

Partial jobs are brought together in buckets, by a hash of their ids.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.clocks import least_of
from disque_spark.audit.engine import BUCKET, Engine, Step, Tasks, packed, unpacked
from disque_spark.audit.hashes import hashes_of
from disque_spark.audit.jobs import JOB_SCHEMA, PARTIAL_SCHEMA, fold, jobs_of
from disque_spark.audit.manifest import DAY, Part, day_of
from disque_spark.audit.partial_jobs import Notes, Seen, cut, read
from disque_spark.files import Location
from disque_spark.options import batch_of
from disque_spark.parquet import parquet_file, write_file
from disque_spark.segments import Piece, grouped
from disque_trio.eventlog.schema import EVICTED

ROWS = 100_000  # rows of a file to hold at a time, if rows do not depend on each other
TASK_BYTES = 8 << 20  # size of the files of the table for a task, if they are small
NEVER = np.iinfo(np.int64).max
_SEEN = [*((name, pa.int64()) for name in Seen._fields), ("notes", pa.string())]
_BUCKETED = pa.schema(
    [
        (BUCKET, pa.int32()),
        ("partial", pa.binary()),
        ("old", pa.bool_()),
        ("ticks", pa.binary()),
        *_SEEN,
    ]
)
_WRITTEN = pa.schema(
    [*_SEEN, ("since", pa.int64()), *((name, pa.string()) for name in ("parts", "ticks"))]
)
# Columns for dictionary encoding; others have too many values.
_WITH_DICTIONARY = [
    "queue",
    "group",
    "ended",
    *(f"{field.name}.list.element" for field in JOB_SCHEMA if field.type == pa.list_(pa.string())),
]
# The columns of a job that minutes depend on, and the time from which on a change affects them.
_COUNTED = {
    "queue": "first_event",
    "wait_ms": "first_delivered",
    "processing_ms": "acked_at",
    "acked_at": "acked_at",
    "ended_at": "ended_at",
    "ended": "ended_at",
}


class Target(NamedTuple):
    """Where tasks write files: the directories of the tables ``jobs`` and ``ticks``, and the prefix
    of names."""

    directory: Location
    ticks: Location
    stamp: str


@dataclass
class Written:
    """What tasks have written, and what was in the lines, if they read lines.

    Attributes:
        seen, notes: what was in the lines.
        parts: files, by day.
        ticks: names of files with the ticks of schedules that were in the lines, by day.
        since: time (ms) from which on minutes differ from those of the jobs that were in the table;
            NEVER: none differ.
    """

    seen: Seen = field(default_factory=Seen)
    notes: Notes = field(default_factory=Notes)
    parts: dict[str, list[Part]] = field(default_factory=dict)
    ticks: dict[str, list[str]] = field(default_factory=dict)
    since: int = NEVER


def partial_of_segments(files: Sequence[Location], nodes: Sequence[str], buckets: int) -> Tasks:
    """Partial jobs, in buckets, from the events in some segments."""
    slices = cut(files)
    names = list(nodes)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        pieces: list[Piece] = slices[number]
        partial, seen, notes = read(pieces, names)
        yield _bucketed(partial, seen, notes, buckets, old=False)

    return Tasks(len(slices), task, _BUCKETED)


def partial_of_jobs(files: Iterable[Location], buckets: int, *, old: bool = True) -> Tasks:
    """Jobs of files as partial jobs, to be merged with further events.

    Args:
        old: whether they are in the table; otherwise, this run has added them.
    """
    groups = in_groups(files)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        for path in groups[number]:
            with parquet_file(path) as file:
                for batch in file.iter_batches(ROWS, columns=PARTIAL_SCHEMA.names):
                    rows = _partial(pa.Table.from_batches([batch]))
                    yield _bucketed(rows, Seen(), None, buckets, old=old)

    return Tasks(len(groups), task, _BUCKETED)


def in_groups(files: Iterable[Location]) -> list[list[Location]]:
    """Groups of files, one for each task; small files share a group."""
    return grouped(((path, path.size()) for path in files), TASK_BYTES)


def _partial(jobs: pa.Table) -> pa.Table:
    """Jobs as partial jobs. Files of older versions lack columns that were added later."""
    columns = [
        jobs.column(name) if name in jobs.column_names else pa.nulls(len(jobs))
        for name in PARTIAL_SCHEMA.names
    ]
    return pa.table(columns, names=PARTIAL_SCHEMA.names).cast(PARTIAL_SCHEMA)


def write_jobs(engine: Engine, partial: Tasks, step: Step) -> Written:
    """Merge partial jobs and write them. ``step`` is that of ``jobs_written``."""
    written = Written()
    for row in engine.rows(partial, step).to_pylist():
        written.seen = written.seen.plus(Seen(*(row[name] for name in Seen._fields)))
        written.notes.add(row["notes"] or "")
        written.since = min(written.since, row["since"])
        for day, said in json.loads(row["parts"]):
            written.parts.setdefault(day, []).append(Part(**said))
        for day, name in json.loads(row["ticks"]):
            written.ticks.setdefault(day, []).append(name)
    return written


def jobs_written(nodes: Sequence[str], buckets: int, place: Target) -> Step:
    """The step that merges partial jobs and writes them, by the day of their last event. Final jobs
    go into files of their own, since later events mostly change the others."""
    names = list(nodes)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables: dict[int, list[tuple[bool, pa.Table]]] = {}
        seen, since = Seen(), NEVER
        notes: list[str] = []
        ticks: list[pa.Table] = []
        for batch in batches:
            for row in batch.to_pylist():
                mine = tables.setdefault(row[BUCKET], [])
                mine.append((row["old"], unpacked(row["partial"])))
                seen = seen.plus(Seen(*(row[name] for name in Seen._fields)))
                notes += [row["notes"]] if row["notes"] else []
                ticks += [unpacked(row["ticks"])] if row["ticks"] else []
        parts: list[tuple[str, dict[str, object]]] = []
        for bucket in list(tables):
            pieces = tables.pop(bucket)
            whole = jobs_of(fold(pa.concat_tables([table for _, table in pieces])), names)
            before = [table for is_old, table in pieces if is_old]
            if before and len(before) < len(pieces):
                since = min(since, different(jobs_of(fold(pa.concat_tables(before)), names), whole))
            parts += [(day, asdict(part)) for day, part in _write_days(whole, place, bucket)]
        said = json.dumps(parts), json.dumps(list(_write_ticks(ticks, place)))
        yield batch_of([(*seen, "\n".join(notes), since, *said)], _WRITTEN)

    return Step(buckets, write, _WRITTEN)


def different(before: pa.Table, after: pa.Table) -> int:
    """The time (ms) from which on minutes change because jobs got more events, apart from the times
    of these events themselves; NEVER: none change."""
    place = pc.index_in(before.column("id"), after.column("id").combine_chunks())
    now = after.take(place)
    since = NEVER
    for name, moment in _COUNTED.items():
        one, other = before.column(name), now.column(name)
        same = pc.fill_null(pc.equal(one, other), False)
        same = pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))
        if pc.all(same).as_py() in (True, None):
            continue
        for jobs in (before, now):
            first = pc.min(jobs.column(moment).filter(pc.invert(same)).cast(pa.int64())).as_py()
            since = since if first is None else min(since, first // 1000)
    return since


def is_final(jobs: pa.Table) -> pa.ChunkedArray:
    """For each job, whether nothing can happen to it any more, and time cannot change the findings
    about it: all nodes have deleted it, for a known reason. Jobs without ``ctime`` are not final,
    since it is unknown when their other lines were written."""
    ended = jobs.column("ended")
    known = pc.and_(pc.is_valid(ended), pc.fill_null(pc.not_equal(ended, EVICTED), False))
    return pc.and_(pc.and_(jobs.column("complete"), known), pc.is_valid(jobs.column("ctime")))


def _write_days(jobs: pa.Table, place: Target, bucket: int) -> Iterator[tuple[str, Part]]:
    """Write the jobs of a bucket. A file belongs to the table only once it is in the manifest;
    files of failed or repeated tasks never are."""
    if not len(jobs):
        return
    last = _ms(jobs.column("last_event"))
    days = last // DAY
    final = is_final(jobs).to_numpy()
    for number in np.unique(days).tolist():
        day = day_of(number * DAY)
        for open in (False, True):
            rows = jobs.filter(pa.array((days == number) & (final != open)))
            if not len(rows):
                continue
            path = place.directory / f"day={day}" / f"{place.stamp}-{bucket:05}-{_unique()}"
            write_file(path, rows, use_dictionary=_WITH_DICTIONARY)
            yield day, _part(rows, path, open)


def _write_ticks(ticks: Sequence[pa.Table], place: Target) -> Iterator[tuple[str, str]]:
    """Write ticks by their day. Yields the day and the name of each file."""
    if not ticks:
        return
    rows = pa.concat_tables(ticks)
    days = rows.column("tick").cast(pa.int64()).to_numpy() // DAY
    for number in np.unique(days).tolist():
        day, name = day_of(number * DAY), f"{place.stamp}-{_unique()}"
        write_file(place.ticks / f"day={day}" / name, rows.filter(pa.array(days == number)))
        yield day, name


def _unique() -> str:
    return f"{uuid4().hex[:12]}.parquet"


def _part(rows: pa.Table, path: Location, open: bool) -> Part:
    batch = rows.combine_chunks().to_batches()[0]
    last = _ms(rows.column("last_event"))
    made = pc.fill_null(rows.column("ctime"), 0).to_numpy() // 1_000_000
    sure = _least(least_of(batch, whole=False))
    every = _least(least_of(batch, whole=True))
    return Part(
        file=path.name,
        rows=len(rows),
        size=path.size(),
        first=int(_ms(rows.column("first_event")).min()),
        last=int(last.max()),
        latest=int(max(last.max(), made.max())),
        open=open,
        wait=max(_most(rows, "delay"), _most(rows, "ttl")),
        retry=_most(rows, "retry"),
        copied=sure,
        heard=[row for row in every if row not in sure],
    )


def _most(rows: pa.Table, name: str) -> int:
    most = pc.max(rows.column(name)).as_py()
    return int(most or 0)


def _least(rows: pa.RecordBatch) -> list[list[int]]:
    return [list(row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def _ms(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    ms: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy() // 1000
    return ms


def scan(
    files: Iterable[Location],
    columns: Sequence[str],
    map: Callable[[pa.RecordBatch], pa.RecordBatch],
    schema: pa.Schema,
) -> Tasks:
    """The results of ``map`` for record batches of the jobs in some files."""
    groups = in_groups(files)
    wanted = list(columns)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        for path in groups[number]:
            with parquet_file(path) as file:
                for batch in file.iter_batches(ROWS, columns=wanted):
                    if batch.num_rows:
                        yield map(batch)

    return Tasks(len(groups), task, schema)


def _bucketed(
    partial: pa.Table, seen: Seen, notes: Notes | None, buckets: int, *, old: bool
) -> pa.RecordBatch:
    """A row for each bucket. ``seen`` and ``notes`` go into the first one."""
    parts = dict(divided(partial, hashes_of(partial.column("id").combine_chunks()), buckets))
    ticks = _ticks_in_buckets(notes, buckets) if notes else {}
    for bucket in {*ticks, *([] if notes is None else [0])} - {*parts}:
        parts[bucket] = partial.slice(0, 0)
    rows = []
    for bucket, mine in sorted(parts.items()):
        counts = seen if bucket == 0 else Seen()
        text = notes.text() if notes and bucket == 0 else None
        rows.append((bucket, packed(mine), old, ticks.get(bucket), *counts, text))
    return batch_of(rows, _BUCKETED)


def _ticks_in_buckets(notes: Notes, buckets: int) -> dict[int, bytes]:
    """The ticks of schedules; those of a day are in one bucket."""
    if not notes.ticks:
        return {}
    rows = pa.concat_tables(notes.ticks)
    days = rows.column("tick").cast(pa.int64()).to_numpy() // DAY
    parts = divided(rows, days.astype(np.uint64), buckets)
    return {bucket: packed(mine) for bucket, mine in parts}


def divided(
    rows: pa.Table, hashes: npt.NDArray[np.uint64], buckets: int
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has some, by the hash of each row."""
    places = (hashes % np.uint64(buckets)).astype(np.int64)
    ordered = rows.take(pa.array(np.argsort(places, kind="stable"))) if buckets > 1 else rows
    start = 0
    for bucket, end in enumerate(np.cumsum(np.bincount(places, minlength=buckets)).tolist()):
        if end > start:
            yield bucket, ordered.slice(start, end - start)
        start = end
