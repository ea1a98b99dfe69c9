"""The nodes of a cluster in this process: real links over the loopback, turns run by hand.

This includes the whole cost of a packet: epoll, system calls, parser, membership, dispatch, state
machine, and the packets sent at the end of a turn. It excludes heartbeats.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack

from disque_trio.cluster.bus import Bus
from disque_trio.cluster.buslinks import BusLinks
from disque_trio.cluster.membership import Membership
from disque_trio.cluster.nodes_conf import NodeLine, format_nodes
from disque_trio.config import Config
from disque_trio.process.addresses import BUS_OFFSET
from disque_trio.process.logs import Logging
from disque_trio.protocol.bus import NODE_MYSELF, PacketWriter
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from tools.bench.inprocess import START, Desk, StillClock, make_node
from tools.bench.servers import HOST
from tools.ports import free_port

MOST_SWEEPS = 10_000
PATIENCE = 0.01  # s that a turn waits for bytes in transit


class _Member:
    """One of the nodes.

    Attributes:
        desk: its engine and a client of it. bus: its links to the others.
        listener: where the others connect.
    """

    def __init__(self, number: int) -> None:
        self._logging = Logging(level="warning", path=os.devnull)
        log = self._logging.log
        config = Config({"appendonly": False})
        self.stats = Stats()
        self.port = free_port()
        self.listener = socket.create_server((HOST, self.port + BUS_OFFSET))
        rng = random.Random(number)
        self.packets = PacketWriter(b"%040x" % rng.getrandbits(160), self.port)
        poller = Poller()
        links = BusLinks(config, self.stats, log, poller)
        self.membership = Membership(self.packets, links.connect, rng)
        node = make_node(self.membership, number, packets=self.packets)
        node.replicas.default_copies = 3  # as on C nodes
        wants_copy = node.replication.wants_copy
        clock = StillClock()
        self.bus = Bus(
            *(links, self.membership, node.receive, wants_copy, lambda: None),
            *(config, clock, self.stats, log),
        )
        self.desk = Desk(node, bus=self.bus, poller=poller)

    def line(self, flags: int = 0) -> NodeLine:
        """This node's line in nodes.conf."""
        return NodeLine(self.packets.id, HOST, self.port, flags)

    def close(self) -> None:
        """Close everything."""
        self.desk.close()
        self.listener.close()
        self._logging.close()


class ClusterDesk:
    """A cluster of ``count`` nodes with a client at the first one, used like a ``Desk``: a turn
    ends when nothing is in transit between the nodes.

    Raises:
        RuntimeError: the nodes do not join (or, in ``turn``, do not come to rest).
    """

    def __init__(self, count: int) -> None:
        self._end = ExitStack()
        with self._end:
            self.members = [_Member(number) for number in range(1, count + 1)]
            for member in self.members:
                self._end.callback(member.close)
            self._join()
            self._end = self._end.pop_all()
        first = self.members[0].desk
        self.send = first.send
        self.replies = first.replies

    def _join(self) -> None:
        for member in self.members:
            others = [other.line() for other in self.members if other is not member]
            text = format_nodes([member.line(NODE_MYSELF), *others])
            member.membership.load_conf(text, START)
            member.membership.cron(START)  # starts connecting
        for member in self.members:
            for _ in range(len(self.members) - 1):
                sock, _address = member.listener.accept()
                sock.setblocking(False)
                member.bus.admit(sock, HOST, False)
        self.turn()
        for member in self.members:
            membership = member.membership
            if not all(map(membership.linked, membership.everyone())):
                raise RuntimeError("the nodes do not join")

    def turn(self) -> None:
        """Serve the requests until no node has anything left to do."""
        engines = [member.desk.engine for member in self.members]
        for _ in range(MOST_SWEEPS):
            turns = sum(engine.poll(0.0) for engine in engines)
            if not turns and not self._under_way():
                return
        raise RuntimeError("the nodes do not come to rest")

    def _under_way(self) -> bool:
        """Whether bytes were sent but not read yet: a busy kernel may be slow."""
        stats = [member.stats for member in self.members]
        sent = sum(one.cluster_output_bytes for one in stats)
        if sent == sum(one.cluster_input_bytes for one in stats):
            return False
        for member in self.members:
            member.desk.engine.poll(PATIENCE)
        return True

    def held(self) -> int:
        """The total number of jobs on all nodes."""
        return sum(member.desk.machine.held() for member in self.members)

    def close(self) -> None:
        """Close everything."""
        self._end.close()
