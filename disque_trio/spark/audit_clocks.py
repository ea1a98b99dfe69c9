"""How far the clocks of nodes are apart, by what they said of the same moments.

A copy arrives a little after the job was added, and an import after the export, each on another
node. The median of these differences from a to b is the time of a packet plus what b's clock is
ahead; from b to a it is that time minus the same. So half of their difference is what b is ahead.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_trio.spark import audit_trace as tr
from disque_trio.spark.audit_trace import Numbers

SAMPLE = 200_000  # jobs
LEAST = 5  # pairs of events that say something of two nodes
_NEVER = np.iinfo(np.int64).max
_SCHEMA = pa.schema([("source", pa.int64()), ("target", pa.int64()), ("ms", pa.int64())])


class Skew(NamedTuple):
    """The clock of ``target`` is ``ms`` ahead of that of ``source``; ``exact`` is False when
    events went one way only, and the time of a packet is part of it."""

    source: int
    target: int
    ms: int
    exact: bool


def differences(jobs: DataFrame, count: int) -> dict[tuple[int, int], int]:
    """The medians of all pairs of nodes, of a sample of ``count`` jobs."""
    spread = jobs.where("size(copied_on) > 0 or size(imported_to) > 0").select("id", "trace")
    if count > SAMPLE:
        buckets = count // SAMPLE + 1
        spread = spread.where(f.pmod(f.xxhash64("id"), f.lit(buckets)) == 0)

    def pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield pairs_of(batch.column("trace"))

    rows = (
        spread.select("trace")
        .mapInArrow(pairs, from_arrow_schema(_SCHEMA))
        .groupBy("source", "target")
        .agg(f.percentile_approx("ms", 0.5).alias("ms"), f.count("*").alias("count"))
        .collect()
    )
    return {(row["source"], row["target"]): row["ms"] for row in rows if row["count"] >= LEAST}


def pairs_of(traces: pa.Array) -> pa.RecordBatch:
    """What some jobs say."""
    events = traces.flatten().to_numpy()
    offsets = traces.offsets.to_numpy()
    job = np.repeat(np.arange(len(traces)), np.diff(offsets))
    kinds = tr.codes(events) // 10 * 10
    found = [
        _pairs(events, job, offsets[:-1], kinds == tr.ADDED, kinds == tr.COPIED),
        _pairs(events, job, offsets[:-1], kinds == tr.EXPORTED, kinds == tr.IMPORTED),
    ]
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=_SCHEMA)


def _pairs(
    events: Numbers, job: Numbers, starts: Numbers, first: np.ndarray, second: np.ndarray
) -> tuple[Numbers, Numbers, Numbers]:
    """Where, where, and how much later, for jobs with exactly one ``first`` and all ``second``."""
    counts = np.add.reduceat(first.astype(np.int64), starts)
    origin = np.minimum.reduceat(np.where(first, events, _NEVER), starts)
    which = np.flatnonzero(second & (counts[job] == 1))
    source = origin[job[which]]
    target = events[which]
    return tr.nodes(source), tr.nodes(target), tr.times(target) - tr.times(source)


def skews(medians: dict[tuple[int, int], int]) -> list[Skew]:
    """Of each two nodes of which something is known."""
    found = []
    for (source, target), there in sorted(medians.items()):
        back = medians.get((target, source))
        if source < target and back is not None:
            found.append(Skew(source, target, round((there - back) / 2), True))
        elif source < target:
            found.append(Skew(source, target, there, False))
        elif back is None and source != target:
            found.append(Skew(target, source, -there, False))
    return found


def offsets(skews: Iterable[Skew], nodes: int) -> list[int]:
    """What each node's clock is ahead of what most say, ms; 0 where nothing is known."""
    near: dict[int, list[tuple[int, int]]] = {}
    for skew in sorted(skews, key=lambda skew: not skew.exact):
        near.setdefault(skew.source, []).append((skew.target, skew.ms))
        near.setdefault(skew.target, []).append((skew.source, -skew.ms))
    known: dict[int, int] = {}
    for begin in range(nodes):
        if begin in known or begin not in near:
            continue
        group = {begin: 0}
        waiting = [begin]
        for node in waiting:
            for other, ms in near[node]:
                if other not in group:
                    group[other] = group[node] + ms
                    waiting.append(other)
        middle = sorted(group.values())[(len(group) - 1) // 2]
        known |= {node: ms - middle for node, ms in group.items()}
    return [known.get(node, 0) for node in range(nodes)]
