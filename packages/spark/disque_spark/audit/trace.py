"""The trace of a job: all its events on all nodes, each packed into a 64-bit number.

A number has the time (ms), the node (its index in the audit's list) and a code for what happened,
in this order, so that sorting numbers sorts events. Codes are such that events within one ms on one
node sort in an order that is possible: lines of the log have no finer time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from disque_trio.eventlog import schema

Numbers = npt.NDArray[np.int64]

CODE_BITS = 8
NODE_BITS = 11
TIME_SHIFT = CODE_BITS + NODE_BITS
MAX_NODES = 1 << NODE_BITS
MAX_TIME = (1 << 63 - TIME_SHIFT) - 1  # ms, in the year 2527

# The kind of an event is its code rounded down to a multiple of 10.
ADDED, COPIED, REPLICATED, IMPORTED, NACKED = 10, 20, 30, 40, 50
QUEUED, DELIVERED, WORKING, EXPORTED, DEQUEUED = 60, 70, 80, 90, 100
ACKED, EXPIRED, EVICTED, DELETED = 110, 120, 130, 140
DEAD, CANCELLED, UPDATED, PAUSED = 150, 160, 170, 180
_KINDS: dict[schema.Kind, int] = {
    schema.ADDED: ADDED,
    schema.COPIED: COPIED,
    schema.REPLICATED: REPLICATED,
    schema.IMPORTED: IMPORTED,
    schema.NACKED: NACKED,
    schema.QUEUED: QUEUED,
    schema.DELIVERED: DELIVERED,
    schema.WORKING: WORKING,
    schema.EXPORTED: EXPORTED,
    schema.DEQUEUED: DEQUEUED,
    schema.ACKED: ACKED,
    schema.EXPIRED: EXPIRED,
    schema.EVICTED: EVICTED,
    schema.DELETED: DELETED,
    schema.DEAD: DEAD,
    schema.CANCELLED: CANCELLED,
    schema.UPDATED: UPDATED,
    schema.PAUSED: PAUSED,
}
# Codes by "kind:reason". The last digit of a code is the index of the reason; the number after the
# last index is for lines without a reason.
CODES: dict[str, int] = {
    f"{kind}:{reason}": _KINDS[kind] + place
    for kind, reasons in schema.REASONS.items()
    for place, reason in enumerate((*reasons, schema.NO_REASON))
} | {"acked:": ACKED}
# An ACK on behalf of no client: so nodes of older versions recorded what REDRIVE did.
ACKED_BY_NOBODY = ACKED + 9
NAMES = {code: name for name, code in reversed(CODES.items())} | {ACKED_BY_NOBODY: "acked:client"}


def code(kind: schema.Kind, reason: schema.Reason) -> int:
    """The code of an event of ``kind`` that happened for ``reason``."""
    return _KINDS[kind] + schema.REASONS[kind].index(reason)


QUEUED_RETRY = code(schema.QUEUED, schema.BY_RETRY)
QUEUED_NACK = code(schema.QUEUED, schema.BY_NACK)
QUEUED_ENQUEUE = code(schema.QUEUED, schema.BY_ENQUEUE)
QUEUED_DISCONNECT = code(schema.QUEUED, schema.BY_DISCONNECT)
ACKED_PEER = code(schema.ACKED, schema.BY_PEER)
ACKED_REDRIVE = code(schema.ACKED, schema.BY_REDRIVE)
FASTACKED = code(schema.DELETED, schema.BY_FASTACK)
DELETED_COMMAND = code(schema.DELETED, schema.BY_COMMAND)
DELETED_PEER = code(schema.DELETED, schema.BY_PEER)
DELETED_COLLECTED = code(schema.DELETED, schema.BY_COLLECTION)
QUEUED_DEATH = code(schema.QUEUED, schema.BY_DEATH)
DEAD_PEER = code(schema.DEAD, schema.BY_PEER)
CANCELLED_PEER = code(schema.CANCELLED, schema.BY_PEER)

# The job is done, and nobody should get it any more. A node learned that from a client (or did it
# itself: DONE_HERE), or from another node (DONE_BY_PEER).
DONE = (ACKED, DEAD, CANCELLED)
DONE_BY_PEER = (ACKED_PEER, DEAD_PEER, CANCELLED_PEER)
ACKED_HERE = (ACKED, ACKED_REDRIVE, ACKED_BY_NOBODY)
DONE_HERE = (*ACKED_HERE, *range(DEAD, DEAD_PEER), CANCELLED)

# Events of which the line has the facts of the job.
TELLING = (ADDED, COPIED, REPLICATED, IMPORTED, UPDATED)
# Events that do not show that the node has the job: a node without room, or one that is leaving,
# adds jobs to other nodes only, and clients may end a job at a node that does not have it.
WITHOUT_JOB = (ADDED, REPLICATED, *DONE, DELETED)
# Events by which a node forgets a job.
FORGETS = (DELETED, EXPIRED, EVICTED)
# Events by which a node gets a job.
BEGINS = (ADDED, COPIED, REPLICATED, IMPORTED)
# Events by which a job leaves a node's queue.
LEAVES = (DELIVERED, EXPORTED, DEQUEUED, *DONE, EXPIRED, EVICTED, DELETED)


class Step(NamedTuple):
    """An event of a trace."""

    time: int  # ms
    node: int
    code: int

    @property
    def kind(self) -> int:
        return self.code - self.code % 10

    @property
    def reason(self) -> str:
        return NAMES[self.code].partition(":")[2]


def unpack(
    trace: Sequence[int], offsets: Sequence[int] = (), ranks: Sequence[int] = ()
) -> list[Step]:
    """The events of a job, sorted by time.

    Args:
        trace: packed events.
        offsets: ms that each node's clock is ahead, to correct the times.
        ranks: rank of each node, to order events within one ms; by default the node's index, which
            depends on which log was read first.
    """
    steps = []
    for number in trace:
        node = number >> CODE_BITS & (MAX_NODES - 1)
        time = (number >> TIME_SHIFT) - (offsets[node] if offsets else 0)
        steps.append(Step(time, node, number & (1 << CODE_BITS) - 1))
    if ranks:
        steps.sort(key=lambda step: (step.time, ranks[step.node], step.code))
    else:
        steps.sort()
    return steps


def flat(traces: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """The events of many jobs, the index of each event's job, and where the events of each job
    begin."""
    lengths = pc.list_value_length(traces).to_numpy()
    job = np.repeat(np.arange(len(traces)), lengths)
    return traces.flatten().to_numpy(), job, np.cumsum(lengths) - lengths


def times(trace: Numbers) -> Numbers:
    """The times of many events, ms."""
    return trace >> TIME_SHIFT


def nodes(trace: Numbers) -> Numbers:
    """The nodes of many events."""
    return trace >> CODE_BITS & (MAX_NODES - 1)


def codes(trace: Numbers) -> Numbers:
    """The codes of many events."""
    return trace & (1 << CODE_BITS) - 1
