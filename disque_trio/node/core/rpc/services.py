"""What the parts of a node share: the machine, and the ways to the other nodes."""

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.rpc.calls import Rpc
from disque_trio.node.core.rpc.notices import Notices
from disque_trio.node.core.rpc.settlements import Settlements
from disque_trio.protocol.bus import PacketWriter
from disque_trio.respserver.machine import Machine
from disque_trio.rng import Rng


class Services:
    """Made once for a node. Whoever uses one of them for each job keeps it: compiled, each step
    through an object costs some four instructions.

    Args:
        machine: provides the time, the memory account and the journal.
        peers: the rest of the cluster.
        packets: makes this node's packets.
        rng: spreads times on purpose.

    Attributes:
        notices, settlements: for other nodes, at the end of the turn.
        rpc: calls to other nodes. timer: when these, and other rare work, have something to do.
    """

    def __init__(self, machine: Machine, peers: Peers, packets: PacketWriter, rng: Rng) -> None:
        self.machine = machine
        self.peers = peers
        self.packets = packets
        self.rng = rng
        self.rpc = Rpc(machine, peers, packets)
        self.timer = self.rpc.timer
        self.settlements = Settlements(machine, peers, packets, self.timer)
        self.notices = Notices(peers, packets, self.settlements)
