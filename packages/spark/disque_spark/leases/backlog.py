"""The backlog of a read: how many jobs wait in its queues, and how many a batch leaves there.

``reported`` makes the dictionary that Spark shows as ``latestOffset`` in the progress of a query,
since a Python data source cannot have its own ``metrics`` or description there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from disque_spark.client import Arg, WireError, accepted
from disque_spark.leases.division import taken_in_turn
from disque_spark.leases.store import PartitionPlan
from disque_spark.nodes import Nodes
from disque_spark.options import text
from disque_trio.respclient.blocking import Reply

SCAN_SECONDS = 1.0  # s between scans for queues that match a pattern
SCAN_COUNT = 10_000  # queues that a step of QSCAN visits
MOST_QUEUES = 1000  # queues reported one by one; the rest are added up


class QueueNow(NamedTuple):
    """A queue on one node.

    Attributes:
        jobs: jobs that the node would deliver; 0 if the queue is paused.
        oldest: age of the oldest job in seconds; 0: there is none, or the node does not report it.
    """

    jobs: int
    oldest: float


class NodeNow(NamedTuple):
    """The queues of a node, and whether the node is leaving its cluster, so that other nodes
    deliver its jobs."""

    queues: Mapping[str, QueueNow]
    leaving: bool

    def jobs(self) -> int:
        """The number of queued jobs."""
        return sum(queue.jobs for queue in self.queues.values())


class Behind(NamedTuple):
    """A queue on all nodes.

    Attributes:
        jobs: jobs queued when the batch was planned.
        behind: those that are not in the batch.
        oldest: age of the oldest job in seconds.
    """

    jobs: int
    behind: int
    oldest: float


class Queued:
    """Asks nodes about the queues of a read.

    Args:
        nodes: the nodes to ask.
        queues: names of the queues.
        pattern: a glob pattern for names of queues, instead of ``queues``.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        nodes: Nodes,
        queues: Sequence[str],
        pattern: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = nodes
        self._names: list[str | bytes] = list(queues)
        self._pattern = pattern
        self._clock = clock
        self._scanned = -SCAN_SECONDS

    def ask(self) -> dict[str, NodeNow]:
        """Ask all nodes that can be reached. Returns their queues, by address.

        Raises:
            RefusedError: a node refuses to say.
        """
        if self._pattern is not None and self._clock() - self._scanned >= SCAN_SECONDS:
            self._names = self._scan(self._pattern)
            self._scanned = self._clock()
        requests: list[Sequence[Arg]] = [("QSTAT", name) for name in self._names]
        requests.append(("CLUSTER", "LEAVING"))
        names = [text(name) if isinstance(name, bytes) else name for name in self._names]
        found: dict[str, NodeNow] = {}
        for address, replies in self._nodes.ask(requests).items():
            *stats, leaving = [accepted(reply) for reply in replies]
            queues = {name: _queue(stat) for name, stat in zip(names, stats, strict=True)}
            found[address] = NodeNow(queues, leaving == b"yes")
        return found

    def _scan(self, pattern: str) -> list[str | bytes]:
        """The names of matching queues that have jobs."""
        found: set[bytes] = set()
        for address in self._nodes.addresses():
            cursor: Arg = 0
            try:
                client = self._nodes.client(address)
                while cursor != b"0":
                    step = client.call(
                        *("QSCAN", cursor, "COUNT", SCAN_COUNT, "MINLEN", 1, "MATCH", pattern)
                    )
                    if not isinstance(step, list) or not isinstance(step[0], bytes):
                        raise WireError(f"{address}: unexpected reply to QSCAN: {step!r}")
                    cursor, names = step[0], step[1]
                    assert isinstance(names, list)
                    found.update(name for name in names if isinstance(name, bytes))
            except WireError:
                self._nodes.lost(address)
        return sorted(found)


def _queue(stat: Reply) -> QueueNow:
    """The queue in a QSTAT reply."""
    if not isinstance(stat, list):
        return QueueNow(0, 0.0)  # there is no such queue
    fields = dict(zip(stat[::2], stat[1::2], strict=True))
    jobs, oldest = fields[b"len"], fields.get(b"oldest-job-age", 0)
    assert isinstance(jobs, int)
    assert isinstance(oldest, int)
    return (
        QueueNow(0, 0.0) if fields[b"pause"] in (b"out", b"all") else QueueNow(jobs, oldest / 1e3)
    )


def behind(nodes: Mapping[str, NodeNow], plans: Sequence[PartitionPlan]) -> dict[str, Behind]:
    """The queues on all nodes, and what a batch with ``plans`` leaves in them."""
    shares: dict[str, list[int]] = {}
    for plan in plans:
        shares.setdefault(plan.address, []).append(plan.limit)
    found: dict[str, Behind] = {}
    for address, node in nodes.items():
        lengths = {name: queue.jobs for name, queue in node.queues.items()}
        limits = shares.get(address, [])
        taken: Mapping[str, int] = {}
        if limits:
            taken = taken_in_turn(lengths, 0 if 0 in limits else sum(limits))
        for name, queue in node.queues.items():
            left = queue.jobs - taken.get(name, 0)
            known = found.get(name, Behind(0, 0, 0.0))
            found[name] = Behind(
                known.jobs + queue.jobs, known.behind + left, max(known.oldest, queue.oldest)
            )
    return found


def reported(
    description: str, queues: Mapping[str, Behind], most: int = MOST_QUEUES
) -> dict[str, object]:
    """The dictionary for Spark to show. If there are more than ``most`` queues, those with the
    fewest jobs are added up under an empty name."""
    names = sorted(queues, key=lambda name: (-queues[name].behind, -queues[name].jobs, name))
    shown = {name: queues[name] for name in (names if len(names) <= most else names[: most - 1])}
    rest = [queues[name] for name in names[len(shown) :]]
    if rest:
        shown[""] = Behind(
            sum(queue.jobs for queue in rest),
            sum(queue.behind for queue in rest),
            max(queue.oldest for queue in rest),
        )
    left = [queue.behind for queue in queues.values()] or [0]
    return {
        "description": description,
        "queues": {
            name: {"jobs": jobs, "behind": behind, "oldestJobAge": oldest}
            for name, (jobs, behind, oldest) in shown.items()
        },
        # Names and format follow the metrics of Kafka's source.
        "metrics": {
            "minJobsBehindLatest": str(min(left)),
            "maxJobsBehindLatest": str(max(left)),
            "avgJobsBehindLatest": str(round(sum(left) / len(left), 3)),
            "totalJobsBehindLatest": str(sum(left)),
        },
    }
