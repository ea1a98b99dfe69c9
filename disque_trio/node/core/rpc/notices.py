"""Collects what a turn has to tell other nodes about jobs that are copied, acknowledged or deleted.

Jobs are added and acknowledged by the dozen, and other nodes have to be told of each and confirm
it. What a turn has to tell one node about many jobs is sent as one packet at the end of the turn,
if that node is known to read such packets: because of a mark in its GOTACK, or because it sent one
itself. C Disque would ignore a packet that names several jobs; it gets one for each.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.rpc.settlements import Settlements
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter

MOST: Final = 1_000  # jobs in one packet
MOST_COPIED: Final = 32 * 1024  # bytes of several jobs in one packet


class Notices:
    """The packets about jobs that are sent at the end of the turn: announcements, then copies, then
    all others.

    Args:
        peers: the rest of the cluster.
        packets: makes this node's packets.
        settlements: sent after all of them.

    Attributes:
        waiting: ids of the jobs, by the node to tell, type, aux and mark.
        fields: whole packets in order, each with the node that gets it.
        copies: serialised jobs, by the nodes that get them and the flags of REPLJOB.
        announced: ids of the jobs, by the node to tell, QUEUED or WILLQUEUE, aux and mark.
    """

    def __init__(self, peers: Peers, packets: PacketWriter, settlements: Settlements) -> None:
        self.waiting: dict[tuple[bytes, int, int, int], list[bytes]] = {}
        self.copies: dict[tuple[tuple[bytes, ...], int], list[bytes]] = {}
        self.fields: list[tuple[bytes, bytes]] = []
        self.announced: dict[tuple[bytes, int, int, int], list[bytes]] = {}
        self._peers = peers
        self._packets = packets
        self._settlements = settlements
        self._readers: set[bytes] = set()
        self._reader = b""  # one of them
        # The last addition. The next is usually of the same kind.
        self._node = b""
        self._type = 0
        self._aux = 0
        self._mark = 0
        self._ids: list[bytes] = []

    def reads_many(self, node: bytes) -> None:
        """Note that ``node`` reads packets that name several jobs."""
        if node is not self._reader:
            self._readers.add(node)
            self._reader = node

    def is_read_by(self, node: bytes) -> bool:
        """Whether ``node`` reads packets that name several jobs; no C node does."""
        return node in self._readers

    def reads_one(self, node: bytes) -> None:
        """Assume that ``node`` no longer reads them: it did not answer, so it may run another
        program now."""
        self._readers.discard(node)
        self._reader = b""

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

    def copy(self, job: bytes, nodes: tuple[bytes, ...], flags: int) -> None:
        """Send REPLJOB for ``job``, which is serialised, to ``nodes``."""
        key = (nodes, flags)
        jobs = self.copies.get(key)
        if jobs is None:
            self.copies[key] = [job]
        else:
            jobs.append(job)

    def announce(self, node: bytes, type: int, id: bytes, aux: int = 0, mark: int = 0) -> None:
        """Tell ``node``, which has extensions, QUEUED or WILLQUEUE of the job ``id``, in one packet
        with those of other jobs; see ``PacketWriter.about_job``."""
        key = (node, type, aux, mark)
        ids = self.announced.get(key)
        if ids is None:
            self.announced[key] = [id]
        else:
            ids.append(id)

    def _send_announced(self) -> None:
        announced, self.announced = self.announced, {}
        for (node, type, aux, mark), ids in announced.items():
            for at in range(0, len(ids), MOST):
                packet = self._packets.about_jobs(type, ids[at : at + MOST], aux, mark)
                self._peers.send(node, packet)

    def send_in_order(self, node: bytes, packet: bytes) -> None:
        """Send a packet at once, unless others have to arrive before it: a node that was given a
        job, and then heard that it is in another queue, would take it out of its own."""
        if self.announced:
            self._send_announced()
        if self.fields:
            self.fields.append((node, packet))
        else:
            self._peers.send(node, packet)

    def send(self) -> None:
        """Send everything. Called at the end of the turn."""
        if self.announced:
            self._send_announced()
        if self.copies:
            copies, self.copies = self.copies, {}
            for (nodes, flags), jobs in copies.items():
                self._send_copies(jobs, nodes, flags)
        if self.fields:
            fields, self.fields = self.fields, []
            for node, packet in fields:
                self._peers.send(node, packet)
        waiting, self.waiting = self.waiting, {}
        for (node, type, aux, mark), ids in waiting.items():
            step = MOST if node in self._readers else 1
            for at in range(0, len(ids), step):
                packet = self._packets.about_jobs(type, ids[at : at + step], aux, mark)
                self._peers.send(node, packet)
        if self._settlements.ends or self._settlements.wants:
            self._settlements.send()

    def _send_copies(self, jobs: list[bytes], nodes: tuple[bytes, ...], flags: int) -> None:
        """Send ``jobs`` to ``nodes``, each of which gets as few packets as it can read."""
        if len(jobs) > 1:
            readers = self._readers
            others = tuple([node for node in nodes if node not in readers])
            if others:
                for job in jobs:
                    self._send_copies([job], others, flags)
                nodes = tuple([node for node in nodes if node in readers])
        at = 0
        while nodes and at < len(jobs):
            size = len(jobs[at])
            end = at + 1
            while end < len(jobs) and size + len(jobs[end]) <= MOST_COPIED:
                size += len(jobs[end])
                end += 1
            packet = self._packets.jobs(bus.REPLJOB, jobs[at:end], flags)
            for node in nodes:
                self._peers.send(node, packet)
            at = end

    def drop(self) -> None:
        """Forget everything but that jobs were acknowledged: the records of the turn could not be
        written. The acknowledgements get no mark, since they are not in the file here."""
        acks: dict[tuple[bytes, int, int, int], list[bytes]] = {}
        for (node, type, aux, _), ids in self.waiting.items():
            if type == bus.SETACK:
                acks.setdefault((node, type, aux, 0), []).extend(ids)
        self.waiting = acks
        self._node = b""  # the next addition is not of the same kind
        self.copies = {}
        self.fields = []
        self.announced = {}
