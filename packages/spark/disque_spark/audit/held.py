"""Reads from append-only files which jobs the nodes still hold: the table ``held`` of an audit.

A job that was never delivered and is in such a file is waiting; if it is in none, it is lost. The
files must be those of all nodes, from after they stopped, or from a backup made after the end of
the logs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.append_only import STATES, live_records
from disque_spark.audit.classify import DECIDE, DELIVERED
from disque_spark.audit.engine import BUCKET, Engine, Step, Tasks, packed, unpacked
from disque_spark.audit.findings import FINDING_SCHEMA
from disque_spark.audit.hashes import hashes_of
from disque_spark.audit.judging import WAITS
from disque_spark.audit.rules import (
    HELD,
    LOST,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    RESTART,
    WAITING,
    WAITING_LETTER,
)
from disque_spark.audit.stages import divided, in_groups
from disque_spark.files import Location
from disque_spark.options import batch_of, text
from disque_spark.parquet import parquet_file, rows_of, write_file
from disque_trio.aof.format import AofError
from disque_trio.protocol.serialjob import SerialJobError, decode_job

ROWS = 20_000  # rows in a record batch
_DECIDE = DECIDE.format(logs="logs?", nodes=".*") + "$"  # a pattern

_TIME = pa.timestamp("us", tz="UTC")
_HELD = pa.schema(
    [
        ("job", pa.string()),
        ("queue", pa.string()),
        ("node", pa.string()),  # null: there is no nodes.conf beside the file
        ("file", pa.string()),
        ("state", pa.string()),
        ("repl", pa.int32()),
        ("nacks", pa.int32()),
        ("additional", pa.int32()),
        ("delay", pa.int64()),
        ("retry", pa.int64()),
        ("ctime", _TIME),
        ("expires", _TIME),
    ]
)
TABLE_SCHEMA = pa.schema([*_HELD, ("ended", pa.string()), ("logged", pa.bool_())])


# Rows on their way to buckets, by job: from which file of the table, and what they are.
_HELD_ROWS, _KNOWN, _FOUND = range(3)
_BUCKETED = pa.schema(
    [(BUCKET, pa.int32()), ("what", pa.int8()), ("day", pa.string()), ("rows", pa.binary())]
)
_WRITTEN = pa.schema(
    [
        *((name, pa.string()) for name in ("day", "file", "counts")),
        *((name, pa.int64()) for name in ("jobs", "unlogged")),
    ]
)
_BUCKET_JOBS = 1 << 20
_BATCH = 100_000


class Target(NamedTuple):
    """Where to write: the directories of the tables ``held`` and ``findings``, and the prefix of
    names."""

    held: Location
    findings: Location
    stamp: str


class AofOutcome(NamedTuple):
    """What was written.

    Attributes:
        files: names of the files of the table ``held``.
        jobs, unlogged: number of jobs in append-only files, and how many of them are not in the
            logs.
        found: names of the files of findings, by day.
        counts: number of findings of each ``kind reason``.
    """

    files: list[str]
    jobs: int
    unlogged: int
    found: dict[str, list[str]]
    counts: Counter[str]


class Tables(NamedTuple):
    """The files to compare with append-only files: of the table ``jobs`` and, by day, of
    ``findings``; and the number (``size``) of jobs."""

    jobs: Sequence[Location]
    findings: Sequence[tuple[str, Location]]
    size: int


def write_held(
    engine: Engine,
    files: Sequence[Location],
    tables: Tables,
    target: Target,
    end: int,
    all_nodes: bool,
) -> AofOutcome:
    """Write the table ``held``, and the findings as changed by append-only files.

    Args:
        files: the append-only files.
        end, all_nodes: see ``with_held_jobs``.

    Raises:
        AofError: a file is damaged, other than at its end.
    """
    buckets = max(engine.cores, -(-tables.size // _BUCKET_JOBS))
    tasks = _held_tasks(files, buckets).plus(_known_tasks(tables.jobs, buckets))
    tasks = tasks.plus(_found_tasks(tables.findings, buckets))

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        for bucket in sorted({row[BUCKET] for row in rows}):
            mine = [row for row in rows if row[BUCKET] == bucket]
            yield batch_of(list(_written(mine, target, end, all_nodes)), _WRITTEN)

    result = AofOutcome([], 0, 0, {}, Counter())
    for row in engine.rows(tasks, Step(buckets, merge, _WRITTEN)).to_pylist():
        if row["counts"] is None:
            result.files.append(row["file"])
            jobs, unlogged = result.jobs + row["jobs"], result.unlogged + row["unlogged"]
            result = result._replace(jobs=jobs, unlogged=unlogged)
        else:
            result.found.setdefault(row["day"], []).append(row["file"])
            result.counts.update(json.loads(row["counts"]))
    return result


def _written(
    rows: Sequence[dict[str, Any]], target: Target, end: int, all_nodes: bool
) -> Iterator[tuple[object, ...]]:
    """Write the rows of a bucket."""

    def of(what: int, schema: pa.Schema, day: object = None) -> pa.Table:
        some = [unpacked(row["rows"]) for row in rows if (row["what"], row["day"]) == (what, day)]
        return pa.concat_tables(some) if some else schema.empty_table()

    held = with_ends(of(_HELD_ROWS, _HELD), of(_KNOWN, _ENDS))
    if len(held):
        name = _new_name(target)
        write_file(target.held / name, held)
        jobs, unlogged = (
            pc.count_distinct(some.column("job")).as_py()
            for some in (held, held.filter(pc.invert(held.column("logged"))))
        )
        yield None, name, None, jobs, unlogged
    for day in sorted({str(row["day"]) for row in rows if row["what"] == _FOUND}):
        found = with_held_jobs(of(_FOUND, FINDING_SCHEMA, day), held, end, all_nodes)
        name = _new_name(target)
        write_file(target.findings / f"day={day}" / name, found)
        pairs = zip(*(found.column(name).to_pylist() for name in ("kind", "reason")), strict=True)
        counts = Counter(f"{kind} {reason or ''}" for kind, reason in pairs)
        yield day, name, json.dumps(counts), 0, 0


def _new_name(target: Target) -> str:
    return f"{target.stamp}-{uuid4().hex[:12]}.parquet"


_ENDS = pa.schema([("id", pa.string()), ("ended", pa.string())])


def with_ends(held: pa.Table, known: pa.Table) -> pa.Table:
    """The rows of the table ``held``. ``logged`` says whether the logs have the job, and ``ended``
    how it ended according to them; a node that died before it recorded the end still has the job in
    its file.

    Args:
        held: see ``held_in``.
        known: the columns ``id`` and ``ended`` of the table ``jobs``.
    """
    place = pc.index_in(held.column("job"), known.column("id").combine_chunks())
    ended = known.column("ended").take(place)
    columns = [*held.columns, ended, pc.is_valid(place)]
    return pa.table(columns, schema=TABLE_SCHEMA)


def _rows_in_buckets(
    rows: pa.Table, by: str, buckets: int, what: int, day: str | None = None
) -> pa.RecordBatch:
    ids = pc.fill_null(rows.column(by), "").combine_chunks()
    parts = divided(rows, hashes_of(ids), buckets)
    return batch_of([(bucket, what, day, packed(mine)) for bucket, mine in parts], _BUCKETED)


def _held_tasks(files: Sequence[Location], buckets: int) -> Tasks:
    places = list(files)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        for batch in held_in(places[number]):
            yield _rows_in_buckets(pa.Table.from_batches([batch]), "job", buckets, _HELD_ROWS)

    return Tasks(len(places), task, _BUCKETED)


def _known_tasks(files: Sequence[Location], buckets: int) -> Tasks:
    groups = in_groups(files)

    def task(number: int) -> Iterator[pa.RecordBatch]:
        for path in groups[number]:
            with parquet_file(path) as file:
                for batch in file.iter_batches(_BATCH, columns=_ENDS.names):
                    rows = pa.Table.from_batches([batch]).cast(_ENDS)
                    yield _rows_in_buckets(rows, "id", buckets, _KNOWN)

    return Tasks(len(groups), task, _BUCKETED)


def _found_tasks(files: Sequence[tuple[str, Location]], buckets: int) -> Tasks:
    days, places = [day for day, _ in files], [path for _, path in files]

    def task(number: int) -> Iterator[pa.RecordBatch]:
        for rows in rows_of(places[number], FINDING_SCHEMA):
            table = pa.Table.from_batches([rows])
            yield _rows_in_buckets(table, "job", buckets, _FOUND, days[number])

    return Tasks(len(places), task, _BUCKETED)


def held_in(path: Location) -> Iterator[pa.RecordBatch]:
    """The jobs in one file that were not deleted. A crash may have truncated it.

    Raises:
        AofError: it is damaged elsewhere.
    """
    node = node_of_aof(path)
    rows: list[tuple[object, ...]] = []
    with path.open_input(0) as file:
        try:
            for offset, _, data in live_records(file):
                rows.append(_row(offset, data, path, node))
                if len(rows) >= ROWS:
                    yield batch_of(rows, _HELD)
                    rows = []
        except AofError as failure:
            if not failure.truncated:
                raise AofError(failure.offset, f"{failure.reason} ({path})", False) from None
    if rows:
        yield batch_of(rows, _HELD)


def _row(offset: int, data: bytes, path: Location, node: str | None) -> tuple[object, ...]:
    try:
        job = decode_job(data)
    except SerialJobError as problem:
        raise AofError(offset, str(problem), False) from problem
    id = job.id.decode("ascii", "backslashreplace")
    created, expires = job.ctime // 1000, job.etime * 1_000_000
    numbers = (job.repl, job.nacks, job.deliveries, job.delay, job.retry, created, expires)
    return (id, text(job.queue), node, str(path), STATES[job.state], *numbers)


def node_of_aof(path: Location) -> str | None:
    """The id of the node that wrote a file, from the ``nodes.conf`` beside it; None if unknown."""
    try:
        lines = (path.parent / "nodes.conf").read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 2 and "myself" in fields[2].split(","):
            return fields[0]
    return None


def are_all(files: Sequence[Location], nodes: Sequence[str]) -> bool:
    """Whether these are the files of all ``nodes``, as far as is known."""
    known = [node_of_aof(path) for path in files]
    return len(files) >= len(nodes) if None in known else set(nodes) <= set(known)


def with_held_jobs(found: pa.Table, held: pa.Table, end: int, all_nodes: bool) -> pa.Table:
    """Findings, changed by what append-only files say about jobs still to be delivered.

    Args:
        found: rows of the table ``findings``, and those of kind WAITS: jobs that wait, without a
            finding. They stay only if they are lost.
        held: rows of the table ``held`` about their jobs.
        end: when the log ends, ms; jobs that had expired by then are not held.
        all_nodes: whether ``held`` is complete. If not, no job is called lost. Neither is a job
            that may have been delivered in a gap of a log.
    """
    expires = held.column("expires").cast(pa.int64())
    alive = pc.and_(pc.not_equal(held.column("state"), "acked"), pc.greater(expires, end * 1000))
    alive = held.filter(alive).column("job").combine_chunks()
    kind, reason = found.column("kind"), found.column("reason")
    job = found.column("job")
    waits = pc.and_(pc.is_valid(job), pc.is_in(job, alive))
    waiting = pc.is_in(kind, pa.array([WAITING, WAITING_LETTER, WAITS]))
    never = pc.or_(pc.is_in(kind, pa.array([NEVER_DELIVERED, NOT_REQUEUED, NEVER_ACKED])), waiting)
    # Whether a node that was started again still has a job, its file says.
    open_ = pc.or_(pc.is_null(reason), pc.and_(waiting, pc.equal(reason, RESTART)))
    lost = pc.and_(never, pc.and_(pc.fill_null(open_, True), all_nodes))
    # Even if a job is in a file, it may have been queued again in a gap of the log.
    sure = pc.or_(pc.not_equal(kind, NOT_REQUEUED), pc.is_null(reason))
    # If a file decides, no log is needed for that.
    told = pc.and_(pc.and_(never, waits), sure)
    why = pc.if_else(told, HELD, pc.if_else(lost, LOST, reason))
    # A job that no node has is not waiting.
    is_lost = pc.fill_null(pc.equal(why, LOST), False)
    was_delivered = pc.starts_with(found.column("detail"), DELIVERED)
    gone = pc.if_else(was_delivered, NEVER_ACKED, NEVER_DELIVERED)
    detail = found.column("detail")
    plain = pc.replace_substring_regex(detail, _DECIDE, "")
    logs = found.column("would_decide")
    none = pa.array([[]], logs.type)
    all_logs = pa.concat_arrays([*logs.chunks, none])
    places = pc.if_else(told, len(found), pa.array(range(len(found)), pa.int64()))
    changed = {
        "reason": why,
        "kind": pc.if_else(pc.and_(waiting, is_lost), gone, kind),
        "would_decide": all_logs.take(places),
        "detail": pc.if_else(told, plain, detail),
    }
    columns = [changed.get(name, found.column(name)) for name in found.column_names]
    rows = pa.table(columns, names=found.column_names).cast(found.schema)
    return rows.filter(pc.not_equal(rows.column("kind"), WAITS))
