"""A membership without gossip: all nodes know each other from the start.

It keeps one outgoing link to each other node and believes what the links show. Most seeds use it,
because finding each other, and deciding which nodes are alive, takes more time than the jobs.
"""

from collections.abc import Callable

from disque_trio.cluster.failure import Refusals
from disque_trio.cluster.links import Link
from disque_trio.cluster.peers import Peer, Peers
from disque_trio.protocol import bus
from tests.simulator.events import MS, SECOND
from tests.simulator.fabric import BUS_OFFSET, End

HANG_LIMIT = 3 * SECOND


class StaticMesh(Peers):
    """All nodes are known; a node is reachable while the link to it is up, and before the first
    attempt to open one has ended.

    Args:
        addresses: IP address and client port of all nodes by id, including this one.
        older: ids of the nodes with which it exchanges neither SETTLED nor GIVEN, nor lots.
    """

    def __init__(
        self,
        packets: bus.PacketWriter,
        connect: Callable[[str, int], End],
        addresses: dict[bytes, tuple[str, int]],
        older: set[bytes],
    ) -> None:
        super().__init__()
        self.packets = packets
        self.size = len(addresses)
        self._connect = connect
        self._own = addresses[packets.id]
        self._addresses = {id: at for id, at in addresses.items() if id != packets.id}
        self._older = older
        self._links: dict[bytes, End] = {}
        self._untried = set(self._addresses)
        self._refusals = Refusals()
        self._others_leaving: set[bytes] = set()
        self._refresh()

    def everyone(self) -> list[bytes]:
        return list(self._addresses)

    def knows(self, id: bytes) -> bool:
        return id in self._addresses

    def understands(self, id: bytes) -> bool:
        return id in self._addresses

    def settles(self, id: bytes) -> bool:
        return id in self._addresses and self._older.isdisjoint((id, self.packets.id))

    def keeps_lots(self, id: bytes) -> bool:
        return self.settles(id)

    def limits_groups(self, id: bytes) -> bool:
        return self.settles(id)

    def replaces_jobs(self, id: bytes) -> bool:
        return self.settles(id)

    def leaves(self, id: bytes) -> bool:
        return id in self._others_leaving

    def linked(self, id: bytes) -> bool:
        link = self._links.get(id)
        return link is not None and link.up

    def send(self, id: bytes, packet: bytes) -> None:
        link = self._links.get(id)
        if link is not None and link.up:
            self.messages_sent += 1
            link.send(packet)

    def others(self) -> list[Peer]:
        return [Peer(id, ip, port, 1) for id, (ip, port) in self._addresses.items()]

    def endpoint(self) -> tuple[str, int]:
        return self._own

    def set_leaving(self, leaving: bool) -> None:
        super().set_leaving(leaving)
        self.packets.flags = bus.NODE_MYSELF | (bus.NODE_LEAVING if leaving else 0)
        self.packets.refresh()

    def forget(self, id: bytes) -> bool:
        if self._addresses.pop(id, None) is None:
            return False
        if id not in self.reachable:
            self.died(id)  # the operator knows
        link = self._links.pop(id, None)
        if link is not None:
            link.close()
        self.size -= 1
        self._refresh()
        return True

    # ---- what the machine calls -----------------------------------------------------------

    def cron(self, virtual: int) -> bool:
        """Open missing links, and give up links that hang. Return whether there were none."""
        healthy = len(self._links) == len(self._addresses)
        for link in self._links.values():
            if link.hung_since:
                healthy = False
                break
        return healthy or self._repair(virtual)

    def _repair(self, virtual: int) -> bool:
        """See ``cron``."""
        healthy = True
        for id, (ip, port) in list(self._addresses.items()):
            link = self._links.get(id)
            if link is None:
                link = self._links[id] = self._connect(ip, port + BUS_OFFSET)
                link.node_id = id
                healthy = False
            elif link.hung_since and virtual - link.hung_since > HANG_LIMIT:
                link.close()
                self.link_lost(link)
                healthy = False
        return healthy

    def link_up(self, link: Link) -> None:
        """Note that an outgoing link is up."""
        assert link.node_id is not None
        self._untried.discard(link.node_id)
        self._refusals.answered(link.node_id)
        self._refresh()
        self.linked_to(link.node_id, True)

    def link_lost(self, link: Link) -> None:
        """Note that a link broke, or could not be opened."""
        if link.outgoing and link.node_id is not None and self._links.get(link.node_id) is link:
            del self._links[link.node_id]
            self._untried.discard(link.node_id)
            self._refresh()
            if not link.refused or not isinstance(link, End):
                self._refusals.answered(link.node_id)
            elif self._refusals.refused(link.node_id, link.fabric.loop.now // MS):
                self.died(link.node_id)

    def receive(self, packet: bytes) -> bytes:
        """Take a complete packet. Return its sender if it is for the node, otherwise nothing."""
        sender = bus.packet_sender(packet)
        self.messages_received += 1
        leaving = bus.sender_flags(packet) & bus.NODE_LEAVING != 0
        if leaving != (sender in self._others_leaving):
            self._others_leaving ^= {sender}
            self._refresh()
        return sender if sender in self._addresses else b""

    def _refresh(self) -> None:
        self.reachable = [
            id
            for id in self._addresses
            if (self.linked(id) or id in self._untried) and id not in self._others_leaving
        ]
