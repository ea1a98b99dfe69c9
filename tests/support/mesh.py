"""Several nodes in one test: they all know each other, and packets move only on request."""

from collections import deque
from collections.abc import Callable

from disque_trio.cluster.hosts import Hosts
from disque_trio.cluster.members import Member
from disque_trio.cluster.peers import Peers
from disque_trio.cluster.troubles import TROUBLE_FILE
from disque_trio.process.addresses import is_loopback
from disque_trio.protocol.bus import (
    DELJOB,
    GOTACK,
    GOTJOB,
    REPLJOB,
    SETACK,
    TYPE_NAMES,
    names_many,
    packet_type,
    read_jobs,
)
from tests.support.node_bench import START, Bench


class MeshPeers(Peers):
    """The other nodes of a mesh, as seen by one of them."""

    def __init__(self, mesh: "Mesh", index: int) -> None:
        super().__init__()
        self.mesh = mesh
        self.index = index
        self.away: set[bytes] = set()  # known, but not connected
        self.as_c: set[bytes] = set()  # nodes that appear to be C nodes
        self.forgotten: set[bytes] = set()  # no longer in the cluster
        self.mute: set[bytes] = set()  # connected, but still loading
        self.slow: set[bytes] = set()  # those that have not yet read earlier packets
        self.expected: set[bytes] = set()  # those that owe an answer
        self.hosts = Hosts()

    def everyone(self) -> list[bytes]:
        return [
            id for i, id in enumerate(self.mesh.ids) if i != self.index and id not in self.forgotten
        ]

    def knows(self, id: bytes) -> bool:
        return id in self.everyone()

    def linked(self, id: bytes) -> bool:
        return id not in self.away

    def answers(self, id: bytes) -> bool:
        return self.linked(id) and id not in self.mute

    def leaves(self, id: bytes) -> bool:
        return self.mesh[self.mesh.ids.index(id)].node.peers.leaving

    def cannot_write(self, id: bytes) -> bool:
        peers = self.mesh[self.mesh.ids.index(id)].node.peers
        return peers.trouble & TROUBLE_FILE != 0

    def behind(self, id: bytes) -> bool:
        return id in self.slow

    def expect(self, ids: list[bytes], now: int) -> None:
        self.expected.update(ids)

    def understands(self, id: bytes) -> bool:
        if id not in self.mesh.ids:
            return False
        other = self.mesh.ids.index(id)
        c_nodes = self.mesh.c_nodes
        return (
            other != self.index and id not in self.as_c and c_nodes.isdisjoint((self.index, other))
        )

    def settles(self, id: bytes) -> bool:
        other = self.mesh.ids.index(id) if id in self.mesh.ids else -1
        return self.understands(id) and self.mesh.older.isdisjoint((self.index, other))

    def keeps_lots(self, id: bytes) -> bool:
        return self.settles(id)  # which came in the same release

    def limits_groups(self, id: bytes) -> bool:
        return self.settles(id)

    def replaces_jobs(self, id: bytes) -> bool:
        return self.settles(id)

    def judge_extensions(self) -> None:
        """Compute whether jobs may have trailers, after a change of ``c_nodes``."""
        self.extended = not self.mesh.c_nodes

    def spread(self, ips: list[str]) -> None:
        """Place copies on different hosts; ``ips`` are those of the nodes of the mesh."""
        self.by_host = True
        known = {
            id: Member(id, ip, 1_000 + i, 0, 0)
            for i, (id, ip) in enumerate(zip(self.mesh.ids, ips, strict=True))
            if i != self.index
        }
        self.hosts.compute(ips[self.index], 1_000 + self.index, known, self.reachable, is_loopback)

    def places(self) -> int:
        return self.hosts.count if self.by_host else self.size

    def room(self, external: bool) -> int:
        return self.hosts.room(external) if self.by_host else len(self.reachable)

    def place(self, id: bytes) -> str:
        return self.hosts.of.get(id, "")

    def here(self) -> str:
        return self.hosts.here

    def partners(self) -> list[bytes]:
        return self.hosts.partners

    def send(self, id: bytes, packet: bytes) -> None:
        if id not in self.mesh.ids or id in self.away:
            return
        move = (self.index, self.mesh.ids.index(id), packet)
        self.mesh.log.append((move[0], TYPE_NAMES[packet_type(packet)], move[1]))
        self.mesh.moving.append(move)


class Mesh:
    """``size`` nodes. Nothing arrives before ``settle`` (or ``advance``) is called.

    Attributes:
        nodes: a Bench each. log: packets sent so far: from, type, to.
        moving: packets in transit.
        c_nodes: nodes that, like C nodes, neither write nor read the mark of a set of holders.
        older: nodes of a release that has neither SETTLED nor GIVEN, nor lots.
    """

    make: Callable[..., Bench] = Bench

    def __init__(
        self, size: int, seed: int = 1, maxmemory: int = 0, jitter: int | None = 0
    ) -> None:
        self.ids: list[bytes] = []
        self.moving: deque[tuple[int, int, bytes]] = deque()
        self.log: list[tuple[int, str, int]] = []
        self.nodes: list[Bench] = []
        self.peers: list[MeshPeers] = []
        self.lose: Callable[[int, int, bytes], bool] = lambda source, target, packet: False
        self.c_nodes: set[int] = set()
        self.older: set[int] = set()
        for index in range(size):
            peers = MeshPeers(self, index)
            bench = self.make(seed * 100 + index, peers=peers, maxmemory=maxmemory, jitter=jitter)
            bench.node.replicas.default_copies = 3  # most tests are about three holders
            self.peers.append(peers)
            self.nodes.append(bench)
            self.ids.append(bench.node.id)
        for peers in self.peers:
            peers.size = size
            peers.reachable = sorted(peers.everyone())

    def spread(self, *ips: str) -> None:
        """Place copies on different hosts; ``ips`` are those of the nodes."""
        for peers in self.peers:
            peers.spread(list(ips))

    def __getitem__(self, index: int) -> Bench:
        return self.nodes[index]

    def cut(self, a: int, b: int) -> None:
        """Block packets between two nodes, in both directions; those in transit are lost."""
        self.peers[a].away.add(self.ids[b])
        self.peers[b].away.add(self.ids[a])
        self.moving = deque(m for m in self.moving if {m[0], m[1]} != {a, b})

    def join(self, a: int, b: int) -> None:
        """Restore the connection."""
        self.peers[a].away.discard(self.ids[b])
        self.peers[b].away.discard(self.ids[a])
        self.peers[a].linked_to(self.ids[b], True)
        self.peers[b].linked_to(self.ids[a], True)

    def isolate(self, index: int) -> None:
        """Block packets between one node and all others."""
        for other in range(len(self.nodes)):
            if other != index:
                self.cut(index, other)

    def rejoin(self, index: int) -> None:
        """Restore all connections of one node."""
        for other in range(len(self.nodes)):
            if other != index:
                self.join(index, other)

    def forget(self, index: int) -> None:
        """Let a node be lost for good: all others forget it."""
        self.isolate(index)
        for other, peers in enumerate(self.peers):
            if other != index:
                peers.forgotten.add(self.ids[index])
                peers.size -= 1
                peers.reachable = sorted(id for id in peers.everyone() if id not in peers.away)
                peers.died(self.ids[index])

    def take_back(self, index: int) -> None:
        """Let a node that was forgotten be a member again."""
        for other, peers in enumerate(self.peers):
            if other != index:
                peers.forgotten.discard(self.ids[index])
                peers.size += 1
                peers.reachable = sorted(peers.everyone())
        self.rejoin(index)

    def settle(self) -> None:
        """Deliver all packets, and those that they cause."""
        self._commit()
        while self.moving:
            source, target, packet = self.moving.popleft()
            if not self.lose(source, target, packet):
                if not self.c_nodes.isdisjoint((source, target)):
                    packet = without_mark(packet)
                bench = self.nodes[target]
                bench.node.receive(self.ids[source], packet, bench.now)
            if not self.moving:
                self._commit()

    def _commit(self) -> None:
        for bench in self.nodes:
            bench.node.commit()

    def advance(self, seconds: float) -> None:
        """Let time pass on all nodes at once; packets arrive at once."""
        end = self.nodes[0].now + round(seconds * 1000)
        self.settle()
        while True:
            dues = [due for bench in self.nodes if (due := bench.node.next_wake())]
            now = min(dues, default=end)
            if now > end:
                break
            self._tick(max(now, self.nodes[0].now))
            if now == end and not dues:
                break
        self._tick(end)

    def _tick(self, now: int) -> None:
        for bench in self.nodes:
            bench.now = now
            bench.node.tick(now)
        self.settle()
        for bench in self.nodes:
            bench.node.replied()

    def told(self, *types: str) -> list[tuple[int, str, int]]:
        """The packets sent since the last call, of ``types`` if given, sorted."""
        found = [entry for entry in self.log if not types or entry[1] in types]
        self.log.clear()
        return sorted(found)

    def add(self, index: int, *args: str | int) -> bytes:
        """ADDJOB q body 0 ... on a node, with its copies. Returns the id."""
        bench = self.nodes[index]
        bench.send(bench.me, "ADDJOB", "q", "body", 0, *args)
        self.settle()
        (reply,) = bench.replies(bench.me)
        assert isinstance(reply, (bytes, str)), reply
        return reply if isinstance(reply, bytes) else reply.encode()

    def holders(self, id: bytes) -> list[int]:
        """The nodes that know the job ``id``."""
        return [
            i for i, bench in enumerate(self.nodes) if bench.node.store.jobs.get(id) is not None
        ]

    def states(self, id: bytes) -> list[str]:
        """The state of the job on each node; "" if unknown."""
        return [
            str(bench.show(id)[b"state"], "ascii") if bench.held(id) else ""  # type: ignore[arg-type]
            for bench in self.nodes
        ]


def without_mark(packet: bytes) -> bytes:
    """``packet`` as a C node would send it."""
    type = packet_type(packet)
    if type == REPLJOB:
        assert len(read_jobs(packet).jobs) == 1
    if type == GOTJOB:
        assert not names_many(packet)
    if type not in (SETACK, GOTACK, DELJOB):
        return packet
    assert not names_many(packet)
    return packet[:142] + b"\0\0" + packet[144:]


__all__ = ["START", "Mesh"]
