"""What is known about the logs that an audit judges by, and the doubts that remain."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from disque_spark.audit.gaps import Gap


class Doubt(NamedTuple):
    """Why the truth may differ from what the logs show; None: it cannot. ``nodes`` (indexes in the
    audit's list) are those whose logs would tell."""

    reason: str | None
    nodes: Sequence[int] = ()


class Logs(NamedTuple):
    """What is known about the logs of all nodes together.

    Attributes:
        nodes: ids of nodes; traces have indexes into this list.
        offsets: how far each node's clock is ahead, ms.
        end: time up to which it is known what happened, ms: the last event, or somewhat later.
        gaps: periods that the logs do not cover.
        doubt: for each pair of nodes, ms by which the offsets may be wrong.
        ranks: see ``trace.unpack``.
        cut: whether days were dropped, so that a part of the history of some jobs is unknown.
        starts: the nodes that began to write a log, and when, ms by their clocks.
        live: nodes whose last segment is still being written, so that their logs have not ended.
    """

    nodes: Sequence[str]
    offsets: Sequence[int]
    end: int
    gaps: Sequence[Gap] = ()
    doubt: Sequence[Sequence[int]] = ()
    ranks: Sequence[int] = ()
    cut: bool = False
    starts: Sequence[tuple[int, int]] = ()
    live: Collection[int] = ()
