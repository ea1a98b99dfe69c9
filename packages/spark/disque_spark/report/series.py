"""What happened in each time step: in all queues together, and in some of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_spark.audit.queue_minutes import COUNTS, MINUTE, PERCENTILES, sums_of

Json: TypeAlias = Any

# Columns of the rates of all queues, after the time; and of the steps of one queue.
RATES = ("added", "delivered", "acked", "retries", "nacked", "expired")
_TIMES = (("wait", "first_delivered"), ("processing", "acked_at"))
COLUMNS = (
    *RATES,
    "depth",
    *(f"{name}_p{percent}" for name, _ in _TIMES for percent in PERCENTILES),
)
MOST_CELLS = 4000  # the most steps in total of queues that have plots of their own
_NEEDED = ("queue", "trace", "acked_at", "ended_at", "ended")
_SUMS = pa.schema(
    [("queue", pa.string()), *((name, pa.int64()) for name in ("at", *COUNTS, "change"))]
)


class Series:
    """The time steps of an audit.

    Args:
        jobs, minutes: the tables.
        step: length of a step, ms; steps below a minute are computed from the jobs.
    """

    def __init__(self, jobs: DataFrame, minutes: DataFrame, step: int) -> None:
        self._jobs = jobs
        self._step = step
        self._steps = (self._of_minutes(minutes) if step >= MINUTE else self._of_jobs(step)).cache()

    def rates(self) -> list[list[int]]:
        """Time and RATES of each step in which something happened."""
        sums = [f.sum(name).alias(name) for name in RATES]
        rows = self._steps.groupBy("at").agg(*sums).orderBy("at").collect()
        return [[row["at"], *(row[name] or 0 for name in RATES)] for row in rows]

    def depths(self, queues: Sequence[str]) -> dict[str, list[list[int]]]:
        """The greatest depth of each queue, in each step in which it may have changed."""
        found: dict[str, list[list[int]]] = {queue: [] for queue in queues}
        rows = self._steps.where(f.col("queue").isin(list(queues))).select("queue", "at", "depth")
        for row in rows.orderBy("at").collect():
            found[row["queue"]].append([row["at"], row["depth"]])
        return found

    def of_queues(self, queues: Sequence[str]) -> dict[str, Json]:
        """Time and COLUMNS of each step, for each queue, as far as there is room."""
        wanted = f.col("queue").isin(list(queues))
        rows = self._steps.where(wanted)
        for name, when in _TIMES:
            rows = rows.join(self._times(wanted, name, when), ["queue", "at"], "full")
        cells: dict[str, list[list[int | None]]] = {queue: [] for queue in queues}
        for row in rows.orderBy("at").collect():
            cells[row["queue"]].append([row["at"], *(row[name] for name in COLUMNS)])
        room = MOST_CELLS
        kept: dict[str, Json] = {}
        for queue, steps in cells.items():
            room -= len(steps)
            if room >= 0:
                kept[queue] = steps
        return {"columns": list(COLUMNS), "queues": kept}

    def _times(self, wanted: Column, name: str, when: str) -> DataFrame:
        """The percentiles of each queue and step."""
        column = f"{name}_ms"
        known = self._jobs.where(wanted & f.col(column).isNotNull())
        return known.groupBy("queue", _at(f.unix_millis(when), self._step)).agg(
            *[
                f.percentile_approx(column, percent / 100).alias(f"{name}_p{percent}")
                for percent in PERCENTILES
            ]
        )

    def _of_minutes(self, minutes: DataFrame) -> DataFrame:
        depth = f.col("depth")
        if "most_depth" in minutes.columns:  # tables of older versions do not have it
            depth = f.greatest(depth, "most_depth")
        return minutes.groupBy("queue", _at(f.unix_millis("minute"), self._step)).agg(
            *[f.sum(name).alias(name) for name in RATES if name != "retries"],
            f.sum("requeued_retry").alias("retries"),
            f.max(depth).alias("depth"),
        )

    def _of_jobs(self, step: int) -> DataFrame:
        def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    sums = sums_of(batch, step)
                    yield from sums.rename_columns(_SUMS.names).cast(_SUMS).to_batches()

        found = self._jobs.select(*_NEEDED).mapInArrow(count, from_arrow_schema(_SUMS))
        sums = [f.sum(name).alias(name) for name in (*COUNTS, "change")]
        by_time = Window.partitionBy("queue").orderBy("at")
        return (
            found.groupBy("queue", "at")
            .agg(*sums)
            .withColumn("depth", f.sum("change").over(by_time))
            .withColumnRenamed("requeued_retry", "retries")
        )


def _at(ms: Column, step: int) -> Column:
    """The beginning of the step that a time is in, as the column ``at``."""
    return (f.floor(ms / step) * step).alias("at")
