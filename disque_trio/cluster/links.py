"""The interface of the connections that the membership uses.

The server implements it with sockets, simulations with a model of a network. Between two nodes
there are two links: each node sends everything over the link that it opened, except that a PONG
goes back over the link on which the PING came.
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
        answered: the other side has answered over it.
        local_ip, remote_ip: text; empty until the other side has answered.
        node_id: id of the member it belongs to, for the membership; None for an incoming link.
        refused: it could not be opened since no process listens at the other side.
        peer, key: id and public key that the other side has proved (cluster-identity); empty: it
            has shown no identity.
    """

    def __init__(self, outgoing: bool) -> None:
        self.outgoing = outgoing
        self.up = False
        self.answered = False
        self.local_ip = ""
        self.remote_ip = ""
        self.node_id: bytes | None = None
        self.refused = False
        self.peer = b""
        self.key = b""

    def send(self, packet: bytes) -> None:
        """Send ``packet`` with the others of this turn. Does nothing unless the link is ``up``."""
        raise NotImplementedError

    def behind(self) -> bool:
        """Whether what was sent in earlier turns still waits on this side."""
        return False

    def close(self) -> None:
        """Close the connection at once and silently: ``lost`` is not called for it."""
        raise NotImplementedError


Connect: TypeAlias = Callable[[str, int], Link]
"""Begins to open a link to the bus at an ip and a port (of the bus, not for clients). The
membership's ``opened`` is called when it is up and ``lost`` when it fails or breaks, never from
within this call."""


class LinkOwner(Protocol):
    """Receives the events of links; the membership implements it."""

    config_changed: bool

    def opened(self, link: Link, now: int) -> None: ...
    def accepted(self, link: Link, now: int) -> None: ...
    def lost(self, link: Link, now: int) -> None: ...
    def receive(self, link: Link, packet: bytes, now: int) -> bytes: ...
    def knows(self, id: bytes) -> bool: ...
