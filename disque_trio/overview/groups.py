"""Which of the nodes are processes of one server, which people see as one node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from disque_trio.overview.nodes import NodeState

MOST: Final = 64  # processes of a server


@dataclass(frozen=True, slots=True)
class Sibling:
    """A process of a server, as one of them tells of it.

    Attributes:
        number: from 0. state: ``up``, ``loading``, ``silent`` or ``down``.
        id, address: of its node; empty if it has not been there since the other one started.
    """

    number: int
    state: str
    id: str
    address: str


def siblings(info: Mapping[str, str]) -> tuple[Sibling, ...]:
    """The processes of the server of a node, given its fields of INFO; none: it has one, or is of
    an older release."""
    found = []
    for number in range(MOST):
        line = info.get(f"process{number}")
        if line is None:
            break
        fields = dict(word.partition("=")[::2] for word in line.split(","))
        words = (fields.get(name, "") for name in ("state", "id", "address"))
        found.append(Sibling(number, *words))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CountedNode:
    """A node as people count them: all processes of a server.

    Attributes:
        states: of its processes, as far as known, in their order.
        absent: processes that only others tell of.
    """

    states: tuple[NodeState, ...]
    absent: tuple[Sibling, ...] = ()

    @property
    def count(self) -> int:
        """How many processes it has."""
        return len(self.states) + len(self.absent)

    @property
    def here(self) -> tuple[NodeState, ...]:
        """The processes that respond."""
        return tuple(state for state in self.states if state.here)

    @property
    def missing(self) -> list[str]:
        """The processes that do not respond: their addresses, or numbers."""
        away = [state.address for state in self.states if not state.here]
        return away + [one.address or f"process {one.number}" for one in self.absent]

    @property
    def name(self) -> str:
        """The address of its first process, by which unaware clients reach all of them."""
        if self.absent and self.absent[0].number == 0 and self.absent[0].address:
            return self.absent[0].address
        return self.states[0].address

    @property
    def status(self) -> str:
        """See ``NodeState.status``; ``partly`` if some processes do not respond."""
        if self.here and len(self.here) < self.count:
            return "partly"
        return (self.here or self.states)[0].status

    @property
    def since(self) -> float:
        """When it became reachable or unreachable."""
        return (self.here or self.states)[0].since

    @property
    def problem(self) -> str:
        """Why it does not respond."""
        return "" if self.here else self.states[0].problem

    @property
    def versions(self) -> list[str]:
        """The releases of its processes, without repetition."""
        told = (state.info.get("disque_version", "") for state in self.states)
        return list(filter(None, dict.fromkeys(told)))

    def number(self, name: str) -> int:
        """The sum of a field of INFO over the processes that respond; if none does, over all."""
        return sum(state.number(name) for state in self.here or self.states)

    def rate(self, name: str) -> float | None:
        """The sum of a rate over the processes that have it; None if none does."""
        rates = [state.counters.rates.get(name) for state in self.here]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None


def groups(states: Iterable[NodeState]) -> list[CountedNode]:
    """The nodes as people count them, by name."""
    found: list[tuple[set[str], list[NodeState]]] = []
    for state in states:
        ids = {sibling.id for sibling in siblings(state.info)} - {""} | {state.id or state.address}
        near = [entry for entry in found if entry[0] & ids]
        found = [entry for entry in found if entry not in near]
        merged = [other for _, others in near for other in others]
        found.append((ids.union(*(some for some, _ in near)), [*merged, state]))
    return sorted((_group(members) for _, members in found), key=lambda group: group.name)


def _group(states: list[NodeState]) -> CountedNode:
    """The group of nodes that are processes of one server."""
    # Those that respond know best who is there.
    told = max(states, key=lambda state: (state.here, len(siblings(state.info))))
    known = siblings(told.info)
    places = {sibling.id: sibling.number for sibling in known if sibling.id}
    ordered = sorted(states, key=lambda state: (places.get(state.id, MOST), state.address))
    seen = {state.id for state in states} | {state.address for state in states}
    absent = [one for one in known if one.id not in seen and one.address not in seen]
    return CountedNode(tuple(ordered), tuple(absent))
