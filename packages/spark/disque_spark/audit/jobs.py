"""Merges events into jobs: one row for the whole history of a job.

Some events of a job make a partial job, and partial jobs make a job. Works on many jobs at a time,
with numpy, in Spark's workers, without a session.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.trace import Numbers
from disque_trio.eventlog import schema

FACTS = (*schema.NEW_JOB_FIELDS, "nacks", "additional", "priority", "until")
NAMES = ("queue", "group")
# Facts that UPDATEJOB changes. Of the last two, the newest value counts only if a change says it:
# the time to live that is left gets shorter by itself, and lines may lack the priority.
_CHANGING = ("repl", "retry", "delay", "ttl", "priority")
_OF_CHANGES = ("ttl", "priority")
_CHANGED, _SAID = 1 << 62, 1 << 61  # ranks of lines; real times of events are smaller
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
    "requeues_retry": tr.QUEUED_RETRY,
    "requeues_nack": tr.QUEUED_NACK,
    "requeues_enqueue": tr.QUEUED_ENQUEUE,
    "requeues_disconnect": tr.QUEUED_DISCONNECT,
}
_COUNTS = ("deliveries", *_REQUEUES, "nacks_said")
_ENDS = pa.array(
    [
        schema.ACKED,
        schema.DEAD,
        schema.CANCELLED,
        schema.EXPIRED,
        schema.DELETED,
        schema.EVICTED,
        None,
    ]
)

JOB_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        *((name, pa.int64()) for name in FACTS),
        ("group", pa.string()),
        *((name, _TIME) for name in _MOMENTS),
        ("ended", pa.string()),
        ("complete", pa.bool_()),  # all nodes that had it have deleted it
        ("wait_ms", pa.int64()),
        ("processing_ms", pa.int64()),
        *((name, pa.int32()) for name in _COUNTS),
        *((name, pa.list_(pa.string())) for name in _PLACES),
        ("trace", pa.list_(pa.int64())),
    ]
)
# What is known about a job from some of its events.
PARTIAL_SCHEMA = pa.schema(
    [JOB_SCHEMA.field(name) for name in ("id", "queue", *FACTS, "group", "trace")]
)
_NEVER = np.iinfo(np.int64).max


def fold(rows: pa.Table) -> pa.Table:
    """Merge rows into one for each id. ``rows`` are events (with a column ``event``) or partial
    jobs (with ``trace``). Sorts traces. Takes the newest value of facts that change and of the
    queue, by the clocks of the nodes, where the line of a change counts before all others; and the
    largest known value of other facts."""
    ids = rows.column("id").combine_chunks()
    if isinstance(ids, pa.ChunkedArray):  # without chunks
        ids = pa.array([], pa.string())
    encoded = ids.dictionary_encode()
    job = encoded.indices.to_numpy()
    count = len(encoded.dictionary)
    if "trace" in rows.column_names:
        events, row, starts = tr.flat(rows.column("trace").combine_chunks())
        event_job = job[row]
        order = np.argsort(job, kind="stable")
        in_time = np.lexsort((events, event_job))
    else:
        events, event_job, starts = rows.column("event").to_numpy(), job, None
        order = in_time = np.lexsort((events, job))
    groups = _Groups(job, order, _starts(job, count))
    columns: dict[str, pa.Array] = {"id": encoded.dictionary}
    columns["queue"] = _queues(rows.column("queue"), events, starts, groups)
    columns["group"] = _first_known(rows.column("group"), order, groups.starts)
    columns |= _facts(rows, events, starts, groups)
    offsets = pa.array(np.append(_starts(event_job, count), len(events)), pa.int32())
    columns["trace"] = pa.ListArray.from_arrays(offsets, pa.array(events[in_time]))
    return pa.table([columns[name] for name in PARTIAL_SCHEMA.names], schema=PARTIAL_SCHEMA)


class _Groups(NamedTuple):
    """The rows of each job: the job of each row, all rows in the order of jobs, and where each job
    begins in that order."""

    job: Numbers
    order: Numbers
    starts: Numbers

    def largest(self, values: Numbers) -> Numbers:
        """For each job, the largest value of its rows."""
        ordered = values[self.order]
        largest: Numbers = np.maximum.reduceat(ordered, self.starts) if len(ordered) else ordered
        return largest

    def agree(self, values: Numbers, largest: Numbers) -> bool:
        """Whether all rows of each job that are not negative have its ``largest`` value."""
        known = np.flatnonzero(values >= 0)
        return not np.any(values[known] != largest[self.job[known]])

    def newest(self, keys: Numbers, values: Numbers) -> Numbers:
        """For each job, the value of the row with the largest key; of several such rows, the
        largest value. Rows with a negative value do not count; -1: there are no others."""
        known = np.where(values >= 0, keys, -1)
        last = self.largest(known)
        return self.largest(np.where(known == last[self.job], values, -1))


def _keys(events: Numbers, starts: Numbers | None, saying: np.ndarray) -> Numbers:
    """The key of each row, by which the newest is found: the time of the last of its events, where
    changes count more, then those in ``saying``. Does not depend on how nodes are numbered.

    Args:
        starts: where the events of each row begin; None: each row is one event.
    """
    codes = tr.codes(events)
    ranks = np.where(saying, _SAID, 0)
    ranks[codes - codes % 10 == tr.UPDATED] = _CHANGED
    return _last(tr.times(events) + ranks, starts)


def _last(keys: Numbers, starts: Numbers | None) -> Numbers:
    """For each row, the largest key of its events; see ``_keys``."""
    return keys if starts is None or not len(keys) else np.maximum.reduceat(keys, starts)


def _queues(
    names: pa.ChunkedArray, events: Numbers, starts: Numbers | None, groups: _Groups
) -> pa.Array:
    """The queue of each job: where it is, or was last."""
    encoded = names.combine_chunks().dictionary_encode()
    sorting = pc.sort_indices(encoded.dictionary)
    rank = np.append(np.argsort(sorting.to_numpy()), -1)
    ranks = rank[pc.fill_null(encoded.indices, -1).to_numpy()]
    place = groups.largest(ranks)
    if not groups.agree(ranks, place):
        codes = tr.codes(events)
        # Nodes that do not have the job may be told of its end; their lines have no queue.
        saying = ~np.isin(codes - codes % 10, (*tr.DONE, tr.DELETED))
        place = groups.newest(_keys(events, starts, saying), ranks)
    return encoded.dictionary.take(sorting).take(pa.array(place, pa.int64(), mask=place < 0))


def _facts(
    rows: pa.Table, events: Numbers, starts: Numbers | None, groups: _Groups
) -> dict[str, pa.Array]:
    """The facts about each job."""
    said = {name: pc.fill_null(rows.column(name), -1).to_numpy() for name in FACTS}
    found = {name: groups.largest(values) for name, values in said.items()}
    codes = tr.codes(events)
    kinds = codes - codes % 10
    if not groups.agree(said["until"], found["until"]):
        keys = _last(np.where(kinds == tr.PAUSED, tr.times(events), 0), starts)
        found["until"] = groups.newest(keys, said["until"])
    some = bool(np.any(kinds == tr.UPDATED))
    changing = [name for name in _CHANGING if some or name not in _OF_CHANGES]
    differ = [name for name in changing if not groups.agree(said[name], found[name])]
    if differ:
        keys = _keys(events, starts, np.isin(kinds, tr.TELLING))
        changed = groups.largest(keys) >= _CHANGED
        for name in differ:
            value = groups.newest(keys, said[name])
            new = changed if name in _OF_CHANGES else value >= 0
            found[name] = np.where(new, value, found[name])
    return {name: pa.array(found[name], pa.int64(), mask=found[name] < 0) for name in FACTS}


def _starts(job: Numbers, count: int) -> Numbers:
    """Where the rows of each job begin, if they are sorted by job."""
    counts = np.bincount(job, minlength=count)
    return np.concatenate(([0], np.cumsum(counts)))[:count]


def _first_known(values: pa.ChunkedArray, order: Numbers, starts: Numbers) -> pa.Array:
    """For each group, one of its values that are not null, or null; of several values always the
    same one, regardless of their order."""
    encoded = values.combine_chunks().dictionary_encode()
    sorting = pc.sort_indices(encoded.dictionary)
    names = encoded.dictionary.take(sorting)
    place = np.argsort(sorting.to_numpy())  # rank of each value
    place = np.append(place, len(names))
    places = place[pc.fill_null(encoded.indices, len(names)).to_numpy()][order]
    first = np.minimum.reduceat(places, starts) if len(starts) else places
    return pa.concat_arrays([names, pa.nulls(1, pa.string())]).take(pa.array(first))


def jobs_of(partial: pa.Table, nodes: Sequence[str]) -> pa.Table:
    """Rows of the table ``jobs``, from partial jobs that have all their events.

    Args:
        nodes: ids of nodes; traces have indexes into this list.
    """
    names = pa.array(nodes, pa.string())
    trace = Trace(*tr.flat(partial.column("trace").combine_chunks()))
    columns = {name: partial.column(name) for name in PARTIAL_SCHEMA.names}
    columns |= trace.columns(columns["copies"])
    for name, kind in _PLACES.items():
        columns[name] = trace.places(kind, names)
    return pa.table([columns[name] for name in JOB_SCHEMA.names], schema=JOB_SCHEMA)


class Trace:
    """The events of many jobs, sorted by job and time.

    Args:
        events: packed events.
        job: index of the job of each event.
        starts: where the events of each job begin.
    """

    def __init__(self, events: Numbers, job: Numbers, starts: Numbers) -> None:
        self.events = events
        self._job = job
        self._starts = starts
        self._times = tr.times(events)
        self._codes = tr.codes(events)
        self._kinds = self._codes - self._codes % 10

    def columns(self, copies: pa.ChunkedArray) -> dict[str, pa.Array]:
        """All columns that follow from the times and kinds of events.

        Args:
            copies: how many nodes had each job.
        """
        added = self._first(self._kinds == tr.ADDED)
        replicated = self._first(self._kinds == tr.REPLICATED)
        queued = self._first(self._kinds == tr.QUEUED)
        delivered = self._kinds == tr.DELIVERED
        first = self._first(delivered)
        acked = self._first(np.isin(self._codes, tr.ACKED_HERE))
        heard = self._first(self._codes == tr.ACKED_PEER)
        acked = np.where(acked == _NEVER, heard, acked)
        dead = self._first(self._kinds == tr.DEAD)
        cancelled = self._first(self._kinds == tr.CANCELLED)
        expired = self._first(self._kinds == tr.EXPIRED)
        deleted = self._first(
            (self._kinds == tr.DELETED)
            & (self._codes != tr.DELETED_COLLECTED)
            & (self._codes != tr.DELETED_PEER)
            & (self._codes != tr.DELETED_COMMAND)
        )
        deleted = np.minimum(deleted, self._deleted_by_clients(copies))
        evicted = self._first(self._kinds == tr.EVICTED)
        ends = [acked, dead, cancelled, expired, deleted, evicted]
        ended = np.select([end != _NEVER for end in ends], ends, _NEVER)
        how = np.select([end != _NEVER for end in ends], list(range(len(ends))), len(ends))
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
        forgotten = np.isin(self._kinds, tr.FORGETS)
        everywhere = self._on(np.ones(len(self.events), bool))
        done = np.minimum(np.minimum(acked, dead), cancelled)
        alone = (everywhere == 1) & (done != _NEVER)  # such a job ends when it is acknowledged
        columns["complete"] = pa.array((self._on(forgotten) == everywhere) | alone)
        columns["wait_ms"] = _between(queued, first)
        columns["processing_ms"] = _between(processed, acked)
        columns["deliveries"] = self._count(delivered)
        columns["nacks_said"] = self._count(self._kinds == tr.NACKED)
        for name, code in _REQUEUES.items():
            columns[name] = self._count(self._codes == code)
        return columns

    def _deleted_by_clients(self, copies: pa.ChunkedArray) -> Numbers:
        """For each job, when DELJOB ended it; _NEVER if it did not. DELJOB deletes a job where it
        is said only, so the job is over once all its holders have forgotten it."""
        told = self._codes == tr.DELETED_COMMAND
        if not told.any():
            return np.full(len(self._starts), _NEVER)
        about = np.zeros(len(self._starts), bool)
        about[self._job[told]] = True
        mine = about[self._job]
        forgotten = self._pairs(mine & np.isin(self._kinds, tr.FORGETS))
        holders = self._pairs(mine & ~np.isin(self._kinds, tr.WITHOUT_JOB))
        kept = np.setdiff1d(holders, forgotten, assume_unique=True) >> tr.NODE_BITS
        over = np.bincount(kept, minlength=len(self._starts)) == 0
        on = np.bincount(forgotten >> tr.NODE_BITS, minlength=len(self._starts))
        over &= on >= pc.fill_null(copies, 1).to_numpy()
        return np.where(over & about, self._last(told), _NEVER)

    def places(self, kind: int, names: pa.Array) -> pa.Array:
        """For each job, the nodes on which it had an event of ``kind``."""
        pairs = self._pairs(self._kinds == kind)
        counts = np.bincount(pairs >> tr.NODE_BITS, minlength=len(self._starts))
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        return pa.ListArray.from_arrays(offsets, names.take(pa.array(pairs & (tr.MAX_NODES - 1))))

    def _on(self, which: np.ndarray) -> Numbers:
        """For each job, the number of nodes on which it had one of the events."""
        return np.bincount(self._pairs(which) >> tr.NODE_BITS, minlength=len(self._starts))

    def _pairs(self, which: np.ndarray) -> Numbers:
        """The distinct pairs of job and node of the events, packed into numbers."""
        pairs = np.sort(self._job[which] << tr.NODE_BITS | tr.nodes(self.events[which]))
        new = np.ones(len(pairs), bool)
        new[1:] = pairs[1:] != pairs[:-1]
        return pairs[new]

    def _first(self, which: np.ndarray) -> Numbers:
        """For each job, the time of the first of the events; _NEVER if it had none."""
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
    """ms from ``start`` to ``end``, at least 0, since clocks of nodes may differ."""
    unknown = (start == _NEVER) | (end == _NEVER)
    return pa.array(np.where(unknown, 0, np.maximum(end - start, 0)), pa.int64(), mask=unknown)
