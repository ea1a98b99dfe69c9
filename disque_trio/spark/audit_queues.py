"""From jobs to queues: a row for each minute in which something happened in a queue.

A time counts for the minute in which it was over: waiting when a job was delivered first,
processing when it was acknowledged.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_trio.spark import audit_trace as tr
from disque_trio.spark.audit_trace import Numbers

MINUTE = 60_000
_KINDS = {"added": tr.ADDED, "delivered": tr.DELIVERED, "nacked": tr.NACKED}
_CODES = {
    "requeued_retry": tr.QUEUED + 2,
    "requeued_nack": tr.QUEUED + 3,
    "requeued_enqueue": tr.QUEUED + 4,
}
COUNTS = ("added", "delivered", "acked", "nacked", *_CODES, "expired")
_SUM_SCHEMA = pa.schema(
    [("queue", pa.string()), *((name, pa.int64()) for name in ("minute", *COUNTS, "change"))]
)
_SHARES = [0.5, 0.95, 0.99]
_NEVER = np.iinfo(np.int64).max


def queue_minutes(jobs: DataFrame, since: int, before: DataFrame | None) -> DataFrame:
    """The table ``queue_minutes``.

    Args:
        since: the minutes before this time (ms, a whole minute) are those in ``before``.
        before: an older version of the table.
    """
    touched = jobs.where(f.unix_millis("last_event") >= since)

    def sums(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield sums_of(batch)

    counted = (
        touched.select("queue", "trace", "acked_at", "ended_at", "ended")
        .mapInArrow(sums, from_arrow_schema(_SUM_SCHEMA))
        .groupBy("queue", "minute")
        .agg(*[f.sum(name).alias(name) for name in (*COUNTS, "change")])
    )
    rows = (
        counted.join(_percentiles(touched, "wait", "first_delivered"), ["queue", "minute"], "left")
        .join(_percentiles(touched, "processing", "acked_at"), ["queue", "minute"], "left")
        .where(f.col("minute") >= since)
    )
    depth = f.sum("change").over(Window.partitionBy("queue").orderBy("minute"))
    if before is None:
        return _finish(rows.withColumn("depth", depth))
    kept = before.where(f.unix_millis("minute") < since)
    start = kept.groupBy("queue").agg(f.max_by("depth", "minute").alias("start"))
    later = rows.withColumn("depth", depth).join(f.broadcast(start), "queue", "left")
    new = _finish(later.withColumn("depth", f.col("depth") + f.coalesce("start", f.lit(0))))
    return kept.unionByName(new)


def _percentiles(jobs: DataFrame, name: str, when: str) -> DataFrame:
    minute = f.floor(f.unix_millis(when) / MINUTE) * MINUTE
    rows = (
        jobs.where(f.col(f"{name}_ms").isNotNull())
        .groupBy("queue", minute.alias("minute"))
        .agg(f.percentile(f"{name}_ms", f.array(*map(f.lit, _SHARES))).alias("shares"))
    )
    return rows.select("queue", "minute", *_split(name))


def _split(name: str) -> list[Column]:
    return [
        f.col("shares")[place].alias(f"{name}_p{round(share * 100)}")
        for place, share in enumerate(_SHARES)
    ]


def _finish(rows: DataFrame) -> DataFrame:
    """Columns as they are in the table."""
    retries = f.col("requeued_retry") / f.col("delivered")
    nacks = f.col("nacked") / f.col("delivered")
    return rows.select(
        "queue",
        f.timestamp_millis("minute").alias("minute"),
        *COUNTS,
        f.when(f.col("delivered") > 0, retries).alias("retry_rate"),
        f.when(f.col("delivered") > 0, nacks).alias("nack_rate"),
        *[f"wait_p{share}" for share in (50, 95, 99)],
        *[f"processing_p{share}" for share in (50, 95, 99)],
        "depth",
    )


def sums_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What a batch of jobs adds to the minutes of their queues."""
    lists = batch.column("trace")
    offsets = lists.offsets.to_numpy()
    events = lists.flatten().to_numpy()
    job = np.repeat(np.arange(batch.num_rows), np.diff(offsets))
    times = tr.times(events)
    codes = tr.codes(events)
    kinds = codes - codes % 10
    queues = batch.column("queue").dictionary_encode()
    queue = queues.indices.fill_null(len(queues.dictionary)).to_numpy().astype(np.int64)
    names = pa.concat_arrays([queues.dictionary, pa.nulls(1, pa.string())])
    found: list[tuple[str, Numbers, Numbers, Numbers | int]] = []
    for name, kind in _KINDS.items():
        which = kinds == kind
        found.append((name, job[which], times[which], 1))
    for name, code in _CODES.items():
        which = codes == code
        found.append((name, job[which], times[which], 1))
    acked = _ms(batch.column("acked_at"))
    ended = _ms(batch.column("ended_at"))
    every = np.arange(batch.num_rows)
    found.append(("acked", every[acked != _NEVER], acked[acked != _NEVER], 1))
    expired = batch.column("ended").to_numpy(zero_copy_only=False) == "expired"
    found.append(("expired", every[expired], ended[expired], 1))
    found += [("change", *change) for change in _changes(events, job, ended)]
    jobs = np.concatenate([rows[1] for rows in found])
    minutes = np.concatenate([rows[2] for rows in found]) // MINUTE
    keys, places = np.unique(queue[jobs] << 40 | minutes, return_inverse=True)
    columns = {name: np.zeros(len(keys), np.int64) for name in _SUM_SCHEMA.names if name != "queue"}
    columns["minute"] = (keys & (1 << 40) - 1) * MINUTE
    start = 0
    for name, rows, _, by in found:
        np.add.at(columns[name], places[start : start + len(rows)], by)
        start += len(rows)
    return pa.RecordBatch.from_arrays(
        [names.take(pa.array(keys >> 40)), *[pa.array(column) for column in columns.values()]],
        schema=_SUM_SCHEMA,
    )


def _changes(
    events: Numbers, job: Numbers, ended: Numbers
) -> Iterator[tuple[Numbers, Numbers, int]]:
    """When jobs came into a queue of a node, and when they were not there any more. A job that is
    over is in no queue, also not in that of a node that has died or does not hear."""
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
    yield job[which[came]], tr.times(events[which[came]]), 1
    # Each stay ends with the first event that says so, or with the job.
    left = np.full(len(came), _NEVER)
    stay = np.cumsum(inside & ~before) - 1
    went = np.flatnonzero(~inside & before)
    left[stay[went]] = tr.times(events[which[went]])
    left = np.minimum(left, ended[job[which[came]]])
    left = np.maximum(left, tr.times(events[which[came]]))
    over = left != _NEVER
    yield job[which[came[over]]], left[over], -1


def _ms(column: pa.Array) -> Numbers:
    micros = column.cast(pa.int64()).fill_null(_NEVER).to_numpy()
    return np.where(micros == _NEVER, _NEVER, micros // 1000)
