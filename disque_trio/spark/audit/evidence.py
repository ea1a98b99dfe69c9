"""What is known of the logs that an audit judges by, and what doubt that leaves."""

from collections.abc import Sequence
from typing import NamedTuple

from disque_trio.spark.audit.gaps import Gap


class Doubt(NamedTuple):
    """Why it may be otherwise than the logs say; None: it may not. ``nodes`` (places in the
    audit's list) are those whose logs would tell."""

    reason: str | None
    nodes: Sequence[int] = ()


class Logs(NamedTuple):
    """What is known of the logs of all nodes together.

    Attributes:
        nodes: ids; a number in a trace is a place there.
        offsets: what each node's clock is ahead, ms.
        end: up to when it is known what happened, ms: the last event, or somewhat later.
        gaps: where the logs say nothing.
        doubt: ms by which the offsets may be wrong for each two nodes.
        ranks: see ``trace.unpack``.
        cut: days were dropped: of some jobs nobody knows any more what was in them.
    """

    nodes: Sequence[str]
    offsets: Sequence[int]
    end: int
    gaps: Sequence[Gap] = ()
    doubt: Sequence[Sequence[int]] = ()
    ranks: Sequence[int] = ()
    cut: bool = False
