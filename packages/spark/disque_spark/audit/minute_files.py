"""Writes the table ``queue_minutes``: the minutes in which something has changed.

The depth of a queue follows from the row before. If the rows before are in files that stay, it
comes from ``depths``: the depth of each queue at the end of each day.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.engine import BUCKET, Engine, Step, Tasks, packed, unpacked
from disque_spark.audit.hashes import hashes_of
from disque_spark.audit.manifest import DAY, day_of
from disque_spark.audit.queue_minutes import (
    BUCKETED,
    MINUTE_SCHEMA,
    NEEDED,
    SECOND,
    TABLE_SCHEMA,
    bucketed,
    minutes_of,
    places_of,
)
from disque_spark.audit.stages import divided, scan
from disque_spark.files import Location
from disque_spark.options import batch_of
from disque_spark.parquet import parquet_file, write_file

_TIME = pa.timestamp("us", tz="UTC")
# Roles of rows on their way into the table: computed, rewritten, or only there for their depth.
NEW, OLD, BEFORE = range(3)
_ROLE_SCHEMA = pa.schema([*MINUTE_SCHEMA, ("depth", pa.int64()), ("role", pa.int8())])
_BY_QUEUE = pa.schema([(BUCKET, pa.int32()), ("rows", pa.binary())])
NO_MINUTE = -1
MOST_FILES = 16  # the most files of a day that one run writes
_FILE_SCHEMA = pa.schema([("day", pa.string()), ("file", pa.string()), ("last", pa.int64())])


class Kept(NamedTuple):
    """What is known about the minutes before those that are computed.

    Attributes:
        rewritten: files of the table that have both earlier minutes and minutes to compute, and are
            rewritten.
        others: files of the same day that have only earlier minutes.
        depths: files with the depths of queues at the end of an earlier day.
    """

    rewritten: Sequence[Location] = ()
    others: Sequence[Location] = ()
    depths: Sequence[Location] = ()


class Target(NamedTuple):
    """Where to write the files of the table and of depths.

    Attributes:
        minutes, depths: directories.
        stamp: prefix for names of files.
        days: days, since 1970, at whose end depths are written.
    """

    minutes: Location
    depths: Location
    stamp: str
    days: range


def queue_minutes(
    engine: Engine,
    files: Sequence[Location],
    buckets: int,
    since: int,
    kept: Kept,
    target: Target,
) -> Iterator[tuple[str, str, int]]:
    """Write the minutes from ``since`` on (ms, a whole minute), and the depths of queues at the end
    of each day.

    Args:
        files: files of the table ``jobs``: all that have an event in these minutes, or in the
            second before.
        buckets: number of buckets in which minutes are aggregated.

    Returns:
        Day, name and last minute of each file; NO_MINUTE for files of depths.
    """

    def some(batch: pa.RecordBatch) -> pa.RecordBatch:
        needed = (since - SECOND) * 1000  # for ``most_in_a_second``
        recent = pc.greater_equal(batch.column("last_event").cast(pa.int64()), needed)
        return bucketed(batch.filter(recent), buckets)

    outputs = min(buckets, MOST_FILES)

    def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[int, list[tuple[pa.Table, pa.Table]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                if row["kept"] is not None:
                    yield _by_queue(unpacked(row["kept"]), outputs)
                    continue
                pair = unpacked(row["sums"]), unpacked(row["times"])
                found.setdefault(row[BUCKET], []).append(pair)
        for pairs in found.values():
            sums, times = map(pa.concat_tables, zip(*pairs, strict=True))
            minutes = minutes_of(sums, times)
            new = minutes.filter(pc.greater_equal(minutes.column("minute"), since))
            yield _by_queue(with_role(new, NEW), outputs)

    kept_paths = [(path, OLD) for path in kept.rewritten]
    kept_paths += [(path, BEFORE) for path in (*kept.others, *kept.depths)]

    def old(number: int) -> Iterator[pa.RecordBatch]:
        path, role = kept_paths[number]
        columns = None if role == OLD else ["queue", "minute", "depth"]
        with parquet_file(path) as file:
            names = [name for name in columns or () if name in file.schema_arrow.names]
            table = file.read(names or None)
        rows = packed(_kept_rows(table, role, since))
        yield batch_of([(number % buckets, None, None, rows)], BUCKETED)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = [unpacked(row) for batch in batches for row in batch.column("rows").to_pylist()]
        table = pa.concat_tables(tables) if tables else _ROLE_SCHEMA.empty_table()
        yield batch_of(list(_write_days(table, target)), _FILE_SCHEMA)

    tasks = scan(files, NEEDED, some, BUCKETED).plus(Tasks(len(kept_paths), old, BUCKETED))
    minutes, by_queue = Step(buckets, together, _BY_QUEUE), Step(outputs, write, _FILE_SCHEMA)
    for row in engine.rows(tasks, minutes, by_queue).to_pylist():
        yield row["day"], row["file"], row["last"]


def _by_queue(rows: pa.Table, buckets: int) -> pa.RecordBatch:
    """The rows in buckets; all rows of a queue are in one."""
    if not len(rows):
        return batch_of([], _BY_QUEUE)
    queues = rows.column("queue").combine_chunks().dictionary_encode()
    hashes = np.append(hashes_of(pc.fill_null(queues.dictionary, "")), np.uint64(0))
    parts = divided(rows, hashes[places_of(queues)], buckets)
    return batch_of([(bucket, packed(mine)) for bucket, mine in parts], _BY_QUEUE)


def with_role(minutes: pa.Table, role: int) -> pa.Table:
    """Rows with a role, and with their depth unless they are NEW."""
    count = len(minutes)
    depth = pa.nulls(count, pa.int64())
    if "depth" in minutes.column_names:
        depth = minutes.column("depth")
    columns = [
        minutes.column(name) if name in minutes.column_names else pa.nulls(count, type)
        for name, type in zip(MINUTE_SCHEMA.names, MINUTE_SCHEMA.types, strict=True)
    ]
    roles = pa.array(np.full(count, role, np.int8))
    return pa.table([*columns, depth, roles], schema=_ROLE_SCHEMA)


def _kept_rows(table: pa.Table, role: int, since: int) -> pa.Table:
    """The rows before ``since`` of a file of the table, or of depths, which have no minute."""
    if "minute" not in table.column_names:
        minute = pa.array(np.full(len(table), NO_MINUTE, np.int64))
        return with_role(table.append_column("minute", minute), role)
    ms = pc.divide(table.column("minute").cast(pa.int64()), 1000)
    place = table.column_names.index("minute")
    table = table.set_column(place, "minute", ms)
    return with_role(table.filter(pc.less(ms, since)), role)


def _write_days(rows: pa.Table, target: Target) -> Iterator[tuple[str, str, int]]:
    """Write all minutes of some queues, and their depths at the end of days."""
    rows = with_depth(rows)
    if not len(rows):
        return
    minute = rows.column("minute").to_numpy()
    written = rows.column("role").to_numpy() != BEFORE
    for number in np.unique(minute[written] // DAY).tolist():
        mine = written & (minute // DAY == number)
        table = _finished(rows.filter(pa.array(mine)))
        yield (*_write(table, target.minutes, number, target.stamp), int(minute[mine].max()))
    for number in target.days:
        deep = _depths_at(rows, (number + 1) * DAY)
        if len(deep):
            yield (*_write(deep, target.depths, number, target.stamp), NO_MINUTE)


def _write(table: pa.Table, place: Location, day: int, stamp: str) -> tuple[str, str]:
    name = day_of(day * DAY)
    path = place / f"day={name}" / f"{stamp}-{uuid4().hex[:12]}.parquet"
    write_file(path, table)
    return name, path.name


def with_depth(rows: pa.Table) -> pa.Table:
    """Sort the rows of complete queues, and set the depths of NEW ones: the depth of the row before
    plus the change."""
    names = rows.column("queue").combine_chunks().dictionary_encode()
    queue = places_of(names)
    minute = rows.column("minute").to_numpy()
    order = np.lexsort((minute, queue))
    rows, queue = rows.take(pa.array(order)), queue[order]
    if not len(rows):
        return rows
    known = rows.column("depth").is_valid().to_numpy()
    depth = pc.fill_null(rows.column("depth"), 0).to_numpy()
    change = np.where(known, 0, pc.fill_null(rows.column("change"), 0).to_numpy())
    # Counting starts at a known depth, or at the first row of a queue.
    start = known.copy()
    start[0] = True
    start[1:] |= queue[1:] != queue[:-1]
    total = np.cumsum(change)
    at = np.maximum.accumulate(np.where(start, np.arange(len(rows)), 0))
    # The row before the first row of a queue belongs to another queue.
    base = np.where(known[at], total[at], total[at] - change[at])
    deep = depth[at] + total - base
    # most_depth is relative to the depth at the beginning of the minute.
    most = pc.add(rows.column("most_depth"), pa.array(np.where(known, 0, deep - change)))
    for name, column in (("depth", pa.array(deep)), ("most_depth", most)):
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
    return rows


def _depths_at(rows: pa.Table, end: int) -> pa.Table:
    """The depths of queues that are not empty, at the time ``end`` (ms). ``rows`` are sorted."""
    rows = rows.filter(pc.less(rows.column("minute"), end))
    queue = places_of(rows.column("queue").combine_chunks().dictionary_encode())
    last = np.ones(len(queue), bool)
    last[:-1] = queue[1:] != queue[:-1]
    table = rows.filter(pa.array(last)).select(["queue", "depth"])
    return table.filter(pc.not_equal(table.column("depth"), 0))


def _finished(rows: pa.Table) -> pa.Table:
    """Rows with the columns of the table."""
    delivered = rows.column("delivered")
    some = pc.greater(delivered, 0)
    columns: dict[str, pa.ChunkedArray] = {
        name: rows.column(name) for name in rows.column_names if name in TABLE_SCHEMA.names
    }
    columns["minute"] = pc.multiply(columns["minute"], 1000).cast(_TIME)
    for name, counted in (("retry_rate", "requeued_retry"), ("nack_rate", "nacked")):
        rate = pc.divide(rows.column(counted).cast(pa.float64()), delivered.cast(pa.float64()))
        columns[name] = pc.if_else(some, rate, pa.scalar(None, pa.float64()))
    return pa.table([columns[name] for name in TABLE_SCHEMA.names], schema=TABLE_SCHEMA)
