"""What happened in each time step: in all queues together, and in each of them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.queue_minutes import MINUTE, PERCENTILES, SECOND, sums_of
from disque_spark.report.tables import Sums, ms

Json: TypeAlias = Any

# Columns of the rates of all queues, after the time; and of the steps of one queue.
RATES = ("added", "delivered", "acked", "retries", "nacked", "expired")
TIMES = {"wait": "first_delivered", "processing": "acked_at"}  # and when they end
OF_TIMES = [f"{name}_p{percent}" for name in TIMES for percent in PERCENTILES]
COLUMNS = (*RATES, "depth", *OF_TIMES)
EVER = 1 << 62  # a step that has everything
POINTS = 1500  # the most points of a line over the whole time
MOST_CELLS = 8_000  # the most steps in total of queues that have plots of their own
MOST_PEAKS, AROUND = 3, 5 * MINUTE  # busy moments to show in steps of FINE, and ms around each
FINE = SECOND
_STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
_DIGITS = 10  # binary digits of a duration: it is exact to a thousandth
_DEPTH_BITS = 38
_COUNTED = ("added", "delivered", "acked", "requeued_retry", "nacked", "expired")  # as RATES


def step_of(span: int, most: int) -> int:
    """The shortest step (ms) of which ``span`` ms have at most ``most``."""
    steps = (SECOND * step for step in _STEPS)
    return next((step for step in steps if span / step <= most), SECOND * _STEPS[-1])


class Durations:
    """How long jobs of each queue took in each step, rounded to a thousandth, so that memory does
    not grow with the jobs. ``name`` begins the names of the columns of ``percentiles``."""

    def __init__(self, name: str, step: int) -> None:
        self._name = name
        self._step = step
        self._counts = Sums(("queue", "at", "ms"), {"jobs": "sum"})

    def add(self, jobs: pa.RecordBatch) -> None:
        """Add jobs of the table."""
        known = jobs.filter(pc.is_valid(jobs.column(f"{self._name}_ms")))
        took = known.column(f"{self._name}_ms").to_numpy()
        shift = np.maximum(np.frexp(took.astype(np.float64))[1] - _DIGITS, 0)
        at = ms(known.column(TIMES[self._name])).to_numpy() // self._step * self._step
        columns = {"at": at, "ms": took >> shift << shift, "jobs": np.ones(len(at), np.int64)}
        arrays = {name: pa.array(values) for name, values in columns.items()}
        self._counts.add({"queue": known.column("queue"), **arrays})

    def percentiles(self, keys: Sequence[str], step: int = 1) -> pa.Table:
        """The percentiles for each combination of ``keys``: ``queue``, ``at`` (rounded down to a
        multiple of ``step`` ms)."""
        rows = _at(self._counts.table(), step)
        rows = rows.group_by([*keys, "ms"], use_threads=False).aggregate([("jobs", "sum")])
        rows = rows.sort_by([(name, "ascending") for name in (*keys, "ms")])
        jobs, values = rows.column("jobs_sum").to_numpy(), rows.column("ms").to_numpy()
        starts = _starts(rows, keys)
        sums = np.append(0, np.cumsum(jobs))
        before = sums[starts]
        total = np.append(before[1:], sums[-1:])[: len(starts)] - before
        found = rows.select(list(keys)).take(pa.array(starts))
        for percent in PERCENTILES:
            rank = before + np.ceil(total * percent / 100)
            place = np.searchsorted(sums[1:], rank)
            found = found.append_column(f"{self._name}_p{percent}", pa.array(values[place]))
        return found


def _starts(rows: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """Where the rows of each combination of ``keys`` begin, in rows that are sorted by them."""
    new = np.ones(len(rows), bool)
    if len(rows) > 1:
        pairs = (
            (rows.column(key).slice(1), rows.column(key).slice(0, len(rows) - 1)) for key in keys
        )
        new[1:] = np.any(
            [pc.not_equal(after, before).to_numpy() for after, before in pairs], axis=0
        )
    return np.flatnonzero(new)


def _at(rows: pa.Table, step: int) -> pa.Table:
    """The rows with the column ``at`` rounded down to a multiple of ``step``."""
    at = rows.column("at").to_numpy() // step * step
    return rows.set_column(rows.column_names.index("at"), "at", pa.array(at))


class Minutes:
    """Sums of the table of minutes: by queue, by step, and by minute."""

    columns = (
        *("queue", "minute", "depth", "most_depth", "most_in_a_second", "requeued_retry"),
        *(name for name in RATES if name != "retries"),
    )

    def __init__(self, step: int) -> None:
        self._step = step
        sums = dict.fromkeys(("deliveries", "retries", "nacks"), "sum")
        most = dict.fromkeys(("most_in_a_second", "most_depth", "last"), "max")
        self._queues = Sums(("queue",), sums | most)
        self.steps = Sums(("queue", "at"), {**dict.fromkeys(RATES, "sum"), "depth": "max"})
        self._activity = Sums(("minute",), {"events": "sum"})

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with ``columns``."""
        known = {name: rows.column(name) for name in self.columns}
        known |= {"retries": known["requeued_retry"], "deliveries": known["delivered"]}
        minute = ms(known["minute"]).to_numpy()
        at = pa.array(minute // self._step * self._step)
        known |= {"nacks": known["nacked"], "at": at, "minute": pa.array(minute)}
        last = minute // MINUTE << _DEPTH_BITS | known["depth"].to_numpy()
        depth = pc.max_element_wise(known["depth"], known["most_depth"])
        known |= {"last": pa.array(last), "depth": depth, "most_depth": depth}
        known["events"] = pc.add(known["added"], known["delivered"])
        for sums in (self._queues, self._activity, self.steps):
            sums.add({name: known[name] for name in sums.names})

    def by_queue(self) -> pa.Table:
        """The sums of each queue."""
        rows = self._queues.table()
        depth = rows.column("last").to_numpy() & (1 << _DEPTH_BITS) - 1
        return rows.drop_columns("last").append_column("last_depth", pa.array(depth))

    def peaks(self, first: int, last: int) -> list[tuple[int, int]]:
        """Some minutes around each of the busiest ones: when they begin and end, ms, in order,
        between ``first`` and ``last``."""
        activity = self._activity.table()
        activity = activity.sort_by([("events", "descending"), ("minute", "ascending")])
        found: list[tuple[int, int]] = []
        for at in activity.column("minute")[: 100 * MOST_PEAKS].to_pylist():
            window = max(at - AROUND, first), min(at + AROUND + MINUTE, last)
            if all(window[1] <= start or end <= window[0] for start, end in found):
                found.append(window)
        return sorted(found[:MOST_PEAKS])


class ShortSteps:
    """Counts of events by queue and step, from jobs, for steps of less than a minute.

    Args:
        windows: periods (ms) to which the counts are limited.
    """

    def __init__(self, step: int, windows: Sequence[tuple[int, int]]) -> None:
        self._step = step
        self._windows = windows
        self._sums = Sums(("queue", "minute"), dict.fromkeys((*_COUNTED, "change"), "sum"))

    def add(self, jobs: pa.RecordBatch) -> None:
        """Add jobs of the table."""
        jobs = jobs.filter(self._inside(ms(jobs["first_event"]), ms(jobs["last_event"])))
        if jobs.num_rows:
            rows = sums_of(jobs, self._step)
            rows = rows.filter(self._inside(rows["minute"], rows["minute"]))
            self._sums.add({name: rows.column(name) for name in self._sums.names})

    def _inside(self, first: pa.Array, last: pa.Array) -> pa.Array:
        found = pa.array([False] * len(first))
        for start, end in self._windows:
            found = pc.or_(found, pc.and_(pc.less_equal(first, end), pc.greater_equal(last, start)))
        return found

    def table(self) -> pa.Table:
        """The counts as in ``Minutes.steps``."""
        rows = self._sums.table().sort_by([("queue", "ascending"), ("minute", "ascending")])
        rows = rows.rename_columns(["queue", "at", *RATES, "change"])
        starts = _starts(rows, ["queue"])
        sums = np.append(0, np.cumsum(rows.column("change").to_numpy()))
        lengths = np.diff(np.append(starts, len(rows)))
        depth = sums[1:] - np.repeat(sums[starts], lengths)
        return rows.drop_columns("change").append_column("depth", pa.array(depth))


def rates(steps: pa.Table) -> list[list[int]]:
    """Time and RATES of each step in which something happened, in all queues together."""
    summed = steps.group_by("at", use_threads=False).aggregate([(name, "sum") for name in RATES])
    return rows_of(summed.select(["at", *(f"{name}_sum" for name in RATES)]).sort_by("at"))


def rows_of(table: pa.Table) -> list[list[Json]]:
    """The rows of a table as lists."""
    return [list(row) for row in zip(*(column.to_pylist() for column in table), strict=True)]


def depths(steps: pa.Table, queues: Sequence[str]) -> dict[str, list[list[int]]]:
    """The greatest depth of each queue, in each step in which it may have changed."""
    return _by_queue(steps.select(["queue", "at", "depth"]), queues)


def of_queues(
    steps: pa.Table, times: Sequence[Durations], queues: Sequence[str], step: int
) -> dict[str, Json]:
    """Time and COLUMNS of each step of ``step`` ms, for each queue."""
    sums = [*((name, "sum") for name in RATES), ("depth", "max")]
    keys = ["queue", "at"]
    rows = _at(steps, step).group_by(keys, use_threads=False).aggregate(sums)
    rows = rows.select([*keys, *(f"{name}_{how}" for name, how in sums)])
    for durations in times:
        rows = rows.join(durations.percentiles(keys, step), keys, join_type="full outer")
    return {"step": step, "columns": list(COLUMNS), "queues": _by_queue(rows, queues)}


def _by_queue(rows: pa.Table, queues: Sequence[str]) -> dict[str, list[list[Json]]]:
    """The rows of each queue in order of time, without the queue."""
    found: dict[str, list[list[Json]]] = {queue: [] for queue in queues}
    wanted = pc.is_in(rows.column("queue"), value_set=pa.array(queues, pa.string()))
    for queue, *values in rows_of(rows.filter(wanted).sort_by("at")):
        found[queue].append(values)
    return found
