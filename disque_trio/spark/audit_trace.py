"""The trace of a job: all that happened to it on all nodes, a 64 bit number an event.

A number holds the time (ms), the node (its place in the audit's list) and what happened, in this
order, so that sorted numbers are sorted events. Events of one ms on one node are in the order in
which they can have happened: a line of the log has no finer time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

CODE_BITS = 8
NODE_BITS = 11
TIME_SHIFT = CODE_BITS + NODE_BITS
MAX_NODES = 1 << NODE_BITS
MAX_TIME = (1 << 63 - TIME_SHIFT) - 1  # ms, in the year 2527

# Of an event's code the tens are the kind.
ADDED, COPIED, REPLICATED, IMPORTED, NACKED = 10, 20, 30, 40, 50
QUEUED, DELIVERED, WORKING, EXPORTED, DEQUEUED = 60, 70, 80, 90, 100
ACKED, EXPIRED, EVICTED, DELETED = 110, 120, 130, 140
ACKED_PEER = ACKED + 1
DELETED_PEER, DELETED_COLLECTED, DELETED_GIVEN_UP = DELETED + 2, DELETED + 3, DELETED + 4

# Those that come often first: they are looked up one after the other.
CODES: dict[str, int] = {
    "added:": ADDED,
    "copied:": COPIED,
    "replicated:": REPLICATED,
    "queued:add": QUEUED,
    "delivered:": DELIVERED,
    "acked:client": ACKED,
    "acked:peer": ACKED_PEER,
    "deleted:collected": DELETED_COLLECTED,
    "queued:import": QUEUED + 5,
    "imported:": IMPORTED,
    "exported:": EXPORTED,
    "queued:retry": QUEUED + 2,
    "nacked:": NACKED,
    "queued:nack": QUEUED + 3,
    "working:": WORKING,
    "queued:delay": QUEUED + 1,
    "queued:enqueue": QUEUED + 4,
    "queued:": QUEUED + 6,
    "dequeued:command": DEQUEUED,
    "dequeued:peer": DEQUEUED + 1,
    "dequeued:": DEQUEUED + 2,
    "acked:": ACKED,
    "expired:": EXPIRED,
    "evicted:": EVICTED,
    "deleted:command": DELETED,
    "deleted:fastack": DELETED + 1,
    "deleted:peer": DELETED_PEER,
    "deleted:given-up": DELETED_GIVEN_UP,
    "deleted:": DELETED + 5,
}
NAMES = {code: name for name, code in reversed(CODES.items())}

# What a node does with a job that is in its queue, so that it is not any more.
LEAVES = (DELIVERED, EXPORTED, DEQUEUED, ACKED, EXPIRED, EVICTED, DELETED)


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


def unpack(trace: Sequence[int], offsets: Sequence[int] = ()) -> list[Step]:
    """The events of a job in the order of their times.

    Args:
        offsets: ms that the clock of each node is ahead; their times are corrected by it.
    """
    steps = []
    for number in trace:
        node = number >> CODE_BITS & (MAX_NODES - 1)
        time = (number >> TIME_SHIFT) - (offsets[node] if offsets else 0)
        steps.append(Step(time, node, number & (1 << CODE_BITS) - 1))
    steps.sort()
    return steps


def flat(traces: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """The events of many jobs, of which job each is, and where those of each job begin."""
    lengths = pc.list_value_length(traces).to_numpy()
    job = np.repeat(np.arange(len(traces)), lengths)
    return traces.flatten().to_numpy(), job, np.cumsum(lengths) - lengths


def times(trace: Numbers) -> Numbers:
    """The times of many events, ms."""
    return trace >> TIME_SHIFT


def nodes(trace: Numbers) -> Numbers:
    """Where many events happened."""
    return trace >> CODE_BITS & (MAX_NODES - 1)


def codes(trace: Numbers) -> Numbers:
    """What happened in many events."""
    return trace & (1 << CODE_BITS) - 1
