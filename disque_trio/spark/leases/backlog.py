"""How many jobs wait in the queues of a read: what its nodes say, and what is left when a batch has
taken its share.

``told`` makes the dictionary that Spark shows as ``latestOffset`` in the progress of a query: a
source in Python can neither have ``metrics`` there nor a description of its own.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from disque_trio.spark.client import Arg, Reply, WireError, accepted
from disque_trio.spark.leases.division import taken_in_turn
from disque_trio.spark.leases.store import PartitionPlan
from disque_trio.spark.nodes import Nodes
from disque_trio.spark.options import text

SCAN_SECONDS = 1.0  # between two looks for queues of a pattern
SCAN_COUNT = 10_000  # queues that a step of QSCAN visits
MOST_QUEUES = 1000  # that are told apart; the others are added up


class QueueNow(NamedTuple):
    """A queue as a node says.

    Attributes:
        jobs: that it would give: none if it is paused.
        oldest: s since the oldest of them was added; 0: it has none, or the node does not know.
    """

    jobs: int
    oldest: float


class NodeNow(NamedTuple):
    """The queues of a node, and whether it is leaving its cluster: then others give its jobs."""

    queues: Mapping[str, QueueNow]
    leaving: bool

    def jobs(self) -> int:
        """All that are queued."""
        return sum(queue.jobs for queue in self.queues.values())


class Behind(NamedTuple):
    """A queue in all nodes.

    Attributes:
        jobs: queued when the batch was planned. behind: those that are not in the batch.
        oldest: s since the oldest one was added.
    """

    jobs: int
    behind: int
    oldest: float


class Queued:
    """Asks nodes for the queues of a read.

    Args:
        nodes: whom to ask.
        queues: their names; or else ``pattern``, that of a glob.
        clock: monotonic seconds.
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
        """What each node says that can be reached.

        Raises:
            RefusedError: it does not tell.
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
        """The queues that have jobs."""
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
                        raise WireError(f"{address}: unexpected from QSCAN: {step!r}")
                    cursor, names = step[0], step[1]
                    assert isinstance(names, list)
                    found.update(name for name in names if isinstance(name, bytes))
            except WireError:
                self._nodes.lost(address)
        return sorted(found)


def _queue(stat: Reply) -> QueueNow:
    """What QSTAT says."""
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
    """The queues of all nodes, and what a batch with ``plans`` leaves in them."""
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


def told(
    description: str, queues: Mapping[str, Behind], most: int = MOST_QUEUES
) -> dict[str, object]:
    """What Spark is to show. Of more than ``most`` queues those with the fewest jobs are added up
    as one without a name."""
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
        # Names and form as Kafka's source has them in its metrics.
        "metrics": {
            "minJobsBehindLatest": str(min(left)),
            "maxJobsBehindLatest": str(max(left)),
            "avgJobsBehindLatest": str(round(sum(left) / len(left), 3)),
            "totalJobsBehindLatest": str(sum(left)),
        },
    }
