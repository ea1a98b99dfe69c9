"""The state of the cluster, as far as known."""

from collections.abc import Collection, Mapping, Set

from disque_trio.overview.histories import Histories
from disque_trio.overview.nodes import Nodes, NodeState
from disque_trio.overview.policies import Policies
from disque_trio.overview.queues import QueueTable
from disque_trio.overview.running import RunningJobs


class Cluster:
    """Nodes, queues, policies and running jobs.

    Args:
        histories: where to keep what happens, or None. That of the cluster has the counters of all
            nodes together, and as ``length`` the queued jobs, as ``jobs`` all copies.
    """

    def __init__(self, histories: Histories | None = None) -> None:
        self.nodes = Nodes()
        self.queues = QueueTable(histories)
        self.histories = histories
        self.policies = Policies()
        self.running = RunningJobs()
        self._known_by: dict[str, Set[str]] = {}  # ids that each node knows, by its id
        self._forgotten: Set[str] = frozenset()  # ids that a node once knew, and no longer

    def take(self, address: str, info: Mapping[str, str], lines: str, now: float) -> None:
        """Take a node's replies to INFO and CLUSTER NODES, at ``now`` (s)."""
        state = self.nodes.meet(address, now)
        since = state.counters.moment
        grown = self.nodes.take(address, info, lines, now)
        if self.histories is not None:
            self.histories.cluster.add(now, grown, {}, since)

    def sample(self, now: float) -> None:
        """Sample the levels of the whole cluster, at ``now`` (s)."""
        if self.histories is not None and self.nodes.here():
            levels = {"length": self.length, "jobs": self.nodes.total("registered_jobs")}
            self.histories.cluster.add(now, {}, levels)

    @property
    def length(self) -> int:
        """The number of queued jobs, as far as known."""
        return self.queues.length

    def lost(self, address: str, problem: str, now: float) -> None:
        """Note that a node is unreachable."""
        self.nodes.lost(address, problem, now)
        self.queues.node_lost(address)
        self.running.node_lost(address)

    def knows(self, address: str, ids: Set[str]) -> None:
        """Note which nodes a node knows."""
        state = self.nodes.get(address)
        if state is not None:
            before = self._known_by.get(state.id, frozenset())
            self._forgotten = (self._forgotten | before) - ids
            self._known_by[state.id] = ids
            self.nodes.apart = self._apart()

    @property
    def ids(self) -> Set[str]:
        """The ids of all nodes that a node knows."""
        return frozenset(id for ids in self._known_by.values() for id in ids)

    def _apart(self) -> Set[str]:
        """Addresses of responding nodes that are in another cluster than most: they know none of
        the others, and are not known to them."""
        heard = [state for state in self.nodes.here() if state.id in self._known_by]
        groups: list[list[NodeState]] = []
        for state in heard:
            near = [group for group in groups if any(self._meets(state, other) for other in group)]
            groups = [group for group in groups if group not in near]
            groups.append([state, *(other for group in near for other in group)])
        if len(groups) < 2:
            return frozenset()

        def rank(group: list[NodeState]) -> tuple[int, int]:
            known = {id for state in group for id in self._known_by[state.id]}
            return len(group), len(known)

        main = max(groups, key=rank)
        return frozenset(state.address for state in heard if state not in main)

    def _meets(self, one: NodeState, other: NodeState) -> bool:
        """Whether one of two nodes knows the other."""
        known = self._known_by
        return one.id in known[other.id] or other.id in known[one.id]

    def strangers(self, seeds: Collection[str]) -> list[str]:
        """Addresses of unreachable nodes that a node has forgotten, and that no responding one
        knows, except ``seeds``."""
        known: set[str] = set()
        for state in self.nodes.here():
            known |= self._known_by.get(state.id, set())
        gone = self._forgotten - known
        return [
            state.address
            for state in self.nodes.all()
            if not state.here and state.id in gone and state.address not in seeds
        ]

    def forget(self, address: str) -> None:
        """Note that a node no longer belongs to the cluster."""
        state = self.nodes.get(address)
        if state is not None:
            self._known_by.pop(state.id, None)
        self.nodes.forget(address)
        self.queues.node_lost(address)
        self.running.node_lost(address)
