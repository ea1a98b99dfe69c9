"""The rest of the cluster as the state machine sees it.

``Peers`` is the interface; a node that runs alone uses it as it is. The calls that tell other
nodes something are effects: what implements them sends, the state machine never waits for it.
"""

from disque_trio.core.job import Job


class Peer:
    """One line of HELLO.

    Attributes:
        id: 40 bytes. ip: text, empty until learned. port: of its clients.
        priority: lower is better.
    """

    __slots__ = ("id", "ip", "port", "priority")

    def __init__(self, id: bytes, ip: str, port: int, priority: int) -> None:
        self.id = id
        self.ip = ip
        self.port = port
        self.priority = priority


class Peers:
    """A cluster of one.

    Attributes:
        size: nodes known, this one included, handshakes not.
        reachable: other nodes that can take a copy now.
    """

    def __init__(self) -> None:
        self.size = 1
        self.reachable = 0

    def others(self) -> list[Peer]:
        """The other nodes, for HELLO."""
        return []

    def tell_queued(self, job: Job, nack: bool) -> None:
        """``job`` was queued again: the other holders count it and push their own time back."""

    def tell_working(self, job: Job) -> None:
        """A worker asked for more time for ``job``."""

    def tell_deleted(self, job_id: bytes, job: Job | None) -> None:
        """Delete the copies of ``job``; when it is not known here (None), all nodes are asked."""

    def tell_paused(self, queue: bytes, paused: int) -> None:
        """Set the pause bits of ``queue`` everywhere."""

    def collect(self, job: Job) -> None:
        """Try to bring the acknowledge of ``job`` to all that may hold a copy."""
