"""Membership: who is in the cluster, and who of them is alive.

A state machine: the driver opens links, passes the time in, and brings packets. ``heartbeat`` is
its part that follows the time, ``hearing`` the one that follows what other nodes say; here is what
commands ask for and what is kept on disk.

How a node gets in: a handshake begins with an address, from CLUSTER MEET, from the MEET of a
stranger, or from what a member tells of others. A link is opened to it and a MEET sent (a PING to
one that sent a MEET itself). Its PONG says the id, which ends the handshake. A MEET makes the other
side begin a handshake in return; a PING of a stranger is answered and changes nothing.
"""

from disque_trio.cluster.addresses import is_port
from disque_trio.cluster.hearing import Hearing
from disque_trio.cluster.members import Member
from disque_trio.cluster.nodes_conf import NodeLine, format_nodes, parse_nodes
from disque_trio.core.peers import Peer
from disque_trio.protocol.bus import (
    NODE_FAIL,
    NODE_LEAVING,
    NODE_MEET,
    NODE_MYSELF,
    NODE_NOADDR,
    NODE_PFAIL,
)

PRIORITY_OK, PRIORITY_UNLINKED, PRIORITY_SUSPECT, PRIORITY_BAD = 1, 5, 10, 100
_FROM_FILE = NODE_PFAIL | NODE_FAIL | NODE_NOADDR | NODE_LEAVING


class Membership(Hearing):
    """The other nodes of the cluster.

    Args:
        packets: makes this node's packets; has its id, port and announced ip.
        network: opens links.
        rng: which members are pinged and told of; made-up ids of handshakes.
        deliver: gets sender, packet and time of each packet that is about jobs.

    Attributes:
        node_timeout: ms without an answer after which a node is suspected.
        now: the driver's time, ms since the epoch.
        ip: this node's own, as other nodes reach it; empty until learned.
        config_changed: what ``dump_conf`` gives has changed in a way that matters since ``save``
            worked last.
        saver: writes the text of nodes.conf to disk, returns why that failed or None.
        malformed: packets that were ignored because of what is in them.
        leaving: this node is about to leave; kept over restarts.
    """

    # ---- for HELLO, CLUSTER and INFO ------------------------------------------------------------

    def others(self) -> list[Peer]:
        return [Peer(m.id, m.ip, m.port, _priority(m)) for m in self._members.all()]

    def endpoint(self) -> tuple[str, int]:
        return self.packets.ip or self.ip, self.packets.port

    def describe(self) -> str:
        return format_nodes([self._my_line(), *map(self._line, self._members.all())])

    def meet(self, ip: str, port: int) -> None:
        self._begin_handshake(ip, port, NODE_MEET)

    def has(self, places: list[tuple[str, int]]) -> bool:
        """Whether a member is at one of these addresses."""
        return any((m.ip, m.port) in places for m in self._known.values())

    def forget(self, id: bytes) -> bool:
        member = self._known.get(id) or self._members.handshakes.get(id)
        if member is None:
            return False
        self._blacklist.add(id, self._time)
        self._members.remove(member)
        self._update()
        return True

    def reset(self, id: bytes) -> None:
        for member in self._members.all():
            self._members.remove(member)
        self._blacklist.clear()
        self.packets.id = id
        self.packets.refresh()
        self._update()

    def spread(self, by_host: bool) -> None:
        """Whether copies of a job are to be on different hosts."""
        self.by_host = by_host
        self._update(False)

    @property
    def leaving(self) -> bool:
        return self.packets.flags & NODE_LEAVING != 0

    def set_leaving(self, leaving: bool) -> None:
        if leaving != self.leaving:
            self.packets.flags ^= NODE_LEAVING
            self.packets.refresh()
            self.config_changed = True
            for member in self._known.values():
                if member.connected():
                    self._ping(member)  # or some would hear of it seconds later

    # ---- nodes.conf -----------------------------------------------------------------------------

    def save(self) -> str | None:
        problem = self.saver(self.dump_conf()) if self.saver is not None else None
        if problem is None:
            self.config_changed = False
        return problem

    def dump_conf(self) -> str:
        """The text of nodes.conf: this node and the members, no handshakes."""
        known = [self._line(self._known[id]) for id in self._members.everyone]
        return format_nodes([self._my_line(), *known])

    def load_conf(self, text: str, now: int) -> None:
        """Take over what a nodes.conf says, this node's id (into ``packets``) and LEAVING included.
        To be called before anything else.

        Raises:
            NodesConfError: it says nothing; nothing was taken over.
        """
        conf = parse_nodes(text)
        self._pass_time(now)
        self.packets.id = conf.myself.id
        self.packets.flags = NODE_MYSELF | (conf.myself.flags & NODE_LEAVING)
        self.packets.refresh()
        self.ip = conf.myself.ip
        self._ip_from_file = True
        for line in conf.others:
            member = Member(line.id, line.ip, line.port, line.flags & _FROM_FILE, self._time)
            if not line.ip or not is_port(line.port):
                member.flags |= NODE_NOADDR
            if line.pong_received:
                member.pong_received = self._time
            self._known[line.id] = member
        self._update(False)

    def _my_line(self) -> NodeLine:
        return NodeLine(self.packets.id, *self.endpoint(), self.packets.flags)

    def _line(self, member: Member) -> NodeLine:
        wall = self.now - self._time
        return NodeLine(
            member.id,
            member.ip,
            member.port,
            member.flags,
            member.ping_sent and member.ping_sent + wall,
            member.pong_received and member.pong_received + wall,
            member.connected(),
        )


def _priority(member: Member) -> int:
    """How good a node is to talk to, for HELLO; the worst rule that holds."""
    if member.flags & (NODE_FAIL | NODE_LEAVING):
        return PRIORITY_BAD
    if member.flags & NODE_PFAIL:
        return PRIORITY_SUSPECT
    return PRIORITY_OK if member.connected() else PRIORITY_UNLINKED
