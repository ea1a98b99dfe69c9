"""What the nodes of a cluster say of each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from disque_trio.console.model.nodes import Line, NodeState

ABOUT_ITSELF: Final = frozenset({"myself", "leaving"})
"""Flags that are not opinions of the others."""


@dataclass(frozen=True, slots=True)
class View:
    """What one node says of another one. by: its address."""

    by: str
    line: Line


@dataclass(frozen=True, slots=True)
class Member:
    """A node, and what those that answer say of it.

    Attributes:
        id, address: of it; the id may be empty.
        state: what the console knows; None: it has only been told of.
        views: what the others say, by their address.
    """

    id: str
    address: str
    state: NodeState | None
    views: Sequence[View] = ()

    @property
    def links(self) -> int:
        """How many others are connected to it."""
        return sum(view.line.connected for view in self.views)

    @property
    def flags(self) -> dict[str, list[str]]:
        """What is wrong with it, and who says so."""
        found: dict[str, list[str]] = {}
        for view in self.views:
            for flag in view.line.flags:
                if flag not in ABOUT_ITSELF:
                    found.setdefault(flag, []).append(view.by)
        return found

    @property
    def leaving(self) -> bool:
        """Whether it, or somebody of it, says that it is about to leave."""
        told = any("leaving" in view.line.flags for view in self.views)
        return told or (self.state is not None and self.state.leaving)

    def seen_by(self, address: str) -> Line | None:
        """What the node at this address says of it."""
        return next((view.line for view in self.views if view.by == address), None)


def members(states: Iterable[NodeState]) -> list[Member]:
    """All nodes that are known, or that somebody who answers tells of; by address."""
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
