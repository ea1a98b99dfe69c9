"""Gathers what a turn has to tell other nodes about acknowledged jobs.

Consumers acknowledge jobs by the dozen, and each of them has to be told to another node, which
confirms it. What is to be said of many jobs to one node leaves as one packet at the end of the
turn, if that node is known to read such packets: it said so by a mark in a GOTACK, or it sent one
itself. C Disque would pass over a packet that names several jobs; it gets one for each.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.protocol.bus import PacketWriter

MOST: Final = 1_000  # jobs that one packet names


class Notices:
    """The packets about acknowledged jobs that leave at the end of the turn.

    Args:
        peers: the rest of the cluster.
        packets: makes this node's packets.

    Attributes:
        waiting: ids of the jobs, by the node that is to be told, the type, aux and mark.
    """

    def __init__(self, peers: Peers, packets: PacketWriter) -> None:
        self.waiting: dict[tuple[bytes, int, int, int], list[bytes]] = {}
        self._peers = peers
        self._packets = packets
        self._readers: set[bytes] = set()
        # What was added last. The next is mostly of the same kind.
        self._node = b""
        self._type = 0
        self._aux = 0
        self._mark = 0
        self._ids: list[bytes] = []

    def reads_many(self, node: bytes) -> None:
        """``node`` reads packets that name several jobs."""
        self._readers.add(node)

    def is_read_by(self, node: bytes) -> bool:
        """Whether ``node`` reads packets that name several jobs; no C node does."""
        return node in self._readers

    def reads_one(self, node: bytes) -> None:
        """``node`` did not answer: if another program runs there now, it may not read them."""
        self._readers.discard(node)

    def add(self, node: bytes, type: int, id: bytes, aux: int, mark: int) -> None:
        """Tell ``node`` about the job ``id``; see ``PacketWriter.about_job``."""
        if (
            type != self._type
            or aux != self._aux
            or mark != self._mark
            or node != self._node
            or not self.waiting
        ):
            key = (node, type, aux, mark)
            ids = self.waiting.get(key)
            if ids is None:
                ids = self.waiting[key] = []
            self._node, self._type, self._aux, self._mark = key
            self._ids = ids
        self._ids.append(id)

    def send(self) -> None:
        """Let them leave; called at the end of the turn."""
        waiting, self.waiting = self.waiting, {}
        for (node, type, aux, mark), ids in waiting.items():
            step = MOST if node in self._readers else 1
            for at in range(0, len(ids), step):
                packet = self._packets.about_jobs(type, ids[at : at + step], aux, mark)
                self._peers.send(node, packet)

    def drop(self) -> None:
        """Forget them: what the turn noted is not on disk."""
        self.waiting = {}
