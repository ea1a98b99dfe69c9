"""Estimates the clock differences between nodes, with bounds, from the order of cause and effect.

A copy arrives after the job was made, an import happens after the export, and a node hears of an
acknowledgement after a client sent it to another one. So the least difference between the times of
two such events, on the nodes a and b, is an upper bound of how far b's clock is ahead of a's; the
least difference in the other direction is one of how far a's is ahead of b's. Such bounds add up
along paths of several nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.trace import Numbers

LEAST_SCHEMA = pa.schema([("source", pa.int64()), ("target", pa.int64()), ("ms", pa.int64())])
# The end of the ids of jobs that follow others, such as dead letters, which every holder makes from
# its own copy.
SUCCESSOR = "-ffff"
UNKNOWN = 1 << 40  # ms
_NEVER = np.iinfo(np.int64).max
_NS = 1_000_000


@dataclass(frozen=True)
class Clocks:
    """The clock differences of nodes, which are numbered from 0, and their bounds.

    Attributes:
        ahead: for each node, ms that its clock is ahead of the majority; 0 if unknown.
        doubt: for each pair of nodes, ms by which the difference of these may be wrong; UNKNOWN.
        moved: pairs with contradictory bounds: a clock was set, or does not run well.
    """

    ahead: list[int]
    doubt: list[list[int]]
    moved: list[tuple[int, int]]

    def apart(self, source: int, target: int) -> int:
        """ms that the clock of ``target`` is certainly ahead of that of ``source`` (negative:
        behind); 0: perhaps not at all."""
        ms = self.ahead[target] - self.ahead[source]
        doubt = self.doubt[source][target]
        return max(ms - doubt, 0) if ms > 0 else min(ms + doubt, 0)


def least_of(jobs: pa.RecordBatch, whole: bool = True) -> pa.RecordBatch:
    """The least difference from each node to each other one, according to some jobs.

    Args:
        jobs: rows of the table ``jobs``.
        whole: whether the logs of all nodes are here. If not, an import or a notice may have come
            from a node whose log is missing, and have nothing to do with the other node.
    """
    events, job, starts = tr.flat(jobs.column("trace"))
    codes = tr.codes(events)
    kinds = codes // 10 * 10
    added = _only(events, starts, kinds == tr.ADDED)
    added[pc.ends_with(jobs.column("id"), SUCCESSOR).to_numpy(zero_copy_only=False)] = _NEVER
    made = pc.fill_null(jobs.column("ctime"), 0).to_numpy() // _NS
    # An event that occurs twice, or whose cause was repeated, may also be in lines that were lost.
    exported = _only(events, starts, kinds == tr.EXPORTED)
    exported[_only(events, starts, kinds == tr.IMPORTED) == _NEVER] = _NEVER
    delivered = _only(events, starts, kinds == tr.DELIVERED)
    again = np.isin(codes, (tr.QUEUED_RETRY, tr.QUEUED_NACK, tr.QUEUED_ENQUEUE))
    acked = _only(events, starts, np.isin(codes, tr.ACKED_HERE))
    acked[(tr.nodes(delivered) != tr.nodes(acked)) | (_some(starts, again))] = _NEVER
    found: list[tuple[Numbers, Numbers, Numbers]] = []
    for origin, since, later in (
        (added, made, kinds == tr.COPIED),
        (exported, tr.times(exported), (kinds == tr.IMPORTED) & whole),
        (acked, tr.times(acked), (codes == tr.ACKED_PEER) & whole),
    ):
        known = (origin != _NEVER) & (since > 0)
        which = np.flatnonzero(later & known[job])
        of = job[which]
        found.append(
            (tr.nodes(origin[of]), tr.nodes(events[which]), tr.times(events[which]) - since[of])
        )
    source, target, ms = (np.concatenate(column) for column in zip(*found, strict=True))
    apart = source != target
    pairs = source[apart] << tr.NODE_BITS | target[apart]
    unique, place = np.unique(pairs, return_inverse=True)
    least = np.full(len(unique), _NEVER)
    np.minimum.at(least, place, ms[apart])
    columns = [unique >> tr.NODE_BITS, unique & (tr.MAX_NODES - 1), least]
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=LEAST_SCHEMA)


def _only(events: Numbers, starts: Numbers, which: np.ndarray) -> Numbers:
    """For each job, the event selected by ``which``, if there is exactly one; otherwise _NEVER."""
    if not len(starts):
        return np.zeros(0, np.int64)
    counts = np.add.reduceat(which.astype(np.int64), starts)
    first = np.minimum.reduceat(np.where(which, events, _NEVER), starts)
    return np.where(counts == 1, first, _NEVER)


def _some(starts: Numbers, which: np.ndarray) -> np.ndarray:
    """For each job, whether it has any of the events selected by ``which``."""
    return np.maximum.reduceat(which, starts) if len(starts) else np.zeros(0, bool)


def clocks_of(least: Mapping[tuple[int, int], int], nodes: int) -> Clocks:
    """The clocks of ``nodes`` nodes, from the least differences between them."""
    bound = np.full((nodes, nodes), UNKNOWN, np.int64)
    np.fill_diagonal(bound, 0)
    moved: list[tuple[int, int]] = []
    for (source, target), ms in least.items():
        bound[source, target] = ms + 2  # times are cut to whole ms
    for one in range(nodes):
        for other in range(one):
            there, back = bound[one, other], bound[other, one]
            if there + back < 0:
                # Each bound was right at some time: the middle is the best estimate.
                middle, wide = (there - back) // 2, -(there + back) // 2
                bound[one, other], bound[other, one] = middle + wide, wide - middle
                moved.append((other, one))
    bound, slack = _tightened(bound)
    known = (bound < UNKNOWN) & (bound.T < UNKNOWN)
    ahead = _ahead(bound, known)
    said = np.array(ahead)[None, :] - np.array(ahead)[:, None]
    # The true difference is between the two bounds, but ``said`` need not be in their middle.
    doubt = np.where(known, np.maximum(bound - said, said + bound.T) + 2 * slack, UNKNOWN)
    np.fill_diagonal(doubt, 0)
    return Clocks(ahead, doubt.tolist(), moved)


def clocks_by_id(least: Mapping[tuple[int, int], int], ids: Sequence[str]) -> Clocks:
    """The clocks of nodes with these ids, from the least differences between them. Halves are
    rounded in the same way, however the nodes are numbered."""
    order = sorted(range(len(ids)), key=ids.__getitem__)
    rank = ranks_of(ids)
    found = clocks_of({(rank[a], rank[b]): ms for (a, b), ms in least.items()}, len(ids))
    return Clocks(
        [found.ahead[place] for place in rank],
        [[found.doubt[one][other] for other in rank] for one in rank],
        [(order[one], order[other]) for one, other in found.moved],
    )


def ranks_of(ids: Sequence[str]) -> list[int]:
    """The rank of each id in the sorted order."""
    ordered = {id: place for place, id in enumerate(sorted(ids))}
    return [ordered[id] for id in ids]


def _tightened(direct: Numbers) -> tuple[Numbers, int]:
    """The bounds between all nodes that follow from the direct ones. If these contradict each other
    along a path, because a clock moved, all are loosened until they do not. Returns also by how
    many ms."""
    slack = 0
    while True:
        bound = np.where(direct < UNKNOWN, direct + slack, UNKNOWN)
        np.fill_diagonal(bound, 0)
        for via in range(len(bound)):
            np.minimum(bound, bound[:, via, None] + bound[None, via, :], out=bound)
            np.maximum(bound, -UNKNOWN, out=bound)  # a contradiction would grow forever
        if (np.diagonal(bound) >= 0).all():
            bound[bound > UNKNOWN // 2] = UNKNOWN
            return bound, slack
        slack = 2 * slack + 1


def _ahead(bound: Numbers, known: np.ndarray) -> list[int]:
    """How far each clock is ahead of the median of those it can be compared with."""
    nodes = len(bound)
    ahead = [0] * nodes
    left = set(range(nodes))
    while left:
        begin = min(left)
        group = [node for node in left if node == begin or known[begin, node]]
        left.difference_update(group)
        ms = {node: int(bound[begin, node] - bound[node, begin]) // 2 for node in group}
        middle = sorted(ms.values())[(len(ms) - 1) // 2]
        for node in group:
            ahead[node] = ms[node] - middle
    return ahead
