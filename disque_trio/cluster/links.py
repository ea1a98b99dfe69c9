"""Connections between nodes as the membership sees them.

``Link`` and ``Network`` are interfaces: sockets implement them in the server, a model of a network
in simulations. Between two nodes there are two links: each sends all it has to say over the one
that it opened; only a PONG goes back over the link that the PING came on.
"""


class Link:
    """One connection.

    Attributes:
        outgoing: this node opened it.
        up: packets can be sent over it.
        local_ip, remote_ip: text; empty while it is not up.
        node_id: id of the member it belongs to, for the membership; None for an incoming one.
    """

    __slots__ = ("local_ip", "node_id", "outgoing", "remote_ip", "up")

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


class Network:
    """Opens links."""

    def connect(self, ip: str, port: int) -> Link:
        """Begin to open a link to the bus at ``ip`` and ``port`` (of the bus, not of clients).

        The membership's ``opened`` is called when it is up and ``lost`` when it fails or breaks,
        never from within this call.
        """
        raise NotImplementedError
