"""What happened in each time step: in all queues together, and in each of them."""

from collections.abc import Iterable, Sequence
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
COLUMNS = (*RATES, "depth", *(f"{name}_p{percent}" for name in TIMES for percent in PERCENTILES))
POINTS = 1500  # the most points of a line over the whole time
MOST_CELLS = 16_000  # the most steps in total of queues that have plots of their own
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
    not grow with the jobs."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._counts = Sums(("queue", "at", "ms"), {"jobs": "sum"})

    def add(self, queue: pa.Array, took: pa.Array, until: pa.Array) -> None:
        """Add jobs: their queues, how long each took (ms, or null), and until when."""
        known = pc.and_(pc.is_valid(took), pc.is_valid(until))
        value = took.filter(known).to_numpy()
        shift = np.maximum(np.frexp(value.astype(np.float64))[1] - _DIGITS, 0)
        at = ms(until.filter(known)).to_numpy() // self._step * self._step
        columns = [pa.array(column) for column in (at, value >> shift << shift, np.ones_like(at))]
        names = ("queue", "at", "ms", "jobs")
        self._counts.add(dict(zip(names, (queue.filter(known), *columns), strict=True)))

    def percentiles(self, *keys: str, step: int = 1, of: pa.Array | None = None) -> dict[Any, Any]:
        """The percentiles for each combination of keys (``queue``, ``at``), by these; for a single
        key, by its value.

        Args:
            step: ms; times are rounded down to a multiple.
            of: queues; None: all.
        """
        rows = self._counts.table()
        if not len(rows):
            return {}
        if of is not None:
            rows = rows.filter(pc.is_in(rows.column("queue"), value_set=of))
        at = rows.column("at").to_numpy() // step * step
        rows = rows.set_column(1, "at", pa.array(at))
        wanted = [*keys, "ms"]
        summed = rows.group_by(wanted, use_threads=False).aggregate([("jobs", "sum")])
        summed = summed.sort_by([(name, "ascending") for name in wanted])
        if not len(summed):
            return {}
        total = np.cumsum(summed.column("jobs_sum").to_numpy())
        firsts = np.flatnonzero(_differs([summed.column(key) for key in keys], len(summed)))
        before = np.append(0, total)[firsts]
        jobs = np.diff(np.append(before, total[-1]))
        values = summed.column("ms").to_numpy()
        ranks = [np.ceil(jobs * percent / 100).astype(np.int64) for percent in PERCENTILES]
        found = [values[np.searchsorted(total, before + rank)].tolist() for rank in ranks]
        heads = [summed.column(key).take(pa.array(firsts)).to_pylist() for key in keys]
        names = heads[0] if len(heads) == 1 else list(zip(*heads, strict=True)) or [()]
        return {name: list(row) for name, row in zip(names, zip(*found, strict=True), strict=True)}


def _differs(columns: Sequence[pa.ChunkedArray], count: int) -> np.ndarray:
    """Which rows differ from the row before; the first one does."""
    new = np.zeros(count, bool)
    new[:1] = True
    for column in columns:
        places = column.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        new[1:] |= places[1:] != places[:-1]
    return new


class Minutes:
    """Sums of the table of minutes: by queue, by step, and by minute."""

    def __init__(self, step: int) -> None:
        self._step = step
        self.queues = Sums(
            ("queue",),
            {
                **dict.fromkeys(("deliveries", "retries", "nacks"), "sum"),
                **dict.fromkeys(("most_in_a_second", "most_depth", "last"), "max"),
            },
        )
        self.steps = Sums(("queue", "at"), {**dict.fromkeys(RATES, "sum"), "depth": "max"})
        self._activity = Sums(("minute",), {"events": "sum"})

    columns = (
        *("queue", "minute", "depth", "most_depth", "most_in_a_second", "requeued_retry"),
        *(name for name in RATES if name != "retries"),
    )

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with ``columns``."""
        column = rows.column
        minute = ms(column("minute")).to_numpy()
        depth = pc.max_element_wise(column("depth"), column("most_depth"))
        last = minute // MINUTE << _DEPTH_BITS | column("depth").to_numpy()
        queue, retries = column("queue"), column("requeued_retry")
        self.queues.add(
            {
                "queue": queue,
                "deliveries": column("delivered"),
                "retries": retries,
                "nacks": column("nacked"),
                "most_in_a_second": column("most_in_a_second"),
                "most_depth": depth,
                "last": pa.array(last),
            }
        )
        rates = {name: column(name) for name in RATES if name != "retries"} | {"retries": retries}
        at = pa.array(minute // self._step * self._step)
        if self._step >= MINUTE:
            self.steps.add({"queue": queue, "at": at, **rates, "depth": depth})
        events = pc.add(column("added"), column("delivered"))
        self._activity.add({"minute": pa.array(minute), "events": events})

    def by_queue(self) -> dict[str | None, dict[str, Json]]:
        """The sums of each queue."""
        found = {}
        for row in self.queues.rows():
            last: Any = row.pop("last")
            found[row.pop("queue")] = {**row, "last_depth": last & (1 << _DEPTH_BITS) - 1}
        return found  # type: ignore[return-value]

    def peaks(self) -> list[tuple[int, int]]:
        """Some minutes around each of the busiest ones: when they begin and end, ms, in order."""
        activity = self._activity.table()
        if not len(activity):
            return []
        activity = activity.sort_by([("events", "descending"), ("minute", "ascending")])
        found: list[tuple[int, int]] = []
        for at in activity.column("minute")[: 100 * MOST_PEAKS].to_pylist():
            window = at - AROUND, at + AROUND + MINUTE
            if all(window[1] <= start or end <= window[0] for start, end in found):
                found.append(window)
        return sorted(found[:MOST_PEAKS])


class Events:
    """Counts of events by queue and step, from jobs, for steps of less than a minute.

    Args:
        windows: periods (ms) to which the counts are limited; None: there is no limit.
    """

    columns = ("queue", "trace", "acked_at", "ended_at", "ended")

    def __init__(self, step: int, windows: Sequence[tuple[int, int]] | None = None) -> None:
        self._step = step
        self._windows = windows
        self._sums = Sums(("queue", "minute"), dict.fromkeys((*_COUNTED, "change"), "sum"))

    def add(self, jobs: pa.RecordBatch) -> None:
        """Add jobs with ``columns``, and ``first_event`` and ``last_event`` if there are
        windows."""
        if self._windows is not None:
            jobs = jobs.filter(self._inside(ms(jobs["first_event"]), ms(jobs["last_event"])))
        if not jobs.num_rows:
            return
        rows = sums_of(jobs, self._step)
        if self._windows is not None:
            rows = rows.filter(self._inside(rows["minute"], rows["minute"]))
        names = ("queue", "minute", *_COUNTED, "change")
        self._sums.add({name: rows.column(name) for name in names})

    def _inside(self, first: pa.Array, last: pa.Array) -> pa.Array:
        found = pa.array([False] * len(first))
        for start, end in self._windows or ():
            found = pc.or_(found, pc.and_(pc.less(first, end), pc.greater_equal(last, start)))
        return found

    def table(self) -> pa.Table:
        """The counts as in ``Minutes.steps``, in order of time."""
        rows = self._sums.table().sort_by([("queue", "ascending"), ("minute", "ascending")])
        rows = rows.rename_columns(["queue", "at", *RATES, "change"])
        if not len(rows):
            return rows.append_column("depth", pa.array([], pa.int64()))
        total = np.cumsum(rows.column("change").to_numpy())
        firsts = _differs([rows.column("queue")], len(rows))
        before = np.append(0, total)[:-1][firsts]
        depth = total - np.repeat(before, np.diff(np.append(np.flatnonzero(firsts), len(rows))))
        return rows.append_column("depth", pa.array(depth))


def rates(steps: pa.Table) -> list[list[int]]:
    """Time and RATES of each step in which something happened, in all queues together."""
    if not len(steps):
        return []
    summed = steps.group_by("at", use_threads=False).aggregate([(name, "sum") for name in RATES])
    summed = summed.sort_by("at").select(["at", *(f"{name}_sum" for name in RATES)])
    return [list(row) for row in zip(*(column.to_pylist() for column in summed), strict=True)]


def depths(steps: pa.Table, queues: Iterable[str]) -> dict[str, list[list[int]]]:
    """The greatest depth of each queue, in each step in which it may have changed."""
    found: dict[str, list[list[int]]] = {queue: [] for queue in queues}
    for row in _of(steps, found).select(["queue", "at", "depth"]).to_pylist():
        found[row["queue"]].append([row["at"], row["depth"]])
    return found


def _of(steps: pa.Table, queues: Iterable[str | None]) -> pa.Table:
    if not len(steps):
        return steps
    wanted = pc.is_in(steps.column("queue"), value_set=pa.array(queues, pa.string()))
    return steps.filter(wanted).sort_by("at")


def of_queues(
    steps: pa.Table, times: dict[str, Durations], queues: Sequence[str], step: int
) -> dict[str, Json]:
    """Time and COLUMNS of each step of ``step`` ms, for each queue."""
    rows = _of(steps, queues)
    cells: dict[tuple[str, int], list[int | None]] = {}
    if len(rows):
        at = pa.array(rows.column("at").to_numpy() // step * step)
        rows = rows.set_column(rows.column_names.index("at"), "at", at)
        sums = [(name, "sum") for name in RATES]
        summed = rows.group_by(["queue", "at"], use_threads=False).aggregate(
            [*sums, ("depth", "max")]
        )
        names = ["queue", "at", *(f"{name}_sum" for name in RATES), "depth_max"]
        for queue, when, *values in zip(*(summed[name].to_pylist() for name in names), strict=True):
            cells[queue, when] = values
    wanted = pa.array(queues, pa.string())
    counts = len(RATES) + 1
    for place, durations in enumerate(times.values()):
        found = durations.percentiles("queue", "at", step=step, of=wanted)
        for key, values in found.items():
            row = cells.setdefault(key, [None] * counts)
            row += [None] * (counts + place * len(PERCENTILES) - len(row))
            row += values
    known: dict[str, list[list[int | None]]] = {queue: [] for queue in queues}
    for (queue, when), row in sorted(cells.items(), key=lambda cell: cell[0][1]):
        known[queue].append([when, *row, *[None] * (len(COLUMNS) - len(row))])
    return {"step": step, "columns": list(COLUMNS), "queues": known}
