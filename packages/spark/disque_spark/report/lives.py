"""The histories of single jobs, step by step, and counts of what happened on each node."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from disque_spark.audit import trace as tr

Json: TypeAlias = Any

SHOWN = 20  # steps to show at the beginning of a history, and at its end


class Nodes:
    """How often each kind of step happened on each node.

    Args:
        nodes: ids of nodes; traces have indexes into this list.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._counts = np.zeros(1 << tr.TIME_SHIFT, np.int64)

    def add(self, traces: pa.Array) -> None:
        """Count the steps of some traces."""
        events, _, _ = tr.flat(traces)
        keys, times = np.unique(events & ((1 << tr.TIME_SHIFT) - 1), return_counts=True)
        self._counts[keys] += times

    def rows(self) -> list[dict[str, Json]]:
        """For each node, how often each kind of step happened there. ``retry`` and ``nack`` are
        reasons for which jobs were queued."""
        rows: list[dict[str, Json]] = [{"node": node} for node in self._nodes]
        keys = np.flatnonzero(self._counts)
        for node, code, times in zip(
            tr.nodes(keys).tolist(),
            tr.codes(keys).tolist(),
            self._counts[keys].tolist(),
            strict=True,
        ):
            kind, _, reason = tr.NAMES[code].partition(":")
            name = reason if kind == "queued" and reason in ("retry", "nack") else kind
            if kind == "acked" and reason == "peer":
                continue  # it counts on the node that the client sent it to
            rows[node][name] = rows[node].get(name, 0) + times
        return rows


def life_of(queue: str | None, trace: Sequence[int]) -> dict[str, Json]:
    """A history: the queue, the start (ms), the number of steps, and the first and last of them: ms
    since the start, index of the node, what happened."""
    steps = tr.unpack(trace)
    start = steps[0].time
    if len(steps) > 2 * SHOWN:
        steps = [*steps[:SHOWN], *steps[-SHOWN:]]
    shown = [[step.time - start, step.node, tr.NAMES[step.code].rstrip(":")] for step in steps]
    return {"queue": queue, "start": start, "count": len(trace), "steps": shown}
