"""From events to jobs: one row with the whole life of a job.

Spark parses the lines, brings the events of a job together and sorts them; the rows themselves are
made a batch at a time with numpy, in the workers.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_trio.spark import audit_trace as tr
from disque_trio.spark.audit_trace import Numbers

FACTS = ("size", "repl", "copies", "retry", "ttl", "delay", "ctime", "nacks", "additional")
_TIME = pa.timestamp("us", tz="UTC")
_MOMENTS = (
    "added_at",
    "confirmed_at",
    "first_queued",
    "first_delivered",
    "last_delivered",
    "acked_at",
    "ended_at",
    "first_event",
    "last_event",
)
_PLACES = {
    "added_on": tr.ADDED,
    "copied_on": tr.COPIED,
    "queued_on": tr.QUEUED,
    "delivered_on": tr.DELIVERED,
    "acked_on": tr.ACKED,
    "exported_from": tr.EXPORTED,
    "imported_to": tr.IMPORTED,
}
_REQUEUES = {
    "requeues_retry": tr.QUEUED + 2,
    "requeues_nack": tr.QUEUED + 3,
    "requeues_enqueue": tr.QUEUED + 4,
}
_COUNTS = ("deliveries", *_REQUEUES, "nacks_said")
_ENDS = pa.array(["acked", "expired", "deleted", "evicted", None])

JOB_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        *((name, pa.int64()) for name in FACTS),
        *((name, _TIME) for name in _MOMENTS),
        ("ended", pa.string()),
        ("complete", pa.bool_()),  # all nodes that had it have forgotten it
        ("wait_ms", pa.int64()),
        ("processing_ms", pa.int64()),
        *((name, pa.int32()) for name in _COUNTS),
        *((name, pa.list_(pa.string())) for name in _PLACES),
        ("trace", pa.list_(pa.int64())),
    ]
)
_NEVER = np.iinfo(np.int64).max


def packed(node: Column, nodes: Sequence[str]) -> Column:
    """The number of an event in a trace. Null for events that do not belong there."""
    places = f.create_map(*[f.lit(x) for pair in zip(nodes, range(len(nodes))) for x in pair])  # noqa: B905
    codes = f.create_map(*[f.lit(x) for pair in tr.CODES.items() for x in pair])
    place = places[node]
    code = codes[f.concat_ws(":", f.col("event"), f.coalesce(f.col("reason"), f.lit("")))]
    return (
        f.shiftleft(f.col("time_ms"), tr.TIME_SHIFT)
        + f.shiftleft(place.cast("bigint"), tr.CODE_BITS)
        + code
    )


def event_rows(events: DataFrame, nodes: Sequence[str]) -> DataFrame:
    """Events as the rows that jobs are made of."""
    return (
        events.where(f.col("id").isNotNull())
        .select(
            "id",
            "queue",
            packed(f.col("node"), nodes).alias("event"),
            *[f.col(name).cast("bigint").alias(name) for name in FACTS[:-1]],
            f.col("deliveries").cast("bigint").alias("additional"),
        )
        .where(f.col("event").isNotNull())
    )


def rows_of_jobs(jobs: DataFrame) -> DataFrame:
    """Jobs as the rows that they were made of."""
    return jobs.select("id", "queue", f.explode("trace").alias("event"), *FACTS)


def make_jobs(rows: DataFrame, nodes: Sequence[str], partitions: int) -> DataFrame:
    """One row a job, of the rows of all its events."""
    hashed = rows.withColumn("h", f.xxhash64("id"))
    ordered = hashed.repartition(partitions, "h").sortWithinPartitions("h", "id").drop("h")
    names = list(nodes)

    def jobs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return jobs_of(batches, names)

    return ordered.mapInArrow(jobs, from_arrow_schema(JOB_SCHEMA))


def jobs_of(batches: Iterable[pa.RecordBatch], nodes: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The jobs in rows of events, of which those of one job follow one another."""
    names = pa.array(nodes, pa.string())
    held: list[pa.RecordBatch] = []  # the rows of the last job so far
    for batch in batches:
        if not batch.num_rows:
            continue
        ids = batch.column("id")
        last = ids[-1]
        start = pc.index(ids, last).as_py()
        if start:
            yield _jobs(pa.Table.from_batches([*held, batch.slice(0, start)]), names)
            held = []
        elif held and held[-1].column("id")[-1] != last:
            yield _jobs(pa.Table.from_batches(held), names)
            held = []
        held.append(batch.slice(start))
    if held:
        yield _jobs(pa.Table.from_batches(held), names)


def _jobs(rows: pa.Table, names: pa.Array) -> pa.RecordBatch:
    """The jobs of whole groups of rows."""
    ids = rows.column("id").combine_chunks()
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    new = np.concatenate(([True], changes.to_numpy(zero_copy_only=False)))
    starts = np.flatnonzero(new)
    job = np.cumsum(new) - 1
    events = rows.column("event").to_numpy()
    order = np.lexsort((events, job))
    trace = Trace(events[order], job, starts)
    queues = rows.column("queue").combine_chunks()
    columns: dict[str, pa.Array] = {
        "id": ids.take(pa.array(starts)),
        "queue": queues.take(pa.array(_first_known(queues, starts))),
        "trace": pa.ListArray.from_arrays(_offsets(starts, len(events)), trace.events),
    }
    for name in FACTS:
        values = pc.fill_null(rows.column(name), -1).to_numpy()
        columns[name] = _known(np.maximum.reduceat(values, starts), -1, pa.int64())
    columns |= trace.columns()
    for name, kind in _PLACES.items():
        columns[name] = trace.places(kind, names)
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in JOB_SCHEMA.names], schema=JOB_SCHEMA
    )


def _first_known(values: pa.Array, starts: Numbers) -> Numbers:
    """Where in each group the first value is that is not null; or just the first."""
    if not values.null_count:
        return starts
    place = np.arange(len(values))
    place[values.is_null().to_numpy(zero_copy_only=False)] = _NEVER
    first = np.minimum.reduceat(place, starts)
    return np.where(first == _NEVER, starts, first)


def _known(values: Numbers, unknown: int, kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == unknown).cast(kind)


def _offsets(starts: Numbers, end: int) -> pa.Array:
    return pa.array(np.append(starts, end), pa.int32())


class Trace:
    """The events of many jobs; those of one follow one another, in the order of their times.

    Args:
        events: packed. job: of which job each is. starts: where each job begins.
    """

    def __init__(self, events: Numbers, job: Numbers, starts: Numbers) -> None:
        self.events = events
        self._job = job
        self._starts = starts
        self._times = tr.times(events)
        self._codes = tr.codes(events)
        self._kinds = self._codes - self._codes % 10

    def columns(self) -> dict[str, pa.Array]:
        """All that follows from times and kinds."""
        added = self._first(self._kinds == tr.ADDED)
        replicated = self._first(self._kinds == tr.REPLICATED)
        queued = self._first(self._kinds == tr.QUEUED)
        delivered = self._kinds == tr.DELIVERED
        first = self._first(delivered)
        acked = self._first(self._codes == tr.ACKED)
        heard = self._first(self._codes == tr.ACKED_PEER)
        acked = np.where(acked == _NEVER, heard, acked)
        expired = self._first(self._kinds == tr.EXPIRED)
        deleted = self._first(
            (self._kinds == tr.DELETED)
            & (self._codes != tr.DELETED_COLLECTED)
            & (self._codes != tr.DELETED_PEER)
        )
        evicted = self._first(self._kinds == tr.EVICTED)
        ends = [acked, expired, deleted, evicted]
        ended = np.select([end != _NEVER for end in ends], ends, _NEVER)
        how = np.select([end != _NEVER for end in ends], [0, 1, 2, 3], 4)
        processed = self._last(delivered & (self._times <= acked[self._job]))
        moments = {
            "added_at": added,
            "confirmed_at": replicated,
            "first_queued": queued,
            "first_delivered": first,
            "last_delivered": self._last(delivered),
            "acked_at": acked,
            "ended_at": ended,
            "first_event": self._first(np.ones(len(self.events), bool)),
            "last_event": self._last(np.ones(len(self.events), bool)),
        }
        columns = {name: _moment(moments[name]) for name in _MOMENTS}
        columns["ended"] = _ENDS.take(pa.array(how))
        forgotten = np.isin(self._kinds, (tr.DELETED, tr.EXPIRED, tr.EVICTED))
        everywhere = self._on(np.ones(len(self.events), bool))
        alone = (everywhere == 1) & (acked != _NEVER)  # such a job ends with the acknowledge
        columns["complete"] = pa.array((self._on(forgotten) == everywhere) | alone)
        columns["wait_ms"] = _between(queued, first)
        columns["processing_ms"] = _between(processed, acked)
        columns["deliveries"] = self._count(delivered)
        columns["nacks_said"] = self._count(self._kinds == tr.NACKED)
        for name, code in _REQUEUES.items():
            columns[name] = self._count(self._codes == code)
        return columns

    def places(self, kind: int, names: pa.Array) -> pa.Array:
        """On which nodes each job had an event of ``kind``."""
        chosen = np.flatnonzero(self._kinds == kind)
        pairs = np.unique(self._job[chosen] << tr.NODE_BITS | tr.nodes(self.events[chosen]))
        counts = np.bincount(pairs >> tr.NODE_BITS, minlength=len(self._starts))
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        return pa.ListArray.from_arrays(offsets, names.take(pa.array(pairs & (tr.MAX_NODES - 1))))

    def _on(self, which: np.ndarray) -> Numbers:
        """On how many nodes each job had one of the events."""
        pairs = np.unique(self._job[which] << tr.NODE_BITS | tr.nodes(self.events[which]))
        return np.bincount(pairs >> tr.NODE_BITS, minlength=len(self._starts))

    def _first(self, which: np.ndarray) -> Numbers:
        """When each job had the first of the events; _NEVER: it had none."""
        return np.minimum.reduceat(np.where(which, self._times, _NEVER), self._starts)

    def _last(self, which: np.ndarray) -> Numbers:
        last = np.maximum.reduceat(np.where(which, self._times, -1), self._starts)
        return np.where(last < 0, _NEVER, last)

    def _count(self, which: np.ndarray) -> pa.Array:
        return pa.array(np.add.reduceat(which.astype(np.int32), self._starts), pa.int32())


def _moment(time: Numbers) -> pa.Array:
    never = time == _NEVER
    return pa.array(np.where(never, 0, time * 1000), pa.int64(), mask=never).cast(_TIME)


def _between(start: Numbers, end: Numbers) -> pa.Array:
    """ms from one to the other; clocks of two nodes may say less than nothing."""
    unknown = (start == _NEVER) | (end == _NEVER)
    return pa.array(np.where(unknown, 0, np.maximum(end - start, 0)), pa.int64(), mask=unknown)
