"""The nodes of the cluster: what each says of itself, and since when it says nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_trio.console.model.rates import Counters

COUNTED: Final = {
    "added": ("total_jobs_added",),
    "delivered": ("total_jobs_delivered",),
    "acked": ("total_jobs_acked",),
    "failed": ("total_jobs_requeued", "total_jobs_dead", "total_jobs_expired"),
}
"""What the overview counts, and the fields of INFO that it is the sum of."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one node says of another, or of itself: a line of CLUSTER NODES.

    Attributes:
        id, address: of the node it is about.
        flags: ``myself``, ``fail``, ``fail?``, ``leaving``, ``handshake``, ``noaddr``.
        ping_sent, pong_received: ms since the epoch; 0: none.
        connected: whether there is a link.
    """

    id: str
    address: str
    flags: tuple[str, ...]
    ping_sent: int
    pong_received: int
    connected: bool


def read_lines(text: str) -> tuple[Line, ...]:
    """The lines of CLUSTER NODES; what cannot be read is left out."""
    found = []
    for words in map(str.split, text.splitlines()):
        if len(words) >= 6 and words[3].isdecimal() and words[4].isdecimal():
            flags = tuple(flag for flag in words[2].split(",") if flag != "noflags")
            times = int(words[3]), int(words[4])
            found.append(Line(words[0], words[1], flags, *times, words[5] == "connected"))
    return tuple(found)


@dataclass(slots=True)
class NodeState:
    """One node, by the address that the console uses.

    Attributes:
        id: empty until it has answered.
        since: when it came, or went away (s since the epoch).
        here: whether it answers. problem: why it does not; empty while nothing was tried.
        info: the fields of INFO, as they were last. lines: of CLUSTER NODES.
        counters: what it counts.
    """

    address: str
    since: float
    id: str = ""
    here: bool = False
    problem: str = ""
    info: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    counters: Counters = field(default_factory=Counters)

    @property
    def leaving(self) -> bool:
        """Whether it is about to leave the cluster."""
        return any("myself" in line.flags and "leaving" in line.flags for line in self.lines)

    @property
    def status(self) -> str:
        """``here``, ``leaving``, ``away``, or ``connecting`` before the first answer."""
        if self.here:
            return "leaving" if self.leaving else "here"
        return "away" if self.problem else "connecting"

    def number(self, name: str) -> int:
        """A field of INFO; 0 if it is not there, or no number."""
        try:
            return int(self.info.get(name, "0"))
        except ValueError:
            return 0


class Nodes:
    """All nodes that are known, by the address that the console uses for them."""

    def __init__(self) -> None:
        self._states: dict[str, NodeState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def all(self) -> Sequence[NodeState]:
        """All, by address."""
        return sorted(self._states.values(), key=lambda state: state.address)

    def here(self) -> Sequence[NodeState]:
        """Those that answer."""
        return [state for state in self.all() if state.here]

    def get(self, address: str) -> NodeState | None:
        """One of them; None: it is not known."""
        return self._states.get(address)

    def by_id(self, id: str) -> NodeState | None:
        """The one with this id, rather one that answers; None: it is not known."""
        found = [state for state in self._states.values() if state.id == id]
        return max(found, key=lambda state: state.here, default=None)

    def meet(self, address: str, now: float) -> NodeState:
        """Know of a node at ``address``."""
        return self._states.setdefault(address, NodeState(address, now))

    def came(self, address: str, id: str, now: float) -> NodeState:
        """It has answered, with its id."""
        state = self.meet(address, now)
        if not state.here:
            state.since = now
        state.id, state.here, state.problem = id, True, ""
        return state

    def told(self, address: str, info: Mapping[str, str], lines: str, now: float) -> dict[str, int]:
        """What INFO and CLUSTER NODES said. Returns what it counted since it told last."""
        state = self.meet(address, now)
        state.info, state.lines = info, read_lines(lines)
        values = {
            name: sum(state.number(field) for field in fields) for name, fields in COUNTED.items()
        }
        return state.counters.read(values, now)

    def went(self, address: str, problem: str, now: float) -> None:
        """It does not answer, and why. What it told last stays."""
        state = self.meet(address, now)
        if state.here or not state.problem:
            state.since = now
        state.here, state.problem = False, problem
        state.counters.forget()

    def forget(self, address: str) -> None:
        """It is no node of the cluster any more, or is known by another address."""
        self._states.pop(address, None)

    def rate(self, name: str) -> float | None:
        """The sum of a rate over the nodes that tell it; None: none does."""
        rates = [state.counters.rates.get(name) for state in self._states.values() if state.here]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    def total(self, name: str) -> int:
        """The sum of a field of INFO over the nodes that answer."""
        return sum(state.number(name) for state in self._states.values() if state.here)

    @property
    def whole(self) -> bool:
        """Whether all nodes answer."""
        return all(state.here for state in self._states.values())
