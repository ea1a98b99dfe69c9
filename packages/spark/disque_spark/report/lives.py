"""The histories of single jobs, step by step, and counts of what happened on each node."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_spark.audit import trace as tr

Json: TypeAlias = Any

SHOWN = 20  # steps to show at the beginning of a history, and at its end
_COUNTS = pa.schema([("node", pa.int64()), ("code", pa.int64()), ("times", pa.int64())])


class Lives:
    """The traces of an audit.

    Args:
        spark: the session.
        jobs: the table of jobs.
        nodes: ids of nodes; traces have indexes into this list.
    """

    def __init__(self, spark: SparkSession, jobs: DataFrame, nodes: Sequence[str]) -> None:
        self._spark = spark
        self._jobs = jobs
        self._nodes = nodes

    def of(self, ids: Collection[str]) -> dict[str, Json]:
        """For each job: its queue, its start, its number of steps, and the first and last of them:
        ms since the start, index of the node, what happened."""
        if not ids:
            return {}
        wanted = self._spark.createDataFrame([(id,) for id in sorted(ids)], "id string")
        rows = self._jobs.select("id", "queue", "trace").join(f.broadcast(wanted), "id")
        return {row["id"]: life_of(row["queue"], row["trace"]) for row in rows.collect()}

    def by_node(self) -> list[dict[str, Json]]:
        """For each node, how often each kind of step happened there. ``retry`` and ``nack`` are
        reasons for which jobs were queued."""

        def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    yield counts_of(batch.column("trace"))

        found = self._jobs.select("trace").mapInArrow(count, from_arrow_schema(_COUNTS))
        rows = found.groupBy("node", "code").agg(f.sum("times").alias("times")).collect()
        counts: dict[int, dict[str, int]] = {place: {} for place in range(len(self._nodes))}
        for row in rows:
            kind, _, reason = tr.NAMES[row["code"]].partition(":")
            name = reason if kind == "queued" and reason in ("retry", "nack") else kind
            if kind == "acked" and reason == "peer":
                continue  # it counts on the node that the client sent it to
            mine = counts.setdefault(row["node"], {})
            mine[name] = mine.get(name, 0) + row["times"]
        return [{"node": self._nodes[place], **counts[place]} for place in sorted(counts)]


def counts_of(traces: pa.Array) -> pa.RecordBatch:
    """How often each kind of step happened on each node, in some traces."""
    events, _, _ = tr.flat(traces)
    low = (1 << tr.TIME_SHIFT) - 1
    keys, times = np.unique(events & low, return_counts=True)
    columns = [tr.nodes(keys), tr.codes(keys), times.astype(np.int64)]
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=_COUNTS)


def life_of(queue: str | None, trace: Sequence[int]) -> dict[str, Json]:
    """See ``Lives.of``."""
    steps = tr.unpack(trace)
    start = steps[0].time
    if len(steps) > 2 * SHOWN:
        steps = [*steps[:SHOWN], *steps[-SHOWN:]]
    shown = [[step.time - start, step.node, tr.NAMES[step.code].rstrip(":")] for step in steps]
    return {"queue": queue, "start": start, "count": len(trace), "steps": shown}
