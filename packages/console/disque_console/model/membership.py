"""How the nodes of a cluster see each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from disque_trio.overview.nodes import NodeState, PeerView

ABOUT_ITSELF: Final = frozenset({"myself", "leaving"})
"""Flags that are not other nodes' opinions."""


@dataclass(frozen=True, slots=True)
class View:
    """How one node sees another. by: the address of the node that sees."""

    by: str
    line: PeerView


@dataclass(frozen=True, slots=True)
class Member:
    """A node, and how the responding nodes see it.

    Attributes:
        id, address: of the node; the id may be empty.
        state: what the console knows; None if only other nodes know it.
        views: how the others see it, by their address.
    """

    id: str
    address: str
    state: NodeState | None
    views: Sequence[View] = ()

    @property
    def links(self) -> int:
        """How many other nodes are connected to it."""
        return sum(view.line.connected for view in self.views)

    @property
    def flags(self) -> dict[str, list[str]]:
        """Problems with it, and the nodes that report them."""
        found: dict[str, list[str]] = {}
        for view in self.views:
            for flag in view.line.flags:
                if flag not in ABOUT_ITSELF:
                    found.setdefault(flag, []).append(view.by)
        return found

    @property
    def leaving(self) -> bool:
        """Whether it, or another node, says that it is leaving."""
        told = any("leaving" in view.line.flags for view in self.views)
        return told or (self.state is not None and self.state.leaving)

    def seen_by(self, address: str) -> PeerView | None:
        """How the node at this address sees it."""
        return next((view.line for view in self.views if view.by == address), None)


def members(states: Iterable[NodeState]) -> list[Member]:
    """All nodes known to the console or to a responding node, by address."""
    states = list(states)
    views: dict[str, list[View]] = {}
    told: dict[str, str] = {}  # addresses, by id
    for state in states:
        for line in state.lines if state.here else ():
            if "myself" not in line.flags:
                views.setdefault(line.id, []).append(View(state.address, line))
                told.setdefault(line.id, line.address)
    found = [
        Member(state.id, state.address, state, tuple(views.pop(state.id, ()))) for state in states
    ]
    found += [Member(id, told[id], None, tuple(seen)) for id, seen in views.items()]
    return sorted(found, key=lambda member: member.address)
