"""The nodes of the cluster: what each one reports, and since when it has not responded."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from disque_trio.health.lines import AlarmLine, own_lines
from disque_trio.overview.rates import Counters

COUNTED: Final = {
    "added": ("total_jobs_added",),
    "delivered": ("total_jobs_delivered",),
    "acked": ("total_jobs_acked",),
    "failed": ("total_jobs_requeued", "total_jobs_dead", "total_jobs_expired"),
}
"""The counters of the overview, and the INFO fields that each of them sums."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """A line of CLUSTER NODES: how one node sees another, or itself.

    Attributes:
        id, address: of the node it is about.
        flags: ``myself``, ``fail``, ``fail?``, ``leaving``, ``handshake``, ``noaddr``.
        ping_sent, pong_received: ms since the epoch, or 0.
        connected: whether there is a link.
    """

    id: str
    address: str
    flags: tuple[str, ...]
    ping_sent: int
    pong_received: int
    connected: bool


def read_lines(text: str) -> tuple[PeerView, ...]:
    """Read the lines of CLUSTER NODES; unreadable ones are left out."""
    found = []
    for words in map(str.split, text.splitlines()):
        if len(words) >= 6 and words[3].isdecimal() and words[4].isdecimal():
            flags = tuple(flag for flag in words[2].split(",") if flag != "noflags")
            times = int(words[3]), int(words[4])
            found.append(PeerView(words[0], words[1], flags, *times, words[5] == "connected"))
    return tuple(found)


@dataclass(slots=True)
class NodeState:
    """A node, at the address that the console uses.

    Attributes:
        id: empty until it has answered.
        since: when it became reachable or unreachable (s since the epoch).
        here: whether it responds. problem: why not; empty before the first attempt.
        info: the latest fields of INFO. lines: of CLUSTER NODES.
        counters: its counters.
        rounds: the number of polls since it became reachable and all its queues were read.
        refused: the error if it refuses some commands, or empty.
    """

    address: str
    since: float
    id: str = ""
    here: bool = False
    problem: str = ""
    info: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[PeerView, ...] = ()
    counters: Counters = field(default_factory=Counters)
    rounds: int = 0
    refused: str = ""

    @property
    def alarms(self) -> list[AlarmLine]:
        """What the node, or the process of one, says is wrong with itself: the worst first."""
        return own_lines(self.info) if self.here else []

    @property
    def leaving(self) -> bool:
        """Whether it is leaving the cluster."""
        return any("myself" in line.flags and "leaving" in line.flags for line in self.lines)

    @property
    def status(self) -> str:
        """``here``, ``leaving``, ``away``, or ``connecting`` before the first answer."""
        if self.here:
            return "leaving" if self.leaving else "here"
        return "away" if self.problem else "connecting"

    def rate(self, name: str) -> float | None:
        """How much a counter grows in a second, if that is known."""
        return self.counters.rates.get(name)

    def number(self, name: str) -> int:
        """A field of INFO; 0 if it is missing or not a number."""
        try:
            return int(self.info.get(name, "0"))
        except ValueError:
            return 0


class Nodes:
    """All known nodes, by the address that the console uses for them.

    Attributes:
        apart: addresses of responding nodes that are in another cluster than most.
    """

    def __init__(self) -> None:
        self.apart: Set[str] = frozenset()
        self._states: dict[str, NodeState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def all(self) -> Sequence[NodeState]:
        """All, by address."""
        return sorted(self._states.values(), key=lambda state: state.address)

    def here(self) -> Sequence[NodeState]:
        """The nodes that respond."""
        return [state for state in self.all() if state.here]

    def get(self, address: str) -> NodeState | None:
        """A node; None if it is unknown."""
        return self._states.get(address)

    def by_id(self, id: str) -> NodeState | None:
        """The node with this id, preferably one that responds; None if it is unknown."""
        found = [state for state in self._states.values() if state.id == id]
        return max(found, key=lambda state: state.here, default=None)

    def meet(self, address: str, now: float) -> NodeState:
        """Add the node at ``address``, unless it is known."""
        return self._states.setdefault(address, NodeState(address, now))

    def responded(self, address: str, id: str, now: float) -> NodeState:
        """Note that a node has responded, with its id."""
        state = self.meet(address, now)
        if not state.here:
            state.since = now
        state.id, state.here, state.problem = id, True, ""
        return state

    def take(self, address: str, info: Mapping[str, str], lines: str, now: float) -> dict[str, int]:
        """Take replies to INFO and CLUSTER NODES. Returns how much the counters have grown since
        the last ones."""
        state = self.meet(address, now)
        state.info, state.lines = info, read_lines(lines)
        if not info:  # refused: growth until the next INFO must not become a rate
            state.counters.forget()
            return {}
        values = {
            name: sum(state.number(field) for field in fields) for name, fields in COUNTED.items()
        }
        return state.counters.read(values, now)

    def looked(self, address: str, complete: bool, refused: str, now: float) -> None:
        """Note the end of a poll: whether all its queues have been read, and any refusal."""
        state = self.meet(address, now)
        state.rounds += complete
        state.refused = refused

    def lost(self, address: str, problem: str, now: float) -> None:
        """Note that a node does not respond, and why. Its last values stay."""
        state = self.meet(address, now)
        if state.here or not state.problem:
            state.since = now
        state.here, state.problem, state.rounds = False, problem, 0
        state.counters.forget()

    def forget(self, address: str) -> None:
        """Remove a node that has left the cluster, or is known by another address."""
        self._states.pop(address, None)

    def rate(self, name: str) -> float | None:
        """The sum of a rate over the nodes that have it; None if none does."""
        rates = [state.counters.rates.get(name) for state in self._states.values() if state.here]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    def total(self, name: str) -> int:
        """The sum of a field of INFO over the nodes that respond."""
        return sum(state.number(name) for state in self._states.values() if state.here)
