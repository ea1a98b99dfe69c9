"""The interface of the connections that the membership uses.

Sockets implement it in the server, a model of a network in simulations. Between two nodes there are
two links: each node sends all it has to say over the one that it opened; only a PONG goes back over
the link that the PING came on.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from disque_trio.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Link:
    """One connection to another node.

    Attributes:
        outgoing: this node opened it.
        up: packets can be sent over it.
        local_ip, remote_ip: text; empty as long as the other side has not answered at all.
        node_id: id of the member it belongs to, for the membership; None for an incoming one.
    """

    def __init__(self, outgoing: bool) -> None:
        self.outgoing = outgoing
        self.up = False
        self.local_ip = ""
        self.remote_ip = ""
        self.node_id: bytes | None = None

    def send(self, packet: bytes) -> None:
        """Send ``packet`` with the others of this turn. Nothing happens unless it is ``up``."""
        raise NotImplementedError

    def behind(self) -> bool:
        """Whether what was sent in earlier turns still waits at this side."""
        return False

    def close(self) -> None:
        """Drop the connection, at once and silently: ``lost`` is not called for it."""
        raise NotImplementedError


Connect: TypeAlias = Callable[[str, int], Link]
"""Begins to open a link to the bus at an ip and a port (of the bus, not of clients). The
membership's ``opened`` is called when it is up and ``lost`` when it fails or breaks, never from
within this call."""


class LinkOwner(Protocol):
    """Receives the events of links: the membership, whose methods these are."""

    config_changed: bool

    def opened(self, link: Link, now: int) -> None: ...
    def accepted(self, link: Link, now: int) -> None: ...
    def lost(self, link: Link, now: int) -> None: ...
    def receive(self, link: Link, packet: bytes, now: int) -> bytes: ...
    def knows(self, id: bytes) -> bool: ...
