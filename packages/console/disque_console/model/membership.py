"""How the nodes of a cluster see each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from disque_trio.overview.groups import CountedNode, Sibling
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


@dataclass(frozen=True, slots=True)
class Together:
    """The members that are one node to people.

    Attributes:
        group: their sums; None if only other nodes know them.
        members: one for each process, as far as known.
    """

    group: CountedNode | None
    members: Sequence[Member]

    @property
    def name(self) -> str:
        """The address of the node."""
        return self.members[0].address if self.group is None else self.group.name

    @property
    def unknown(self) -> Sequence[Sibling]:
        """Processes that are no members."""
        known = {member.id for member in self.members}
        return [one for one in self.group.absent if one.id not in known] if self.group else []


def together(found: Iterable[Member], known: Iterable[CountedNode]) -> list[Together]:
    """``found`` by node."""
    left = list(found)
    nodes = []
    for group in known:
        ids = {state.id for state in group.states} | {one.id for one in group.absent}
        places = {state.address for state in group.states}
        own = [member for member in left if member.address in places or (member.id or None) in ids]
        left = [member for member in left if member not in own]
        nodes.append(Together(group, own))
    nodes += [Together(None, [member]) for member in left]
    return sorted(nodes, key=lambda node: node.name)


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
