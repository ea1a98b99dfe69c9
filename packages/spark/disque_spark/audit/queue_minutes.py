"""Aggregates jobs into one row per queue and minute.

A duration counts for the minute in which it ended: waiting when a job was first delivered,
processing when it was acknowledged.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.engine import BUCKET, packed
from disque_spark.audit.hashes import hashes_of
from disque_spark.audit.trace import Numbers
from disque_spark.options import batch_of
from disque_trio.eventlog import schema

SECOND = 1_000
MINUTE = 60 * SECOND
_KINDS = {"added": tr.ADDED, "delivered": tr.DELIVERED, "nacked": tr.NACKED}
_CODES = {
    "requeued_retry": tr.QUEUED_RETRY,
    "requeued_nack": tr.QUEUED_NACK,
    "requeued_enqueue": tr.QUEUED_ENQUEUE,
    "requeued_disconnect": tr.QUEUED_DISCONNECT,
}
COUNTS = ("added", "delivered", "acked", "nacked", *_CODES, "expired")
PERCENTILES = (50, 95, 99)
_SUM_SCHEMA = pa.schema(
    [("queue", pa.string()), *((name, pa.int64()) for name in ("minute", *COUNTS, "change"))]
)
_TIMES = ("wait", "processing")
_DELIVERED = len(_TIMES)  # kind of the times of deliveries: ms since the beginning of the minute
# Kind of the times when jobs entered or left a queue: twice the ms, plus 1 for leaving. So within
# one ms, jobs that enter count before those that leave.
_MOVED = _DELIVERED + 1
_TIME_SCHEMA = pa.schema(
    [("queue", pa.string()), ("minute", pa.int64()), ("kind", pa.int64()), ("ms", pa.int64())]
)
_PERCENTILE_COLUMNS = [f"{kind}_p{percent}" for kind in _TIMES for percent in PERCENTILES]
MINUTE_SCHEMA = pa.schema(
    [
        *_SUM_SCHEMA,
        *((name, pa.float64()) for name in _PERCENTILE_COLUMNS),
        ("most_in_a_second", pa.int64()),
        ("most_depth", pa.int64()),  # relative to the depth at the beginning, until that is known
    ]
)
_TIME = pa.timestamp("us", tz="UTC")
TABLE_SCHEMA = pa.schema(
    [
        ("queue", pa.string()),
        ("minute", _TIME),
        *((name, pa.int64()) for name in COUNTS),
        ("retry_rate", pa.float64()),
        ("nack_rate", pa.float64()),
        *((name, pa.float64()) for name in _PERCENTILE_COLUMNS),
        ("depth", pa.int64()),
        ("most_in_a_second", pa.int64()),
        ("most_depth", pa.int64()),
    ]
)
# ``kept``: rows that are only passed on.
BUCKETED = pa.schema(
    [(BUCKET, pa.int32()), *((name, pa.binary()) for name in ("sums", "times", "kept"))]
)
NEEDED = (
    "queue",
    "trace",
    "first_delivered",
    "acked_at",
    "ended_at",
    "ended",
    "wait_ms",
    "processing_ms",
    "last_event",
)
_NEVER = np.iinfo(np.int64).max


def bucketed(jobs: pa.RecordBatch, buckets: int) -> pa.RecordBatch:
    """The contributions of some jobs to minutes, with a row for each bucket. Each minute of a queue
    belongs to one bucket."""
    stays = stays_of(jobs)
    tables = [_placed(sums_of(jobs, stays=stays), buckets), _placed(times_of(jobs, stays), buckets)]
    rows = []
    for bucket in range(buckets):
        mine = [
            table.slice(ends[bucket], ends[bucket + 1] - ends[bucket]) for table, ends in tables
        ]
        if any(map(len, mine)):
            rows.append((bucket, *map(packed, mine), None))
    return batch_of(rows, BUCKETED)


def _placed(rows: pa.Table, buckets: int) -> tuple[pa.Table, list[int]]:
    """The rows sorted by bucket, and where each bucket begins."""
    queues = rows.column("queue").combine_chunks().dictionary_encode()
    hashes = hashes_of(pc.fill_null(queues.dictionary, ""))
    queue = np.append(hashes, np.uint64(0))[places_of(queues)]
    minute = rows.column("minute").to_numpy().astype(np.uint64) // np.uint64(MINUTE)
    place = ((queue + minute) % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(place, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=buckets))))
    return rows.take(pa.array(order)), starts.tolist()


def places_of(values: pa.DictionaryArray) -> Numbers:
    """The indexes into the dictionary; null has the index after the last."""
    places: Numbers = pc.fill_null(values.indices, len(values.dictionary)).to_numpy()
    return places.astype(np.int64)


def minutes_of(sums: pa.Table, times: pa.Table) -> pa.Table:
    """A row for each queue and minute, from ``sums`` (see ``sums_of``) and ``times`` (see
    ``times_of``)."""
    counts = (*COUNTS, "change")
    whole = sums.group_by(["queue", "minute"], use_threads=False).aggregate(
        [(name, "sum") for name in counts]
    )
    minutes = pa.table(
        [whole.column(name) for name in ("queue", "minute", *(f"{name}_sum" for name in counts))],
        names=_SUM_SCHEMA.names,
    )
    row, kind, starts, ms = _grouped(minutes, times)
    lengths = np.diff(np.append(starts, len(ms)))
    for number, name in enumerate(_TIMES):
        mine = kind == number
        for percent in PERCENTILES:
            values = np.full(len(minutes), np.nan)
            values[row[mine]] = _percentile(ms, starts[mine], lengths[mine], percent / 100)
            column = pa.array(values, mask=np.isnan(values))
            minutes = minutes.append_column(f"{name}_p{percent}", column)
    most = np.zeros(len(minutes), np.int64)
    mine = (kind == _DELIVERED) & (row >= 0)
    most[row[mine]] = _most_in_a_second(ms, starts[mine], lengths[mine])
    rise = np.zeros(len(minutes), np.int64)
    mine = (kind == _MOVED) & (row >= 0)
    rise[row[mine]] = _most_risen(ms, starts[mine], lengths[mine])
    minutes = minutes.append_column("most_in_a_second", pa.array(most))
    return minutes.append_column("most_depth", pa.array(rise)).cast(MINUTE_SCHEMA)


def _grouped(minutes: pa.Table, times: pa.Table) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Group the times by minute and kind. Returns the row of the minute, the kind and the start of
    each group, and the sorted times. The row is -1 if nothing was counted in the minute: it may
    only have deliveries from the second before it."""
    # Queues get the same numbers in both tables.
    names = [table.column("queue").combine_chunks() for table in (minutes, times)]
    queues = places_of(pa.concat_arrays(names).dictionary_encode())
    rows = {
        key: row
        for row, key in enumerate(
            zip(queues[: len(minutes)].tolist(), minutes.column("minute").to_pylist(), strict=True)
        )
    }
    keys = np.stack(
        [queues[len(minutes) :], *(times.column(name).to_numpy() for name in ("minute", "kind"))]
    )
    ms = times.column("ms").to_numpy()
    order = np.lexsort((ms, *keys[::-1]))
    keys = keys[:, order]
    new = np.ones(len(ms), bool)
    new[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    starts = np.flatnonzero(new)
    row = [rows.get((queue, minute), -1) for queue, minute, _ in keys[:, starts].T.tolist()]
    return np.array(row, np.int64), keys[2, starts], starts, ms[order]


def _percentile(ms: Numbers, starts: Numbers, counts: Numbers, fraction: float) -> np.ndarray:
    """The exact percentile of each group of sorted values, with linear interpolation."""
    place = fraction * (counts - 1)
    below = np.floor(place).astype(np.int64)
    above = np.ceil(place).astype(np.int64)
    low, high = ms[starts + below], ms[starts + above]
    values: np.ndarray = low + (high - low) * (place - below)
    return values


def _most_in_a_second(ms: Numbers, starts: Numbers, counts: Numbers) -> Numbers:
    """For each group of sorted times in a minute, the most that are within one second. Times below
    0 are from the minute before; a second that ends with one of those does not count here."""
    if not len(starts):
        return starts
    group = np.repeat(np.arange(len(starts)), counts)
    first = np.cumsum(counts) - counts
    moments = ms[np.repeat(starts - first, counts) + np.arange(len(group))]
    apart = group * (2 * MINUTE) + moments  # so that no second spans two groups
    within = np.arange(len(apart)) - np.searchsorted(apart, apart - SECOND, "right") + 1
    most: Numbers = np.maximum.reduceat(np.where(moments < 0, 0, within), first)
    return most


def _most_risen(moves: Numbers, starts: Numbers, counts: Numbers) -> Numbers:
    """For each group of sorted moves, the greatest rise of the depth above its initial value."""
    if not len(starts):
        return starts
    first = np.cumsum(counts) - counts
    places = np.repeat(starts - first, counts) + np.arange(int(counts.sum()))
    by = 1 - 2 * (moves[places] & 1)
    total = np.cumsum(by)
    depth = total - np.repeat(total[first] - by[first], counts)
    most: Numbers = np.maximum(np.maximum.reduceat(depth, first), 0)
    return most


def times_of(jobs: pa.RecordBatch, stays: "Stays | None" = None) -> pa.Table:
    """The waiting and processing times of some jobs, in the minutes in which these ended, and the
    times of deliveries and moves, in their minutes."""
    tables = [_delivered(jobs), _moved(jobs, stays or stays_of(jobs))]
    for kind, (name, over) in enumerate(zip(_TIMES, ("first_delivered", "acked_at"), strict=True)):
        ms = jobs.column(f"{name}_ms")
        known = pc.is_valid(ms)
        minute = _ms(jobs.column(over)) // MINUTE * MINUTE
        columns = [jobs.column("queue"), pa.array(minute), pa.nulls(len(ms), pa.int64()), ms]
        rows = pa.table(columns, schema=_TIME_SCHEMA).filter(known)
        tables.append(rows.set_column(2, "kind", pa.array(np.full(len(rows), kind, np.int64))))
    return pa.concat_tables(tables)


def _moved(jobs: pa.RecordBatch, stays: "Stays") -> pa.Table:
    """The times when jobs entered or left a queue on a node."""
    came, at, left, until = stays
    time = np.concatenate((at, until))
    minute = time // MINUTE * MINUTE
    ms = 2 * (time - minute)
    ms[len(at) :] += 1
    queue = jobs.column("queue").take(pa.array(np.concatenate((came, left))))
    kind = np.full(len(ms), _MOVED, np.int64)
    return pa.table([queue, *map(pa.array, (minute, kind, ms))], schema=_TIME_SCHEMA)


def _delivered(jobs: pa.RecordBatch) -> pa.Table:
    """The times when jobs were delivered. Those in the last second of a minute are in the next
    minute as well, with a time below 0."""
    events, job, _ = tr.flat(jobs.column("trace"))
    codes = tr.codes(events)
    which = codes - codes % 10 == tr.DELIVERED
    at, job = tr.times(events[which]), job[which]
    late = at % MINUTE > MINUTE - SECOND
    minute = np.concatenate((at, at[late] + MINUTE)) // MINUTE * MINUTE
    ms = np.concatenate((at, at[late])) - minute
    queue = jobs.column("queue").take(pa.array(np.concatenate((job, job[late]))))
    kind = np.full(len(ms), _DELIVERED, np.int64)
    return pa.table([queue, *map(pa.array, (minute, kind, ms))], schema=_TIME_SCHEMA)


def sums_of(
    batch: pa.RecordBatch, width: int = MINUTE, *, stays: "Stays | None" = None
) -> pa.Table:
    """The contributions of a batch of jobs to their queues' counts, in steps of ``width`` ms."""
    events, job, _ = tr.flat(batch.column("trace"))
    times = tr.times(events)
    codes = tr.codes(events)
    kinds = codes - codes % 10
    queues = batch.column("queue").dictionary_encode()
    queue = places_of(queues)
    names = pa.concat_arrays([queues.dictionary, pa.nulls(1, pa.string())])
    found: list[tuple[str, Numbers, Numbers, Numbers | int]] = []
    chosen = {name: kinds == kind for name, kind in _KINDS.items()}
    chosen |= {name: codes == code for name, code in _CODES.items()}
    for name, which in chosen.items():
        found.append((name, job[which], times[which], 1))
    acked = _ms(batch.column("acked_at"))
    ended = _ms(batch.column("ended_at"))
    every = np.arange(batch.num_rows)
    found.append(("acked", every[acked != _NEVER], acked[acked != _NEVER], 1))
    expired = batch.column("ended").to_numpy(zero_copy_only=False) == schema.EXPIRED
    found.append(("expired", every[expired], ended[expired], 1))
    came, at, left, until = stays or stays_of(batch)
    found += [("change", came, at, 1), ("change", left, until, -1)]
    jobs = np.concatenate([rows[1] for rows in found])
    minutes = np.concatenate([rows[2] for rows in found]) // width
    keys, places = np.unique(queue[jobs] << 40 | minutes, return_inverse=True)
    columns = {name: np.zeros(len(keys), np.int64) for name in _SUM_SCHEMA.names if name != "queue"}
    columns["minute"] = (keys & (1 << 40) - 1) * width
    start = 0
    for name, rows, _, by in found:
        np.add.at(columns[name], places[start : start + len(rows)], by)
        start += len(rows)
    return pa.table(
        [names.take(pa.array(keys >> 40)), *[pa.array(column) for column in columns.values()]],
        schema=_SUM_SCHEMA,
    )


class Stays(NamedTuple):
    """When jobs were in a queue on a node.

    Attributes:
        came, at: the job (its row) and the time (ms) of each entry.
        left, until: those of each exit.
    """

    came: Numbers
    at: Numbers
    left: Numbers
    until: Numbers


def stays_of(jobs: pa.RecordBatch) -> Stays:
    """The stays of some jobs. A job that is over is in no queue, not even on a node that has died
    or cannot be reached."""
    events, job, _ = tr.flat(jobs.column("trace"))
    ended = _ms(jobs.column("ended_at"))
    codes = tr.codes(events)
    kinds = codes - codes % 10
    enters = kinds == tr.QUEUED
    which = np.flatnonzero(enters | np.isin(kinds, tr.LEAVES))
    place = job[which] << tr.NODE_BITS | tr.nodes(events[which])
    which = which[np.lexsort((events[which], place))]
    place = job[which] << tr.NODE_BITS | tr.nodes(events[which])
    inside = enters[which]
    before = np.zeros(len(which), bool)
    before[1:] = inside[:-1] & (place[1:] == place[:-1])
    came = np.flatnonzero(inside & ~before)
    first = job[which[came]], tr.times(events[which[came]])
    # Each stay ends with the first event that ends it, or with the job.
    left = np.full(len(came), _NEVER)
    stay = np.cumsum(inside & ~before) - 1
    went = np.flatnonzero(~inside & before)
    left[stay[went]] = tr.times(events[which[went]])
    left = np.minimum(left, ended[job[which[came]]])
    left = np.maximum(left, tr.times(events[which[came]]))
    over = left != _NEVER
    return Stays(*first, job[which[came[over]]], left[over])


def _ms(column: pa.Array) -> Numbers:
    micros = column.cast(pa.int64()).fill_null(_NEVER).to_numpy()
    return np.where(micros == _NEVER, _NEVER, micros // 1000)
