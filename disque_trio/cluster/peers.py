"""The rest of the cluster as the state machine of the jobs sees it.

``Peers`` is the interface; a node that runs alone uses it as it is, and ``cluster.membership``
implements it for other nodes. Sending is an effect: packets leave at the end of the turn, when the
node's records are in its append-only file, and may be lost.
"""

from collections.abc import Callable
from typing import NamedTuple

from disque_trio.cluster.trust import Trust
from disque_trio.native import mypyc_attr


class Peer(NamedTuple):
    """A node as HELLO lists it.

    Attributes:
        id: 40 bytes.
        ip: text, empty until learned.
        port: for clients.
        priority: lower is better.
        tls_port: for clients with TLS; 0: none, or unknown.
        process: which one of its server it is (see ``bus.sender_process``).
    """

    id: bytes
    ip: str
    port: int
    priority: int
    tls_port: int = 0
    process: bytes = b""


class Obstacle(NamedTuple):
    """A node that can take no copy now.

    Attributes:
        address: ``ip:port``.
        why: what it does or is, to follow the address.
        trouble: what it announced; 0: it cannot be reached, or is leaving.
    """

    address: str
    why: str
    trouble: int


class Lost(NamedTuple):
    """A node that does not answer.

    Attributes:
        id: 40 bytes.
        address: ``ip:port``.
        silent: for how many ms, if that is known; otherwise 0.
        agreed: most nodes agree that it is down.
    """

    id: bytes
    address: str
    silent: int
    agreed: bool


@mypyc_attr(allow_interpreted_subclasses=True)
class Peers:
    """The interface to the other nodes; by itself, a cluster of one.

    Attributes:
        size: number of known nodes, including this one, without handshakes.
        reachable: ids of the other nodes that are neither failing nor leaving.
        trouble: what keeps this node from taking copies, or makes it slow (see ``troubles``).
        by_host: copies have to be on different hosts, and several nodes on one count as one.
        extended: jobs may have trailers: all nodes know them, or the settings say so.
        plain: cluster-extensions is no: there are no trailers in files and packets.
        trust: the keys of nodes; None: nodes show no identity.
        messages_sent, messages_received: number of packets on the bus.
        linked_to: called with the id of a node that can be told things, and whether it could be
            before: then it may have started again, and forgotten what it was asked.
        died: called with the id of a node that ``tells``, when it is certain that it is dead.
    """

    def __init__(self) -> None:
        self.size = 1
        self.reachable: list[bytes] = []
        self.trouble = 0
        self.by_host = False
        self.extended = True
        self.plain = False
        self.messages_sent = 0
        self.messages_received = 0
        self.linked_to: Callable[[bytes, bool], None] = _nobody
        self.died: Callable[[bytes], None] = _nobody_died
        self.trust: Trust | None = None
        self._leaving = False

    # ---- for the jobs -----------------------------------------------------------------------

    @property
    def leaving(self) -> bool:
        """Whether this node is about to leave the cluster: then it takes no new jobs."""
        return self._leaving

    @property
    def own_process(self) -> bytes:
        """Which process of its server this node is (see ``bus.sender_process``)."""
        return b""

    @property
    def tls_port(self) -> int:
        """The port of this node for clients with TLS, as announced to others; 0: none."""
        return 0

    def everyone(self) -> list[bytes]:
        """Ids of all other known nodes, without handshakes."""
        return []

    def knows(self, id: bytes) -> bool:
        """Whether ``id`` is another known node, not a handshake."""
        return False

    def understands(self, id: bytes) -> bool:
        """Whether this node and the node ``id`` have told each other, in the headers of their
        packets, that they know more than C nodes."""
        return False

    def tells(self, id: bytes) -> bool:
        """Whether the node ``id`` tells which jobs its clients have, and hears that of others."""
        return self.understands(id)

    def settles(self, id: bytes) -> bool:
        """Whether the node ``id`` and this one tell each other many ends of jobs at once, and give
        jobs in packets of their own."""
        return self.understands(id)

    def keeps_lots(self, id: bytes) -> bool:
        """Whether the node ``id`` hears, and tells, of many jobs at once that they stay in a
        queue."""
        return self.understands(id)

    def limits_groups(self, id: bytes) -> bool:
        """Whether the node ``id`` keeps groups of jobs within limits."""
        return self.understands(id)

    def replaces_jobs(self, id: bytes) -> bool:
        """Whether the node ``id`` knows keys that are free when their job starts, and replaces jobs
        that have them."""
        return self.understands(id)

    def places(self) -> int:
        """Return how many copies a job could have if all nodes were well: nodes, or hosts."""
        return self.size

    def takers(self) -> list[bytes]:
        """Ids of the reachable nodes that can take copies."""
        return self.reachable

    def obstacles(self) -> list[Obstacle]:
        """The other nodes that can take no copies."""
        return []

    def room(self, external: bool) -> int:
        """Return how many copies other nodes can take now.

        ``external``: this node holds none, so another node on its host counts as well.
        """
        return len(self.takers())

    def place(self, id: bytes) -> str:
        """The host of the node ``id``, if ``by_host``; that of this node's host is ``here``. Empty:
        it is not known."""
        return ""

    def here(self) -> str:
        """This node's own host, if ``by_host``; empty until it is known."""
        return ""

    def partners(self) -> list[bytes]:
        """One reachable node on each other host to have this node's copies, if ``by_host``: few
        pairs that talk much are cheaper than many."""
        return []

    def linked(self, id: bytes) -> bool:
        """Whether there is a connection to the node ``id`` now."""
        return False

    def answers(self, id: bytes) -> bool:
        """Whether the node ``id`` has answered over the connection that there is now: a node that
        still loads its jobs does not, and knows nothing yet."""
        return self.linked(id)

    def leaves(self, id: bytes) -> bool:
        """Whether the node ``id`` is about to leave the cluster."""
        return False

    def cannot_write(self, id: bytes) -> bool:
        """Whether the node ``id`` says that it cannot write its file."""
        return False

    def has_slow_disk(self, id: bytes) -> bool:
        """Whether the node ``id`` says that its disk is slow."""
        return False

    def behind(self, id: bytes) -> bool:
        """Whether the node ``id`` has not yet taken what was sent to it in earlier turns."""
        return False

    def expect(self, ids: list[bytes], now: int) -> None:
        """Note that the nodes ``ids`` owe an answer at ``now`` (ms). One that then sends nothing at
        all for the node timeout is no longer reachable."""

    def send(self, id: bytes, packet: bytes) -> None:
        """Send ``packet`` to the node ``id``; it is lost if there is no connection."""

    # ---- for HELLO, CLUSTER and INFO -----------------------------------------------------------

    def others(self) -> list[Peer]:
        """The other nodes, including handshakes, for HELLO."""
        return []

    def endpoint(self) -> tuple[str, int]:
        """This node's own ip (empty until it is learned) and port."""
        return "", 0

    def describe(self) -> str:
        """The text of CLUSTER NODES."""
        return ""

    def meet(self, ip: str, port: int, key: bytes = b"") -> None:
        """Begin a handshake with the node at ``ip`` and client port ``port``, both valid. ``key``:
        the public key that it has to show; empty: any."""

    def forget(self, id: bytes) -> bool:
        """Forget the node ``id`` and do not accept it again for a minute. False: unknown."""
        return False

    def reset(self, id: bytes) -> None:
        """Forget all other nodes; this node continues as ``id``."""

    def set_leaving(self, leaving: bool) -> None:
        """Say, here and to the others, whether this node is about to leave."""
        self._leaving = leaving

    def set_trouble(self, trouble: int) -> None:
        """Tell the others what keeps this node from taking copies; 0: nothing."""
        self.trouble = trouble

    def save(self) -> str | None:
        """Write what is known of the cluster to disk. Return why that failed, or None."""
        return None


def _nobody(id: bytes, again: bool) -> None:
    pass


def _nobody_died(id: bytes) -> None:
    pass
