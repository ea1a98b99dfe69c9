"""All that is known of the cluster."""

from collections.abc import Collection, Mapping, Set
from typing import Final

from disque_trio.console.model.nodes import COUNTED, Nodes
from disque_trio.console.model.policies import Policies
from disque_trio.console.model.queues import QueueTable
from disque_trio.console.model.series import Series

STEP: Final = 5.0  # s
STEPS: Final = 720  # an hour


class Cluster:
    """Nodes, queues and policies, and the last hour of the whole.

    Attributes:
        history: what all nodes together counted; ``length``: jobs that are queued.
        node_histories: the same of each node, by address; ``memory`` is in bytes.
    """

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.queues = QueueTable()
        self.policies = Policies()
        self.history = Series(STEP, STEPS, tuple(COUNTED), ("length", "jobs"))
        self.node_histories: dict[str, Series] = {}
        self._known_by: dict[str, Set[str]] = {}  # ids that a node knows, by its address

    def told(self, address: str, info: Mapping[str, str], lines: str, now: float) -> None:
        """What INFO and CLUSTER NODES of a node said at ``now`` (s)."""
        state = self.nodes.meet(address, now)
        since = state.counters.moment
        grown = self.nodes.told(address, info, lines, now)
        history = self.node_histories.get(address)
        if history is None:
            history = Series(STEP, STEPS, tuple(COUNTED), ("jobs", "memory"))
            self.node_histories[address] = history
        levels = {"jobs": state.number("registered_jobs"), "memory": state.number("used_memory")}
        history.add(now, grown, levels, since)
        self.history.add(now, grown, {}, since)

    def sample(self, now: float) -> None:
        """Measure what the whole has, at ``now`` (s)."""
        if self.nodes.here():
            levels = {"length": self.length, "jobs": self.nodes.total("registered_jobs")}
            self.history.add(now, {}, levels)

    @property
    def length(self) -> int:
        """How many jobs are queued, as far as is known."""
        return self.queues.length

    def went(self, address: str, problem: str, now: float) -> None:
        """A node is away."""
        self.nodes.went(address, problem, now)
        self.queues.node_went(address)

    def knows(self, address: str, ids: Set[str]) -> None:
        """Which nodes a node knows."""
        self._known_by[address] = ids

    def strangers(self, seeds: Collection[str]) -> list[str]:
        """Addresses of nodes that are away and that none of those that answer knows; not those of
        ``seeds``."""
        known: set[str] = set()
        for state in self.nodes.here():
            known |= self._known_by.get(state.address, set())
        return [
            state.address
            for state in self.nodes.all()
            if not state.here and state.id and state.id not in known and state.address not in seeds
        ]

    def forget(self, address: str) -> None:
        """It is no node of the cluster any more."""
        self.nodes.forget(address)
        self.queues.node_went(address)
        self.node_histories.pop(address, None)
        self._known_by.pop(address, None)
